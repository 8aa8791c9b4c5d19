"""what DEBUG=2 says of the communication: a line for each time that parts of a value go to other devices"""
from __future__ import annotations
from tinygrad.uop.ops import Ops, UOp
from tinygrad.schedule.window import Windows, words

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

def allreduce_gets(numel:int, n:int, in_chunks:bool) -> int:
  """how many elements one of n devices receives: all of each other's, or a chunk of each other's, and all other chunks of the result"""
  return 2*(n-1)*-(-numel//n) if in_chunks else (n-1)*numel

def report_allreduce(x:UOp, red:UOp, in_chunks:bool) -> None:
  (op, devices, *groups), n = red.arg, len(red.arg[2][0]) if len(red.arg) == 3 else len(x.device)
  among = f" of {' and '.join(map(str, groups[0]))}" if groups else ""
  print(line(f"allreduce {op.name}{among}", x, "", "", devices, allreduce_gets(int(x.max_numel()), n, in_chunks)*x.dtype.itemsize))
