# a large allreduce in two stages, that lands where it's wanted: (n-1)/n of it twice on each device
import os, unittest
import pytest
from tinygrad import Tensor
from tinygrad.engine.realize import get_call_arg_uops
from tinygrad.helpers import to_tuple
from tinygrad.uop.ops import Ops

pytestmark = [pytest.mark.needs("derived-axis"), pytest.mark.skipif(os.getenv("SYMBOLIC_MULTI") != "1", reason="needs the flag")]

def terms(n, *shape):
  return Tensor.empty(n, *shape).shard(("NULL", *[f"NULL:{i}" for i in range(1, n)]), 0).realize().sum(0)
def counts(*outs):
  """kernels of all devices, copies, floats that are copied"""
  linear, _ = outs[0].linear_with_vars(*outs[1:])
  moved = [get_call_arg_uops(c)[0].max_numel() for c in linear.src if c.src[0].op is Ops.COPY]
  return sum(len(to_tuple(c.src[1].device)) for c in linear.src if c.src[0].op is not Ops.COPY), len(moved), sum(moved)

S = 2**20

@pytest.mark.patch("allreduce-into-lanes")
class TestAllreduce(unittest.TestCase):
  def test_two_stages(self):
    # on two devices each gets the other's terms
    for n in (2, 4, 8): self.assertEqual(counts(terms(n, S)), (n, 2 if n == 2 else 2*n*(n-1), 2*(n-1)*S))
  def test_any_shape(self):
    for n in (2, 4): self.assertEqual(counts(terms(n, 1024, 1024).contiguous()), counts(terms(n, S)))
  def test_two_readers(self):
    # once, whoever reads it
    for n in (2, 4):
      h = terms(n, S)
      for outs in ((h.contiguous(), h*2), (h.reshape(1024, 1024).contiguous(), h.max())):
        self.assertEqual(counts(*outs)[1:], (2 if n == 2 else 2*n*(n-1), 2*(n-1)*S))

if __name__ == "__main__": unittest.main()
