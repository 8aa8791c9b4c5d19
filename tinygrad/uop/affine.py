# sums of terms times constants. weakint has no width: nothing wraps, so terms can be moved between sides and merged freely
from tinygrad.uop.ops import UOp, Ops, AxisType

def split_terms(*scaled:tuple[UOp, int]) -> tuple[dict[UOp|None, int], bool]:
  """the sum of uop*scale as {term: coefficient} with the constant under None, and whether any two terms were alike"""
  todo, ret, alike = list(scaled[::-1]), {}, False
  while todo:
    u, c = todo.pop()
    if u.op is Ops.ADD: todo += [(u.src[1], c), (u.src[0], c)]
    elif u.op is Ops.MUL and u.src[1].op is Ops.CONST: todo.append((u.src[0], c*u.src[1].val))
    else:
      if u.op is Ops.CONST: u, c = None, c*u.val
      if u in ret: alike = True
      ret[u] = ret.get(u, 0) + c
  return ret, alike

def lt_by_difference(x:UOp, y:UOp) -> UOp|None:
  """x < y where x-y keeps its sign: what both sides hold cancels in x-y, and not in the bounds of x and of y"""
  terms, alike = split_terms((x, 1), (y, -1))
  if not alike: return None
  const = terms.pop(None, 0)
  ends = [sorted((c*t.vmin, c*t.vmax)) for t,c in terms.items() if c]
  if const + sum(hi for _,hi in ends) < 0: return UOp.const(True)
  return UOp.const(False) if const + sum(lo for lo,_ in ends) >= 0 else None

def distribute_device(x:UOp, c:UOp) -> UOp|None:
  """(a+b)*c -> a*c+b*c for a place that depends on the device. everywhere else it is kernel index math, which likes its form"""
  return x.src[0]*c + x.src[1]*c if any(r.arg[-1] is AxisType.DEVICE for r in x.ranges) else None

def merge_like_terms(x:UOp) -> UOp|None:
  terms, alike = split_terms((x, 1))
  if not alike: return None
  const = terms.pop(None, 0)
  return UOp.usum(*[t*c for t,c in terms.items() if c], x.const_like(const))
