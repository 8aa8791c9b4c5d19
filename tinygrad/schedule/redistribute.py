"""moves the parts of a value between devices until every lane has what it needs. it knows windows and no op, and nothing else communicates"""
from __future__ import annotations
import functools
from tinygrad.helpers import DEBUG, dedup
from tinygrad.dtype import Invalid, strong_dtype
from tinygrad.uop.ops import Ops, UOp, sint, identity_element, AxisType
from tinygrad.schedule.window import Box, Shape, Windows, boxes, clipped, empty, lanes_of, offsets, place

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
  return own_view(UOp.const(True).expand(shape), over, False) if (over:=clipped(ws, shape)) else None

def parts(x:UOp, keep:Windows, devices:str|tuple[str, ...]) -> list[tuple[Box, UOp]]:
  """(box, value on devices) of all that the lanes hold of x in the windows that are not kept. a lane receives from one that has the same
  kept windows, from itself if it can, and only what lies in the value"""
  # what is moved is stored, with a width
  local, gone = x.src[0].cast(strong_dtype(x.dtype)), tuple(w for w in x.windows if w not in keep)
  n = len(x.device) if isinstance(x.device, tuple) else lanes_of(x.windows)
  at, same, offs = boxes(gone, x.shape, n), boxes(keep, x.shape, n), [offsets(off, n) for _,off,_ in gone]
  def part(lane:int, box:Box, device:str|tuple[str, ...]|None) -> UOp:
    p = cut(local.mselect(lane), Ops.SHRINK, {ax:(b-off[lane], e-b) for (ax,_,_),(b,e),off in zip(gone, box, offs)})
    return p if device is None or x.device is None else p.copy_to_device(device)
  ret:list[tuple[Box, UOp]] = []
  for box in sorted(dedup([b for b in at if not empty(b)])):
    holders = [i for i in range(n) if at[i] == box]
    if isinstance(devices, str): v = part(next((i for i in holders if x.device is not None and x.device[i] == devices), holders[0]), box, devices)
    elif not keep and (len(holders) == 1 or x.device is None): v = part(holders[0], box, devices)
    else:
      lanes = []
      for j,dev in enumerate(devices if x.device is not None else [None]*n):
        mine = [i for i in holders if same[i] == same[j]] if keep else holders
        if not mine: raise RuntimeError(f"no device has {box} of {x.shape} where {dev} has {same[j]}: {x.windows} on {x.device}")
        lanes.append(part(j if j in mine and (x.device is None or x.device[j] == dev) else mine[0], box, dev))
      v = UOp.mstack(*lanes)
    ret.append((box, v))
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

def report(kind:str, x:UOp, frm:Windows, to:Windows, devices:str|tuple[str, ...], elements:int) -> None:
  def show(ws:Windows) -> str: return ", ".join(f"axis {ax} {size} from {off.render()}" for ax,off,size in ws) or "whole"
  held = f"{elements*x.dtype.itemsize} bytes on each, what it had included"
  print(f"*** {kind} {x.shape} {x.dtype} from {show(frm)} to {show(to)} on {devices}: {held}")

def gather(x:UOp, keep:Windows=(), devices:str|tuple[str, ...]|None=None) -> UOp:
  """x with no windows but those to keep, on its own devices or on others"""
  if not (gone:=tuple(w for w in x.windows if w not in keep)): return x
  if devices is None: devices = x.device if x.device is not None else ()
  if isinstance(x.device, str) or any(r.arg[-1] is not AxisType.DEVICE for _,off,_ in gone for r in off.ranges):
    raise RuntimeError(f"{x.shape} is sharded over {', '.join(off.render() for _,off,_ in gone)} and not over devices: it can't be gathered")
  sizes = {ax:size for ax,_,size in keep}
  shape = tuple(sizes.get(a, s) for a,s in enumerate(x.shape))
  if not (found:=parts(x, keep, devices)): return place(UOp.const(Invalid, x.dtype).expand(shape), keep, x.shape)
  if DEBUG >= 2: report("gather", x, gone, keep, devices, sum(int(p.max_numel()) for _,p in found))
  return place(assemble(found, tuple(ax for ax,_,_ in gone), shape).cast(x.dtype), keep, x.shape)

def redistribute(x:UOp, ws:Windows) -> UOp:
  """what a lane has of x at the windows"""
  keep = tuple(w for w in x.windows if w in ws)
  x = gather(x, keep)
  return own_view(x.src[0] if keep else x, tuple(w for w in ws if w not in keep))

def allreduce(x:UOp, local:UOp, reduced:Windows, kept:Windows, op:Ops) -> UOp:
  """local, the lanes' results of a reduce of x over its reduced windows, reduced over the lanes that have the same kept windows"""
  n = len(x.device)
  at, same = boxes(reduced, x.shape, n), boxes(kept, x.shape, n)
  if not kept:
    # lanes that hold the same part count once: all but the first have the identity
    if len(first:=[i for i,b in enumerate(at) if b not in at[:i]]) < n:
      d = UOp.range(n, -1, AxisType.DEVICE)
      local = UOp.const(False).usum(*[d.eq(i) for i in first]).where(local, local.const_like(identity_element(op, local.dtype)))
    return local.allreduce(op, x.device)
  terms:list[UOp] = []
  for box in dedup([b for b in at if not empty(b)]):
    mine = [[i for i in range(n) if at[i] == box and same[i] == same[j]] for j in range(n)]
    terms.append(UOp.mstack(*[local.mselect(j if j in m else m[0]).copy_to_device(x.device[j]) for j,m in enumerate(mine)]))
  ret = terms[0]
  for t in terms[1:]: ret = ret.alu(op, t)
  return ret

def allreduce_into(to:UOp, x:UOp, op:Ops) -> UOp:
  """the lanes of x reduced, in each lane of to: a device reduces a chunk from copies of the others' and copies what comes out to them, so that it
  receives 2*(n-1)/n of the size, the least that there is (Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms, 2009)"""
  n, numel, x = len(x.device), int(x.max_numel()), x.flatten()
  # chunks of whole vectors
  step = -(-numel // (32*n))*32 if numel >= 32*n else -(-numel // n)
  chunks = [(i*step, min((i+1)*step, numel)) for i in range(n) if i*step < numel]
  def part(u:UOp, i:int) -> UOp: return cut(u, Ops.SHRINK, {0:(chunks[i][0], chunks[i][1]-chunks[i][0])})
  lanes, own = [to.flatten().mselect(i) for i in range(n)], list[UOp]()
  for i in range(len(chunks)):
    terms = [part(x.mselect(j), i) for j in range(n)]
    terms = [t if j == i else t.copy_to_device(x.device[i]) for j,t in enumerate(terms)]
    own.append(lanes[i].after(part(lanes[i], i).store(functools.reduce(lambda a,b: a.alu(op, b), terms))))
  return to.after(*[part(lanes[j], i).store(part(own[i], i).copy_to_device(x.device[j])) for k in range(1, n) for i in range(len(chunks)) for j in [(i+k) % n]])
