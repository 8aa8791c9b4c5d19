import functools, itertools, unittest
import numpy as np
import pytest
from tinygrad import Tensor
from tinygrad.schedule.indexing import apply_movement_op
from tinygrad.uop.ops import AxisType, Ops, UOp, graph_rewrite
from tinygrad.uop.symbolic import pm_simplify_valid, symbolic

N = 3
d, r, s = UOp.range(N, -1, AxisType.DEVICE), UOp.range(4, 0, AxisType.LOOP), UOp.range(2, 1, AxisType.LOOP)
v = UOp.variable("v", -2, 2, param=True)
# every point of their values at once
GRID = dict(zip((d, r, s, v), np.meshgrid(range(N), range(4), range(2), range(-2, 3))))
ALU = {Ops.ADD: np.add, Ops.MUL: np.multiply, Ops.FLOORDIV: np.floor_divide, Ops.FLOORMOD: np.mod, Ops.CMPLT: np.less, Ops.CMPNE: np.not_equal,
       Ops.AND: np.logical_and, Ops.OR: np.logical_or, Ops.MAX: np.maximum, Ops.WHERE: np.where}

@functools.cache
def table(u:UOp) -> np.ndarray:
  if u in GRID: return GRID[u]
  return np.full(GRID[d].shape, u.val) if u.op is Ops.CONST else ALU[u.op](*[table(x) for x in u.src])
def linear(*coefs:int) -> UOp: return functools.reduce(lambda a,b: a+b, [x*c for x,c in zip((d, r, s, v), coefs)])

def holds(x:UOp, y:UOp) -> bool:
  """x equals y whatever the sizes of the ranges, by z3"""
  z3 = pytest.importorskip("z3")
  from tinygrad.uop.validate import uops_to_z3
  zx, zy = uops_to_z3(solver:=z3.Solver(ctx=z3.Context()), x, y)
  return solver.check(zx != zy) == z3.unsat
# no bound and no overlap can be read from these
BIG = [UOp.variable(n, lo, hi, param=True) for n,lo,hi in (("p", 0, 1<<40), ("q", -(1<<40), 1<<41), ("t", -7, 1<<50))]

class TestLtSameSymbol(unittest.TestCase):
  @pytest.mark.patch("lt-same-symbol")
  def test_folds(self):
    for x,y,want in [(d*2+s, d*2+2, True), (d*2+s, d*2, False), (d*4+r, d*4, False), (d*4+r, d*4+4, True), (r, r+1, True), (r+1, r, False),
                     (d*2+v, d*2+3, True), (d*-2+r, d*-2, False), (r-d*4, r-d*4+s+1, True), (r//2+d*4, d*4+2, True), (r%3+d*4+s, d*4, False),
                     ((d*2+s)*2, d*4+3, True), (d*3, d*2, False), (r*2+d, r+d, False)]:
      self.assertIs((x<y).simplify(), UOp.const(want), f"{x.render(simplify=False)} < {y.render(simplify=False)}")

  def test_stays_open(self):
    for x,y in [(d*2+s, d*2+1), (d*2+r, d*2+2), (d*2, r), (d*2+v, d*2), (d*3+1, d*2+2), (d, r*2)]:
      self.assertIsNot((x<y).simplify().op, Ops.CONST, f"{x.render(simplify=False)} < {y.render(simplify=False)}")

  @pytest.mark.patch("lt-same-symbol")
  def test_decided_exactly_where_it_is_constant(self):
    # the bounds of a linear form over independent ranges are reached, so the sign of a difference decides all that can be
    forms = [linear(*c)+k for c in itertools.product((-2, 0, 3), (0, 1), (0, -2), (0, 1)) for k in (0, 2)]
    forms += [(d+s)*2, (d*2+r)*-1, (d*2+s)*2+v, (d*-2+3)*2]
    for x,y in itertools.product(forms, forms[::5]):
      got, want = (x<y).simplify(), table(x<y)
      np.testing.assert_array_equal(table(got), want)
      self.assertEqual(got.op is Ops.CONST, want.all() or not want.any(), f"{x.render(simplify=False)} < {y.render(simplify=False)}")

  def test_terms_that_are_no_variables(self):
    forms = [a+b for a,b in itertools.product((d*4, r//2*2, (r+v)%3, v//2, (d*r)*2, (r<s).where(d, v)), (r, s*-2, v+1, r//2, (r+v)%3*-1))]
    for x,y in itertools.product(forms[::2], forms[::3]): np.testing.assert_array_equal(table((x<y).simplify()), table(x<y))

  @pytest.mark.patch("lt-same-symbol")
  def test_by_z3(self):
    p, q, t = BIG
    folded = 0
    for x,y in itertools.product((p*8+q, q//3+p, (q+p)*-2, p*5+t%8), (p*8+q+1, q//3+p-1, q*-2+p*-2, p*5+8, t%8+p*5-9)):
      self.assertTrue(holds(x<y, lt:=(x<y).simplify()))
      folded += lt.op is Ops.CONST
    self.assertEqual(folded, 5)

class TestDistributeConst(unittest.TestCase):
  @pytest.mark.patch("distribute-const")
  def test_one_form(self):
    for c in (-3, -1, 2, 4):
      self.assertIs(((d*2+r)*c).simplify(), (d*(2*c)+r*c).simplify())
      self.assertIs(((d+r+s*3)*c).simplify(), (d*c+r*c+s*(3*c)).simplify())
      self.assertIs((((d+r)*2+s)*c).simplify(), (d*(2*c)+r*(2*c)+s*c).simplify())

  def test_same_values(self):
    for x,c in itertools.product((d+r, d*2+v, (d+s)*2+r, d-v, d+r%3, d+(d+r)//2, d*v+r), (-3, -1, 0, 2, 5)):
      for y in (x*c, x*c+d*-c, x*c//4, x*c%4, (x*c+s)//3, (x*c+s)%6, (x*c<d*3+c)): np.testing.assert_array_equal(table(y.simplify()), table(y))

  def test_by_z3(self):
    p, q, t = BIG
    for x,c in itertools.product((p+q, p*3+t, (p+t)*2+q, p+q//3), (-7, 2, 1<<20)): self.assertTrue(holds(x*c, (x*c).simplify()))

class TestMergeLikeTerms(unittest.TestCase):
  @pytest.mark.patch("merge-like-terms")
  def test_in_any_order(self):
    want = (r*4+s).simplify()
    for a,b,c,e in itertools.permutations((d*8, r*4, s, d*-8)):
      for x in (((a+b)+c)+e, (a+b)+(c+e), a+(b+(c+e)), (a+(b+c))+e): self.assertIs(x.simplify(), want)

  @pytest.mark.patch("merge-like-terms")
  def test_one_term_for_each_symbol(self):
    for c in itertools.product((-2, 1), (1, 3), (-1,), (-1, 2)):
      x = linear(*c) + linear(*c[::-1]) + 5
      terms = [u.pop_const(Ops.MUL)[0] for u in x.simplify().pop_const()[0].split_uop(Ops.ADD)]
      self.assertEqual(len(set(terms)), len(terms), x.render(simplify=False))

  def test_same_values(self):
    parts = (d*4, r*-1, s*2, v, d*-4, r//2*2, (r+v)%3, (d*2+s)*2, v*v, UOp.const(3))
    for a,b,c,e in itertools.combinations(parts, 4):
      for x in (a+b+c+e, (e+c)+(b+a)): np.testing.assert_array_equal(table(x.simplify()), table(x))

  def test_by_z3(self):
    p, q, t = BIG
    for a,b,c,e in itertools.permutations((p*8, q//3, t, (p+q)*-8)): self.assertTrue(holds(x:=a+b+c+e, x.simplify()))

# a window of n rows at d*n in n*N rows, looked at in some way, and cut back to the part that the window covers
class TestWindowOfAWindow(unittest.TestCase):
  def setUp(self): self.n, self.local = 4, Tensor.empty(4, 6).uop
  def window(self, x:UOp, axis=0) -> UOp: return x.pad(tuple((d*n, n*(N-1)-d*n) if i == axis else (0, 0) for i,n in enumerate(x.shape)))
  def cut(self, x:UOp, axis:int, at, size:int) -> UOp: return x.shrink(tuple((at, at+size) if i == axis else (0, n) for i,n in enumerate(x.shape)))
  def check(self, x:UOp):
    """x is the local value rearranged: neither the device nor a condition is left"""
    idx = tuple(UOp.range(n, i, AxisType.LOOP) for i,n in enumerate(x.shape))
    while x is not self.local: idx, x = apply_movement_op(x.op, x.src[0].shape, x.marg, idx), x.src[0]
    out = graph_rewrite(UOp.sink(*idx), symbolic+pm_simplify_valid)
    self.assertFalse(any(u.op is Ops.WHERE or (u.op is Ops.RANGE and u.arg[-1] is AxisType.DEVICE) for u in out.toposort()), out.render())

  @pytest.mark.patch("lt-same-symbol")
  def test_plain(self):
    w, n = self.window(self.local), self.n
    self.check(self.cut(w, 0, d*n, n))
    self.check(self.cut(w, 0, d*n+1, n-1))
    self.check(self.cut(w.permute((1, 0)), 1, d*n, n))
    self.check(self.cut(w.pad(((3, 5), (0, 0))), 0, d*n+3, n))
    self.check(self.cut(w.reshape((n*N*6,)), 0, d*(n*6), n*6))
    self.check(self.cut(w.reshape((n*N*6,)).reshape((n*N, 3, 2)), 0, d*n, n))
    self.check(self.cut(self.window(self.local, 1), 1, d*6, 6))

  @pytest.mark.needs("distribute-const")
  def test_flipped(self): self.check(self.cut(self.window(self.local).flip(0), 0, self.n*(N-1)-d*self.n, self.n))

  @pytest.mark.patch("merge-like-terms")
  def test_split(self): self.check(self.cut(self.window(self.local).reshape((N*2, 2, 6)), 0, d*2, 2))

if __name__ == "__main__": unittest.main()
