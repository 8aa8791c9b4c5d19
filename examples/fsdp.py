#!/usr/bin/env python3
"""Fully sharded data parallel: each device has its rows of the batch, and a part of each weight and of the optimizer's state for it.

A weight is cut on its longest axis, whether or not the devices divide it: 67 letters on 4 devices are 17, 17, 17 and 16. To compute with a weight a
device gets the others' parts; of the gradient it gets the others' sums for its own part, and updates that. With --mesh 2x2 the devices are a mesh:
the batch is cut along the first dimension and heads, hidden units and letters along the second, as in tensor_parallel.py. The same model is trained
on one device, and must learn the same.

  SYMBOLIC_MULTI=1 python examples/fsdp.py --devices 4
  SYMBOLIC_MULTI=1 python examples/fsdp.py --mesh 2x2
"""
from __future__ import annotations
import argparse, re, sys
from tinygrad import Tensor
import _transformer as shared
from tensor_parallel import split

def longest(name:str, p:Tensor) -> int: return max(range(p.ndim), key=lambda a: p.shape[a])

def layout(rows:int, parts:int) -> shared.Layout:
  """The batch in so many blocks of rows, and the model in so many parts."""
  # nothing is said of where weights are used: they are moved to the batch, which is larger
  if parts == 1: return shared.Layout(tuple(f"CPU:{i}" for i in range(rows)), 0, longest, longest)
  # a part of the model is cut once more among the devices that use it, so the parts have to come first
  mesh = tuple(tuple(f"CPU:{part*rows + row}" for row in range(rows)) for part in range(parts))
  return shared.Layout(mesh, (None, 0), lambda name,p: (0, 0), lambda name,p: (split(name, p), None))

def least(params:shared.Params, rows:int, parts:int) -> int:
  """
  The least that all devices together can move. Of b bytes of a weight that is used whole each device lacks (n-1)/n*b, and in blocks of rows it needs
  as many bytes of partial gradients as there are other blocks for each byte that it keeps: (n-1)*b and (rows-1)*b for all. Of a weight in parts a
  device uses 1/parts of b, of which it lacks all but 1/n: (rows-1)*b, twice. To this come the sums that parts of a model have, and the loss
  of each device, to the one that is asked for it.
  """
  n, sizes = rows*parts, {k: p.nbytes() for k,p in params.items()}
  whole = sum(b for k,b in sizes.items() if parts == 1 or split(k, params[k]) is None)
  return (n-1 + rows-1)*whole + 2*(rows-1)*(sum(sizes.values()) - whole) + shared.least_in_parts(parts) + 4*(n-1)

def mesh(s:str) -> tuple[int, ...]:
  if not re.fullmatch(r"\d+x\d+", s): raise argparse.ArgumentTypeError(f"{s}: must be like 2x2")
  return tuple(map(int, s.split("x")))

def parse(argv:list[str]|None=None) -> argparse.Namespace:
  p = shared.Args(prog="fsdp", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  group = p.add_mutually_exclusive_group()
  group.add_argument("--devices", type=int, default=4, metavar="N", help="CPU devices to train on (default 4)")
  group.add_argument("--mesh", type=mesh, metavar="RxP", help="R*P CPU devices: R blocks of rows by P parts of the model")
  args = p.read(argv)
  if args.mesh is None and args.devices < 2: p.error(f"--devices {args.devices}: at least 2 are needed, one device is always trained beside them")
  args.rows, args.parts = args.mesh or (args.devices, 1)
  if args.mesh and not (args.rows >= 2 and 2 <= args.parts <= shared.HEADS):
    p.error(f"--mesh {args.rows}x{args.parts}: needs at least 2 blocks of rows, and 2 to {shared.HEADS} parts, the number of heads")
  # of 16 rows on 5 devices four have 4, and the last has none
  if -(-shared.BATCH//args.rows)*(args.rows-1) >= shared.BATCH:
    p.error(f"{args.rows} blocks of rows: with a batch of {shared.BATCH} not every device would have some")
  return args

def main(argv:list[str]|None=None) -> int:
  args = parse(argv)
  one, many = shared.compare(layout(args.rows, args.parts), args.steps)
  return shared.report(one, many, least(one.params, args.rows, args.parts))

if __name__ == "__main__": sys.exit(main())
