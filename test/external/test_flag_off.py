"""with the flag off every bench graph launches the kernels of Stage 0, byte for byte"""
import json, os, subprocess, sys
from pathlib import Path
import pytest
ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))
from series import apply  # noqa: E402

pytestmark = pytest.mark.needs("symbolic-multi")

SCRIPT = """
import json, sys
sys.path.append(sys.argv[1])
from _graphs import BIG, GRAPHS, source_hash
print(json.dumps({n: source_hash(n) for n in GRAPHS if n not in BIG and n not in sys.argv[2:]}))
"""
# too long for a test: minutes of compiling
SLOW = ("cat_100_uneven", "sort", "topk", "randperm", "attention_causal_backward", "transformer_block", "transformer_block_backward",
        "transformer_4_layers_step", "resnet_block_backward", "resnet_step", "data_parallel_conv_net")

def hashes(folder:Path) -> dict[str, str]:
  env = {k:v for k,v in os.environ.items() if k != "SYMBOLIC_MULTI"} | {"PYTHONPATH": str(folder), "CACHEDB": str(folder/"cache.db"), "PARALLEL": "0"}
  done = subprocess.run([sys.executable, "-P", "-c", SCRIPT, str(ROOT/"bench"), *SLOW], env=env, cwd=folder, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr[-2000:]
  return json.loads(done.stdout.splitlines()[-1])

def test_kernels_are_those_of_stage_0(tmp_path):
  got = []
  for stage in ("0", ""):
    apply.write(apply.build(stage), tmp_path/f"stage-{stage}")
    got.append(hashes(tmp_path/f"stage-{stage}"))
  assert len(got[0]) > 90 and [n for n in got[0] if got[0][n] != got[1][n]] == []
