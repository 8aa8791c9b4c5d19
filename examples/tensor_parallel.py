#!/usr/bin/env python3
"""Tensor parallel: each device has some of the attention heads and of the MLP's hidden units, and all of the batch.

The weights into heads and hidden units are cut by what comes out of them, those that lead back by what goes in. So a device computes with its heads
and units alone, and what it adds to the result is summed over the devices: one sum for the attention, one for the MLP. The letters' weights are cut
by letters, which no number of devices divides. What is small is on every device. The same model is trained on one device, and must learn the same.

  SYMBOLIC_MULTI=1 python examples/tensor_parallel.py --devices 4
"""
from __future__ import annotations
import argparse, sys
from tinygrad import Tensor
import _transformer as shared

# heads, hidden units and letters are in front
def split(name:str, p:Tensor) -> int|None: return None if name.startswith(("norm", "places")) else 0

def parse(argv:list[str]|None=None) -> argparse.Namespace:
  p = shared.Args(prog="tensor_parallel", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  p.add_argument("--devices", type=int, default=4, metavar="N", help="CPU devices to train on (default 4)")
  args = p.read(argv)
  if not 2 <= args.devices <= shared.HEADS: p.error(f"--devices {args.devices}: must lie between 2 and {shared.HEADS}, the number of heads")
  return args

def main(argv:list[str]|None=None) -> int:
  args = parse(argv)
  one, many = shared.compare(shared.Layout(tuple(f"CPU:{i}" for i in range(args.devices)), None, split, split), args.steps)
  # and the loss of each device to the one that is asked for it
  return shared.report(one, many, shared.least_in_parts(args.devices) + 4*(args.devices-1))

if __name__ == "__main__": sys.exit(main())
