import unittest
import numpy as np, pytest
from tinygrad import Device, Tensor, TinyJit

def devices(n): return tuple(f"{Device.DEFAULT}:{i}" for i in range(n))
def rand(*shape, seed=0): return np.random.RandomState(seed).randn(*shape).astype(np.float32)

@pytest.mark.patch("stack-lanes")
class TestSliceOneShard(unittest.TestCase):
  def shards(self):
    for n in (2, 3, 4):
      for shape, axis in (((2*n,), 0), ((n, 3), 0), ((3, 2*n), 1), ((2, 3*n, 2), 1)):
        size, a = shape[axis] // n, rand(*shape)
        for i in range(n): yield a, devices(n), axis, tuple(slice(i*size, (i+1)*size) if j == axis else slice(None) for j in range(len(shape)))

  def test_realized(self):
    for a, devs, axis, s in self.shards():
      np.testing.assert_equal(Tensor(a).shard(devs, axis).realize()[s].numpy(), a[s])

  def test_lazy(self):
    for a, devs, axis, s in self.shards():
      np.testing.assert_allclose((Tensor(a).shard(devs, axis) * 2)[s].numpy(), a[s] * 2)

  def test_shrunk_on_the_other_axes_too(self):
    for a, devs, axis, s in self.shards():
      s = tuple(x if j == axis else slice(1, None) for j, x in enumerate(s))
      np.testing.assert_equal(Tensor(a).shard(devs, axis).realize()[s].numpy(), a[s])

  def test_moved(self):
    for a, devs, axis, s in self.shards():
      x = Tensor(a).shard(devs, axis).realize()
      np.testing.assert_equal(x[s].permute(*range(a.ndim)[::-1]).numpy(), a[s].T)
      np.testing.assert_equal(x.permute(*range(a.ndim)[::-1])[s[::-1]].numpy(), a.T[s[::-1]])
      np.testing.assert_equal(x[s].reshape(-1).numpy(), a[s].reshape(-1))

  def test_together_with_what_else_reads_it(self):
    for a, devs, axis, s in self.shards():
      x = Tensor(a).shard(devs, axis).realize()
      y = x[s]
      z, w = y + 1, x * 2
      Tensor.realize(y, z, w)
      for t, want in ((y, a[s]), (z, a[s] + 1), (w, a * 2)): np.testing.assert_allclose(t.numpy(), want)

  def test_all_shards_added(self):
    for n in (2, 3, 4):
      a = rand(2*n, 3)
      x = Tensor(a).shard(devices(n), 0).realize()
      np.testing.assert_allclose(sum(x[2*i:2*i+2] for i in range(n)).numpy(), a.reshape(n, 2, 3).sum(0), rtol=1e-5, atol=1e-5)

  def test_jit(self):
    for n in (2, 4):
      f = TinyJit(lambda x: (x[2:4].contiguous() + 1).realize())
      for i in range(4):
        a = rand(2*n, 3, seed=i)
        np.testing.assert_allclose(f(Tensor(a).shard(devices(n), 0).realize()).numpy(), a[2:4] + 1)

  def test_gradient(self):
    for n in (2, 3, 4):
      a = rand(2*n, 3)
      x = Tensor(a).shard(devices(n), 0).realize()
      want = np.zeros_like(a)
      want[2:4] = 2 * a[2:4]
      np.testing.assert_allclose(x[2:4].square().sum().gradient(x)[0].numpy(), want, rtol=1e-6)

@pytest.mark.patch("stack-lanes")
class TestReplicateWhatIsReadElsewhere(unittest.TestCase):
  def check(self, op, shape, src, n, axis=None):
    a = op(rand(*shape))
    x = op(Tensor(rand(*shape)).to(src).realize())
    y, s = x + 1, x.shard(devices(n), axis)
    z = s * 2
    Tensor.realize(y, s, z)
    for t, want in ((y, a + 1), (s, a), (z, a * 2)): np.testing.assert_allclose(t.numpy(), want)

  def test_every_rank_and_device(self):
    for n in (2, 3, 4):
      for shape in ((24,), (4, 6), (2, 3, 4)):
        for src in (devices(5)[0], devices(5)[1], devices(5)[4]):
          self.check(lambda x: x, shape, src, n)
          if shape[0] % n == 0: self.check(lambda x: x, shape, src, n, axis=0)

  def test_views(self):
    for n in (2, 3, 4):
      for op in (lambda x: x.reshape(12, 2), lambda x: x[1:], lambda x: x.transpose(), lambda x: x[:, 1:], lambda x: x.reshape(2, 12)[:, 3:]):
        self.check(op, (4, 6), devices(1)[0], n)

  def test_jit(self):
    @TinyJit
    def f(x):
      y, z = x + 1, x.shard(devices(2)) * 2
      Tensor.realize(y, z)
      return y, z
    for i in range(4):
      a = rand(4, 6, seed=i)
      y, z = f(Tensor(a).realize())
      np.testing.assert_allclose(y.numpy(), a + 1)
      np.testing.assert_allclose(z.numpy(), a * 2)

if __name__ == "__main__": unittest.main()
