import unittest
import numpy as np
import pytest
from tinygrad import Tensor, TinyJit

def devices(n): return tuple(f"CPU:{i}" for i in range(n))
def rand(*shape, seed=0): return np.random.RandomState(seed).randn(*shape).astype(np.float32)

# a sharded source beside one that is whole on every device, in either order
@pytest.mark.patch("stack-whole-beside-sharded")
class TestStackWholeBesideSharded(unittest.TestCase):
  def _pair(self, n, axis, seed=0):
    a, b = rand(2*n, 2*n, seed=seed), rand(2*n, 2*n, seed=seed+100)
    return Tensor(a).shard(devices(n), axis).realize(), Tensor(b).shard(devices(n)).realize(), a, b

  def test_stack(self):
    for n, axis, dim in ((2, 0, 0), (3, 1, 1), (4, 0, 2)):
      x, y, a, b = self._pair(n, axis)
      np.testing.assert_equal(Tensor.stack(x, y, y, dim=dim).numpy(), np.stack([a, b, b], axis=dim), err_msg=f"{n} devices, axis {axis}, dim {dim}")
      np.testing.assert_equal(Tensor.stack(y, x, dim=dim).numpy(), np.stack([b, a], axis=dim), err_msg=f"{n} devices, axis {axis}, dim {dim}")

  def test_cat_on_another_axis(self):
    for n in (2, 4):
      x, y, a, b = self._pair(n, 1)
      np.testing.assert_equal(x.cat(y, dim=0).numpy(), np.concatenate([a, b]))
      np.testing.assert_equal(y.cat(x, dim=0).contiguous()[1:n+1].numpy(), np.concatenate([b, a])[1:n+1])

  def test_lazy(self):
    a, b = rand(4, 4), rand(4, 4, seed=1)
    np.testing.assert_allclose(Tensor.stack(Tensor(a).shard(devices(2), 0)*2, Tensor(b).shard(devices(2))+1).sum(0).numpy(), a*2 + (b+1), rtol=1e-6)

  def test_one_of_the_stack(self):
    x, y, _, b = self._pair(4, 0)
    np.testing.assert_equal(Tensor.stack(x, y)[1].numpy(), b)
    np.testing.assert_equal(Tensor.stack(x, y)[1].to("CPU:0").numpy(), b)

  def test_jit(self):
    step = TinyJit(lambda x, y: Tensor.stack(x, y).realize())
    for i in range(4):
      x, y, a, b = self._pair(2, 1, seed=i)
      np.testing.assert_equal(step(x, y).numpy(), np.stack([a, b]))

  def test_gradient(self):
    x, y, a, b = self._pair(2, 0)
    k = rand(2, 4, 4, seed=7)
    gx, gy = (Tensor.stack(x, y).square() * Tensor(k).shard(devices(2))).sum().gradient(x, y)
    np.testing.assert_allclose(gx.numpy(), 2*a*k[0], rtol=1e-6)
    np.testing.assert_allclose(gy.numpy(), 2*b*k[1], rtol=1e-6)

if __name__ == "__main__": unittest.main()
