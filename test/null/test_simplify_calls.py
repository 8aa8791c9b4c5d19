import gc, itertools, random, unittest, weakref
from unittest.mock import patch
import pytest
from tinygrad import Tensor
from tinygrad.uop import ops, upat  # noqa: F401 # upat compiles rules with graph_rewrite and must not import the counted one
from tinygrad.uop.ops import AxisType, Ops, UOp, resolve
from tinygrad.uop.symbolic import symbolic

def simplified(fxn) -> list[UOp]:
  """what was rewritten by simplify while fxn ran"""
  with patch.object(ops, "graph_rewrite", wraps=ops.graph_rewrite) as counted: fxn()
  return [c.args[0] for c in counted.call_args_list if c.kwargs.get("name") == "simplify"]
def rewrites(fxn) -> int: return len(simplified(fxn))

class TestSimplifyMemo(unittest.TestCase):
  def setUp(self): self.a, self.b = UOp.variable("a", 0, 9, param=True), UOp.range(5, 0, AxisType.LOOP)

  @pytest.mark.patch("simplify-memo")
  def test_once_for_each_uop(self):
    x = self.a*13+self.b+self.a
    self.assertEqual(rewrites(lambda: [x.simplify() for _ in range(3)]), 1)
    # the same expression built again is the same uop, and what came out is known to be simple
    self.assertEqual(rewrites(lambda: (self.a*13+self.b+self.a).simplify().simplify()), 0)
    self.assertIs(x.simplify(), x.simplify())

  @pytest.mark.patch("simplify-memo")
  def test_once_for_what_is_simple(self):
    x = self.a*11+self.b
    self.assertEqual(rewrites(lambda: [x.simplify() for _ in range(3)]), 1)
    self.assertIs(x.simplify(), x)

  def test_tracked_shows_its_rewrite(self):
    x = self.a+self.b+self.a
    first = x.simplify()
    self.assertEqual(rewrites(lambda: [self.assertIs(x.simplify(tracked=True), first) for _ in range(3)]), 3)

  def test_nothing_is_kept_alive(self):
    gc.disable()
    try:
      for make in (lambda: self.a*7+self.b, lambda: self.a*7+self.b+self.a):
        x = make()
        refs = [weakref.ref(x), weakref.ref(x.simplify())]
        del x
        self.assertEqual([r() for r in refs], [None, None])
    finally: gc.enable()

  def test_as_a_rewrite_and_final(self):
    rng = random.Random(0)
    leaves = [self.a, self.b, UOp.variable("c", -3, 5, param=True), UOp.range(4, -1, AxisType.DEVICE)]
    def expr(depth:int) -> UOp:
      if depth == 0: return rng.choice(leaves)
      x, y, n = expr(depth-1), expr(depth-1), rng.choice((-3, -2, 2, 3, 4))
      return rng.choice((lambda: x+y, lambda: x+y, lambda: x*n, lambda: x+n, lambda: x//abs(n), lambda: x%abs(n), lambda: (x<y).where(x, y)))()
    for _ in range(300):
      x = expr(4)
      self.assertIs(x.simplify(), ops.graph_rewrite(x, symbolic))
      self.assertIs(ops.graph_rewrite(x.simplify(), symbolic), x.simplify())

class TestResolveBounds(unittest.TestCase):
  def setUp(self): self.a, self.b = UOp.variable("a", 1, 9, param=True), UOp.variable("b", 10, 20, param=True)

  @pytest.mark.patch("resolve-bounds")
  def test_bounds_decide_without_a_rewrite(self):
    a, b = self.a, self.b
    for x, want in ((a<b, True), (b<a, False), (a*2+b < 100, True), (a!=b, True), (a.eq(b), False), ((a<b)&(b<30), True), (a+b < 5, False)):
      for default in (True, False): self.assertEqual(rewrites(lambda: self.assertIs(resolve(x, default), want)), 0)

  def test_one_rewrite_if_they_do_not(self):
    # by simplifying alone, and not at all
    cancels, open_ = (self.a+self.b-self.a) < 21, self.a+3 < self.b
    def ask():
      self.assertIs(resolve(cancels, False), True)
      self.assertIs(resolve(open_, True), True)
    self.assertEqual(rewrites(ask), 2)

  def test_the_same_answers(self):
    a, b = self.a, self.b
    terms = (a, b, a-b, a*2, b//3, a%4, a+b-a)
    for (x, y), default in itertools.product(itertools.product(terms, repeat=2), (True, False)):
      for cond in (x<y, x!=y, x.eq(y), x<7, (x<y)|(y<x)):
        s = cond.simplify()
        self.assertIs(resolve(cond, default), bool(s.vmin) if s.vmin == s.vmax else default)

class TestMovementArgs(unittest.TestCase):
  def setUp(self): self.v, self.x = UOp.variable("v", 1, 7, param=True), Tensor.empty(8, 8, 8).uop

  @pytest.mark.patch("mop-offsets")
  def test_an_offset_is_simplified_once(self):
    off = self.v+self.v
    def arg(*at): return tuple((off, 2) if i in at else (0, 8) for i in range(3))
    # an offset that comes in any number of ops is one rewrite, of itself
    def build():
      for at in ((0,), (1,), (2,), (0, 1), (0, 1, 2)):
        for op in (Ops.SHRINK, Ops.PAD): self.x._mop(op, arg(*at))
    seen = simplified(build)
    self.assertEqual(len(seen), 1)
    self.assertIs(seen[0], off)

  @pytest.mark.patch("mop-offsets")
  def test_no_sink_and_no_constant_is_visited(self):
    seen = simplified(lambda: self.x._mop(Ops.SHRINK, ((self.v, 1), (0, self.v*2+self.v), (3, 4))))
    self.assertEqual({u.op for u in seen}-{Ops.PARAM, Ops.ADD}, set())
    self.assertEqual(rewrites(lambda: self.x._mop(Ops.SHRINK, ((1, 1), (0, 2), (3, 4)))), 0)

  def test_arguments_are_simple(self):
    s = self.x._mop(Ops.SHRINK, ((self.v+self.v, 1), (0, self.v-self.v+3), (3, 4)))
    self.assertEqual(s.marg, (((self.v*2).simplify(), 1), (0, 3), (3, 4)))
    self.assertEqual(s.shape, (1, 3, 4))
    self.assertEqual(Tensor.empty(1, 4).uop._mop(Ops.EXPAND, (self.v*1,)).shape, (self.v, 1, 4))

if __name__ == "__main__": unittest.main()
