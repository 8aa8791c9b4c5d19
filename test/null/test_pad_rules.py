# rewrite rules that pads lean on
import unittest
import pytest
from tinygrad import dtypes
from tinygrad.uop.ops import Ops, UOp, graph_rewrite
from tinygrad.schedule.indexing import BufferizeOpts
from tinygrad.schedule.rangeify import pm_remove_bufferize

@pytest.mark.patch("nested-where")
class TestNestedWhere(unittest.TestCase):
  def setUp(self):
    self.r = UOp.range(10, 0)
    self.c = self.r < 5
    buf, other = (UOp.param(i, dtypes.float32, (10,)) for i in range(2))
    self.t, self.u = buf.index(self.r), other.index(self.r)

  def test_same_condition(self):
    self.assertIs(self.c.where(self.c.where(self.t, self.u), self.u*2).simplify(), self.c.where(self.t, self.u*2).simplify())
    self.assertIs(self.c.where(self.c.where(self.t, UOp.const(0.0, dtypes.float32)), self.u).simplify(), self.c.where(self.t, self.u).simplify())

  def test_gate_in_a_gate(self):
    i = UOp.invalid()
    self.assertIs(self.c.where(self.c.where(self.t, i), self.u).simplify(), self.c.where(self.t, self.u).simplify())
    self.assertIs(self.c.where(self.c.where(self.t, i), i).simplify(), self.c.where(self.t, i).simplify())
    self.assertIs(self.c.where(self.c.where(self.t, self.u), i).simplify(), self.c.where(self.t, i).simplify())

  def test_other_condition_stays(self):
    d = self.r < 3
    w = d.where(self.c.where(self.t, self.u), self.u*2)
    for k in range(10):
      got, want = (x.substitute({self.r: self.r.const_like(k)}).simplify() for x in (w.simplify(), self.t if k < 3 else self.u*2))
      self.assertIs(got, want)

@pytest.mark.patch("pad-is-invalid")
class TestStages(unittest.TestCase):
  def stage(self, v:UOp, *rngs:UOp, **kw) -> UOp: return v.bufferize(*rngs, arg=BufferizeOpts("CPU", **kw))
  def test_gate_of_an_axis_of_one_element(self):
    # the gate of what is written is that of who reads it: only ranges are replaced in it, and no 0 that says something else
    from tinygrad.schedule.invalid import pm_invalid
    r, q, d = UOp.range(4, 0), UOp.range(4, 1), UOp.range(2, 2)
    st = self.stage((r != 0).where(UOp.param(0, dtypes.float32, (4,)).index(r), UOp.invalid()), UOp.const(0), r)
    got = graph_rewrite(st.index(d-d*1, q), pm_invalid)
    self.assertIs(got.op, Ops.WHERE)
    self.assertIs(got.src[0], q != 0)
  def test_dead_load(self):
    # what is read at no place is Invalid: no range of what it's read from may stay
    r, q = UOp.range(4, 0), UOp.range(4, 1)
    st = self.stage(UOp.param(0, dtypes.float32, (16,)).index(r*4+q), r, q)
    got = graph_rewrite(st.index(UOp.invalid(), q)+1, pm_remove_bufferize)
    self.assertNotIn(r, got.toposort())
    self.assertTrue(got.src[0].is_invalid)

if __name__ == "__main__":
  unittest.main()
