import unittest
import numpy as np
import pytest
from tinygrad import Tensor, TinyJit, dtypes
from tinygrad.dtype import AddrSpace
from tinygrad.uop.ops import AxisType, UOp

def devices(n): return tuple(f"CPU:{i}" for i in range(n))
def device_number(n, value=5.0) -> Tensor:
  # on each device its number plus a constant that was copied to it: all index math, but it has a device
  return Tensor(Tensor.full((2,), value).shard(devices(n)).uop + UOp.range(n, -1, AxisType.DEVICE).cast(dtypes.float))

# a value that has a device goes to a call in a buffer, whatever it is made of
@pytest.mark.patch("index-math-args-in-buffers")
class TestIndexMathArgs(unittest.TestCase):
  def _sharded(self, n): return Tensor(device_number(n).uop.unshard(0)), np.repeat(np.arange(n, dtype=np.float32), 2) + 5

  def test_param_is_global(self):
    p = device_number(2).uop.param_like(0)
    self.assertIs(p.addrspace, AddrSpace.GLOBAL)
    self.assertEqual((p.shape, p.device), ((2,), device_number(2).device))
    self.assertEqual(p.variables(), [])

  def test_reduce_over_devices(self):
    for n in (2, 3, 4):
      x, want = self._sharded(n)
      np.testing.assert_equal(x.sum().numpy(), want.sum())
      np.testing.assert_equal(x.max().numpy(), want.max())

  def test_reduce_over_devices_beside_data(self):
    x, want = self._sharded(4)
    np.testing.assert_equal((x.sum() + Tensor([1., 2.]).shard(devices(4))).numpy(), want.sum() + np.array([1, 2]))

  def test_reduce_over_devices_jit(self):
    step = TinyJit(lambda x: (self._sharded(2)[0].sum() + x).realize())
    for i in range(4): np.testing.assert_equal(step(Tensor([float(i)]).shard(devices(2)).realize()).numpy(), [22 + i])

if __name__ == "__main__": unittest.main()
