"""a fixed part of what test/external/fuzz_sharding.py tries, on several devices and against numpy"""
import importlib.util, os, pathlib
import pytest

pytestmark = [pytest.mark.needs("gradient-window"), pytest.mark.skipif(os.getenv("SYMBOLIC_MULTI") != "1", reason="needs the flag")]

def load():
  spec = importlib.util.spec_from_file_location("fuzz_sharding", pathlib.Path(__file__).parents[1]/"external"/"fuzz_sharding.py")
  fuzz = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(fuzz)
  return fuzz

# a mode each, so that no draw of the generator leaves one out
@pytest.mark.parametrize("mode", ("eager", "lazy", "jit", "grad"))
def test_slice(mode):
  fuzz = load()
  programs = [(i, fuzz.generate("slice", i, mode=mode)) for i in range(13)]
  worker, failed = fuzz.Worker(), []
  try: failed = [f"{bad[0]} ({bad[1]})\n  --one \"{p}\"" for _,p in programs if (bad:=worker.judge(p)) is not None and bad[0][0] != "["]
  finally: worker.close()
  assert not failed, f"{len(failed)} of {len(programs)} programs fail:\n" + "\n".join(failed)
