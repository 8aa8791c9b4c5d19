"""where the parts of a tensor are made and kept, as it's placed on several devices"""
from __future__ import annotations
import weakref
from tinygrad.device import Device, canonicalize_device
from tinygrad.dtype import strong_dtype
from tinygrad.helpers import dedup, prod
from tinygrad.uop.ops import AxisType, Ops, UOp, GroupOp, buffers
from tinygrad.schedule.window import Windows, block, by_axis, offsets, own_view, place, plain_axis, shard, show, stored
# a later patch brings it
try: from tinygrad.schedule.file_parts import from_file, read_parts
except ImportError:
  def from_file(x:UOp) -> UOp|None: return None

# ***** making a value where it's kept *****

MAX_OPS = 1000

def is_fresh(x:UOp) -> bool:
  """is it a buffer that nothing has been put in, and that nobody may have looked at?"""
  return x.base.op is Ops.BUFFER and buffers.get(x.base) is None and isinstance(x.device, str) and not x.device.startswith(("DISK", "TINYFS"))

def filled(x:UOp) -> UOp|None:
  """what is put in a buffer that nothing else is put in"""
  if x.op is not Ops.AFTER or len(x.src) != 2 or not is_fresh(x.src[0]): return None
  return st.src[1] if (st:=x.src[1]).op is Ops.STORE and st.src[0] is x.src[0] and len(st.src) == 2 else None

def made_of(x:UOp) -> dict[UOp, UOp|None]|None:
  """what has to be moved for x to be made elsewhere, None if that isn't worth it. a buffer that is only filled is what it's filled with"""
  todo, ret = [x], dict[UOp, UOp|None]()
  while todo:
    u = todo.pop()
    if u in ret or u.device is None: continue
    ret[u] = None
    if len(ret) > MAX_OPS: return None
    if u.op in {Ops.CONTIGUOUS, Ops.COPY} and from_file(u) is not None: ret[u] = u
    elif (v:=filled(u)) is not None:
      if v.device is None: ret[u] = v.cast(u.dtype)
      else: todo.append(v)
    elif u.op in GroupOp.Elementwise|GroupOp.Movement|{Ops.STACK, Ops.BITCAST, Ops.CONTIGUOUS, Ops.DETACH, Ops.CONTIGUOUS_BACKWARD}: todo += u.src
    elif u.op in {Ops.BUFFER, Ops.COPY, Ops.AFTER} and not (u.op is Ops.BUFFER and is_fresh(u)): ret[u] = u
    else: return None
  return ret

def remade(x:UOp, devices:tuple[str, ...], ws:Windows) -> UOp|None:
  """x, to be kept at the windows, made on the devices from what it is made of, if that is less to move than x"""
  if x.op is Ops.CONTIGUOUS and x.dtype != x.src[0].dtype or not all(isinstance(s, int) for s in x.shape): return None
  if (found:=made_of(x)) is None: return None
  new:dict[UOp, UOp] = {}
  for u in [u for u,v in found.items() if v is u]:
    if (f:=from_file(u)) is None or not all(isinstance(s, int) for s in u.shape): continue
    at:Windows|None = ()
    if ws:
      # the rows of it are rows of x, and each device reads some of them
      rows, k, d = block(x.shape[0], len(devices)), u.shape[0]//x.shape[0], UOp.range(len(devices), -1, AxisType.DEVICE)
      at = ((0, (d*rows*k).simplify(), rows*k),) if u.shape[0] == k*x.shape[0] > 0 else None
    if at is not None and (v:=read_parts(f, devices, at)) is not None: new[u] = v
  moved = sum(int(u.max_numel())*u.dtype.itemsize for u,v in found.items() if v is u and u not in new)
  if moved*len(devices) >= prod(x.shape)*x.dtype.itemsize: return None
  for u in x.toposort():
    if u not in found or u in new: continue
    if (v:=found[u]) is not None: new[u] = v.copy_to_device(devices) if v is u else v
    elif u.op is Ops.CONTIGUOUS: new[u] = new.get(u.src[0], u.src[0])
    elif (v:=filled(u)) is not None: new[u] = new.get(v, v).cast(u.dtype)
    else: new[u] = u.replace(src=tuple(new.get(s, s) for s in u.src))
  return new[x]

# ***** where it's kept *****

Devices = tuple[str, ...]

def mesh_of(devices) -> tuple[Devices, tuple[int, ...]]:
  """(all devices, the lengths of the dimensions) of a nested tuple"""
  if all(isinstance(d, str) for d in devices): return tuple(devices), (len(devices),)
  if not all(isinstance(d, (tuple, list)) for d in devices) or len({mesh_of(d)[1] for d in devices}) != 1:
    raise RuntimeError(f"a mesh of devices has to be as long everywhere, it is {devices}")
  return sum((mesh_of(d)[0] for d in devices), ()), (len(devices), *mesh_of(devices[0])[1])

def check(shape:tuple, devices:Devices, mesh:tuple[int, ...], axes:tuple[int|None, ...]) -> None:
  if not devices: raise RuntimeError(f"{shape} can't be placed on no device")
  if len(set(devices)) != len(devices): raise RuntimeError(f"{shape} can't be placed on {devices}: a device is named twice")
  if len(axes) != len(mesh):
    raise RuntimeError(f"{shape} on a mesh of {' by '.join(map(str, mesh))} devices takes an axis, or None, for each dimension of the mesh: {axes}")

def windows_on(shape:tuple, mesh:tuple[int, ...], axes:tuple[int|None, ...]) -> Windows:
  """the windows of a value in blocks of axes[k] along dimension k of a mesh, whole along it for None"""
  d, along = UOp.range(n:=prod(mesh), -1, AxisType.DEVICE), dict[int, tuple[UOp, int]]()
  for m,ax in zip(mesh, axes):
    n //= m
    # along a dimension of one device it's whole
    if ax is None or m == 1: continue
    # the place along this dimension, and further dimensions of the mesh cut the blocks of the axis once more
    at, count = along.get(ax, (UOp.const(0), 1))
    along[ax] = (at*m + (d//n)%m, count*m)
  return by_axis([(ax, (at*(size:=block(shape[ax], count))).simplify(), size) for ax,(at,count) in along.items()])

def kept_at(ws:Windows, shape:tuple, dtype, devices:Devices) -> UOp:
  """an empty tensor that is kept at the windows"""
  sizes = {ax:size for ax,_,size in ws}
  return place(UOp.empty(tuple(sizes.get(a, s) for a,s in enumerate(shape)), dtype=dtype, device=devices), ws, shape)

def kept(x:UOp, ws:Windows) -> UOp:
  """x, that's on the devices, at these windows and no others"""
  v = own_view(x, ws)
  # all of the other axes, though a lane may have parts of them now
  return place(v.replace(arg="whole") if x.windows and v.op is Ops.SHRINK else v, ws, x.shape)

# what was made where it's kept, of values that were in no buffer
made = weakref.WeakSet[UOp]()

def memory(x:UOp) -> UOp: return memory(x.src[0]) if x.op is Ops.RESHAPE or x.is_window else x

def instead_of(x:UOp) -> UOp|None:
  """where a new value of x goes if x is one of them and not realized yet: what reads x reads on what it was, as if x were in no buffer"""
  if x not in made or buffers.get(memory(x.src[0])) is not None: return None
  return kept_at(x.windows, x.shape, x.dtype, x.device)

def own_value(x:UOp) -> UOp:
  """x to be written to. the parts that devices have of what is kept in another way are no memory of x: they're copied first"""
  u = x
  while u.op in GroupOp.Movement and not u.is_window: u = u.src[0]
  return x.contiguous() if u.is_window and memory(u).op in GroupOp.Movement else x

def placed(x:UOp, devices, axis:int|tuple[int|None, ...]|None) -> UOp:
  """x on the devices, in blocks of the axis or whole on each (None). devices may be nested, a mesh: axis then has an entry for each dimension of it.
  what isn't made yet is made there, and what is on these devices already moves between them"""
  devices, mesh = mesh_of(devices)
  axes = axis if isinstance(axis, tuple) else (axis,)+(None,)*(len(mesh)-1)
  check(x.shape, devices, mesh, axes)
  # what is placed is stored, with a width
  x, ws = x.cast(strong_dtype(x.dtype)), windows_on(x.shape, mesh, axes) if x.shape else ()
  if (x.device, x.windows) == (devices, ws): return x
  if (f:=from_file(x)) is not None and (v:=read_parts(f, devices, ws)) is not None: return v
  if isinstance(x.device, str) and not x.device.startswith(("DISK", "TINYFS")) and all(isinstance(s, int) for s in x.shape):
    if is_fresh(x) and x.op in {Ops.BUFFER, Ops.RESHAPE}: return kept_at(ws, x.shape, x.dtype, devices)
    if (v:=remade(x, devices, ws)) is not None:
      dest = kept_at(ws, x.shape, x.dtype, devices)
      ret = dest.after(dest.store(v))
      if x.base.op not in {Ops.AFTER, Ops.CONTIGUOUS}: made.add(ret)
      return ret
  if not ws: return x.copy_to_device(devices)
  if x.device != devices: x = x.copy_to_device(devices)
  # a length that varies has to come out even
  if not all(isinstance(x.shape[ax], int) for ax,_,_ in ws):
    (ax, _, _), = ws
    return place(shard(x, ax, UOp.range(len(devices), -1, AxisType.DEVICE)), ws, x.shape)
  return kept(x, ws)

def placed_like(x:UOp, y:UOp) -> UOp:
  """x on the devices of y, kept as y is"""
  if not isinstance(y.device, tuple): return x if x.device == y.device else x.copy_to_device(y.device)
  if not (ws:=y.windows) or plain_axis(y) is not None or y.shape != x.shape:
    if (axis:=plain_axis(y)) is not None and axis >= len(x.shape):
      raise RuntimeError(f"{show(x.shape)} can't be sharded as {show(y.shape)} is on {y.device}: it has no axis {axis}. shard it on one that it has")
    return x if (x.device, x.windows) == (y.device, ws) else placed(x, y.device, axis)
  if (f:=from_file(x)) is not None and (v:=read_parts(f, y.device, ws)) is not None: return v
  return kept(x if x.device == y.device else x.copy_to_device(y.device), ws)

def gradient_like(g:UOp, x:UOp) -> UOp:
  """the gradient of x in the parts in which x is kept: each device has what its part of x needs, as an optimizer wants it"""
  if not isinstance(x.device, tuple) or g.device != x.device or not (ws:=x.windows) or g.windows == ws: return g
  return placed_like(g, x) if all(isinstance(s, int) for s in x.shape) else g

def kept_like(x:UOp, v:UOp) -> UOp:
  """v, the same value on every device of x, kept as x is"""
  ws = stored(x)
  return place(own_view(v, ws), ws, x.shape)

def canonical(devices):
  """the devices' names as they're known, nested as they are"""
  if isinstance(devices, str): return canonicalize_device(devices)
  if isinstance(devices, (tuple, list)): return tuple(map(canonical, devices))
  raise RuntimeError("the devices are names, as in ('CPU', 'CPU:1'), or tuples of them in a tuple, a mesh")

def resolved(axis, ndim:int) -> int|None:
  if axis is None: return None
  if not hasattr(axis, "__index__") or isinstance(axis, bool): raise TypeError("an axis is a number, or None for all of it on each device")
  if not -ndim <= axis < ndim: raise IndexError(f"it has {ndim} axes, 0 to {ndim-1}" if ndim else "it has no axis, None keeps it on each device")
  return axis % ndim

def sharded(t, devices, axis):
  """Tensor.shard, see placed"""
  # no function in here: it would be in a cycle with t, which is to be gone when nobody has it
  try:
    to = canonical((devices,) if isinstance(devices, str) else devices)
    axes = tuple(resolved(a, t.ndim) for a in axis) if isinstance(axis, (tuple, list)) else resolved(axis, t.ndim)
    if isinstance(axes, tuple) and len(axes) > 1 and all(isinstance(d, str) for d in to):
      raise RuntimeError("a tuple of axes has one for each dimension of a mesh, which is a tuple of tuples of devices")
  except (RuntimeError, TypeError, IndexError) as e: raise type(e)(f"{show(t.shape)} can't be sharded on {devices}, axis {axis!r}: {e}") from None
  if len(to) == 1 and isinstance(to[0], str): return t.to(to[0])
  return type(t)(placed(t.uop, to, axes)).is_param_(t.is_param)

def random_device(devices:Devices) -> str:
  """whose random numbers a tensor on these devices has: those that it would have on one"""
  return Device.DEFAULT if Device.DEFAULT in devices else devices[0]

def in_order(x:UOp) -> UOp:
  """a kernel has of x what each device keeps, if that is a block of each axis, in the order of the devices. else it's put in such blocks first"""
  if not isinstance(x.device, tuple) or not (ws:=stored(x)): return x
  offs = [(dedup(offsets(off, len(x.device))), size) for _,off,size in ws]
  return x if all(os == [k*size for k in range(len(os))] for os,size in offs) else placed(x, x.device, ws[0][0]).contiguous()

def plain_or_whole(x:UOp) -> UOp:
  """a compiled function takes plain blocks, or what is whole"""
  return x.copy_to_device(x.device) if isinstance(x.device, tuple) and x.windows and plain_axis(x) is None else x
