# which device holds what, printed: each part is checked against what is in that device's own memory
import contextlib, io, os, unittest
import numpy as np
import pytest
from tinygrad import Context, Tensor, TinyJit, UOp

pytestmark = pytest.mark.needs("layout")
needs_flag = pytest.mark.skipif(os.getenv("SYMBOLIC_MULTI") != "1", reason="needs the flag")

def devices(n): return tuple(f"CPU:{i}" if i else "CPU" for i in range(n))
MESH = (devices(4)[:2], devices(4)[2:])
def rand(*shape): return np.random.RandomState(0).randn(*shape).astype(np.float32)
def where(t): return [p.where for p in t.layout().parts]

class TestLayout(unittest.TestCase):
  @pytest.mark.patch("layout")
  def test_plain(self):
    x = Tensor(rand(8, 2)).shard(devices(4), 0)
    self.assertEqual([(p.device, p.slices, p.shape, p.nbytes) for p in x.layout().parts],
                     [(d, (slice(2*i, 2*i+2), slice(0, 2)), (2, 2), 16) for i,d in enumerate(devices(4))])
    self.assertEqual(str(x.realize().shard_like(x).T.layout()).splitlines()[1:3],
                     ["  CPU    [:, 0:2]  (2, 2)  16 bytes", "  CPU:1  [:, 2:4]  (2, 2)  16 bytes"])
    self.assertEqual(where(x.sum(0)), ["whole"]*4)
  def test_one_device_and_none(self):
    x = Tensor(rand(3)).realize()
    self.assertEqual(str(x.layout()), "(3,) float, whole on CPU\n  CPU  whole  (3,)  12 bytes")
    self.assertIn("not realized", str((x+1).layout()))
    self.assertEqual((Tensor(UOp.const(2.0)).layout().parts, Tensor(UOp.const(2.0)).layout().sharding), ((), "on no device"))
  def test_length_that_varies(self):
    n = UOp.variable("n", 1, 4).bind(2)
    self.assertEqual(where(Tensor.empty(16, 2)[:n*4].shard(devices(4), 0)), ["[0:n, :]", "[n:n*2, :]", "[n*2:n*3, :]", "[n*3:n*4, :]"])
    self.assertIn("[0:n, :]", str(Tensor.empty(16, 2)[:n*4].shard(devices(4), 0).layout()))
  @needs_flag
  def test_uneven(self):
    for x in (y:=Tensor(rand(5)).shard(devices(4), 0), y+1, y.clone().realize()):
      self.assertEqual(where(x), ["[0:2]", "[2:4]", "[4:5]", "empty"])
      self.assertEqual([p.nbytes for p in x.layout().parts], [8, 8, 4, 0])
      self.assertIn("8 bytes of memory on each", str(x.layout()))
      self.assertEqual(rand(5)[x.layout().parts[3].slices].size, 0)
  @needs_flag
  def test_mesh(self):
    x = Tensor(rand(5, 6)).shard(MESH, (0, 1))
    self.assertEqual(where(x), ["[0:3, 0:3]", "[0:3, 3:6]", "[3:5, 0:3]", "[3:5, 3:6]"])
    self.assertEqual(where(Tensor(rand(5, 6)).shard(MESH, (None, 1))), ["[:, 0:3]", "[:, 3:6]"]*2)
  @needs_flag
  def test_is_what_is_in_memory(self):
    y = Tensor(rand(8, 3)).shard(devices(4), 0).realize()
    for name,t in {"plain": y, "uneven": Tensor(rand(7, 3)).shard(devices(3), 0), "flip": y.flip(0), "cut": y[1:6], "padded": y.pad(((1, 2), None)),
                   "rolled": y.roll(3, 0), "reshaped": y.reshape(3, 8), "mesh": y.shard(MESH, (1, 0)), "partial mesh": y.shard(MESH, (None, 0)),
                   "moved": y.T, "whole": y.shard(devices(4)), "strided": y[::2]}.items():
      with self.subTest(name):
        t = (t*2).realize()
        got, parts = t.numpy(), t.layout().parts
        offs = [[p.slices[a].start for a in range(t.ndim)] for p in parts]
        self.assertEqual(len(parts), len(t.device))
        for p,b,begin in zip(parts, t.uop.buffer.bufs, offs):
          if 0 in p.shape: continue
          # a block that reaches past the value has something else before or after it
          held, want = b.numpy().flatten().tolist(), got[p.slices]
          self.assertEqual(want.shape, p.shape)
          if b.size == want.size: np.testing.assert_array_equal(held, want.flatten(), f"{p.device} at {begin}")
          else: self.assertTrue(set(want.flatten().tolist()) <= set(held), f"{p.device} at {begin}")
        full = np.zeros(t.shape, bool)
        for p in parts: full[p.slices] = True
        self.assertTrue(full.all())
  @needs_flag
  def test_says_what_it_is_not(self):
    y = Tensor(rand(8, 2)).shard(devices(4), 0).realize()
    self.assertEqual(where(y[:2]), ["whole", "empty", "empty", "empty"])
    self.assertIn("whole on each once realized", str(y[:2].layout()))
    self.assertEqual(where(y[:2].contiguous().realize()), ["whole"]*4)
    # the memory is there, but the view goes across the devices
    self.assertIn("not realized", str(y.roll(1, 0).layout()))
    self.assertNotIn("not realized", str(y.flip(0).layout()))

class TestRepr(unittest.TestCase):
  @needs_flag
  @pytest.mark.patch("layout")
  def test_sharding(self):
    x = Tensor(rand(8, 2)).shard(devices(4), 0)
    self.assertIn("(axis 0: 2 of 8 from device*2) with grad None", repr(x))
    self.assertIn("(axis 0: 2 of 8 from device*-2+6)", repr(x.flip(0)))
    self.assertIn("(whole on each)", repr(x.sum(0)))
    self.assertIn("(axis 0: 4 of 8 from device//2*4, axis 1: 1 of 2 from device%2)", repr(x.shard(MESH, (0, 1))))
  def test_one_device(self): self.assertIn("on CPU with grad None>", repr(Tensor(rand(3))))

@needs_flag
class TestJitMismatch(unittest.TestCase):
  def test_says_which_and_how(self):
    from tinygrad.engine.jit import JitError
    f = TinyJit(lambda x, y: (x+y).realize())
    def put(axis, rows=8): return Tensor(rand(rows, 4)).shard(devices(4), axis).realize()
    for _ in range(3): f(put(0), y=put(0))
    for args,text in (((put(0), put(1)), r"input y is \(8, 4\) float, axis 1: 1 of 4 from device on .*it was .*axis 0: 2 of 8"),
                      ((put(None), put(0)), r"input 0 is \(8, 4\) float, whole on .*it was .*axis 0"),
                      ((put(0), Tensor(rand(8, 4)).realize()), "input y is .* whole on CPU, it was"),
                      ((put(0, 12), put(0, 12)), r"input 0 is \(12, 4\)")):
      with self.assertRaisesRegex(JitError, text): f(args[0], y=args[1])
    np.testing.assert_allclose(f(put(0), y=put(0)).numpy(), 2*rand(8, 4))

@needs_flag
class TestReport(unittest.TestCase):
  def lines(self, fxn):
    with Context(DEBUG=2, SCACHE=0), contextlib.redirect_stdout(out:=io.StringIO()): fxn().realize()
    return [l[4:].split(" (")[0]+l[l.rindex(":"):] for l in out.getvalue().splitlines() if l.startswith("***") and "bytes received" in l]
  @pytest.mark.patch("layout")
  def test_one_line_each(self):
    # a schedule that is known already says nothing
    w, n = Tensor(rand(256, 256)).realize(), 256*256*4
    x = w.shard(devices(4), 0).realize()
    r = x.shard(devices(4)).contiguous().realize()
    for name,fxn,want in [("broadcast", lambda: w.shard(devices(4)), f"broadcast: {n} bytes received"),
                          ("scatter", lambda: w.shard(devices(4), 0), f"scatter: {n//4} bytes received"),
                          ("mesh", lambda: w.shard(MESH, (0, None)), f"scatter: {n//2} bytes received"),
                          ("allgather", lambda: x.shard(devices(4)).contiguous(), f"gather: {3*n//4} bytes received"),
                          ("gather", lambda: x.to("CPU:1"), f"gather: {3*n//4} bytes received"),
                          ("to another", lambda: x.to("CPU:5"), f"gather: {n} bytes received"),
                          ("exchange", lambda: x.flip(0).shard(devices(4), 0).contiguous(), f"exchange: {n//4} bytes received"),
                          ("copy", lambda: r.to("CPU:5"), f"copy: {n} bytes received"),
                          ("allreduce", lambda: x.sum(0), f"allreduce ADD: {3*256*4} bytes received"),
                          ("along a mesh", lambda: x.shard(MESH, (0, 1)).contiguous().realize().sum(0),
                           f"allreduce ADD of: {128*4} bytes received"),
                          ("reduce-scatter", lambda: x.reshape(4, 64, 256).sum(0).shard(devices(4), 0).contiguous(),
                           f"reduce-scatter: {3*n//16} bytes received")]:
      with self.subTest(name): self.assertEqual(self.lines(fxn)[-1:], [want])
  def test_one_line_in_all(self):
    x = Tensor(rand(8, 2)).realize()
    for fxn,n in ((lambda: x.shard(devices(4), 0), 1), (lambda: x.shard(devices(4)), 1), (lambda: x.shard(devices(4), 0).sum(0), 2),
                  (lambda: x.shard(devices(4)).sum(0), 1), (lambda: x.sum(0), 0)):
      self.assertEqual(len(self.lines(fxn)), n)

if __name__ == "__main__": unittest.main()
