import sys, unittest
from unittest.mock import patch
import pytest
from tinygrad.uop import ops
from tinygrad.uop.ops import Ops, PatternMatcher, UOp, deconstruct_function, graph_rewrite

def called(fxn) -> int:
  """how many Python functions fxn calls"""
  n = 0
  def count(frame, event, arg):
    nonlocal n
    n += event == "call"
  sys.setprofile(count)
  try: fxn()
  finally: sys.setprofile(None)
  return n-1

class TestDerivedProperty(unittest.TestCase):
  @pytest.mark.patch("derived-property")
  def test_known_value_costs_no_call(self):
    x = UOp.variable("a", 0, 9)+UOp.range(5, 0)
    for name in ("_shape", "_ranges", "device", "addrspace", "key"):
      want = getattr(x, name)
      self.assertEqual(called(lambda: getattr(x, name)), 0, name)
      self.assertIs(getattr(x, name), want)

  @pytest.mark.patch("derived-property")
  def test_new_uop_asks_its_srcs(self):
    x, three = UOp.variable("a", 0, 9)*UOp.range(5, 0), UOp.const(3)
    self.assertEqual((len(x._ranges), len(three._ranges)), (1, 0))
    with patch.object(UOp, "toposort", side_effect=AssertionError("searched")): self.assertEqual((x+three)._ranges, x._ranges)

  def test_deep_graph(self):
    x = UOp.variable("a", 0, 9)
    for _ in range(sys.getrecursionlimit()*3): x = UOp(Ops.NEG, src=(x,))
    self.assertEqual(len(x._ranges), 0)
    # in the middle it's known
    y = x
    for _ in range(sys.getrecursionlimit()): y = UOp(Ops.NEG, src=(y,))
    self.assertEqual(len(y._ranges), 0)

class TestRuleNames(unittest.TestCase):
  @pytest.mark.patch("rule-names")
  def test_names_once(self):
    # as many calls in a module with many globals as in one with few
    def calls(more):
      scope = {"UOp": UOp, **{f"unused_{i}":i for i in range(more)}}
      exec("def rule(x): return [UOp for _ in range(3)]", scope)
      return called(lambda: deconstruct_function(scope["rule"]))
    self.assertEqual(calls(200), calls(0))

class TestRewrite(unittest.TestCase):
  @pytest.mark.patch("rewrite-unwrapped")
  def test_nothing_is_unwrapped(self):
    x = UOp.variable("a", 0, 9)+UOp.range(5, 0)
    with patch.object(ops, "unwrap", side_effect=AssertionError("unwrapped")):
      self.assertIs(graph_rewrite(x, PatternMatcher([]), name="nothing"), x)
      self.assertIs(graph_rewrite(x, PatternMatcher([]), bottom_up=True, name="nothing"), x)

if __name__ == "__main__": unittest.main()
