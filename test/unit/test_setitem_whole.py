# what is written to all of a tensor, seen in another shape, or kept on other devices
import os, unittest
import numpy as np
import pytest
from tinygrad import Tensor, TinyJit

def devices(n): return tuple(f"CPU:{i}" if i else "CPU" for i in range(n))
def rows(*shape): return np.arange(np.prod(shape)).reshape(shape).astype(np.int32)
PLACES = {"one": lambda a: Tensor(a).clone().realize(), "whole": lambda a: Tensor(a).shard(devices(4)).realize(),
          "last axis": lambda a: Tensor(a).shard(devices(4), a.ndim-1).realize()}

@pytest.mark.patch("setitem-whole")
class TestOneRow(unittest.TestCase):
  def each(self, write, shape, idx):
    for name,place in PLACES.items():
      with self.subTest(name, shape=shape, idx=idx):
        x, w = place(a:=rows(*shape)), a.copy()
        write(x, idx)
        write(w, idx)
        np.testing.assert_equal(x.numpy(), w)
  def test_writes(self):
    def fill(x, idx): x[idx] = 7
    def add(x, idx): x[idx] += 2
    def twice(x, idx):
      x[idx] = 1
      x[idx] += 1
      x[idx] *= 3
    for shape,idx in (((1, 8), 0), ((1, 8), -1), ((1, 1, 4), (0, 0)), ((8, 1, 4), (slice(None), 0)), ((4,), None)):
      for write in (fill, add, twice): self.each(write, shape, idx)
  def test_a_tensor(self):
    for name,place in PLACES.items():
      x, v = place(rows(1, 8)), place(rows(8)*10)
      if name == "last axis" and os.getenv("SYMBOLIC_MULTI") != "1": continue
      x[0] = v
      np.testing.assert_equal(x.numpy(), rows(1, 8)*10, name)
  def test_others_see_it(self):
    x = Tensor(rows(1, 8)).clone().realize()
    y = x.reshape(2, 4)
    x[0] = 5
    np.testing.assert_equal((y+1).numpy(), np.full((2, 4), 6))
  def test_jit(self):
    @TinyJit
    def f(x):
      x[0] = x[0]*2
      return x.realize()
    for i in range(4):
      x = Tensor(a:=rows(1, 8)+i).clone().realize()
      f(x)
      np.testing.assert_equal(x.numpy(), a*2, f"call {i}")

@pytest.mark.patch("clone-devices")
class TestClone(unittest.TestCase):
  def test_more_or_fewer_devices(self):
    a = rows(4, 8)
    for axis in (0, 1):
      for n in (2, 3, 8):
        y = Tensor(a).shard(devices(4), axis).realize().clone(devices(n)).realize()
        self.assertEqual(y.device, devices(n))
        np.testing.assert_equal(y.numpy(), a, f"{axis} {n}")
        for d in devices(n): np.testing.assert_equal(y.to(d).numpy(), a)
    y = Tensor(a).shard(devices(4), 0).realize().clone(devices(8)[4:]).realize()
    self.assertEqual(y.uop.axis, 0)
    np.testing.assert_equal(y.numpy(), a)
  def test_names(self):
    y = Tensor(a:=rows(4)).shard(("CPU:0", "CPU:1"), 0).realize().clone(("CPU:0", "CPU:1")).realize()
    np.testing.assert_equal(y.numpy(), a)

if __name__ == "__main__": unittest.main()
