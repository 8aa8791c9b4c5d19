# a sum of which nothing is left once its loads are known to be gated off
import unittest
import numpy as np
import pytest
from tinygrad import Device, Tensor, dtypes
from tinygrad.codegen import full_rewrite_to_sink
from tinygrad.dtype import AddrSpace
from tinygrad.uop.ops import Ops, UOp, graph_rewrite
from tinygrad.uop.symbolic import sym

@pytest.mark.patch("sum-of-nothing")
class TestSumOfNothing(unittest.TestCase):
  def test_store_of_its_own_load(self):
    # the store is nothing, the one before it isn't
    acc = UOp.placeholder((1,), dtypes.float, 0, AddrSpace.REG)
    first = acc.index(UOp.const(0)).store(UOp.const(0.0))
    at = acc.after(first).index(UOp.const(0))
    left = graph_rewrite(at.store(at.load()).sink(), sym)
    self.assertEqual([u for u in left.toposort() if u.op is Ops.STORE], [first])

  def test_conv_of_padding(self):
    a, b = [np.random.RandomState(i).randn(*s).astype(np.float32) for i, s in enumerate([(6, 6, 1, 12), (3, 6, 1, 3)])]
    x, w = Tensor(a).realize(), Tensor(b).realize()
    def padding(): return x.conv2d(w, padding=1, dilation=2)[11::-2, 2:3, 2::-2].contiguous()
    # each accumulator that is read is set first
    for call in padding().schedule_linear().src:
      uops = full_rewrite_to_sink(call.src[0], Device[Device.DEFAULT].renderer).toposort()
      used = {op:{buf for u in uops if u.op is op and (buf:=u.src[0].buf_uop).addrspace is AddrSpace.REG} for op in (Ops.LOAD, Ops.STORE)}
      self.assertLessEqual(used[Ops.LOAD], used[Ops.STORE])
    np.testing.assert_array_equal(padding().numpy(), np.zeros((3, 1, 2, 10)))

if __name__ == "__main__": unittest.main()
