# places that are computed in floats, and where they collapse to a load
import unittest
import numpy as np
import pytest
from tinygrad import Tensor, dtypes

TABLE = np.arange(1, 6, dtype=np.float32)*10

@pytest.mark.patch("index-of-float")
class TestIndexOfFloat(unittest.TestCase):
  def test_gradient_of_nearest(self):
    # each element comes from a place, floor(i*scale): of the same length that's i as a float, of one element a number
    a = np.random.RandomState(0).randn(2, 5, 3).astype(np.float32)
    for mode,half in (("nearest", 0), ("nearest-exact", 0.5)):
      for to in ((5, 3), (5, 1), (1, 3), (1, 1), (10, 3), (5, 6), (3, 3), (7, 2)):
        x = Tensor(a).realize()
        grad = x.reshape(1, 2, 5, 3).interpolate(to, mode=mode).square().sum().gradient(x)[0].numpy()
        rows, cols = [np.floor((np.arange(t)+np.float32(half))*np.float32(s/t)).astype(int) for t,s in zip(to, (5, 3))]
        times = np.bincount(rows, minlength=5)[:, None]*np.bincount(cols, minlength=3)
        np.testing.assert_allclose(grad, 2*a*times, rtol=1e-5, err_msg=f"{mode} {to}")

  def test_number_that_is_no_place(self):
    at = np.array([1.5, 2.0, -0.5, 4.0, 4.5], np.float32)
    rows = (Tensor(at).realize().unsqueeze(-1) == Tensor.arange(5)).where(Tensor(TABLE).realize(), 0).sum(-1)
    np.testing.assert_array_equal(rows.numpy(), np.where(at[:, None] == np.arange(5), TABLE, 0).sum(-1))

  def test_cut_off_to_an_int(self):
    # two numbers may be cut off to the same one
    k = np.arange(-2, 5, dtype=np.int32)
    for scale,shift in ((1, 0.5), (1, -1.5), (0.5, 0.5), (1, 2.0), (-1, 3.5)):
      rows = ((Tensor.arange(5)*scale+shift).cast(dtypes.int) == Tensor(k).realize().unsqueeze(-1)).where(Tensor(TABLE).realize(), 0).sum(-1)
      want = np.where((np.arange(5)*scale+shift).astype(int) == k[:, None], TABLE, 0).sum(-1)
      np.testing.assert_array_equal(rows.numpy(), want, err_msg=f"{scale}, {shift}")

if __name__ == "__main__": unittest.main()
