"""the window form of sharding: what each device holds of a value, as an Invalid PAD with an offset that depends on the device

A window (axis, offset, size) says that a lane holds [offset, offset+size) of the axis. Outside it the PAD is Invalid: another lane has it, or none.
An offset may be negative or reach past the axis. This is all that windows are and how they pass through an op; what an op computes is in
symbolic_multi, what has to be moved in redistribute.
"""
from __future__ import annotations
from dataclasses import replace
from typing import Sequence
from tinygrad.dtype import AddrSpace, strong_dtype
from tinygrad.helpers import prod, dedup, strip_parens, unwrap
from tinygrad.uop.ops import Ops, UOp, GroupOp, AxisType, ssimplify, sint, shape_to_shape_arg, srender, resolve

Window = tuple[int, UOp, sint]
Windows = tuple[Window, ...]
Shape = tuple[sint, ...]
Box = tuple[tuple[sint, sint], ...]  # (begin, end) by window

# ***** what the lanes hold *****

def by_axis(ws:Sequence[Window]) -> Windows: return tuple(sorted(ws, key=lambda w: w[0]))

def is_window(x:UOp) -> bool: return x.op is Ops.PAD and x.is_window

def place(local:UOp, ws:Windows, shape:Shape) -> UOp:
  """the value of this shape of which each lane has local at its windows"""
  if not ws: return local
  offs = {ax:off for ax,off,_ in ws}
  return UOp(Ops.PAD, src=(local, shape_to_shape_arg(tuple(offs.get(a, 0) for a in range(len(shape)))), shape_to_shape_arg(shape)))

def place_blocks(local:UOp, axes:tuple[int, ...], rngs:tuple[UOp, ...]) -> UOp:
  """the value of which each lane has one of equal blocks: on each axis the block of the number that its range is"""
  ws = tuple((ax, (rng*local.shape[ax]).simplify(), local.shape[ax]) for ax,rng in zip(axes, rngs))
  count = {ax:int(rng.vmax)+1 for ax,rng in zip(axes, rngs)}
  return place(local, by_axis(ws), tuple(s*count.get(a, 1) for a,s in enumerate(local.shape)))

def block(total:sint, n:int) -> sint:
  """how long a block of an axis is on n devices: where they don't come out even the last ones are short, or empty"""
  return -(-total//n) if isinstance(total, int) else ssimplify(total//n)

def plain(w:Window, total:sint) -> bool:
  """equal blocks in the order of a range, that cover the axis"""
  _, off, size = w
  rng = next(iter(off.ranges))
  n = int(rng.vmax)+1
  return (size == block(total, n) if isinstance(total, int) else ssimplify(size*n) == total) and off is (rng*size).simplify()

def plain_axis(x:UOp) -> int|None:
  """the axis on which x is sharded in plain blocks, and on no other. None for what is whole on each device or sharded in another way"""
  return ws[0][0] if len(ws:=x.windows) == 1 and plain(ws[0], x.shape[ws[0][0]]) else None

def sharded_along(axis:int, values:Sequence) -> bool:
  """do the devices have different parts of the axis of one of these UOps or Tensors?"""
  return any(ax == axis for v in values for ax,_,_ in getattr(v, "uop", v).windows)

def block_along(axis:int, value) -> int|None:
  """how long the plain blocks of this UOp or Tensor along the axis are. None if all of it is in one, or it's sharded in another way, or not at all"""
  x = getattr(value, "uop", value)
  return next((size for ax,off,size in x.windows if ax == axis and isinstance(size, int) and isinstance(total:=x.shape[axis], int) and
               size < total and plain((ax, off, size), total)), None)

def shard(x:UOp, axis:int, rng:UOp) -> UOp:
  """the block of a whole value that a lane has, Invalid where it reaches past the value"""
  n = int(rng.vmax)+1
  if not isinstance(x.shape[axis], int) and resolve(x.shape[axis] % n != 0):
    raise RuntimeError(f"axis {axis} of {show(x.shape)} can't be cut in {n} blocks on {x.device}: a length that varies has to be a multiple")
  return own_view(x, ((axis, (rng*(size:=block(x.shape[axis], n))).simplify(), size),))

def stored(x:UOp) -> Windows:
  """the windows with which x is kept in memory: those that it has, if that takes less than all of it on each device"""
  ws = x.windows
  if not ws or plain_axis(x) is not None: return ws
  if not isinstance(x.device, tuple) or any(r.arg[-1] is not AxisType.DEVICE for _,off,_ in ws for r in off.ranges): return ()
  sizes = {ax:size for ax,_,size in ws}
  # what a lane keeps has a length that's known, the value may end where a variable says
  if not all(isinstance(sizes.get(a, s), int) for a,s in enumerate(x.shape)): return ()
  return ws if prod(sizes.get(a, s) for a,s in enumerate(x.shape)) < prod(map(at_most, x.shape)) else ()

def stored_shape(x:UOp) -> Shape:
  sizes = {ax:size for ax,_,size in stored(x)}
  return tuple(sizes.get(a, s) for a,s in enumerate(x.shape))

def param_like(x:UOp, slot:int, addrspace:AddrSpace=AddrSpace.GLOBAL) -> UOp:
  """a PARAM for x. only plain blocks can be passed as they are"""
  ret = UOp.param(slot, x.dtype, x.shape, x.device, addrspace=addrspace)
  return ret if (axis:=plain_axis(x)) is None else ret.replace(arg=replace(ret.arg, axis=axis))

def lanes_of(ws:Windows) -> int: return max(int(r.vmax)+1 for _,off,_ in ws for r in off.ranges)

def offsets(off:UOp, n:int) -> tuple[sint, ...]:
  """an offset on each of n lanes"""
  return tuple(ssimplify(off.substitute({r:r.const_like(i) for r in off.ranges})) for i in range(n))

def boxes(ws:Windows, shape:Shape, n:int|None=None) -> list[Box]:
  """what each lane holds, cut to the shape"""
  def cut(o:sint, size:sint, total:sint) -> tuple[sint, sint]:
    return (max(o, 0), min(o+size, total)) if isinstance(o, int) and isinstance(size, int) and isinstance(total, int) else (o, o+size)
  if n is None: n = lanes_of(ws) if ws else 1
  offs = [offsets(off, n) for _,off,_ in ws]
  return [tuple(cut(o[i], size, shape[ax]) for o,(ax,_,size) in zip(offs, ws)) for i in range(n)]

def empty(box:Box) -> bool: return any(resolve(e <= b, False) for b,e in box)

def clipped(ws:Windows, shape:Shape) -> Windows:
  """the windows that reach past the value on some lane, or may, where it ends at a place that varies"""
  return tuple(w for w in ws if isinstance(w[2], int) and (not isinstance(t:=shape[w[0]], int) or w[1].vmin < 0 or w[1].vmax+w[2] > t))

def at_most(x:sint) -> int: return int(x.vmax) if isinstance(x, UOp) else x

def covers(ws:Windows, shape:Shape) -> bool:
  """do the lanes together hold the whole value?"""
  rngs = [tuple(off.ranges) for _,off,_ in ws]
  if all(len(r) == 1 and plain(w, shape[w[0]]) for r,w in zip(rngs, ws)) and len(dedup(rngs)) == len(rngs): return True
  # what ends at a place that varies is taken as long as it may be, and of blocks of such a length each axis has its own
  if not all(isinstance(size, int) for _,_,size in ws): return len(dedup(rngs)) == len(rngs)
  shape = tuple(map(at_most, shape))
  found = dedup([b for b in boxes(ws, shape) if not empty(b)])
  grid = [sorted(dedup([b[i] for b in found])) for i in range(len(ws))]
  # every axis without a gap, and every cell of the grid on some lane
  def whole(g:list, total:sint) -> bool: return g[0][0] == 0 and g[-1][1] == total and all(x[1] >= y[0] for x,y in zip(g, g[1:]))
  return len(found) > 0 and len(found) == prod(len(g) for g in grid) and all(whole(g, shape[w[0]]) for w,g in zip(ws, grid))

# ***** what a lane has of a value that's whole *****

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
    lo, hi = int(min(0, off.vmin)), max(at_most(x.shape[ax]), int(off.vmax)+size)
    pad[ax], shrink[ax] = (-lo, hi-lo), ((off-lo).simplify(), size)
  return cut(cut(x, Ops.PAD, pad, fill), Ops.SHRINK, dict(shrink))

def mask(ws:Windows, shape:Shape) -> UOp|None:
  """which elements of a lane's part are in the value, None if all are"""
  if not (over:=clipped(ws, shape)): return None
  inside = {ax:size for ax,off,size in ws if (ax, off, size) not in over}
  return own_view(UOp.const(True).expand(tuple(inside.get(a, s) for a,s in enumerate(shape))), over, False)

# ***** of what the lanes' parts are *****

def known(x:UOp) -> bool:
  """is it the same on every lane, whatever is kept there?"""
  return x.device is None and not x.ranges

def seen_through(x:UOp) -> tuple[UOp, Shape|tuple[int, ...]]|None:
  """(a window value, the arg with which what the lanes have is moved as a whole) of which the lanes see another shape, or a broadcast, in x"""
  local, ws = x.src[0], x.windows
  match local.op:
    case Ops.PERMUTE:
      perm = local.marg
      return place(local.src[0], by_axis([(perm[ax], off, s) for ax,off,s in ws]), tuple(x.shape[perm.index(a)] for a in range(len(perm)))), perm
    case Ops.EXPAND:
      n = len(local.marg)
      # along it the lanes may have other elements
      if any(ax < n for ax,_,_ in ws) and not known(local.src[0]): return None
      return place(local.src[0], tuple((ax-n, off, s) for ax,off,s in ws if ax >= n), x.shape[n:]), x.shape[:n]
    case Ops.RESHAPE:
      old, new = local.src[0].shape, local.shape
      if not all(isinstance(s, int) for s in (*old, *new)): return None
      # the same axis is where as many elements are before and after it
      at = [next((a for a,s in enumerate(old) if s == new[ax] and prod(old[:a]) == prod(new[:ax])), None) for ax,_,_ in ws]
      if None in at or len(set(at)) < len(at): return None
      found = {unwrap(a):w for a,w in zip(at, ws)}
      return place(local.src[0], by_axis([(a, off, s) for a,(_,off,s) in found.items()]),
                   tuple(x.shape[found[a][0]] if a in found else s for a,s in enumerate(old))), x.shape
  return None

def own_part_of(x:UOp) -> UOp|None:
  """what every lane has all of, if what the lanes have of x is their part of that"""
  if (own:=x.src[0]).op is not Ops.SHRINK: return None
  whole = v.src[0] if (v:=own.src[0]).op is Ops.PAD and not is_window(v) and v.arg is None else v
  return whole if whole.shape == x.shape and known(whole) and own_view(whole, x.windows) is own else None

def computed_of(x:UOp) -> tuple[UOp, ...]|None:
  """the srcs, as window values, of what the lanes compute element by element"""
  local, ws = x.src[0], x.windows
  if local.op not in GroupOp.ALU|{Ops.CAST} or local.arg == "lane" or not covers(ws, x.shape): return None
  def src(s:UOp) -> UOp:
    shift = len(local.shape)-len(s.shape)
    has = tuple((ax-shift, off, size) for ax,off,size in ws if ax >= shift and s.shape[ax-shift] == local.shape[ax])
    return place(s, has, tuple(x.shape[a+shift] if any(a == w[0] for w in has) else t for a,t in enumerate(s.shape)))
  ret = tuple(map(src, local.src))
  return ret if all(is_window(s) or known(s) for s in ret) else None

def numbytes(x:UOp) -> int: return prod(map(at_most, x.shape))*strong_dtype(x.dtype).itemsize

def to_gather(x:UOp, limit:int=100) -> int:
  """how many bytes have to be on every device for it to have all of x: those of x, or of what it's computed of"""
  if not x.windows or x.device is None or is_window(x) and own_part_of(x) is not None: return 0
  if is_window(x): of = (found[0],) if (found:=seen_through(x)) is not None else computed_of(x)
  else: of = x.src if x.op in GroupOp.ALU|{Ops.CAST} else x.src[:1] if x.op in {Ops.RESHAPE, Ops.EXPAND, Ops.PERMUTE} else None
  if of is None or limit <= 0: return numbytes(x)
  return min(numbytes(x), sum(to_gather(s, (limit-1)//len(of)) for s in dedup(of)))

# ***** in words *****

def text(x:sint) -> str: return strip_parens(srender(x))

def show(x:sint|Shape) -> str:
  if isinstance(x, tuple): return f"({', '.join(map(text, x))}{','*(len(x) == 1)})"
  return f"{x:,}" if isinstance(x, int) else text(x)

def render(off:UOp) -> str:
  """an offset, the number of the device being named device"""
  number = {r:UOp.variable("device", 0, int(r.vmax), dtype=r.dtype) for r in off.ranges if r.arg[-1] is AxisType.DEVICE}
  # no math tells what is one place here and another there
  if number and off.op_in_backward_slice_with_self(Ops.WHERE): return " or ".join(map(text, offsets(off, max(int(r.vmax) for r in number)+1)))
  return strip_parens(off.substitute(number).render()).replace("+-", "-")

def words(ws:Windows, shape:Shape) -> str:
  """what a device has of each axis of which it doesn't have all"""
  return ", ".join(f"axis {ax}: {text(size)} of {text(shape[ax])} from {render(off)}" for ax,off,size in ws)

# ***** windows through an op: None where its srcs have to be gathered *****

def through_reshape(ws:Windows, old:Shape, new:Shape) -> Windows|None:
  # of nothing no axis is known
  if 0 in old: return None
  # an axis is known by how many elements are before it, what follows it scales offset and size
  before:list[sint] = [1]
  for s in new: before.append(ssimplify(before[-1]*s))
  ret:list[Window] = []
  for ax,off,size in ws:
    if (target:=ssimplify(prod(old[:ax]))) not in before: return None
    if (j:=len(before) - before[::-1].index(target) - 1) == len(new):
      # trailing axes of length 1
      if old[ax] != 1 or not new or new[-1] != 1: return None
      j -= 1
    if resolve(new[j] != old[ax]):
      # of what follows in both only the part in which they differ counts
      end = next((k for k,(s,t) in enumerate(zip(reversed(old[ax+1:]), reversed(new[j+1:]))) if resolve(s != t)), min(len(old)-ax, len(new)-j)-1)
      a, b = ssimplify(prod(old[ax+1:len(old)-end])), ssimplify(prod(new[j+1:len(new)-end]))
      if not isinstance(b, int) or resolve(size*a % b != 0) or resolve(off*a % b != 0): return None
      off, size = ((off*a)//b).simplify(), ssimplify(size*a//b)
    ret.append((j, off, size))
  return by_axis(ret) if len({w[0] for w in ret}) == len(ret) else None

def through_shrink(ws:Windows, marg:tuple[tuple[sint, sint], ...], shape:Shape) -> Windows|None:
  # blocks of a length that varies are cut where they're whole
  def varies(ax:int, o:sint, s:sint, size:sint) -> bool:
    return not isinstance(s, int) and (o, s) != (0, shape[ax]) and not isinstance(size, int) and not (isinstance(o, UOp) and o.ranges)
  if any(varies(ax, *marg[ax], size) for ax,_,size in ws): return None
  # an offset that depends on the device asks for the lane's own part, which is no window of the result
  moved, own = list[Window](), by_axis([(ax, s, size) for ax,(s,size) in enumerate(marg) if isinstance(s, UOp) and s.ranges])
  held = {ax for ax,_,_ in own}
  # of all of the other axes, if no lane has it elsewhere
  if own and not covers(by_axis([*own, *(w for w in ws if w[0] not in held)]), shape): return ()
  for ax,off,size in ws:
    if isinstance(s:=marg[ax][0], int): moved.append((ax, (off-s).simplify() if s else off, size))
    elif not s.ranges: moved.append((ax, (off-s).simplify(), size))
  return tuple(moved)

def own_windows(u:UOp) -> Windows:
  """those that a PAD makes of what it's of"""
  return tuple((ax, o, s) for ax,((o,_),s) in enumerate(zip(u.marg, u.src[0].shape)) if isinstance(o, UOp) and o.ranges)

def through_pad(u:UOp, ws:Windows, shape:Shape) -> Windows|None:
  if u.is_window:
    own = own_windows(u)
    # of all of the other axes, if no lane has it elsewhere
    return by_axis(own+ws) if not ws or covers(by_axis(own+ws), u.shape) else own
  changed = [ax for ax,_,_ in ws if u.marg[ax] != (0, shape[ax])]
  # no lane has the fill
  if changed and u.arg is not None: return None
  return tuple((ax, (off+u.marg[ax][0]).simplify() if ax in changed else off, size) for ax,off,size in ws)

def through_bitcast(u:UOp, ws:Windows, shape:Shape) -> Windows|None:
  old, new, last = u.src[0].dtype.itemsize, u.dtype.itemsize, len(shape)-1
  if old == new: return ws
  if any(ax == last and (resolve((off*old % new).ne(0)) or resolve(size*old % new != 0)) for ax,off,size in ws): return None
  return tuple((ax, (off*old//new).simplify(), ssimplify(size*old//new)) if ax == last else (ax, off, size) for ax,off,size in ws)

def spread_out(ws:Windows, shape:Shape) -> Windows:
  """blocks of the same axes, one for each lane, () where the windows are in no such order"""
  ret = list[Window]()
  for ax,off,held in ws:
    at, total = offsets(off, lanes_of(ws)), shape[ax]
    if not isinstance(held, int) or not isinstance(total, int) or any(not isinstance(o, int) or (o-at[0]) % held or o < at[0] for o in at): return ()
    size = block(total, (max(map(int, at))-int(at[0]))//held+1)
    ret.append((ax, ((off-at[0])//held*size).simplify(), size))
  return tuple(ret)

def held_axes(x:UOp, shape:Shape) -> set[int]:
  """the axes of the shape along which x isn't broadcast"""
  return {a for a,s in enumerate(x.shape, len(shape)-len(x.shape)) if s == shape[a] and s != 1}

def least_moved(cands:list[tuple[UOp, Windows]], srcs:list[UOp], shape:Shape) -> Windows|None:
  """the windows of one of the srcs of an outer product, as of a matmul, for which the busiest lane receives the least: to have its parts of the
  others, and an allreduce of what is summed up along the axes that all of the srcs have. None where it's no such product, or not known"""
  if not all(isinstance(s, int) for s in (*shape, *(s for x in srcs for s in x.shape), *(s for _,ws in cands for _,_,s in ws))): return None
  axes = [held_axes(x, shape) for x in srcs if x.shape]
  shared, every = set.intersection(*axes), set.union(*axes)
  if not shared or sum(a != every for a in axes) < 2: return None
  def moved(x:UOp, own:Windows, ws:Windows) -> int:
    if own == ws: return 0
    mine = held_axes(x, shape)
    # the part that it wants, less what it has of that, or all of what it's computed of
    want = prod(next((int(s) for ax,_,s in ws if ax == a), int(shape[a])) for a in mine)*strong_dtype(x.dtype).itemsize
    return min(want - want*int(prod(s for _,_,s in own))//int(prod(shape[ax] for ax,_,_ in own)), to_gather(x))
  width = max(strong_dtype(x.dtype).itemsize for x in srcs)
  def received(ws:Windows) -> tuple[int, int]:
    sizes, others = {ax:int(s) for ax,_,s in ws}, [(x, moved(x, own, ws)) for x,own in cands]
    parts = prod(-(-int(shape[a])//sizes[a]) for a in shared if a in sizes)
    sums = prod(sizes.get(a, int(s)) for a,s in enumerate(shape) if a not in shared)*width
    # what is computed has to be stored to be moved, and what is there is moved once for all that need it
    return sum(m for _,m in others) + 2*sums*(parts-1)//parts, sum(m for x,m in others if x.src[0].base.op not in {Ops.BUFFER, Ops.PARAM})
  return min([ws for _,ws in cands], key=received)

def meet(srcs:list[UOp], shape:Shape, stack:bool=False) -> Windows:
  """the windows in which an op on these srcs, broadcast to the shape, is computed"""
  def aligned(x:UOp) -> Windows:
    # a src may hold nothing of an axis along which it is broadcast
    shift = len(shape)-len(x.shape)
    return tuple((ax+shift, off, size) for ax,off,size in x.windows if x.shape[ax] == shape[ax+shift])
  if not (cands:=[x for x in srcs if x.windows]): return ()
  found = dedup([aligned(x) for x in cands])
  if len(found) > 1:
    # nothing has to move where the devices' pieces meet
    union = by_axis(dedup([w for ws in found for w in ws]))
    if len({w[0] for w in union}) == len(union) and covers(union, shape): return union
    # the largest value stays where it is, if that is on every lane
    spread = [x for x in reversed(cands) if not any(empty(b) for b in boxes(x.windows, x.shape))]
    if spread and (best:=least_moved([(x, aligned(x)) for x in reversed(spread)], srcs, shape)) is not None: found = [best]
    elif spread: found = [aligned(max(spread, key=lambda x: (int(x.max_numel()), plain_axis(x) is not None)))]
    # where each has lanes with nothing all lanes get something to do. pieces that are stacked are put in one place
    else: found = [spread_out(found[0], shape) if not stack and all(covers(ws, shape) for ws in found) else ()]
  return found[0] if covers(found[0], shape) else ()

def windows(u:UOp) -> Windows|None:
  """the windows of an op's result where it has a local form, () if every lane has all of it, None if its srcs have to be gathered first: it's lost,
  and so is what's seen through it"""
  match u.op:
    case Ops.UNSHARD: return place_blocks(u.src[0], u.arg, u.src[1:]).windows
    case Ops.PARAM:
      if u.arg.axis is None: return ()
      n = len(u.arg.device)
      return ((ax:=u.arg.axis, (UOp.range(n, -1, AxisType.DEVICE)*(size:=block(u.shape[ax], n))).simplify(), size),)
    case Ops.GETTUPLE:
      t = u.src[0].src[0] if u.src[0].op is Ops.FUNCTION else u.src[0]
      return t.src[u.arg].windows if t.op is Ops.TUPLE else ()
    case Ops.STACK: return tuple((ax+1, off, size) for ax,off,size in meet(list(u.src), u.shape[1:], True)) if any(s.windows for s in u.src) else ()
    case Ops.COPY | Ops.STORE | Ops.TUPLE | Ops.FUNCTION | Ops.CALL | Ops.SINK | Ops.INDEX | Ops.RANGE | Ops.MSELECT: return ()
  if u.op in GroupOp.ALU: return meet(list(u.src), u.shape) if any(s.windows for s in u.src) else ()
  if (ws:=u.src[0].followed if u.src else ()) is None:
    if u.op in GroupOp.Movement and not is_window(u): return None
    ws = u.src[0].windows
  if u.op is Ops.PAD and u.is_window: return through_pad(u, ws, u.src[0].shape)
  if not ws: return ()
  shape = u.src[0].shape
  match u.op:
    case Ops.REDUCE: return tuple((ax-u.arg[1], off, size) for ax,off,size in ws if ax >= u.arg[1])
    case Ops.RESHAPE: return through_reshape(ws, shape, u.marg)
    case Ops.EXPAND: return tuple((ax+len(u.marg), off, size) for ax,off,size in ws)
    case Ops.PERMUTE: return by_axis([(u.marg.index(ax), off, size) for ax,off,size in ws])
    case Ops.FLIP: return tuple((ax, (shape[ax]-size-off).simplify() if u.marg[ax] else off, size) for ax,off,size in ws)
    # the arg asks for all of the axes that are not cut
    case Ops.SHRINK: return through_shrink(ws, u.marg, shape) if u.arg is None else ()
    case Ops.PAD: return through_pad(u, ws, shape)
    case Ops.BITCAST: return through_bitcast(u, ws, shape)
  return ws
