import unittest
import numpy as np
import pytest
from tinygrad import Tensor, TinyJit

def devices(n): return tuple(f"CPU:{i}" for i in range(n))
def rand(*shape, seed=0): return np.random.RandomState(seed).randn(*shape).astype(np.float32)

# a kernel is launched once per device with the DEVICE range bound, so a gate on the range must never shorten it
@pytest.mark.patch("device-range-not-shrunk")
class TestDeviceRangeNotShrunk(unittest.TestCase):
  def _check_setitem(self, n, rows, start, stop, realize=True):
    a, v = rand(n*rows, 3), rand(stop-start, 3, seed=1)
    x = Tensor(a).shard(devices(n), 0)
    if realize: x.realize()
    x[start:stop] = Tensor(v).shard(devices(n))
    want = a.copy()
    want[start:stop] = v
    np.testing.assert_equal(x.numpy(), want, err_msg=f"{n} devices, {rows} rows each, [{start}:{stop}]")

  def test_setitem_eager(self):
    for n, rows, start, stop in ((4, 2, 1, 6), (4, 2, 0, 4), (4, 1, 1, 3), (3, 2, 1, 4), (2, 4, 1, 4)): self._check_setitem(n, rows, start, stop)

  def test_setitem_lazy(self):
    for n, rows, start, stop in ((4, 2, 1, 6), (3, 2, 1, 4)): self._check_setitem(n, rows, start, stop, realize=False)

  def test_setitem_on_the_second_axis(self):
    a, v = rand(3, 8), rand(3, 5, seed=1)
    x = Tensor(a).shard(devices(4), 1).realize()
    x[:, 1:6] = Tensor(v).shard(devices(4))
    a[:, 1:6] = v
    np.testing.assert_equal(x.numpy(), a)

  def test_setitem_jit(self):
    want = rand(8, 3, seed=9)
    x = Tensor(want).shard(devices(4), 0).realize()
    @TinyJit
    def step(v):
      x[1:6] = v
      return x.realize()
    for i in range(4):
      want[1:6] = rand(5, 3, seed=i)
      np.testing.assert_equal(step(Tensor(want[1:6]).shard(devices(4)).realize()).numpy(), want)

  # only the loads are gated: the first rows of a whole tensor, padded back, meet a sharded tensor of that size
  def _padded(self, n, rows, valid, seed=0):
    s, w = rand(n*rows, 3, seed=seed), rand(n*rows, 3, seed=seed+1)
    return Tensor(s).shard(devices(n), 0).realize(), Tensor(w).shard(devices(n)).realize(), s, np.where(np.arange(n*rows)[:, None] < valid, w, 0)

  def test_gated_load(self):
    for n, rows, valid in ((2, 2, 2), (3, 2, 4), (4, 2, 6), (4, 1, 3)):
      x, y, s, w = self._padded(n, rows, valid)
      got = x + y[:valid].pad(((0, n*rows-valid), (0, 0)))
      np.testing.assert_equal(got.numpy(), s + w, err_msg=f"{n} devices, {rows} rows each, {valid} valid")

  def test_gated_load_reduce(self):
    x, y, s, w = self._padded(4, 2, 6)
    np.testing.assert_allclose((x * y[:6].pad(((0, 2), (0, 0)))).sum(1).numpy(), (s * w).sum(1), rtol=1e-5, atol=1e-6)

  def test_gated_load_jit(self):
    step = TinyJit(lambda x, y: (x + y[:6].pad(((0, 2), (0, 0)))).realize())
    for i in range(4):
      x, y, s, w = self._padded(4, 2, 6, seed=i)
      np.testing.assert_equal(step(x, y).numpy(), s + w)

  def test_gated_load_gradient(self):
    x, y, s, w = self._padded(4, 2, 6)
    g = (x * x * y[:6].pad(((0, 2), (0, 0)))).sum().gradient(x)[0]
    np.testing.assert_allclose(g.numpy(), 2*s*w, rtol=1e-6)

if __name__ == "__main__": unittest.main()
