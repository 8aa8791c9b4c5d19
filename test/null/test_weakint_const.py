# a const as an index
import unittest
import pytest
from tinygrad.dtype import dtypes
from tinygrad.uop.ops import UOp

@pytest.mark.patch("weakint-const")
class TestWeakintConst(unittest.TestCase):
  def test_cast(self):
    for val,dtype,want in ((1.0, dtypes.float, 1), (2.75, dtypes.half, 2), (-1.5, dtypes.double, -1), (7, dtypes.uint8, 7), (True, dtypes.bool, 1)):
      self.assertIs(UOp.const(val, dtype).cast(dtypes.weakint).simplify(), UOp.const(want))
    x = UOp.variable("x", 0, 9)
    self.assertIs((UOp.const(2.0, dtypes.float).cast(dtypes.weakint)*x+UOp.const(1.0, dtypes.float).cast(dtypes.weakint)).simplify(), (x*2+1).simplify())

if __name__ == "__main__": unittest.main()
