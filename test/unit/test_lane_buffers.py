import unittest
import numpy as np
import pytest
from tinygrad import Tensor, TinyJit

def devices(n): return tuple(f"CPU:{i}" for i in range(n))
def rand(*shape, seed=0): return np.random.RandomState(seed).randn(*shape).astype(np.float32)

# what is copied off a device is a buffer there, also where every element is the same or known
@pytest.mark.patch("lane-is-a-buffer")
class TestLaneBuffers(unittest.TestCase):
  def check(self, fxn, ref, *shape, axis=None, n=2):
    a = rand(*shape)
    x = Tensor(a).shard(devices(n), axis).realize()
    np.testing.assert_allclose(fxn(x).to("CPU").numpy(), ref(a), rtol=1e-6, err_msg=f"{shape} on {n} devices, axis {axis}")

  def test_expanded(self):
    for n in (2, 3): self.check(lambda x: x.expand(2, 3)+x, lambda a: a+a+np.zeros((2, 3), np.float32), 3, n=n)
    self.check(lambda x: x.stack(x), lambda a: np.stack([a, a]), 4)
    self.check(lambda x: x.reshape(4, 1).expand(4, 3)*2, lambda a: np.repeat(a.reshape(4, 1), 3, 1)*2, 4, n=4)
  def test_expanded_and_sharded(self):
    self.check(lambda x: (x*2).reshape(4, 1, 2).expand(4, 3, 2), lambda a: np.repeat((a*2).reshape(4, 1, 2), 3, 1), 4, 2, axis=0)
  def test_view_of_what_is_copied(self):
    # a part of each row is no piece of memory
    a = rand(6, 2, 1)
    for fxn in (lambda x: x[:, :1]*1, lambda x: x[:, 1:]*1, lambda x: x[::2]*1, lambda x: x[2:4]*1, lambda x: x[:, :1].mean(2)):
      want = fxn(Tensor(a)).numpy()
      for n in (2, 3):
        for device in ("CPU", "CPU:1", "CPU:5"): np.testing.assert_equal(fxn(Tensor(a).shard(devices(n))).to(device).numpy(), want)
  # a constant without a width is stored with one since then
  @pytest.mark.needs("lane-srcs")
  def test_known(self):
    self.check(lambda x: x-x, lambda a: a*0, 5)
    self.check(lambda x: x*0-1, lambda a: a*0-1, 2, 3, n=4)
    self.check(lambda x: x.tril(-2), lambda a: np.tril(a, -2), 1, 6, axis=1)
  def test_jit(self):
    f = TinyJit(lambda x: (x.expand(2, 3)+x).to("CPU").realize())
    for i in range(4):
      a = rand(3, seed=i)
      np.testing.assert_allclose(f(Tensor(a).shard(devices(2)).realize()).numpy(), np.stack([a*2, a*2]), rtol=1e-6)

if __name__ == "__main__": unittest.main()
