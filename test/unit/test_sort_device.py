# the indices of a sort along an axis of one element are where the values are
import unittest
import numpy as np
import pytest
from tinygrad import Tensor

@pytest.mark.patch("sort-device")
class TestSortDevice(unittest.TestCase):
  def test_one_element(self):
    a = np.array([[[3.], [np.nan], [-np.inf], [2.]]], np.float32)
    for device in ("CPU:1", ("CPU:1", "CPU:2")):
      for get in (lambda x: x.sort(2)[1], lambda x: x.argsort(0), lambda x: x.topk(1, 2)[1]):
        x = Tensor(a).to(device) if isinstance(device, str) else Tensor(a).shard(device, 1)
        idx = get(x.realize())
        self.assertEqual(idx.device, device)
        # made, they can be used beside the values and written to
        made = idx.clone().realize()
        self.assertEqual(made.device, device)
        np.testing.assert_array_equal((made.float()+x).numpy(), a)
        made += 7
        np.testing.assert_array_equal(made.numpy(), np.full(a.shape, 7))

  def test_gradient(self):
    x = Tensor([[2.], [5.]]).realize()
    v, i = x.sort(1)
    (v*v+i).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [[4], [10]])

if __name__ == "__main__": unittest.main()
