"""movement ops that windows don't follow: of what they move a lane needs a part that may be little more than it has, its halo"""
from __future__ import annotations
import itertools
from tinygrad.dtype import dtypes
from tinygrad.helpers import unwrap
from tinygrad.uop.ops import AxisType, GroupOp, Ops, UOp
from tinygrad.schedule.indexing import apply_movement_op
from tinygrad.schedule.exchange import by_lane
from tinygrad.schedule.window import Window, Windows, block, cut, is_window, offsets, own_view, place

def is_lost(view:UOp) -> bool:
  """do windows not follow this view of a window?"""
  return view.op in GroupOp.Movement and (view.windows, "lost" in view.__dict__)[1]

def movements(view:UOp) -> list[UOp]:
  """the movement ops, last one first, that are the same on every lane"""
  ret:list[UOp] = []
  while view.op in GroupOp.Movement and not is_window(view) and not any(a.ranges for a in view.src[1:]):
    ret.append(view)
    view = view.src[0]
  return ret

# a range of more values is taken for all between its ends, and a lane needs no more runs than this
FEW, RUNS = 8, 2
Run = tuple[int, int]  # [begin, end)

def merged(runs:list[Run]) -> list[Run]:
  ret:list[Run] = []
  for b,e in sorted(runs):
    if ret and b <= ret[-1][1]: ret[-1] = (ret[-1][0], max(e, ret[-1][1]))
    else: ret.append((b, e))
  return ret

TRIES = 64
def runs_of(idx:UOp, rng:UOp, begin:int, end:int) -> list[Run]|None:
  """what idx takes while rng is in [begin, end)"""
  def ends(b:int, e:int) -> tuple:
    i = idx.substitute({rng:UOp.range(e-b, rng.arg[0], AxisType.WEAK)+b if e-b > 1 else rng.const_like(b)}).simplify()
    return i.vmin, i.vmax
  todo, ret, tries = [(begin, end)], list[Run](), 0
  while todo:
    b, e = todo.pop()
    lo, hi = ends(b, e)
    if not isinstance(lo, int) or not isinstance(hi, int): return None
    # it goes from one end to the other in equal steps, or it wraps around somewhere
    if hi-lo < e-b or (tries:=tries+1) > TRIES or \
       e-b > 2 and hi-lo == abs(ends(b+1, b+2)[0]-ends(b, b+1)[0])*(e-b-1): ret.append((lo, hi+1))
    else: todo += [(b, (b+e)//2), ((b+e)//2, e)]
  return merged(ret)

def needed(idx:UOp, rng:UOp, size:int, lanes:int) -> list[list[Run]]|None:
  """for each lane the runs of places that idx takes while rng is in the lane's block"""
  few, ret = [r for r in idx.ranges if r is not rng and r.vmax < FEW], list[list[Run]]()
  for j in range(lanes):
    found:list[Run] = []
    for vals in itertools.product(*[range(int(r.vmax)+1) for r in few]):
      if (begin:=j*size) >= (end:=min(begin+size, int(rng.vmax)+1)): break
      i = idx.substitute({r:r.const_like(v) for r,v in zip(few, vals)}).simplify() if few else idx
      if (runs:=runs_of(i, rng, begin, end)) is None: return None
      found = merged(found+runs)
    ret.append(found if len(found) <= RUNS else [(found[0][0], found[-1][1])])
  return ret

def halo_windows(view:UOp) -> tuple[Windows, Windows]|None:
  """(what the lanes need of what is moved, their blocks of the view): of the axis for which they have to get the least, if that's less than all"""
  if not (ops:=movements(view)) or len(ws:=(x:=ops[-1].src[0]).windows) != 1 or not isinstance(x.device, tuple): return None
  (ax, off, held), n = ws[0], len(x.device)
  best:tuple[int, int, int, list[list[Run]]]|None = None
  if not all(isinstance(s, int) for s in (*view.shape, *x.shape, held)) or not all(isinstance(o, int) for o in offsets(off, n)): return None
  has, total = [int(o) for o in offsets(off, n)], int(x.shape[ax])
  rngs = tuple(UOp.range(s, i, AxisType.WEAK) if s > 1 else UOp.const(0) for i,s in enumerate(view.shape))
  idxs = rngs
  for u in ops: idxs = apply_movement_op(u.op, u.src[0].shape, u.marg, idxs)
  idx = idxs[ax].get_idx().simplify()
  # what a lane has to get of what lies in the value
  def lacks(b:int, e:int, o:int) -> int: return max(0, min(e, total)-max(b, 0)) - max(0, min(e, o+int(held), total)-max(b, o, 0))
  for a,r in enumerate(rngs):
    if r not in idx.ranges or (runs:=needed(idx, r, size:=int(block(view.shape[a], n)), n)) is None: continue
    gets = max(sum(lacks(b, e, o) for b,e in mine) for mine,o in zip(runs, has))
    if best is None or gets < best[0]: best = (gets, a, size, runs)
  if best is None or best[0] >= total-int(held): return None
  _, a, size, runs = best
  d, need = next(iter(off.ranges)), list[Window]()
  for k in range(max(map(len, runs))):
    length = max(mine[k][1]-mine[k][0] for mine in runs if k < len(mine))
    # a run that is shorter begins before the value, and a lane that needs none asks for what it has
    begin = [has[j] if k >= len(mine) else mine[k][1]-length if mine[k][0] <= 0 else mine[k][0] for j,mine in enumerate(runs)]
    need.append((ax, UOp.const(0)+by_lane(begin, d), length))
  return tuple(need), ((a, (d*size).simplify(), size),)

def from_halo(view:UOp) -> UOp|None:
  if (found:=halo_windows(view)) is None: return None
  need, ret = found
  ops = movements(view)
  x = ops[-1].src[0]
  src:UOp|None = None
  for ax,off,length in reversed(need):
    own, at = own_view(x, ((ax, off, length),)), off
    if not off.ranges:
      # the same on every lane, of what lies in the value
      begin, end = max(b:=int(off.vmin), 0), min(b+int(length), int(x.shape[ax]))
      own, at = cut(x, Ops.SHRINK, {ax:(begin, end-begin)}), UOp.const(begin)
      if own.op is Ops.SHRINK: own = own.replace(arg="whole")
    def spread(u:UOp) -> UOp:
      return u._mop(Ops.PAD, tuple((at, s) if i == ax else (0, s) for i,s in enumerate(x.shape)), False if u.dtype == dtypes.bool else 0)
    part = spread(own)
    src = part if src is None else spread(UOp.const(True).expand(own.shape)).where(part, src)
  ret_view = unwrap(src)
  for u in reversed(ops): ret_view = u.replace(src=(ret_view,)+u.src[1:])
  return place(own_view(ret_view, ret), ret, view.shape)

def halo_srcs(root:UOp) -> UOp|None:
  # what is written or waited for isn't read
  if root.op in {Ops.AFTER, Ops.SINK}: return None
  first = int(root.op is Ops.STORE)
  src = tuple(s if i < first or s.op not in GroupOp.Movement or not is_lost(s) or (v:=from_halo(s)) is None else v for i,s in enumerate(root.src))
  return None if src == root.src else root.replace(src=src)
