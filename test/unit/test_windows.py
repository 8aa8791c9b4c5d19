# sharding as index math (SYMBOLIC_MULTI=1): every operation on a sharded axis, numpy or one device as the reference
import os, unittest
import numpy as np
import pytest
from tinygrad import Context, Tensor, TinyJit, UOp, dtypes, nn
from tinygrad.uop.ops import AxisType

pytestmark = [pytest.mark.needs("derived-axis"), pytest.mark.skipif(os.getenv("SYMBOLIC_MULTI") != "1", reason="needs the flag")]

def devices(n): return ("CPU", *[f"CPU:{i}" for i in range(1, n)])
def rand(*shape, seed=0): return np.asarray(np.random.RandomState(seed).randn(*shape), np.float32)
def on(x, v): return Tensor(np.array(v, np.int32)).shard(x.device)
def softmax(a, axis): return (e:=np.exp(a-a.max(axis, keepdims=True)))/e.sum(axis, keepdims=True)

# name: what tinygrad does with an (8, 12) tensor, and what numpy does
FORMS = {
  "whole": (lambda x: x, lambda a: a),
  "flip": (lambda x: x.flip(0), lambda a: a[::-1]),
  "flip both": (lambda x: x.flip((0, 1)), lambda a: a[::-1, ::-1]),
  "transpose": (lambda x: x.T, lambda a: a.T), "x plus flipped": (lambda x: x+x.flip(1), lambda a: a+a[:, ::-1]),
  "expand": (lambda x: x.expand(2, 8, 12), lambda a: np.stack([a, a])),
}
CUTS = {
  "row": (lambda x: x[3], lambda a: a[3]), "column": (lambda x: x[:, -2], lambda a: a[:, -2]), "element": (lambda x: x[3, 5], lambda a: a[3, 5]),
  "across": (lambda x: x[1:6, 2:11], lambda a: a[1:6, 2:11]),
  "one shard": (lambda x: x[2:4], lambda a: a[2:4]),
  "none": (lambda x: x[3:3], lambda a: a[3:3]),
  "step": (lambda x: x[::3, 1::5], lambda a: a[::3, 1::5]), "back": (lambda x: x[::-2, ::-5], lambda a: a[::-2, ::-5]),
  "chunks": (lambda x: sum(c*(i+1) for i,c in enumerate(x.chunk(3, 1))), lambda a: sum(c*(i+1) for i,c in enumerate(np.split(a, 3, 1)))),
  "split": (lambda x: x.split([3, 5])[1], lambda a: a[3:]), "by tensor": (lambda x: x[on(x, [3, 1, 7])], lambda a: a[[3, 1, 7]]),
  "by two": (lambda x: x[on(x, [3, 1]), on(x, [0, 9])], lambda a: a[[3, 1], [0, 9]]),
}
GROWN = {
  "pad": (lambda x: x.pad(((1, 2), (3, 0))), lambda a: np.pad(a, ((1, 2), (3, 0)))),
  "pad with a value": (lambda x: x.pad(((1, 2), (3, 0)), value=-2.5), lambda a: np.pad(a, ((1, 2), (3, 0)), constant_values=-2.5)),
  "pad, then max": (lambda x: x.pad(((1, 2), (3, 0)), value=-float("inf")).max(0)[3:], lambda a: a.max(0)),
  "reflect": (lambda x: x.reshape(1, 1, 8, 12).pad((2, 3, 1, 2), mode="reflect"), lambda a: np.pad(a, ((1, 2), (2, 3)), "reflect")[None, None]),
  "circular": (lambda x: x.reshape(1, 1, 8, 12).pad((2, 3, 1, 2), mode="circular"), lambda a: np.pad(a, ((1, 2), (2, 3)), "wrap")[None, None]),
  "negative pad": (lambda x: x.pad(((-1, 2), (2, -3))), lambda a: np.pad(a[1:, :-3], ((0, 2), (2, 0)))),
  "cat": (lambda x: x.cat(x*2), lambda a: np.concatenate([a, a*2])),
  "uneven cat": (lambda x: x.cat(x[:3], dim=0), lambda a: np.concatenate([a, a[:3]])),
  "cat, matmul, chunk": (lambda x: sum((x.cat(x*2) @ x.T).chunk(2)), lambda a: a*3 @ a.T),
  "stack": (lambda x: x.stack(x.flip(0)), lambda a: np.stack([a, a[::-1]])),
  "roll": (lambda x: x.roll((3, -1), (0, 1)), lambda a: np.roll(a, (3, -1), (0, 1))),
  "repeat": (lambda x: x.repeat(2, 3), lambda a: np.tile(a, (2, 3))),
}
RESHAPED = {
  "flat": (lambda x: x.reshape(96), lambda a: a.reshape(96)), "split": (lambda x: x.reshape(2, 4, 3, 4), lambda a: a.reshape(2, 4, 3, 4)),
  "across": (lambda x: x.reshape(6, 16), lambda a: a.reshape(6, 16)), "finer": (lambda x: x.reshape(32, 3)*2, lambda a: a.reshape(32, 3)*2),
  "coarser": (lambda x: x.reshape(2, 48)+1, lambda a: a.reshape(2, 48)+1), "transposed": (lambda x: x.T.reshape(8, 12), lambda a: a.T.reshape(8, 12)),
  "length 1": (lambda x: x[:1].reshape(12), lambda a: a[0]),
}
REDUCED = {
  "sum": (lambda x: x.sum(), lambda a: a.sum()),
  "sum 0": (lambda x: x.sum(0), lambda a: a.sum(0)),
  "mean 1": (lambda x: x.mean(1), lambda a: a.mean(1)),
  "max of a slice": (lambda x: x[1:6].max(0), lambda a: a[1:6].max(0)), "min of flipped": (lambda x: x.flip(0).min(0), lambda a: a.min(0)),
  "prod": (lambda x: x[1:4].prod(0), lambda a: a[1:4].prod(0)), "any": (lambda x: (x > 2).any(0), lambda a: (a > 2).any(0)),
  "all": (lambda x: (x < 1)[2:7].all(0), lambda a: (a < 1)[2:7].all(0)), "argmax": (lambda x: x.argmax(0), lambda a: a.argmax(0)),
  "softmax": (lambda x: x.softmax(0), lambda a: softmax(a, 0)), "std": (lambda x: x.std(0), lambda a: a.std(0, ddof=1)),
  "cumsum": (lambda x: x.cumsum(0), lambda a: a.cumsum(0)), "cumprod": (lambda x: x.cumprod(0), lambda a: a.cumprod(0)),
  "cummax": (lambda x: x.cummax(0)[0], np.maximum.accumulate), "sort": (lambda x: x.sort(0)[0], lambda a: np.sort(a, 0)),
  "topk": (lambda x: x.topk(3, 0)[0], lambda a: -np.sort(-a, 0)[:3]), "tril": (lambda x: x.tril(1), lambda a: np.tril(a, 1)),
  "matmul": (lambda x: x.T @ x, lambda a: a.T @ a), "matmul of slices": (lambda x: x[:6] @ x[2:].T, lambda a: a[:6] @ a[2:].T),
  "gather": (lambda x: x.gather(0, on(x, np.arange(24).reshape(2, 12)%8)), lambda a: np.take_along_axis(a, np.arange(24).reshape(2, 12)%8, 0)),
}
LOCAL = {
  "convolution": (lambda x, w: x.reshape(1, 1, 8, 12).conv2d(w, padding=1), rand(3, 1, 3, 3, seed=1)),
  "convolution, stride 2": (lambda x, w: x.reshape(1, 1, 8, 12).conv2d(w, stride=2, padding=1), rand(3, 1, 3, 3, seed=1)),
  "max pool": (lambda x, w: x.reshape(1, 1, 8, 12).max_pool2d((3, 2))*w, rand(1)),
  "mean pool": (lambda x, w: x.reshape(1, 1, 8, 12).avg_pool2d(3)*w, rand(1)),
  "interpolate": (lambda x, w: x.reshape(1, 1, 8, 12).interpolate((5, 17))*w, rand(1)),
  "masked": (lambda x, w: x.masked_fill(x > 0, 3)*w, rand(8, 1, seed=1)),
}

class Windows(unittest.TestCase):
  def same(self, got:Tensor, want, msg, tol=1e-4):
    want = np.asarray(want)
    self.assertEqual(got.shape, want.shape, msg)
    np.testing.assert_allclose(got.numpy(), want, tol, tol, err_msg=msg)

class TestValues(Windows):
  def check(self, table):
    a = rand(8, 12)
    for name,(fxn,ref) in table.items():
      for n,axis in ((4, 0), (3, 1)):
        with self.subTest(name, n=n, axis=axis):
          self.same(fxn(Tensor(a).shard(devices(n), axis).realize()), ref(a), f"{name}, {n} devices, axis {axis}")
    # not realized, on the way to it, and with another op on top
    for name,(fxn,ref) in table.items():
      with self.subTest(name, lazy=True): self.same((fxn(Tensor(a).shard(devices(2), 0)).contiguous()*2).contiguous()+1, ref(a)*2+1, name)

  def test_forms(self): self.check(FORMS)
  def test_cuts(self): self.check(CUTS)
  def test_grown(self): self.check(GROWN)
  def test_reshaped(self): self.check(RESHAPED)
  def test_reduced(self): self.check(REDUCED)
  def test_local(self):
    a = rand(8, 12)
    for name,(fxn,w) in LOCAL.items():
      want = fxn(Tensor(a), Tensor(w)).numpy()
      for n,axis in ((4, 0), (3, 1)):
        with self.subTest(name, n=n, axis=axis): self.same(fxn(Tensor(a).shard(devices(n), axis), Tensor(w).shard(devices(n))), want, name)
  def test_dead_loads(self):
    # of many pieces, some of which a lane reads at no place
    a = rand(7, 3)
    self.same(Tensor(a).shard(devices(5), 0).T.reshape(3, 7).pad((None, (2, 2)), mode="reflect"), np.pad(a.T, ((0, 0), (2, 2)), "reflect"), "reflect")
    a = rand(1, 3, 1, 8)
    x = Tensor(a).shard(devices(8), 3).realize()
    at, along = on(x, [0]).realize(), on(x, [0]).shard(x.device, 0).realize()
    self.same(x[at, along, :].topk(7, 2, False)[1], np.argsort(a[[0], [0], :], 2)[..., :7], "places of the least")
    # a whole vector of places that aren't there, of a convolution's input that is nothing but a fill
    a, w = rand(3, 5), rand(9, 1, 3, seed=1)
    def conv(x, w):
      y = x.tril(-2).reshape(1, 3, 5).conv2d(w, groups=3, stride=2, padding=1, dilation=2)
      (z:=y.clone())[:] += y
      return z
    x, w = Tensor(a).shard(devices(2)).realize(), Tensor(w).realize()
    self.same(conv(x, w.shard(devices(2), 1)), conv(Tensor(a), w).numpy(), "convolution")
  def test_dtypes(self):
    for dt in (dtypes.float16, dtypes.int32, dtypes.bool, dtypes.uint8):
      a = (np.arange(24).reshape(8, 3) % 5).astype(bool if dt is dtypes.bool else np.int32)
      x = Tensor(a).cast(dt).shard(devices(4), 0).realize()
      for t,w in ((x.flip(0), a[::-1]), (x[1:7], a[1:7]), (x.pad(((1, 0), (0, 0)), value=1), np.pad(a, ((1, 0), (0, 0)), constant_values=1))):
        np.testing.assert_equal(t.cast(dtypes.int32).numpy(), w.astype(np.int32))
  def test_jit(self):
    tables = FORMS | {k:v for t in (CUTS, GROWN, RESHAPED, REDUCED) for k,v in list(t.items())[:6]}
    f = TinyJit(lambda x: tuple((fxn(x)+1).realize() for fxn,_ in tables.values()))
    for i in range(4):
      a = rand(8, 12, seed=i)
      for (name,(_,ref)),got in zip(tables.items(), f(Tensor(a).shard(devices(4), 0).realize())): self.same(got, ref(a)+1, f"{name}, call {i}")

class TestMixed(Windows):
  def test_other_placements(self):
    a, b = rand(8, 12), rand(8, 12, seed=1)
    for p in (None, 0, 1):
      for q in (None, 0, 1):
        x, y = (Tensor(v).shard(devices(4), ax).realize() for v,ax in ((a, p), (b, q)))
        self.same(x+y*2, a+b*2, f"{p} and {q}")
        self.same((x > y).where(x, y.flip(0)), np.where(a > b, a, b[::-1]), f"{p} and {q}")
        self.same(x @ y.T, a @ b.T, f"{p} and {q}")
        self.same(x.cat(y, dim=0)[3:12].sum(1), np.concatenate([a, b])[3:12].sum(1), f"{p} and {q}")
  def test_idle_devices(self):
    # each source is on other devices than the next
    a, mesh = rand(8, 12), (devices(4)[:2], devices(4)[2:])
    for on,axes in ((devices(4), 0), (devices(3), 0), (mesh, (0, 1)), (mesh, (0, None))):
      x = Tensor(a).shard(on, axes).realize()
      self.same((x[:4].sigmoid()*x[4:]).contiguous()+1, a[4:]/(1+np.exp(-a[:4]))+1, "gate")
      self.same(x[:2]+x[2:4]+x[4:6]*x[6:], a[:2]+a[2:4]+a[4:6]*a[6:], "four")
      self.same(x[:3]*x[5:].flip(0), a[:3]*a[:4:-1], "flipped")
      self.same((x[:4] > x[4:]).where(x[:4], x[4:]).sum(0), np.maximum(a[:4], a[4:]).sum(0), "max")
      (g,) = (x[:4]*x[4:]).sum().gradient(x)
      self.same(g, np.concatenate([a[4:], a[:4]]), "gradient")
  def test_cat(self):
    a, b = rand(7, 5), rand(7, 5, seed=1)
    for n,axis in ((2, 0), (3, 0), (4, 1)):
      x, y = Tensor(a).shard(devices(n), axis).realize(), Tensor(b).shard(devices(n), axis).realize()
      self.same(x.cat(y, x, dim=axis).contiguous()*2, np.concatenate([a, b, a], axis)*2, f"{n}, {axis}")
      self.same((x > 0).cat(y > 0, dim=axis), np.concatenate([a > 0, b > 0], axis), f"{n}, {axis}, bool")
      chunks = [c.numpy() for c in Tensor(a+1).chunk(n, axis)]
      self.same(Tensor.cat(*[c+1 for c in x.chunk(n, axis)[::-1]], dim=axis), np.concatenate(chunks[::-1], axis), f"{n}, {axis}, chunks")
      gx, gy = (x.cat(y, dim=axis)*Tensor(np.concatenate([b, a], axis)).shard(devices(n))).sum().gradient(x, y)
      self.same(gx, b, f"{n}, {axis}")
      self.same(gy, a, f"{n}, {axis}")
  def test_one_device_has_all(self):
    # of an axis of one element, which may be told of two axes
    x = Tensor(a:=rand(1, 1, 5)).shard(devices(2), 1).realize()
    y = x.expand(2, 1, 5).cat(x, dim=0)
    self.same(y.cat(y, dim=1).contiguous(), np.tile(a, (3, 2, 1)), "twice")
    self.same(x.pad(((2, 0), (1, -1), (0, 2)), mode="replicate").contiguous(), np.pad(a[:, :1], ((2, 0), (0, 0), (0, 2)), mode="edge"), "replicate")
  def test_reshard(self):
    a = rand(8, 12)
    for p in (None, 0, 1):
      for q in (None, 0, 1):
        t = Tensor(a).shard(devices(4), p).realize().shard(devices(4), q)
        self.assertEqual(t.uop.axis, q)
        self.same(t.contiguous()+1, a+1, f"{p} to {q}")
  def test_one_device(self):
    a = rand(8, 12)
    for d in ("CPU", "CPU:2", "CPU:3"): self.same(Tensor(a).shard(devices(3), 1).realize()[1:7].to(d), a[1:7], d)
  def test_other_devices_in_one_op(self):
    x, y = Tensor(rand(4)).shard(devices(2), 0).realize(), Tensor(rand(4)).shard(("CPU:2", "CPU:3"), 0).realize()
    with self.assertRaisesRegex(RuntimeError, r"same devices.*\(4,\).*CPU:1.*CPU:2"): (x+y).realize()
    self.same(x+1, rand(4)+1, "x is as it was")

class TestInterpolate(Windows):
  def test_gradient(self):
    a = rand(2, 2, 8, 4)
    for to in ((5, 2), (8, 6), (3, 9), (1, 1)):
      grads = [x.interpolate(to, mode="nearest").square().sum().gradient(x)[0].numpy() for x in
               (Tensor(a).realize(), *(Tensor(a).shard(devices(n), axis).realize() for n in (2, 4) for axis in (2, 3)))]
      for g in grads[1:]: np.testing.assert_allclose(g, grads[0], rtol=1e-5)

class TestSumsOfAllreduces(Windows):
  def test_recurrent(self):
    a, w, u = rand(8, 5, 6), rand(4, 4, seed=1)/3, rand(6, 4, seed=2)/3
    def step(put):
      x, ws, us = put(a, 0), put(w, None), put(u, None)
      h = put(np.zeros((8, 4), np.float32), 0)
      for t in range(5): h = (x[:, t]@us+h@ws).tanh()
      loss = (h*h).sum()+us.square().sum()
      gw, gu = loss.gradient(ws, us)
      # beside other readers, transposed, and all in one number
      return [t.numpy() for t in (gw, gu, ws-(gw+gw.T)*0.1, sum((g*g).sum() for g in (gw, gu)), loss)]
    for n in (2, 4, 8):
      got = step(lambda v, ax: Tensor(v).shard(devices(n), ax).realize())
      for g,want in zip(got, step(lambda v, ax: Tensor(v).realize())): np.testing.assert_allclose(g, want, rtol=1e-4, atol=1e-5)

class TestWrites(Windows):
  WAYS = {
    "one shard": (slice(2, 4), slice(None)), "across shards": (slice(1, 6), slice(2, 9)), "a row": (3, slice(None)), "an element": (3, 5),
    "step": (slice(None, None, 3), slice(1, None, 5)), "back": (slice(6, None, -2), slice(None, None, -5)), "all": (slice(None), slice(None)),
    "nothing": (slice(2, 2, 3), slice(9, 4, 2)), "no column": (slice(1, None, 3), slice(5, 5, 2)),
  }
  @pytest.mark.patch("derived-axis")
  def test_setitem(self):
    for name,key in self.WAYS.items():
      for axis in (0, 1):
        for lazy in (False, True):
          for how in ("scalar", "whole", "sharded", "add"):
            with self.subTest(name, axis=axis, lazy=lazy, how=how):
              a = rand(8, 12)
              x, want = Tensor(a).shard(devices(4), axis), a.copy()
              x = x.clone() if lazy else x.clone().realize()
              v = rand(*want[key].shape, seed=1)
              if how == "scalar": x[key], want[key] = 7, 7
              elif how == "add":
                x[key] += 3
                want[key] += 3
              else:
                ax = next((i for i,s in enumerate(v.shape) if how == "sharded" and s % 4 == 0), None)
                x[key], want[key] = Tensor(v).shard(devices(4), ax), v
              self.same(x, want, name)
  def test_twice(self):
    a = rand(8, 3)
    x = Tensor(a).shard(devices(4), 0).clone().realize()
    x[2:4] = 1
    x[3:7] += 2
    x[0] = x[7]
    a[2:4] = 1
    a[3:7] += 2
    a[0] = a[7]
    self.same(x, a, "three writes")
  @pytest.mark.patch("derived-axis")
  def test_assign_of_another_sharding(self):
    a, b = rand(8, 12), rand(8, 12, seed=1)
    for q in (None, 0, 1):
      x = Tensor(a).shard(devices(4), 0).clone().realize()
      x.assign(Tensor(b).shard(devices(4), q).realize()).realize()
      self.assertEqual(x.uop.axis, 0)
      self.same(x, b, f"axis {q}")
  def test_assign_of_itself_moved(self):
    a = rand(8, 3)
    x = Tensor(a).shard(devices(4), 0).clone().realize()
    x.assign(x.flip(0)+x.roll(1, 0)).realize()
    self.same(x, a[::-1]+np.roll(a, 1, 0), "assign")
  def test_jit(self):
    x, want = Tensor.zeros(8, 2).clone().shard(devices(4), 0).realize(), np.zeros((8, 2), np.float32)
    @TinyJit
    def step(v):
      x[1:6] = v
      x[7] += 1
      return x.realize()
    for i in range(4):
      v = rand(5, 2, seed=i)
      step(Tensor(v).shard(devices(4)).realize())
      want[1:6] = v
      want[7] += 1
      self.same(x, want, f"call {i}")

@pytest.mark.patch("gradient-window")
class TestGradient(Windows):
  def check(self, fxn, *shapes, axes, n=4):
    vals = [rand(*s, seed=i) for i,s in enumerate(shapes)]
    def run(place):
      xs = [place(Tensor(v), ax).realize() for v,ax in zip(vals, axes)]
      y = fxn(*xs)
      k = Tensor(rand(*y.shape, seed=9))
      return (y*(k if isinstance(y.device, str) else k.shard(y.device))).sum().gradient(*xs)
    for got,want in zip(run(lambda t,ax: t.shard(devices(n), ax)), run(lambda t,ax: t)): self.same(got, want.numpy(), str(axes))
  def test_views(self):
    for fxn in (lambda x: x.flip(0)*x, lambda x: x[1:6].exp(), lambda x: x.pad(((1, 1), (0, 0)), value=2).square(), lambda x: x.roll(3, 0)*x,
                lambda x: x.reshape(6, 16).square(), lambda x: x[::3].sin(), lambda x: x.cat(x*2).square(), lambda x: x.max(0),
                lambda x: x.softmax(0), lambda x: x.cumsum(0), lambda x: x[3]*x, lambda x: x.mean(1).square()):
      for axis in (0, 1): self.check(fxn, (8, 12), axes=(axis,))
  def test_mixed(self):
    for axes in ((0, 1), (1, 0), (None, 0), (0, None)): self.check(lambda x,w: (x @ w).relu() @ w.T, (8, 12), (12, 4), axes=axes)
  def test_convolution_with_a_sharded_height(self): self.check(lambda x,w: x.conv2d(w, padding=1), (1, 2, 8, 4), (3, 2, 3, 3), axes=(2, None))
  def test_through_shard(self):
    # 0.14.0 gives the gradient of the first shard, and zeros
    a, b = rand(8, 3), rand(8, 3, seed=1)
    x = Tensor(a)
    self.same((x.shard(devices(4), 0)*Tensor(b).shard(devices(4), 0)).sum().gradient(x)[0], b, "from one device")
  def test_training(self):
    def train(place):
      Tensor.manual_seed(3)
      m = [nn.Linear(6, 8), Tensor.relu, nn.Linear(8, 4)]
      for p in nn.state.get_parameters(m): place(p, 0)
      opt = nn.optim.Adam(nn.state.get_parameters(m), lr=0.01)
      losses = []
      with Context(TRAINING=1):
        for i in range(4):
          x = place(Tensor(rand(8, 6, seed=i)), 0)
          opt.zero_grad()
          losses.append(x.sequential(m).square().mean().backward())
          opt.step()
      return [l.item() for l in losses]
    np.testing.assert_allclose(train(lambda t,ax: t.shard_(devices(4), ax).realize()), train(lambda t,ax: t.realize()), 1e-4)

class TestMeshes(Windows):
  def mesh(self, a, axes):
    # axis of each mesh dimension (2 by 2), None where it's replicated
    d = UOp.range(4, -1, AxisType.DEVICE)
    u = Tensor(a).uop.copy_to_device(devices(4))
    ws = [(ax, r) for ax,r in zip(axes, (d//2, d%2)) if ax is not None]
    for ax,r in ws: u = u._shard(ax, r)
    return Tensor(u.unshard(tuple(ax for ax,_ in ws), tuple(r for _,r in ws)) if ws else u)
  def test_values(self):
    a, names = rand(8, 12), ("across", "step", "flat", "sum", "sum 0", "mean 1", "max of a slice", "softmax")
    table = FORMS | {k:(CUTS|RESHAPED|REDUCED)[k] for k in names}
    for axes in ((0, 1), (1, 0), (0, None), (None, 1)):
      x = self.mesh(a, axes)
      for name,(fxn,ref) in table.items():
        with self.subTest(name, axes=axes): self.same(fxn(x), ref(a), f"{name} of {axes}")
  def test_halos(self):
    # where a lane needs little more than it has, and where it needs all along one dimension of the mesh
    a, table = rand(8, 12), GROWN|{k:(CUTS|RESHAPED)[k] for k in ("flat", "transposed", "back", "across")}
    for axes in ((0, 1), (1, 0), (0, None), (None, 1)):
      for name,(fxn,ref) in table.items():
        with self.subTest(name, axes=axes): self.same(fxn(self.mesh(a, axes)).contiguous()+1, ref(a)+1, f"{name} of {axes}")
    a = rand(6, 5)
    for axes in ((0, 1), (1, 0)):
      x = Tensor(a).shard((devices(4)[:2], devices(4)[2:]), axes).realize()
      for fxn,ref in (GROWN["roll"], GROWN["pad"], GROWN["uneven cat"], (lambda x: x.reshape(-1), lambda a: a.reshape(-1))):
        self.same(fxn(x).contiguous(), ref(a), f"{axes}, uneven")
  def test_reduce_of_less_than_a_block(self):
    # what is cut out is shorter than a lane's part along both axes
    x = Tensor(a:=rand(8, 16)).shard((devices(4)[:2], devices(4)[2:]), (1, 0)).realize()[5:7, 9:12]
    self.same(x.std(0, keepdim=True), a[5:7, 9:12].std(0, ddof=1, keepdims=True), "std")
    self.same(x.max(1), a[5:7, 9:12].max(1), "max")
  def test_convolution(self):
    a, w = rand(2, 2, 4, 6), rand(2, 2, 3, 3, seed=1)
    for axes in ((2, 3), (0, 2), (1, 3)):
      x, v = Tensor(a).shard((devices(4)[:2], devices(4)[2:]), axes).realize(), Tensor(w).shard(devices(4)).realize()
      gx, gw = (x.conv2d(v, padding=1).square()).sum().gradient(x, v)
      tx, tw = Tensor(a), Tensor(w)
      hx, hw = (tx.conv2d(tw, padding=1).square()).sum().gradient(tx, tw)
      self.same(x.conv2d(v, padding=1), tx.conv2d(tw, padding=1).numpy(), f"{axes}", 1e-3)
      self.same(gx, hx.numpy(), f"{axes}", 1e-3)
      self.same(gw, hw.numpy(), f"{axes}", 1e-3)
  def test_part_of_a_sum_along_one_dimension(self):
    # the devices that add up want the same part of it, and those of the next row of the mesh have another sum
    mesh, a, w = (devices(4)[:2], devices(4)[2:]), rand(5, 6), rand(6, 5, 2, seed=1)
    y = Tensor(a).shard(mesh, (None, 1)).realize().reshape(1, 5, 6).conv2d(Tensor(w).shard(mesh, 2).realize()).roll(4, 2).contiguous().realize()
    want = Tensor(a).reshape(1, 5, 6).conv2d(Tensor(w)).roll(4, 2).numpy()
    for i,b in enumerate(y.uop.buffer.bufs):
      np.testing.assert_allclose(b.numpy().reshape(1, 6, 3)[..., :3-i%2], want[..., i%2*3:i%2*3+3], 1e-4, err_msg=f"device {i}")
  def test_fed_back(self):
    # what comes out is kept as what goes in
    a, f = rand(8, 12), TinyJit(lambda x: (x.roll(1, 0)+x.roll(1, 1)).contiguous().realize())
    x = Tensor(a).shard((devices(4)[:2], devices(4)[2:]), (0, 1)).realize()
    for _ in range(4): x, a = f(x), np.roll(a, 1, 0)+np.roll(a, 1, 1)
    self.same(x, a, "rolled four times")
  def test_matmul(self):
    a, b = rand(8, 12), rand(12, 4, seed=1)
    for p in ((0, 1), (0, None), (None, 1), (1, 0)):
      for q in ((0, 1), (None, 1), (1, None), (0, None)):
        self.same(self.mesh(a, p) @ self.mesh(b, q), a @ b, f"{p} by {q}")

@pytest.mark.patch("derived-axis")
class TestAxis(unittest.TestCase):
  def test_axis(self):
    x = Tensor.empty(8, 12).shard(devices(4), 0)
    for t,axis in ((x, 0), (x.T, 1), (x+1, 0), (x.sum(1), 0), (x.sum(0), None), (x.reshape(4, 2, 12), 0), (x.reshape(96), 0), (x.expand(3, 8, 12), 1),
                   (x[:, 2:5], 0), (x.pad((None, (1, 1))), 0), (x.flip(1), 0), (x.cast(dtypes.int), 0), (x.stack(x), 1), (x+x.T.reshape(8, 12), 0),
                   # not plain blocks: it says so, and doesn't raise
                   (x.flip(0), None), (x[1:6], None), (x.to("CPU"), None),
                   # a block needs a row more than is there
                   (x.pad(((1, 1), None)), 0)):
      self.assertEqual(t.uop.axis, axis, f"{t.uop.op} {t.shape}")

class TestRealized(unittest.TestCase):
  def test_realized_shards(self):
    x = Tensor(rand(8, 3)).shard(devices(4), 0).realize()
    self.assertTrue(x.uop.is_window and x.uop.is_realized and x.uop.has_buffer_identity())
    for i,b in enumerate(x.uop.buffer.bufs): np.testing.assert_equal(b.numpy().reshape(2, 3), rand(8, 3)[2*i:2*i+2])

if __name__ == "__main__": unittest.main()
