# what is moved between devices and launched for it, counted on the NULL device: see bench/communication.py for what 0.14.0 needs
import os, unittest
from collections import Counter
from unittest import mock
import pytest
from tinygrad import Tensor, Variable, nn
from tinygrad.device import Buffer
from tinygrad.engine.realize import get_call_arg_uops
from tinygrad.helpers import Context, GlobalCounters, to_tuple
from tinygrad.uop.ops import Ops

pytestmark = [pytest.mark.needs("placement"), pytest.mark.skipif(os.getenv("SYMBOLIC_MULTI") != "1", reason="needs the flag")]

def devices(n): return ("NULL", *[f"NULL:{i}" for i in range(1, n)])
def sharded(*shape, axis=0, n=4): return Tensor.empty(*shape).shard(devices(n), axis).realize()
def counts(*outs):
  """bytes that the busiest device receives, kernels on all devices, copies"""
  if not (outs:=[t for t in outs if not t.uop.has_buffer_identity()]): return 0, 0, 0
  linear, _ = outs[0].linear_with_vars(*outs[1:])
  got, kernels, copies = Counter(), 0, 0
  for call in linear.src:
    dest = get_call_arg_uops(call)[0]
    if call.src[0].op is not Ops.COPY: kernels += len(to_tuple(dest.device))
    else:
      copies += 1
      if get_call_arg_uops(call)[1].device.startswith("NULL"): got[dest.device] += dest.max_numel()*dest.dtype.itemsize
  return max(got.values(), default=0), kernels, copies

S = 2**20*4

class TestLeast(unittest.TestCase):
  """a million floats"""
  def each(self, fxn, want):
    for n in (2, 4, 8):
      with self.subTest(n=n): self.assertEqual(counts(fxn(n)), want(n))
  def test_allgather(self): self.each(lambda n: sharded(1024, 1024, n=n).shard(devices(n)).contiguous(), lambda n: ((n-1)*S//n, n, n*(n-1)))
  def test_gather_to_one(self): self.each(lambda n: sharded(1024, 1024, n=n).to("NULL").contiguous(), lambda n: ((n-1)*S//n, 1, n-1))
  def test_broadcast(self):
    self.each(lambda n: Tensor.empty(1024, 1024).clone().realize().shard(devices(n)).contiguous(), lambda n: (S, 1, n-1))
  def test_all_to_all(self): self.each(lambda n: sharded(1024, 1024, n=n).shard(devices(n), 1).contiguous(), lambda n: ((n-1)*S//n//n, 2*n, n*(n-1)))
  def test_reduce_scatter(self):
    self.each(lambda n: sharded(n, 2**20, n=n).sum(0).shard(devices(n), 0).contiguous(), lambda n: ((n-1)*S//n, 2*n, n*(n-1)))
  def test_roll(self): self.each(lambda n: sharded(1024, 1024, n=n).roll(1, 0).contiguous(), lambda n: (4096, n, n))
  def test_roll_of_columns(self):
    # of the other columns no row is moved
    self.each(lambda n: sharded(1024, 1024, n=n)[:, :512].roll(1, 0).contiguous(), lambda n: (2048, 2*n, n))
  @pytest.mark.patch("scan-in-blocks")
  def test_scan(self):
    # what each block before it comes to is a row
    for name,fxn in (("sum", lambda x: x.cumsum(0)), ("product", lambda x: x.cumprod(0)), ("maximum", lambda x: x.cummax(0)[0])):
      for n in (2, 4, 8):
        with self.subTest(name=name, n=n):
          y = fxn(sharded(1024, 1024, n=n))
          self.assertEqual(y.uop.axis, 0)
          self.assertEqual(counts(y.contiguous())[::2], ((n-1)*4096, n*(n-1)))
  @pytest.mark.patch("cat-in-blocks")
  def test_cat(self):
    # half of the devices have a block of x, and the others of y: the second needs all of its block but what it has of it
    def cat(n): return sharded(1024, 1024, n=n).cat(sharded(1024, 1024, n=n))
    self.each(lambda n: cat(n).contiguous(), lambda n: (2*S//n if n > 2 else S//2, n, 2*(n-1)))
    self.each(lambda n: (cat(n)*2).sum(1), lambda n: (2*S//n if n > 2 else S//2, n, 2*(n-1)))
    x = sharded(1024, 1024, n=8)
    self.assertEqual(counts(Tensor.cat(*[c*2 for c in x.chunk(8)]).contiguous()), (0, 8, 0))
    # a shard to each place
    self.assertEqual(counts(Tensor.cat(*x.chunk(8)[::-1]).contiguous()), (S//8, 8, 8))
  def test_fused_gate(self):
    # two halves of the devices have each a factor of it, all of them multiply
    def gate(n): return (h:=sharded(1024, 1024, axis=1, n=n))[:, :512].silu()*h[:, 512:]
    for n in (2, 4, 8):
      self.assertEqual(counts(gate(n).contiguous())[0], S//n//2 if n == 2 else S//n)
      self.assertEqual(gate(n).uop.axis, 1)
  def test_flip(self): self.each(lambda n: sharded(1024, 1024, n=n).flip(0).shard(devices(n), 0).contiguous(), lambda n: (S//n, n, n))
  def test_halo(self):
    def conv(n): return sharded(1, 4, 256, 64, axis=2, n=n).conv2d(Tensor.empty(4, 4, 3, 3).shard(devices(n)).realize(), padding=1)
    self.each(conv, lambda n: ((1 if n == 2 else 2)*4*64*4, 2*n, 2*(n-1)))
  def test_allgather_of_what_is_computed(self):
    # one kernel each for it, and one to put the own part in its place
    self.each(lambda n: (sharded(1024, 1024, n=n)+1).shard(devices(n)).contiguous(), lambda n: ((n-1)*S//n, 2*n, n*(n-1)))
  def test_gather_of_a_view(self):
    # what is copied is memory, the order comes after
    for n in (2, 4): self.assertEqual(counts(sharded(4096, 64, n=n) @ sharded(64, 64, n=n))[1:], (n, n*(n-1)))
  def test_own_copy(self):
    r = sharded(64, 64).shard(devices(4)).contiguous().realize()
    for d in devices(4): self.assertEqual(counts((r.to(d)+1).contiguous()), (0, 1, 0))
  def test_nothing(self):
    for n in (2, 4, 8):
      x, y = sharded(1024, 1024, n=n), sharded(1024, 1024, n=n)
      for t in (x+y, x.flip(0).contiguous(), x+y.flip(1), (x.flip(0)*y.flip(0)).flip(0), x[8:-8].contiguous(),
                x.shard(devices(n), 0)*2, x.full_like(2), x.clone()):
        self.assertEqual((counts(t)[0], counts(t)[2]), (0, 0), f"{t.uop.op} {t.shape}")
  def test_uneven(self):
    x = sharded(1001, 6)
    self.assertEqual(counts(x.shard(devices(4)).contiguous())[0], (1001-248)*6*4)
    self.assertEqual(counts((x+1).sum(1))[0], 0)
    self.assertEqual(counts(x.shard(devices(2)).contiguous())[0], (1001-251)*6*4)

class TestSteps(unittest.TestCase):
  def step(self, n, axis):
    w = [sharded(1024, 1024, axis=axis, n=n).is_param_() for _ in range(2)]
    opt = nn.optim.SGD(w, lr=0.1)
    with Context(TRAINING=1):
      ((sharded(4096, 1024, n=n) @ w[0]).relu() @ w[1]).square().mean().backward()
      return counts(*opt.schedule_step())[0]
  def test_data_parallel(self):
    for n in (2, 4): self.assertEqual(self.step(n, None), 2*2*(n-1)*S//n)
  def test_fully_sharded(self):
    # both weights gathered, the gradients reduced and scattered
    for n in (2, 4): self.assertEqual(self.step(n, 0), 2*2*(n-1)*S//n)

class TestMadeInPlace(unittest.TestCase):
  def test_counts(self):
    for n in (2, 4):
      for t in (Tensor.zeros(1024, 8), Tensor.ones(1024, 8)*2, Tensor.full((1024, 8), 3)):
        for axis in (0, 1, None): self.assertEqual(counts(t.shard(devices(n), axis).contiguous()), (0, n, 0))
      self.assertEqual(counts(Tensor.empty(1024, 8).shard(devices(n), 0)), (0, 0, 0))
    # the seed and the counter
    self.assertLessEqual(counts(Tensor.rand(1024, 1024).shard(devices(4), 0))[0], 16)

class TestPartialSums(unittest.TestCase):
  """what the devices' terms add up to, of which each wants a part: it gets that part of the others' terms"""
  def test_blocks_of_any_length(self):
    for n,rows in ((3, 9), (4, 10), (4, 1001), (8, 5)):
      x = sharded(n, rows, 7, n=n)
      for axis,y in ((0, x), (1, x.permute(0, 2, 1))):
        # who has no block gets none
        most, kernels, copies = counts(y.sum(0).shard(devices(n), axis).contiguous())
        self.assertEqual((most, copies), ((n-1)*-(-rows//n)*7*4, (n-1)*-(-rows//-(-rows//n))), f"{rows} rows on {n}, axis {axis}")
        self.assertLessEqual(kernels, 3*n)
  def test_along_a_mesh(self):
    for n,m in ((4, 2), (8, 4)):
      mesh = tuple(devices(n)[i:i+m] for i in range(0, n, m))
      y = Tensor.empty(64, 64).shard(mesh, (0, 1)).realize() @ Tensor.empty(64, 64).shard(mesh, (None, 0)).realize()
      for axes in ((0, 0), (0, 1)): self.assertEqual(counts(y.shard(mesh, axes).contiguous()), ((m-1)*64*64*4//n, 3*n, n*(m-1)), axes)
  def test_over_all_of_a_mesh(self):
    mesh, s = (devices(8)[:4], devices(8)[4:]), 512*512*4
    y = sharded(512, 512, axis=1, n=8) @ sharded(512, 512, n=8)
    self.assertEqual(counts(y.shard(mesh, (0, 1)).contiguous()), (7*s//8, 24, 56))
    # those that want the same get an eighth each, and then each other's
    self.assertEqual(counts(y.shard(mesh, (0, None)).contiguous())[0], 7*s//8+3*s//8)
    self.assertEqual(counts(y.shard(mesh, (None, 1)).contiguous())[0], 7*s//8+s//8)
  def test_gradient_of_a_gather(self):
    for n,rows in ((4, 64), (4, 61), (8, 61)):
      x, w = sharded(256, rows, n=n), sharded(rows, 64, n=n)
      for f in (lambda w: w, lambda w: w.shard(devices(n))):
        self.assertEqual(counts(w-(x @ f(w)).square().sum().gradient(w)[0])[0], 2*(n-1)*-(-rows//n)*64*4, f"{rows} on {n}")

@pytest.mark.patch("one-allreduce")
class TestSumsOfAllreduces(unittest.TestCase):
  """what is used several times has one allreduce of what its gradients add up to"""
  def replicated(self, *shape): return Tensor.empty(*shape).shard(devices(4), None).realize()
  # received by naive allreduces of these sizes on 4 devices, and the copies
  def least(self, *sizes): return 3*sum(sizes)*4, len(sizes)*12
  def moved(self, *outs):
    got, _, copies = counts(*outs)
    return got, copies

  def test_recurrent(self):
    w, u, x, h = self.replicated(64, 64), self.replicated(32, 64), sharded(16, 8, 32), Tensor.zeros(16, 64).shard(devices(4), 0)
    for t in range(8): h = (x[:, t]@u+h@w).tanh()
    self.assertEqual(self.moved(*h.sum().gradient(w, u)), self.least(64*64, 32*64))

  def test_tied(self):
    w, x = self.replicated(512, 64), sharded(16, 64)
    grad, = ((x@w.T).log_softmax()@w).sum().gradient(w)
    self.assertEqual(self.moved(w-grad*0.1), self.least(512*64))

  def test_accumulated(self):
    w, grad = self.replicated(64, 64), 0
    for i in range(4): grad = (sharded(16, 64)@w).relu().square().sum().gradient(w)[0]+grad
    self.assertEqual(self.moved(grad), self.least(64*64))
    # in place: what comes out is written once
    acc = self.replicated(64, 64)
    got, kernels, _ = counts(acc.assign(sharded(16, 64).T@sharded(16, 64)+sharded(16, 64).T@sharded(16, 64)))
    self.assertEqual((got, kernels), (3*64*64*4, 8))

  def test_part(self):
    # each device needs a part of the sum: a reduce-scatter, not two
    def outer(): return sharded(64, 64).T@sharded(64, 64)
    self.assertEqual(counts((outer()+outer()+outer()).shard(devices(4), 0).contiguous())[0], 3*64*64)

  def test_read_by_others(self):
    # x is there already, and what's added to it is no part of another sum
    x, y = sharded(64, 64).sum(0), sharded(64, 64).sum(0)
    self.assertEqual(self.moved((x+y).contiguous(), x.exp(), y.exp()), self.least(64, 64))
    # other devices, or another op, is another allreduce
    self.assertEqual(self.moved((sharded(64, 64).sum(0)+sharded(64, 64).max(0)).contiguous()), self.least(64, 64))

class TestMatmuls(unittest.TestCase):
  """of a product that's summed up one of the two is moved, or its sums are: what makes the busiest device receive the least"""
  k = 1024
  def test_placements(self):
    whole = 3*S//4
    # by the axes of x (rows, contracted) and w (contracted, columns): gathered, or an allreduce, twice that
    for (a, b), want in {(0, 0): whole, (0, 1): whole, (0, None): 0, (1, 0): 2*whole, (1, 1): whole, (None, 1): 0}.items():
      with self.subTest(x=a, w=b): self.assertEqual(counts(sharded(1024, 1024, axis=a)@sharded(1024, 1024, axis=b))[0], want)
    # of a large x that's contracted an allreduce of the result would be twice as much
    self.assertEqual(counts(sharded(4096, 1024, axis=1)@sharded(1024, 1024, axis=1))[0], 4*whole)
    # a small batch goes to the weights
    self.assertLess(counts(sharded(16, 1024)@sharded(1024, 1024))[0], 2*16*1024*4*2)

  def test_attention_over_a_sharded_sequence(self):
    q, k, v = [sharded(1, 8, 1024, 32, axis=2) for _ in range(3)]
    # the keys and the values, once
    self.assertEqual(counts(q.scaled_dot_product_attention(k, v))[0], 2*3*8*256*32*4)
    self.assertEqual(q.scaled_dot_product_attention(k, v).uop.axis, 2)

  def test_seen_in_several_shapes(self):
    # K and its transpose
    q, k = sharded(256, 64), sharded(256, 64)
    p = q@k.T
    self.assertEqual(counts(p.contiguous(), (p.exp()@k).contiguous())[0], 3*64*64*4)

@pytest.mark.patch("gradient-kept-like")
class TestGradientOfShards(unittest.TestCase):
  """it's kept as what it's the gradient of"""
  def grads(self, rows=4096):
    w, x = sharded(1024, 1024), sharded(rows, 1024)
    return w, (x@w).square().mean().gradient(w)[0]
  def test_realized(self):
    w, grad = self.grads()
    self.assertEqual(counts(grad)[0], 2*3*S//4)  # gathered, and reduce-scattered
    self.assertEqual(grad.uop.axis, 0)
  def test_clipped(self):
    w, grad = self.grads()
    # the norm is a number of each
    self.assertEqual(counts(w.assign(w-grad*(grad.square().sum()+1).rsqrt()))[0], 2*3*S//4+3*4)
  def test_sequence_parallel(self):
    x, up, down = sharded(1024, 1024), sharded(1024, 1024, axis=1), sharded(1024, 1024)
    y = ((x.shard(devices(4))@up).relu()@down).shard(devices(4), 0)
    # 0.14.0 has 18,874,368
    self.assertLess(counts(*y.square().mean().gradient(up, down))[0], 17_000_000)

class TestMemory(unittest.TestCase):
  def peak(self, fxn, n):
    """the most bytes that a device holds while what fxn gives is computed, what it has before included"""
    used, most, allocate = GlobalCounters.mem_used_per_device, Counter(), Buffer.allocate
    before = {d:used[d] for d in devices(n)}
    def watch(buf, *args, **kwargs):
      ret = allocate(buf, *args, **kwargs)
      most[buf.device] = max(most[buf.device], used[buf.device]-before.get(buf.device, 0))
      return ret
    outs = fxn()
    with mock.patch.object(Buffer, "allocate", watch): Tensor.realize(*outs)
    return max(most.values())
  def made(self, *shape, axis, n): return Tensor.zeros(*shape).shard(devices(n), axis).contiguous().realize()
  def test_contraction(self):
    # the inputs' shares, the terms, the result, and the others' terms of a part, or of all on two. 0.14.0 copies the result once more
    for n in (2, 4, 8):
      most = (2/n+2+(1 if n == 2 else (n-1)/n)+.01)*S
      self.assertLessEqual(self.peak(lambda: [self.made(1024, 1024, axis=1, n=n) @ self.made(1024, 1024, axis=0, n=n)], n), most)
  @pytest.mark.patch("memory-lanes")
  def test_data_parallel_step(self):
    def step(n):
      w = [self.made(1024, 1024, axis=None, n=n).is_param_() for _ in range(2)]
      opt = nn.optim.SGD(w, lr=0.1)
      with Context(TRAINING=1):
        ((self.made(1024, 1024, axis=0, n=n) @ w[0]).relu() @ w[1]).square().mean().backward()
        return opt.schedule_step()
    # 0.14.0: 36 MB on 4 devices
    self.assertLessEqual(self.peak(lambda: step(4), 4), 31.5*2**20)

class TestOtherDevices(unittest.TestCase):
  def on(self, first, n): return tuple(f"NULL:{i}" for i in range(first, first+n))
  def test_each_gets_its_part(self):
    # the bytes of a part, less what is there already
    for n,to,kernels in ((2, self.on(4, 4), 0), (4, self.on(6, 2), 2), (4, devices(4)[::-1], 0), (2, devices(4), 1), (2, self.on(1, 2), 0)):
      x = sharded(1024, 1024, n=n)
      self.assertEqual(counts(x.shard(to, 0).contiguous())[:2], (S//len(to), kernels), f"{n} to {to}")
      self.assertEqual(counts((x+1).shard(to, 0).contiguous())[0], S//len(to))
    self.assertEqual(counts(sharded(1024, 1024, n=2).shard(self.on(4, 4), 1).contiguous())[0], S//4)
  def test_gradient(self):
    # it goes back in the same way
    x, w = sharded(1024, 1024, n=2), Tensor.empty(1024, 1024).shard(to:=self.on(4, 4), 0).realize()
    self.assertEqual(counts((x.shard(to, 0)*w).sum().gradient(x)[0].contiguous())[0], S//2)

class TestMeshes(unittest.TestCase):
  def test_halos(self):
    x = Tensor.empty(1024, 1024).shard(mesh:=(devices(4)[:2], devices(4)[2:]), (0, 1)).realize()
    # a row of the lane's block, a column, and the corner with both
    for t,n in ((x.roll(1, 0), 512), (x.roll(-1, 1), 512), (x.roll((1, 1), (0, 1)), 1025), (x.pad(((1, 0), (0, 1))), 512)):
      self.assertEqual(counts(t.contiguous())[0], n*4)
      self.assertEqual([size for _,_,size in t.uop.windows], [-(-s//2) for s in t.shape])
    w = Tensor.empty(1, 1, 3, 3).shard(devices(4)).realize()
    self.assertEqual(counts(x.reshape(1, 1, 1024, 1024).conv2d(w, padding=1).contiguous())[0], 1025*4)
    # no device has more at a time than its block with its halo, also of what is read many times
    for t in (x.roll((1, 1), (0, 1)), x.reshape(1, 1, 1024, 1024).max_pool2d(3, 1, padding=1)):
      linear, _ = t.contiguous().linear_with_vars()
      self.assertLessEqual(max(u.max_numel() for call in linear.src for u in get_call_arg_uops(call)), 514*514)
    # all along one dimension, nothing along the other
    self.assertEqual(counts(x.reshape(-1).contiguous())[0], 512*512*4)
    y = Tensor.empty(1024, 1024).shard(mesh, (0, None)).realize()
    self.assertEqual(counts(y.roll(1, 0).contiguous())[0], 4096)
  def test_gathered_along_one_dimension(self):
    mesh, s = (devices(4)[:2], devices(4)[2:]), 512*512*4
    for frm,to,least in (((0, 1), (0, None), s//4), ((0, 1), (None, 1), s//4), ((0, 0), (0, None), s//4), ((0, 0), (None, 0), s//2)):
      most, kernels, _ = counts(Tensor.empty(512, 512).shard(mesh, frm).realize().shard(mesh, to).contiguous())
      self.assertEqual(most, least, f"{frm} to {to}")
      self.assertLessEqual(kernels, 8)
  def test_along_one_dimension(self):
    x = Tensor.empty(512, 2048).shard((devices(4)[:2], devices(4)[2:]), (0, 1)).realize()
    # two and two, each with a half of the result
    self.assertEqual(counts(x.sum(0))[0], 1024*4)
    self.assertEqual(counts(x.sum(1))[0], 256*4)
    self.assertEqual(counts(x*2+x.exp())[0], 0)

class TestComputed(unittest.TestCase):
  """what is computed element by element of little is computed where it's wanted"""
  def embedding(self, words, axis, batch):
    w = sharded(words, 512, axis=axis).is_param_()
    e = nn.Embedding(1, 1)
    e.weight, idx = w, Tensor.empty(8, 64, dtype="int").shard(devices(4), batch).realize()
    return w, idx, e
  def test_embedding(self):
    # of the tokens each device has a quarter, and of the vectors all of a quarter of each: 1,536 bytes of tokens, not 65 MB of weights
    for batch in (0, 1):
      w, idx, e = self.embedding(32000, 1, batch)
      self.assertEqual(counts(e(idx))[0], 1536)
      e(idx).square().sum().backward()
      self.assertEqual(counts(w.grad)[0], 1536)
      self.assertEqual(w.grad.uop.axis, 1)
      # a quarter of the words each: the tokens, and an allreduce of the vectors
      w, idx, e = self.embedding(32000, 0, batch)
      self.assertEqual(counts(e(idx))[0], 1536+2*3*8*64*512*4//4)
  def test_cast(self):
    # as halves, which it's stored in
    x = Tensor.empty(1024, 1024, dtype="half").shard(devices(4), 0).realize()
    self.assertEqual(counts(x.float().shard(devices(4)).contiguous())[0], 3*S//2//4)
  def test_of_more(self):
    # the sum of two is less than both
    x, y = sharded(1024, 1024), sharded(1024, 1024)
    self.assertEqual(counts((x+y).shard(devices(4)).contiguous())[0], 3*S//4)

class TestVarying(unittest.TestCase):
  """slices whose place, or length, is a variable's"""
  def test_few_rows(self):
    # an allreduce of them
    x, at = sharded(1024, 1024), Variable("at", 0, 1000).bind(5)
    self.assertEqual(counts(x[at]*2)[0], 3*4096)
    self.assertEqual(counts(x[at:at+8]*2)[0], 8*3*4096)
  def test_prefix(self):
    x, n = sharded(1024, 1024), Variable("n", 1, 1024).bind(5)
    self.assertEqual(counts((x[:n]*2).contiguous())[0], 0)
    self.assertEqual(counts(x[:n].sum(0))[0], 3*4096)
    self.assertEqual(counts(x[n-1:].sum(0))[0], 3*4096)
  def test_cache(self):
    # a token's attention to those before it, their keys and values in blocks of the sequence: allreduces of the largest score and the sum of each
    # head, and of the result
    heads, dim, at = 8, 64, Variable("at", 0, 1023).bind(5)
    keys, vals = [Tensor.zeros(1, heads, 1024, dim).contiguous().realize().shard(devices(4), 2).realize() for _ in range(2)]
    q, k, v = [Tensor.empty(1, heads, 1, dim).shard(devices(4)).realize() for _ in range(3)]
    keys[:, :, at:at+1].assign(k)
    vals[:, :, at:at+1].assign(v)
    got = counts((q@keys[:, :, :at+1].transpose(2, 3)).softmax(-1)@vals[:, :, :at+1])[0]
    self.assertEqual(got, 3*heads*4*(1+1+dim))

if __name__ == "__main__": unittest.main()
