# what a gate says of an index
import unittest
import pytest
from tinygrad.uop.ops import Ops, UOp
from tinygrad.uop.symbolic import uop_given_valid

@pytest.mark.patch("given-valid-const")
class TestGivenValid(unittest.TestCase):
  def test_number_in_a_gate(self):
    # 2 >= w says nothing of the other 2s
    x, w = UOp.variable("x", 0, 9), UOp.variable("w", 0, 4)
    gate = (UOp.const(2) < w).ne(True)
    self.assertIs(uop_given_valid(gate, UOp.const(0).alu(Ops.FLOORMOD, UOp.const(2))).simplify(), UOp.const(0))
    for idx in (x % 2, x//2, x*2+2): self.assertIs(uop_given_valid(gate, idx).simplify(), idx.simplify())
    # of an expression it does
    self.assertIs(uop_given_valid((w < 2) & gate, w//2).simplify(), UOp.const(0))

if __name__ == "__main__": unittest.main()
