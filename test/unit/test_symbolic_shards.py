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

  def test_few_rows_of_many(self):
    # what isn't there is nothing added, bit by bit: a zero keeps its sign
    a = (np.random.RandomState(0).randn(24, 16384)).astype(np.float32)
    a[:, ::3] = -0.
    at, n = Variable("at", 0, 21), Variable("n", 1, 3)
    for ds,axis in ((devices(2), 0), (devices(5), 0), ((devices(4)[:2], devices(4)[2:]), (0, 1)), ((devices(4)[:2], devices(4)[2:]), (0, 0))):
      for b in (a, a.astype(np.float16), np.tile(a > 0, (1, 8)), (a*1e6).astype(np.int64)):
        x = Tensor(b).shard(ds, axis).realize()
        g = TinyJit(lambda t,v: (t[v].contiguous().realize(), t[v:v+3].contiguous().realize()))
        for v in (4, 21, 0, 11):
          row, rows = g(x, at.bind(v))
          np.testing.assert_array_equal(row.numpy(), b[v])
          np.testing.assert_array_equal(rows.numpy().view(f"u{b.itemsize}"), b[v:v+3].view(f"u{b.itemsize}"))
          np.testing.assert_array_equal(x[at.bind(v):at.bind(v)+n.bind(2)].contiguous()[:2].numpy(), b[v:v+2])

  def test_write(self):
    for a,x in self.placements():
      y, at = x.clone().realize(), Variable("at", 0, len(a)-1)
      for v in {0, len(a)-1}:
        y[at.bind(v):at.bind(v)+1].assign(Tensor.full((1, 4), v+50.).contiguous().shard(y.device, None)).realize()
        a[v] = v+50
      np.testing.assert_equal(y.numpy(), a)

@pytest.mark.needs("placement")
@pytest.mark.skipif(os.getenv("SYMBOLIC_MULTI") != "1", reason="needs the flag")
class TestPrefix(unittest.TestCase):
  """the first rows, as many as a variable says, of what is sharded along them: each device has those of its block"""
  OPS = {
    "softmax": lambda x,v: (x.softmax(0)*x).sum(0), "extremes": lambda x,v: x.max(0)-x.min(), "std": lambda x,v: x.std(0, correction=0),
    "ties": lambda x,v: (x == x.max(0)).sum(0), "gram": lambda x,v: x.T@x, "pairs": lambda x,v: (x*2+1)@x.T,
    "rows less one": lambda x,v: x[1:].sum(0), "from": lambda x,v: x[v-1:].sum(0), "first and last": lambda x,v: x[0]-x[v-1],
    "flip": lambda x,v: (x.flip(0)*x).sum(0), "views": lambda x,v: x.reshape(1, v, 2, 2).permute(0, 2, 1, 3), "flat": lambda x,v: x.reshape(v*4)*2,
    "cat": lambda x,v: x.cat(x[:1]), "stack": lambda x,v: Tensor.stack(x, x*2), "cumsum": lambda x,v: x.cumsum(1),
    "other axis": lambda x,v: x.shard(x.device, 1), "one device": lambda x,v: x.to("CPU:1"), "contiguous": lambda x,v: x.contiguous()-x.max(),
  }
  def each(self):
    for rows in (3, 8):
      for n,mesh,axis in ((2, None, 0), (4, None, 0), (4, 2, (0, 1)), (4, 2, (0, None))):
        a, ds = np.random.RandomState(rows).permutation(rows*4).reshape(rows, 4).astype(np.float32)/8, devices(n)
        yield a, Tensor(a).shard(ds if mesh is None else (ds[:mesh], ds[mesh:]), axis).realize()

  def check(self, name, one, x, a, n):
    # rows of a number that varies can't be read
    def f(t, v): return ((y:=self.OPS[name](t[:v], v)).square()+y).sum()
    g = TinyJit(lambda t,v: f(t, v).realize())
    for v in (len(a)-1, 1, len(a), 2):
      if name == "rows less one" and v == 1: continue
      np.testing.assert_allclose(g(x, n.bind(v)).numpy(), f(one[:v], v).numpy(), rtol=1e-5, atol=1e-5, err_msg=f"{name} of {v} rows, {x.layout()}")

  def test_ops(self):
    for a,x in self.each():
      for k,name in enumerate(self.OPS):
        if len(a) == 8 or k % 3 == 0: self.check(name, Tensor(a).realize(), x, a, Variable("n", 1, len(a)))

  def test_gradient(self):
    for a,x in self.each():
      n = Variable("n", 1, len(a))
      for v in (1, len(a)-1):
        np.testing.assert_equal(x[:n.bind(v)].square().sum().gradient(x)[0].numpy(), np.where(np.arange(len(a))[:, None] < v, 2*a, 0))

  def test_kept(self):
    # what comes out is kept in the devices' blocks
    for a,x in self.each():
      n = Variable("n", 1, len(a)).bind(len(a)-1)
      y = (x[:n]*2).realize()
      self.assertEqual(y.uop.windows, x[:n].uop.windows)
      np.testing.assert_equal((y+x[:n]).sum(0).numpy(), (a*3)[:-1].sum(0))
      np.testing.assert_equal(y[:2].numpy(), a[:2]*2)

  def test_blocks_of_such_a_length(self):
    # rows with rows of the same blocks: all pairs, and not those of one block
    a, h = np.arange(32, dtype=np.float32).reshape(8, 4), Variable("h", 1, 4)
    for v in (1, 3):
      x = Tensor(a)[:h.bind(v)*2].shard(devices(2), 0)
      np.testing.assert_equal((x@x.T).sum().numpy(), (a[:v*2]@a[:v*2].T).sum())

  def test_cache(self):
    # one token after the other attends to those before it, whose keys and values are sharded along the sequence
    S, H, D = 9, 2, 4
    q, k, v = np.random.RandomState(1).randn(3, S, 1, H, 1, D).astype(np.float32)
    for ds in (devices(2), devices(4)):
      keys, vals = [Tensor.zeros(1, H, S, D).contiguous().shard(ds, 2).realize() for _ in range(2)]
      @TinyJit
      def token(q, k, v, at):
        keys[:, :, at:at+1].assign(k)
        vals[:, :, at:at+1].assign(v)
        return ((q@keys[:, :, :at+1].transpose(2, 3)).softmax(-1)@vals[:, :, :at+1]).realize()
      for i in range(S):
        out = token(*[Tensor(t[i]).shard(ds).realize() for t in (q, k, v)], Variable("at", 0, S-1).bind(i))
        e = np.exp(np.einsum("bhqd,sbhkd->bhqs", q[i], k[:i+1]))
        np.testing.assert_allclose(out.numpy(), np.einsum("bhqs,sbhkd->bhqd", e/e.sum(-1, keepdims=True), v[:i+1]), rtol=1e-4, atol=1e-5)

  def test_grouped_queries(self):
    # the heads are sharded, and each of the cache's is read by two: 2*2 and p+1 rows are 4 and p+1
    S, D, at = 8, 4, Variable("at", 0, 7)
    q, c = np.random.RandomState(2).randn(1, 4, 1, D).astype(np.float32), np.random.RandomState(3).randn(1, 2, S, D).astype(np.float32)
    for n in (2, 3):
      for axis in (None, 1, 2):
        x, cache = Tensor(q).shard(devices(n), 1).realize(), Tensor(c).shard(devices(n), axis).realize()
        for i in (0, 4, 7):
          k = cache[:, :, :at.bind(i)+1]
          keys = np.repeat(c[:, :, :i+1], 2, 1)
          e = np.exp(q@keys.transpose(0, 1, 3, 2)/D**0.5)
          out = x.scaled_dot_product_attention(k, k, enable_gqa=True)
          np.testing.assert_allclose(out.numpy(), e/e.sum(-1, keepdims=True)@keys, rtol=1e-4, atol=1e-5)

if __name__ == "__main__": unittest.main()
