"""where the parts of a tensor are made and kept, as it's placed on several devices"""
from __future__ import annotations
from tinygrad.helpers import prod
from tinygrad.uop.ops import AxisType, Ops, UOp, GroupOp, buffers
from tinygrad.schedule.window import Windows, block, place, plain_axis, shard, stored
from tinygrad.schedule.redistribute import own_view

# ***** making a value where it's kept *****

MAX_OPS = 1000

def is_fresh(x:UOp) -> bool:
  """is it a buffer that nothing has been put in, and that nobody may have looked at?"""
  return x.base.op is Ops.BUFFER and buffers.get(x.base) is None and isinstance(x.device, str) and not x.device.startswith(("DISK", "TINYFS"))

def made_of(x:UOp) -> dict[UOp, UOp|None]|None:
  """what has to be moved for x to be made elsewhere, None if that isn't worth it. a buffer that is only filled with what has no device is that"""
  todo, ret = [x], dict[UOp, UOp|None]()
  while todo:
    u = todo.pop()
    if u in ret or u.device is None: continue
    ret[u] = None
    if len(ret) > MAX_OPS: return None
    if u.op is Ops.AFTER and is_fresh(u.src[0]) and len(u.src) == 2 and (st:=u.src[1]).op is Ops.STORE and st.src[0] is u.src[0] and \
       st.src[1].device is None: ret[u] = st.src[1].cast(u.dtype)
    elif u.op in GroupOp.Elementwise|GroupOp.Movement|{Ops.STACK, Ops.BITCAST, Ops.CONTIGUOUS, Ops.DETACH, Ops.CONTIGUOUS_BACKWARD}: todo += u.src
    elif u.op in {Ops.BUFFER, Ops.COPY, Ops.AFTER} and not (u.op is Ops.BUFFER and is_fresh(u)): ret[u] = u
    else: return None
  return ret

def remade(x:UOp, devices:tuple[str, ...]) -> UOp|None:
  """x made on the devices from what it is made of, if that is less to move than x"""
  if x.op is Ops.CONTIGUOUS and x.dtype != x.src[0].dtype or not all(isinstance(s, int) for s in x.shape): return None
  if (found:=made_of(x)) is None: return None
  if sum(int(u.max_numel())*u.dtype.itemsize for u,v in found.items() if v is u)*len(devices) >= prod(x.shape)*x.dtype.itemsize: return None
  new:dict[UOp, UOp] = {}
  for u in x.toposort():
    if u not in found: continue
    if (v:=found[u]) is not None: new[u] = v.copy_to_device(devices) if v is u else v
    elif u.op is Ops.CONTIGUOUS: new[u] = new.get(u.src[0], u.src[0])
    else: new[u] = u.replace(src=tuple(new.get(s, s) for s in u.src))
  return new[x]

def layout(shape:tuple, dtype, devices:tuple[str, ...], axis:int|None) -> UOp:
  """an empty tensor, in blocks of the axis or whole on each device"""
  if axis is None: return UOp.empty(shape, dtype=dtype, device=devices)
  size = block(shape[axis], n:=len(devices))
  ws:Windows = ((axis, (UOp.range(n, -1, AxisType.DEVICE)*size).simplify(), size),)
  return place(UOp.empty(tuple(size if i == axis else s for i,s in enumerate(shape)), dtype=dtype, device=devices), ws, shape)

def placed(x:UOp, devices:tuple[str, ...], axis:int|None) -> UOp:
  """x in blocks of the axis on the devices, or whole on each, made there if it isn't made yet"""
  if axis is not None and not x.shape: axis = None
  if isinstance(x.device, str) and not x.device.startswith(("DISK", "TINYFS")) and all(isinstance(s, int) for s in x.shape):
    if is_fresh(x) and x.op in {Ops.BUFFER, Ops.RESHAPE}: return layout(x.shape, x.dtype, devices, axis)
    if (v:=remade(x, devices)) is not None:
      dest = layout(x.shape, x.dtype, devices, axis)
      return dest.after(dest.store(v))
  if axis is None: return x.copy_to_device(devices)
  rng, size = UOp.range(n:=len(devices), -1, AxisType.DEVICE), block(x.shape[axis], len(devices))
  if x.device == devices and x.windows == (ws:=((axis, (rng*size).simplify(), size),)): return x
  ws = ((axis, (rng*size).simplify(), size),)
  return place(shard(x if x.device == devices else x.copy_to_device(devices), axis, rng), ws, x.shape)

def placed_like(x:UOp, y:UOp) -> UOp:
  """x on the devices of y, kept as y is"""
  if not isinstance(y.device, tuple): return x if x.device == y.device else x.copy_to_device(y.device)
  if not (ws:=y.windows) or plain_axis(y) is not None or y.shape != x.shape:
    return x if (x.device, x.windows) == (y.device, ws) else placed(x, y.device, plain_axis(y))
  if (x.device, x.windows) == (y.device, ws): return x
  return place(own_view(x if x.device == y.device else x.copy_to_device(y.device), ws), ws, x.shape)

def like(x:UOp, v:UOp) -> UOp:
  """v, the same value on every device of x, kept as x is"""
  ws = stored(x)
  return place(own_view(v, ws), ws, x.shape)
