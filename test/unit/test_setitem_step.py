# a setitem with a step that hits one element, of a tensor that isn't realized
import unittest
import numpy as np
import pytest
from tinygrad import Tensor

@pytest.mark.patch("setitem-step")
class TestSetitemStep(unittest.TestCase):
  def test_one_element(self):
    # the slice is longer than one element, or reaches the end of the axis, or goes back
    for idx in ((slice(1, 4), slice(1, 3, 3)), (slice(4, 1, -3),), (slice(0, 6, 6), slice(5, 6, 4)), (slice(2, 4, 2), None, slice(3, 0, -5))):
      for how in ("scalar", "tensor", "add"):
        with self.subTest(idx=idx, how=how):
          a = np.arange(36, dtype=np.int32).reshape(6, 6)
          x, v = Tensor(a.copy())+0, np.full(a[idx].shape, 50, np.int32)
          if how == "add":
            a[idx] += 50
            x[idx] += Tensor(v)
          else:
            a[idx] = 50
            x[idx] = 50 if how == "scalar" else Tensor(v)
          np.testing.assert_equal(x.numpy(), a)

if __name__ == "__main__": unittest.main()
