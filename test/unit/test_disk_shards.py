# a file and a tensor on several devices: each device reads its own part, and the parts are written where they belong
import gc, os, pathlib, struct, tempfile, unittest
import numpy as np
import pytest
from tinygrad import Tensor, dtypes, nn
from tinygrad.helpers import GlobalCounters
from tinygrad.device import Buffer
from tinygrad.llm.gguf import gguf_load
from tinygrad.nn.state import get_state_dict, load_state_dict, safe_load, safe_save

pytestmark = [pytest.mark.needs("disk-shards"), pytest.mark.skipif(os.getenv("SYMBOLIC_MULTI") != "1", reason="needs the flag")]

def devices(n): return tuple(f"CPU:{i}" if i else "CPU" for i in range(n))
MESH = (devices(4)[:2], devices(4)[2:])
def rand(*shape, seed=0): return np.random.RandomState(seed).randn(*shape).astype(np.float32)
PLACES = {"rows": (devices(4), 0), "columns": (devices(4), 1), "whole": (devices(4), None),
          "three": (devices(3), 0), "three, columns": (devices(3), 1),
          "both": (MESH, (0, 1)),
          "rows, twice": (MESH, (0, None)), "columns, twice": (MESH, (None, 1)), "rows of rows": (MESH, (0, 0))}

def held(t):
  """what each device has, as places of the whole in which the devices' parts lie: they all have to be right, not only the first that has one"""
  x = t.uop
  local = x.src[0] if x.windows else x
  for i,b in enumerate(local.buffer.bufs):
    at = [0]*t.ndim
    for ax,off,_ in x.windows: at[ax] = int(off.substitute({r:r.const_like(i) for r in off.ranges}).simplify().val)
    if b.is_allocated(): yield at, b.numpy().reshape(local.shape)

class Files(unittest.TestCase):
  def setUp(self):
    self.dir = tempfile.TemporaryDirectory()
    self.addCleanup(self.dir.cleanup)
  def path(self, name="x"): return f"{self.dir.name}/{name}"
  def same(self, t, want, msg=""):
    t = t.contiguous().realize()
    np.testing.assert_array_equal(t.numpy(), want, msg)
    for at,part in held(t):
      whole = want[tuple(slice(b, b+s) for b,s in zip(at, part.shape))]
      np.testing.assert_array_equal(part[tuple(slice(0, s) for s in whole.shape)], whole, f"{msg} at {at}")

class TestLoad(Files):
  def saved(self, *arrays):
    safe_save({f"{i}":Tensor(a) for i,a in enumerate(arrays)}, self.path())
    return list(safe_load(self.path()).values())
  def test_each_reads_its_part(self):
    odd, a, b, c, d = self.saved(np.arange(3, dtype=np.uint8), x:=rand(16, 12), y:=rand(15, 10).astype(np.float16), z:=rand(3, 2), w:=rand(7, 9) > 0)
    for name,where in PLACES.items():
      for t,want in ((a, x), (b, y), (c, z), (d, w)): self.same(t.shard(*where), want, f"{name} of {want.shape}")
    self.same(odd.shard(devices(4), 0), np.arange(3, dtype=np.uint8))
  def test_views_of_a_file(self):
    t, = self.saved(a:=rand(12, 20))
    for view,want in ((t.T, a.T), (t[3:11], a[3:11]), (t[:, 3:15], a[:, 3:15]), (t.flip(0), a[::-1]), (t.flip(1)[2:9], a[2:9, ::-1]),
                      (t[::2], a[::2]), (t.reshape(3, 4, 20), a.reshape(3, 4, 20)),
                      (t.reshape(4, 3, 20).permute(1, 0, 2), a.reshape(4, 3, 20).transpose(1, 0, 2)),
                      (t.bitcast("int32"), a.view(np.int32)), (t.cast("half"), a.astype(np.float16)), (t.to("CPU"), a)):
      for axis in (0, 1, None): self.same(view.shard(devices(4), axis), want, f"{view.shape} {axis}")
  def test_raw(self):
    (a:=rand(16, 6)).tofile(self.path())
    self.same(Tensor(pathlib.Path(self.path())).shard(devices(4), 0), a.view(np.uint8).reshape(-1))
    for t in (Tensor(pathlib.Path(self.path()), dtype=dtypes.float).reshape(16, 6), Tensor.empty(16, 6, device=f"DISK:{self.path()}")):
      for where in PLACES.values(): self.same(t.shard(*where), a)
  def test_lazy(self):
    t, = self.saved(a:=rand(9, 6))
    for name in ("rows", "columns", "whole", "rows, twice", "columns, twice"):
      x = t.shard(*PLACES[name])
      self.same(x*2, a*2)
      self.same(x+x.flip(0), a+a[::-1])
      np.testing.assert_allclose(x.sum(0).numpy(), a.sum(0), 1e-5, 1e-5)
      self.same(x.shard(devices(2), 1), a)
  def test_in_segments(self):
    """how a device that copies through its own staging buffers reads what isn't one piece"""
    from tinygrad.schedule.file_parts import FileBox
    t, = self.saved(a:=rand(12, 20))
    file = t.flatten().uop.buffer.ensure_allocated()
    box = FileBox(file._buf, 12*5*4, 4, 0, 5*4, ((12, 5), (5, 1), (20, 1)))
    class Staging:
      def __init__(self): self.mem = bytearray(64)
      def view(self, size): return memoryview(self.mem)[:size]
    got, staging = bytearray(box.size), Staging()
    for (buf, _),to,at,size in file.allocator._copyout_sharded(box, box.size, lambda: (staging, 0), 64): got[to:to+size] = buf.mem[at:at+size]
    np.testing.assert_array_equal(np.frombuffer(got, np.float32).reshape(12, 5), a[:, 5:10])
  def test_model(self):
    class Net:
      def __init__(self): self.a, self.b, self.n = nn.Linear(16, 12), nn.Linear(12, 7), nn.LayerNorm(7)
    places = {"a.weight": PLACES["rows, twice"], "b.weight": PLACES["columns"], "n.weight": PLACES["whole"]}
    for dtype in (dtypes.float, dtypes.half):
      sd = {k:v.cast(dtype).realize() for k,v in get_state_dict(Net()).items()}
      safe_save(sd, self.path())
      for k,v in get_state_dict(net:=Net()).items(): v.shard_(*places.get(k, PLACES["rows"]))
      want = {k:(v.device, v.uop.windows) for k,v in get_state_dict(net).items()}
      load_state_dict(net, safe_load(self.path()), verbose=False)
      for k,v in get_state_dict(net).items():
        self.assertEqual((v.device, v.uop.windows), want[k])
        self.same(v, sd[k].numpy(), k)
  def test_gguf(self):
    rows, cols, r = 10, 64, np.random.RandomState(0)
    scales, q, f = r.rand(rows*2, 1).astype(np.float16), r.randint(-100, 100, (rows*2, 32)).astype(np.int8), rand(rows, cols)
    def string(s): return struct.pack("<Q", len(s))+s
    def info(name, typ, at): return string(name)+struct.pack("<I2QiQ", 2, cols, rows, typ, at)
    head = b"GGUF"+struct.pack("<iqq", 3, 2, 0)+info(b"f", 0, 0)+info(b"q", 8, f.nbytes)
    data = np.concatenate([scales.view(np.uint8), q.view(np.uint8)], 1).tobytes()
    pathlib.Path(self.path()).write_bytes(head+b"\0"*(-len(head)%32)+f.tobytes()+data)
    want = {"f": f, "q": (scales.astype(np.float32)*q).reshape(rows, cols)}
    for where in PLACES.values():
      for k,v in gguf_load(self.path())[1].items(): self.same(v.shard(*where), want[k], k)
    pathlib.Path(self.path("short")).write_bytes(pathlib.Path(self.path()).read_bytes()[:-1])
    with self.assertRaisesRegex(ValueError, "too short"): gguf_load(self.path("short"))
  def test_errors(self):
    t, = self.saved(rand(4, 4))
    with self.assertRaises(IndexError): t.shard(devices(2), 2)
    with self.assertRaisesRegex(RuntimeError, "takes an axis"): t.shard(MESH, (0, 1, 1))
    whole = pathlib.Path(self.path()).read_bytes()
    for n in (0, 4, 20, len(whole)-1):
      pathlib.Path(self.path(f"{n}")).write_bytes(whole[:n])
      with self.assertRaisesRegex(ValueError, "too short"): safe_load(self.path(f"{n}"))

class TestSave(Files):
  @pytest.mark.patch("disk-shards")
  def test_no_device_has_more(self):
    """not for a moment: neither the file nor the host's copy is put together on a device"""
    allocate, more = Buffer.allocate, []
    def watched(buf, *args, **kwargs):
      if buf.device.startswith("CPU") and buf.nbytes > 256: more.append((buf.device, buf.nbytes))
      return allocate(buf, *args, **kwargs)
    for name,where in PLACES.items():
      for a in (rand(31, 23).astype(np.float16), rand(64, 5)):
        t = Tensor(a).shard(*where).realize()
        gc.collect()
        used = dict(GlobalCounters.mem_used_per_device)
        Buffer.allocate = watched
        try:
          np.testing.assert_array_equal(t.numpy(), a)
          self.assertEqual(t.tolist() if a.dtype != np.float16 else a.tolist(), a.tolist())
          safe_save({"t":t, "again":t}, self.path())
        finally: Buffer.allocate = allocate
        self.assertEqual(more, [], name)
        self.assertEqual(used["CPU"], GlobalCounters.mem_used_per_device["CPU"])
        one = Tensor(a)
        safe_save({"t":one, "again":one}, self.path("one"))
        self.assertEqual(pathlib.Path(self.path()).read_bytes(), pathlib.Path(self.path("one")).read_bytes())
  def test_views(self):
    a = rand(12, 8)
    for axis in (0, 1, None):
      t = Tensor(a).shard(devices(4), axis).realize()
      for view,want in ((t+1, a+1), (t.T, a.T), (t[5], a[5]), (t[2:9], a[2:9]), (t[:, 3:6], a[:, 3:6]), (t.flip(0), a[::-1]),
                        (t.reshape(-1), a.reshape(-1)), (t.reshape(2, 6, 8), a.reshape(2, 6, 8)),
                        (t.pad(((1, 2), None)), np.pad(a, ((1, 2), (0, 0)))), (t[::5], a[::5]),
                        (t.reshape(12, 1, 8).expand(12, 2, 8), np.repeat(a.reshape(12, 1, 8), 2, 1)), (t[:0], a[:0]), (t.max(), a.max())):
        np.testing.assert_array_equal(view.numpy(), want)
        self.assertEqual(view.tolist(), want.tolist())
        if want.size == 0: continue
        safe_save({"x":view}, self.path())
        np.testing.assert_array_equal(safe_load(self.path())["x"].numpy(), want)

if __name__ == "__main__": unittest.main()
