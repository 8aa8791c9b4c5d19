"""The programs of communication.py in JAX, compiled for CPU devices, and what the collectives of the compiled text bring to a device.

Each is a function of (mesh, rows, cols) in PROGRAMS that returns a function of the inputs, their shapes with a sharding, and the results' shardings
(None: the compiler's choice). What a program of one device or of no input can't say to jit is not here.
"""
from __future__ import annotations
import re
from collections import Counter
from typing import Callable
import jax, jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

PROGRAMS: dict[str, Callable] = {}
def program(f):
  PROGRAMS[f.__name__] = f
  return f

def on(mesh:Mesh, axis:int|None=None) -> NamedSharding: return NamedSharding(mesh, PartitionSpec(*([None]*axis + ["d"] if axis is not None else [])))
def T(mesh:Mesh, *shape:int, axis:int|None=None): return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=on(mesh, axis))

# ***** measuring *****

INSTRUCTION = re.compile(r"\s*(?:ROOT )?%([\w.-]+) = (\(.*?\)|\S+) ([a-z][\w-]*)\((.*?)\)(?:, (.*))?$")
COLLECTIVES = {"all-gather", "all-reduce", "reduce-scatter", "all-to-all", "ragged-all-to-all", "collective-permute", "collective-broadcast"}
BYTES = {"pred": 1, "s32": 4, "u32": 4, "f32": 4, "s64": 8, "u64": 8}

def nbytes(shape:str) -> int:
  ret = 0
  for dtype,dims in re.findall(r"(\w+)\[([\d,]*)\]", shape):
    n = BYTES[dtype]
    for d in filter(None, dims.split(",")): n *= int(d)
    ret += n
  return ret

def group(attrs:str, n:int) -> int:
  """How many devices take part together: {{0,1},{2,3}} lists them, [2,2]<=[4] is groups x devices, {} is all."""
  if m:=re.search(r"replica_groups=\{\{([\d,]+)\}", attrs): return len(m[1].split(","))
  return int(m[1]) if (m:=re.search(r"replica_groups=\[\d+,(\d+)\]", attrs)) else n

def collectives(text:str, n:int) -> tuple[Counter[int], Counter[str]]:
  """Bytes that each device receives, each collective at its own bound, and how many there are of each kind."""
  got, kinds, sizes = Counter[int](), Counter[str](), dict[str, int]()
  for line in text.splitlines():
    if (m:=INSTRUCTION.match(line)) is None: continue
    name, shape, op, operands, attrs = m.groups(default="")
    sizes[name] = nbytes(shape)
    kind = op.removesuffix("-start")
    if kind not in COLLECTIVES: continue
    g, size, to = group(attrs, n), sum(sizes[x] for x in re.findall(r"%([\w.-]+)", operands)), list(range(n))
    match kind:
      case "all-gather": received = size*(g-1)  # (g-1)/g of its output
      case "all-reduce": received = 2*size*(g-1)//g
      case "reduce-scatter" | "all-to-all": received = size*(g-1)//g
      case "collective-permute":
        received, pairs = size, re.search(r"source_target_pairs=\{(.*?)\}\}", attrs)
        assert pairs is not None, line
        to = [int(t) for s,t in re.findall(r"(\d+),(\d+)", pairs[1]) if s != t]
      case _: raise NotImplementedError(kind)
    kinds[kind] += 1
    for d in to: got[d] += received
  return got, kinds

def measure(name:str, n:int, rows:int, cols:int) -> dict:
  f, inputs, out = PROGRAMS[name](Mesh(jax.devices()[:n], ("d",)), rows, cols)
  text = jax.jit(f, out_shardings=out).lower(*inputs).compile().as_text()
  got, kinds = collectives(text, n)
  return {"received": max(got.values(), default=0), "collectives": ", ".join(k if c == 1 else f"{c} {k}" for k,c in sorted(kinds.items()))}

# ***** programs *****

def same(x): return x

@program
def allgather(m, rows, cols): return same, [T(m, rows, cols, axis=0)], on(m)
@program
def allreduce(m, rows, cols): return lambda x: x.sum(0), [T(m, m.size, rows*cols, axis=0)], on(m)
@program
def reduce_scatter(m, rows, cols): return lambda x: x.sum(0), [T(m, m.size, rows*cols, axis=0)], on(m, 0)
@program
def all_to_all(m, rows, cols): return same, [T(m, rows, cols, axis=0)], on(m, 1)
@program
def roll_one_row(m, rows, cols): return lambda x: jnp.roll(x, 1, 0), [T(m, rows, cols, axis=0)], on(m, 0)
@program
def roll_plus_itself(m, rows, cols): return lambda x: x+jnp.roll(x, 1, 0), [T(m, rows, cols, axis=0)], on(m, 0)
@program
def flip(m, rows, cols): return lambda x: jnp.flip(x, 0), [T(m, rows, cols, axis=0)], on(m, 0)
@program
def flip_plus_itself(m, rows, cols): return lambda x: x+jnp.flip(x, 0), [T(m, rows, cols, axis=0)], on(m, 0)
@program
def pad_one_row(m, rows, cols): return lambda x: jnp.pad(x, ((0, 1), (0, 0))), [T(m, rows, cols, axis=0)], None  # uneven: jit takes no such sharding
@program
def conv_halo(m, rows, cols):
  def conv(x, w): return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME")
  return conv, [T(m, 1, 4, rows, cols//4, axis=2), T(m, 4, 4, 3, 3)], on(m, 2)
@program
def index_one_row(m, rows, cols): return lambda x: x[1], [T(m, rows, cols, axis=0)], on(m)
@program
def axis_0_plus_axis_1(m, rows, cols): return lambda x,y: x+y, [T(m, rows, cols, axis=0), T(m, rows, cols, axis=1)], on(m, 0)
@program
def contraction_matmul(m, rows, cols): return lambda x,y: x@y, [T(m, rows, cols, axis=1), T(m, cols, cols, axis=0)], on(m)
@program
def tensor_parallel_mlp(m, rows, cols):
  def mlp(x, up, down):
    y, back = jax.vjp(lambda x,up,down: jax.nn.relu(x@up)@down, x, up, down)
    return y, back(2*y)
  return mlp, [T(m, rows, cols), T(m, cols, cols, axis=1), T(m, cols, cols, axis=0)], (on(m), (on(m), on(m, 1), on(m, 0)))
def sgd_step(m:Mesh, rows:int, cols:int, axis:int|None):
  def step(x, ws):
    g = jax.grad(lambda ws: jnp.mean((jax.nn.relu(x@ws[0])@ws[1])**2))(ws)
    return [w-0.1*d for w,d in zip(ws, g)]
  return step, [T(m, 4*rows, cols, axis=0), [T(m, cols, cols, axis=axis)]*2], [on(m, axis)]*2
@program
def data_parallel_sgd(m, rows, cols): return sgd_step(m, rows, cols, None)
@program
def fsdp_sgd(m, rows, cols): return sgd_step(m, rows, cols, 0)
@program
def recurrent_sgd(m, rows, cols):
  def loss(w, h):
    for _ in range(4): h = jnp.tanh(h@w)
    return (h*h).mean()
  return lambda h,w: w-0.1*jax.grad(loss)(w, h), [T(m, rows, cols, axis=0), T(m, cols, cols)], on(m)
@program
def embedding(m, rows, cols):
  tokens = jax.ShapeDtypeStruct((rows,), jnp.int32, sharding=on(m, 0))
  return lambda w,i: w[i], [T(m, rows, cols, axis=1), tokens], on(m, 1)
@program
def cumsum(m, rows, cols): return lambda x: jnp.cumsum(x, 0), [T(m, rows, cols, axis=0)], on(m, 0)
@program
def zeros_sharded(m, rows, cols): return lambda: jnp.zeros((rows, cols)), [], on(m, 0)
@program
def zeros_replicated(m, rows, cols): return lambda: jnp.zeros((rows, cols)), [], on(m)
