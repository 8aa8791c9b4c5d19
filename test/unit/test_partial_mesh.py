import unittest
import numpy as np
import pytest
from tinygrad import Tensor, TinyJit, dtypes
from tinygrad.uop.ops import AxisType, UOp

D = tuple(f"CPU:{i}" for i in range(4))
def rand(*shape, seed=0): return np.random.RandomState(seed).randint(-8, 8, shape).astype(np.float32)
def mesh(a, axis, of):
  # the axis is sharded over one axis of a 2x2 mesh: two devices have the same shard
  rng = of(UOp.range(4, -1, AxisType.DEVICE))
  return Tensor(Tensor(a).uop.copy_to_device(D)._shard(axis, rng).unshard(axis, rng))
ROWS, COLUMNS = (lambda d: d//2), (lambda d: d%2)

# devices that hold the same shard hold one copy each of the same data
@pytest.mark.patch("same-shard-counts-once")
class TestPartialMesh(unittest.TestCase):
  def test_sum(self):
    a = rand(4, 6)
    for of in (ROWS, COLUMNS):
      for axis in (0, 1):
        np.testing.assert_equal(mesh(a, axis, of).sum(axis).numpy(), a.sum(axis))
        np.testing.assert_equal(mesh(a, axis, of).sum().numpy(), a.sum())

  def test_prod_and_mean(self):
    a = rand(4, 2)
    np.testing.assert_equal(mesh(a, 0, ROWS).prod(0).numpy(), a.prod(0))
    np.testing.assert_equal(mesh(a, 0, ROWS).mean(0).numpy(), a.mean(0))

  def test_matmul_over_the_sharded_axis(self):
    a, b = rand(3, 4), rand(4, 3, seed=1)
    np.testing.assert_equal((mesh(a, 1, COLUMNS) @ mesh(b, 0, COLUMNS)).numpy(), a @ b)

  def test_half(self):
    a = rand(4, 6)
    np.testing.assert_equal(mesh(a, 0, ROWS).cast(dtypes.half).sum(0).numpy(), a.sum(0))

  def test_copy_to_one_device(self):
    a = rand(4, 6)
    for of in (ROWS, COLUMNS):
      for axis in (0, 1):
        np.testing.assert_equal(mesh(a, axis, of).numpy(), a)
        np.testing.assert_equal((mesh(a, axis, of)*2).contiguous().realize().to("CPU:0").numpy(), a*2)

  def test_copy_to_all_devices(self):
    a = rand(4, 6)
    for of in (ROWS, COLUMNS): np.testing.assert_equal(mesh(a, 0, of).to(D).contiguous().numpy(), a)

  def test_jit(self):
    step = TinyJit(lambda x: mesh_of(x).sum(0).realize())
    def mesh_of(x): return Tensor(x.uop._shard(0, r:=ROWS(UOp.range(4, -1, AxisType.DEVICE))).unshard(0, r))
    for i in range(4):
      a = rand(4, 6, seed=i)
      np.testing.assert_equal(step(Tensor(a).shard(D).realize()).numpy(), a.sum(0))

if __name__ == "__main__": unittest.main()
