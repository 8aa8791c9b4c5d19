"""which device holds what of a value, as data and in words"""
from __future__ import annotations
from dataclasses import dataclass
from tinygrad.dtype import DType, strong_dtype
from tinygrad.helpers import prod
from tinygrad.uop.ops import Ops, UOp, sint
from tinygrad.schedule.halo import is_lost
from tinygrad.schedule.window import Box, Shape, boxes, empty, lanes_of, own_windows, show, stored, stored_shape, text, words

@dataclass(frozen=True)
class Part:
  """what a device holds: t.numpy()[part.slices] is its data. On an axis of which it has nothing the slice is empty."""
  device:str
  slices:tuple[slice, ...]
  shape:Shape
  nbytes:sint
  where:str  # the slices as text, or "whole", or "empty"

@dataclass(frozen=True)
class Layout:
  """which device holds which part of a value. str() gives a line of what it is, and one for each device"""
  shape:Shape
  dtype:DType
  sharding:str            # in a few words, as words() has it
  parts:tuple[Part, ...]  # by device, none where the value is on no device
  note:str = ""           # what the parts don't tell
  def __str__(self) -> str:
    head = f"{show(self.shape)} {self.dtype.name}, {self.sharding}" + (f" ({self.note})" if self.note else "")
    rows = [(p.device, p.where, *(() if p.where == "empty" else (show(p.shape), f"{show(p.nbytes)} bytes"))) for p in self.parts]
    wide = [max((len(r[i]) for r in rows if len(r) > i), default=0) for i in range(4)]
    return "\n".join([head, *("  "+"  ".join(c.ljust(w) for c,w in zip(r, wide)).rstrip() for r in rows)])
  __repr__ = __str__

def sharding(x:UOp) -> str:
  """how a value is sharded, in a few words"""
  if x.device is None: return "on no device"
  return words(x.windows, x.shape) or ("whole on each" if isinstance(x.device, tuple) else f"whole on {x.device}")

def layout(x:UOp) -> Layout:
  """which device holds which part of x. what isn't computed yet is told as it will be computed. never raises"""
  devices, ws, size = (x.device,) if isinstance(x.device, str) else x.device or (), x.windows, strong_dtype(x.dtype).itemsize
  # on one device it is what that has as a lane of several, else the windows are of threads
  lane = x.base.lane if isinstance(x.device, str) else None
  if isinstance(x.device, str) and lane is None: ws = ()
  held:list[Box] = boxes(ws, x.shape, max(len(devices), lanes_of(ws))) if ws else [()]*len(devices)
  if ws and lane is not None: held = [held[lane]]
  def part(device:str, box:Box) -> Part:
    at = {ax:(0, 0) if empty(box) else be for (ax,_,_),be in zip(ws, box)}
    ends = [at.get(a, (0, s)) for a,s in enumerate(x.shape)]
    cuts = [":" if be == (0, s) else f"{text(be[0])}:{text(be[1])}" for be,s in zip(ends, x.shape)]
    where = "empty" if empty(box) else f"[{', '.join(cuts)}]" if set(cuts) - {":"} else "whole"
    return Part(device, tuple(slice(b, e) for b,e in ends), shape:=tuple(e-b for b,e in ends), prod(shape)*size, where)
  parts = tuple(part(d, b) for d,b in zip(devices, held))
  notes = ["the same wherever it is used"] if not devices else [] if x.unsharded_base.realized is not None and not is_lost(x) else ["not realized"]
  if isinstance(x.device, tuple):
    kept = prod(stored_shape(x))*size
    if ws and not stored(x): notes.append("whole on each once realized")
    # blocks are alike in memory
    elif isinstance(kept, int) and any(p.nbytes != kept for p in parts): notes.append(f"{show(kept)} bytes of memory on each")
  return Layout(x.shape, x.dtype, sharding(x), parts, ", ".join(notes))

def label(u:UOp) -> str:
  """what an op says of devices, for those who look at the graph. empty for most"""
  if u.op is Ops.PAD and u.is_window: return "shard " + words(own_windows(u), u.shape)
  if u.op not in {Ops.WHERE, Ops.INDEX} or u.lane_srcs is None: return ""
  return "lanes" if u.lane is None else f"lane {u.lane}"

def jit_mismatch(names:list, was:list, now:list) -> str:
  """which inputs of a captured function are another than those that it was captured with"""
  def told(info:tuple) -> str:
    view, _, dtype, device = info
    return f"{show(view.shape)} {dtype.name}, {words(view.windows, view.shape) or 'whole'} on {device}"
  # the same but for how it's seen, as a flipped or a cut view of a buffer
  def pair(a:tuple, b:tuple) -> str: return f"{told(b)}, it was {told(a)}" if told(a) != told(b) else f"{told(b)}, in another view than it was"
  named = [n if isinstance(n, str) else i for i,n in enumerate([*names, *[None]*len(was)])]
  return "; ".join(f"input {n} is {pair(a, b)}" for n,a,b in zip(named, was, now) if a != b) or f"{len(now)} inputs, there were {len(was)}"
