# PAD itself means "no data" outside: what that does to reductions, selections, stores and views
import itertools, subprocess, unittest
import numpy as np
import pytest
from tinygrad import Context, Tensor, TinyJit, Variable, dtypes
from tinygrad.dtype import Invalid
from tinygrad.mixin.movement import MovementMixin
from tinygrad.uop.ops import Ops

def compiles(dt) -> bool:
  # an old clang has no bfloat16
  try: return (Tensor([1], dtype=dtypes.int).cast(dt)+1).realize() is not None
  except (RuntimeError, OSError, subprocess.CalledProcessError): return False

FLOATS = (dtypes.float32, dtypes.float16, dtypes.float64) + ((dtypes.bfloat16,) if compiles(dtypes.bfloat16) else ())
INTS = (dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64, dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64)
STALE = 99  # what the lanes without data still hold

def raw(x:Tensor, *pads) -> Tensor: return MovementMixin.pad(x, pads)
def stored(x:Tensor) -> np.ndarray:
  # stores x over memory of known content
  out = Tensor(np.full(x.shape, STALE, np.float32)).cast(x.dtype).clone().realize().assign(x)
  return (out.float() if x.dtype is dtypes.bfloat16 else out).numpy()
def dirty(n:int):
  # the next buffers of this size are full of NaN
  bufs = [Tensor(np.full(n, np.nan, np.float32)).clone().realize() for _ in range(8)]
  del bufs
def rnd(*shape, seed=0) -> np.ndarray: return np.random.RandomState(seed).randn(*shape).astype(np.float32)
def below(n:int, size:int) -> Tensor: return Tensor.arange(size) < n

class Case(unittest.TestCase):
  def same(self, got, want, tol=1e-5):
    got = got.numpy() if isinstance(got, Tensor) else got
    self.assertEqual(got.shape, np.shape(want))
    np.testing.assert_allclose(got.astype(np.float64), np.asarray(want).astype(np.float64), rtol=tol, atol=tol)

class TestPadForms(Case):
  @pytest.mark.patch("pad-is-invalid")
  def test_invalid_fill_is_the_pad_itself(self):
    x = Tensor.empty(2, 3)
    for p in (x.pad((1, 2), value=Invalid), x.pad_to((4, None), value=Invalid), Tensor(x.uop.pad((None, (1, 2)), value=Invalid))):
      self.assertIs(p.uop.op, Ops.PAD)
      self.assertIs(p.uop.src[0], x.uop)
    self.assertIs(raw(x, (0, 0), (1, 2)).uop, x.pad((1, 2), value=Invalid).uop)
    for dt in (dtypes.int8, dtypes.bool, dtypes.bfloat16): self.assertEqual(Tensor.empty(3, dtype=dt).pad((1, 2), value=Invalid).dtype, dt)

  @pytest.mark.patch("pad-fill-no-view")
  def test_a_filled_pad_is_its_own_base(self):
    for dt,value in itertools.product((dtypes.float32, dtypes.int8, dtypes.bool), (0, 1, False)):
      x = Tensor.empty(2, 3, dtype=dt)
      for p in (x.pad((1, 2), value=value), x.pad_to((4, None), value=value)): self.assertIs(p.uop.base, p.uop)
    self.assertIs(x.pad((1, 2), value=Invalid).uop.base, x.uop.base)

  @pytest.mark.patch("pad-is-invalid")
  def test_nothing_padded_is_the_input(self):
    x = Tensor.empty(2, 3)
    for value in (0, 1, -2.5, float("inf"), Invalid):
      for p in (x.pad((0, 0), value=value), x.pad((None, (0, 0)), value=value), x.pad_to((2, None), value=value)): self.assertIs(p.uop, x.uop)

class TestStoredPad(Case):
  @pytest.mark.patch("pad-is-invalid")
  def test_lanes_without_data_are_not_stored(self):
    for dt in FLOATS + INTS:
      with self.subTest(dtype=dt): self.same(stored(raw(Tensor(np.array([3, 1, 2], np.float32)).cast(dt), (1, 2))), [STALE, 3, 1, 2, STALE, STALE])
    a = rnd(2, 3)
    want = np.full((4, 5), STALE, np.float32)
    want[1:3, :3] = a
    self.same(stored(raw(Tensor(a), (1, 1), (0, 2))), want)

  def test_invalid_fill_is_not_stored(self):
    self.same(stored(Tensor(np.array([3., 1.], np.float32)).pad((1, 1), value=Invalid) * 2), [STALE, 6, 2, STALE])
    self.same(stored(Tensor(np.array([3., 1., 5.], np.float32)).pad((1, -2), value=Invalid)), [STALE, 3])

  def test_bool_fill_is_false(self):
    x = Tensor(np.array([True, True]))
    for value in (False, 0, 0.0): self.same(x.pad((1, 2), value=value), [False, True, True, False, False])
    p = x.pad((1, 2))
    self.same(p.where(1, 2), [2, 1, 1, 2, 2])
    # so it is no identity of all and prod
    for got,want in ((p.all(), False), (p.any(), True), (p.prod(), 0), (p.sum(), 2), (p.max(), True), (p.min(), False),
                     ((~x).pad((1, 1)).any(), False)):
      self.same(got, want)

  @pytest.mark.patch("pad-is-invalid")
  def test_bool_without_data_is_no_exception(self):
    p = raw(Tensor(np.array([True, True])), (1, 2))
    self.same(stored(p.where(3, 2)), [STALE, 3, 3, STALE, STALE])
    for got,want in ((p.all(), True), (p.any(), True), (p.prod(), 1), (p.sum(), 2), (raw(Tensor(np.zeros(2, bool)), (1, 1)).any(), False)):
      self.same(got, want)

  @pytest.mark.patch("pad-is-invalid")
  def test_arithmetic_keeps_the_lanes_apart(self):
    a = rnd(4)
    p = raw(Tensor(a), (1, 1))
    for got,want in ((p + 1, a + 1), (p.exp(), np.exp(a)), (2 - p*p, 2 - a*a), (p.cast(dtypes.int32), a.astype(np.int32)), (p.maximum(0), a.clip(0)),
                     (p + raw(Tensor(a), (1, 1)), a*2)):
      self.same(stored(got), np.pad(want, 1, constant_values=STALE), 1e-4)
    # an operand without data leaves no data
    self.same(stored(p + raw(Tensor(a), (2, 0))), [STALE, STALE, a[1]+a[0], a[2]+a[1], a[3]+a[2], STALE])

  @pytest.mark.patch("pad-is-invalid")
  def test_selection_brings_data_back(self):
    a, b = rnd(3), rnd(6, seed=1)
    m = np.array([0, 1, 1, 1, 0, 0], bool)
    self.same(Tensor(m).where(raw(Tensor(a), (1, 2)), Tensor(b)), np.where(m, np.pad(a, (1, 2)), b))
    self.same(Tensor(np.ones(3, bool)).pad((1, 2)).where(raw(Tensor(a), (1, 2)), 7), np.pad(a, (1, 2), constant_values=7))
    # a lane chosen from the pad is without data, the others are not
    self.same(stored(below(2, 6).where(raw(Tensor(a), (1, 2)), Tensor(b))), [STALE, a[0], *b[2:]])

@pytest.mark.patch("reduce-identity", "pad-is-invalid")
class TestReduceOverPad(Case):
  OPS = ("sum", "prod", "max", "min")
  def test_every_dtype(self):
    # few elements, so that the reduce is unrolled; of either sign, so that a zero would show
    for dt,op,sign in itertools.product(FLOATS + INTS, self.OPS, (1, -1)):
      if sign < 0 and dtypes.is_unsigned(dt): continue
      with self.subTest(dtype=dt, op=op, sign=sign):
        a = np.array([2, 4, 3], np.float32) * sign
        self.same(getattr(raw(Tensor(a).cast(dt), (1, 2)), op)().float(), getattr(a, op)())

  def test_sizes(self):
    # unrolled, looped, split in two
    for n,pad in ((1, (1, 1)), (3, (1, 2)), (6, (0, 10)), (70, (30, 3)), (40000, (768, 200))):
      a = -np.abs(rnd(n)) - 1
      p = raw(Tensor(a), pad)
      for op in ("sum", "max", "min"):
        with self.subTest(n=n, pad=pad, op=op): self.same(getattr(p, op)() / n, getattr(a, op)() / n, 1e-4)
    self.same(raw(Tensor(np.full(9, -2., np.float32)), (3, 4)).prod(), -512)

  def test_through_arithmetic(self):
    a = rnd(4)
    p = raw(Tensor(a), (2, 3))
    self.same((p + 10).sum(), (a + 10).sum())
    self.same((p * 2).exp().max(), np.exp(a * 2).max(), 1e-4)
    self.same(p.exp().sum().log(), np.log(np.exp(a).sum()))
    self.same((p.cast(dtypes.int32) - 5).max(), (a.astype(np.int32) - 5).max())
    self.same((p - 100).square().min(), np.square(a - 100).min(), 1e-4)

  def test_through_movement(self):
    a = -np.abs(rnd(2, 3)) - 1
    p = raw(Tensor(a), (1, 2), (2, 1))
    for got in (p, p.T, p.flip(0), p.reshape(3, 10), p.flatten(), p.unsqueeze(1), p.reshape(5, 2, 3).permute(2, 0, 1)):
      self.same(got.max(), a.max())
      self.same(got.sum(), a.sum())
    # both the whole pad and a part of it
    self.same(p.shrink(((1, 4), (1, 6))).max(), a.max())
    self.same(raw(p, (1, 0), (0, 2)).max(), a.max())
    self.same(p.expand(2, 5, 6).sum(), a.sum()*2)

  def test_matmul_over_the_padded_axis(self):
    a, b = rnd(3, 4), rnd(4, 5, seed=1)
    self.same(raw(Tensor(a), (0, 0), (1, 2)) @ raw(Tensor(b), (1, 2), (0, 0)), a @ b)
    self.same(raw(Tensor(a), (0, 0), (1, 2)) @ Tensor(np.pad(b, ((1, 2), (0, 0)), constant_values=np.nan)), a @ b)
    # the padded rows and columns of the result are without data
    self.same(stored(raw(Tensor(a), (1, 0), (0, 0)) @ raw(Tensor(b), (0, 0), (0, 2))), np.pad(a @ b, ((1, 0), (0, 2)), constant_values=STALE))

  def test_padded_axis_not_reduced(self):
    a = rnd(2, 3)
    for op in ("sum", "max", "prod"):
      self.same(stored(getattr(raw(Tensor(a), (1, 2), (0, 0)), op)(1)), np.pad(getattr(a, op)(1), (1, 2), constant_values=STALE))
      # of a condition over both, each part goes its way
      self.same(stored(getattr(raw(Tensor(a), (1, 2), (2, 1)), op)(1)), np.pad(getattr(a, op)(1), (1, 2), constant_values=STALE))

  def test_reduce_of_reduce(self):
    a = -np.abs(rnd(2, 3)) - 1
    p = raw(Tensor(a), (1, 2), (2, 1))
    self.same(p.sum(1).max(), a.sum(1).max())
    self.same(p.max(0).sum(), a.max(0).sum())
    self.same(p.sum((0, 1)), a.sum())
    self.same(p.max(1).sum(0), a.max(1).sum())

  def test_windows_over_the_pad(self):
    a = -np.abs(rnd(4)) - 1
    w = [np.pad(a, (2, 1), constant_values=f) for f in (0, -np.inf)]
    view = np.lib.stride_tricks.sliding_window_view
    p = raw(Tensor(a), (2, 1))
    self.same(p.unfold(0, 2, 1).sum(1), view(w[0], 2).sum(1))
    self.same(p.unfold(0, 2, 1).max(1), view(w[1], 2).max(1))

  def test_softmax_of_the_valid_part(self):
    a = rnd(2, 4)
    e = np.exp(a)
    self.same(stored(raw(Tensor(a), (0, 0), (1, 2)).softmax(1)), np.pad(e / e.sum(1, keepdims=True), ((0, 0), (1, 2)), constant_values=STALE))
    self.same(raw(Tensor(a), (0, 0), (1, 2)).logsumexp(1), np.log(e.sum(1)))

  def test_argmax(self):
    a = -np.abs(rnd(3, 4)) - 1
    self.same(raw(Tensor(a), (0, 0), (2, 1)).argmax(1), a.argmax(1) + 2)

  def test_symbolic(self):
    a, v = -np.abs(rnd(2, 6)) - 1, Variable("v", 1, 6)
    for n in (1, 3):
      x = Tensor(a)[:, :v.bind(n)]
      self.same(raw(x, (0, 0), (0, 8-v.bind(n))).max(1), a[:, :n].max(1))
      self.same(raw(Tensor(a), (0, 0), (v.bind(n), 7-v.bind(n))).sum(1), a.sum(1))

  def test_jit(self):
    f = TinyJit(lambda x: (raw(x, (0, 0), (1, 2)).max(1).realize(), (raw(x, (1, 0), (0, 0)).T @ raw(x, (1, 0), (0, 0))).realize()))
    for i in range(4):
      a = -np.abs(rnd(3, 4, seed=i)) - 1
      m, y = f(Tensor(a).realize())
      self.same(m, a.max(1))
      self.same(y, a.T @ a, 1e-4)

  def test_gradient(self):
    a, w = rnd(3), rnd(6, seed=1)
    x = Tensor(a).realize()
    self.same((raw(x, (1, 2)) * Tensor(w)).sum().gradient(x)[0], w[1:4])
    self.same(raw(x, (1, 2)).prod().gradient(x)[0], a.prod() / a)

  def test_memory_between_kernels(self):
    # what one kernel did not store the next one must not read
    a = rnd(4)
    x, e = Tensor(a).realize(), np.exp(a) / np.exp(a).sum()
    p = raw(x, (2, 2))
    for get,want in ((lambda: p.max().gradient(x)[0], a == a.max()), (lambda: p.logsumexp().gradient(x)[0], e), (lambda: (p == p.max()).sum(), 1),
                     (lambda: p.softmax().max(), e.max()), (lambda: p.softmax().square().sum(), np.square(e).sum())):
      dirty(8)
      with Context(NO_MEMORY_PLANNER=1): self.same(get(), want)

@pytest.mark.patch("reduce-identity")
class TestReduceOfRowsWithoutData(Case):
  # a row that is Invalid as a whole has no sum: it must not come back as a number in what reduces the rows
  ROWS = ((1, 1), (0, 0))
  def setUp(self): self.a = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
  def pad(self, a:np.ndarray) -> Tensor: return Tensor(a).clone().realize().pad(self.ROWS, value=Invalid)

  def test_reduce_of_a_reduce(self):
    for first,second in (("sum", "max"), ("sum", "prod"), ("max", "sum"), ("min", "max")):
      with self.subTest(first=first, second=second):
        self.same(getattr(getattr(self.pad(-self.a), first)(1), second)(), getattr(getattr(-self.a, first)(1), second)())

  def test_matmul(self):
    w, v = self.a.T, np.ones((3, 2), np.float32)
    self.same((self.pad(-self.a) @ Tensor(w)).max(0), (-self.a @ w).max(0))
    self.same(((self.pad(-self.a) @ Tensor(w)) @ Tensor(v)).max(0), (-self.a @ w @ v).max(0))

@pytest.mark.patch("reduce-identity")
class TestReduceOverGate(Case):
  # any gate with Invalid, however it was made
  def test_explicit_gate(self):
    a = -np.abs(rnd(3, 5)) - 1
    m = Tensor.arange(5) > 2
    for op in ("sum", "max", "min", "prod"):
      self.same(getattr(m.where(Tensor(a), Invalid), op)(1), getattr(a[:, 3:], op)(1))
      self.same(getattr(m.where(Invalid, Tensor(a)), op)(1), getattr(a[:, :3], op)(1))
    data = Tensor(a > -1.5).realize()
    self.same(data.where(Tensor(a), Invalid).sum(1), np.where(a > -1.5, a, 0).sum(1))

class TestPoison(Case):
  # a condition that does not move with the reduce is no reason for an identity
  def test_gather_with_an_index_without_data(self):
    t = rnd(5, 3)
    i = below(2, 4).where(Tensor([3, 0, 1, 2]), Invalid)
    self.same(stored(Tensor(t)[i]), np.concatenate([t[[3, 0]], np.full((2, 3), STALE)]))
    self.same(stored(Tensor(t[:, 0])[i] * 2), [t[3, 0]*2, t[0, 0]*2, STALE, STALE])

  @pytest.mark.patch("pad-is-invalid")
  def test_gather_with_a_padded_index(self):
    t = rnd(5, 3)
    self.same(stored(Tensor(t)[raw(Tensor([3, 0]), (1, 1))]), np.pad(t[[3, 0]], ((1, 1), (0, 0)), constant_values=STALE))

  def test_gather_axis(self):
    t = rnd(2, 5)
    i = np.array([[1, 4, 0], [2, 2, 3]], np.int32)
    want = np.pad(np.take_along_axis(t, i, 1), ((0, 0), (0, 1)), constant_values=STALE)
    self.same(stored(Tensor(t).gather(1, Tensor(i).pad((0, 1), value=Invalid))), want)

  def test_gate_over_the_lanes(self):
    a = rnd(4, 3)
    for op in ("sum", "max", "prod", "min"):
      lanes = below(2, 4).reshape(4, 1).where(Tensor(a), Invalid)
      self.same(stored(getattr(lanes, op)(1)), [*getattr(a[:2], op)(1), STALE, STALE])

  @pytest.mark.patch("reduce-identity")
  def test_gate_over_lanes_and_reduce(self):
    a = -np.abs(rnd(4, 5)) - 1
    gate = below(2, 4).reshape(4, 1) & below(3, 5)
    for op in ("sum", "max"): self.same(stored(getattr(gate.where(Tensor(a), Invalid), op)(1)), [*getattr(a[:2, :3], op)(1), STALE, STALE])

  @pytest.mark.patch("reduce-identity")
  def test_gate_that_mixes_both(self):
    # r + c < 4 moves with the reduce as a whole: a row of which nothing is left gives the identity
    a = -np.abs(rnd(5, 4)) - 1
    gate = Tensor.arange(5).reshape(5, 1) + Tensor.arange(4) < 4
    m = np.add.outer(np.arange(5), np.arange(4)) < 4
    self.same(stored(gate.where(Tensor(a), Invalid).sum(1)), np.where(m, a, 0).sum(1))
    self.same(stored(gate.where(Tensor(a), Invalid).max(1)), np.where(m, a, -np.inf).max(1))

if __name__ == "__main__":
  unittest.main()
