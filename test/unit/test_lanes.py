import unittest
import pytest
from tinygrad import Tensor, dtypes
from tinygrad.device import Buffer, MultiBuffer
from tinygrad.uop.ops import UOp

DEVICES = ("CPU", "CPU:1", "CPU:2")

@pytest.mark.patch("lane-srcs")
class TestLanes(unittest.TestCase):
  def setUp(self):
    self.x = UOp.new_buffer(DEVICES, 4, dtypes.float32)
    self.bufs = [UOp.new_buffer(d, 4, dtypes.float32) for d in DEVICES]

  def test_lane_of_a_value(self):
    for i,d in enumerate(DEVICES):
      lane = self.x.mselect(i)
      self.assertEqual((lane.lane, lane.lane_srcs, lane.device, lane.shape), (i, (self.x,), d, (4,)))
      self.assertIs(lane.buf_uop, lane)
      self.assertTrue(lane.has_buffer_identity())
      self.assertIs(lane.buffer, self.x.buffer.bufs[i])
  def test_lanes_put_together(self):
    joined = UOp.mstack(*self.bufs)
    self.assertEqual((joined.lane, joined.lane_srcs, joined.device, joined.shape), (None, tuple(self.bufs), DEVICES, (4,)))
    self.assertEqual([b.device for b in joined.buffer.bufs], list(DEVICES))
  def test_none_of_these(self):
    for u in (self.x, self.bufs[0], self.x+1, self.x.reshape(2, 2), self.x.cast(dtypes.int), Tensor([1]).uop):
      self.assertEqual((u.lane, u.lane_srcs), (None, None))
  def test_one_buffer_over_existing_ones(self):
    old = [Buffer("CPU", 4, dtypes.float32).allocate() for _ in range(3)]
    u = UOp.from_buffers(old, "CPU")
    self.assertIsInstance(u.buffer, MultiBuffer)
    self.assertEqual((u.device, [b is o for b,o in zip(u.buffer.bufs, old)]), (("CPU",)*3, [True]*3))
    self.assertIs(UOp.from_buffers(old[:1], "CPU").buffer, old[0])

if __name__ == "__main__": unittest.main()
