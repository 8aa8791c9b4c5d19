# an index that's computed in floats
import unittest
import numpy as np
import pytest
from tinygrad import Tensor
from tinygrad.dtype import dtypes
from tinygrad.uop.ops import UOp, graph_rewrite
from tinygrad.uop.weak import pm_lower_weak

@pytest.mark.patch("index-of-float")
class TestIndexOfFloat(unittest.TestCase):
  def test_gradient_of_nearest(self):
    # each element comes from a place, floor(i*scale): of the same length that's i as a float, of one element a number
    a = np.random.RandomState(0).randn(2, 5, 3).astype(np.float32)
    for to in ((5, 3), (5, 1), (1, 3), (1, 1), (10, 3), (5, 6), (3, 3), (7, 2)):
      x = Tensor(a).realize()
      grad = x.reshape(1, 2, 5, 3).interpolate(to, mode="nearest").square().sum().gradient(x)[0].numpy()
      rows, cols = [np.floor(np.arange(t)*np.float32(s/t)).astype(int) for t,s in zip(to, (5, 3))]
      times = np.bincount(rows, minlength=5)[:, None]*np.bincount(cols, minlength=3)
      np.testing.assert_allclose(grad, 2*a*times, rtol=1e-5, err_msg=str(to))

  def test_lowered(self):
    for x in (UOp.const(2.0, dtypes.float), UOp.variable("i", 0, 4, dtype=dtypes.half)):
      idx = graph_rewrite(x.cast(dtypes.weakint)*3+1, pm_lower_weak)
      self.assertFalse(any(dtypes.is_float(s.dtype) for u in idx.toposort() for s in u.src if u.op.name in ("ADD", "MUL")))

if __name__ == "__main__": unittest.main()
