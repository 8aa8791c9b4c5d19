import unittest
import numpy as np
import pytest
from tinygrad import Tensor, TinyJit

def devices(n): return ("CPU", *[f"CPU:{i}" for i in range(1, n)])
def rand(*shape, seed=0): return np.random.RandomState(seed).randn(*shape).astype(np.float32)

# the gradient of a tensor of one device that is sharded on the way
@pytest.mark.patch("gradient-of-own-part")
class TestShardGradient(unittest.TestCase):
  def test_product(self):
    for n in (2, 3, 4):
      for axis in (0, 1):
        a, b = rand(12, 12), rand(12, 12, seed=1)
        x = Tensor(a)
        y = x.shard(devices(n), axis)*Tensor(b).shard(devices(n), axis)
        np.testing.assert_allclose(y.sum().gradient(x)[0].numpy(), b, 1e-6, err_msg=f"{n} devices, axis {axis}")
  def test_square(self):
    a = rand(8, 3)
    x = Tensor(a).realize()
    y = x.shard(devices(4), 0)
    np.testing.assert_allclose((y*y).sum().gradient(x)[0].numpy(), 2*a, 1e-6)
  def test_used_whole_too(self):
    a, w = rand(8, 3), rand(3, 5, seed=1)
    x = Tensor(a)
    loss = (x.shard(devices(2), 0) @ Tensor(w).shard(devices(2))).square().sum().to("CPU") + x.sum()
    np.testing.assert_allclose(loss.gradient(x)[0].numpy(), 2*a @ w @ w.T + 1, 1e-4, 1e-4)
  def test_jit(self):
    def step(x):
      y = x.shard(devices(2), 0)
      return (y*y*y).sum().gradient(x)[0].realize()
    f = TinyJit(step)
    for i in range(4):
      a = rand(4, 2, seed=i)
      np.testing.assert_allclose(f(Tensor(a).realize()).numpy(), 3*a*a, 1e-5)

if __name__ == "__main__": unittest.main()
