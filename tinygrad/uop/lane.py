"""what one of several devices has is a lane: d.eq(i).where(x, Invalid) selects lane i of x, STACK(s0..sn).index(d) joins the srcs, s_i as lane i"""
from __future__ import annotations
import functools
from tinygrad.dtype import DType, Invalid
from tinygrad.uop.ops import Ops, UOp, AxisType

def on_lane(x:UOp, i:int) -> UOp:
  """index math, or a value without a device, as lane i has it: there the DEVICE range is a number"""
  return x.substitute({r:r.const_like(i) for r in x.ranges if r.arg[-1] is AxisType.DEVICE}).simplify() if x.ranges else x

def mop_on_lane(mop:UOp, x:UOp, i:int) -> UOp: return mop.replace(src=(x,)+tuple(on_lane(a, i) for a in mop.src[1:]))

# there are few of these, and every copy between devices needs one
@functools.cache
def is_on(i:int, n:int) -> UOp: return UOp.range(n, -1, AxisType.DEVICE).eq(i)
@functools.cache
def nothing(dtype:DType) -> UOp: return UOp.const(Invalid, dtype)

def select(x:UOp, i:int) -> UOp:
  # what has no device is computed where it is used
  if x.device is None: return on_lane(x, i)
  if not isinstance(x.device, tuple) or not 0 <= i < len(x.device): raise RuntimeError(f"there is no lane {i} of {x.shape} on {x.device}")
  # the arg tells it from a gate that holds on one device alone
  return UOp(Ops.WHERE, src=(is_on(i, len(x.device)), x, nothing(x.dtype)), arg="lane")

def selected(u:UOp) -> int:
  """the lane that a WHERE selects: what its condition is on each device tells, since rewrites write it in many ways"""
  cond = u.src[0]
  # as it was built, whatever became of the range
  if cond.op is Ops.CMPNE and (eq:=cond.src[0]).op is Ops.CMPNE and eq.src[0].op is Ops.RANGE and eq.src[1].op is Ops.CONST: return eq.src[1].val
  d = next(iter(cond.ranges))
  return next(i for i in range(int(d.vmax)+1) if cond.substitute({d:d.const_like(i)}).simplify().val)

def join(*srcs:UOp) -> UOp:
  if srcs[0].device is None and all(s is srcs[0] for s in srcs): return srcs[0]
  d = UOp.range(len(srcs), -1, AxisType.DEVICE)
  if all(s.device is not None for s in srcs): return UOp(Ops.INDEX, src=(UOp(Ops.STACK, src=srcs), d))
  ret = srcs[-1]
  for i in range(len(srcs)-2, -1, -1): ret = d.eq(i).where(srcs[i], ret)
  return ret
