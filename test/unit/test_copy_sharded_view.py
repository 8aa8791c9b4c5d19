import unittest
import numpy as np
import pytest
from tinygrad import Tensor, TinyJit

HERE, THERE = ("CPU", "CPU:1"), ("CPU:2", "CPU:3")

@pytest.mark.patch("copy-of-sharded-view")
class TestCopyOfAShardedView(unittest.TestCase):
  def test_to_other_devices(self):
    a = np.arange(24, dtype=np.float32).reshape(4, 6)
    x = Tensor(a).shard(HERE, 0).realize()
    for fxn,want in ((lambda t: t.reshape(2, 2, 6), a.reshape(2, 2, 6)), (lambda t: t.reshape(24), a.reshape(24))):
      got = fxn(x).to(THERE)
      self.assertEqual(got.device, THERE)
      np.testing.assert_equal(got.realize().numpy(), want)
  def test_jit(self):
    f = TinyJit(lambda x: x.reshape(2, 4).to(THERE).realize())
    for i in range(4):
      a = np.arange(8, dtype=np.float32)+i
      np.testing.assert_equal(f(Tensor(a).shard(HERE, 0).realize()).numpy(), a.reshape(2, 4))

if __name__ == "__main__": unittest.main()
