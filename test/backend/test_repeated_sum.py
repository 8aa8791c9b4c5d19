import unittest
import numpy as np
import pytest
from tinygrad import Tensor

def data(*shape): return np.random.RandomState(0).randint(-9, 9, shape).astype(np.int32)

# every element of what is summed counts as often as it is there
@pytest.mark.patch("merge-live-ranges")
class TestRepeatedSum(unittest.TestCase):
  def check(self, fxn, ref, *shape):
    a = data(*shape)
    self.assertEqual(fxn(Tensor(a).realize()).item(), ref(a), str(shape))
  def test_repeat(self):
    for shape in ((12, 4), (8, 8), (6, 10)):
      for times in ((2, 1), (1, 2), (3, 2)): self.check(lambda x: x.repeat(times).sum(), lambda a: np.tile(a, times).sum(), *shape)
  def test_cat(self):
    for shape in ((3, 6, 9), (1, 6, 9)):
      for dim in range(3): self.check(lambda x: x.cat(x, x, dim=dim).sum(), lambda a: 3*a.sum(), *shape)
  def test_some_axes(self):
    a = data(3, 4, 5)
    np.testing.assert_equal(Tensor(a).realize().repeat(2, 2, 1).sum((0, 1)).numpy(), np.tile(a, (2, 2, 1)).sum((0, 1)))

if __name__ == "__main__": unittest.main()
