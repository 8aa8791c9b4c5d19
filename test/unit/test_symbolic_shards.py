# a variable in the shape, or in the place of a slice, of what is sharded
import os, unittest
import numpy as np
import pytest
from tinygrad import Tensor, TinyJit, Variable

def devices(n): return tuple(f"CPU:{i}" for i in range(1, n+1))
def data(*shape): return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)+1

class TestPartialSums(unittest.TestCase):
  # a sum over the sharded axis is an allreduce of as many rows as the variable says
  @pytest.mark.patch("symbolic-allreduce")
  def test_sum(self):
    a, n = data(6, 4), Variable("n", 1, 6)
    for d in (2, 4):
      x = Tensor(a).shard(devices(d), 1).realize()
      for v in (1, 4, 6): np.testing.assert_equal(x[:n.bind(v)].sum(1).sum().numpy(), a[:v].sum())
      for v in (2, 5): np.testing.assert_equal(x[:n.bind(v)].max(1).max(0).numpy(), a[:v].max())

  @pytest.mark.patch("symbolic-allreduce")
  def test_tensor_parallel_layer(self):
    a, b, c, n = data(5, 4), data(4, 8)/8, data(8, 3)/8, Variable("n", 1, 5)
    w, u = Tensor(b).shard(devices(2), 1).realize(), Tensor(c).shard(devices(2), 0).realize()
    @TinyJit
    def layer(x, v): return (((x[:v]@w).relu()@u).contiguous().sum(0)+x[0, 0]).realize()
    for v in (1, 3, 5, 2, 4):
      x = Tensor(a*v).shard(devices(2), None).realize()
      np.testing.assert_allclose(layer(x, n.bind(v)).numpy(), (np.maximum(a[:v]*v@b, 0)@c).sum(0)+v, rtol=1e-6)

@pytest.mark.needs("placement")
@pytest.mark.skipif(os.getenv("SYMBOLIC_MULTI") != "1", reason="needs the flag")
class TestUneven(unittest.TestCase):
  def placements(self):
    for rows,d in ((5, 2), (6, 2), (7, 4), (3, 4)):
      for axis in (0, 1, None): yield (a:=data(rows, 4)), Tensor(a).shard(devices(d), axis).realize()

  def test_place(self):
    for a,x in self.placements():
      at, end = Variable("at", 0, len(a)-1), Variable("end", 1, len(a))
      for v in {0, len(a)//2, len(a)-1}:
        np.testing.assert_equal(x[at.bind(v)].numpy(), a[v])
        np.testing.assert_equal((x[at.bind(v)]*2+x[0]).numpy(), a[v]*2+a[0])
        np.testing.assert_equal((x[:end.bind(v+1)]*x[:end.bind(v+1)]).sum().numpy(), (a[:v+1]**2).sum())
        np.testing.assert_equal((x[:end.bind(v+1)].T@x[:end.bind(v+1)]).numpy(), a[:v+1].T@a[:v+1])

  def test_jit(self):
    for a,x in self.placements():
      at, end = Variable("at", 0, len(a)-1), Variable("end", 1, len(a))
      @TinyJit
      def f(t, i, j): return (t[i]+t[:j].sum(0)).realize()
      for v in range(len(a)): np.testing.assert_equal(f(x, at.bind(v), end.bind(len(a)-v)).numpy(), a[v]+a[:len(a)-v].sum(0))

  def test_write(self):
    for a,x in self.placements():
      y, at = x.clone().realize(), Variable("at", 0, len(a)-1)
      for v in {0, len(a)-1}:
        y[at.bind(v):at.bind(v)+1].assign(Tensor.full((1, 4), v+50.).contiguous().shard(y.device, None)).realize()
        a[v] = v+50
      np.testing.assert_equal(y.numpy(), a)

if __name__ == "__main__": unittest.main()
