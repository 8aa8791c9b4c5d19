# what reaches scheduling with SYMBOLIC_MULTI=1, and how much there is of it
import os, unittest
import numpy as np
import pytest
from tinygrad import Context, Tensor
from tinygrad.engine.realize import get_call_arg_uops
from tinygrad.schedule import rangeify
from tinygrad.uop.ops import Ops

pytestmark = [pytest.mark.needs("symbolic-multi"), pytest.mark.skipif(os.getenv("SYMBOLIC_MULTI") != "1", reason="needs the flag")]

def devices(n): return ("NULL", *[f"NULL:{i}" for i in range(1, n)])
def sharded(*shape, axis=0, n=4): return Tensor.empty(*shape).shard(devices(n), axis).realize()

@pytest.mark.patch("symbolic-multi")
class TestForm(unittest.TestCase):
  def test_no_old_op_is_left(self):
    seen, rewrite = set(), rangeify.graph_rewrite
    def watch(sink, pm, **kwargs):
      ret = rewrite(sink, pm, **kwargs)
      if kwargs.get("name") in ("multi_pm", "split kernels"): seen.update(u.op for u in ret.toposort())
      return ret
    rangeify.graph_rewrite = watch
    try:
      x, w = sharded(8, 12), sharded(12, 8, axis=1)
      for t in (x @ w, x.sum(0), x.to("NULL"), x+w.T, x.flip(0)+x, x.rand_like()): t.schedule_linear()
    finally: rangeify.graph_rewrite = rewrite
    self.assertIn(Ops.WHERE, seen)
    self.assertFalse({Ops.UNSHARD, Ops.MSELECT, Ops.MSTACK} & seen)
  def test_values(self):
    # what needs no more than the pass itself
    a = np.random.RandomState(0).randn(8, 6).astype(np.float32)
    with Context(DEV="CPU"):
      x = Tensor(a).shard(("CPU", "CPU:1", "CPU:2", "CPU:3"), 0).realize()
      for t,w in ((x.flip(0), a[::-1]), (x.sum(0), a.sum(0)), (x+x.flip(0), a+a[::-1]), (x.T @ x, a.T @ a), (x[2:4]+1, a[2:4]+1)):
        np.testing.assert_allclose(t.numpy(), w, 1e-5, 1e-5)

@pytest.mark.patch("unshard-is-window")
class TestProducers(unittest.TestCase):
  def test_no_old_op_is_built(self):
    x = sharded(8, 4, axis=1, n=2)
    for t in (x, x+1, x.rand_like(), x.empty_like(), x.contiguous()):
      self.assertFalse({Ops.UNSHARD, Ops.MSELECT, Ops.MSTACK} & {u.op for u in t.uop.toposort()})
    self.assertEqual([t.uop.op for t in (x, x.empty_like())], [Ops.PAD]*2)

@pytest.mark.needs("derived-axis")
class TestCounts(unittest.TestCase):
  def count(self, *outs):
    outs = [t for t in outs if not t.uop.has_buffer_identity()]
    linear, _ = outs[0].linear_with_vars(*outs[1:])
    moved = [get_call_arg_uops(c)[0] for c in linear.src if c.src[0].op is Ops.COPY]
    return len(linear.src)-len(moved), len(moved), sum(b.max_numel()*b.dtype.itemsize for b in moved)

  def test_creation_on_two_devices(self):
    x = sharded(8, 4, n=2)
    for name,t,most in (("full_like", x.full_like(3), 4), ("zeros_like", x.zeros_like(), 4),
                        ("clone, replicate", Tensor.ones(8).clone().shard(devices(2)), 1),
                        ("replicate", Tensor.ones(8).clone().realize().shard(devices(2)), 2)):
      kernels, copies, _ = self.count(t.contiguous())
      self.assertLessEqual(kernels+copies, most, name)
  def test_random_numbers_take_a_counter_to_each_device(self):
    # a seed that was scheduled and never run can't be used again
    Tensor.manual_seed(1)
    for n in (2, 4, 8):
      x = sharded(8, 4, n=n)
      # the seed goes to the devices once
      x.rand_like().realize()
      self.assertEqual(self.count(x.rand_like()), (3, n-1, (n-1)*8))
  def test_gather_moves_each_shard_once(self):
    for n in (2, 4, 8):
      # one kernel of each device puts the shards together
      self.assertEqual(self.count(sharded(64, 64, n=n).shard(devices(n)).contiguous()), (1, n*(n-1), n*(n-1)*64*64*4//n))
      self.assertEqual(self.count(sharded(64, 64, n=n).to("NULL").contiguous())[1:], (n-1, (n-1)*64*64*4//n))
  def test_slices_move_what_they_hold(self):
    x = sharded(64, 64)
    self.assertEqual(self.count(x[16:32].contiguous())[1:], (3, 3*16*64*4))
    self.assertEqual(self.count(x[20:24].contiguous())[1:], (3, 3*4*64*4))
    self.assertEqual(self.count(x[:, 3:9].contiguous())[1:], (0, 0))
  def test_nothing_moves(self):
    x, y = sharded(64, 64), sharded(64, 64)
    for t in (x+y, x.flip(1)*2, (x.flip(0)*y.flip(0)).flip(0), x.T.contiguous(), x.reshape(8, 8, 64).sum(2), x[:, ::3]+1,
              x.pad((None, (1, 1)), value=2)):
      self.assertEqual(self.count(t.contiguous())[1:], (0, 0), f"{t.uop.op} {t.shape}")
  @pytest.mark.patch("cat-in-blocks")
  def test_cat_of_all_shards_is_nothing(self):
    for n in (2, 4):
      x = sharded(16*n, 8, n=n)
      self.assertEqual(self.count(Tensor.cat(*[x[i*16:(i+1)*16] for i in range(n)]).contiguous())[1:], (0, 0))
  @pytest.mark.patch("gradient-window")
  def test_gradient_of_the_own_part(self):
    # whole on each device and used sharded: each has its part of the gradient, which moves where it's needed whole
    x, w = Tensor.empty(64, 64).shard(devices(4)).realize(), sharded(64, 64)
    g = (x.shard(devices(4), 0)*w).sum().gradient(x)[0]
    self.assertEqual(self.count((g*w).contiguous())[1:], (0, 0))
    self.assertEqual(self.count(g.shard(devices(4)).contiguous())[1:], (12, 12*16*64*4))
  def test_precompiled_function(self):
    from tinygrad import function
    @function(precompile=True)
    def f(x:Tensor) -> Tensor: return x.sum(0)
    self.assertEqual(self.count(f(sharded(4, 8, 16, n=2)))[1:], (2, 2*8*16*4))

if __name__ == "__main__": unittest.main()
