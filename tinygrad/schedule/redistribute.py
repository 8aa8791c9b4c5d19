"""moves the parts of a value between devices until every lane has what it needs: gathered, window to window, or reduced. it knows windows and no op,
and nothing but the three of them communicates"""
from __future__ import annotations
from tinygrad.helpers import DEBUG, dedup, prod, to_tuple
from tinygrad.dtype import dtypes, Invalid, strong_dtype
from tinygrad.uop.ops import AxisType, Ops, UOp, sint, ssimplify
from tinygrad.schedule.copies import joined, lane_view
from tinygrad.schedule.exchange import assemble, cost, exchange
from tinygrad.schedule.reduction import allreduce, reduce_scatter
from tinygrad.schedule.report import report
from tinygrad.schedule.window import Box, Windows, at_most, boxes, computed_of, covers, cut, empty, is_window, lanes_of, numbytes, offsets
from tinygrad.schedule.window import own_part_of, own_view, place, seen_through, to_gather

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

def cut_at(x:UOp, ax:int, begin:sint, size:sint, fill=None) -> UOp:
  """an axis of this size in which x begins at a place that varies, before or after 0"""
  before, end = max(at_most(begin), 0), max(at_most(ssimplify(size-begin)), int(x.shape[ax]))
  return cut(cut(x, Ops.PAD, {ax:(before, before+end)}, fill), Ops.SHRINK, {ax:(ssimplify(before-begin), size)})

UINT = {1:dtypes.uint8, 2:dtypes.uint16, 4:dtypes.uint32, 8:dtypes.uint64}

def selected(x:UOp, keep:Windows, gone:Windows) -> UOp|None:
  """x, if it's few rows from a place on that varies of what the lanes have blocks of: the sum of what each has of them, and zeros where it has none.
  None if all of the blocks cost less"""
  n, local, rows, held = len(x.device), x.src[0].cast(strong_dtype(x.dtype)), 1, 1
  offs = [offsets(off, n) for _,off,_ in gone]
  if all(isinstance(o, int) for os in offs for o in os): return None
  for (ax,_,size),os in zip(gone, offs):
    # a row is on one lane
    if not isinstance(size, int) or not all(isinstance(by:=ssimplify(o-os[0]), int) and by % size == 0 for o in os): return None
    rows, held = rows*at_most(x.shape[ax]), held*size
  rest, lanes = prod(map(at_most, local.shape))//held*local.dtype.itemsize, len(set(zip(*offs)))
  if cost((lanes-1)*held*rest, lanes-1) <= cost(2*(lanes-1)*rows*rest//lanes, 2*lanes): return None
  # in integers nothing is lost where zero is added
  bits = local.cast(dtypes.uint8) if local.dtype == dtypes.bool else local.bitcast(UINT[local.dtype.itemsize])
  for ax,off,size in gone: bits = cut_at(bits, ax, off.maximum(-size).minimum(at_most(x.shape[ax])), x.shape[ax], 0)
  bits = allreduce(x, bits, gone, keep, Ops.ADD)
  return place((bits.cast(dtypes.bool) if local.dtype == dtypes.bool else bits.bitcast(local.dtype)).cast(x.dtype), keep, x.shape)

def gather(x:UOp, keep:Windows=(), devices:str|tuple[str, ...]|None=None) -> UOp:
  """x with no windows but those to keep, on its own devices or on others"""
  if not (gone:=tuple(w for w in x.windows if w not in keep)): return x
  if devices is None: devices = x.device if x.device is not None else ()
  if isinstance(devices, tuple) and devices == x.device and (few:=selected(x, keep, gone)) is not None: return few
  # what begins or ends at a place that varies is gathered as far as it may reach, and cut
  n, ws, ends, begins = len(devs) if isinstance(devs:=x.device, tuple) else lanes_of(x.windows), {w[0]:w for w in x.windows}, list(x.shape), {}
  for ax,off,size in gone:
    offs = offsets(off, n)
    if not isinstance(size, int) or all(isinstance(s, int) for s in (x.shape[ax], *offs)): continue
    begins[ax] = min(offs, key=lambda o: ssimplify(o-offs[0]))
    ws[ax] = (ax, (off-begins[ax]).simplify(), size)
    ends[ax] = min(int(ws[ax][1].vmax)+size, at_most(ssimplify(x.shape[ax]-begins[ax])))
  if begins:
    v = gather(place(x.src[0], tuple(ws.values()), tuple(ends)), keep, devices)
    v = v.src[0] if keep else v
    for ax,begin in begins.items(): v = cut_at(v, ax, begin, x.shape[ax])
    return place(v, keep, x.shape)
  if not keep and (whole:=own_part_of(x)) is not None: return whole
  # what little is moved for, it's computed of that on each
  if not keep and devices == x.device and (of:=computed_of(x)) is not None and 2*to_gather(x) <= numbytes(x):
    return x.src[0].replace(src=tuple(gather(s) if is_window(s) else s for s in of))
  # what's seen in several shapes is gathered once
  if not keep and (x.device is not None or x.src[0].op is Ops.EXPAND) and (found:=seen_through(x)) is not None:
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
  # what is computed of little is computed where it's wanted
  little = gone and not keep and isinstance(x.device, tuple) and to_gather(x)*len(x.device) <= numbytes(x)
  if gone and new and not little and isinstance(x.device, tuple) and (ret:=exchange(x, keep, gone, new)) is not None: return ret
  x = gather(x, keep)
  whole = x.src[0] if keep else x
  return own_view(whole, new) if not new or (ret:=reduce_scatter(whole, new)) is None else ret
