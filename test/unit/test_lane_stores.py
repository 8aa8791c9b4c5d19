# what comes from other devices is stored straight into the lane that needs it
import os, unittest
import numpy as np
import pytest
from tinygrad import Tensor, TinyJit, dtypes

pytestmark = [pytest.mark.needs("allreduce-into-lanes"), pytest.mark.skipif(os.getenv("SYMBOLIC_MULTI") != "1", reason="needs the flag")]

def devices(n): return tuple(f"CPU:{i}" if i else "CPU" for i in range(n))

class TestLaneStores(unittest.TestCase):
  @pytest.mark.patch("lane-stores")
  def test_written_while_the_lanes_are_joined(self):
    for n in (2, 3, 4):
      a = np.arange(12*n, dtype=np.float32).reshape(4*n, 3)
      # the copy and what is written after it, in one schedule
      x, w = Tensor(a).shard(devices(n), 0).clone(), a.copy()
      x[2:4*n-1] += 3
      w[2:4*n-1] += 3
      x[::2] = 7
      w[::2] = 7
      np.testing.assert_equal(x.numpy(), w)
  @pytest.mark.patch("lane-stores")
  def test_a_lane_with_nothing_has_its_dtype(self):
    for dtype in (np.float32, np.int32, np.float16):
      x = Tensor(a:=np.arange(4).reshape(1, 4).astype(dtype)).shard(devices(2), 1).realize()
      np.testing.assert_equal(x[0::-1, 2:3:2].shard(devices(2), 0).numpy(), a[0::-1, 2:3:2])
  def test_replicate_and_gather(self):
    for n,shape in ((2, (2, 3)), (4, (8, 5)), (3, (6, 2, 2))):
      x = Tensor(a:=np.random.RandomState(0).randn(*shape).astype(np.float32)).shard(devices(n), 0).realize()
      for t in (x.shard(devices(n)), x.to("CPU"), x.to("CPU:1"), x.shard(devices(n)[::-1]), x.T.shard(devices(n)).T,
                x.flip(0).shard(devices(n)).flip(0)):
        np.testing.assert_equal(t.contiguous().realize().numpy(), a)
      self.assertTrue(all(np.array_equal(b.numpy().reshape(shape), a) for b in x.shard(devices(n)).contiguous().realize().uop.buffer.bufs))
  @pytest.mark.patch("lane-stores")
  def test_allreduce(self):
    for n,size,dtype in ((3, 300_001, dtypes.float), (4, 270_000, dtypes.half), (8, 300_000, dtypes.int), (5, 260_003, dtypes.float)):
      a = np.random.RandomState(0).randint(-9, 9, (n, size))
      x = Tensor(a).cast(dtype).shard(devices(n), 0).realize()
      for t,w in ((x.sum(0), a.sum(0)), (x.max(0)+1, a.max(0)+1)): np.testing.assert_array_equal(t.numpy(), w, f"{n} {dtype}")
      # every device has it, and into a tensor that was there
      y = Tensor.zeros(size, dtype=dtype).shard(devices(n)).realize()
      y.assign(x.sum(0)).realize()
      for b in y.uop.buffer.bufs: np.testing.assert_array_equal(b.numpy(), a.sum(0))
      y.assign(y+x.sum(0)).realize()
      np.testing.assert_array_equal(y.numpy(), 2*a.sum(0))
  def test_allreduce_in_the_jit(self):
    f = TinyJit(lambda x: (x.sum(0)*2).realize())
    for i in range(5):
      a = np.random.RandomState(i).randint(-9, 9, (4, 260_000)).astype(np.float32)
      np.testing.assert_array_equal(f(Tensor(a).shard(devices(4), 0).realize()).numpy(), a.sum(0)*2)

if __name__ == "__main__": unittest.main()
