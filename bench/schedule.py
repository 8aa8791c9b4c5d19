#!/usr/bin/env python3
"""What scheduling costs, patched beside unpatched. Usage: schedule.py [--runs N] [--calls] [graph ...]

Calls are all Python and C calls that cProfile sees in Tensor.linear_with_vars, with the schedule cache off, all graphs in one fresh process. They
repeat to within one in ten thousand and don't drift with the machine. CPU ms are the median over alternating runs, each in a fresh process, for
the graphs of TIMED: more than x1.05 of the unpatched package fails. --calls leaves them out.
"""
import argparse, cProfile, gc, json, pstats, statistics, sys, time
from _trees import Side, both, check, die, ratio, table, trees

TIMED, LIMIT = ("resnet50", "cat_100_uneven"), 1.05
CALLS = TIMED + ("data_parallel_sgd", "data_parallel_adam", "tensor_parallel_mlp_backward", "tensor_parallel_attention_backward", "fsdp",
                 "conv_net_step", "data_parallel_conv_net", "transformer_4_layers_step", "resnet_block_backward", "allreduce_1m", "add_axis_0_axis_1")

class Args(argparse.ArgumentParser):
  def error(self, message:str): die(message)

def prepared(name:str):
  from tinygrad import Tensor
  from tinygrad.helpers import Context
  from _graphs import GRAPHS, schedule
  with Context(DEV="NULL"):
    Tensor.manual_seed(0)
    outs = GRAPHS[name]()
  def run():
    with Context(DEV="NULL", SCACHE=0): schedule(outs)
  return run

def seconds(names:list[str]) -> dict[str, float]:
  # the first schedule of a process compiles the pattern matchers: not what is measured
  prepared("pad_sum")()
  ret = {}
  for n in names:
    run = prepared(n)
    gc.collect()
    gc.disable()
    st = time.process_time()
    run()
    ret[n] = time.process_time() - st
    gc.enable()
  return ret

def calls(names:list[str]) -> dict[str, int]:
  prepared("pad_sum")()
  ret = {}
  for n in names:
    run, prof = prepared(n), cProfile.Profile()
    gc.collect()
    gc.disable()
    prof.runcall(run)
    gc.enable()
    ret[n] = vars(pstats.Stats(prof))["total_calls"]
  return ret

def main(args:list[str]) -> int:
  if args[:1] == ["--side"]:
    print(json.dumps((seconds if args[1] == "seconds" else calls)(args[2:])))
    return 0
  p = Args(usage="schedule.py [--runs N] [--calls] [graph ...]")
  p.add_argument("--runs", type=int, default=10)
  p.add_argument("--calls", action="store_true")
  p.add_argument("graphs", nargs="*")
  a = p.parse_args(args)
  if a.runs < 1: die(f"--runs {a.runs}: at least 1 is needed")
  check(a.graphs)
  times: dict[str, dict[str, list[float]]] = {}
  if not a.calls and (timed:=[n for n in TIMED if not a.graphs or n in a.graphs]):
    for i in range(a.runs):
      for side, tree in trees().items():
        for n, t in Side(tree, __file__, "seconds", *timed).result().items(): times.setdefault(n, {}).setdefault(side, []).append(t)
      print(f"\rtimed {i+1}/{a.runs}", end="" if i+1 < a.runs else "\n", file=sys.stderr, flush=True)
  rows, bad = [["graph", "calls", "", "ratio", "CPU ms", "", "ratio", ""]], 0
  res = both(__file__, "calls", *(a.graphs or CALLS))
  for n, new in res["new"].items():
    row = [n, f"{res['base'][n]:,}", f"{new:,}", ratio(new, res["base"][n])]
    if n in times:
      med = {side: statistics.median(ts) for side,ts in times[n].items()}
      slow = med["new"] > med["base"]*LIMIT
      bad += slow
      row += [f"{med['base']*1e3:.1f}", f"{med['new']*1e3:.1f}", ratio(med["new"], med["base"]), f"over x{LIMIT}" if slow else ""]
    rows.append(row + [""]*(len(rows[0])-len(row)))
  table(rows)
  return int(bad > 0)

if __name__ == "__main__": sys.exit(main(sys.argv[1:]))
