# a slice that is one piece of memory is copied without a kernel that cuts it out
import os, unittest
import pytest
from tinygrad import Tensor
from tinygrad.engine.realize import get_call_arg_uops
from tinygrad.schedule.slice_copy import slice_of
from tinygrad.uop.ops import Ops, UOp

pytestmark = [pytest.mark.needs("derived-axis"), pytest.mark.skipif(os.getenv("SYMBOLIC_MULTI") != "1", reason="needs the flag")]

DEVICES = ("NULL", "NULL:1", "NULL:2", "NULL:3")

class TestSliceCopy(unittest.TestCase):
  @pytest.mark.patch("slice-copies")
  def test_counts(self):
    x = Tensor.empty(64, 8).shard(DEVICES, 0).realize()
    for t,kernels,moved in ((x[20:28], 0, [256]), (x[12:40], 0, [128, 512, 256]), (x[17], 0, [32]), (x[20:28, 2:4], 1, [64])):
      linear, _ = t.to("NULL:3").contiguous().linear_with_vars()
      copies = [get_call_arg_uops(c)[0] for c in linear.src if c.src[0].op is Ops.COPY]
      self.assertEqual(sorted(b.max_numel()*b.dtype.itemsize for b in copies), sorted(moved))
      # but for the device's own part
      self.assertLessEqual(len(linear.src)-len(copies), kernels+1)
  @pytest.mark.patch("slice-copies")
  def test_of_one_device(self):
    x = Tensor.ones(64, 8).realize()
    linear, _ = x.shard(DEVICES, 0).contiguous().linear_with_vars()
    self.assertEqual([c.src[0].op for c in linear.src].count(Ops.COPY), 3)
    self.assertEqual(len(linear.src), 4)

class TestSliceOf(unittest.TestCase):
  def test_offset(self):
    buf = UOp.new_buffer("NULL", 120, Tensor.empty(1).dtype).reshape(4, 5, 6)
    for view,at in ((buf, 0), (buf[1], 30), (buf[1:3], 30), (buf[2, 3], 78), (buf[2, 1:4], 66), (buf[3, 4, 2:5], 116),
                    (buf.reshape(120)[7:50], 7), (buf[1:2, 2:3].reshape(6), 42)):
      self.assertEqual(slice_of(view)[1], at)
      self.assertEqual(view.contiguous_view_offset(), at)
    for view in (buf[:, 1], buf[1:3, 2:4], buf[0, :, 2:4], buf.permute(1, 0, 2), buf.flip(0), buf[::2]): self.assertIsNone(slice_of(view))

if __name__ == "__main__": unittest.main()
