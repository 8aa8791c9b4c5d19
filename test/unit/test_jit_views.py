import unittest
import numpy as np
import pytest
from tinygrad import Tensor, TinyJit
from tinygrad.engine.jit import JitError

D = ("CPU:0", "CPU:1")
def data(i, *shape): return np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + 100*i

# the inputs differ in every call: what was captured must not show in a later one
@pytest.mark.patch("jit-views-of-sharded-inputs")
class TestJitViews(unittest.TestCase):
  def _check(self, fxn, *shape, axis=0, shard=True):
    step = TinyJit(lambda x: (x+1).realize())
    for i in range(4):
      a = data(i, *shape)
      x = (Tensor(a).shard(D, axis) if shard else Tensor(a).clone()).realize()
      np.testing.assert_equal(step(fxn(x)).numpy(), fxn(a)+1, err_msg=f"call {i}")

  def test_reshape(self): self._check(lambda x: x.reshape(4, 2, 1), 4, 2)
  def test_reshape_from_1d(self): self._check(lambda x: x.reshape(2, 4), 8)
  def test_permute(self): self._check(lambda x: x.T, 4, 2)
  def test_permute_reshape(self): self._check(lambda x: x.T.reshape(2, 2, 2), 4, 2)
  def test_shrink(self): self._check(lambda x: x[:, 1:3], 4, 4)
  def test_shrink_reshape(self): self._check(lambda x: x[:, 1:3].reshape(8), 4, 4)
  def test_shrink_second_axis(self): self._check(lambda x: x[1:3].reshape(2, 2, 2), 4, 4, axis=1)
  def test_shrink_reshape_one_device(self): self._check(lambda x: x[2:6].reshape(2, 2), 8, shard=False)
  def test_flip_reshape_one_device(self): self._check(lambda x: x[::-1].reshape(2, 4), 8, shard=False)

  def test_output_fed_back(self):
    for n in (1, 2, 4):
      def place(a, n=n): return (Tensor(a).shard(tuple(f"CPU:{i}" for i in range(n)), 0) if n > 1 else Tensor(a)).contiguous().realize()
      step = TinyJit(lambda window, new: window[:, 3:].cat(new, dim=1).realize())
      window, want = place(np.zeros((4, 6), np.float32)), np.zeros((4, 6), np.float32)
      for i in range(5):
        window, want = step(window, place(data(i, 4, 3))), np.concatenate([want[:, 3:], data(i, 4, 3)], axis=1)
        np.testing.assert_equal(window.numpy(), want, err_msg=f"{n} devices, call {i}")

  def test_two_views(self):
    step = TinyJit(lambda x, y: (x + y).realize())
    for i in range(4):
      a, b = data(i, 4, 2), data(i+10, 4, 2)
      np.testing.assert_equal(step(Tensor(a).shard(D, 0).realize().T, Tensor(b).shard(D, 0).realize().T).numpy(), a.T + b.T)

  def test_views_of_one_buffer_are_duplicates(self):
    x = Tensor(data(0, 4, 2)).shard(D, 0).realize()
    with self.assertRaises(JitError): TinyJit(lambda x, y: (x + y).realize())(x.reshape(4, 2, 1), x.reshape(4, 1, 2))

  def test_another_axis_is_refused(self):
    # a device's part has the same shape in both
    step = TinyJit(lambda x: (x+1).realize())
    for i in range(3): step(Tensor(data(i, 4, 2)).shard(D, 0).realize())
    with self.assertRaises(JitError): step(Tensor(data(3, 2, 4)).shard(D, 1).realize())

if __name__ == "__main__": unittest.main()
