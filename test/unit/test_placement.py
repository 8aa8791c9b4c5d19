# where a tensor is kept: any length on any number of devices, meshes, made in place, moved between placements
import itertools, math, os, unittest
import numpy as np
import pytest
from tinygrad import Context, Tensor, TinyJit, Variable, dtypes, nn
from tinygrad.nn.state import get_state_dict, load_state_dict
from tinygrad.uop.ops import KernelInfo, UOp

pytestmark = [pytest.mark.needs("placement"), pytest.mark.skipif(os.getenv("SYMBOLIC_MULTI") != "1", reason="needs the flag")]

def devices(n): return tuple(f"CPU:{i}" if i else "CPU" for i in range(n))
MESHES = {(2, 2): (devices(4)[:2], devices(4)[2:]), (3, 2): tuple(devices(6)[2*i:2*i+2] for i in range(3))}
def rand(*shape, seed=0): return np.random.RandomState(seed).randn(*shape).astype(np.float32)
def sizes(t): return [b.size for b in t.uop.buffer.bufs]
def softmax(a, axis): return (e:=np.exp(a-a.max(axis, keepdims=True)))/e.sum(axis, keepdims=True)

# name: (of a tensor, of an array)
PROGRAMS = {
  "whole": (lambda x: x, lambda a: a), "plus one": (lambda x: (x+1).realize()*2, lambda a: (a+1)*2), "sum": (lambda x: x.sum(), lambda a: a.sum()),
  "sum 0": (lambda x: x.sum(0), lambda a: a.sum(0)), "max 1": (lambda x: x.max(1), lambda a: a.max(1)),
  "mean 0": (lambda x: x.mean(0), lambda a: a.mean(0)),
  "softmax": (lambda x: x.softmax(0), lambda a: softmax(a, 0)), "transpose": (lambda x: x.T.contiguous(), lambda a: a.T),
  "flip": (lambda x: x.flip(0).realize()+x, lambda a: a[::-1]+a), "from the second": (lambda x: x[1:], lambda a: a[1:]),
  "last": (lambda x: x[-1], lambda a: a[-1]),
  "twice": (lambda x: x.cat(x), lambda a: np.concatenate([a, a])), "flat": (lambda x: x.reshape(-1)+1, lambda a: a.reshape(-1)+1),
  "padded": (lambda x: x.pad(((1, 2), (0, 1)), value=3), lambda a: np.pad(a, ((1, 2), (0, 1)), constant_values=3)),
  "running sum": (lambda x: x.cumsum(0), lambda a: a.cumsum(0)), "rolled": (lambda x: x.roll(1, 0)*x, lambda a: np.roll(a, 1, 0)*a),
  "with itself": (lambda x: x.T @ x, lambda a: a.T @ a), "sorted": (lambda x: x.sort(0)[0], lambda a: np.sort(a, 0)),
}

class Placement(unittest.TestCase):
  def same(self, t, want, msg=""): np.testing.assert_allclose(t.numpy(), want, 1e-4, 1e-4, err_msg=msg)
  def programs(self, place, a, **where):
    for name,(fxn,ref) in PROGRAMS.items():
      with self.subTest(name, **where): self.same(fxn(place(a)), ref(a), name)

class TestUneven(Placement):
  def test_programs(self):
    for n,rows in ((2, 1), (3, 2), (4, 7), (3, 10)):
      self.programs(lambda a: Tensor(a).shard(devices(n), 0).realize(), rand(rows, 4), n=n, rows=rows)
    self.programs(lambda a: Tensor(a).shard(devices(4), 1), rand(4, 6), n=4, axis=1)
  @pytest.mark.patch("placement")
  def test_blocks(self):
    for n,rows in ((2, 5), (3, 10), (4, 9), (4, 2), (8, 3)):
      x = Tensor(a:=rand(rows, 3)).shard(devices(n), 0).realize()
      for y in (x, (x+1).realize(), x.exp().realize(), x.zeros_like().realize(), x.clone().realize()):
        self.assertEqual((y.uop.axis, sizes(y)), (0, [math.ceil(rows/n)*3]*n))
      block = math.ceil(rows/n)
      for i,b in enumerate(x.uop.buffer.bufs):
        np.testing.assert_equal(b.numpy().reshape(block, 3)[:max(0, min(block, rows-i*block))], a[i*block:(i+1)*block])
  def test_mixed(self):
    a, b = rand(7, 5), rand(5, 9, seed=1)
    for p,q in itertools.product((0, 1, None), repeat=2):
      self.same(Tensor(a).shard(devices(4), p) @ Tensor(b).shard(devices(4), q), a @ b, f"{p} by {q}")
      self.same(Tensor(a).shard(devices(4), p)+Tensor(a).shard(devices(4), q).realize(), 2*a, f"{p} plus {q}")
  def test_writes(self):
    x, w = Tensor(a:=rand(7, 3)).shard(devices(4), 0).realize(), a.copy()
    x[3:] = 5
    w[3:] = 5
    x[::2] += 1
    w[::2] += 1
    self.same(x, w)
    x.assign(x*2+1).realize()
    self.same(x, w*2+1)
  def test_jit(self):
    f, step = TinyJit(lambda x: (x.softmax(0).sum(1)+x[-1, 0]).realize()), TinyJit(lambda buf, new: buf[new.shape[0]:].cat(new).realize())
    buf, want = Tensor.zeros(7, 3).shard(devices(3), 0).realize(), np.zeros((7, 3), np.float32)
    for i in range(5):
      self.same(f(Tensor(a:=rand(7, 4, seed=i)).shard(devices(3), 0).realize()), softmax(a, 0).sum(1)+a[-1, 0], f"call {i}")
      buf = step(buf, Tensor(new:=rand(2, 3, seed=i)).shard(devices(3), 0).realize())
      want = np.concatenate([want[2:], new])
      self.same(buf, want, f"call {i}")
  def test_batches_of_changing_size(self):
    w = Tensor(rand(4, 3)).shard(devices(4)).realize()
    for rows in (8, 5, 3, 8, 1): self.same(Tensor(a:=rand(rows, 4, seed=rows)).shard(devices(4), 0) @ w, a @ rand(4, 3), f"{rows} rows")
  def test_training(self):
    def train(place, opt):
      Tensor.manual_seed(3)
      m = [nn.Linear(6, 7), Tensor.relu, nn.LayerNorm(7), nn.Linear(7, 5)]
      for p in nn.state.get_parameters(m): place(p, 0)
      opt = opt(nn.state.get_parameters(m), lr=0.01)
      losses = []
      with Context(TRAINING=1):
        for i in range(4):
          x = place(Tensor(rand(9, 6, seed=i)), 0)
          opt.zero_grad()
          losses.append(x.sequential(m).square().mean().backward())
          opt.step()
      return [l.item() for l in losses], m
    for opt in (nn.optim.Adam, lambda ps, lr: nn.optim.SGD(ps, lr=lr, momentum=0.9)):
      got, m = train(lambda t,ax: t.shard_(devices(4), ax).realize(), opt)
      np.testing.assert_allclose(got, train(lambda t,ax: t.realize(), opt)[0], 1e-4)
      self.assertEqual((m[0].weight.uop.axis, sizes(m[0].weight)), (0, [12]*4))
  def test_nothing_is_lost_by_a_bad_input(self):
    x = Tensor(a:=rand(6, 2)).shard(devices(3), 0).realize()
    with self.assertRaisesRegex(RuntimeError, r"\(6, 2\).*named twice"): x.shard(("CPU", "CPU", "CPU:1"), 0)
    with self.assertRaisesRegex(RuntimeError, r"\(6, 2\).*2 by 2.*\(0,\)"): x.shard(MESHES[2, 2], (0,))
    with self.assertRaisesRegex(RuntimeError, r"as long everywhere"): x.shard((("CPU",), ("CPU:1", "CPU:2")), (0, 1))
    with self.assertRaisesRegex(IndexError, r"\(6, 2\).*CPU:2.*axis 2.*0 to 1"): x.shard(devices(3), 2)
    with self.assertRaisesRegex(IndexError, r"\(6, 2\).*axis \(0, 5\)"): x.shard(MESHES[2, 2], (0, 5))
    with self.assertRaisesRegex(TypeError, r"\(6, 2\).*axis '0'.*a number"): x.shard(devices(3), "0")
    with self.assertRaisesRegex(TypeError, r"axis 1\.0.*a number"): x.shard(devices(3), 1.0)
    for ds in (None, (0, 1)):
      with self.assertRaisesRegex(RuntimeError, r"\(6, 2\).*names"): x.shard(ds, 0)
    with self.assertRaisesRegex(RuntimeError, r"\(6, 2\).*mesh"): x.shard(devices(4), (0, 1))
    with self.assertRaisesRegex(RuntimeError, r"\(3,\).*\(3, 3\).*no axis 1"): Tensor(rand(3)).shard_like(Tensor(rand(3, 3)).shard(devices(3), 1))
    n = Variable("n", 1, 8)
    with self.assertRaisesRegex(RuntimeError, r"axis 0 of \(n, 2\).*3 blocks"): Tensor(rand(8, 2))[:n.bind(5)].shard(devices(3), 0)
    with self.assertRaisesRegex(RuntimeError, r"\(6, 2\).*\.to or \.shard"): Tensor(rand(6, 2)).realize().assign(x.shard(devices(3), 0))
    # the name of one device isn't a tuple of letters
    self.assertEqual(x.shard("CPU:1", 0).device, "CPU:1")
    self.same(x, a)

  def test_write_of_what_one_device_has(self):
    x, v = Tensor(a:=rand(2, 1, 2)).shard(devices(2), 0).realize().clone(), Tensor(b:=rand(1, 1, 2, seed=1)).shard(devices(2), 0).realize()
    x[0:1, ::-1] += v
    self.same(x, np.concatenate((a[:1]+b, a[1:])))
  def test_one_row_moved_again(self):
    # one device has it, of whichever axis its place is told
    a = rand(1, 4, 8)
    x = Tensor(a).shard(devices(2), 0).realize()
    (c:=x.clone().realize())[0:1:2] += x
    np.testing.assert_allclose(c.shard(devices(2), 0).numpy(), 2*a)
  def test_gradient(self):
    # of what is cut in blocks on the way, the last ones short or empty
    a, w = rand(25, 11), rand(25, 11, seed=1)
    for D,ax in ((devices(4), 0), (devices(4), 1), (devices(8), 1), (MESHES[2, 2], (1, 0)), (MESHES[3, 2], (0, 1))):
      for way in (lambda x: x, lambda x: x.shard(sum(D, ()) if isinstance(D[0], tuple) else D)):
        x = Tensor(a)
        self.same((way(x).shard(D, ax).square()*Tensor(w).shard(D, ax)).sum().gradient(x)[0], 2*a*w, f"{D} {ax}")
  def test_pad_modes(self):
    for n,L,p in ((2, 8, (1, 3)), (4, 8, (3, 3)), (2, 4, (3, 3)), (8, 8, (7, 7)), (4, 5, (4, 1))):
      for mode,name in (("reflect", "reflect"), ("circular", "wrap"), ("replicate", "edge")):
        want = np.pad(a:=rand(3, L), ((0, 0), p), mode=name)
        for x in (x:=Tensor(a).shard(devices(n), 1), x.clone().realize()): self.same(x.pad((None, p), mode=mode)+1, want+1, f"{mode} {n} {L} {p}")

class TestOneElement(Placement):
  # a block of one element is a block of every axis of length 1: what is gathered of it has the lane's, not what lies there on another
  def on_each(self, t, want):
    t = t.shard(t.device).contiguous().realize()
    for b in t.uop.buffer.bufs: np.testing.assert_array_equal(b.numpy().reshape(t.shape), want)
  def test_repeated(self):
    for n in (2, 3): self.on_each(Tensor(rand(1)).shard(devices(n), 0).realize().repeat_interleave(2, 0), np.repeat(rand(1), 2))
    x = Tensor(rand(3, 1, 4, 3)).shard(MESHES[2, 2], (2, 2)).realize()
    self.on_each(x.repeat_interleave(2, 2).reshape(24, 3), np.repeat(rand(3, 1, 4, 3), 2, 2).reshape(24, 3))
  def test_written(self):
    x, i = Tensor(rand(1, 6)).shard(devices(2), None).clone().realize(), Tensor(np.array([4])).shard(devices(2), 0)
    x[0:1:3, i] = -3
    (want:=rand(1, 6))[:, 4] = -3
    self.same(x, want)
    y, v = Tensor(rand(6, 3, 2)).shard(devices(2), 0).realize().reshape(18, 2).contiguous().realize(), rand(18, 2, seed=1)
    y[:, [1, 0]] = Tensor(v).shard(devices(2), 1)
    self.same(y, v[:, ::-1])

class TestConstantGradient(Placement):
  # the gradient of a sum is no buffer's, on a device by its number alone
  def test_uneven(self):
    for shape,axis in (((5, 2), 0), ((3,), 0), ((4, 3), 1), ((4, 4), 1)):
      for by in (0.5, Tensor(np.full((), 0.5, np.float32)).shard(devices(2)).realize()):
        x = Tensor(rand(*shape)).shard(devices(2), None).realize()
        self.same((x.shard(devices(2), axis).sum()*by).gradient(x)[0], np.full(shape, 0.5))
  def test_meshes(self):
    for axes in ((1, None), (1, 1), (0, 1)):
      for x in (Tensor(rand(8, 4)).shard(devices(2), None).realize(), Tensor(rand(8, 4)).realize()):
        g = (x.shard(MESHES[2, 2], axes).sum()*1.5).gradient(x)[0]
        self.same(g.contiguous().realize(), np.full((8, 4), 1.5))
  def test_one_device_along_a_dimension(self):
    for mesh,axes in (((devices(2),), (1, 0)), ((("CPU",), ("CPU:1",)), (0, 1)), ((("CPU",),), (0, 1))):
      x = Tensor(rand(4, 3)).realize()
      y = x.shard(mesh, axes)
      # on several it's there already
      if isinstance(y.device, tuple): self.assertIs(y.shard(mesh, axes).uop, y.uop)
      self.same(y.roll(1, 0).contiguous(), np.roll(rand(4, 3), 1, 0))
      self.same(y.sum().gradient(x)[0], np.ones((4, 3)))

class TestMadeAndAssigned(Placement):
  # what was read from a value before it was assigned to stays what it was, as it does on one device
  MADE = {"uniform": lambda: Tensor.uniform(4, 6, low=1, high=2), "randn": lambda: Tensor.randn(4, 6), "ones": lambda: Tensor.ones(4, 6)+0,
          "weights": lambda: Tensor.kaiming_uniform(4, 6), "in a buffer": lambda: Tensor.ones(4, 6).contiguous()}
  def test_read_before(self):
    for name,make in self.MADE.items():
      for axis in (0, 1, None):
        for read in (lambda w: w*1, lambda w: w.sum(0), lambda w: w.T+w.sum(), lambda w: w.flip(0)+w):
          with self.subTest(name, axis=axis):
            got = []
            for put in (lambda t: t, lambda t: t.shard(devices(2), axis)):
              Tensor.manual_seed(5)
              was = read(w:=put(make()))
              w.assign(w*3+1).realize()
              w += 1
              got.append((was.numpy(), w.numpy()))
            for one,two in zip(*got): np.testing.assert_allclose(two, one, rtol=1e-5)
  def test_loss_of_the_first_step(self):
    got = []
    for put in (lambda t, ax: t, lambda t, ax: t.shard(devices(2), ax)):
      Tensor.manual_seed(5)
      w, x = put(Tensor.uniform(4, 6, low=-1, high=1), 0).is_param_(), put(Tensor(rand(3, 4)), None)
      with Context(TRAINING=1):
        opt = nn.optim.SGD([w], lr=0.1)
        (loss:=(x@w).square().mean()).backward()
        opt.step()
      got.append((loss.numpy(), w.numpy()))
    for one,two in zip(*got): np.testing.assert_allclose(two, one, rtol=1e-5)

@pytest.mark.patch("gradient-kept-like")
class TestGradientKept(Placement):
  def test_kept_like(self):
    a, b = rand(7, 6), rand(6, 5, seed=1)
    ref = Tensor(a), Tensor(b)
    want = [g.numpy() for g in (ref[0]@ref[1]).square().sum().gradient(*ref)]
    for ds,x_axis,w_axis in ((devices(4), 0, 0), (devices(3), 1, 1), (devices(4), None, 0), (MESHES[2, 2], (0, 1), (1, None)),
                             (MESHES[3, 2], (None, 0), (0, 0))):
      with self.subTest(x=x_axis, w=w_axis):
        x, w = Tensor(a).shard(ds, x_axis).realize(), Tensor(b).shard(ds, w_axis).realize()
        for lazy in (False, True):
          got = (x@w).square().sum().gradient(x, w)
          for g,t,r in zip(got, (x, w), want):
            if t.uop.windows: self.assertEqual(g.uop.windows, t.uop.windows)
            np.testing.assert_allclose((g+0 if lazy else g.realize()).numpy(), r, rtol=1e-4, atol=1e-4)
        # and again: a gradient of a gradient
        gx, = (x@w).square().sum().gradient(x)
        np.testing.assert_allclose(gx.square().sum().gradient(x)[0].numpy(), 8*(a@b@b.T)@b@b.T, rtol=1e-3, atol=1e-2)

class TestReshard(Placement):
  def test_to_any(self):
    a = rand(7, 6)
    ways = [(devices(4), 0), (devices(4), 1), (devices(4), None), (devices(3), 0), (MESHES[2, 2], (0, 1)),
            (MESHES[2, 2], (None, 0)), (devices(4)[::-1], 0)]
    for frm,to in itertools.permutations(ways, 2):
      x = Tensor(a).shard(*frm).realize()
      self.same(x.shard(*to).realize(), a, f"{frm} to {to}")
      self.same(x.shard(*to)+1, a+1, f"{frm} to {to}, lazy")
  def test_same_is_nothing(self):
    x = Tensor(rand(7, 6)).shard(devices(4), 0)
    self.assertIs(x.shard(devices(4), 0).uop, x.uop)
  def test_gradient(self):
    a, w = rand(7, 6), rand(7, 6, seed=1)
    for frm,to in ((0, 1), (1, 0), (0, None), (None, 0), (None, 1)):
      x = Tensor(a).shard(devices(4), frm).realize()
      y = x.shard(devices(4), to)
      self.same((y.square()*Tensor(w).shard(devices(4))).sum().gradient(x)[0], 2*a*w, f"{frm} to {to}")
  def test_in_several_places(self):
    # what's gathered lands in each of its places, the own part too
    D, a, b = MESHES[2, 2], rand(2, 1, 1, 5), rand(2, 1, 1, 5, seed=1)
    x, y = Tensor(a).shard(D, (0, 1)).realize(), Tensor(b).shard(D, (0, 1)).realize()
    for t,w in ((Tensor.cat(x.shard(D, 1), x, x.shard(D, 1), dim=2), (a, a, a)), (Tensor.cat(x.shard(D), y.shard(D), x.shard(D), dim=2), (a, b, a))):
      t, w = t.realize(), np.concatenate(w, 2)
      self.same(t, w)
      # each device has it
      for d in devices(4): self.same(t.to(d), w)
  def test_partial_sums(self):
    # a sum over the devices of which each needs a part
    for n,rows,axis in ((4, 8, 0), (4, 8, 1), (3, 7, 0), (3, 7, 1)):
      x = Tensor(a:=rand(n, rows, 12)).shard(devices(n), 0).realize()
      y = x.sum(0).shard(devices(n), axis).realize()
      self.assertEqual(y.uop.axis, axis)
      self.same(y, a.sum(0), f"{n} {rows} {axis}")
      self.same((x.max(0)*2+1).shard(devices(n), axis), a.max(0)*2+1, f"max {n} {rows} {axis}")
  def test_stays_distributed(self):
    x = Tensor(a:=rand(12, 8)).shard(devices(4), 0).realize()
    for y,w in ((x.flip(0), a[::-1]), (x[1:9], a[1:9]), (x+x.flip(0), a+a[::-1]), (x.flip(0).T, a[::-1].T),
                (x.pad(((2, 1), None)), np.pad(a, ((2, 1), (0, 0))))):
      y = (y*1.5).realize()
      self.assertLess(max(sizes(y)), w.size)
      self.same(y+1, w*1.5+1)
      y[2:5] = 7
      w = w*1.5
      w[2:5] = 7
      self.same(y, w)

class TestWritesToWhatIsMoved(Placement):
  """what is placed anew is a value of its own: a write reaches it, and not what it was made of"""
  PLACES = ((None, 0), (0, 1), (1, 0), (0, None), (1, None))
  def each(self, *writes):
    for was,to in self.PLACES:
      for n in (2, 3):
        for write in writes:
          with self.subTest(was=was, to=to, n=n, write=write.__name__):
            a = rand(5, 4)
            x = Tensor(a).shard(devices(n), was).realize()
            y, want = x.shard(devices(n), to), a.copy()
            write(y)
            write(want)
            self.same(y, want)
            self.same(x, a)
            for d in devices(n): self.same(x.to(d), a)
            self.assertEqual(y.uop.axis, to)
  def test_setitem(self):
    def row(y): y[1] = -1
    def block(y): y[1:4, 1:3] = 5
    def every(y): y[:] = 3
    def twice(y):
      y[0, 0:2] = -1
      y[2:4, 3:4] = -2
    def more(y): y[1:3] += 2
    self.each(row, block, every, twice, more)
  def test_assign(self):
    for was,to in self.PLACES:
      with self.subTest(was=was, to=to):
        x = Tensor(rand(5, 4)).shard(devices(3), was).realize()
        y = x.shard(devices(3), to)
        y.assign(y*2+1).realize()
        self.same(y, rand(5, 4)*2+1)
        for d in devices(3): self.same(x.to(d), rand(5, 4))
  def test_on_a_mesh(self):
    for was,to in (((0, 0), (0, 1)), ((1, None), (0, 0)), ((0, 1), (1, 0)), ((None, None), (0, 1))):
      with self.subTest(was=was, to=to):
        x = Tensor(rand(4, 4)).shard(MESHES[2, 2], was).realize()
        y, want = x.shard(MESHES[2, 2], to), rand(4, 4)
        y[1:3, 2] = 7
        want[1:3, 2] = 7
        self.same(y, want)
        self.same(x, rand(4, 4))
  def test_optimizer(self):
    # a weight that is sharded anew, and not realized
    w = Tensor(rand(6, 4)).shard(devices(3), None).realize()
    v = w.shard(devices(3), 0).is_param_()
    with Context(TRAINING=1):
      (v*v).sum().backward()
      nn.optim.SGD([v], lr=0.25).step()
    self.same(v, rand(6, 4)*0.5)
    self.same(w, rand(6, 4))
  def test_where_it_is_kept(self):
    # nothing is copied for a write to a tensor's own memory
    for place in ((devices(3), 0), (MESHES[2, 2], (0, 1)), (MESHES[2, 2], (1, None))):
      x = Tensor(rand(6, 4)).shard(*place).realize()
      same = x.uop.base
      x.assign(x+1).realize()
      x[1] = 2
      x.realize()
      self.assertIs(x.uop.base, same)

class TestMeshes(Placement):
  def test_moved_to_other_devices(self):
    for rows in (8, 7, 3, 1):
      a = rand(rows, 6, seed=rows)
      for frm,to in itertools.permutations((devices(2), devices(4), devices(6)[3:], devices(4)[::-1]), 2):
        for p,q in ((0, 0), (0, 1), (1, 0)):
          x = Tensor(a).shard(frm, p).realize()
          self.same((x*2).shard(to, q).contiguous().realize(), 2*a)
          self.same(((x*x).shard(to, q)*Tensor(a).shard(to, q)).sum().gradient(x)[0], 2*a*a)
    x = Tensor(a:=rand(8, 6)).shard(MESHES[2, 2], (0, 1)).realize()
    for axes in ((0, 1), (1, 0), (0, None), (0, 0)): self.same(x.shard((devices(8)[4:6], devices(8)[6:]), axes).contiguous(), a)
    f = TinyJit(lambda x: (x+1).shard(devices(5)[2:], 0).contiguous().realize())
    for i in range(4): self.same(f(Tensor(a*i).shard(devices(2), 0).realize()), a*i+1)
  def test_moved(self):
    D, a = MESHES[2, 2], rand(7, 6)
    blocks = {0: (4, 2), 1: (3, 2)}
    for frm,to in itertools.permutations(((0, 1), (1, 0), (0, None), (None, 0), (None, 1), (0, 0), (None, None)), 2):
      y = Tensor(a).shard(D, frm).realize().shard(D, to)
      at = {ax:blocks[ax][to.count(ax)-1] if ax in to else s for ax,s in enumerate(a.shape)}
      self.assertEqual(sizes(y.contiguous().realize()), [math.prod(at.values())]*4, f"{frm} to {to}")
      self.same(y+1, a+1, f"{frm} to {to}")
  def test_same_bits(self):
    # what several devices compute alike they compute in the same order
    for D,n in ((MESHES[3, 2], 6), (MESHES[2, 2], 4)):
      x, w = Tensor(rand(12, 48)*1e3).shard(D, 0).realize(), Tensor(rand(48, 48, seed=1)).shard(D, (1, 0)).realize()
      for y in (x.sum(0), (x.T @ x).shard(D, (0, None)), (w.T @ w).shard(D, (None, 0)), x.T @ x, w.sum(0), w.sum(1)):
        y = y.contiguous().realize()
        lanes = [b.numpy() for b in (y.uop.src[0] if y.uop.windows else y.uop).buffer.bufs]
        offsets = [str([o.substitute({r:r.const_like(i) for r in o.ranges}).simplify() for _,o,_ in y.uop.windows]) for i in range(n)]
        for i,j in itertools.combinations(range(n), 2):
          if offsets[i] == offsets[j]: np.testing.assert_array_equal(lanes[i], lanes[j])
  def test_programs(self):
    for m,ax,shape in (((2, 2), (0, 1), (7, 5)), ((2, 2), (None, 0), (7, 5)), ((3, 2), (1, 0), (6, 8)), ((2, 2), (0, 0), (9, 4))):
      self.programs(lambda a: Tensor(a).shard(MESHES[m], ax).realize(), rand(*shape), mesh=m, axes=ax, shape=shape)
  def test_memory(self):
    self.assertEqual(sizes(Tensor(rand(8, 6)).shard(MESHES[2, 2], (0, 1)).realize()), [12]*4)
    self.assertEqual(sizes(Tensor(rand(8, 6)).shard(MESHES[2, 2], (None, 1)).realize()), [24]*4)
    self.assertEqual(sizes((Tensor(rand(8, 6)).shard(MESHES[3, 2], (0, 1))+1).realize()), [9]*6)
  def test_matmul(self):
    a, b = rand(6, 8), rand(8, 5, seed=1)
    for D in MESHES.values():
      for p,q in itertools.product(((0, 1), (None, 1), (0, None)), ((0, 1), (1, 0), (None, 0))):
        self.same(Tensor(a).shard(D, p) @ Tensor(b).shard(D, q), a @ b, f"{p} by {q}")
  def test_gradient_and_jit(self):
    D, w = MESHES[2, 2], rand(6, 8, seed=5)
    step = TinyJit(lambda x: x.matmul(x.T).square().sum().gradient(x)[0].realize())
    for i in range(4):
      one = Tensor(a:=rand(6, 8, seed=i))
      self.same(step(Tensor(a).shard(D, (0, 1)).realize()), one.matmul(one.T).square().sum().gradient(one)[0].numpy(), f"call {i}")
    x = Tensor(a).shard(D, (1, None)).realize()
    self.same((x.exp()*Tensor(w).shard(D, (0, 1))).sum().gradient(x)[0], np.exp(a)*w)

class TestMadeInPlace(Placement):
  MAKE = {
    "zeros": lambda: Tensor.zeros(10, 6), "full, reshaped": lambda: Tensor.full((10, 6), 3).reshape(6, 10),
    "ones, times": lambda: Tensor.ones(8, 6)*2+1,
    "rand": lambda: Tensor.rand(10, 6), "randn": lambda: Tensor.randn(8, 6), "uniform": lambda: Tensor.kaiming_uniform(8, 6),
    "randint": lambda: Tensor.randint(9, 6, high=10),
    "half": lambda: Tensor.rand(7, 6, dtype=dtypes.half), "cast": lambda: Tensor.zeros(8, 6, dtype=dtypes.int).cast(dtypes.float),
    "data": lambda: Tensor(rand(8, 6)),
  }
  def test_values(self):
    for (name,make),axis in itertools.product(self.MAKE.items(), (0, 1, None)):
      Tensor.manual_seed(7)
      want = make().numpy()
      Tensor.manual_seed(7)
      x = make().shard(devices(4), axis)
      self.assertEqual((x.uop.axis, x.realize().uop.axis, x.dtype.itemsize), (axis, axis, want.itemsize), name)
      np.testing.assert_array_equal(x.numpy(), want, name)
  @pytest.mark.patch("placement")
  def test_the_first_is_left_alone(self):
    x = Tensor.zeros(8, 2)
    y = x.shard(devices(4), 0)
    y += 1
    x += 2
    self.same(y, np.ones((8, 2)))
    self.same(x, np.full((8, 2), 2))
    z = x.shard(devices(4), 0)
    self.same(z, np.full((8, 2), 2))
  def test_random_like_one_device(self):
    for rows,axis in ((8, 0), (5, 0), (8, 1)):
      def draw(x):
        Tensor.manual_seed(42)
        with Context(TRAINING=1): return [t.numpy() for t in (x.rand_like(), x.rand_like(), x.randn_like(), (x+1).dropout(0.5), Tensor.rand(3))]
      x = Tensor(rand(rows, 16)).realize()
      y = x.shard(devices(4), axis).realize()
      for i,(got,want) in enumerate(zip(draw(y), draw(x))): np.testing.assert_allclose(got, want, 1e-5, 1e-5, err_msg=f"{rows} {axis} {i}")
      self.assertEqual(y.rand_like().uop.axis, axis)
  def test_random_in_the_jit(self):
    def run(x):
      Tensor.manual_seed(3)
      f = TinyJit(lambda z: (z+z.rand_like()).realize())
      return [f(x).numpy() for _ in range(4)]
    x = Tensor(rand(5, 4)).realize()
    np.testing.assert_allclose(run(x.shard(devices(3), 0).realize()), run(x), 1e-5)

class TestLoad(Placement):
  def test_the_model_keeps_its_placement(self):
    a = {"weight": rand(7, 6), "bias": rand(7)}
    for own,theirs in itertools.product((0, 1, None, "mesh", "one"), repeat=2):
      def place(t, ax):
        ax = ax if ax != 1 or t.ndim > 1 else 0
        return t if ax == "one" else t.shard(MESHES[2, 2], (None, 0)) if ax == "mesh" else t.shard(devices(4), ax)
      m = nn.Linear(6, 7)
      for p in get_state_dict(m).values(): p.replace(place(p, own).contiguous().realize())
      before = {k:(t.device, t.uop.windows) for k,t in get_state_dict(m).items()}
      load_state_dict(m, {k:place(Tensor(v), theirs).realize() for k,v in a.items()}, verbose=False)
      for k,t in get_state_dict(m).items():
        self.same(t, a[k], f"{own} from {theirs}")
        self.assertEqual((t.device, t.uop.windows), before[k], f"{k}: {own} from {theirs}")

def plus_one(out, x):
  i = UOp.range(out.numel(), 0)
  return out.flatten()[i].store(x.flatten()[i]+1).end(i).sink(arg=KernelInfo(name=f"plus_one_{out.numel()}"))

class TestKernels(Placement):
  """a kernel of one's own, and a function of PARAMs: on each device of what it keeps"""
  def test_blocks(self):
    a = rand(4, 6)
    for where,axis in ((devices(2), 0), (devices(3), 0), (devices(3), None), (MESHES[2, 2], (0, 1)), (MESHES[2, 2], (None, 1)),
                       (MESHES[2, 2], (0, 0)), (MESHES[3, 2], (1, 0))):
      x = Tensor(a).shard(where, axis).realize()
      for out in (Tensor.empty_like(x), (x*0).contiguous().realize(), (x*0).contiguous()):
        y, read = out.custom_kernel(x, fxn=plus_one)
        self.assertEqual(y.uop.windows, x.uop.windows)
        self.same(y, a+1, f"{where} {axis}")
        self.same(read, a)
  def test_in_another_order(self):
    # is put in blocks first
    a = rand(6, 4)
    for n in (2, 3):
      for fxn in (lambda x: x.flip(0), lambda x: x.roll(1, 0), lambda x: x.cat(x)[2:8], lambda x: x[1:].cat(x[:1])):
        for x in (y:=fxn(Tensor(a).shard(devices(n), 0)), y.contiguous(), y.contiguous().realize()):
          self.same(Tensor.empty_like(x).custom_kernel(x, fxn=plus_one)[0], x.numpy()+1)
          self.same((x*0).contiguous().realize().custom_kernel(x, fxn=plus_one)[0], x.numpy()+1)
    x = Tensor(a).shard(devices(2), 0).flip(0).contiguous().realize()
    self.same(Tensor.empty(6, 4).shard(devices(2), 0).custom_kernel(x, fxn=plus_one)[0], a[::-1]+1)
  def test_call(self):
    a = rand(6, 4)
    for x in (Tensor(a).shard(MESHES[2, 2], (0, 1)), Tensor(a).shard(MESHES[2, 2], (0, None)), Tensor(a).shard(devices(4), 0),
              Tensor(a).shard(devices(2), 0).flip(0).contiguous()):
      self.same(Tensor.call(x, x*2, fxn=x.as_param(0)*(x*2).as_param(1)+1), x.numpy()**2*2+1)
  def test_embedding_with_atomics(self):
    idx = np.array([[0, 5, 3], [2, 2, 5]], dtype=np.int32)
    for words,where,axis,batch in ((6, devices(2), 0, 0), (7, devices(2), 0, None), (7, devices(3), 0, None), (6, MESHES[2, 2], (0, 1), (0, None)),
                                   (6, MESHES[2, 2], (None, None), (0, None))):
      a, want = rand(words, 4), np.zeros((words, 4), np.float32)
      np.add.at(want, idx.ravel(), 2*a[idx.ravel()])
      with Context(USE_ATOMICS=1):
        e = nn.Embedding(words, 4)
        e.weight = Tensor(a).shard(where, axis).is_param_()
        e(Tensor(idx).shard(where, batch)).square().sum().backward()
        self.same(e.weight.grad, want, f"{where} {axis}")

if __name__ == "__main__": unittest.main()
