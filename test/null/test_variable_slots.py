import unittest
import pytest
from tinygrad import dtypes
from tinygrad.codegen import full_rewrite_to_sink
from tinygrad.device import Device
from tinygrad.uop.ops import KernelInfo, Ops, UOp

# each argument of a kernel has a place of its own, also beside one that folded away
@pytest.mark.patch("variable-slots")
class TestVariableSlots(unittest.TestCase):
  def slots(self, *numbers):
    out, *ins = [UOp.param(i, dtypes.float32, (16,)) for i in numbers]
    i, v = UOp.range(16, 0), UOp.variable("v", 1, 10, dtypes.int, param=True)
    val = UOp.const(0.0).usum(*[x.index(i) for x in ins]) + v.cast(dtypes.float32)
    sink = out.index(i).store(val).end(i).sink(arg=KernelInfo(name="test"))
    params = [x for x in full_rewrite_to_sink(sink, Device["NULL"].renderer).toposort() if x.op is Ops.PARAM]
    return sorted(x.arg.slot for x in params)

  def test_a_slot_is_missing_in_the_middle(self): self.assertEqual(self.slots(0, 2), [0, 2, 3])
  def test_slots_are_missing_at_the_start(self): self.assertEqual(self.slots(3, 4), [3, 4, 5])
  def test_no_slot_is_missing(self): self.assertEqual(self.slots(0, 1, 2), [0, 1, 2, 3])

if __name__ == "__main__": unittest.main()
