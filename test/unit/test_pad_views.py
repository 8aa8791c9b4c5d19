# views made with pads (strides, diagonals) write through, pads with a fill are no views
import itertools, unittest
import numpy as np
import pytest
from tinygrad import Tensor, TinyJit, Variable
from tinygrad.dtype import Invalid
from tinygrad.uop.ops import Ops

def ramp(*shape, dtype=np.float32) -> np.ndarray: return np.arange(1, 1+np.prod(shape)).reshape(shape).astype(dtype)
def held(a:np.ndarray) -> Tensor: return Tensor(a.copy()).clone().realize()

class StridedWrites:
  def check(self, write, n=None, dtype=np.float32):
    for shape,key in self.KEYS[:n]:
      with self.subTest(shape=shape, key=key):
        a = ramp(*shape, dtype=dtype)
        x = held(a)
        write(x, tuple(key))
        write(a, tuple(key))
        np.testing.assert_array_equal(x.numpy(), a)

  def test_constant(self):
    def write(x, key): x[key] = 99
    self.check(write)
    for dt in (np.int8, np.uint64, np.float64, np.float16): self.check(write, 1, dt)

  def test_values(self):
    def write(x, key):
      v = -ramp(*x[key].shape)
      x[key] = Tensor(v) if isinstance(x, Tensor) else v
    self.check(write)

  def test_add(self):
    def write(x, key): x[key] += 5
    self.check(write, 6)

class TestStridedWrites(StridedWrites, unittest.TestCase):
  KEYS = ((7,), [slice(None, None, 3)]), ((7,), [slice(1, None, 2)]), ((8,), [slice(None, None, -3)]), ((7,), [slice(5, 1, -3)]), \
    ((5, 7), [slice(None, None, 2), slice(1, None, 3)]), ((5, 7), [slice(None), slice(None, None, -2)]), ((5, 7), [2, slice(None, None, 4)]), \
    ((3, 4, 5), [slice(1, 3), Ellipsis, slice(None, None, 3)]), ((4, 6), [slice(None, None, 3), slice(2, 5)])

  def test_bool(self):
    x = Tensor(np.zeros(7, bool)).clone().realize()
    x[1::3] = True
    np.testing.assert_array_equal(x.numpy(), [0, 1, 0, 0, 1, 0, 0])

  def test_assign_to_the_view(self):
    a = ramp(5, 6)
    x = held(a)
    x[::2, ::3].assign(Tensor.full((3, 2), -1.0)).realize()
    a[::2, ::3] = -1
    np.testing.assert_array_equal(x.numpy(), a)

  def test_view_of_a_view(self):
    a = ramp(12)
    x = held(a)
    x[::2][1::2].assign(Tensor.full((3,), -1.0)).realize()
    a[::2][1::2] = -1
    np.testing.assert_array_equal(x.numpy(), a)

  def test_rest_is_untouched_and_in_place(self):
    x = held(ramp(8))
    buf = x.uop.base.buffer
    x[::3] = 0
    x.realize()
    self.assertIs(x.uop.base.buffer, buf)
    np.testing.assert_array_equal(x.numpy(), [0, 2, 3, 0, 5, 6, 0, 8])

  def test_unrealized(self):
    x = Tensor(ramp(7)) * 2
    x[::3] = 0
    np.testing.assert_array_equal(x.numpy(), [0, 4, 6, 0, 10, 12, 0])

  def test_jit(self):
    @TinyJit
    def f(x, v):
      x[1::3] = v
      return x.realize()
    x, a = held(ramp(8)), ramp(8)
    for i in range(4):
      f(x, Tensor(ramp(3) * i).realize())
      a[1::3] = ramp(3) * i
      np.testing.assert_array_equal(x.numpy(), a)

@pytest.mark.patch("assign-through-reshape")
class TestWritesThroughAReshape(StridedWrites, unittest.TestCase):
  # a stride that divides the size needs no pad: the first step of the view is a reshape
  KEYS = ((6,), [slice(None, None, 3)]), ((8,), [slice(1, None, 2)]), ((9,), [slice(None, None, -3)]), ((8,), [slice(6, 2, -2)]), \
    ((4, 9), [slice(None, None, 2), slice(0, None, 3)]), ((5, 6), [slice(None), slice(None, None, -2)]), ((4, 8), [2, slice(None, None, 4)])

  def test_from_itself(self):
    a = ramp(6)
    x = held(a)
    x[::2] = x[1::2] * 10
    np.testing.assert_array_equal(x.numpy(), [20, 2, 40, 4, 60, 6])

  def test_one_after_the_other(self):
    a = ramp(9)
    x = held(a)
    for y in (a, x):
      y[::3] = 50
      y[1::3] = 60
      y[::2] += 1
    np.testing.assert_array_equal(x.numpy(), a)

  def test_column_of_a_reshape(self):
    a = ramp(12)
    x = held(a)
    x.reshape(6, 2)[:, :1].assign(Tensor.zeros(6, 1))
    a.reshape(6, 2)[:, :1] = 0
    np.testing.assert_array_equal(x.numpy(), a)

  def test_flat_view_of_rows(self):
    a = ramp(4, 3)
    x = held(a)
    x.reshape(12)[2:7].assign(Tensor.zeros(5))
    a.reshape(12)[2:7] = 0
    np.testing.assert_array_equal(x.numpy(), a)

class TestDiagonalWrites(unittest.TestCase):
  def test_offsets(self):
    for shape,k in (((4, 4), 0), ((4, 5), 0), ((5, 4), 0), ((4, 5), 2), ((4, 4), -1)):
      with self.subTest(shape=shape, k=k):
        a = ramp(*shape)
        n = len(np.diagonal(a, k))
        writes = {"assign": lambda d: d.assign(Tensor(-ramp(n))), "setitem": lambda d: d.__setitem__(slice(None), -1), "add": lambda d: d.__iadd__(9)}
        for name,write in writes.items():
          x, want = held(a), a.copy()
          d = x.diagonal(k)
          write(d)
          d.realize()
          i = np.arange(n)
          at = (i, i+k) if k >= 0 else (i-k, i)
          want[at] = {"assign": -ramp(n), "setitem": -1, "add": want[at] + 9}[name]
          np.testing.assert_array_equal(x.numpy(), want, name)

  def test_batched(self):
    a = ramp(2, 3, 3)
    x = held(a)
    x.diagonal(dim1=1, dim2=2).assign(Tensor.zeros(2, 3)).realize()
    np.testing.assert_array_equal(x.numpy(), np.where(np.eye(3, dtype=bool), 0, a))

  def test_part_of_a_diagonal(self):
    a = ramp(5, 5)
    x = held(a)
    d = x.diagonal()
    d[::2] = 0
    d.realize()
    a[[0, 2, 4], [0, 2, 4]] = 0
    np.testing.assert_array_equal(x.numpy(), a)

class TestPadOwnsItsMemory(unittest.TestCase):
  def both(self, x:Tensor, a, p:Tensor, want):
    np.testing.assert_array_equal(p.numpy(), want)
    np.testing.assert_array_equal(x.numpy(), a)

  @pytest.mark.patch("pad-fill-no-view")
  def test_add_to_a_pad(self):
    for pads,value in itertools.product(((1, 1), (2, 0), (-1, 2)), (0, 3)):
      with self.subTest(pads=pads, value=value):
        a = ramp(4)
        x = held(a)
        p = x.pad(pads, value=value)
        p += 1
        w = np.pad(a[max(-pads[0], 0):], [max(q, 0) for q in pads], constant_values=value)
        self.both(x, a, p, w + 1)

  @pytest.mark.patch("pad-fill-no-view")
  def test_write_into_a_pad(self):
    for dt in (np.float32, np.int8):
      a = ramp(4, dtype=dt)
      x = held(a)
      p = x.pad((1, 1))
      p[2:4] = 7
      self.both(x, a, p, [0, 1, 7, 7, 4, 0])

  @pytest.mark.patch("pad-fill-no-view")
  def test_write_into_a_bool_pad(self):
    a = np.array([True, False, False, True])
    x = held(a)
    p = x.pad((1, 1))
    p[2:4] = True
    self.both(x, a, p, [0, 1, 1, 1, 1, 0])

  @pytest.mark.patch("pad-fill-no-view")
  def test_assign_to_a_pad(self):
    a = ramp(2, 2)
    x = held(a)
    p = x.pad(((1, 0), (0, 1)))
    p.assign(Tensor(ramp(3, 3) * 9)).realize()
    self.both(x, a, p, ramp(3, 3) * 9)

  @pytest.mark.patch("pad-fill-no-view")
  def test_write_through_pad_to(self):
    a = ramp(4)
    x = held(a)
    p = x.pad_to((6,))
    p[::2] = 0
    self.both(x, a, p, [0, 2, 0, 4, 0, 0])

  def test_write_to_the_source_after(self):
    for value in (0, 2):
      x = held(ramp(3))
      p = x.pad((1, 1), value=value).realize()
      x += 10
      self.both(x, ramp(3) + 10, p, np.pad(ramp(3), 1, constant_values=value))

  @pytest.mark.patch("pad-fill-no-view")
  def test_jit_returns_the_pad_of_this_call(self):
    for dt in (np.float32, np.int32):
      f = TinyJit(lambda x: x.pad((1, 1)).realize())
      for i in range(1, 5): np.testing.assert_array_equal(f(Tensor(np.full(3, i, dt)).realize()).numpy(), [0, i, i, i, 0])

  @pytest.mark.patch("pad-fill-no-view")
  def test_jit_returns_the_bool_pad_of_this_call(self):
    f = TinyJit(lambda x: x.pad((1, 1)).realize())
    for i in range(1, 5):
      a = np.array([i & 1, i & 2, i & 4], bool)
      np.testing.assert_array_equal(f(Tensor(a).realize()).numpy(), np.pad(a, 1))

  @pytest.mark.patch("pad-fill-no-view")
  def test_jit_cropped_or_filled(self):
    f = TinyJit(lambda x: (x.pad((1, -1), value=2).realize(), x.pad((2, 2))[1:4].realize()))
    for i in range(1, 5):
      p, q = f(Tensor(ramp(3) * i).realize())
      np.testing.assert_array_equal(p.numpy(), [2, i, 2*i])
      np.testing.assert_array_equal(q.numpy(), [0, i, 2*i])

  @pytest.mark.patch("pad-fill-no-view")
  def test_jit_symbolic(self):
    v, a = Variable("v", 1, 5), ramp(2, 5)
    f = TinyJit(lambda x: x.pad((None, (0, 5-x.shape[1]))).realize())
    for n in (1, 2, 4, 3, 5):
      want = np.pad(a[:, :n], ((0, 0), (0, 5-n)))
      np.testing.assert_array_equal(f(held(a)[:, :v.bind(n)]).numpy(), want)

class TestPadIsNoView(unittest.TestCase):
  @pytest.mark.patch("pad-is-invalid")
  def test_filled_part(self):
    x = held(ramp(3))
    for value in (0, 2, -2.5):
      p = x.pad((1, 2), value=value)
      for part in (p, p[:2], p[3:], p[:1], p[4:]): self.assertIsNone(part.uop.contiguous_view())
      # inside it may be a view of the source, never of the pad
      for off in (0, 1):
        if (view:=p[1+off:4].uop.contiguous_view()) is not None: self.assertEqual((view[0].op, view[1]), (Ops.BUFFER, off))
      np.testing.assert_array_equal(p[1:4].contiguous().numpy(), ramp(3))

  @pytest.mark.patch("pad-fill-no-view")
  def test_inside_has_its_own_memory(self):
    for value,realized in itertools.product((0, 2), (False, True)):
      x = held(ramp(3))
      p = x.pad((1, 2), value=value)[1:4]
      if realized: p.realize()
      p += 10
      np.testing.assert_array_equal(p.numpy(), ramp(3) + 10)
      np.testing.assert_array_equal(x.numpy(), ramp(3))

  @pytest.mark.patch("pad-is-invalid")
  def test_outside_of_a_raw_pad(self):
    p = held(ramp(3)).pad((1, 2), value=Invalid)
    for part in (p, p[:2], p[3:], p[:1]): self.assertIsNone(part.uop.contiguous_view())

  def test_plain_views_still_are(self):
    x = held(ramp(4, 3))
    for part,offset in ((x, 0), (x[1:3], 3), (x[2, 1:], 7), (x.reshape(2, 6)[1], 6)): self.assertEqual(part.uop.contiguous_view()[1], offset)

if __name__ == "__main__":
  unittest.main()
