"""One training program of a tinygrad checkout, run with its TinyJits watched."""
from __future__ import annotations
import contextlib, importlib, io, json, os, runpy, sys
from collections import Counter
from typing import NoReturn
from tinygrad import Tensor, dtypes, nn
from tinygrad.engine import realize
from tinygrad.engine.jit import _TinyJit
from tinygrad.engine.realize import get_call_arg_uops
from tinygrad.helpers import to_tuple
from tinygrad.uop.ops import Ops, UOp
from _communication import Peak, received

def calls(linear:UOp) -> list[UOp]:
  """The kernels and copies, those of a graph included."""
  def inside(call:UOp) -> list[UOp]: return calls(ast.src[0]) if (ast:=call.src[0]).op is Ops.CUSTOM_FUNCTION and ast.arg == "graph" else [call]
  return [c for call in linear.src for c in inside(call)]

def watch(step:str) -> Counter[str]:
  """The counts of the last call of this function that its TinyJit replayed."""
  ret, running, run_linear, call = Counter[str](), list[bool](), realize.run_linear, _TinyJit.__call__
  def count(linear:UOp, *args, **kwargs):
    if running and running[-1]:
      flat = linear.replace(src=tuple(calls(linear)))
      for c in flat.src:
        pairs = [to_tuple(u.device) for u in get_call_arg_uops(c)[:2]]
        if c.src[0].op is not Ops.COPY: ret["kernels"] += len(to_tuple(c.src[1].device))
        else: ret["copies"] += sum(d != s and s.startswith("NULL") for d,s in zip(*pairs))
      ret.update(received(flat))
    return run_linear(linear, *args, **kwargs)
  def __call__(self, *args, **kwargs):
    fxn = self.fxn
    while hasattr(fxn, "__wrapped__"): fxn = fxn.__wrapped__
    running.append(self.cnt > 1 and getattr(fxn, "__name__", "") == step)
    if running[-1]: ret.clear()
    try: return call(self, *args, **kwargs)
    finally: running.pop()
  for name in ("engine.realize", "engine.jit", "tensor"): setattr(importlib.import_module(f"tinygrad.{name}"), "run_linear", count)
  setattr(_TinyJit, "__call__", __call__)
  return ret

def images() -> tuple[Tensor, ...]:
  """As many as MNIST has, and as large."""
  return tuple(Tensor.zeros(n, *shape, dtype=dtypes.uint8).contiguous() for n in (60000, 10000) for shape in ((1, 28, 28), ()))

def run(where:str, path:str, step:str) -> NoReturn:
  os.chdir(where)
  sys.argv = [path]
  setattr(nn.datasets, "mnist", images)
  counts, peak, ret, out = watch(step), Peak(), dict[str, object](), sys.stdout
  try:
    # the programs print on the way, and what this prints is read
    with contextlib.redirect_stdout(io.StringIO()): runpy.run_path(path, run_name="__main__")
  except SystemExit as e:
    if e.code: ret["error"] = f"exit {e.code}"
  except Exception as e: ret["error"] = f"{type(e).__name__}: {e}"[:300]
  most = peak.stop()
  devices = {d: n for d,n in counts.items() if d.startswith("NULL")}
  if "error" not in ret and not counts: ret["error"] = f"no TinyJit replayed {step}"
  print(json.dumps(ret | {"kernels": counts["kernels"], "copies": counts["copies"], "received": max(devices.values(), default=0),
                          "peak": max((n for d,n in most.items() if d.startswith("NULL")), default=0)}), file=out, flush=True)
  # the programs print once more at exit
  os._exit(0)
