"""the local form of every op on windows: one short function an op, and one table that shows the whole pass"""
from __future__ import annotations
import itertools
from typing import Iterator
from tinygrad.helpers import all_same, argsort, getenv, unwrap, ALLREDUCE_CAST, DEBUG
from tinygrad.dtype import dtypes, Invalid, strong_dtype
from tinygrad.uop.ops import AxisType, Ops, UOp, PatternMatcher, UPat, GroupOp, graph_rewrite, resolve, identity_element
from tinygrad.uop.lane import mop_on_lane, on_lane
from tinygrad.schedule.allreduce import handle_allreduce
from tinygrad.schedule.slice_copy import flat_memory, slice_of
from tinygrad.schedule.window import Windows, cut, is_window, mask, own_view, place, plain_axis, stored, windows
from tinygrad.schedule.halo import halo_srcs, is_lost
from tinygrad.schedule.copies import lane_view, only_moves
from tinygrad.schedule.exchange import by_lane
from tinygrad.schedule.redistribute import gather, redistribute, send
from tinygrad.schedule.reduction import allreduce, reduce_scatter
from tinygrad.schedule.report import report

def gather_srcs(root:UOp) -> UOp: return root.replace(src=tuple(gather(s) if is_window(s) else s for s in root.src))

def to_lane(x:UOp, ws:Windows) -> UOp:
  """what a lane has of x at the windows"""
  return redistribute(x, ws) if x.windows != ws else x.src[0] if ws else x

# ***** values *****

def window_alu(root:UOp) -> UOp|None:
  if not any(is_window(s) for s in root.src): return None
  if not all_same([s.device for s in root.src if s.device is not None]):
    where = "; ".join(f"{s.shape} on {s.device}" for s in root.src if s.device is not None)
    raise RuntimeError(f"{root.op} needs all its sources on the same devices, they are: {where}. move one with .to or .shard")
  up = int(root.op is Ops.STACK)
  ws, shape = tuple((ax-up, off, size) for ax,off,size in root.windows), root.shape[up:]
  def local(s:UOp) -> UOp:
    shift = len(shape)-len(s.shape)
    return to_lane(s, tuple((ax-shift, off, size) for ax,off,size in ws if ax >= shift and s.shape[ax-shift] == shape[ax]))
  return place(root.replace(src=tuple(local(s) for s in root.src)), root.windows, root.shape)

def window_reduce(root:UOp, x:UOp) -> UOp|None:
  if not is_window(x): return None
  # index math is known to every lane
  if x.device is None: return gather_srcs(root)
  op, n = root.arg
  reduced, kept, local = tuple(w for w in x.windows if w[0] < n), tuple(w for w in x.windows if w[0] >= n), x.src[0]
  # what a lane has besides its part of the value takes no part. a lane may have nothing, and memory can't hold Invalid. the mask is as long as the
  # lane's part along the axes that are not reduced, where every element is alike
  if (m:=mask(reduced, tuple(local.shape[a] if any(a == w[0] for w in kept) else s for a,s in enumerate(x.shape)))) is not None:
    local = m.where(local, local.const_like(identity_element(op, local.dtype)))
  ret = local._rop(op, tuple(range(n)))
  if reduced:
    narrow = ALLREDUCE_CAST and local.op is Ops.CAST and local.src[0].dtype in (dtypes.bfloat16, dtypes.half)
    # what goes to other devices is stored, with a width
    ret = allreduce(x, ret.cast(local.src[0].dtype if narrow else strong_dtype(ret.dtype)), reduced, kept, op).cast(ret.dtype)
  return place(ret, root.windows, root.shape)

def window_movement(root:UOp, x:UOp) -> UOp|None:
  if not is_window(x) or is_window(root): return None
  if (ws:=windows(root)) is None: return gather_srcs(root)
  local, size = x.src[0], {ax:s for ax,_,s in ws}
  match root.op:
    case Ops.RESHAPE: local = local._mop(Ops.RESHAPE, tuple(size.get(a, s) for a,s in enumerate(root.shape)))
    case Ops.SHRINK:
      # the lane's own part of an axis is there already, or has to come
      held = tuple(w for w in x.windows if w[0] in size)
      own = tuple((ax, o, s) for ax,(o,s) in enumerate(root.marg) if ax not in size and isinstance(o, UOp) and o.ranges)
      local = to_lane(x, tuple(sorted(held+own, key=lambda w: w[0])))
      local = cut(local, Ops.SHRINK, {a:m for a,m in enumerate(root.marg) if all(a != ax for ax,_,_ in held+own)})
    case Ops.PAD: local = cut(local, Ops.PAD, {a:m for a,m in enumerate(root.marg) if a not in size}, root.arg)
    case _: local = local._mop(root.op, root.marg)
  return place(local, ws, root.shape)

def asked_of(root:UOp) -> tuple[UOp, Windows]|None:
  """(value, windows) where a SHRINK is the lane's own part of a value, in blocks that may reach past it"""
  ws = tuple((ax, o, s) for ax,(o,s) in enumerate(root.marg) if isinstance(o, UOp) and o.ranges)
  if not ws or any(root.marg[a] != (0, s) for a,s in enumerate(root.src[0].shape) if all(a != w[0] for w in ws)): return None
  if (x:=root.src[0]).op is not Ops.PAD: return x, ws
  cut_axes = {ax for ax,_,_ in ws}
  if x.arg is not None or is_window(x) or any(m != (0, s) for a,(m,s) in enumerate(zip(x.marg, x.src[0].shape)) if a not in cut_axes): return None
  return x.src[0], tuple((ax, (o-x.marg[ax][0]).simplify(), s) for ax,o,s in ws)

def own_part(root:UOp) -> UOp|None:
  """a part of what the lanes' values add up to is all that a lane needs of it"""
  return None if (found:=asked_of(root)) is None else reduce_scatter(*found)

def is_moved(root:UOp) -> bool:
  """is it a part of what's sharded on other devices?"""
  x = root.src[0].src[0] if root.src[0].op is Ops.PAD else root.src[0]
  return x.op is Ops.COPY and x.device.__class__ is tuple and x.src[0].device.__class__ is tuple and x.device != x.src[0].device and \
    len(x.src[0].windows) > 0

def moved_part(root:UOp) -> UOp|None:
  """its lanes get their own parts of that, and nothing else"""
  return send(found[0].src[0], root.device, found[1]) if is_moved(root) and (found:=asked_of(root)) is not None and found[0].op is Ops.COPY else None

def window_same(root:UOp, x:UOp) -> UOp|None:
  if not is_window(x): return None
  return gather_srcs(root) if (ws:=windows(root)) is None else place(root.replace(src=(x.src[0],)+root.src[1:]), ws, root.shape)

def window_index(root:UOp, x:UOp) -> UOp|None:
  if not is_window(x): return None
  if isinstance(x.device, tuple): return gather_srcs(root)
  idxs = list(root.src[1:])
  for ax,off,size in x.windows:
    # a thread has a block, or every size-th element
    thread = next(iter(off.ranges))
    block, step = (idxs[ax]-off).simplify(), (idxs[ax]-thread).simplify()
    if block.vmin >= 0 and block.vmax < size: idxs[ax] = block
    elif not resolve(step % size != 0) and (nth:=(step//size).simplify()).vmin >= 0 and nth.vmax < size: idxs[ax] = nth
    else: raise RuntimeError(f"cannot shard index {idxs[ax].render()} of axis {ax} of {x.shape}: a thread has {size} elements from {off.render()} "
                             f"on, or every {size}th from {thread.render()} on")
  return x.src[0].index(*idxs)

# ***** stores *****

def window_store(root:UOp, dest:UOp, v:UOp) -> UOp|None:
  if not (is_window(dest) or is_window(v)): return None
  over_devices = isinstance(v.device, tuple) or any(r.arg[-1] is AxisType.DEVICE for _,off,_ in v.windows for r in off.ranges)
  # threads store their own parts
  if not (ws:=dest.windows) and not over_devices: return root.replace(src=(own_view(dest, v.windows), v.src[0])+root.src[2:])
  if v.shape != ():
    m, v = mask(ws, dest.shape), to_lane(v, ws)
    # a lane's part past the value is not written
    if m is not None: v = m.where(v, v.const_like(Invalid))
  return root.replace(src=(dest.src[0] if ws else dest, v)+root.src[2:])

def put_back(view:UOp, v:UOp) -> UOp:
  """what is written through a movement op, as a value of its src's shape: Invalid, so not written, where the view isn't"""
  x = view.src[0]
  match view.op:
    case Ops.RESHAPE: return v._mop(Ops.RESHAPE, x.shape)
    case Ops.PERMUTE: return v._mop(Ops.PERMUTE, tuple(argsort(view.marg)))
    case Ops.FLIP: return v._mop(Ops.FLIP, view.marg)
    case Ops.SHRINK: return v._mop(Ops.PAD, tuple((o, s) for (o,_),s in zip(view.marg, x.shape)))
    case Ops.PAD: return v._mop(Ops.SHRINK, tuple((o, s) for (o,_),s in zip(view.marg, x.shape)))
  raise RuntimeError(f"can't write through {view.op} of {x.shape}")

def store_through(root:UOp, view:UOp, v:UOp) -> UOp|None:
  if not is_lost(view): return None
  if v.shape != view.shape: v = v.expand(view.shape)
  # what is read from where it is written is read first, and a value with Invalid in it can't be moved
  if v.windows or view.base in v.backward_slice: v = v.copy_to_device(v.device)
  if view.base in v.backward_slice: v = v.contiguous()
  while is_lost(view): view, v = view.src[0], put_back(view, v)
  return root.replace(src=(view, v)+root.src[2:])

def effect(x:UOp) -> UOp:
  """what is waited for is not read, so it is no view"""
  if x.op in GroupOp.Movement: return effect(x.src[0])
  return effect(x.replace(src=(x.src[0].src[0],)+x.src[1:])) if x.op is Ops.AFTER and is_lost(x.src[0]) else x

def after_through(root:UOp) -> UOp|None:
  deps = tuple(effect(d) for d in root.src[1:])
  if is_lost(view:=root.src[0]): return view.replace(src=(root.replace(src=(view.src[0],)+deps),)+view.src[1:])
  return None if deps == root.src[1:] else root.replace(src=root.src[:1]+deps)

def sink_through(root:UOp) -> UOp|None: return None if (src:=tuple(effect(x) for x in root.src)) == root.src else root.replace(src=src)

# top down, before the lanes' parts are worked out
pm_write_window = PatternMatcher([
  (UPat(Ops.STORE, src=(UPat(GroupOp.Movement, name="view"), UPat(name="v")), allow_any_len=True, name="root"), store_through),
  (UPat(Ops.AFTER, name="root"), after_through),
  (UPat(Ops.SINK, name="root"), sink_through),
])

pm_before_lanes = pm_write_window+PatternMatcher([
  # what is read through such a view, where each lane needs little more than it has
  (UPat(GroupOp.All-GroupOp.Movement, name="root"), halo_srcs),
  (UPat(Ops.SHRINK, name="root"), moved_part),
])

MAY_LOSE = {Ops.RESHAPE, Ops.PAD, Ops.SHRINK}
def before_lanes(sink:UOp) -> PatternMatcher|None:
  """the pass for views that windows don't follow and parts of what's on other devices, if there are any"""
  return pm_before_lanes if any(u.op in MAY_LOSE and u.device.__class__ is tuple and (is_lost(u) or u.op is Ops.SHRINK and is_moved(u))
                                for u in sink.toposort()) else None

# ***** calls *****

def argument(x:UOp, kernel:bool) -> UOp:
  """a buffer on each device: what a lane has, if the parts are plain ones, else all of it. a kernel takes what is kept of it"""
  if not is_window(x): return x
  return x.src[0] if plain_axis(x) is not None or (kernel and stored(x) == x.windows) else gather(x)

def window_function(call:UOp) -> UOp|None:
  if call.arg.precompile: return None
  body = graph_rewrite(call.src[0], symbolic_multi_pm, bpm=before_lanes(call.src[0]), name="subcall")
  assert body.op is Ops.TUPLE
  ret = call.replace(src=(UOp.maketuple(*[s.src[0] if is_window(s) else s for s in body.src]),)+tuple(argument(a, False) for a in call.src[1:]))
  if not any(is_window(s) for s in body.src): return ret
  return UOp.maketuple(*[place(ret.gettuple(i), s.windows, s.shape) if is_window(s) else ret.gettuple(i) for i,s in enumerate(body.src)])

def window_call(root:UOp) -> UOp|None:
  return root.replace(src=root.src[:1]+tuple(argument(x, True) for x in root.src[1:])) if any(is_window(x) for x in root.src[1:]) else None

# ***** lanes *****

def lane_inward(root:UOp) -> UOp|None:
  """a lane is of what is in memory: a lane of a view is a view of the lane, and a lane of lanes is one of them"""
  i = unwrap(root.lane)
  if (x:=root.src[1]).device is None: return on_lane(x, i)
  if only_moves(x): return mop_on_lane(x, x.src[0].mselect(i), i)
  return lanes[i] if x.lane is None and (lanes:=x.lane_srcs) is not None else None

def shrink_lanes(root:UOp, x:UOp) -> UOp|None:
  """what is cut off after a copy is cut off before it"""
  join, before = (x.src[0], [o for o,_ in x.marg]) if x.op is Ops.PAD else (x, [0]*len(x.shape))
  if (lanes:=join.lane_srcs) is None or (x.op is Ops.PAD and (x.arg is not None or not all(isinstance(s, int) for s in (*before, *join.shape)))):
    return None
  def part(s:UOp, i:int) -> UOp:
    cut_lane = mop_on_lane(root, s, i)
    if x.op is not Ops.PAD: return cut_lane
    # what the lane has of the value, with nothing around it
    at = [(o-p, size) for (o,size),p in zip(cut_lane.marg, before)]
    if not all(isinstance(v, int) for m in at for v in m): return mop_on_lane(root, x.replace(src=(s,)+x.src[1:]), i)
    inside = [(min(max(o, 0), total), min(max(o+size, 0), total)) for (o,size),total in zip(at, s.shape)]
    if any(b >= e for b,e in inside): return cut(s, Ops.SHRINK, {a:(0, min(size, total)) for a,((_,size),total) in enumerate(zip(at, s.shape))})
    return cut(s, Ops.SHRINK, {a:(b, e-b) for a,(b,e) in enumerate(inside)})
  def whole(v:UOp, i:int) -> UOp:
    if x.op is not Ops.PAD or v.shape == root.shape: return v
    at = [max(0, p-o) if isinstance(o, int) else 0 for (o,_),p in zip(mop_on_lane(root, join, i).marg, before)]
    return cut(v, Ops.PAD, {a:(min(o, size-had), size) for a,(o,size,had) in enumerate(zip(at, root.shape, v.shape))})
  return UOp.mstack(*[whole(part(s.src[0], i).copy_to_device(s.device), i) if s.op is Ops.COPY else whole(part(s, i), i).contiguous()
                      for i,s in enumerate(lanes)])

def copy_lanes(root:UOp, x:UOp) -> UOp|None:
  if isinstance(root.device, str):
    if not isinstance(x.device, tuple): return None
    if root.device in x.device: return lane_view(x, x.device.index(root.device))
    if DEBUG >= 2: report("copy", x, (), (), root.device, int(x.max_numel()))
    return x.mselect(0).copy_to_device(root.device)
  if isinstance(x.device, tuple):
    # the same on each of other devices, that has it or gets it from one that does
    if x.device == root.device: return None
    if DEBUG >= 2 and not set(root.device) <= set(x.device): report("copy", x, (), (), root.device, int(x.max_numel()))
    return UOp.mstack(*[lane_view(x, x.device.index(d) if d in x.device else j % len(x.device)).copy_to_device(d) for j,d in enumerate(root.device)])
  # what no device has to hold is the same on each
  return sx if (sx:=x.simplify()).device is None else UOp.mstack(*[x.copy_to_device(d) for d in root.device])

def pieces(dest:UOp, v:UOp) -> Iterator[tuple[UOp, UOp]]:
  """(place in dest, value) for all that v is put together of"""
  if v.op is Ops.RESHAPE: yield from pieces(dest.reshape(v.src[0].shape), v.src[0])
  elif v.op is Ops.PERMUTE: yield from pieces(dest.permute(argsort(v.marg)), v.src[0])
  elif v.op is Ops.STACK:
    for i,s in enumerate(v.src): yield from pieces(dest[i], s)
  else: yield dest, v

def store_pieces(dest:UOp, v:UOp) -> UOp|None:
  """what comes from other devices lands where it's needed, if that is one piece of memory"""
  if v.op is Ops.COPY or not dest.has_buffer_identity() or dest.base in v.backward_slice: return None
  flat, stores, n = flat_memory(dest), list[UOp](), len(dest.device) if isinstance(dest.device, tuple) else 1
  own = dict[tuple[UOp, int], dict[int, int]]()
  def lane(i:int) -> UOp: return lane_view(flat, i) if isinstance(dest.device, tuple) else flat
  for at_,x in pieces(dest, v):
    if (found:=slice_of(at_)) is None: return None
    lanes = (x,) if isinstance(x.device, str) and x.op is Ops.COPY else x.lane_srcs if x.lane is None else None
    if lanes is None or len(lanes) != n: return None
    for i,s in enumerate(lanes):
      # a lane's own part
      if s.op is Ops.COPY and s.src[0].device == s.device: s = s.src[0]
      src = s
      while src.op is Ops.RESHAPE: src = src.src[0]
      if src.lane == i and n > 1 and src.src[1].device == dest.device:
        # the same value may be in several places
        k = next(k for k in itertools.count() if i not in own.get((src.src[1], k), {}))
        own.setdefault((src.src[1], k), {})[i] = found[1]
      elif x.max_numel() == flat.max_numel(): stores.append((lane_view(at_, i) if n > 1 else at_).store(s))
      else: stores.append(cut(lane(i), Ops.SHRINK, {0:(found[1], int(x.max_numel()))}).store(s.flatten()))
  if not any(st.src[1].op_in_backward_slice_with_self(Ops.COPY) for st in stores): return None
  d = UOp.range(n, -1, AxisType.DEVICE)
  for (x,_),at in own.items():
    x = x.flatten()
    if len(at) == n: stores.append(flat._mop(Ops.SHRINK, ((by_lane([at[i] for i in range(n)], d), x.shape[0]),)).store(x))
    else: stores += [cut(lane(i), Ops.SHRINK, {0:(o, x.shape[0])}).store(x.mselect(i)) for i,o in at.items()]
  return dest.after(*stores)

# ***** the pass *****

def param_to_window(p:UOp) -> UOp|None:
  if p.arg.axis is None: return None
  local = UOp.param(p.arg.slot, p.dtype, p.shard_shape, p.device, p.arg.vmin_vmax, p.arg.multiple_of, p.arg.name, p.arg.addrspace)
  return place(local, p.windows, p.shape)

has_window = {Ops.PAD}
symbolic_multi_pm = PatternMatcher([
  # the form
  (UPat(Ops.UNSHARD, name="x"), lambda x: place(x.src[0], x.windows, x.shape)),
  (UPat(Ops.PARAM, name="p"), param_to_window),
  (UPat(Ops.PAD, src=(UPat(Ops.PAD, name="x"),), allow_any_len=True, name="root"),
   lambda root,x: place(x.src[0] if all(w in root.windows for w in x.windows) else gather(x), root.windows, root.shape)
    if is_window(x) and is_window(root) else None),
  (UPat(Ops.MSELECT, name="x"), lambda x: x.src[0].mselect(x.arg)),
  (UPat(Ops.MSTACK, name="x"), lambda x: UOp.mstack(*x.src)),
  # values
  (UPat(GroupOp.ALU|{Ops.STACK}, name="root", custom_early_reject=has_window), window_alu),
  (UPat(Ops.REDUCE, src=(UPat(Ops.PAD, name="x"),), name="root"), window_reduce),
  (UPat(GroupOp.Movement, src=(UPat(Ops.PAD, name="x"),), allow_any_len=True, name="root"), window_movement),
  (UPat((Ops.CAST, Ops.BITCAST, Ops.CONTIGUOUS, Ops.DETACH, Ops.CONTIGUOUS_BACKWARD, Ops.AFTER, Ops.ALLREDUCE),
        src=(UPat(Ops.PAD, name="x"),), allow_any_len=True, name="root"), window_same),
  (UPat(Ops.INDEX, src=(UPat(Ops.PAD, name="x"),), allow_any_len=True, name="root"), window_index),
  # communication
  (UPat(Ops.SHRINK, src=(UPat(GroupOp.ALU|{Ops.ALLREDUCE, Ops.CAST, Ops.RESHAPE, Ops.PERMUTE, Ops.PAD, Ops.COPY}),), allow_any_len=True, name="root"),
   own_part),
  (UPat(Ops.COPY, src=(UPat(Ops.PAD, name="x"),), name="root"), lambda root,x: gather(x, devices=root.arg) if is_window(x) else None),
  # stores
  (UPat(Ops.STORE, src=(UPat(name="dest"), UPat(name="v")), name="root", custom_early_reject=has_window), window_store),
  (UPat(Ops.AFTER, src=(UPat.var("dest"), UPat(Ops.STORE, src=(UPat.var("dest"), UPat.var("v"))))), store_pieces),
  (UPat(Ops.AFTER, name="root"), after_through),
  # calls
  (UPat(Ops.GETTUPLE, src=(UPat(Ops.TUPLE, name="t"),), name="g"), lambda g,t: t.src[g.arg]),
  (UPat(Ops.FUNCTION, name="call"), window_function),
  (UPat(Ops.CALL, name="root", custom_early_reject=has_window), window_call),
  # lanes
  (UPat(Ops.WHERE, name="root", arg="lane"), lane_inward),
  (UPat(Ops.SHRINK, src=(UPat(Ops.INDEX, src=(UPat(Ops.STACK), UPat(Ops.RANGE)), name="x"),), allow_any_len=True, name="root"), shrink_lanes),
  (UPat(Ops.SHRINK, src=(UPat(Ops.PAD, src=(UPat(Ops.INDEX, src=(UPat(Ops.STACK), UPat(Ops.RANGE))),), allow_any_len=True, name="x"),),
        allow_any_len=True, name="root"), shrink_lanes),
  (UPat(Ops.COPY, src=(UPat(name="x"),), name="root"), copy_lanes),
])
if not getenv("LATE_ALLREDUCE", 1):
  symbolic_multi_pm += PatternMatcher([
    (UPat(Ops.ALLREDUCE, src=(UPat.var("buf"),), name="red"), lambda buf,red: None if is_window(buf) else handle_allreduce(buf, red))])
