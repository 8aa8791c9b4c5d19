import functools, os, subprocess, sys, unittest
import numpy as np, pytest
from tinygrad import Tensor, TinyJit
from tinygrad.engine.realize import compile_linear, pm_flatten_linear
from tinygrad.helpers import getenv, to_tuple
from tinygrad.runtime.support.hcq2 import pm_insert_copy_staging, sched_hcq_batches
from tinygrad.uop.ops import Ops, graph_rewrite

def with_hcq2(f):
  # HCQ2 is read once, at import: without it the test runs again in a process that has it
  @functools.wraps(f)
  def wrapper(self):
    if getenv("HCQ2"): return f(self)
    ret = subprocess.run([sys.executable, __file__, f"{type(self).__name__}.{f.__name__}"], env={**os.environ, "HCQ2": "1"},
                         capture_output=True, text=True, timeout=600)
    self.assertEqual(ret.returncode, 0, ret.stderr)
  return wrapper

N, STEPS = 384, 4

def full(val, device, axis=None, shape=(N, N)):
  t = Tensor.full(shape, val).contiguous()
  return (t.shard(device, axis) if isinstance(device, tuple) else t.to(device)).realize()

class Slow:
  # a value that takes its device long to compute, and differs from call to call
  def __init__(self, device, axis=None):
    self.x, self.w, self.step, self.calls = full(1., device, axis), full(1., device), full(0., device, shape=(1,)), 0
  def __call__(self):
    self.step.assign(self.step + 1).realize()
    self.calls += 1
    return (self.x @ self.w + self.step).realize(), N + self.calls

@pytest.mark.patch("hcq2-timelines")
class TestBatchWaitsForOtherDevices(unittest.TestCase):
  def check(self, t, want): np.testing.assert_equal(t.numpy(), np.full((N, N), want, np.float32))

  @unittest.skipIf(getenv("HCQ2"), "looks at the schedule before HCQ2 compiles it")
  def test_timelines_of_all_owners(self):
    for src, dst, want in (("CPU", "CPU:1", {("CPU",), ("CPU:1",)}), ("CPU:1", "CPU:2", {("CPU:1",), ("CPU:2",)}), ("CPU:1", "CPU:1", {("CPU:1",)})):
      linear = Tensor.empty(4, device=dst).assign(Tensor.empty(4, device=src).realize().to(dst) + 1).linear_with_vars()[0]
      linear = graph_rewrite(compile_linear(linear), pm_insert_copy_staging+pm_flatten_linear)
      waits = [u.src[0] for u in sched_hcq_batches(linear, False).toposort() if u.op is Ops.INS and u.arg == "wait"]
      self.assertEqual({to_tuple(s.device) for s in waits if s.tag == "timeline_signal"}, want)

  @with_hcq2
  def test_copy_of_an_earlier_batch(self):
    for src, dst in (("CPU", "CPU:1"), ("CPU:1", "CPU"), ("CPU:1", "CPU:2")):
      slow, out = Slow(src), full(-1., dst)
      for _ in range(STEPS):
        x, want = slow()
        out.assign(x.to(dst)).realize()
        self.check(out + 1, want + 1)

  @with_hcq2
  def test_copy_through_a_chain(self):
    for n in (3, 4):
      slow, outs = Slow("CPU"), [full(-1., f"CPU:{i}") for i in range(1, n)]
      for _ in range(STEPS):
        x, want = slow()
        for i, out in enumerate(outs):
          x = out.assign(x.to(out.device)).realize()
          if i == len(outs) - 1: self.check(x, want)

  @with_hcq2
  def test_copy_after_a_call_on_the_own_device(self):
    # the queue has waited for its own device by the time that it comes to another one's memory
    slow, out, local = Slow("CPU"), full(-1., "CPU:1"), Tensor.zeros(4, device="CPU:1").contiguous().realize()
    for i in range(STEPS):
      x, want = slow()
      Tensor.realize(local.assign(local + 1), out.assign(x.to("CPU:1")))
      self.check(out, want)
      np.testing.assert_equal(local.numpy(), np.full(4, i + 1, np.float32))

  @with_hcq2
  def test_two_sources(self):
    slows, outs = (Slow("CPU"), Slow("CPU:1")), (full(-1., "CPU:2"), full(-1., "CPU:2"))
    for _ in range(STEPS):
      (x, want), (y, _) = (slow() for slow in slows)
      Tensor.realize(*(out.assign(t.to("CPU:2")) for out, t in zip(outs, (x, y))))
      self.check(outs[0] + outs[1], want * 2)

  @with_hcq2
  def test_source_written_again(self):
    x, out = full(-1., "CPU"), full(-1., "CPU:1")
    slow = Slow("CPU")
    for _ in range(STEPS):
      v, want = slow()
      x.assign(v).realize()
      out.assign(x.to("CPU:1")).realize()
      x.assign(x * 0).realize()
      self.check(out, want)

  @with_hcq2
  def test_gather(self):
    for n, axis in ((2, 0), (3, 1), (4, 0)):
      devs = tuple(f"CPU:{i}" for i in range(1, n+1))
      slow, out = Slow(devs, axis), full(-1., "CPU")
      for _ in range(2):
        x, want = slow()
        out.assign(x.to("CPU")).realize()
        self.check(out, want)

  @with_hcq2
  def test_scatter(self):
    for n, axis in ((2, None), (3, 0), (4, 1)):
      devs = tuple(f"CPU:{i}" for i in range(1, n+1))
      slow, out = Slow("CPU"), full(-1., devs, axis)
      for _ in range(2):
        x, want = slow()
        out.assign(x.shard(devs, axis)).realize()
        self.check(out, want)

  @with_hcq2
  def test_jit(self):
    copy = TinyJit(lambda t: (t.to("CPU:1") + 1).realize())
    slow = Slow("CPU")
    for _ in range(STEPS + 2):
      x, want = slow()
      self.check(copy(x), want + 1)

  @with_hcq2
  def test_jit_sharded(self):
    for n in (2, 4):
      devs = tuple(f"CPU:{i}" for i in range(1, n+1))
      slow, x, out = Slow(devs, 0), full(-1., devs, 0), full(-1., "CPU")
      gather = TinyJit(lambda: out.assign(x.to("CPU")).realize())
      for _ in range(STEPS):
        v, want = slow()
        x.assign(v).realize()
        gather()
        self.check(out, want)

@pytest.mark.patch("slice-copies")
@unittest.skipUnless(getenv("SYMBOLIC_MULTI"), "slices are copied as they are with the flag")
class TestSliceOfInput(unittest.TestCase):
  @with_hcq2
  def test_jit_that_shards(self):
    @TinyJit
    def f(x): return (x.shard(("CPU", "CPU:1"), 0)*2).contiguous().realize()
    for i in range(5):
      a = np.arange(8, dtype=np.float32)+i
      np.testing.assert_equal(f(Tensor(a).clone().realize()).numpy(), a*2)

if __name__ == "__main__": unittest.main()
