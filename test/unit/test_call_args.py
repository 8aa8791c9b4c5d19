# what is passed to a call that runs as it is, an allreduce's, is a buffer of its dtype, also where it turns out to be a constant
import os, platform, subprocess, sys, unittest
import numpy as np
import pytest
from tinygrad import Tensor, dtypes

@pytest.mark.patch("call-args")
class TestConstantArgs(unittest.TestCase):
  def setUp(self): self.a = np.arange(24).reshape(3, 8)-5
  def sharded(self, dtype): return Tensor(self.a, dtype=dtype).shard(("CPU:0", "CPU:1", "CPU:2"), 0).realize()
  def test_bool(self):
    x = self.sharded(dtypes.int32)
    self.assertEqual(((x < x).any().item(), (x < x).all().item(), (x <= x).all().item()), (False, False, True))
  def test_numbers(self):
    for dtype in (dtypes.int32, dtypes.float32, dtypes.uint8, dtypes.int64):
      x = self.sharded(dtype)
      with self.subTest(dtype):
        np.testing.assert_equal((x*0+3).sum(0).numpy(), [9]*8)
        np.testing.assert_equal((x*0+2).prod(0).numpy(), [8]*8)
        np.testing.assert_equal((x*0+2).max(0).numpy(), [2]*8)

CAT = """
import numpy as np
from tinygrad import Tensor
a = np.arange(128, dtype=np.float32).reshape(2, 8, 8)
x = Tensor(a).shard(tuple(f"CPU:{i}" for i in range(8)), 2).realize()
assert (x.cat(x, x, dim=2).contiguous().numpy() == np.concatenate((a, a, a), 2)).all()
"""

@pytest.mark.patch("program-vars")
@pytest.mark.needs("derived-axis")
@pytest.mark.skipif(os.getenv("SYMBOLIC_MULTI") != "1", reason="needs the flag")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="needs a compiler that makes no source")
class TestDeviceNumber(unittest.TestCase):
  def test_it_is_bound_where_instructions_hide_it(self):
    done = subprocess.run([sys.executable, "-P", "-c", CAT], env=os.environ | {"DEV": "CPU:X86"}, capture_output=True, text=True)
    self.assertEqual(done.returncode, 0, done.stderr[-500:])

if __name__ == "__main__": unittest.main()
