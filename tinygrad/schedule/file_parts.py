"""each device reads its own part of a file, and the parts of a sharded tensor go straight to their places in a file or in the host's memory"""
from __future__ import annotations
import itertools
from typing import Any, Callable, Iterator, Sequence, cast
from tinygrad.device import Buffer, MultiBuffer
from tinygrad.helpers import prod, strides_for_shape
from tinygrad.runtime.ops_disk import DiskBuffer
from tinygrad.uop.ops import GroupOp, Ops, UOp, graph_rewrite
from tinygrad.uop.affine import split_terms
from tinygrad.schedule.copies import lane_view
from tinygrad.schedule.slice_copy import flat_memory
from tinygrad.schedule.window import Shape, Windows, boxes, cut, empty, offsets

Ints = tuple[int, ...]

# ***** boxes of elements in two places, by (how many, the step there, the step here) of each axis *****

Box = tuple[Ints, Ints, Ints]

def merged(counts:Sequence[int], *steps:Sequence[int]) -> list[Ints]:
  """the axes with no axis of one element, and as one where they follow on each other in both places"""
  ret:list[Ints] = []
  for n,*at in zip(counts, *steps):
    if n == 1: continue
    if ret and all(before == n*a for before,a in zip(ret[-1][1:], at)): ret[-1] = (ret[-1][0]*n, *at)
    else: ret.append((n, *at))
  return ret

def one_run(counts:Sequence[int], steps:Sequence[int]) -> bool: return len(m:=merged(counts, steps)) == 0 or (len(m) == 1 and m[0][1] == 1)

def copy_box(to:memoryview, to_at:int, frm:memoryview, frm_at:int, box:Box, itemsize:int) -> None:
  """a call for each run along one of the axes: a call costs as much as 50 elements that are not next to each other, those that are cost little"""
  fmt:Any = {1:"B", 2:"H", 4:"I", 8:"Q"}[itemsize]
  axes = merged(*box) or [(1, 1, 1)]
  total = prod(n for n,_,_ in axes)
  n, ts, fs = axes.pop(min(range(len(axes)), key=lambda a: 50*total//axes[a][0] + (total if axes[a][1:] != (1, 1) else 0)))
  def run(mv:memoryview, at:int, step:int) -> memoryview:
    lo, hi = sorted((at, at+(n-1)*step))
    return mv[lo*itemsize:(hi+1)*itemsize].cast(fmt)[::step] if step else mv[lo*itemsize:(lo+1)*itemsize].cast(fmt)
  to, frm = to.cast("B"), frm.cast("B")
  for at in itertools.product(*[range(c) for c,_,_ in axes]):
    run(to, to_at+sum(i*s for i,(_,s,_) in zip(at, axes)), ts)[:] = run(frm, frm_at+sum(i*s for i,(_,_,s) in zip(at, axes)), fs)

def lane_parts(ws:Windows, shape:Shape, local:Shape, n:int) -> Iterator[tuple[int, Ints, Ints, int]]:
  """(lane, where its part of the value begins, how many of each axis, where that begins in what the lane keeps) of each lane that has one"""
  at, offs = boxes(ws, shape, n), [offsets(off, n) for _,off,_ in ws]
  for i in range(n):
    if empty(at[i]): continue
    begin, counts, off = [0]*len(shape), [int(s) for s in shape], 0
    for (ax,_,_),(b,e),os in zip(ws, at[i], offs): begin[ax], counts[ax], off = int(b), int(e-b), off+int(b-os[i])*strides_for_shape(local)[ax]
    yield i, tuple(begin), tuple(counts), off

def place_of(at:Ints, steps:Ints) -> int: return sum(a*s for a,s in zip(at, steps))

# ***** reading *****

class FileBox(DiskBuffer):
  """a box of a file that isn't one piece of it: put together in the host's memory when it's read, zero around it"""
  def __init__(self, file:DiskBuffer, nbytes:int, itemsize:int, at:int, file_at:int, box:Box):
    super().__init__(file.device, nbytes, file.offset)
    self.file, self.itemsize, self.at, self.file_at, self.box = file, itemsize, at, file_at, box
  def _buf(self) -> memoryview:
    counts, steps, file_steps = self.box
    # the first byte, also of what is read backwards
    back = sum((n-1)*-s for n,s in zip(counts, file_steps) if s < 0)
    ret = memoryview(bytearray(self.size))
    copy_box(ret, self.at, self.file._buf()[self.file_at-back*self.itemsize:], back, self.box, self.itemsize)
    return ret
  def segments(self, get_free_buf:Callable, seg_len:int) -> Iterator[tuple]:
    """what DiskAllocator._copyout_sharded yields"""
    data = self._buf()
    for off in range(0, self.size, seg_len):
      while (batch:=get_free_buf()) is None: pass
      n = min(seg_len, self.size-off)
      batch[0].view(size=n)[:] = data[off:off+n]
      yield batch, off, 0, n

def is_file(x:UOp) -> bool: return isinstance(x.device, str) and x.device.startswith("DISK")

def from_file(x:UOp) -> UOp|None:
  """x as a view of the file that it's to be copied from, None if it's no such view"""
  if x.op is Ops.CONTIGUOUS or (x.op is Ops.COPY and isinstance(x.device, str) and not is_file(x)): return from_file(x.src[0])
  if is_file(x) and x.op is Ops.BUFFER: return x
  if x.op not in GroupOp.Movement|{Ops.BITCAST, Ops.CAST} or (v:=from_file(x.src[0])) is None: return None
  return x if v is x.src[0] else x.replace(src=(v,)+x.src[1:])

def layout(x:UOp) -> tuple[UOp, int, Ints]|None:
  """(the piece of a file that x is a view of, the place of its first element there, the step of each axis), None if it's no such view"""
  views, v = list[UOp](), x
  while v.base.op not in {Ops.BUFFER, Ops.BITCAST} or (found:=v.contiguous_view()) is None or found[0].base.op is not Ops.BUFFER:
    if v.op not in GroupOp.Movement: return None
    views.append(v)
    v = v.src[0]
  if not views: return v, 0, strides_for_shape(x.shape)
  # the views that aren't one piece, of a stand-in
  u = UOp.param(0, v.dtype, (int(v.numel()),)).reshape(v.shape)
  for m in reversed(views): u = m.replace(src=(u,)+m.src[1:])
  rngs = [UOp.range(s, i) for i,s in enumerate(x.shape)]
  from tinygrad.schedule.rangeify import pm_mops
  from tinygrad.uop.symbolic import symbolic
  idx = graph_rewrite(u.index(*rngs), pm_mops+symbolic, name="layout of a view")
  if idx.op is not Ops.INDEX or idx.src[0].op is not Ops.PARAM or len(idx.src) != 2: return None
  terms, at, _ = split_terms((idx.src[1], 1))
  if any(t not in rngs for t in terms): return None
  steps = tuple(terms.get(r, 0) for r in rngs)
  # a broadcast has less to read than it has elements
  return None if any(st == 0 and s > 1 for st,s in zip(steps, x.shape)) else (v, at, steps)

def read_parts(x:UOp, devices:tuple[str, ...], ws:Windows) -> UOp|None:
  """x, a view of a file (see from_file), kept at the windows: every part of it is read once, into the buffer of a device that keeps it, and goes from
  there to the others that do. None if it's no such view. a cast is done by the devices"""
  from tinygrad.engine.realize import capturing
  from tinygrad.schedule.placement import kept_at
  if x.op is Ops.CAST: return None if (ret:=read_parts(x.src[0], devices, ws)) is None else ret.cast(x.dtype)
  if not all(isinstance(s, int) and s > 0 for s in x.shape) or (found:=layout(x)) is None: return None
  file, file_at, file_steps = found
  dest = kept_at(ws, x.shape, x.dtype, devices)
  local = dest.src[0] if ws else dest
  flat, steps, stores, read = flat_memory(local), strides_for_shape(local.shape), list[UOp](), dict[tuple, tuple[UOp, UOp]]()
  for i,begin,counts,to_at in lane_parts(ws, x.shape, local.shape, len(devices)):
    frm_at, itemsize = file_at+place_of(begin, file_steps), x.dtype.itemsize
    # all of the lane's buffer where the part isn't one piece of it
    def piece(lane:UOp) -> UOp: return cut(lane, Ops.SHRINK, {0:(to_at, prod(counts))}) if whole else lane
    whole, lane = one_run(counts, steps), lane_view(flat, i)
    if (had:=read.get((begin, counts, to_at))) is not None:
      # the first store is waited for by those that read what it stores
      stores = [st for st in stores if st is not had[1]]
      v = had[0].copy_to_device(devices[i])
    else:
      if whole and one_run(counts, file_steps): v = cut(file.flatten(), Ops.SHRINK, {0:(frm_at, prod(counts))})
      # a captured function may be given another file: it reads pieces
      elif capturing: return None
      else:
        buf, size = cast(Buffer, file.buffer).ensure_allocated(), int(piece(lane).max_numel())
        buf.allocator.dev._might_open(1)
        box = FileBox(buf._buf, size*itemsize, itemsize, 0 if whole else to_at, frm_at*itemsize,
                      (counts, strides_for_shape(counts) if whole else steps, file_steps))
        v = UOp.from_buffer(Buffer(buf.device, size, x.dtype, opaque=box))
      # it needs no buffer but the one that it's stored in
      v = v.copy_to_device(devices[i]).rtag(())
    stores.append(piece(lane).store(v))
    if had is None: read[begin, counts, to_at] = piece(lane.after(stores[-1])), stores[-1]
  return dest.after(*stores)

# ***** writing *****

def write_parts(t, to:memoryview) -> bool:
  """the parts that the devices have of t, each from one of them, to their places in memory that is as large as all of t. False if it has no parts"""
  # another shape is the same memory, were it across the devices
  def below(x:UOp) -> UOp: return below(x.src[0]) if x.op is Ops.RESHAPE else x
  x = below((t:=type(t)(below(t.uop))).contiguous().realize().uop)
  # a view of parts
  if not x.has_buffer_identity(): x = below(t.clone().realize().uop)
  local = x.src[0] if (ws:=x.windows) else x
  if not all(isinstance(s, int) for s in (*x.shape, *local.shape)) or not isinstance(multi:=local.buffer, MultiBuffer): return False
  done, steps, local_steps = set[tuple[Ints, Ints]](), strides_for_shape(x.shape), strides_for_shape(local.shape)
  for i,begin,counts,at in lane_parts(ws, x.shape, local.shape, len(multi.bufs)):
    if (begin, counts) in done: continue
    done.add((begin, counts))
    part = multi.bufs[i].ensure_allocated().as_memoryview(allow_zero_copy=True)
    copy_box(to, place_of(begin, steps), part, at, (counts, steps, local_steps), x.dtype.itemsize)
  return True

class HostBuffer(Buffer):
  """memory of the host that nobody else has"""
  def as_memoryview(self, allow_zero_copy=False, force_zero_copy=False, no_sync=False) -> memoryview: return self._buf

def on_host(t) -> Buffer|None:
  """t put together in the host's memory, and on no device"""
  if not all(isinstance(s, int) for s in t.shape): return None
  return HostBuffer("PYTHON", t.numel(), t.dtype, opaque=mv) if write_parts(t, mv:=memoryview(bytearray(t.nbytes()))) else None
