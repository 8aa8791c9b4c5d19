"""moves the parts of a value between devices until every lane has what it needs: gathered, window to window, or reduced. it knows windows and no op,
and nothing but the three of them communicates"""
from __future__ import annotations
from tinygrad.helpers import DEBUG, dedup, prod, to_tuple, unwrap
from tinygrad.dtype import Invalid, strong_dtype
from tinygrad.uop.ops import AxisType, Ops, UOp
from tinygrad.schedule.copies import joined, lane_view
from tinygrad.schedule.exchange import assemble, exchange
from tinygrad.schedule.reduction import reduce_scatter
from tinygrad.schedule.report import report
from tinygrad.schedule.window import Box, Shape, Windows, boxes, by_axis, covers, cut, empty, lanes_of, offsets, own_view, place

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
        if mine: lanes.append(part(j if j in mine and (x.device is None or x.device[j] == dev) else mine[0], box))
        # who has nothing of the value needs nothing, and of what no device has all is Invalid
        elif empty(same[j]) or not covers(x.windows, x.shape): lanes.append(UOp.invalids(part(holders[0], box).shape, dtype=local.dtype, device=dev))
        else: raise RuntimeError(f"no device has {box} of {x.shape} where {dev} has {same[j]}: {x.windows} on {x.device}")
      v = joined(lanes, devices if x.device is not None else None)
    ret.append((box, v.copy_to_device(devices) if isinstance(devices, str) and x.device is not None else v))
  return ret

def seen_through(x:UOp) -> tuple[UOp, Shape|tuple[int, ...]]|None:
  """(a window value, the arg with which what the lanes have is moved as a whole) of which the lanes see another shape, or a broadcast, in x"""
  local, ws = x.src[0], x.windows
  match local.op:
    case Ops.PERMUTE:
      perm = local.marg
      return place(local.src[0], by_axis([(perm[ax], off, s) for ax,off,s in ws]), tuple(x.shape[perm.index(a)] for a in range(len(perm)))), perm
    case Ops.EXPAND:
      if any(ax < (n:=len(local.marg)) for ax,_,_ in ws): return None
      return place(local.src[0], tuple((ax-n, off, s) for ax,off,s in ws), x.shape[n:]), local.marg
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

def gather(x:UOp, keep:Windows=(), devices:str|tuple[str, ...]|None=None) -> UOp:
  """x with no windows but those to keep, on its own devices or on others"""
  if not (gone:=tuple(w for w in x.windows if w not in keep)): return x
  if devices is None: devices = x.device if x.device is not None else ()
  # what's seen in several shapes is gathered once
  if not keep and x.device is not None and (found:=seen_through(x)) is not None:
    return gather(found[0], (), devices)._mop(x.src[0].op, found[1])
  if isinstance(x.device, str) or any(r.arg[-1] is not AxisType.DEVICE for _,off,_ in gone for r in off.ranges):
    raise RuntimeError(f"{x.shape} is sharded over {', '.join(off.render() for _,off,_ in gone)} and not over devices: it can't be gathered")
  sizes = {ax:size for ax,_,size in keep}
  shape = tuple(sizes.get(a, s) for a,s in enumerate(x.shape))
  if not (each_part:=parts(x, keep, devices)): return place(UOp.const(Invalid, x.dtype).expand(shape), keep, x.shape)
  if DEBUG >= 2:
    each = {box:int(p.max_numel()) for box,p in each_part}
    had = {d:each.get(b, 0) for d,b in zip(x.device or (), boxes(gone, x.shape, len(x.device or ()) or 1))}
    report("gather", x, gone, keep, devices, sum(each.values()) - min((had.get(d, 0) for d in to_tuple(devices)), default=0))
  return place(assemble(each_part, tuple(ax for ax,_,_ in gone), shape).cast(x.dtype), keep, x.shape)

def send(x:UOp, devices:tuple[str, ...], ws:Windows) -> UOp:
  """what lanes on other devices have of x at the windows: each gets its own part from those that have it"""
  lanes, at, sizes = list[UOp](), [offsets(off, len(devices)) for _,off,_ in ws], {ax:size for ax,_,size in ws}
  for j,(dev,box) in enumerate(zip(devices, boxes(ws, x.shape, len(devices)))):
    if empty(box): lanes.append(UOp.invalids(tuple(sizes.get(a, s) for a,s in enumerate(x.shape)), dtype=x.dtype, device=dev))
    else:
      part = cut(x, Ops.SHRINK, {ax:(b, e-b) for (ax,_,_),(b,e) in zip(ws, box)}).copy_to_device(dev)
      lanes.append(cut(part, Ops.PAD, {ax:(b-o[j], size) for (ax,_,size),(b,_),o in zip(ws, box, at)}))
  return UOp.mstack(*lanes)

def redistribute(x:UOp, ws:Windows) -> UOp:
  """what a lane has of x at the windows"""
  keep = tuple(w for w in x.windows if w in ws)
  gone, new = tuple(w for w in x.windows if w not in keep), tuple(w for w in ws if w not in keep)
  if gone and new and isinstance(x.device, tuple) and (ret:=exchange(x, keep, gone, new)) is not None: return ret
  x = gather(x, keep)
  whole = x.src[0] if keep else x
  return own_view(whole, new) if not new or (ret:=reduce_scatter(whole, new)) is None else ret
