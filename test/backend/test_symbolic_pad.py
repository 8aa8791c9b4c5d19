# a part of a symbolic length padded to it, beside what has it
import unittest
import numpy as np
import pytest
from tinygrad import Tensor, Variable

@pytest.mark.patch("ungated-symbolic-range")
class TestSymbolicPad(unittest.TestCase):
  def test_sum(self):
    a = np.arange(28, dtype=np.float32).reshape(7, 4)
    x, y, n = Tensor(a).realize(), Tensor(a[:3]*2+1).realize(), Variable("n", 3, 7)
    for v in (3, 4, 7):
      whole, part = x[:n.bind(v)], y.pad(((0, n.bind(v)-3), None))
      for f in (lambda p, q: p+q, lambda p, q: q+p, lambda p, q: (q-p)*p):
        np.testing.assert_equal(f(whole, part).sum().numpy(), f(a[:v], np.pad(a[:3]*2+1, ((0, v-3), (0, 0)))).sum())

if __name__ == "__main__": unittest.main()
