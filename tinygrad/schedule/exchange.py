"""window to window: every lane gets the parts that it lacks of what it wants, each once, from the nearest lane that has it"""
from __future__ import annotations
import itertools
from typing import Iterable, Sequence
from tinygrad.helpers import DEBUG, dedup, prod, unwrap
from tinygrad.dtype import Invalid, strong_dtype
from tinygrad.uop.ops import AxisType, Ops, UOp, sint
from tinygrad.schedule.copies import lane_view, memory, to_device
from tinygrad.schedule.report import report
from tinygrad.schedule.slice_copy import flat_memory, slice_of
from tinygrad.schedule.window import Box, Shape, Windows, boxes, cut, empty, offsets

def assemble(found:list[tuple[Box, UOp]], axes:tuple[int, ...], shape:Shape) -> UOp:
  """one value of the pieces, Invalid where none lies"""
  if not axes: return found[0][1]
  ax, groups, pieces = axes[0], dict[tuple[sint, sint], list[tuple[Box, UOp]]](), list[UOp]()
  for box,v in found: groups.setdefault(box[0], []).append((box[1:], v))
  begin = end = min(b for b,_ in groups)
  for b,e in sorted(groups):
    if e <= end: continue
    v = assemble(groups[b, e], axes[1:], shape)
    # what the piece before it has already, or what none has
    pieces.append(cut(v, Ops.SHRINK, {ax:(end-b, e-end)}) if b < end else cut(v, Ops.PAD, {ax:(b-end, e-end)}))
    end = e
  v = pieces[0].cat(*pieces[1:], dim=ax) if len(pieces) > 1 else pieces[0]
  return cut(v, Ops.PAD, {ax:(begin, shape[ax])})

# ***** what it costs *****

LAUNCH = 1 << 16
def cost(received:int, launches:int) -> int:
  """what it costs to get a part of a value: the bytes that the busiest device receives, and LAUNCH more for every copy that it waits for and every
  kernel that it runs before, to pack what it sends. In the 3 us or so that a launch takes a link of 20 GB/s moves LAUNCH bytes, so below that a
  device is better off with more than it needs."""
  return received + launches*LAUNCH

# ***** who gets what from whom *****

IntBox = tuple[tuple[int, int], ...]
Place = tuple[int, ...]
Piece = tuple[IntBox, int, Place]  # (its place in what a lane is to have, the lane that has it, where it is there)

def volume(box:IntBox) -> int: return prod(e-b for b,e in box)

def plan(held:list[IntBox], wanted:list[IntBox], at:list[Place], same:Sequence[Box]) -> list[list[Piece]]:
  """for each lane the pieces of what it wants, from itself where it can, else from the lane before it that's nearest, each once: the intersections
  of what the lanes hold and want. at: where a lane's place 0 is"""
  ret:list[list[Piece]] = []
  for j,want in enumerate(wanted):
    found:dict[int, list[IntBox]] = {}
    others = [i for i in sorted(range(len(held)), key=lambda i: (j-i) % len(held)) if same[i] == same[j] and not empty(held[i])]
    edges = [sorted({b, e, *(x for i in others for x in held[i][a] if b < x < e)}) for a,(b,e) in enumerate(want)]
    for cell in itertools.product(*[itertools.pairwise(e) for e in edges]):
      for i in others:
        if all(hb <= b and e <= he for (b,e),(hb,he) in zip(cell, held[i])):
          found.setdefault(i, []).append(cell)
          break
    mine:list[Piece] = []
    for i,cells in found.items():
      # one piece where the cells are one box
      box = tuple((min(c[a][0] for c in cells), max(c[a][1] for c in cells)) for a in range(len(want)))
      if volume(box) == sum(map(volume, cells)): cells = [box]
      mine += [(tuple((b-o, e-o) for (b,e),o in zip(c, at[j])), i, tuple(b for b,_ in c)) for c in cells]
    ret.append(mine)
  return ret

# ***** getting it *****

def by_lane(vals:Sequence[int], d:UOp) -> sint:
  """a number that a lane has, as math over the lane's number"""
  n, step = len(vals), vals[1]-vals[0]
  if all(v == vals[0]+i*step for i,v in enumerate(vals)): return (d*step+vals[0]).simplify() if step else vals[0]
  # along one dimension of a mesh
  for k,m in [(k, m) for k in range(1, n) if n % k == 0 for m in range(2, n//k+1) if n//k % m == 0]:
    if all(v == vals[0]+i//k%m*(vals[k]-vals[0]) for i,v in enumerate(vals)): return (d//k%m*(vals[k]-vals[0])+vals[0]).simplify()
  ret:UOp = d.const_like(vals[-1])
  for i in range(len(vals)-2, -1, -1): ret = d.eq(i).where(d.const_like(vals[i]), ret)
  return ret

def on_lanes(lanes:Iterable[int], d:UOp) -> UOp: return UOp.const(False).usum(*[d.eq(i) for i in sorted(lanes)])

def split(x:UOp, ax:int, n:int) -> UOp:
  """n parts of an axis, in front"""
  x = x.reshape(x.shape[:ax]+(n, x.shape[ax]//n)+x.shape[ax+1:])
  return x.permute((ax,)+tuple(a for a in range(len(x.shape)) if a != ax))

# a slot: a place in what every lane is to have, and by lane the lane from which, and the place there, it gets that
Slots = dict[IntBox, dict[int, tuple[int, Place]]]

def all_to_all(devices:tuple[str, ...], local:UOp, slots:Slots, axes:Place, shape:Shape) -> UOp|None:
  """where lane j gets part j of every lane, in the lanes' order: what comes lands in one buffer, next to what the lane had"""
  n, by_source = len(devices), {next(iter(gets.values()))[0]:(box, gets) for box,gets in slots.items()}
  if len(axes) != 2 or len(slots) != n or len(by_source) != n or any(len(gets) != n for _,gets in by_source.values()): return None
  size = tuple(e-b for b,e in by_source[0][0])
  # the axis that is put together, and the one that is cut
  for to, frm in ((0, 1), (1, 0)):
    if all(box[to] == (i*size[to], (i+1)*size[to]) and box[frm] == (0, size[frm]) and
           all(src == i and at[frm] == j*size[frm] and at[to] == 0 for j,(src,at) in gets.items()) for i,(box,gets) in by_source.items()): break
  else: return None
  to, frm = axes[to], axes[frm]
  if local.shape[frm] != n*shape[frm] or shape[to] != n*local.shape[to]: return None
  parts, each = split(local, frm, n), int(local.max_numel())//n
  if slice_of(parts) is None: parts = parts.contiguous()
  d = UOp.range(n, -1, AxisType.DEVICE)
  landed = UOp.empty(n*each, dtype=local.dtype, device=devices)
  had, has = [[lane_view(flat_memory(u), i) for i in range(n)] for u in (parts, landed)]
  def nth(u:UOp, i:int) -> UOp: return cut(u, Ops.SHRINK, {0:(i*each, each)})
  landed = landed.after(*[nth(has[j], i).store(nth(had[i], j).copy_to_device(devices[j]))
                          for k in range(1, n) for i in range(n) for j in [(i+k) % n]])
  landed = landed.reshape(parts.shape)
  own = cut(UOp.const(True).expand((1,)+parts.shape[1:]), Ops.PAD, {0:(d, n)}, False)
  ret = own.where(parts, landed)
  return ret.permute(tuple(range(1, to+1))+(0,)+tuple(range(to+1, len(ret.shape)))).reshape(shape)

def exchange(x:UOp, keep:Windows, gone:Windows, new:Windows) -> UOp|None:
  """what a lane has of x at the windows keep and new, where it has it at keep and gone: every lane gets what it lacks, and nothing else. None if a
  gather costs less"""
  n, local = len(x.device), x.src[0].cast(strong_dtype(x.dtype))
  axes = tuple(sorted({w[0] for w in gone+new}))
  total = tuple(s for s in x.shape if isinstance(s, int))
  begins = [offsets(off, n) for _,off,_ in gone+new]
  known = (*local.shape, *(w[2] for w in new), *(o for os in begins for o in os))
  if len(total) < len(x.shape) or not all(isinstance(s, int) for s in known): return None
  def full(ws:Windows) -> list[tuple[tuple[int, int, int], ...]]:
    # (begin, end, of that what is in the value) by axis, for each lane
    at = {ax:(offsets(off, n), size) for ax,off,size in ws}
    def one(a:int, i:int) -> tuple[int, int, int]:
      if a not in at: return 0, 0, total[a]
      o, size = int(at[a][0][i]), int(at[a][1])
      return o, max(o, 0), min(o+size, total[a])
    return [tuple(one(a, i) for a in axes) for i in range(n)]
  held, want = full(gone), full(new)
  inside, wanted = [[tuple((b, e) for _,b,e in lane) for lane in lanes] for lanes in (held, want)]
  at = [tuple(o for o,_,_ in lane) for lane in want]
  todo = plan(inside, wanted, at, boxes(keep, x.shape, n) if keep else [()]*n)
  slots:Slots = {}
  for j,mine in enumerate(todo):
    for box,i,src in mine: slots.setdefault(box, {})[j] = (i, tuple(s-o for s,(o,_,_) in zip(src, held[i])))
  def piece(u:UOp, src:Sequence[sint], size:Place) -> UOp: return cut(u, Ops.SHRINK, {a:(o, s) for a,o,s in zip(axes, src, size)})
  shape = tuple(next((w[2] for w in new if w[0] == a), x.shape[a] if a in axes else s) for a,s in enumerate(local.shape))
  sent = dedup([(src, tuple(e-b for b,e in box)) for box,gets in slots.items() for j,(i,src) in gets.items() if i != j])
  # what isn't one piece of memory is packed before it's copied, in one kernel for all pieces of a size
  loose = [k for k in sent if memory(piece(lane_view(local, 0), *k)) is None]
  rest = prod(int(s) for a,s in enumerate(local.shape) if a not in axes)*local.dtype.itemsize
  moved = max(sum(volume(box) for box,i,_ in mine if i != j) for j,mine in enumerate(todo))*rest
  whole, copies = max(sum(map(volume, set(inside)-{h})) for h in inside)*rest, max(sum(i != j for _,i,_ in mine) for j,mine in enumerate(todo))
  if cost(whole, len(set(inside))-1) < cost(moved, copies + int(len(loose) > 0)): return None
  if DEBUG >= 2: report("exchange", x, gone, new, x.device, moved//local.dtype.itemsize)
  if (ret:=all_to_all(x.device, local, slots, axes, shape)) is not None: return ret.cast(x.dtype)
  packed:dict[tuple[Place, Place], UOp] = {}
  for size in dedup([size for _,size in loose]):
    alike = [k for k in loose if k[1] == size]
    pack = UOp(Ops.STACK, src=tuple(piece(local, *k) for k in alike)).contiguous()
    packed.update({k:pack[i] for i,k in enumerate(alike)})
  d = UOp.range(n, -1, AxisType.DEVICE)
  landed:dict[tuple[int, Shape], UOp] = {}
  parts:list[tuple[IntBox, Place, UOp]] = []
  for box,gets in sorted(slots.items()):
    size, own_at = tuple(e-b for b,e in box), {j:src for j,(i,src) in gets.items() if i == j}
    own:UOp|None = None
    if own_at:
      # the others read there what is there
      some = next(iter(own_at.values()))
      own = piece(local, [by_lane([own_at.get(j, some)[a] for j in range(n)], d) for a in range(len(axes))], size)
    if len(own_at) < len(gets) or own is None:
      lanes:list[UOp|None] = [None]*n
      all_of_it = own is not None and own.shape == local.shape
      for j,dev in enumerate(x.device):
        if j in gets and j not in own_at:
          i, src = gets[j]
          lanes[j] = u = to_device(lane_view(packed[src, size], i) if (src, size) in packed else piece(lane_view(local, i), src, size), dev)
          landed[j, u.shape] = u
        elif j in own_at and all_of_it:
          # a buffer, if it is one
          u, where = lane_view(local, j), slice_of(lane_view(local, j))
          lanes[j] = u if where is not None and where[0].max_numel() == u.max_numel() else u.contiguous()
      part = next(u.shape for u in lanes if u is not None)
      # a lane without a part reads what it gets in any case, if that has the size
      fill = [u if u is not None else landed[j, part] if (j, part) in landed else UOp.invalids(part, dtype=local.dtype, device=x.device[j])
              for j,u in enumerate(lanes)]
      v = UOp.mstack(*fill)
      own = v if own is None or all_of_it else on_lanes(own_at, d).where(own, v)
    parts.append((box, tuple(gets), own))
  # nobody has anything of it
  if not parts: return UOp.const(Invalid, x.dtype).expand(shape)
  return join_parts(parts, axes, shape, d, wanted, at).cast(x.dtype)

def join_parts(parts:list[tuple[IntBox, Place, UOp]], axes:Place, shape:Shape, d:UOp, wanted:list[IntBox], at:list[Place]) -> UOp:
  """what a lane has, of parts that not all lanes have"""
  n = len(wanted)
  def lacking(box:IntBox, lanes:Place) -> bool:
    # is it wanted on a lane that doesn't have it?
    return any(j not in lanes and all(max(b+o, wb) < min(e+o, we) for (b,e),o,(wb,we) in zip(box, at[j], wanted[j])) for j in range(n))
  def apart(p:IntBox, q:IntBox) -> bool: return any(max(b, qb) >= min(e, qe) for (b,e),(qb,qe) in zip(p, q))
  if all(apart(p, q) for (p,_,_),(q,_,_) in itertools.combinations(parts, 2)):
    return assemble([(box, on_lanes(lanes, d).where(v, v.const_like(Invalid)) if lacking(box, lanes) else v) for box,lanes,v in parts], axes, shape)
  ret:UOp|None = None
  for box,lanes,v in parts:
    to:dict[int, tuple[sint, sint]] = {a:(b, shape[a]) for a,(b,_) in zip(axes, box)}
    p = cut(v, Ops.PAD, to)
    if ret is not None: ret = (cut(UOp.const(True).expand(v.shape), Ops.PAD, to, False) & on_lanes(lanes, d)).where(p, ret)
    else: ret = p if len(lanes) == n or not lacking(box, lanes) else on_lanes(lanes, d).where(p, p.const_like(Invalid))
  return unwrap(ret)
