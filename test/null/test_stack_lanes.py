import os, unittest, pytest
from tinygrad import Tensor
from tinygrad.helpers import GlobalCounters

def devices(n): return tuple(f"NULL:{i}" for i in range(n))

@pytest.mark.patch("stack-lanes")
class TestStackLanes(unittest.TestCase):
  def test_one_shard(self):
    for n in (2, 3, 4):
      x = (Tensor.empty(n*2, 6).shard(devices(n), 0) + 1).realize()
      for i in range(n):
        for rest in (slice(None), slice(1, None)): x[i*2:(i+1)*2, rest].contiguous().realize()

  def test_replicate_what_is_read_elsewhere(self):
    for n in (2, 3, 4):
      x = (Tensor.empty(4, 6, device="NULL") + 1).realize()
      GlobalCounters.reset()
      Tensor.realize(x * 2, x.shard(devices(n)))
      # the product, a copy to every other device, and the stack on every device: the lane on the own device is the buffer itself. with the flag the
      # copies land in the stack, and only the own lane is put there
      self.assertEqual(GlobalCounters.kernel_count, 1 + (n-1) + (1 if os.getenv("SYMBOLIC_MULTI") == "1" else n))

if __name__ == "__main__": unittest.main()
