# a cast to half and back
import unittest
import numpy as np
import pytest
from tinygrad import Tensor

@pytest.mark.patch("half-rounds")
class TestHalfRounds(unittest.TestCase):
  def test_there_and_back(self):
    a = np.random.RandomState(0).randn(37).astype(np.float32)
    for x in (Tensor(a), Tensor(a).realize(), Tensor(a).realize()*1):
      np.testing.assert_array_equal(x.half().float().numpy(), a.astype(np.float16).astype(np.float32))

  def test_same_as_realized(self):
    # what a sum of halves is doesn't depend on what is done with it in the same kernel
    a, b = [Tensor(np.random.RandomState(i).randn(7, 9).astype(np.float16)).realize() for i in range(2)]
    for f in (lambda: a.sum(1), lambda: a @ b.T, lambda: a.mean(0)):
      np.testing.assert_array_equal(f().float().numpy(), f().realize().float().numpy())

if __name__ == "__main__": unittest.main()
