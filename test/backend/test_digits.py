import sys, tempfile, unittest
from pathlib import Path
import numpy as np
from tinygrad import Tensor, TinyJit
from tinygrad.helpers import Context
sys.path.append(str(Path(__file__).parents[2]/"examples"))
import digits  # noqa: E402

DEVICES = ("CPU:0", "CPU:1")

def random_digits() -> digits.Digits:
  rng = np.random.RandomState(0)
  return digits.Digits(*(a for n in (64, 20) for a in (rng.rand(n, 1, 8, 8).astype(np.float32), rng.randint(0, 10, n).astype(np.int32))))

class TestDigits(unittest.TestCase):
  one: digits.Run
  two: digits.Run
  @classmethod
  def setUpClass(cls):
    with Context(DEV="CPU"): cls.one, cls.two = (digits.train(random_digits(), d, steps=4, batch=16, show=False) for d in (("CPU",), DEVICES))

  def test_same_losses(self):
    self.assertEqual(len(self.one.losses), 4)
    self.assertGreater(np.ptp(self.one.losses), 1e-3)
    np.testing.assert_allclose(self.two.losses, self.one.losses, rtol=0, atol=digits.TOLERANCE)
    self.assertEqual(self.one.accuracy, self.two.accuracy)

  def test_same_weights(self):
    for a, b in zip(digits.get_parameters(self.one.net), digits.get_parameters(self.two.net)):
      first, second = digits.held(b)
      np.testing.assert_array_equal(first, second)
      np.testing.assert_allclose(first.reshape(a.shape), a.numpy(), rtol=0, atol=1e-5)

  # two devices swap their gradients, which is also the least that can be moved
  def test_bytes_moved(self):
    self.assertEqual(self.one.moved, 0)
    weights = 16*9+16 + 32*16*9+32 + 10*128+10
    self.assertEqual(digits.least_bytes(self.two.net, 2), 2*4*(weights+1))
    self.assertEqual(self.two.moved, 2*4*(weights+1))

class TestBytesMoved(unittest.TestCase):
  def moved(self, f) -> int:
    jit = TinyJit(f)
    for _ in range(2): jit(Tensor.ones(100, device="CPU").contiguous().realize())
    return digits.bytes_moved(jit.captured._linear)
  def test_copy(self): self.assertEqual(self.moved(lambda x: (x+1).to("CPU:1").realize()), 400)
  def test_copy_to_two(self): self.assertEqual(self.moved(lambda x: (x+1).to(("CPU:1", "CPU:2")).realize()), 800)
  def test_shard_keeps_its_own_part(self): self.assertEqual(self.moved(lambda x: (x+1).contiguous().shard(DEVICES, 0).realize()), 200)
  def test_same_device(self): self.assertEqual(self.moved(lambda x: (x+1).realize()), 0)

class TestCommandLine(unittest.TestCase):
  def refused(self, *argv:str) -> str:
    with self.assertRaises(SystemExit) as e: digits.parse(list(argv))
    message = e.exception.code
    assert isinstance(message, str) and "\n" not in message, message
    return message
  def test_devices(self):
    self.assertIn("does not divide", self.refused("--devices", "3"))
    for n in ("1", "0", "-2"): self.assertIn("at least 2", self.refused("--devices", n))
    self.assertIn("invalid int", self.refused("--devices", "two"))
  def test_steps(self): self.assertIn("at least 1", self.refused("--steps", "0"))
  def test_batch(self):
    for n in ("0", "1438"): self.assertIn("between", self.refused("--batch", n))
  def test_plot(self):
    with tempfile.TemporaryDirectory() as d:
      self.assertIn("no folder", self.refused("--plot", f"{d}/none/a.png"))
      self.assertIn("is a folder", self.refused("--plot", d))
      self.assertIn("must end in", self.refused("--plot", f"{d}/a.xyz"))
      self.assertEqual(digits.parse(["--plot", f"{d}/a.png"]).plot, f"{d}/a.png")
  def test_defaults(self):
    a = digits.parse([])
    self.assertEqual((a.devices, a.steps, a.plot), (4, digits.STEPS, None))

class TestDifference(unittest.TestCase):
  def test_nan_is_seen(self):
    a, b = (digits.Run(("CPU",), self.one_net(), losses=l) for l in ([1., 2.], [1., float("nan")]))
    self.assertFalse(digits.difference(a, b) <= digits.TOLERANCE)
  def one_net(self): return object.__new__(digits.Net)

if __name__ == "__main__": unittest.main()
