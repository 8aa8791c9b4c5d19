# sums of terms times constants. weakint has no width: nothing wraps, so terms can be moved between sides and merged freely
from tinygrad.uop.ops import UOp, Ops, AxisType

def split_terms(*todo:tuple[UOp, int]) -> tuple[dict[UOp, int], int, bool]:
  """the sum of uop*scale as {term: coefficient}, last term first, and a constant, and whether any two terms were alike"""
  terms:dict[UOp, int] = {}
  left, const, alike = [*todo], 0, False
  # it runs for every sum: the list grows under the loop since that needs no call
  for u,c in left:
    if u.op is Ops.ADD: left += [(u.src[1], c), (u.src[0], c)]
    elif u.op is Ops.MUL and u.src[1].op is Ops.CONST: left += [(u.src[0], c*u.src[1].val)]
    elif u.op is Ops.CONST: const += c*u.val
    elif u in terms: terms[u], alike = terms[u]+c, True
    else: terms[u] = c
  return terms, const, alike

def lt_by_difference(x:UOp, y:UOp) -> UOp|None:
  """x < y where x-y keeps its sign: what both sides hold cancels in x-y, and not in the bounds of x and of y"""
  terms, const, alike = split_terms((x, 1), (y, -1))
  if not alike: return None
  ends = [sorted((c*t.vmin, c*t.vmax)) for t,c in terms.items() if c]
  if const + sum(hi for _,hi in ends) < 0: return UOp.const(True)
  return UOp.const(False) if const + sum(lo for lo,_ in ends) >= 0 else None

def distribute_device(x:UOp, c:UOp) -> UOp|None:
  """(a+b)*c -> a*c+b*c for a place that depends on the device. kernel index math without one is better off as it stands"""
  return x.src[0]*c + x.src[1]*c if any(r.arg[-1] is AxisType.DEVICE for r in x.ranges) else None

def merge_like_terms(x:UOp) -> UOp|None:
  terms, const, alike = split_terms((x, 1))
  if not alike: return None
  ret = [t if c == 1 else t*c for t,c in reversed(terms.items()) if c]
  return UOp.usum(*ret, *([x.const_like(const)] if const or not ret else []))
