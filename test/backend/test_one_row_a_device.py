import unittest
import numpy as np, pytest
from tinygrad import Device, Tensor, TinyJit

def devices(n): return tuple(f"{Device.DEFAULT}:{i}" for i in range(n))
def rand(*shape, seed=0): return np.random.RandomState(seed).randn(*shape).astype(np.float32)

@pytest.mark.patch("opt-range-numbers")
class TestOneRowADevice(unittest.TestCase):
  # the rows of a value that is whole on every device are picked by the device number, next to a reduce that is unrolled
  def setUp(self): self.cases = [(n, cols, rand(n, cols), rand(n, seed=1)) for n in (2, 3, 4) for cols in (2, 3, 6, 8)]

  def test_reduce(self):
    for n, _, a, k in self.cases:
      x, w = Tensor(a).shard(devices(n), 0).realize(), Tensor(k).shard(devices(n)).realize()
      np.testing.assert_allclose((x.sum(1) * w).numpy(), a.sum(1) * k, rtol=1e-5, atol=1e-6)
      np.testing.assert_allclose((x.max(1) + w).numpy(), a.max(1) + k, rtol=1e-5)

  def test_second_axis(self):
    for n, _, a, k in self.cases:
      x, w = Tensor(np.ascontiguousarray(a.T)).shard(devices(n), 1).realize(), Tensor(k).shard(devices(n)).realize()
      np.testing.assert_allclose((x.sum(0) * w).numpy(), a.sum(1) * k, rtol=1e-5, atol=1e-6)

  def test_gradient(self):
    for n, cols, a, k in self.cases:
      x, w = Tensor(a).shard(devices(n), 0).realize(), Tensor(k).shard(devices(n)).realize()
      y = x.mean(1)
      loss = (y * y * w).sum()
      grad = loss.gradient(x)[0]
      Tensor.realize(loss, grad)
      m = a.mean(1)
      np.testing.assert_allclose(loss.item(), (m * m * k).sum(), rtol=1e-4, atol=1e-6)
      np.testing.assert_allclose(grad.numpy(), np.repeat((2 * m * k / cols)[:, None], cols, 1), rtol=1e-4, atol=1e-6)

  def test_jit(self):
    for n in (2, 4):
      f = TinyJit(lambda x, w: (x.sum(1) * w).realize())
      for i in range(4):
        a, k = rand(n, 6, seed=i), rand(n, seed=i+9)
        got = f(Tensor(a).shard(devices(n), 0).realize(), Tensor(k).shard(devices(n)).realize())
        np.testing.assert_allclose(got.numpy(), a.sum(1) * k, rtol=1e-5, atol=1e-6)

if __name__ == "__main__": unittest.main()
