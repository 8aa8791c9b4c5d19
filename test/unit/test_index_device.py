# a list among the indices is made where the others are
import unittest
import numpy as np
import pytest
from tinygrad import Tensor

@pytest.mark.patch("list-index-device")
class TestListIndex(unittest.TestCase):
  def test_value_without_a_device(self):
    # numbers that are math over their places are on no device
    i = Tensor(np.array([[1], [0]], dtype=np.int32)).shard(("CPU:0", "CPU:1")).realize()
    x = Tensor.arange(24).reshape(2, 3, 4)
    self.assertIsNone(x.device)
    want = np.arange(24).reshape(2, 3, 4)
    np.testing.assert_equal((x[i, [2, 0]]+i.reshape(2, 1, 1)).numpy(), want[[[1], [0]], [2, 0]]+np.array([1, 0]).reshape(2, 1, 1))
    one = Tensor([1, 0], device="CPU:1").realize()
    self.assertEqual((y:=x[one, [2, 0]]).device, "CPU:1")
    np.testing.assert_equal(y.numpy(), want[[1, 0], [2, 0]])

if __name__ == "__main__": unittest.main()
