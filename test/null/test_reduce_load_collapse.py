import itertools, unittest
import pytest
from tinygrad.codegen.simplify import pm_reduce_collapse, pm_reduce_load_collapse
from tinygrad.dtype import dtypes
from tinygrad.uop.ops import AxisType, Ops, UOp, graph_rewrite

def variables(n:int, dtype=dtypes.weakint) -> list[UOp]: return [UOp.variable(f"in{i}", -4, 9, dtype, param=True) for i in range(n)]

@pytest.mark.patch("reduce-ne-loop")
class TestReduceLoadCollapse(unittest.TestCase):
  def test_two_sums_without_the_range(self):
    for dtype in (dtypes.weakint, dtypes.int):
      a, b, c, d = variables(4, dtype)
      for x in (a+b != c, c != a+b, a+b != c+d, a-b != c, (a+b).cast(dtypes.long) != c.cast(dtypes.long)):
        self.assertIs(graph_rewrite(x, pm_reduce_load_collapse).op, Ops.CMPNE)

  def test_the_range_still_comes_out(self):
    a, b = variables(2)
    r = UOp.range(5, 0, AxisType.REDUCE)
    for x in (r+a != b, a+r != b, b != r+a, b != a+r):
      self.assertTrue(any(s is r for s in graph_rewrite(x, pm_reduce_load_collapse).src))

  def test_every_comparison_of_small_sums_ends(self):
    a, b, c = variables(3)
    r = UOp.range(5, 0, AxisType.REDUCE)
    leaves = (a, b, c, a*-1, r)
    for pm, (x, y, z) in itertools.product((pm_reduce_collapse, pm_reduce_load_collapse), itertools.product(leaves, repeat=3)):
      for cmp in (x+y != z, z != x+y, x+y < z, z < x+y, x+y != z+a, x*3 < y+z): graph_rewrite(cmp, pm)

if __name__ == "__main__": unittest.main()
