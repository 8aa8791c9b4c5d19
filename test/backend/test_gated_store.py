import unittest
import numpy as np
import pytest
from tinygrad import Tensor
from tinygrad.dtype import Invalid

pytestmark = pytest.mark.needs("pad-is-invalid")

class TestGatedStore(unittest.TestCase):
  @pytest.mark.patch("shortened-once")
  def test_first_rows(self):
    for rows,cols,more in ((2, 2, 2), (3, 2, 3), (2, 4, 6), (2, 3, 1), (5, 3, 5)):
      x, v = Tensor.full((rows+more, cols), 7.).clone().realize(), np.arange(rows*cols, dtype=np.float32).reshape(rows, cols)
      x.assign(Tensor(v).realize().pad(((0, more), None), value=Invalid)).realize()
      np.testing.assert_equal(x.numpy(), np.concatenate([v, np.full((more, cols), 7)]), f"{rows} of {rows+more} rows of {cols}")

if __name__ == "__main__": unittest.main()
