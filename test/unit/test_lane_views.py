import unittest
import numpy as np
import pytest
from tinygrad import Tensor, TinyJit
from tinygrad.uop.ops import AxisType, UOp

def devices(n): return tuple(f"CPU:{i}" for i in range(n))
def rand(*shape, seed=0): return np.random.RandomState(seed).randn(*shape).astype(np.float32)
def device_range(n): return UOp.range(n, -1, AxisType.DEVICE)
def own_shards(x:Tensor, axis:int) -> Tensor:
  # every device's own part of a tensor that is whole on all of them
  return Tensor(x.uop._shard(axis, device_range(len(x.device))).unshard(axis))

# one lane of a movement op whose arguments hold the DEVICE range: nothing but a launch on all devices binds it
@pytest.mark.patch("bind-device-in-lane")
class TestLaneOfAView(unittest.TestCase):
  def test_slice_one_shard(self):
    for n, axis in ((2, 0), (3, 1), (4, 0)):
      a = rand(2*n, 2*n)
      x = own_shards(Tensor(a).shard(devices(n)).realize(), axis)
      got, want = (x[2:4], a[2:4]) if axis == 0 else (x[:, 2:4], a[:, 2:4])
      np.testing.assert_equal(got.numpy(), want, err_msg=f"{n} devices, axis {axis}")

  def test_slice_one_shard_of_each(self):
    a = rand(8, 3)
    x = own_shards(Tensor(a).shard(devices(4)).realize(), 0)
    np.testing.assert_equal(Tensor.stack(x[6:8], x[2:4], x[0:2]).numpy(), np.stack([a[6:8], a[2:4], a[0:2]]))

  def test_slice_one_shard_jit(self):
    step = TinyJit(lambda x: (own_shards(x, 0)[2:4] * 2).realize())
    for i in range(4):
      a = rand(4, 3, seed=i)
      np.testing.assert_equal(step(Tensor(a).shard(devices(2)).realize()).numpy(), a[2:4]*2)

  def test_copy_to_one_device(self):
    for n, axis in ((2, 0), (3, 1), (4, 0)):
      a = rand(2*n, 2*n)
      np.testing.assert_equal(own_shards(Tensor(a).shard(devices(n)).realize(), axis).to("CPU:0").numpy(), a)

  def test_copy_to_one_device_through_views(self):
    a = rand(8, 6)
    x = own_shards(Tensor(a).shard(devices(4)).realize(), 0)
    np.testing.assert_equal(x.reshape(4, 2, 6).permute(2, 0, 1).flip(0).to("CPU:0").numpy(), a.reshape(4, 2, 6).transpose(2, 0, 1)[::-1])

  def test_padded_lane(self):
    # the first of the devices' values: its rows come first
    for n in (2, 3, 4):
      a, d = rand(2, 3), device_range(n)
      x = Tensor(Tensor(a).shard(devices(n)).realize().uop.pad(((d*2, (n-1)*2-d*2), (0, 0))))
      np.testing.assert_equal(x.to("CPU:0").numpy(), np.pad(a, ((0, 2*n-2), (0, 0))))

  def test_lanes(self):
    a, d = rand(9), device_range(3)
    w = Tensor(a).shard(devices(3)).realize().uop
    for i in range(3):
      np.testing.assert_equal(Tensor(w.shrink(((d*3, d*3+3),)).mselect(i)).contiguous().numpy(), a[3*i:3*i+3])
      flipped = w.reshape((3, 3)).shrink(((d, d+1), (0, 3))).reshape((3,)).flip(0)
      np.testing.assert_equal(Tensor(flipped.mselect(i)).contiguous().numpy(), a[3*i:3*i+3][::-1])

if __name__ == "__main__": unittest.main()
