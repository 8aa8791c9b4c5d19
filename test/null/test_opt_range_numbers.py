import unittest, pytest
from tinygrad import Device, Tensor, dtypes
from tinygrad.codegen.opt import Opt, OptOps
from tinygrad.codegen.opt.postrange import Scheduler
from tinygrad.uop.ops import AxisType, KernelInfo, Ops, UOp

def kernel(n, rows, cols, first):
  # a sum over the columns of each row times a number a device, with DEVICE numbered before or after the other axes
  nums = iter((1, 2, 0) if first else (0, 1, 2))
  r, c = UOp.range(rows, next(nums)), UOp.range(cols, next(nums), AxisType.REDUCE)
  d = UOp.range(n, next(nums), AxisType.DEVICE)
  x, k, out = (UOp.param(i, dtypes.float, (sz,)) for i, sz in enumerate((rows*cols, n, rows)))
  total = UOp(Ops.REDUCE, src=(x.index(r*cols + c), c), arg=(Ops.ADD, 0))
  return out.index(r).store(total * k.index(d)).end(r).sink(arg=KernelInfo())

@pytest.mark.patch("opt-range-numbers")
class TestOptRangeNumbers(unittest.TestCase):
  def test_unroll_and_upcast_next_to_device(self):
    for n in (2, 3, 4):
      for first in (False, True):
        for opt in (Opt(OptOps.UNROLL, 0, 0), Opt(OptOps.UNROLL, 0, 3), Opt(OptOps.UPCAST, 0, 2)):
          s = Scheduler(kernel(n, 4, 6, first), Device["NULL"].renderer)
          s.apply_opt(opt)
          numbers = [u.arg[0] for u in s.ast.toposort() if u.op is Ops.RANGE]
          self.assertEqual(len(numbers), len(set(numbers)), f"{n=} {first=} {opt}: {numbers}")

  def test_one_row_a_device(self):
    for n in (2, 3, 4):
      for cols in (3, 6, 8):
        devs = tuple(f"NULL:{i}" for i in range(n))
        x, k = (Tensor.empty(n, cols).shard(devs, 0) + 1).realize(), (Tensor.empty(n).shard(devs) + 1).realize()
        (x.sum(1) * k).realize()
        (x.mean(1).square() * k).sum().gradient(x)[0].realize()

if __name__ == "__main__": unittest.main()
