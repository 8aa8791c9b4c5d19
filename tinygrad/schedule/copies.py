"""copies between lanes: what is one piece of memory is copied as that, and what it's seen through stays outside"""
from __future__ import annotations
from typing import Sequence
from tinygrad.helpers import prod, unwrap
from tinygrad.uop.ops import GroupOp, Ops, UOp
from tinygrad.uop.lane import mop_on_lane
from tinygrad.schedule.slice_copy import slice_of
from tinygrad.schedule.window import cut

def only_moves(x:UOp) -> bool: return x.op in GroupOp.Movement and (x.op is not Ops.PAD or x.arg is None)

def lane_view(x:UOp, i:int) -> UOp: return mop_on_lane(x, lane_view(x.src[0], i), i) if only_moves(x) else x.mselect(i)

def memory(x:UOp) -> UOp|None:
  """the piece of memory that x is with its elements in another order"""
  while x.op in {Ops.RESHAPE, Ops.PERMUTE, Ops.FLIP} and slice_of(x) is None: x = x.src[0]
  return x if slice_of(x) is not None else None

def to_device(x:UOp, device:str) -> UOp:
  """a copy of the memory, flat since its places need no math then, and the order after it"""
  if device == x.device or (base:=memory(x)) is None: return x.copy_to_device(device)
  buf, at = unwrap(slice_of(base))
  ret = cut(buf.flatten(), Ops.SHRINK, {0:(at, prod(base.shape))}).copy_to_device(device).reshape(base.shape)
  def ordered(u:UOp) -> UOp: return ret if u is base else u.replace(src=(ordered(u.src[0]),)+u.src[1:])
  return ordered(x)

def joined(lanes:Sequence[UOp], devices:Sequence[str]|None) -> UOp:
  """one lane on each device. where all of them are in the same order after they are copied, it's the order of what comes out"""
  order, done, below = list[UOp](), list[UOp](), lanes
  while (v:=below[0]).op in {Ops.RESHAPE, Ops.PERMUTE, Ops.FLIP} and all((u.op, u.src[1:], u.arg) == (v.op, v.src[1:], v.arg) for u in below):
    order, below = [v]+order, [u.src[0] for u in below]
    # a RESHAPE is in order already
    if v.op is not Ops.RESHAPE: lanes, done = below, order
  ret = UOp.mstack(*(lanes if devices is None else [u.copy_to_device(d) for u,d in zip(lanes, devices)]))
  for u in done: ret = u.replace(src=(ret,)+u.src[1:])
  return ret
