"""The programs of communication.py in tinygrad, and what they move, launch and hold when they run on the NULL device.

Each is a function of (devices, rows, cols) in PROGRAMS that makes its inputs, realized, and returns the tensors to realize.
"""
from __future__ import annotations
import gc
from collections import Counter
from typing import Callable
from tinygrad import Tensor, dtypes, nn
from tinygrad.device import Buffer
from tinygrad.engine.realize import get_call_arg_uops, run_linear
from tinygrad.helpers import Context, GlobalCounters, to_tuple
from tinygrad.schedule import schedule_cache
from tinygrad.uop.ops import Ops, UOp
from _graphs import T, grads, schedule

Devices = tuple[str, ...]
PROGRAMS: dict[str, Callable[[Devices, int, int], Tensor|list[Tensor]]] = {}
def program(f):
  PROGRAMS[f.__name__] = f
  return f

# ***** measuring *****

class Peak:
  """The most that each device holds at a time, from here to stop()."""
  def __init__(self):
    self.most, self.allocate = Counter(GlobalCounters.mem_used_per_device), Buffer.allocate
    def allocate(buf:Buffer, *args, **kwargs) -> Buffer:
      ret = self.allocate(buf, *args, **kwargs)
      self.most[buf.device] = max(self.most[buf.device], GlobalCounters.mem_used_per_device[buf.device])
      return ret
    setattr(Buffer, "allocate", allocate)
  def stop(self) -> Counter[str]:
    setattr(Buffer, "allocate", self.allocate)
    return self.most

def received(linear:UOp) -> Counter[str]:
  """Bytes that copies bring to each device from the others. What comes from the host (a constant that a program is given) is no communication."""
  ret: Counter[str] = Counter()
  for call in linear.src:
    if call.src[0].op is not Ops.COPY: continue
    dest, src = get_call_arg_uops(call)[:2]
    for d,s in zip(to_tuple(dest.device), to_tuple(src.device)):
      if d != s and s.startswith("NULL"): ret[d] += dest.max_numel()*dest.dtype.itemsize
  return ret

def measure(name:str, n:int, rows:int, cols:int) -> dict:
  devices = tuple(f"NULL:{i}" if i else "NULL" for i in range(n))
  def used() -> list[int]: return [GlobalCounters.mem_used_per_device[d] for d in devices]
  # no buffer of the program before is left. what is left stays for good, and would slow every collection down
  schedule_cache.clear()
  gc.collect()
  gc.freeze()
  with Context(TRAINING=1, BEAM=0, PARALLEL=0):
    before = used()
    outs = r if isinstance(r:=PROGRAMS[name](devices, rows, cols), list) else [r]
    inputs, peak = [u-b for u,b in zip(used(), before)], Peak()
    try:
      # what Tensor.realize does, the memory planner included
      linear, var_vals = schedule(outs)
      run_linear(linear, var_vals)
    finally: most = peak.stop()
  ret = {"kernels": 0, "copies": 0}
  for call in linear.src: ret["copies" if call.src[0].op is Ops.COPY else "kernels"] += len(to_tuple(call.src[1].device))
  return ret | {"received": max(received(linear).values(), default=0), "inputs": inputs, "peak": [most[d]-b for d,b in zip(devices, before)]}

# ***** programs *****

def resharded(x:Tensor, devices:Devices, axis:int|None) -> Tensor:
  # 0.14.0 refuses in Tensor.shard, but its UOps can
  try: return x.shard(devices, axis)
  except RuntimeError: return Tensor(x.uop.shard(devices, axis))

@program
def allgather(d, rows, cols): return resharded(T(rows, cols, axis=0, devices=d), d, None)
@program
def allreduce(d, rows, cols): return T(len(d), rows*cols, axis=0, devices=d).sum(0)
@program
def reduce_scatter(d, rows, cols): return resharded(T(len(d), rows*cols, axis=0, devices=d).sum(0), d, 0)
@program
def all_to_all(d, rows, cols): return resharded(T(rows, cols, axis=0, devices=d), d, 1)
@program
def gather_to_one(d, rows, cols): return T(rows, cols, axis=0, devices=d).to(d[0])
@program
def broadcast(d, rows, cols): return Tensor.zeros(rows, cols).realize().shard(d)  # not T: what is empty has no memory yet
@program
def roll_one_row(d, rows, cols): return resharded(T(rows, cols, axis=0, devices=d).roll(1, 0), d, 0).contiguous()
@program
def roll_plus_itself(d, rows, cols): return (x:=T(rows, cols, axis=0, devices=d)) + x.roll(1, 0)
@program
def flip(d, rows, cols): return resharded(T(rows, cols, axis=0, devices=d).flip(0), d, 0)
@program
def flip_plus_itself(d, rows, cols): return (x:=T(rows, cols, axis=0, devices=d)) + x.flip(0)
# contiguous: 0.14.0 takes a pad for a view, which has nothing to realize
@program
def pad_one_row(d, rows, cols): return T(rows, cols, axis=0, devices=d).pad(((0, 1), None)).contiguous()
@program
def conv_halo(d, rows, cols): return T(1, 4, rows, cols//4, axis=2, devices=d).conv2d(T(4, 4, 3, 3, axis=None, devices=d), padding=1)
@program
def index_one_row(d, rows, cols): return resharded(T(rows, cols, axis=0, devices=d)[1], d, None)
@program
def cat_along_axis(d, rows, cols): return T(rows, cols, axis=0, devices=d).cat(T(rows, cols, axis=0, devices=d)).contiguous()
@program
def fused_gate(d, rows, cols): return (x:=T(rows, cols, axis=1, devices=d))[:, :cols//2].silu() * x[:, cols//2:]
@program
def to_more_devices(d, rows, cols): return resharded(T(rows, cols, axis=0, devices=d[:len(d)//2]), d, 0).contiguous()
@program
def mesh_roll(d, rows, cols):
  x = T(rows, cols, axis=1, devices=d) if len(d) == 2 else T(rows, cols, axis=(0, 1), devices=tuple(d[i:i+2] for i in range(0, len(d), 2)))
  return x.roll((1, 1), (0, 1)).contiguous()
@program
def axis_0_plus_axis_1(d, rows, cols): return T(rows, cols, axis=0, devices=d) + T(rows, cols, axis=1, devices=d)
@program
def contraction_matmul(d, rows, cols): return T(rows, cols, axis=1, devices=d) @ T(cols, cols, axis=0, devices=d)
@program
def tensor_parallel_mlp(d, rows, cols):
  x, up, down = T(rows, cols, axis=None, devices=d), T(cols, cols, axis=1, devices=d), T(cols, cols, axis=0, devices=d)
  y = (x @ up).relu() @ down
  return [y] + grads(y.square().sum(), x, up, down)
def sgd_step(d:Devices, rows:int, cols:int, axis:int|None) -> list[Tensor]:
  ws = [T(cols, cols, axis=axis, devices=d).is_param_() for _ in range(2)]
  opt = nn.optim.SGD(ws, lr=0.1)
  ((T(4*rows, cols, axis=0, devices=d) @ ws[0]).relu() @ ws[1]).square().mean().backward()
  return opt.schedule_step()
@program
def data_parallel_sgd(d, rows, cols): return sgd_step(d, rows, cols, None)
@program
def fsdp_sgd(d, rows, cols): return sgd_step(d, rows, cols, 0)
@program
def recurrent_sgd(d, rows, cols):
  h, w = T(rows, cols, axis=0, devices=d), T(cols, cols, axis=None, devices=d).is_param_()
  opt = nn.optim.SGD([w], lr=0.1)
  for _ in range(4): h = (h@w).tanh()
  h.square().mean().backward()
  return opt.schedule_step()
@program
def embedding(d, rows, cols):
  e = nn.Embedding(1, 1)
  e.weight = T(rows, cols, axis=1, devices=d)
  return e(T(rows, dtype=dtypes.int, axis=0, devices=d)).contiguous()
@program
def cumsum(d, rows, cols): return T(rows, cols, axis=0, devices=d).cumsum(0).contiguous()
@program
def zeros_sharded(d, rows, cols): return Tensor.zeros(rows, cols).shard(d, 0)
@program
def zeros_replicated(d, rows, cols): return Tensor.zeros(rows, cols).shard(d)
@program
def empty_sharded(d, rows, cols): return Tensor.empty(rows, cols).shard(d, 0)
