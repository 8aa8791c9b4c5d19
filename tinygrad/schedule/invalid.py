from tinygrad.uop.ops import UOp, Ops, PatternMatcher, UPat, identity_element
from tinygrad.uop.symbolic import invalid_gate
from tinygrad.helpers import partition

def reduce_identity(red:UOp, cond:UOp, x:UOp, i:UOp) -> UOp|None:
  reduced, whole = partition(cond.split_uop(Ops.AND), lambda c: any(r in c.ranges for r in red.src[1:]))
  # a gate that holds for the whole reduce leaves nothing to reduce: it stays Invalid
  if not reduced: return None
  # mask and data only fold while they share the condition, so don't rebuild it if nothing is dropped
  mask = UOp.uprod(*reduced) if whole else cond
  ret = red.replace(src=(mask.where(x, identity_element(red.arg[0], x.dtype)),)+red.src[1:])
  return UOp.uprod(*whole).where(ret, i) if whole else ret

# an element that is Invalid takes no part in a REDUCE
pm_reduce_identity = PatternMatcher([
  (UPat(Ops.REDUCE, src=(invalid_gate,), allow_any_len=True, name="red"), reduce_identity),
])
