#!/usr/bin/env python3
"""What a training step of tinygrad's own example programs launches, moves and holds on 4 NULL devices, patched (SYMBOLIC_MULTI=1) beside unpatched.

Usage: training.py CHECKOUT [NAME...]

CHECKOUT is one of tinygrad 0.14.0, whose examples/ are run as they are, on data of their own making. Counted in the step that TinyJit replays:
kernels and copies of all devices, the bytes that the busiest one receives from others, and the most memory that the busiest one holds in the run.
Without a CHECKOUT nothing is run. Fails when the patched package raises where the unpatched one doesn't, or when it receives more or holds more.
"""
from __future__ import annotations
import os, pathlib, sys
from _trees import Side, die, installed, table, trees

LLAMA = {"MODEL": "llama3", "SAMPLES": "12", "BS": "4", "SEQLEN": "512", "GRADIENT_ACC_STEPS": "1", "FAKEDATA": "1", "DEFAULT_FLOAT": "bfloat16",
         "OPTIM_DTYPE": "bfloat16", "LLAMA3_SIZE": "1B", "LLAMA_LAYERS": "2", "VOCAB_SIZE": "32000"}
# the program, the function that TinyJit replays, and the environment
PROGRAMS:dict[str, tuple[str, str, dict[str, str]]] = {
  "mnist": ("examples/beautiful_mnist_multigpu.py", "train_step", {"GPUS": "4", "STEPS": "5"}),
  "bert": ("examples/mlperf/model_train.py", "train_step_bert",
           {"MODEL": "bert", "GPUS": "4", "BS": "24", "BERT_LAYERS": "2", "BENCHMARK": "4", "DEFAULT_FLOAT": "HALF"}),
  "llama_dp": ("examples/mlperf/model_train.py", "minibatch", {**LLAMA, "DP": "4"}),
  "llama_mp": ("examples/mlperf/model_train.py", "minibatch", {**LLAMA, "MP": "4"}),
  "llama_mp_split": ("examples/mlperf/model_train.py", "minibatch", {**LLAMA, "MP": "4", "SPLIT_W13": "1"}),
  "gptoss_dp": ("examples/mlperf/model_train.py", "minibatch",
                {**LLAMA, "MODEL": "gptoss", "DP": "4", "SEQLEN": "128", "MXFP8": "1", "VOCAB_SIZE": "4096", "LAYERS": "1", "EXPERTS": "4"}),
}

def main(args:list[str]) -> int:
  if args[:1] == ["--side"]:
    import _training
    _training.run(*args[1:])
  if not args:
    print("training: left out, it takes a checkout of tinygrad 0.14.0: ./run bench training CHECKOUT")
    return 0
  where, names = pathlib.Path(args[0]).resolve(), args[1:] or list(PROGRAMS)
  if not (where/"examples/mlperf/model_train.py").is_file(): die(f"{args[0]} is no checkout of tinygrad: examples/mlperf/model_train.py isn't in it")
  if unknown:=[n for n in names if n not in PROGRAMS]: die(f"no program is named {unknown[0]}, there are {', '.join(PROGRAMS)}")
  os.environ.update({"SYMBOLIC_MULTI": "1", "NULL_ALLOW_COPYOUT": "1"})
  rows, failed = [["a training step of", "kernels", "", "copies", "", "MB received", "", "peak MB", ""]], list[str]()
  for name in names:
    path, step, env = PROGRAMS[name]
    # the package is found before that of the checkout
    env = {**env, "PYTHONPATH": str(where)}
    sides = {k: Side(t or installed(), __file__, str(where), path, step, quiet=True, env=env) for k,t in trees().items()}
    base, new = (sides[k].result() for k in ("base", "new"))
    row = [name]
    for side,r in (("unpatched", base), ("patched", new)):
      if "error" in r: print(f"{name}, {side}: {r['error']}", file=sys.stderr)
    for key,scale in (("kernels", 1), ("copies", 1), ("received", 1e6), ("peak", 1e6)):
      row += ["raises" if "error" in r else f"{r[key]/scale:,.2f}" if scale > 1 else f"{r[key]:,}" for r in (base, new)]
    rows.append(row)
    if "error" in new:
      if "error" not in base: failed.append(f"{name} raises")
    elif "error" not in base and (new["received"] > base["received"]*1.001 or new["peak"] > base["peak"]): failed.append(f"{name} is worse")
  table(rows)
  print("(pairs: unpatched, patched)")
  for f in failed: print(f)
  return int(len(failed) > 0)

if __name__ == "__main__": sys.exit(main(sys.argv[1:]))
