# what a load gives where its gate is false, if what's loaded is cast
import unittest
import numpy as np
import pytest
from tinygrad import Tensor

@pytest.mark.patch("gated-load-cast")
class TestGatedLoadCast(unittest.TestCase):
  def padded(self, a, to, fill):
    x = Tensor(a).realize().cast(to).pad(((0, 0), (1, 2), (0, 0)), value=fill)
    want = np.pad(a.astype(to), ((0, 0), (1, 2), (0, 0)), constant_values=fill)
    np.testing.assert_array_equal(x.numpy(), want, f"{a.dtype} as {to}, padded with {fill}")

  def test_no_such_number(self):
    # a fraction or an infinity in integers, a sign in unsigned ones, a number in bools, more than a byte or a half holds
    a = np.array([[[3, 0, 1, 5, 2]]*3])
    for dtype, to, fills in (("int32", "float32", (-2.5, 0.1, float("inf"), -float("inf"), float("nan"))), ("uint8", "int32", (-1, 300)),
                             ("int8", "int16", (200, -129)), ("int64", "float16", (0.5,)), ("float16", "float32", (0.1, 70000.))):
      for fill in fills: self.padded(a.astype(dtype), to, fill)
    for fill in (-3, 2): self.padded(a > 2, "int32", fill)

  def test_such_a_number(self):
    a = np.array([[[3, 0, 1, 5, 2]]*3])
    for dtype, to, fill in (("int32", "float32", -7.), ("uint8", "int32", 255), ("float16", "float32", -float("inf")), ("float32", "int32", 4)):
      self.padded(a.astype(dtype), to, fill)
    self.padded(a > 2, "float32", 1.)

  def test_pools(self):
    # the fill of a max pool is -inf, of an average pool it's counted or not
    a = np.arange(-8, 7, dtype=np.int32).reshape(1, 1, 3, 5)
    x, y = Tensor(a).realize().float(), Tensor(a.astype(np.float32)).realize()
    for f in (lambda t: t.max_pool2d((3, 3), 1, padding=1), lambda t: t.avg_pool2d((3, 3), 2, padding=1).pad((1, 1), value=-0.5)):
      np.testing.assert_array_equal(f(x).numpy(), f(y).numpy())

if __name__ == "__main__": unittest.main()
