from __future__ import annotations
from tinygrad.dtype import dtypes
from tinygrad.uop.ops import Ops, identity_element

def scan_in_blocks(x, axis:int, size:int, op:Ops):
  """running sums, products or maxima of a Tensor or UOp along an axis that's sharded in blocks of this size: each device scans its own block, and
  receives of each block before it only what that comes to. Blelloch, "Prefix sums and their applications" (1990), with one tree level"""
  value, total = identity_element(op, x.dtype), x.shape[axis]
  padded = x.transpose(axis, -1)._pad_constant((None,)*(x.ndim-1) + ((0, -total % size),), value)
  blocks = padded.unflatten(-1, (-1, size))._split_cumalu(-1, op)
  earlier = type(x).ones(n:=blocks.shape[-2], n, dtype=dtypes.bool, buffer=False).tril(-1).where(blocks[..., -1].unsqueeze(-2), value)
  before = {Ops.ADD: earlier.sum, Ops.MUL: earlier.prod, Ops.MAX: earlier.max}[op](-1)
  return blocks.alu(op, before.unsqueeze(-1)).flatten(start_dim=-2)[..., :total].transpose(axis, -1)
