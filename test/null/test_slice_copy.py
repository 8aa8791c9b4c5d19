# a slice that is one piece of memory is copied without a kernel that cuts it out
import os, unittest
import pytest
from tinygrad import Tensor
from tinygrad.engine.realize import get_call_arg_uops
from tinygrad.uop.ops import Ops

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

if __name__ == "__main__": unittest.main()
