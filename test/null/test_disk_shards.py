# bytes that each device reads from a file, and the most that it holds meanwhile
import gc, os, pathlib, tempfile, unittest
from collections import Counter
import pytest
from tinygrad import Context, Tensor, dtypes
from tinygrad.device import Buffer
from tinygrad.engine.realize import get_call_arg_uops, run_linear
from tinygrad.helpers import GlobalCounters
from tinygrad.nn.state import safe_load, safe_save
from tinygrad.uop.ops import Ops

pytestmark = [pytest.mark.needs("disk-shards"), pytest.mark.skipif(os.getenv("SYMBOLIC_MULTI") != "1", reason="needs the flag")]

def devices(n): return ("NULL", *[f"NULL:{i}" for i in range(1, n)])
MESH = (devices(4)[:2], devices(4)[2:])

class TestCounts(unittest.TestCase):
  @classmethod
  def setUpClass(cls):
    cls.dir = tempfile.TemporaryDirectory()
    with Context(DEV="CPU"):
      safe_save({"x":Tensor.zeros(64, 32).contiguous(), "odd":Tensor.zeros(61, 30).contiguous(), "half":Tensor.zeros(64, 32).half().contiguous()},
                f"{cls.dir.name}/x")
    cls.file = safe_load(f"{cls.dir.name}/x")
  @classmethod
  def tearDownClass(cls): cls.dir.cleanup()
  def counts(self, t):
    """bytes from the file by device, bytes from other devices, kernels, the most that each device holds above what it held"""
    gc.collect()
    before, most, allocate = Counter(GlobalCounters.mem_used_per_device), Counter(), Buffer.allocate
    def watched(buf, *args, **kwargs):
      ret = allocate(buf, *args, **kwargs)
      most[buf.device] = max(most[buf.device], GlobalCounters.mem_used_per_device[buf.device]-before[buf.device])
      return ret
    linear, var_vals = t.linear_with_vars()
    Buffer.allocate = watched
    try: run_linear(linear, var_vals)
    finally: Buffer.allocate = allocate
    read, moved, kernels = Counter(), Counter(), 0
    for call in linear.src:
      if call.src[0].op is not Ops.COPY: kernels += 1
      else:
        to, frm = get_call_arg_uops(call)
        (read if frm.device.startswith("DISK") else moved)[to.device] += to.max_numel()*to.dtype.itemsize
    return tuple([c[d] for d in devices(4)] for c in (read, moved))+(kernels, [most[d] for d in devices(4)])
  @pytest.mark.patch("disk-shards")
  def test_own_part(self):
    S = 64*32*4
    for where in ((devices(4), 0), (devices(4), 1), (MESH, (0, 1)), (MESH, (1, 0)), (MESH, (1, 1))):
      self.assertEqual(self.counts(self.file["x"].shard(*where)), ([S//4]*4, [0]*4, 0, [S//4]*4), f"{where}")
  def test_read_once(self):
    S = 64*32*4
    self.assertEqual(self.counts(self.file["x"].shard(devices(4))), ([S, 0, 0, 0], [0, S, S, S], 0, [S]*4))
    self.assertEqual(self.counts(self.file["x"].shard(MESH, (0, None))), ([S//2, 0, S//2, 0], [0, S//2, 0, S//2], 0, [S//2]*4))
    self.assertEqual(self.counts(self.file["x"].shard(MESH, (None, 1))), ([S//2, S//2, 0, 0], [0, 0, S//2, S//2], 0, [S//2]*4))
  def test_uneven(self):
    self.assertEqual(self.counts(self.file["odd"].shard(devices(4), 0)), ([16*120]*3+[13*120], [0]*4, 0, [16*120]*4))
    # the block of a device is copied whole where the part of it isn't one piece, the rest of it zero
    self.assertEqual(self.counts(self.file["odd"].shard(devices(4), 1)), ([61*8*4]*4, [0]*4, 0, [61*8*4]*4))
    # who has nothing reads nothing
    self.assertEqual(self.counts(self.file["odd"][:2].shard(devices(4), 0)), ([120, 120, 0, 0], [0]*4, 0, [120, 120, 0, 0]))
  def test_cast_on_the_devices(self):
    for t in (self.file["half"].shard(devices(4), 1).float(), self.file["half"].float().shard(devices(4), 1)):
      self.assertEqual(self.counts(t), ([1024]*4, [0]*4, 1, [1024+2048]*4))
  def test_views(self):
    x = self.file["x"]
    for t in (x.T, x[:, 8:24], x.flip(0), x.reshape(8, 8, 32).permute(1, 0, 2), x.to("NULL"), x.to("NULL:1").reshape(32, 64)):
      each = int(t.numel())
      self.assertEqual(self.counts(t.shard(devices(4), 0)), ([each]*4, [0]*4, 0, [each]*4), f"{t.shape}")
  def test_raw(self):
    t = Tensor(pathlib.Path(f"{self.dir.name}/x"))[:4096]
    self.assertEqual(self.counts(t.shard(devices(4), 0)), ([1024]*4, [0]*4, 0, [1024]*4))
    self.assertEqual(self.counts(t.bitcast(dtypes.half).reshape(32, 64).shard(devices(4), 1)), ([1024]*4, [0]*4, 0, [1024]*4))

if __name__ == "__main__": unittest.main()
