"""what the lanes' values add up to: on all of them, on those along one dimension of a mesh, or of a part of it only what a lane wants"""
from __future__ import annotations
import functools
from typing import Sequence
from tinygrad.helpers import DEBUG, dedup, prod, unwrap
from tinygrad.dtype import strong_dtype
from tinygrad.uop.ops import AxisType, GroupOp, Ops, UOp, identity_element
from tinygrad.schedule.copies import lane_view, to_device
from tinygrad.schedule.exchange import Place, by_lane, on_lanes
from tinygrad.schedule.report import report
from tinygrad.schedule.slice_copy import flat_memory
from tinygrad.schedule.window import Box, Windows, block, boxes, cut, empty, offsets, own_view, place, through_reshape

def reduce_groups(at:list[Box], same:list[Box]) -> tuple[tuple[int, ...], ...]|None:
  """the lanes that reduce together: of those with the same kept windows one for each part, the nearest in a mesh. None if they don't pair up"""
  ret:list[tuple[int, ...]] = []
  for kept in dedup(same):
    holders:dict[Box, list[int]] = {}
    for i in [i for i in range(len(at)) if same[i] == kept]: holders.setdefault(at[i], []).append(i)
    if len({len(h) for h in holders.values()}) != 1: return None
    ret += zip(*holders.values())
  return tuple(ret)

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
    local = on_lanes(first, UOp.range(n, -1, AxisType.DEVICE)).where(local, local.const_like(identity_element(op, local.dtype)))
    return local.allreduce(op, x.device)
  terms = []
  if DEBUG >= 2: report("allreduce", x, reduced, kept, x.device, int(local.max_numel())*(len(dedup([b for b in at if not empty(b)]))-1))
  for box in dedup([b for b in at if not empty(b)]):
    mine = [[i for i in range(n) if at[i] == box and same[i] == same[j]] for j in range(n)]
    terms.append(UOp.mstack(*[to_device(lane_view(local, j if j in m or not m else m[0]), x.device[j]) for j,m in enumerate(mine)]))
  return functools.reduce(lambda a,b: a.alu(op, b), terms)

def reduce_in_groups(x:UOp, op:Ops, groups:Sequence[Sequence[int]]) -> UOp:
  """the lanes of x of each group reduced, from copies of all of the others. in the same order on each, so that all have the same bits"""
  group = {j:g for g in groups for j in g}
  terms = [UOp.mstack(*[to_device(lane_view(x, group[j][k]), dev) for j,dev in enumerate(x.device)]) for k in range(len(groups[0]))]
  return functools.reduce(lambda a,b: a.alu(op, b), terms)

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

# ***** sums of what comes out *****

def as_allreduce(x:UOp) -> UOp|None:
  """x as an ALLREDUCE: another shape of one is one of that shape"""
  if x.op is Ops.ALLREDUCE: return x
  if x.op not in {Ops.RESHAPE, Ops.PERMUTE} or (red:=as_allreduce(x.src[0])) is None: return None
  return red.replace(src=(red.src[0]._mop(x.op, x.marg),))

def terms(x:UOp, once:dict[UOp, bool]|None=None) -> list[UOp]:
  return [t for s in x.src for t in (terms(s, once) if s.op is Ops.ADD and (once is None or once.get(s)) else [s])]

def one_allreduce(x:UOp, once:dict[UOp, bool]|None=None) -> UOp|None:
  """a sum of allreduces, as of the gradients of a weight that is used twice, is an allreduce of the sums. once: those that nothing else reads"""
  rest, same = list[UOp](), dict[tuple, list[UOp]]()
  for t in terms(x, once):
    base = t
    while base.op in {Ops.RESHAPE, Ops.PERMUTE}: base = base.src[0]
    if base.op is not Ops.ALLREDUCE or base.arg[0] is not Ops.ADD or once is not None and not once.get(base): rest.append(t)
    else: same.setdefault((base.arg, base.device, base.src[0].device, base.dtype, t.shape), []).append(t)
  if all(len(ts) < 2 for ts in same.values()): return None
  for ts in same.values():
    reds = [unwrap(as_allreduce(t)) for t in ts]
    rest.append(reds[0].replace(src=(reds[0].src[0].usum(*[r.src[0] for r in reds[1:]]),)))
  return rest[0].usum(*rest[1:])

# ***** a part of what comes out *****

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
    case Ops.EXPAND:
      n = len(x.marg)
      if any(ax < n for ax,_,_ in ws) or (ret:=reduce_scatter(x.src[0], tuple((ax-n, off, s) for ax,off,s in ws))) is None: return None
      return ret._mop(Ops.EXPAND, x.marg)
    case Ops.COPY: return reduce_scatter(x.src[0], ws) if x.device == x.src[0].device else None
    case Ops.ALLREDUCE: pass
    case _:
      if x.op not in GroupOp.ALU or x.arg is not None: return None
      if x.op is Ops.ADD and (one:=one_allreduce(x)) is not None: return reduce_scatter(one, ws)
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
  # those of a group that want the same get a part of it each, and then each other's: all have the same bits
  alike, members = [[i for i in group[j] if has[i] == has[j]] for j in range(n)], len(groups[0])
  if (count:=len(alike[0])) > 1:
    if any(len(a) != count for a in alike): return None
    ax, off, length = ws[0]
    part = (ax, off+by_lane([a.index(j) for j,a in enumerate(alike)], next(iter(off.ranges)))*(block(length, count)), block(length, count))
    from tinygrad.schedule.redistribute import redistribute
    if (ret:=scatter(local, op, groups, sub:=(part,)+ws[1:])) is None: return None
    if len(groups) == 1: return redistribute(place(ret, sub, shape), ws)
    # the lanes of another group have other values: which group it is counts as an axis
    nth_group = {j:k for k,g in enumerate(groups) for j in g}
    own_group = ((0, UOp.const(0)+by_lane([nth_group[j] for j in range(n)], next(iter(off.ranges))), 1),)
    def up(ws:Windows) -> Windows: return tuple((ax+1, off, s) for ax,off,s in ws)
    return redistribute(place(ret.reshape((1,)+ret.shape), own_group+up(sub), (len(groups),)+shape), own_group+up(ws)).reshape(own_shape)
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
