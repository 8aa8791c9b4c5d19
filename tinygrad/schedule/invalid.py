from tinygrad.uop.ops import UOp, Ops, PatternMatcher, UPat, identity_element
from tinygrad.uop.symbolic import invalid_gate
from tinygrad.helpers import partition

def reduce_identity(red:UOp, cond:UOp, x:UOp, i:UOp) -> UOp|None:
  reduced, whole = partition(cond.split_uop(Ops.AND), lambda c: any(r in c.ranges for r in red.src[1:]))
  # a gate that holds for the whole reduce leaves nothing to reduce: the result is Invalid
  if not reduced: return cond.where(red.replace(src=(x,)+red.src[1:]), i)
  # mask and data only fold while they share the condition, so don't rebuild it if nothing is dropped
  mask = UOp.uprod(*reduced) if whole else cond
  ret = red.replace(src=(mask.where(x, identity_element(red.arg[0], x.dtype)),)+red.src[1:])
  return UOp.uprod(*whole).where(ret, i) if whole else ret

def gate_reader(idx:UOp, st:UOp, cond:UOp, x:UOp, i:UOp) -> UOp:
  # an axis of one element has no range: a 0 in the gate is any 0
  at = {r:o for r,o in zip(st.src[1:], idx.src[1:]) if r.op is Ops.RANGE}
  return cond.substitute(at).where(idx.replace(src=(st.replace(src=(x,)+st.src[1:]),)+idx.src[1:]), i)

pm_invalid = PatternMatcher([
  # what is written where the dest is no place isn't written
  (UPat(Ops.STORE, src=(invalid_gate, UPat.var("v")), name="st"), lambda st,cond,x,i,v: st.replace(src=(x, cond.where(v, i)))),
  # an element that is Invalid takes no part in a REDUCE
  (UPat(Ops.REDUCE, src=(invalid_gate,), allow_any_len=True, name="red"), reduce_identity),
  # memory can't hold Invalid: who reads a buffer between two kernels has the gate of who writes it
  (UPat(Ops.INDEX, src=(UPat(Ops.STAGE, src=(invalid_gate,), allow_any_len=True, name="st"),), allow_any_len=True, name="idx"), gate_reader),
])
