"""What tensor_parallel.py and fsdp.py share: a small decoder-only transformer that learns to write a made-up diary, letter by letter, its training
on several devices or on one, and the table that compares the two."""
from __future__ import annotations
import argparse, math, statistics, sys, time
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator
import numpy as np
from tinygrad import Tensor, TinyJit, nn
from tinygrad.helpers import Context, getenv, to_tuple, tqdm
from tinygrad.uop.ops import Ops
from digits import bytes_moved, calls

LAYERS, DIM, HEADS, HIDDEN, CONTEXT, BATCH = 2, 64, 4, 256, 32, 16
STEPS, SEED, GOAL = 40, 42, 2.2
# relative. sums are taken in another order on several devices, and every step feeds the last bits back
TOLERANCE = 1e-4

# ***** text *****

NAMES = "Ada Ben Cleo Dan Eva Finn Gus Hana Ian Jo Kim Leo Mia Ned Olga Pia Quin Rosa Sam Tess Uma Viv Will Xena Yan Zoe".split()
THINGS = "berry-jars figs jugs kites maps oxen quilts vases wax-cups zebras".split()

def diary(sentences:int=2000) -> str:
  """Sentences that can be learnt in part: a name is used again, things are counted, and what is left comes out right."""
  rng = np.random.RandomState(SEED)
  def sentence() -> str:
    who, other = rng.choice(NAMES, 2, replace=False)
    what, had = rng.choice(THINGS), rng.randint(10, 99)
    gone = rng.randint(1, had)
    return f"{who} had {had} {what}. {other} took {gone}, so {who} has {had-gone} {what}.\n"
  return "".join(sentence() for _ in range(sentences))

class Text:
  def __init__(self):
    text = diary()
    self.letters = sorted(set(text))
    self.codes = np.searchsorted(self.letters, list(text)).astype(np.int32)
  def batches(self, steps:int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pieces of the text, and the letter that follows each of theirs."""
    rng = np.random.RandomState(SEED)
    for _ in range(steps):
      at = rng.randint(0, len(self.codes)-CONTEXT, (BATCH, 1)) + np.arange(CONTEXT)
      yield self.codes[at], self.codes[at+1]

# ***** model *****

Params = dict[str, Tensor]

def make_params(letters:int) -> Params:
  """All weights, on one device. What is split over heads or hidden units has them in front, so that a device's part is one piece of memory."""
  shapes: dict[str, tuple[int, ...]] = {"letters": (letters, DIM), "places": (CONTEXT, DIM)}
  # query, key and value are one weight: so the gradient of what goes in is summed over the devices once, not three times
  for i in range(LAYERS): shapes |= {f"{i}.qkv": (HEADS, 3*DIM//HEADS, DIM), f"{i}.out": (HEADS, DIM//HEADS, DIM),
                                     f"{i}.up": (HIDDEN, DIM), f"{i}.down": (HIDDEN, DIM)}
  Tensor.manual_seed(SEED)
  # all numbers in one go: each shape would be a kernel of its own to compile
  ends = np.cumsum([math.prod(s) for s in shapes.values()])
  ret = dict(zip(shapes, np.split((Tensor.randn(int(ends[-1]))*0.05).numpy(), ends[:-1])))
  weights = {k: Tensor(v.reshape(shapes[k])) for k,v in ret.items()} | {f"norm{i}": Tensor(np.ones(DIM, np.float32)) for i in range(2*LAYERS + 1)}
  return {k: p.realize().is_param_() for k,p in weights.items()}

def logits(p:Params, x:Tensor) -> Tensor:
  h = p["letters"][x] + p["places"]
  for i in range(LAYERS):
    qkv = (h.layernorm()*p[f"norm{2*i}"]).linear(p[f"{i}.qkv"].reshape(-1, DIM).T).reshape(*x.shape, HEADS, 3, DIM//HEADS)
    q, k, v = (qkv[:, :, :, j].transpose(1, 2) for j in range(3))
    seen = q.scaled_dot_product_attention(k, v, is_causal=True).transpose(1, 2).reshape(*x.shape, DIM)
    h = h + seen.linear(p[f"{i}.out"].reshape(DIM, DIM))
    h = h + (h.layernorm()*p[f"norm{2*i+1}"]).linear(p[f"{i}.up"].T).gelu().linear(p[f"{i}.down"])
  return (h.layernorm()*p[f"norm{2*LAYERS}"]).linear(p["letters"].T)

# ***** training *****

Axis = Any  # int|tuple[int|None, ...]|None, of which Tensor.shard declares only the int and the None

@dataclass(frozen=True)
class Layout:
  """Where everything is. devices may be nested, a mesh: an axis then has an entry for each of its dimensions."""
  devices: tuple
  rows: Axis                             # of a batch
  kept: Callable[[str, Tensor], Axis]    # of a parameter, and of the optimizer's state for it
  used: Callable[[str, Tensor], Axis]    # of a parameter where the model computes with it
  @property
  def flat(self) -> tuple[str, ...]: return tuple(d for ds in self.devices for d in to_tuple(ds))

ALONE = Layout(("CPU",), None, lambda k,p: None, lambda k,p: None)

@dataclass
class Run:
  layout: Layout
  params: Params = field(default_factory=dict)
  losses: list[float] = field(default_factory=list)
  seconds: list[float] = field(default_factory=list)
  held: dict[str, int] = field(default_factory=dict)
  moved: int = 0
  kernels: int = 0

def held(ts:list[Tensor]) -> dict[str, int]:
  """Bytes that each device has of realized tensors."""
  ret: dict[str, int] = {}
  for buf in {u.buffer for t in ts for u in t.uop.toposort() if u.op is Ops.BUFFER}:
    for b in getattr(buf, "bufs", [buf]): ret[b.device] = ret.get(b.device, 0) + b.nbytes
  return ret

def train(text:Text, layout:Layout, steps:int, show=True) -> Run:
  devices, alone, run = layout.devices, make_params(len(text.letters)), Run(layout)
  kept, used = ({k: f(k, p) for k,p in alone.items()} for f in (layout.kept, layout.used))
  run.params = {k: p.shard(devices, kept[k]).realize() for k,p in alone.items()}
  opt = nn.optim.Adam(list(run.params.values()), lr=0.003)

  @TinyJit
  def step(x:Tensor, y:Tensor) -> Tensor:
    opt.zero_grad()
    p = {k: v if used[k] == kept[k] else v.shard(devices, used[k]) for k,v in run.params.items()}
    loss = logits(p, x).sparse_categorical_crossentropy(y).backward()
    return loss.realize(*opt.schedule_step())

  every = 1 if sys.stderr.isatty() else max(1, steps//5)
  with Context(TRAINING=1), tqdm(total=steps, desc=f"{(n:=len(layout.flat))} device{'s'[:n-1]}", unit=" steps", disable=not show) as bar:
    for i, batch in enumerate(text.batches(steps), 1):
      x, y = (Tensor(b).shard(devices, layout.rows).realize() for b in batch)
      start = time.perf_counter()
      run.losses.append(step(x, y).item())
      run.seconds.append(time.perf_counter() - start)
      if i % every == 0 or i == steps: bar.update(i - bar.n)
  run.held = held([*run.params.values(), *opt.m, *opt.v, opt.b1_t, opt.b2_t, opt.lr])
  # the jit runs as python in the first call and captures in the second
  if step.captured is not None:
    run.moved = bytes_moved(step.captured._linear)
    run.kernels = sum(len(to_tuple(c.src[1].device)) for c in calls(step.captured._linear) if c.src[0].op is not Ops.COPY)
  return run

# np.max, not max: a loss that is no number must not pass unseen
def difference(a:Run, b:Run) -> float: return float((np.abs(np.subtract(a.losses, b.losses))/np.abs(a.losses)).max())

def least_in_parts(n:int) -> int:
  """
  The least that n devices with tensor-parallel parts of the model can move in a step, together. A sum over n devices of b bytes takes 2*(n-1)*b: each
  partial sum once to the device that adds it, and the result back. Summed is what comes out of the attention and of the MLP of each layer and,
  backwards, the gradients of what went into these and into the last matmul; for each letter the softmax takes two numbers more, the maximum and the
  sum. What goes into the first layer takes (n-1)*b, since one device has the weights of a letter.
  """
  return (n-1)*4 * BATCH*CONTEXT*(2*(4*LAYERS + 1)*DIM + 2*2 + DIM)

# ***** command line *****

class Args(argparse.ArgumentParser):
  """An error is one line and exit code 2."""
  def error(self, message:str): self.exit(2, f"{self.prog}: {message}\n")
  def read(self, argv:list[str]|None) -> argparse.Namespace:
    self.add_argument("--steps", type=int, default=STEPS, metavar="N", help=f"training steps (default {STEPS})")
    args = self.parse_args(argv)
    if args.steps < 1: self.error(f"--steps {args.steps}: at least 1 is needed")
    if not getenv("SYMBOLIC_MULTI"): self.error("needs SYMBOLIC_MULTI=1 in the environment")
    return args

def report(one:Run, many:Run, least:int) -> int:
  """Prints the table; 1 if the two runs are not alike or have not learnt, else 0."""
  def row(name, *cells): print(f"{name:44s}" + "".join(f"{c:>14s}" for c in cells))
  both, diff = (one, many), difference(one, many)
  print()
  row("", "1 device", f"{len(many.layout.flat)} devices")
  row("loss of the first step", *(f"{r.losses[0]:.6f}" for r in both))
  row("loss of the last step", *(f"{r.losses[-1]:.6f}" for r in both))
  row("largest difference of the losses, relative", "", f"{diff:.2e}")
  row("bytes of weights and optimizer on a device", *(f"{max(r.held.values()):,}" for r in both))
  # none seen means one step only
  row("bytes between devices a step", f"{one.moved:,}", f"{many.moved:,}" if many.moved else "not seen")
  row("least possible", "0", f"{least:,}")
  row("kernels a step", *(f"{r.kernels:,}" if r.kernels else "not seen" for r in both))
  # the first two steps compile and capture
  row("seconds a step", *(f"{statistics.median(r.seconds[2:]):.4f}" if len(r.seconds) > 2 else "-" for r in both))
  if not diff <= TOLERANCE: print(f"\nFAILED: the losses differ by {diff:.2e}, more than {TOLERANCE:.0e}", file=sys.stderr)
  elif len(one.losses) >= STEPS and not max(r.losses[-1] for r in both) < GOAL: print(f"\nFAILED: a loss is not below {GOAL}", file=sys.stderr)
  else: return 0
  return 1

def compare(layout:Layout, steps:int) -> tuple[Run, Run]:
  text = Text()
  with Context(DEV="CPU"): return train(text, ALONE, steps), train(text, layout, steps)
