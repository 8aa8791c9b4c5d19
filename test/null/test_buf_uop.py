import unittest
import pytest
from tinygrad import dtypes
from tinygrad.uop.ops import UOp

# a view of one lane is a view of that device's buffer, not of the buffer of all devices
@pytest.mark.patch("buf-uop-keeps-lane")
class TestBufUopKeepsLane(unittest.TestCase):
  def setUp(self):
    self.buf = UOp.new_buffer(("NULL:0", "NULL:1", "NULL:2"), 12, dtypes.float)
    self.lane = self.buf.mselect(1)

  def test_views(self):
    for view in (self.lane.reshape((3, 4)), self.lane.shrink(((2, 6),)), self.lane.reshape((3, 4)).permute((1, 0)).flip((0,)),
                 self.lane.bitcast(dtypes.int), self.lane.reshape((3, 4)).bitcast(dtypes.int).reshape((12,))):
      self.assertIs(view.buf_uop, self.lane)
      self.assertEqual(view.buf_uop.device, "NULL:1")

  def test_lane_of_a_view(self): self.assertIs(self.buf.reshape((3, 4)).mselect(1).reshape((4, 3)).buf_uop, self.lane)

  def test_index(self): self.assertIs(self.lane.reshape((3, 4)).index(UOp.const(0), UOp.const(1)).buf_uop, self.lane)

  def test_store_in_a_view(self):
    view = self.lane.reshape((3, 4))
    after = view.after(view.store(view.const_like(1.0)))
    for x in (after, after.reshape((12,)), after.index(UOp.const(0), UOp.const(1))): self.assertIs(x.buf_uop, self.lane)

  def test_lanes_differ(self): self.assertIsNot(self.buf.mselect(0).reshape((3, 4)).buf_uop, self.lane.reshape((3, 4)).buf_uop)

if __name__ == "__main__": unittest.main()
