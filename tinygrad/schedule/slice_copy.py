"""a copy between devices moves a contiguous piece of memory: a slice of a buffer is one already, so it needs no kernel to cut it out or put it in"""
from __future__ import annotations
from tinygrad.dtype import dtypes
from tinygrad.helpers import prod
from tinygrad.uop.ops import Ops, UOp, shape_to_shape_arg

# no views of buffers, or no memory
NO_SLICE = ("WEBGPU", "CL", "DISK", "TINYFS")

def slice_of(x:UOp) -> tuple[UOp, int]|None:
  """(buffer, offset in it) of which x is one piece, the same whatever runs"""
  at = 0
  while x.op in {Ops.RESHAPE, Ops.SHRINK}:
    if x.op is Ops.SHRINK:
      shape = x.src[0].shape
      if not all(isinstance(s, int) for m in (*x.marg, shape) for s in m): return None
      cut = [a for a,(s,size) in enumerate(zip(shape, x.shape)) if s != size]
      # before the last axis that is cut no more than one element of each
      if cut and any(s != 1 for s in x.shape[:cut[-1]]): return None
      at += sum(o*prod(shape[a+1:]) for a,(o,_) in enumerate(x.marg))
    x = x.src[0]
  return (x, at) if x.lane is not None or x.has_buffer_identity(after_ok=True) else None

def flat_memory(x:UOp) -> UOp:
  """x in one axis, below every RESHAPE: its places need no math then"""
  while x.op is Ops.RESHAPE: x = x.src[0]
  return x.flatten()

def is_slice(x:UOp) -> bool: return isinstance(x.device, str) and not x.device.startswith(NO_SLICE) and slice_of(x) is not None

def offset(idx:UOp, r:UOp|None) -> int|None:
  if idx is r: return 0
  if idx.op is Ops.ADD and idx.src[0] is r and idx.src[1].op is Ops.CONST: return idx.src[1].val
  o = idx if r is None else (idx-r).simplify()
  return o.val if o.op is Ops.CONST else None

def copy_slice(call:UOp, ast:UOp) -> UOp|None:
  """dst[r+a] = src[r+b] as a copy of slices"""
  if call.src[1].device == call.src[2].device: return None
  st, r = ast.src[0], None
  if st.op is Ops.END and len(st.src) == 2 and st.src[1].op is Ops.RANGE and st.src[1].src[0].op is Ops.CONST: st, r = st.src
  if st.op is not Ops.STORE or len(st.src) != 2: return None
  to, v = st.src
  # what was stored with a width may be read without one
  if v.op is Ops.CAST and v.dtype in dtypes.weaks: v = v.src[0]
  if any(u.op is not Ops.INDEX or len(u.src) != 2 or u.src[0].op is not Ops.PARAM for u in (to, v)) or to.dtype != v.dtype: return None
  (dst, di), (src, si) = to.src, v.src
  if (a:=offset(di, r)) is None or (b:=offset(si, r)) is None: return None
  n = 1 if r is None else r.src[0].val
  def piece(p:UOp, off:int) -> UOp:
    arg = call.src[1+p.arg.slot]
    return arg if off == 0 and n == p.max_numel() else arg._mop(Ops.SHRINK, ((off, n),))
  copy = UOp(Ops.COPY, src=(src if n == src.max_numel() else src.replace(src=(shape_to_shape_arg((n,)),)),), arg=dst.device)
  return call.replace(src=(copy, piece(dst, a), piece(src, b)))
