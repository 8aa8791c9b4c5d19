# rewrite rules that pads lean on
import unittest
import pytest
from tinygrad import dtypes
from tinygrad.uop.ops import UOp

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

if __name__ == "__main__":
  unittest.main()
