import json, os, sys
from pathlib import Path
import pytest
from tinygrad import Tensor
BENCH = Path(__file__).parents[2]/"bench"
sys.path.append(str(BENCH))
from _graphs import GRAPHS, BIG, T, measure, schedule, scheduled, source_hash, sources, counts  # noqa: E402

RECORDED: dict[str, dict[str, int]] = json.loads((BENCH/"graphs_0.14.0.json").read_text())
# too long for a test to compile: bench/graphs.py counts their ops
SLOW = BIG | {"cat_100_uneven", "sort", "topk", "randperm", "attention_causal_backward", "transformer_block", "transformer_block_backward",
              "transformer_4_layers_step", "conv_net_step", "resnet_block_backward", "resnet_step", "data_parallel_conv_net"}

def test_all_are_recorded(): assert GRAPHS.keys() == RECORDED.keys()

@pytest.mark.parametrize("name", RECORDED)
def test_no_more_work_than_unpatched(name:str):
  got, was = measure(name, lower=name not in SLOW), RECORDED[name]
  for k in ("copies", "moved"): assert got[k] <= was[k], f"{k}: {was[k]} unpatched, now {got[k]}"
  # with the flag what was made once and copied is made on each device: a kernel in place of a copy
  if os.getenv("SYMBOLIC_MULTI") == "1": got, was = [{**c, "kernels": c["kernels"]+c["copies"]} for c in (got, was)]
  assert got["kernels"] <= was["kernels"], f"kernels: {was['kernels']} unpatched, now {got['kernels']}"
  assert got["ops"] <= was["ops"]*1.001, f"ops: {was['ops']:,} unpatched, now {got['ops']:,}"

# what stage after stage compares is repeatable, and tells kernels apart
def test_sources():
  assert source_hash("conv_pad") == source_hash("conv_pad") != source_hash("conv_1d")
  assert source_hash("data_parallel_sgd") == source_hash("data_parallel_sgd")
  assert [s.splitlines()[0] for s in sources(scheduled("pad_sum")[0])] == ["NULL NULL"]

def test_counts_of_a_known_schedule():
  # a copy of 100 floats to each of the three other devices, then one kernel on each of the four
  x = (Tensor.empty(100)+1).realize().shard(tuple(f"NULL:{i}" for i in range(4)))
  got = counts(*schedule([x + T(100, axis=None)]))
  assert (got["kernels"], got["copies"], got["moved"]) == (4, 3, 3*100*4)
