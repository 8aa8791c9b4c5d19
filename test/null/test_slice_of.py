import unittest
import pytest
from tinygrad import Tensor
from tinygrad.uop.ops import UOp

class TestSliceOf(unittest.TestCase):
  @pytest.mark.patch("slice-copies")
  def test_offset(self):
    from tinygrad.schedule.slice_copy import slice_of
    buf = UOp.new_buffer("NULL", 120, Tensor.empty(1).dtype).reshape(4, 5, 6)
    for view,at in ((buf, 0), (buf[1], 30), (buf[1:3], 30), (buf[2, 3], 78), (buf[2, 1:4], 66), (buf[3, 4, 2:5], 116),
                    (buf.reshape(120)[7:50], 7), (buf[1:2, 2:3].reshape(6), 42)):
      self.assertEqual(slice_of(view)[1], at)
      self.assertEqual(view.contiguous_view_offset(), at)
    for view in (buf[:, 1], buf[1:3, 2:4], buf[0, :, 2:4], buf.permute(1, 0, 2), buf.flip(0), buf[::2]): self.assertIsNone(slice_of(view))

if __name__ == "__main__": unittest.main()
