#!/usr/bin/env python3
"""What the devices receive, launch and hold in small programs, patched (SYMBOLIC_MULTI=1) beside unpatched, over the least possible.

Usage: communication.py [--case NAME] [--devices N] [--floats N] [--memory | --jax]

All is counted on the NULL device while the programs run there: bytes that the busiest device receives from others; launches, as kernels+copies, each
device's own; peak memory of the busiest device and of the others. --memory gives that in kB, --jax the bytes beside those of JAX's compiler.
Fails when the patched package raises, or is farther from the least possible than the unpatched one.
"""
from __future__ import annotations
import argparse, importlib.util, json, math, os, sys
from dataclasses import dataclass
from typing import Callable
from _trees import Side, both, die, table

@dataclass(frozen=True)
class Size:
  """n devices, and a matrix that has the floats. In bytes: s all of it, row one row of it, w a weight of cols x cols."""
  n: int
  rows: int
  cols: int
  @property
  def s(self) -> float: return 4*self.rows*self.cols
  @property
  def row(self) -> float: return 4*self.cols
  @property
  def w(self) -> float: return 4*self.cols*self.cols
  @property
  def others(self) -> float: return (self.n-1)/self.n

@dataclass(frozen=True)
class Case:
  """The bytes that the busiest device has to receive, and those of the results that each device has to hold, or the first one and the others."""
  least: Callable[[Size], float]
  out: Callable[[Size], float|tuple[float, float]]

# the programs are the functions of these names in _communication.py and _jax.py
CASES = {
  # a device has 1/n of s, and needs the rest
  "allgather": Case(lambda z: z.others*z.s, lambda z: z.s),
  # every device has a term of s. reduce-scatter, then allgather: each brings (n-1)/n of s
  "allreduce": Case(lambda z: 2*z.others*z.s, lambda z: z.s),
  # the terms of the other n-1 devices for 1/n of s
  "reduce_scatter": Case(lambda z: z.others*z.s, lambda z: z.s/z.n),
  # 1/n of s is wanted, and 1/n of that is there
  "all_to_all": Case(lambda z: z.others*z.s/z.n, lambda z: z.s/z.n),
  # the one needs what the others have
  "gather_to_one": Case(lambda z: z.others*z.s, lambda z: (z.s, 0)),
  # a device that has nothing needs all
  "broadcast": Case(lambda z: z.s, lambda z: z.s),
  # the last row of the device before
  "roll_one_row": Case(lambda z: z.row, lambda z: z.s/z.n),
  "roll_plus_itself": Case(lambda z: z.row, lambda z: z.s/z.n),
  # the block of the device at the other end
  "flip": Case(lambda z: z.s/z.n, lambda z: z.s/z.n),
  "flip_plus_itself": Case(lambda z: z.s/z.n, lambda z: z.s/z.n),
  # nothing: every row may stay where it is, if the shards may be uneven
  "pad_one_row": Case(lambda z: 0, lambda z: math.ceil((z.rows+1)/z.n)*z.row),
  # a border row of each neighbour, over all channels: with two devices there is one neighbour
  "conv_halo": Case(lambda z: min(2, z.n-1)*z.row, lambda z: z.s/z.n),
  # the row, for those that don't have it
  "index_one_row": Case(lambda z: z.row, lambda z: z.row),
  # the second device's block of the result has no row that it has. with two devices it's half of what the other has
  "cat_along_axis": Case(lambda z: 2*z.s/z.n if z.n > 2 else z.s/2, lambda z: 2*z.s/z.n),
  # two halves of a matrix multiplied: a block of each for every device, but for the first one, that has its block of one of them
  "fused_gate": Case(lambda z: z.s/z.n if z.n > 2 else z.s/4, lambda z: z.s/2/z.n),
  # from half of the devices to all of them: the part that each is to have, but for the first one
  "to_more_devices": Case(lambda z: z.s/z.n, lambda z: z.s/z.n),
  # a row, a column and a corner of each device's neighbours on a mesh of n/2 by 2
  "mesh_roll": Case(lambda z: z.row/2+8*z.rows/z.n+4 if z.n > 2 else 4*z.rows, lambda z: z.s/z.n),
  # one of the two goes to the other's axis, an all-to-all
  "axis_0_plus_axis_1": Case(lambda z: z.others*z.s/z.n, lambda z: z.s/z.n),
  # every device has a term of the product: an allreduce of it
  "contraction_matmul": Case(lambda z: 2*z.others*z.s, lambda z: z.s),
  # an allreduce of the result, and one of the input's gradient
  "tensor_parallel_mlp": Case(lambda z: 2*2*z.others*z.s, lambda z: 2*z.s+2*z.w/z.n),
  # an allreduce of the gradients of both weights
  "data_parallel_sgd": Case(lambda z: 2*z.others*2*z.w, lambda z: 0),
  # both weights are gathered once and kept for the backward pass, both gradients are reduce-scattered. the batch is larger than the weights
  "fsdp_sgd": Case(lambda z: 2*z.others*2*z.w, lambda z: 0),
  # a weight that is used four times has one gradient, and an allreduce of that
  "recurrent_sgd": Case(lambda z: 2*z.others*z.w, lambda z: 0),
  # of each word's vector a device has 1/n, and of as many tokens 1/n: the rest of the tokens is all that it needs
  "embedding": Case(lambda z: z.others*4*z.rows, lambda z: z.s/z.n),
  # what the rows before its own add up to. handed on from device to device that is one row, here the sum of each block is sent to all at once
  "cumsum": Case(lambda z: z.row, lambda z: z.s/z.n),
  # no device needs another to make its own
  "zeros_sharded": Case(lambda z: 0, lambda z: z.s/z.n),
  "zeros_replicated": Case(lambda z: 0, lambda z: z.s),
  "empty_sharded": Case(lambda z: 0, lambda z: z.s/z.n),
}

Result = dict  # what measure() returns, or {"error": ...}

class Args(argparse.ArgumentParser):
  def error(self, message:str): die(message)

def size(n:int, floats:int) -> Size:
  """The matrix of so many floats that is nearest to a square and divides among the devices on both axes."""
  step = math.lcm(4, n)  # conv_halo has four channels
  found = [c for c in range(math.isqrt(max(floats, 0))//step*step, 0, -step) if floats % c == 0 and floats//c % n == 0]
  if not found: die(f"no matrix of {floats} floats divides among {n} devices on both axes")
  return Size(n, floats//found[0], found[0])

# ***** what a side prints *****

def guarded(f:Callable[..., dict], *args) -> Result:
  try: return f(*args)
  except Exception as e: return {"error": f"{type(e).__name__}: {str(e).splitlines()[0][:150] if str(e) else ''}"}

def side(kind:str, programs:str):
  todo = json.loads(programs)
  if kind == "jax":
    # read when JAX is imported
    os.environ.update(JAX_PLATFORMS="cpu", XLA_FLAGS=f"--xla_force_host_platform_device_count={max(p[1] for p in todo)}")
    import _jax
    print(json.dumps([guarded(_jax.measure, *p) if p[0] in _jax.PROGRAMS else {"error": ""} for p in todo]))
  else:
    from tinygrad.helpers import tqdm
    import _communication
    print(json.dumps([guarded(_communication.measure, *p) for p in tqdm(todo, unit=" programs", disable=None)]))

# ***** tables *****

def over(got:float, least:float) -> str: return f"x{got/least:.2f}" if least else f"{got:,.0f} B"
def received(r:Result, least:float) -> str: return "-" if "error" in r else over(r["received"], least)
def launches(r:Result) -> str: return "-" if "error" in r else f"{r['kernels']}+{r['copies']}"

def held(r:Result, name:str, z:Size) -> list[tuple[float, float]]:
  """(peak, what it has to hold) of the busiest device, and of the others the one that is farthest from what it has to."""
  first, rest = o if isinstance(o:=CASES[name].out(z), tuple) else (o, o)
  devs = [(p, i+(rest if j else first)) for j,(p,i) in enumerate(zip(r["peak"], r["inputs"]))]
  busiest = max(devs, key=lambda d: (d[0], -d[1]))
  devs.remove(busiest)
  return [busiest, max(devs, key=lambda d: d[0]/max(d[1], 1))]
def peak(r:Result, name:str, z:Size) -> str:
  if "error" in r: return "-"
  return "/".join(f"{p/max(h, 1):.2f}" for p,h in held(r, name, z))

def main(args:list[str]) -> int:
  if args[:1] == ["--side"]: return side(*args[1:]) or 0
  p = Args(usage="communication.py [--case NAME] [--devices N] [--floats N] [--memory | --jax]")
  p.add_argument("--case", choices=list(CASES))
  p.add_argument("--devices", type=int)
  p.add_argument("--floats", type=int)
  p.add_argument("--memory", action="store_true")
  p.add_argument("--jax", action="store_true")
  a = p.parse_args(args)
  if a.memory and a.jax: die("--memory and --jax are two tables: ask for one")
  if a.devices is not None and a.devices < 2: die(f"--devices {a.devices}: at least 2 are needed")
  if a.jax and importlib.util.find_spec("jax") is None: die("--jax needs JAX, which is not installed: .venv/bin/python -m pip install jax")
  sizes = [size(n, f) for f in ([2**20, 4096] if a.floats is None else [a.floats]) for n in ([2, 4, 8] if a.devices is None else [a.devices])]
  programs = [(name, z.n, z.rows, z.cols) for z in sizes for name in CASES if a.case in (None, name)]
  os.environ["SYMBOLIC_MULTI"] = "1"
  jax = Side(None, __file__, "jax", json.dumps(programs), quiet=True) if a.jax else None
  res = both(__file__, "tinygrad", json.dumps(programs))
  beside = jax.result() if jax is not None else [{} for _ in programs]

  head = {True: ["case", "devices", "has to hold, kB", "", "0.14.0", "", "patched", ""],
          False: ["case", "devices", "least", "received", "", "launches", "", "peak memory", "", ""]}[a.memory]
  if a.jax: head = ["case", "devices", "least", "0.14.0", "patched", "JAX", "its collectives"]
  least_reached, worse, raised, rows = 0, 0, list[str](), dict[int, list[list[str]]]()
  for prog, base, new, other in zip(programs, res["base"], res["new"], beside):
    name, z = prog[0], Size(*prog[1:])
    least = CASES[name].least(z)
    bad: list[str] = []
    if other.get("error"): print(f"JAX, {name} on {z.n} devices: {other['error']}", file=sys.stderr)
    if "error" in new: raised.append(f"{name} on {z.n} devices: {new['error']}")
    else:
      least_reached += new["received"] <= least
      if "error" not in base:
        if new["received"] > base["received"]: bad.append("received")
        if new["kernels"]+new["copies"] > base["kernels"]+base["copies"]: bad.append("launches")
        if max(new["peak"]) > max(base["peak"]): bad.append("peak memory")
    worse += len(bad) > 0
    row = [name, str(z.n)]
    if a.memory:
      known = next((r for r in (new, base) if "error" not in r), None)
      row += [f"{h/1e3:,.1f}" for _,h in held(known, name, z)] if known else ["", ""]
      for r in (base, new): row += ["-", "-"] if "error" in r else [f"{m/1e3:,.1f}" for m,_ in held(r, name, z)]
    elif a.jax:
      row += [f"{least:,.0f}", received(base, least), received(new, least), received(other, least), other.get("collectives", "")]
    else:
      row += [f"{least:,.0f}", received(base, least), received(new, least), launches(base), launches(new), peak(base, name, z), peak(new, name, z)]
      row.append("WORSE: " + ", ".join(bad) if bad else "")
    rows.setdefault(z.rows*z.cols, [head]).append(row)
  for floats, t in rows.items():
    print(f"{floats:,} floats")
    table(t)
    print()
  print(f"{len(programs)} programs: with the patches {least_reached} receive the least possible, {worse} are worse than in 0.14.0, "
        f"{len(raised)} raise")
  print({True: "(pairs: busiest device, others. -: it refuses)", False: "(pairs: unpatched, patched. -: it refuses. received: by the busiest device, "
         "over the least. launches: kernels+copies.\npeak memory: of the busiest device/of the others, over its inputs and results)"}[a.memory]
        if not a.jax else "(received by the busiest device, over the least. -: it refuses, or jit can't say it)")
  for r in raised: print(r)
  return int(worse > 0 or len(raised) > 0)

if __name__ == "__main__": sys.exit(main(sys.argv[1:]))
