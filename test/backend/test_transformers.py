import contextlib, io, os, re, sys, unittest
from pathlib import Path
from unittest import mock
import numpy as np
import pytest
from tinygrad.helpers import prod
sys.path.append(str(Path(__file__).parents[2]/"examples"))
import _transformer as shared, fsdp, tensor_parallel  # noqa: E401, E402

pytestmark = [pytest.mark.needs("placement"), pytest.mark.skipif(os.getenv("SYMBOLIC_MULTI") != "1", reason="needs the flag")]

class TestTransformers(unittest.TestCase):
  def alike(self, program, *argv:str) -> tuple[shared.Run, shared.Run, int]:
    """what a program has found out about the two runs, after its own check and ours"""
    with mock.patch.object(shared, "report", wraps=shared.report) as report, contextlib.redirect_stdout(out:=io.StringIO()):
      self.assertEqual(program.main([*argv, "--steps", "3"]), 0)
    one, many, least = report.call_args.args
    self.assertEqual(len(one.losses), 3)
    self.assertGreater(np.ptp(one.losses), 0.1)
    np.testing.assert_allclose(many.losses, one.losses, rtol=shared.TOLERANCE, atol=0)
    for k,p in one.params.items(): self.assertEqual(many.params[k].shape, p.shape)
    self.assertRegex(out.getvalue(), rf"bytes between devices a step +0 +{many.moved:,}\n")
    self.assertEqual(one.moved, 0)
    self.assertGreater(many.moved, least)
    return one, many, least

  def test_tensor_parallel(self):
    one, many, least = self.alike(tensor_parallel, "--devices", "3")
    self.assertEqual(set(many.held), {"CPU", "CPU:1", "CPU:2"})
    # an allreduce of less than 256000 numbers is n*(n-1) copies, not 2*(n-1)
    self.assertLess(many.moved, least*3/2*1.1)
    # what is whole on each device is small. one device of three has two of the four heads
    self.assertLess(max(many.held.values()), one.held["CPU"]/2)

  def few(self, one:shared.Run, many:shared.Run, devices:int):
    self.assertEqual(len(many.held), devices)
    for b in many.held.values(): self.assertLessEqual(b, one.held["CPU"]*(1/devices + 0.1))

  # no length of a weight but that of the heads' comes out even on 3 devices
  def test_fsdp(self):
    one, many, least = self.alike(fsdp, "--devices", "3")
    self.few(one, many, 3)
    self.assertTrue(all(max(p.shape) % 3 for p in one.params.values()))
    self.assertLess(many.moved, least*3)

  def test_mesh(self):
    one, many, least = self.alike(fsdp, "--mesh", "2x2")
    self.few(one, many, 4)
    self.assertLess(many.moved, least*1.3)

class TestModel(unittest.TestCase):
  def test_text(self):
    text = shared.Text()
    self.assertEqual("".join(text.letters[i] for i in text.codes), shared.diary())
    # uneven on any number of devices
    self.assertTrue(all(len(text.letters) % n for n in range(2, 9)))
    for line in shared.diary().splitlines()[:100]:
      had, gone, left = map(int, re.findall(r"\d+", line))
      self.assertEqual(had-gone, left)
    x, y = next(text.batches(1))
    self.assertEqual(x.shape, (shared.BATCH, shared.CONTEXT))
    np.testing.assert_array_equal(x[:, 1:], y[:, :-1])

  def test_same_seed(self):
    a, b = (shared.make_params(67) for _ in range(2))
    for k in a: np.testing.assert_array_equal(a[k].numpy(), b[k].numpy())
    self.assertEqual(prod(a["letters"].shape), 67*shared.DIM)

class TestReport(unittest.TestCase):
  def code(self, one:list[float], many:list[float]) -> int:
    a, b = (shared.Run(shared.ALONE, losses=l, held={"CPU": 4}) for l in (one, many))
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()): return shared.report(a, b, 0)
  def test_difference(self):
    self.assertEqual(self.code([4., 3.], [4., 3.0002]), 0)
    self.assertEqual(self.code([4., 3.], [4., 3.0004]), 1)
  def test_nan(self): self.assertEqual(self.code([4., 3.], [4., float("nan")]), 1)
  def test_not_learnt(self):
    for last, code in ((1., 0), (4., 1)): self.assertEqual(self.code(l:=[4.]*(shared.STEPS-1) + [last], l), code)

class TestCommandLine(unittest.TestCase):
  def refused(self, program, *argv:str) -> str:
    with self.assertRaises(SystemExit) as e, contextlib.redirect_stderr(err:=io.StringIO()): program.parse(list(argv))
    self.assertEqual(e.exception.code, 2)
    self.assertEqual(err.getvalue().count("\n"), 1)
    return err.getvalue()
  def test_devices(self):
    for n in ("1", "0", "-2", "5"): self.assertIn("between 2 and 4", self.refused(tensor_parallel, "--devices", n))
    self.assertIn("at least 2", self.refused(fsdp, "--devices", "1"))
    # 16 rows: 4, 4, 4, 4 and none
    self.assertIn("not every device", self.refused(fsdp, "--devices", "5"))
    for program in (tensor_parallel, fsdp): self.assertIn("invalid int", self.refused(program, "--devices", "two"))
  def test_steps(self):
    for program in (tensor_parallel, fsdp): self.assertIn("at least 1", self.refused(program, "--steps", "0"))
  def test_mesh(self):
    for m in ("2", "2x2x2", "axb", "-2x2"): self.assertIn("must be like 2x2", self.refused(fsdp, f"--mesh={m}"))
    for m in ("1x2", "2x1", "2x5"): self.assertIn("needs at least 2 blocks", self.refused(fsdp, "--mesh", m))
    self.assertIn("not every device", self.refused(fsdp, "--mesh", "5x2"))
    self.assertIn("not allowed with", self.refused(fsdp, "--mesh", "2x2", "--devices", "3"))
  def test_flag(self):
    from tinygrad.helpers import getenv
    with mock.patch.dict(os.environ, {"SYMBOLIC_MULTI": "0"}):
      getenv.cache_clear()
      try: self.assertIn("needs SYMBOLIC_MULTI=1", self.refused(fsdp))
      finally: getenv.cache_clear()
  def test_defaults(self):
    self.assertEqual((tensor_parallel.parse([]).devices, tensor_parallel.parse([]).steps), (4, shared.STEPS))
    a = fsdp.parse([])
    self.assertEqual((a.rows, a.parts, a.steps), (4, 1, shared.STEPS))
    a = fsdp.parse(["--mesh", "3x2"])
    self.assertEqual((a.rows, a.parts), (3, 2))

if __name__ == "__main__": unittest.main()
