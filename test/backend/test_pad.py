# what a pad looks like from outside, whatever PAD means inside: numpy is the reference
import itertools, subprocess, unittest
import numpy as np
from tinygrad import Tensor, TinyJit, Variable, dtypes
from tinygrad.dtype import DType, Invalid

def compiles(dt) -> bool:
  # an old clang has no bfloat16
  try: return (Tensor([1], dtype=dtypes.int).cast(dt)+1).realize() is not None
  except (RuntimeError, OSError, subprocess.CalledProcessError): return False

FLOATS = (dtypes.float32, dtypes.float16, dtypes.float64) + ((dtypes.bfloat16,) if compiles(dtypes.bfloat16) else ())
INTS = (dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64, dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64)
ALL = FLOATS + INTS + (dtypes.bool,)
VALUES = (0, 1, -2.5, float("inf"))

def np_dtype(dt:DType):
  if dt in (dtypes.bfloat16, dtypes.weakfloat): return np.float32
  return {"weakint": np.int32, "bool": np.bool_}.get(dt.name) or np.dtype(dt.fmt).type

def data(dt:DType, *shape:int, seed=0) -> np.ndarray:
  # small integers, which every dtype holds exactly
  low = 0 if dt is dtypes.bool or dtypes.is_unsigned(dt) else -3
  return np.random.RandomState(seed).randint(low, 2 if dt is dtypes.bool else 4, shape).astype(np_dtype(dt))

def tensor(a:np.ndarray, dt:DType|None=None) -> Tensor: return (t if dt in (None, (t:=Tensor(a)).dtype) else t.cast(dt)).realize()

def filled(dt:DType, value) -> DType:
  # a fill takes part in the promotion unless it is zero
  if value == 0 or dtypes.is_float(dt): return dt
  return dtypes.weakfloat if isinstance(value, float) else dtypes.weakint if dt is dtypes.bool else dt

def crop_and_pad(a:np.ndarray, pads, value=0) -> np.ndarray:
  pads = [(0, 0) if p is None else p for p in pads]
  a = a[tuple(slice(max(-b, 0), s - max(-e, 0)) for (b,e),s in zip(pads, a.shape))]
  return np.pad(a, [(max(b, 0), max(e, 0)) for b,e in pads], constant_values=value)

def windows(a:np.ndarray, k:tuple[int, ...], stride=1, dilation=1) -> np.ndarray:
  w = np.lib.stride_tricks.sliding_window_view(a, tuple((x-1)*dilation+1 for x in k), tuple(range(-len(k), 0)))
  skip, step = (slice(None, None, stride),)*len(k), (slice(None, None, dilation),)*len(k)
  return w[(Ellipsis, *skip, *(slice(None),)*len(k))][(Ellipsis, *step)]

class PadCase(unittest.TestCase):
  def same(self, got:Tensor, want, rtol=1e-5, atol=1e-5):
    g = (got.float() if got.dtype is dtypes.bfloat16 else got).numpy()
    self.assertEqual(g.shape, np.shape(want))
    np.testing.assert_allclose(g.astype(np.float64), np.asarray(want).astype(np.float64), rtol=rtol, atol=atol)

class TestPadDtype(PadCase):
  def test_values(self):
    for dt,value in itertools.product(ALL, VALUES):
      with self.subTest(dtype=dt, value=value):
        a, out = data(dt, 2, 3), filled(dt, value)
        got = tensor(a, dt).pad(((1, 0), (0, 2)), value=value)
        self.assertEqual(got.dtype, out)
        self.same(got, crop_and_pad(a.astype(np_dtype(out)), ((1, 0), (0, 2)), value))

  def test_zero_of_any_kind_keeps_dtype(self):
    for dt,value in itertools.product(ALL, (0, 0.0, False, -0.0)):
      x = Tensor.empty(3, dtype=dt)
      self.assertEqual([x.pad((1, 2), value=value).dtype, x.pad_to((6,), value=value).dtype], [dt, dt])

  def test_weak_stays_weak(self):
    for weak,value in itertools.product((3, 2.5), (0, 0.0, 1)):
      x = Tensor.full((2,), weak, buffer=False)
      with self.subTest(weak=weak, value=value):
        self.assertEqual(x.pad((1, 1), value=value).dtype, dtypes.weakint if weak == 3 else dtypes.weakfloat)
        # strong neighbours decide
        for dt in (dtypes.int8, dtypes.float16):
          want = dt if weak == 3 or dt is dtypes.float16 else dtypes.weakfloat
          self.assertEqual((x.pad((1, 1), value=value) + Tensor.empty(4, dtype=dt)).dtype, want)
    self.assertEqual(Tensor.full((2,), 2, buffer=False).pad((1, 0), value=0.5).dtype, dtypes.weakfloat)
    self.same(Tensor.full((2,), 2, buffer=False).pad((1, 1), value=5), [5, 2, 2, 5])

  def test_reductions_over_values(self):
    # everything against everything for one dtype of each kind, a rotating value for the rest
    for i,dt in enumerate(ALL):
      for j,(value,op) in enumerate(itertools.product(VALUES, ("sum", "prod", "max", "min"))):
        if dt not in (dtypes.float32, dtypes.int32, dtypes.bool) and (i + j) % 5: continue
        with self.subTest(dtype=dt, value=value, op=op):
          a = data(dt, 2, 5, seed=i)
          if op == "prod": a = np.where(a < 1, 1, a).astype(a.dtype)
          want = getattr(crop_and_pad(a.astype(np_dtype(filled(dt, value))), ((0, 1), (2, 1)), value), op)(axis=1)
          x = getattr(tensor(a, dt).pad(((0, 1), (2, 1)), value=value), op)(axis=1)
          self.same(x, want, 1e-2 if dt in (dtypes.float16, dtypes.bfloat16) else 1e-5)

  def test_reduction_dtypes(self):
    for dt in ALL:
      x = Tensor.empty(3, dtype=dt)
      for op in ("sum", "prod", "max", "min", "all", "any", "argmax", "cumsum"):
        self.assertEqual(getattr(x.pad((1, 1)), op)().dtype, getattr(x, op)().dtype, f"{dt} {op}")

  def test_all_any_argmax(self):
    for i,(dt,value) in enumerate(itertools.product((dtypes.float32, dtypes.uint8, dtypes.int64, dtypes.bool), (0, 1))):
      with self.subTest(dtype=dt, value=value):
        a = data(dt, 3, 5, seed=i)
        a[0] = 1
        p, w = tensor(a, dt).pad(((1, 0), (1, 2)), value=value), crop_and_pad(a, ((1, 0), (1, 2)), value)
        self.same(p.all(1), w.all(1))
        self.same(p.any(1), w.any(1))
        self.same(p.argmax(1), w.argmax(1))

  def test_movement_and_cat(self):
    for dt in ALL:
      with self.subTest(dtype=dt):
        a, b = data(dt, 3, 4), data(dt, 2, 4, seed=1)
        x, y = tensor(a, dt), tensor(b, dt)
        c, want = x.cat(y), np.concatenate([a, b])
        self.assertEqual(c.dtype, dt)
        self.same(c, want)
        self.same(x.pad((2, 0)).roll(3, 1), np.roll(crop_and_pad(a, (None, (2, 0))), 3, 1))

  def test_setitem(self):
    for dt in ALL:
      with self.subTest(dtype=dt):
        a, v = data(dt, 3, 5), data(dt, 2, 2, seed=1)
        x = tensor(a, dt).clone().realize()
        x[1:3, 1::3] = tensor(v, dt)
        a[1:3, 1::3] = v
        self.same(x, a)

class TestPadShapes(PadCase):
  PADS = {1: (((1, 2),), ((-2, 1),), ((0, 0),), ((-1, -2),)), 2: (((0, 2), (1, 0)), (None, (-1, 3)), ((-1, -1), (2, -2))),
          3: (((1, 0), None, (2, 1)), ((-1, 1), (0, 2), (1, -3))), 4: (((0, 1), (1, 0), (2, 0), (0, 2)), (None, (-1, -1), (3, -1), None))}
  def test_ranks(self):
    for rank,all_pads in self.PADS.items():
      a = data(dtypes.float32, *(3, 4, 5, 6)[-rank:])
      for pads,value in itertools.product(all_pads, (0, -2.5)):
        with self.subTest(pads=pads, value=value): self.same(Tensor(a).pad(pads, value=value), crop_and_pad(a, pads, value))

  def test_flat_form(self):
    a = data(dtypes.int32, 2, 3, 4)
    self.same(Tensor(a).pad((1, -1, 0, 2), value=3), crop_and_pad(a, (None, (0, 2), (1, -1)), 3))

  def test_pad_to(self):
    a = data(dtypes.int32, 2, 3)
    for value in (0, 1): self.same(Tensor(a).pad_to((4, 5), value=value), crop_and_pad(a, ((0, 2), (0, 2)), value))
    self.same(Tensor(a).pad_to((None, 5)), crop_and_pad(a, (None, (0, 2))))

  def test_valid_part_of_an_invalid_fill(self):
    for rank,all_pads in self.PADS.items():
      a = data(dtypes.float32, *(3, 4, 5, 6)[-rank:])
      for pads in all_pads:
        grow = [(0, 0) if p is None else p for p in pads]
        inside = tuple((max(b, 0), max(b, 0) + s + min(b, 0) + min(e, 0)) for (b,e),s in zip(grow, a.shape))
        with self.subTest(pads=pads):
          self.same(Tensor(a).pad(pads, value=Invalid).shrink(inside), crop_and_pad(a, [(min(b, 0), min(e, 0)) for b,e in grow]))

  def test_nothing_left(self):
    a = data(dtypes.float32, 3)
    for pads in ((-3, 2), (-1, -2)): self.same(Tensor(a).pad(pads, value=1), crop_and_pad(a, (pads,), 1))

  def test_pad_of_pad(self):
    a = data(dtypes.float32, 2, 3)
    for v,w in itertools.product((0, 1), (0, -2.5)):
      with self.subTest(inner=v, outer=w):
        self.same(Tensor(a).pad(((1, 2), (1, 1)), value=v).pad(((2, 0), (1, 1)), value=w),
                  crop_and_pad(crop_and_pad(a, ((1, 2), (1, 1)), v), ((2, 0), (1, 1)), w))
    # crop into the first one, then fill again
    self.same(Tensor(a).pad((2, 3), value=1).pad((-1, 2), value=4), crop_and_pad(crop_and_pad(a, (None, (2, 3)), 1), (None, (-1, 2)), 4))

  def test_through_movement(self):
    a = data(dtypes.float32, 2, 3)
    w = crop_and_pad(a, ((1, 1), (0, 2)), 7)
    p = Tensor(a).pad(((1, 1), (0, 2)), value=7)
    self.same(p.reshape(2, 10).permute(1, 0).flip(0), w.reshape(2, 10).T[::-1])
    self.same(p.unsqueeze(0).expand(2, 4, 5)[:, 1:, ::2], np.broadcast_to(w, (2, 4, 5))[:, 1:, ::2])
    self.same(p.flatten().pad((1, 1)).sum(), w.sum())

  def test_symbolic_size_filled_up(self):
    a, v = data(dtypes.float32, 3, 6), Variable("v", 1, 6)
    for n,value in itertools.product((1, 4, 6), (0, -2.5)):
      with self.subTest(n=n, value=value):
        p, w = Tensor(a)[:, :v.bind(n)].pad((None, (0, 6-v.bind(n))), value=value), crop_and_pad(a[:, :n], (None, (0, 6-n)), value)
        self.assertEqual(p.shape, (3, 6))
        self.same(p, w)
        self.same(p.sum(1), w.sum(1))
        self.same(p.max(1), w.max(1))
    self.same(p @ Tensor(a).T, w @ a.T)
    self.same(p.softmax(1), np.exp(w) / np.exp(w).sum(1, keepdims=True))

  def test_symbolic_amount(self):
    a, v = data(dtypes.float32, 2, 4), Variable("v", 1, 5)
    for pads in (lambda n: (n, 5-n), lambda n: (n, 0), lambda n: (-n, n), lambda n: (n-2, 1)):
      for n,value in itertools.product((1, 3), (0, 1)):
        with self.subTest(pads=pads(n), value=value):
          p, w = Tensor(a).pad((None, pads(v.bind(n))), value=value), crop_and_pad(a, (None, pads(n)), value)
          self.same(p.sum(1), w.sum(1))
          if isinstance(p.shape[1], int): self.same(p, w)

class TestPadOps(PadCase):
  def setUp(self): self.a = np.random.RandomState(0).randn(3, 5).astype(np.float32)

  def test_cumsum_and_cummax(self):
    for value in (0, 1, -2.5):
      p, w = Tensor(self.a).pad(((1, 0), (2, 1)), value=value), crop_and_pad(self.a, ((1, 0), (2, 1)), value)
      self.same(p.cumsum(1), w.cumsum(1))
      self.same(p.cumsum(0), w.cumsum(0))
    self.same(p.cummax(1)[0], np.maximum.accumulate(w, 1))
    self.same(p.cumprod(1), w.cumprod(1))
    for n in (513, 700): self.same(Tensor(np.ones(n, np.int32)).cumsum(), np.arange(1, n+1))

  def test_matmul(self):
    b = np.random.RandomState(1).randn(4, 6).astype(np.float32)
    for value in (0, -2.5):
      p, w = Tensor(self.a).pad(((0, 1), (-1, 0)), value=value), crop_and_pad(self.a, ((0, 1), (-1, 0)), value)
      self.same(p @ Tensor(b), w @ b)
      q, u = Tensor(b).pad(((1, 1), (0, 2)), value=value), crop_and_pad(b, ((1, 1), (0, 2)), value)
      self.same(p.pad((1, 1)) @ q, crop_and_pad(w, (None, (1, 1))) @ u)

  def test_softmax_and_mean(self):
    for value in (0, -2.5, -float("inf")):
      p, w = Tensor(self.a).pad((1, 2), value=value), crop_and_pad(self.a, (None, (1, 2)), value)
      e = np.exp(w - w.max(1, keepdims=True))
      self.same(p.softmax(1), e / e.sum(1, keepdims=True))
      self.same(p.logsumexp(1), np.log(np.exp(w).sum(1)))
    p, w = Tensor(self.a).pad((1, 2), value=2), crop_and_pad(self.a, (None, (1, 2)), 2)
    self.same(p.mean(), w.mean())
    self.same(p.var(1), w.var(1, ddof=1))

  def test_cat_stack_roll(self):
    a, b, c = self.a, self.a[:, :2]*2, self.a[:, 1:4]-9
    self.same(Tensor(a).cat(Tensor(b), Tensor(c), dim=1), np.concatenate([a, b, c], 1))
    self.same(Tensor(a).pad((1, 0), value=3).cat(Tensor(b).pad(((0, 0), (0, 2))), dim=1),
              np.concatenate([crop_and_pad(a, (None, (1, 0)), 3), crop_and_pad(b, (None, (0, 2)))], 1))
    self.same(Tensor.stack(Tensor(b).pad((0, 1), value=1), Tensor(c), dim=1), np.stack([crop_and_pad(b, (None, (0, 1)), 1), c], 1))
    self.same(Tensor(a).pad((1, 1), value=4).roll((1, -2), (0, 1)), np.roll(crop_and_pad(a, (None, (1, 1)), 4), (1, -2), (0, 1)))

  def test_triangles(self):
    for k in (-1, 0, 2):
      p, w = Tensor(self.a).pad(((2, 0), (0, 1)), value=5), crop_and_pad(self.a, ((2, 0), (0, 1)), 5)
      self.same(p.tril(k), np.tril(w, k))
      self.same(p.triu(k).pad((1, 0)), crop_and_pad(np.triu(w, k), (None, (1, 0))))

  def test_diagonals(self):
    for k in (-1, 0, 2): self.same(Tensor(self.a).diagonal(k), np.diagonal(self.a, k))
    self.same(Tensor(self.a).pad(((1, 1), None), value=5).diagonal(), np.diagonal(crop_and_pad(self.a, ((1, 1), None), 5)))
    self.same(Tensor(self.a[0]).diag(), np.diag(self.a[0]))

  def test_strided_slices(self):
    for s in (slice(None, None, 3), slice(1, None, 2), slice(None, None, -2), slice(4, 0, -3)):
      self.same(Tensor(self.a)[:, s] + 1, self.a[:, s] + 1)
    p, w = Tensor(self.a).pad((2, 2), value=1), crop_and_pad(self.a, (None, (2, 2)), 1)
    self.same(p[::2, 1::3].sum(0), w[::2, 1::3].sum(0))

  def test_gather_and_one_hot(self):
    i = np.array([0, 2, 1, 2], np.int32)
    self.same(Tensor(self.a).pad(((1, 0), None), value=9)[Tensor(i)], crop_and_pad(self.a, ((1, 0), None), 9)[i])
    self.same(Tensor(i).pad((1, 2), value=2).one_hot(4), np.eye(4)[np.pad(i, (1, 2), constant_values=2)])
    self.same(Tensor(self.a).gather(1, Tensor(i[None]).pad(((1, 1), None))), np.take_along_axis(self.a, np.pad(i[None], ((1, 1), (0, 0))), 1))

  def test_sort(self): self.same(Tensor(self.a).sort(1)[0], np.sort(self.a, 1))

  def test_interior_dilation(self):
    # zeros between the elements: a pad on an axis of size one, then cut
    p = Tensor(self.a).reshape(3, 5, 1).pad((None, None, (0, 1))).reshape(3, 10)[:, :9]
    w = np.zeros((3, 9), np.float32)
    w[:, ::2] = self.a
    self.same(p, w)

class TestPadConv(PadCase):
  def setUp(self):
    r = np.random.RandomState(0)
    self.a, self.k = r.randn(2, 4, 7, 6).astype(np.float32), r.randn(6, 4, 3, 2).astype(np.float32)

  def test_conv(self):
    for pads,stride,dilation in (((1, 1, 1, 1), 1, 1), ((0, 2, 1, 0), 2, 1), ((2, 1, 2, 2), 1, 2), ((-1, 0, 1, -1), 1, 1)):
      with self.subTest(pads=pads, stride=stride, dilation=dilation):
        w = windows(crop_and_pad(self.a, (None, None, pads[2:], pads[:2])), (3, 2), stride, dilation)
        got = Tensor(self.a).conv2d(Tensor(self.k), padding=pads, stride=stride, dilation=dilation)
        self.same(got, np.einsum("nchwij,ocij->nohw", w, self.k), 1e-4, 1e-4)

  def test_conv_groups_then_conv(self):
    x, k = Tensor(self.a).conv2d(Tensor(self.k[:, :2]), groups=2, padding=1).relu(), self.k[:4].transpose(1, 0, 2, 3).repeat(2, 1)[:, :6]
    w = windows(crop_and_pad(self.a, (None, None, (1, 1), (1, 1))), (3, 2))
    y = np.concatenate([np.einsum("nchwij,ocij->nohw", w[:, 2*g:2*g+2], self.k[3*g:3*g+3, :2]) for g in range(2)], 1).clip(0)
    want = np.einsum("nchwij,ocij->nohw", windows(crop_and_pad(y, (None, None, (1, 1), (1, 1))), (3, 2)), k)
    self.same(x.conv2d(Tensor(k), padding=1), want, 1e-4, 1e-4)

  def test_conv_transpose(self):
    k = self.k.transpose(1, 0, 2, 3)[:, :3]
    for stride in (1, 2):
      want = np.zeros((2, 3, 6*stride+3, 5*stride+2), np.float32)
      for y,x in np.ndindex(7, 6): want[:, :, y*stride:y*stride+3, x*stride:x*stride+2] += np.einsum("nc,coij->noij", self.a[:, :, y, x], k)
      self.same(Tensor(self.a).conv_transpose2d(Tensor(k), stride=stride, padding=1), want[:, :, 1:-1, 1:-1], 1e-4, 1e-4)

  def test_pools(self):
    a = self.a - 4  # below zero, so that a zero in the pad would win
    for stride,pad in ((1, 0), (2, 1)):
      with self.subTest(stride=stride, pad=pad):
        grow = (None, None, (pad, pad), (pad, pad))
        self.same(Tensor(a).max_pool2d((3, 2), stride=stride, padding=pad), windows(crop_and_pad(a, grow, -np.inf), (3, 2), stride).max((-1, -2)))
        total, n = (windows(crop_and_pad(x, grow), (3, 2), stride).sum((-1, -2)) for x in (a, np.ones_like(a)))
        self.same(Tensor(a).avg_pool2d((3, 2), stride=stride, padding=pad), total / 6)
        self.same(Tensor(a).avg_pool2d((3, 2), stride=stride, padding=pad, count_include_pad=False), total / n)

  def test_max_pool_index(self):
    out, idx = Tensor(self.a - 4).max_pool2d((3, 2), padding=1, return_indices=True)
    flat = (self.a - 4).reshape(2, 4, -1)
    self.same(out, np.take_along_axis(flat, idx.numpy().reshape(2, 4, -1), 2).reshape(out.shape))

  def test_int_pool_and_conv(self):
    a = data(dtypes.int32, 1, 2, 5, 5) - 9
    k, grow = data(dtypes.int32, 3, 2, 2, 2, seed=1), (None, None, (1, 1), (1, 1))
    self.same(Tensor(a).max_pool2d((2, 2), stride=1, padding=1), windows(crop_and_pad(a, grow, -99), (2, 2)).max((-1, -2)))
    self.same(Tensor(a).conv2d(Tensor(k), padding=1), np.einsum("nchwij,ocij->nohw", windows(crop_and_pad(a, grow), (2, 2)), k))

class TestPadWrites(PadCase):
  def test_setitem_with_a_pad(self):
    a = data(dtypes.float32, 4, 6)
    x = Tensor(a).clone().realize()
    x[1:3] = Tensor(a[:2, :3]).pad((1, 2), value=8)
    self.same(x, np.concatenate([a[:1], crop_and_pad(a[:2, :3], (None, (1, 2)), 8), a[3:]]))

  def test_assign_a_pad(self):
    a = data(dtypes.float32, 6)
    for value in (0, 2):
      x = Tensor(a).clone().realize()
      x.assign(x[2:5].pad((1, 2), value=value))
      self.same(x, np.pad(a[2:5], (1, 2), constant_values=value))
    x = Tensor(a).clone().realize()
    x += x[:4].pad((2, 0))
    self.same(x, a + np.pad(a[:4], (2, 0)))

  def test_write_after_the_pad(self):
    # the pad sees the value of before
    a = data(dtypes.float32, 4)
    x = Tensor(a).clone().realize()
    p = (x.pad((1, 1), value=3) * 2).realize()
    x += 1
    self.same(p, np.pad(a, 1, constant_values=3) * 2)
    self.same(x.pad((1, 1)), np.pad(a + 1, 1))

  def test_setitem_on_an_unrealized_pad(self):
    a = data(dtypes.float32, 4)
    for value in (0, 5):
      p = (Tensor(a) * 2).pad((2, 1), value=value)
      p[1:4] = 7
      w = np.pad(a * 2, (2, 1), constant_values=value)
      w[1:4] = 7
      self.same(p, w)

class TestPadGradient(PadCase):
  def check(self, f, a:np.ndarray, want, tol=1e-4):
    x = Tensor(a).realize()
    self.same(f(x).sum().gradient(x)[0], want, tol, tol)

  def test_pads(self):
    a = np.random.RandomState(0).randn(3, 4).astype(np.float32)
    w = np.random.RandomState(1).randn(9, 9).astype(np.float32)
    for pads,value in itertools.product((((1, 2), (0, 1)), ((-1, 2), (1, -2)), (None, (2, 0))), (0, -2.5)):
      with self.subTest(pads=pads, value=value):
        grown = crop_and_pad(a, pads, value)
        u = w[:grown.shape[0], :grown.shape[1]]
        back = crop_and_pad(u, [(-p[0], -p[1]) if p else None for p in pads])
        self.check(lambda x: x.pad(pads, value=value) * Tensor(u), a, back)
        self.check(lambda x: x.pad(pads, value=value).square() * Tensor(u), a, back*2*a)

  def test_through_ops(self):
    a = np.random.RandomState(0).randn(3, 4).astype(np.float32)
    self.check(lambda x: x.pad((1, 1)).pad((1, 0), value=3) * 2, a, np.full((3, 4), 2))
    self.check(lambda x: x.pad((2, 2), value=-9).max(1), a, a == a.max(1, keepdims=True))
    self.check(lambda x: x.cat(x[:, :2]*3, dim=1), a, np.concatenate([np.full((3, 2), 4), np.ones((3, 2))], 1))
    self.check(lambda x: x.cumsum(1), a, np.broadcast_to([4, 3, 2, 1], (3, 4)))
    self.check(lambda x: x[::2, 1::2], a, [[0, 1, 0, 1], [0]*4, [0, 1, 0, 1]])
    self.check(lambda x: x.roll(1, 0)*Tensor(a), a, np.roll(a, -1, 0))
    self.check(lambda x: x.tril(), a, np.tril(np.ones((3, 4))))
    self.check(lambda x: x.diagonal(), a, np.eye(3, 4))

  def test_conv_and_pools(self):
    r = np.random.RandomState(0)
    a, k = r.randn(1, 2, 5, 4).astype(np.float32), r.randn(3, 2, 3, 3).astype(np.float32)
    x, w = Tensor(a).realize(), Tensor(k).realize()
    gx, gw = x.conv2d(w, padding=1).sum().gradient(x, w)
    # every input meets the taps that keep the output inside
    n, s = crop_and_pad(np.ones((1, 5, 4), np.float32), (None, (1, 1), (1, 1))), k.sum(0)
    self.same(gx, np.einsum("chwij,cij->chw", windows(n.repeat(2, 0), (3, 3)), s[:, ::-1, ::-1])[None], 1e-4, 1e-4)
    self.same(gw, np.broadcast_to(windows(crop_and_pad(a[0], (None, (1, 1), (1, 1))), (5, 4)).sum((-1, -2)), k.shape), 1e-4, 1e-4)
    self.check(lambda x: x.avg_pool2d((3, 3), stride=1, padding=1), a, windows(n, (3, 3)).sum((-1, -2))[None].repeat(2, 1) / 9)
    m = windows(crop_and_pad(a, (None, None, (1, 1), (1, 1)), -np.inf), (3, 3), 2)
    self.check(lambda x: x.max_pool2d((3, 3), stride=2, padding=1), a, (a[..., None] == m.max((-1, -2)).reshape(1, 2, 1, 1, -1)).sum(-1))

class TestPadJit(PadCase):
  def test_ops_after_a_pad(self):
    f = TinyJit(lambda x: (x.pad((1, 2), value=-1).max(1).realize(), (x.pad(((1, 0), (0, 3))) @ x.pad(((0, 0), (1, 2))).T).realize()))
    for i in range(4):
      a = np.random.RandomState(i).randn(3, 4).astype(np.float32)
      m, y = f(Tensor(a).realize())
      self.same(m, crop_and_pad(a, (None, (1, 2)), -1).max(1))
      self.same(y, crop_and_pad(a, ((1, 0), (0, 3))) @ crop_and_pad(a, (None, (1, 2))).T)

  def test_symbolic(self):
    v = Variable("v", 1, 6)
    f = TinyJit(lambda x: (x.pad((None, (0, 6-x.shape[1])), value=1) * 2).realize())
    a = data(dtypes.float32, 2, 6)
    for n in (2, 3, 5, 1, 6): self.same(f(Tensor(a).realize()[:, :v.bind(n)]), crop_and_pad(a[:, :n], (None, (0, 6-n)), 1) * 2)

  def test_setitem(self):
    @TinyJit
    def f(buf, x):
      buf[:, 1::2] = x.pad((1, 0), value=3)
      return buf.realize()
    buf = Tensor.zeros(2, 6).clone().realize()
    for i in range(4):
      a = np.random.RandomState(i).randn(2, 2).astype(np.float32)
      f(buf, Tensor(a).realize())
      want = np.zeros((2, 6), np.float32)
      want[:, 1::2] = crop_and_pad(a, (None, (1, 0)), 3)
      self.same(buf, want)

if __name__ == "__main__":
  unittest.main()
