# the visualiser's labels: what is a shard, and which lane is meant, is said where the graph has only math
import os, unittest
import pytest
from tinygrad import Tensor
from tinygrad.dtype import Invalid, dtypes # noqa: F401 (pyrender's text names it)
from tinygrad.uop.ops import AxisType, Ops, UOp # noqa: F401
from tinygrad.uop.render import pyrender
from tinygrad.viz.serve import VizData, uop_to_json

pytestmark = [pytest.mark.needs("layout"), pytest.mark.skipif(os.getenv("SYMBOLIC_MULTI") != "1", reason="needs the flag")]

DEVICES = ("NULL", "NULL:1", "NULL:2", "NULL:3")
def shown(u): return uop_to_json(VizData(), u)[id(u)]
def lines(u): return shown(u)["label"].split("\n")

class TestLabels(unittest.TestCase):
  def setUp(self): self.x = Tensor.empty(16, 2).shard(DEVICES, 0).uop
  @pytest.mark.patch("layout")
  def test_window(self):
    self.assertEqual((lines(self.x)[0], lines(self.x)[-1]), ("PAD", "shard axis 0: 4 of 16 from device*4"))
    mesh = Tensor.empty(8, 6).shard((DEVICES[:2], DEVICES[2:]), (0, 1)).uop
    self.assertIn("shard axis 0: 4 of 8 from device//2*4, axis 1: 3 of 6 from device%2*3", lines(mesh))
  @pytest.mark.patch("layout")
  def test_lanes(self):
    lane = self.x.src[0].mselect(2)
    self.assertEqual((lane.op, lines(lane)[-1]), (Ops.WHERE, "lane 2"))
    joined = UOp.mstack(*[self.x.src[0].mselect(i) for i in range(4)])
    self.assertEqual((joined.op, lines(joined)[-1]), (Ops.INDEX, "lanes"))
    self.assertEqual(len({shown(u)["color"] for u in (self.x, lane, self.x.pad(((1, 1), None)))}), 3)
  def test_the_others_say_nothing(self):
    y = Tensor.empty(4, 4, device="NULL").uop
    for u in (y.pad(((1, 1), None)), y.reshape(16), y.eq(1).where(y, y.const_like(0)), y.index(UOp.range(4, 0), UOp.range(4, 1))):
      self.assertFalse(any(l.startswith(("shard", "lane")) for l in lines(u)), lines(u))
  def test_text_gives_it_back(self):
    for u in (self.x, self.x.flip(0), self.x.src[0].mselect(1), UOp.mstack(*[self.x.src[0].mselect(i) for i in range(4)])):
      names = dict(globals())
      exec(pyrender(u), names)
      self.assertIs(names["ast"], u)

if __name__ == "__main__": unittest.main()
