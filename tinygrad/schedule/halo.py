"""movement ops that windows don't follow: of what they move a lane needs a part that may be little more than it has, its halo"""
from __future__ import annotations
import itertools
from tinygrad.dtype import dtypes, strong_dtype
from tinygrad.helpers import prod, unwrap
from tinygrad.uop.ops import AxisType, GroupOp, Ops, UOp, resolve, sint
from tinygrad.schedule.indexing import apply_movement_op
from tinygrad.schedule.exchange import by_lane
from tinygrad.schedule.window import Shape, Window, Windows, block, by_axis, cut, is_window, offsets, own_view, place

def is_lost(view:UOp) -> bool:
  """do windows not follow this view of a window?"""
  return view.op in GroupOp.Movement and view.followed is None

def movements(view:UOp) -> list[UOp]:
  """the movement ops, last one first, that are the same on every lane"""
  ret:list[UOp] = []
  while view.op in GroupOp.Movement and not is_window(view) and not any(a.ranges for a in view.src[1:]):
    ret.append(view)
    view = view.src[0]
  # where half or more is cut off along other axes, and windows still follow, a lane needs nothing of that
  def along(x:UOp) -> set[tuple]: return {(off, size, x.shape[ax]) for ax,off,size in x.windows}
  first, most = len(ret), view.max_numel()//2
  for i in reversed(range(len(ret))):
    if is_lost(ret[i]) or along(ret[i]) != along(view): break
    if ret[i].max_numel() <= most: first, most = i, ret[i].max_numel()-1
  return ret[:first]

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
  def ends(b:int, e:int) -> tuple|None:
    i = idx.substitute({rng:UOp.range(e-b, rng.arg[0], AxisType.WEAK)+b if e-b > 1 else rng.const_like(b)}).simplify()
    # at no place
    return None if i.is_invalid else ((at:=i.get_idx()).vmin, at.vmax)
  todo, ret, tries = [(begin, end)], list[Run](), 0
  while todo:
    b, e = todo.pop()
    if (found:=ends(b, e)) is None: continue
    lo, hi = found
    if not isinstance(lo, int) or not isinstance(hi, int): return None
    # it goes from one end to the other in equal steps, or it wraps around somewhere
    if hi-lo < e-b or (tries:=tries+1) > TRIES or e-b > 2 and (p:=ends(b, b+1)) is not None and (q:=ends(b+1, b+2)) is not None and \
       hi-lo == abs(q[0]-p[0])*(e-b-1): ret.append((lo, hi+1))
    else: todo += [(b, (b+e)//2), ((b+e)//2, e)]
  return merged(ret)

def needed(idx:UOp, rng:UOp, size:int, block:int) -> list[Run]|None:
  """the runs of places that idx takes while rng is in this block"""
  few, found = [r for r in idx.ranges if r is not rng and r.vmax < FEW], list[Run]()
  for vals in itertools.product(*[range(int(r.vmax)+1) for r in few]):
    if (begin:=block*size) >= (end:=min(begin+size, int(rng.vmax)+1)): break
    i = idx.substitute({r:r.const_like(v) for r,v in zip(few, vals)}).simplify() if few else idx
    if (runs:=runs_of(i, rng, begin, end)) is None: return None
    found = merged(found+runs)
  return found if len(found) <= RUNS else [(found[0][0], found[-1][1])]

def halo_of(idx:UOp, rngs:dict[int, UOp], shape:Shape, w:Window, total:int, n:int) -> tuple[Windows, Window]|None:
  """(what each of n lanes needs of an axis that they have at the window w, their blocks of a view of this shape) where the view has place idx of that
  axis: blocks of the axis, of those with a range, for which they have to get the least. None if it's no less than all"""
  ax, off, held = w[0], w[1], int(w[2])
  has = [int(o) for o in offsets(off, n)]
  # lanes that have the same part have the same block
  order = sorted(set(has))
  nth = [order.index(o) for o in has] if len(order) < n else [*range(n)]
  # what a lane has to get of what lies in the value
  def lacks(b:int, e:int, o:int) -> int: return max(0, min(e, total)-max(b, 0)) - max(0, min(e, o+held, total)-max(b, o, 0))
  def cost(runs:list[list[Run]]) -> tuple[int, int]:
    gets = [sum(lacks(b, e, o) for b,e in mine) for mine,o in zip(runs, has)]
    return max(gets), sum(gets)
  best:tuple[tuple[int, int], int, int, list[list[Run]]]|None = None
  for a,r in rngs.items():
    if r not in idx.ranges: continue
    size = int(block(shape[a], len(order)))
    each = [needed(idx, r, size, k) for k in range(len(order))]
    if any(runs is None for runs in each): continue
    runs = [unwrap(each[k]) for k in nth]
    if best is None or cost(runs) < best[0]: best = (cost(runs), a, size, runs)
  # all of it can be cut in any way later: where the busiest lane gets as much of it, it's worth it if that saves half of what the lanes get
  most, every = cost([[(0, total)]]*n)
  if best is None or best[0] >= (most, every//2+1): return None
  _, a, size, runs = best
  d, need = next(iter(off.ranges)), list[Window]()
  # where none needs anything they take what they have
  if not any(runs): need.append(w)
  for k in range(max(map(len, runs))):
    length = max(mine[k][1]-mine[k][0] for mine in runs if k < len(mine))
    # a run that is shorter begins before the value, and a lane that needs none asks for what it has, or for nothing of the value
    begin = [next(b for b in (o, o+held-length, -length) if not lacks(b, b+length, o)) if k >= len(mine) else
             mine[k][1]-length if mine[k][0] <= 0 else mine[k][0] for mine,o in zip(runs, has)]
    need.append(w if (begin, length) == (has, held) else (ax, UOp.const(0)+by_lane(begin, d), length))
  blocks = off//held if has == [k*held for k in nth] else UOp.const(0)+by_lane(nth, d)
  return tuple(need), (a, (blocks*size).simplify(), size)

def halo_windows(view:UOp) -> tuple[list[Windows], Windows]|None:
  """(for each window of what is moved the windows that the lanes need of it, their blocks of the view), where that's less than all of some of them"""
  if not (ops:=movements(view)) or not (ws:=(x:=ops[-1].src[0]).windows) or not isinstance(x.device, tuple): return None
  n, idxs = len(x.device), tuple(UOp.range(s, i, AxisType.WEAK) if resolve(s > 1) else UOp.const(0) for i,s in enumerate(view.shape))
  if not all(isinstance(s, int) for s in (*view.shape, *x.shape, *(s for _,off,size in ws for s in (size, *offsets(off, n))))): return None
  # every part of an axis is there with every part of the others, as on a mesh
  at = [offsets(off, n) for _,off,_ in ws]
  if len(set(zip(*at))) != prod(len(set(os)) for os in at): return None
  rngs = {a:r for a,r in enumerate(idxs) if r.op is Ops.RANGE}
  for u in ops: idxs = apply_movement_op(u.op, u.src[0].shape, u.marg, idxs)
  need, ret = list[Windows](), list[Window]()
  for w in ws:
    found = halo_of(idxs[w[0]].get_idx().simplify(), rngs, view.shape, w, total:=int(x.shape[w[0]]), n)
    # all of it, the same on every lane
    need.append(found[0] if found is not None else ((w[0], UOp.const(0), total),))
    if found is not None:
      ret.append(found[1])
      del rngs[found[1][0]]
  return (need, by_axis(ret)) if ret else None

def from_halo(view:UOp) -> UOp|None:
  if (found:=view.halo) is None: return None
  need, ret = found
  ops = movements(view)
  x = ops[-1].src[0]
  places, parts = list[dict[int, UOp]](), list[UOp]()
  for at in itertools.product(*need):
    # what is the same on every lane is of what lies in the value
    inside = {ax:max(int(off.vmin), 0) for ax,off,_ in at if not off.ranges}
    at = tuple((ax, UOp.const(b:=inside[ax]), min(int(off.vmin)+int(s), int(x.shape[ax]))-b) if ax in inside else (ax, off, s) for ax,off,s in at)
    own = own_view(x, at)
    parts.append(own.replace(arg="whole") if inside and own.op is Ops.SHRINK else own)
    places.append({ax:off for ax,off,_ in at})
  # what is repeated is read many times: of the neighbours on several axes, many buffers, the scheduler would first put all of it in one
  if any(u.op is Ops.EXPAND for u in ops) and sum(ws != (w,) for ws,w in zip(need, x.windows)) > 1:
    parts = in_one_buffer(parts, [(ws[0][0], len(ws)) for ws in need])
  src:UOp|None = None
  for begin,own in reversed([*zip(places, parts)]):
    def spread(u:UOp) -> UOp:
      return u._mop(Ops.PAD, tuple((begin.get(a, 0), s) for a,s in enumerate(x.shape)), False if u.dtype == dtypes.bool else 0)
    part = spread(own)
    src = part if src is None else spread(UOp.const(True).expand(own.shape)).where(part, src)
  ret_view = unwrap(src)
  for u in reversed(ops): ret_view = u.replace(src=(ret_view,)+u.src[1:])
  return place(own_view(ret_view, ret), ret, view.shape)

def in_one_buffer(parts:list[UOp], axes:list[tuple[int, int]]) -> list[UOp]:
  """the parts, of which there are so many along each axis, as places in one buffer"""
  def joined(ps:list[UOp], axes:list[tuple[int, int]]) -> UOp:
    if not axes: return ps[0]
    (ax, count), step = axes[0], len(ps)//axes[0][1]
    rows = [joined(ps[i*step:(i+1)*step], axes[1:]) for i in range(count)]
    return rows[0].cat(*rows[1:], dim=ax) if count > 1 else rows[0]
  buf, ret = joined([p.cast(strong_dtype(p.dtype)) for p in parts], axes).contiguous(), list[UOp]()
  for i,nth in enumerate(itertools.product(*[range(count) for _,count in axes])):
    at:dict[int, tuple[sint, sint]] = {}
    for k,(ax,_) in enumerate(axes):
      # the parts before it, with the same place along the other axes
      step = prod(count for _,count in axes[k+1:])
      at[ax] = (sum(int(parts[i-j*step].shape[ax]) for j in range(1, nth[k]+1)), parts[i].shape[ax])
    ret.append(cut(buf, Ops.SHRINK, at).cast(parts[i].dtype))
  return ret

def halo_srcs(root:UOp) -> UOp|None:
  # what is written or waited for isn't read
  if root.op in {Ops.AFTER, Ops.SINK}: return None
  first = int(root.op is Ops.STORE)
  src = tuple(s if i < first or s.op not in GroupOp.Movement or not is_lost(s) or (v:=from_halo(s)) is None else v for i,s in enumerate(root.src))
  return None if src == root.src else root.replace(src=src)
