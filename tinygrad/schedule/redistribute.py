"""moves the parts of a value between devices until every lane has what it needs. it knows windows and no op, and nothing else communicates"""
from __future__ import annotations
import functools, itertools
from typing import Iterable, Sequence
from tinygrad.helpers import DEBUG, dedup, prod, to_tuple, unwrap
from tinygrad.dtype import Invalid, strong_dtype
from tinygrad.uop.ops import GroupOp, Ops, UOp, sint, identity_element, AxisType
from tinygrad.uop.lane import mop_on_lane
from tinygrad.schedule.slice_copy import flat_memory, slice_of
from tinygrad.schedule.window import Box, Shape, Windows, block, boxes, clipped, empty, lanes_of, offsets, place, through_reshape, words

def cut(x:UOp, op:Ops, arg:dict[int, tuple[sint, sint]], fill=None) -> UOp:
  """SHRINK or PAD of some axes, if there is anything to it"""
  return x if all(a == (0, x.shape[ax]) for ax,a in arg.items()) else x._mop(op, tuple(arg.get(a, (0, s)) for a,s in enumerate(x.shape)), fill)

def own_view(x:UOp, ws:Windows, fill:bool|None=None) -> UOp:
  """the part of a whole value that a lane has at the windows, with fill (None: Invalid) where they reach past it"""
  if not ws: return x
  shrink = {ax:(off, size) for ax,off,size in ws}
  # a broadcast value is the same everywhere: broadcast less of it
  if x.op is Ops.EXPAND and all(ax < len(x.marg) for ax in shrink) and not clipped(ws, x.shape):
    return x.src[0]._mop(Ops.EXPAND, tuple(shrink[a][1] if a in shrink else s for a,s in enumerate(x.marg)))
  pad:dict[int, tuple[sint, sint]] = {}
  for ax,off,size in clipped(ws, x.shape):
    lo, hi = int(min(0, off.vmin)), max(x.shape[ax], int(off.vmax)+size)
    pad[ax], shrink[ax] = (-lo, hi-lo), ((off-lo).simplify(), size)
  return cut(cut(x, Ops.PAD, pad, fill), Ops.SHRINK, dict(shrink))

def mask(ws:Windows, shape:Shape) -> UOp|None:
  """which elements of a lane's part are in the value, None if all are"""
  if not (over:=clipped(ws, shape)): return None
  inside = {ax:size for ax,off,size in ws if (ax, off, size) not in over}
  return own_view(UOp.const(True).expand(tuple(inside.get(a, s) for a,s in enumerate(shape))), over, False)

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

def parts(x:UOp, keep:Windows, devices:str|tuple[str, ...]) -> list[tuple[Box, UOp]]:
  """(box, value on devices) of all that the lanes hold of x in the windows that are not kept. a lane receives from one that has the same
  kept windows, from itself if it can, and only what lies in the value"""
  # what is moved is stored, with a width
  local, gone = x.src[0].cast(strong_dtype(x.dtype)), tuple(w for w in x.windows if w not in keep)
  n = len(x.device) if isinstance(x.device, tuple) else lanes_of(x.windows)
  at, same, offs = boxes(gone, x.shape, n), boxes(keep, x.shape, n), [offsets(off, n) for _,off,_ in gone]
  def part(lane:int, box:Box) -> UOp:
    return cut(lane_view(local, lane), Ops.SHRINK, {ax:(b-off[lane], e-b) for (ax,_,_),(b,e),off in zip(gone, box, offs)})
  ret:list[tuple[Box, UOp]] = []
  for box in sorted(dedup([b for b in at if not empty(b)])):
    holders = [i for i in range(n) if at[i] == box]
    if isinstance(devices, str): v = part(next((i for i in holders if x.device is not None and x.device[i] == devices), holders[0]), box)
    elif x.device is None and not keep: v = part(holders[0], box)
    else:
      lanes = []
      for j,dev in enumerate(devices if x.device is not None else [None]*n):
        mine = [i for i in holders if same[i] == same[j]] if keep else holders
        # who has nothing of the value needs nothing
        if not mine and empty(same[j]): mine = [j]
        if not mine: raise RuntimeError(f"no device has {box} of {x.shape} where {dev} has {same[j]}: {x.windows} on {x.device}")
        lanes.append(part(j if j in mine and (x.device is None or x.device[j] == dev) else mine[0], box))
      v = joined(lanes, devices if x.device is not None else None)
    ret.append((box, v.copy_to_device(devices) if isinstance(devices, str) and x.device is not None else v))
  return ret

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
  return cut(pieces[0].cat(*pieces[1:], dim=ax) if len(pieces) > 1 else pieces[0], Ops.PAD, {ax:(begin, shape[ax])})

Devices = str|tuple[str, ...]

# what is said of a pass with DEBUG=2, when it's done. one that only looks whether something is a view isn't reported
notes:list[str]|None = None

def line(kind:str, x:UOp, frm:str, to:str, devices:Devices, nbytes:int) -> str:
  return f"*** {kind} {x.shape} {x.dtype} from {frm or 'whole'} to {to or 'whole'} on {devices}: {nbytes} bytes received"

def report(kind:str, x:UOp, frm:Windows, to:Windows, devices:Devices, elements:int) -> None:
  """a line for what is moved between devices, with what the busiest of them receives"""
  if notes is not None: notes.append(line(kind, x, words(frm, x.shape), words(to, x.shape), devices, elements*x.dtype.itemsize))

def begin_report() -> None:
  global notes
  notes = []

def print_report(sink:UOp) -> None:
  global notes
  # what goes from one device to several, of which no more may be left than the parts that they need
  received:dict[UOp, dict[str, int]] = {}
  for u in sink.toposort():
    if u.op is not Ops.COPY or not isinstance(u.device, str) or not isinstance((x:=u.src[0].base).device, str) or x.lane is not None: continue
    if u.device == x.device: continue
    by = received.setdefault(x, {})
    by[u.device] = by.get(u.device, 0) + int(u.max_numel())*u.dtype.itemsize
  for x,by in received.items():
    if len(by) == 1: continue
    whole = (busiest:=max(by.values())) == int(x.max_numel())*x.dtype.itemsize
    print(line("broadcast" if whole else "scatter", x, f"whole on {x.device}", "" if whole else "a part", tuple(by), busiest))
  if notes: print("\n".join(notes))
  notes = None

def gather(x:UOp, keep:Windows=(), devices:str|tuple[str, ...]|None=None) -> UOp:
  """x with no windows but those to keep, on its own devices or on others"""
  if not (gone:=tuple(w for w in x.windows if w not in keep)): return x
  if devices is None: devices = x.device if x.device is not None else ()
  if isinstance(x.device, str) or any(r.arg[-1] is not AxisType.DEVICE for _,off,_ in gone for r in off.ranges):
    raise RuntimeError(f"{x.shape} is sharded over {', '.join(off.render() for _,off,_ in gone)} and not over devices: it can't be gathered")
  sizes = {ax:size for ax,_,size in keep}
  shape = tuple(sizes.get(a, s) for a,s in enumerate(x.shape))
  if not (found:=parts(x, keep, devices)): return place(UOp.const(Invalid, x.dtype).expand(shape), keep, x.shape)
  if DEBUG >= 2:
    each = {box:int(p.max_numel()) for box,p in found}
    had = {d:each.get(b, 0) for d,b in zip(x.device or (), boxes(gone, x.shape, len(x.device or ()) or 1))}
    report("gather", x, gone, keep, devices, sum(each.values()) - min((had.get(d, 0) for d in to_tuple(devices)), default=0))
  return place(assemble(found, tuple(ax for ax,_,_ in gone), shape).cast(x.dtype), keep, x.shape)

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

# ***** window to window *****

LAUNCH = 1 << 16
def cost(received:int, launches:int) -> int:
  """what it costs to get a part of a value: the bytes that the busiest device receives, and LAUNCH more for every copy that it waits for and every
  kernel that it runs before, to pack what it sends. In the 3 us or so that a launch takes a link of 20 GB/s moves LAUNCH bytes, so below that a
  device is better off with more than it needs."""
  return received + launches*LAUNCH

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

def by_lane(vals:Sequence[int], d:UOp) -> sint:
  """a number that a lane has, as math over the lane's number"""
  step = vals[1]-vals[0]
  if all(v == vals[0]+i*step for i,v in enumerate(vals)): return (d*step+vals[0]).simplify() if step else vals[0]
  ret:UOp = d.const_like(vals[-1])
  for i in range(len(vals)-2, -1, -1): ret = d.eq(i).where(d.const_like(vals[i]), ret)
  return ret

def on(lanes:Iterable[int], d:UOp) -> UOp: return UOp.const(False).usum(*[d.eq(i) for i in sorted(lanes)])

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
      own = v if own is None or all_of_it else on(own_at, d).where(own, v)
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
    return assemble([(box, on(lanes, d).where(v, v.const_like(Invalid)) if lacking(box, lanes) else v) for box,lanes,v in parts], axes, shape)
  ret:UOp|None = None
  for box,lanes,v in parts:
    to:dict[int, tuple[sint, sint]] = {a:(b, shape[a]) for a,(b,_) in zip(axes, box)}
    p = cut(v, Ops.PAD, to)
    if ret is not None: ret = (cut(UOp.const(True).expand(v.shape), Ops.PAD, to, False) & on(lanes, d)).where(p, ret)
    else: ret = p if len(lanes) == n or not lacking(box, lanes) else on(lanes, d).where(p, p.const_like(Invalid))
  return unwrap(ret)

def reduce_scatter(x:UOp, ws:Windows) -> UOp|None:
  """what a lane has at the windows of what the lanes' values add up to, if x is that. it never becomes whole: a lane gets the others' parts"""
  match x.op:
    case Ops.CAST: return None if (ret:=reduce_scatter(x.src[0], ws)) is None else ret.cast(x.dtype)
    case Ops.RESHAPE:
      if (below:=through_reshape(ws, x.shape, x.src[0].shape)) is None or (ret:=reduce_scatter(x.src[0], below)) is None: return None
      sizes = {ax:s for ax,_,s in ws}
      return ret.reshape(tuple(sizes.get(a, s) for a,s in enumerate(x.shape)))
    case Ops.PERMUTE:
      ret = reduce_scatter(x.src[0], tuple(sorted(((x.marg[ax], off, size) for ax,off,size in ws), key=lambda w: w[0])))
      return None if ret is None else ret.permute(x.marg)
    case Ops.COPY: return reduce_scatter(x.src[0], ws) if x.device == x.src[0].device else None
    case Ops.ALLREDUCE: pass
    case _:
      if x.op not in GroupOp.ALU or x.arg is not None: return None
      def part(u:UOp) -> tuple[Windows, UOp|None]:
        shift = len(x.shape)-len(u.shape)
        below = tuple((ax-shift, off, size) for ax,off,size in ws if ax >= shift and u.shape[ax-shift] == x.shape[ax])
        return below, (reduce_scatter(u, below) if below else None)
      found = [part(u) for u in x.src]
      return x.replace(src=tuple(v if v is not None else own_view(u, below) for u,(below,v) in zip(x.src, found))) \
        if any(v is not None for _,v in found) else None
  (op, devices, *groups), local = x.arg, x.src[0].cast(strong_dtype(x.dtype))
  if devices != local.device or (ret:=scatter(local, op, groups[0] if groups else (tuple(range(len(devices))),), ws)) is None: return None
  return ret.cast(x.dtype)

def in_blocks(x:UOp, axes:Place, counts:Place, sizes:Place) -> UOp:
  """the blocks of these axes, in one axis in front"""
  x = cut(x, Ops.PAD, {a:(0, c*s) for a,c,s in zip(axes, counts, sizes)})
  split = x.reshape(tuple(d for a,s in enumerate(x.shape) for d in ((counts[axes.index(a)], sizes[axes.index(a)]) if a in axes else (s,))))
  front = tuple(a+sum(b < a for b in axes) for a in axes)
  split = split.permute(front+tuple(a for a in range(len(split.shape)) if a not in front))
  return split.reshape((prod(counts),)+split.shape[len(axes):])

def scatter(local:UOp, op:Ops, groups:Sequence[Sequence[int]], ws:Windows) -> UOp|None:
  """what a lane has at the windows of what the lanes of its group add up to: it gets the others' parts of that"""
  n, at = len(local.device), [offsets(off, len(local.device)) for _,off,_ in ws]
  if not all(isinstance(s, int) for s in (*local.shape, *(s for _,_,s in ws), *(o for os in at for o in os))): return None
  shape, axes, sizes = tuple(map(int, local.shape)), tuple(ax for ax,_,_ in ws), tuple(int(s) for _,_,s in ws)
  has, group, box = [tuple(int(os[j]) for os in at) for j in range(n)], {j:g for g in groups for j in g}, boxes(ws, shape, n)
  own_shape = tuple(dict(zip(axes, sizes)).get(a, s) for a,s in enumerate(shape))
  # those of a group that want the same may get a part of it each, and then each other's
  alike = [[i for i in group[j] if has[i] == has[j]] for j in range(n)]
  count, each, members = len(alike[0]), prod(own_shape)*local.dtype.itemsize, len(groups[0])
  if count > 1 and all(len(a) == count for a in alike) and \
     cost((members+count-2)*each//count, members+count-2) < cost((members-1)*each, members-1):
    ax, off, length = ws[0]
    part = (ax, off+by_lane([a.index(j) for j,a in enumerate(alike)], next(iter(off.ranges)))*(block(length, count)), block(length, count))
    return None if (ret:=scatter(local, op, groups, sub:=(part,)+ws[1:])) is None else redistribute(place(ret, sub, shape), ws)
  if len(ws) == 1 and prod(shape[:axes[0]]) == 1:
    # the parts are pieces of memory
    (ax,), (s,), off = axes, sizes, ws[0][1]
    begin = min(0, *(os:=[o for o, in has]))
    parts = cut(local, Ops.PAD, {ax:(-begin, max(shape[ax], *(o+s for o in os))-begin)}).contiguous()
    own = cut(parts, Ops.SHRINK, {ax:((off-begin).simplify(), s)})
    def nth(i:int, j:int) -> UOp: return cut(lane_view(parts, i), Ops.SHRINK, {ax:(has[j][0]-begin, s)})
  else:
    # blocks, that are put next to each other
    if any(o < 0 or o % s for os in has for o,s in zip(os, sizes)): return None
    counts = tuple(max(os)//s+1 for os,s in zip(zip(*has), sizes))
    parts = in_blocks(local, axes, counts, sizes).contiguous()
    pos = [sum(o//s*int(prod(counts[k+1:])) for k,(o,s) in enumerate(zip(os, sizes))) for os in has]
    own = cut(parts, Ops.SHRINK, {0:(by_lane(pos, next(iter(ws[0][1].ranges))), 1)})
    def nth(i:int, j:int) -> UOp: return cut(lane_view(parts, i), Ops.SHRINK, {0:(pos[j], 1)})
  if DEBUG >= 2: report("reduce-scatter", local, (), ws, local.device, prod(own_shape)*(members-1))
  def term(j:int, k:int) -> UOp:
    if empty(box[j]): return UOp.invalids(own.shape, dtype=local.dtype, device=local.device[j])
    return to_device(nth(group[j][(group[j].index(j)+k) % members], j), local.device[j])
  for k in range(1, members): own = own.alu(op, UOp.mstack(*[term(j, k) for j in range(n)]))
  # once, and not in every reader
  return own.reshape(own_shape).contiguous()

def redistribute(x:UOp, ws:Windows) -> UOp:
  """what a lane has of x at the windows"""
  keep = tuple(w for w in x.windows if w in ws)
  gone, new = tuple(w for w in x.windows if w not in keep), tuple(w for w in ws if w not in keep)
  if gone and new and isinstance(x.device, tuple) and (ret:=exchange(x, keep, gone, new)) is not None: return ret
  x = gather(x, keep)
  whole = x.src[0] if keep else x
  return own_view(whole, new) if not new or (ret:=reduce_scatter(whole, new)) is None else ret

def reduce_groups(at:list[Box], same:list[Box]) -> tuple[tuple[int, ...], ...]|None:
  """the lanes that reduce together: of those with the same kept windows one for each part, the nearest in a mesh. None if they don't pair up"""
  ret:list[tuple[int, ...]] = []
  for kept in dedup(same):
    holders:dict[Box, list[int]] = {}
    for i in [i for i in range(len(at)) if same[i] == kept]: holders.setdefault(at[i], []).append(i)
    if len({len(h) for h in holders.values()}) != 1: return None
    ret += zip(*holders.values())
  return tuple(ret)

def allreduce_gets(numel:int, n:int, in_chunks:bool) -> int:
  """how many elements one of n devices receives: all of each other's, or a chunk of each other's, and all other chunks of the result"""
  return 2*(n-1)*-(-numel//n) if in_chunks else (n-1)*numel

def report_allreduce(x:UOp, red:UOp, in_chunks:bool) -> None:
  (op, devices, *groups), n = red.arg, len(red.arg[2][0]) if len(red.arg) == 3 else len(x.device)
  among = f" of {' and '.join(map(str, groups[0]))}" if groups else ""
  print(line(f"allreduce {op.name}{among}", x, "", "", devices, allreduce_gets(int(x.max_numel()), n, in_chunks)*x.dtype.itemsize))

def allreduce(x:UOp, local:UOp, reduced:Windows, kept:Windows, op:Ops) -> UOp:
  """local, the lanes' results of a reduce of x over its reduced windows, reduced over the lanes that have the same kept windows"""
  n = len(x.device)
  at, same = boxes(reduced, x.shape, n), boxes(kept, x.shape, n) if kept else [()]*n
  if (groups:=reduce_groups(at, same)) is not None:
    if len(groups[0]) == 1: return local
    # all of them, or along one dimension of a mesh
    return local.allreduce(op, x.device, () if len(groups) == 1 else groups)
  if not kept:
    # lanes that hold the same part count once: all but the first have the identity
    first = [i for i,b in enumerate(at) if b not in at[:i]]
    local = on(first, UOp.range(n, -1, AxisType.DEVICE)).where(local, local.const_like(identity_element(op, local.dtype)))
    return local.allreduce(op, x.device)
  terms = []
  if DEBUG >= 2: report("allreduce", x, reduced, kept, x.device, int(local.max_numel())*(len(dedup([b for b in at if not empty(b)]))-1))
  for box in dedup([b for b in at if not empty(b)]):
    mine = [[i for i in range(n) if at[i] == box and same[i] == same[j]] for j in range(n)]
    terms.append(UOp.mstack(*[to_device(lane_view(local, j if j in m or not m else m[0]), x.device[j]) for j,m in enumerate(mine)]))
  return functools.reduce(lambda a,b: a.alu(op, b), terms)

def reduce_in_groups(x:UOp, op:Ops, groups:Sequence[Sequence[int]]) -> UOp:
  """the lanes of x of each group reduced, from copies of all of the others"""
  at = {j:(g, k) for g in groups for k,j in enumerate(g)}
  def term(k:int) -> UOp: return UOp.mstack(*[to_device(lane_view(x, g[(i+k) % len(g)]), x.device[j]) for j,(g,i) in sorted(at.items())])
  return functools.reduce(lambda a,b: a.alu(op, b), [x]+[term(k) for k in range(1, len(groups[0]))])

def allreduce_into(to:UOp, x:UOp, op:Ops, groups:Sequence[Sequence[int]]=()) -> UOp:
  """the lanes of x (of each group) reduced, in each lane of to: a device reduces a chunk from copies of the others' and copies what comes out to
  them, so that it receives 2*(n-1)/n of the size, the least that there is (Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms, 2009)"""
  x, flat = flat_memory(x), flat_memory(to)
  lanes, numel, stores = [lane_view(flat, i) for i in range(len(x.device))], int(x.max_numel()), list[UOp]()
  for group in groups or [range(len(x.device))]:
    n = len(group)
    # chunks of whole vectors
    step = -(-numel // (32*n))*32 if numel >= 32*n else -(-numel // n)
    chunks = [(b, min(b+step, numel)-b) for b in range(0, numel, step)]
    def part(u:UOp, i:int) -> UOp: return cut(u, Ops.SHRINK, {0:chunks[i]})
    own = list[UOp]()
    for i,j in zip(range(len(chunks)), group):
      terms = [part(lane_view(x, k), i) for k in group]
      terms = [t if k == j else t.copy_to_device(x.device[j]) for k,t in zip(group, terms)]
      own.append(lanes[j].after(part(lanes[j], i).store(functools.reduce(lambda a,b: a.alu(op, b), terms))))
    # each to the next one first
    stores += [part(lanes[j], i).store(part(own[i], i).copy_to_device(x.device[j])) for k in range(1, n) for i in range(len(chunks))
               for j in [group[(i+k) % n]]]
  return to.after(*stores)
