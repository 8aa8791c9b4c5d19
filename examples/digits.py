#!/usr/bin/env python3
"""Handwritten digits on several devices: the same small convolutional net, trained data-parallel and on one device, must learn the same.

Every device holds all weights and its own rows of each batch. Its gradient is that of its own rows: the sum over the devices (allreduce) gives
every device the gradient of the whole batch. The data are the 1797 images that scikit-learn ships, so nothing is downloaded.

  python examples/digits.py --devices 4 --steps 200 --plot digits.png
"""
from __future__ import annotations
import argparse, os, pathlib, statistics, sys, time
from dataclasses import dataclass, field
from typing import Iterator
import numpy as np
from tinygrad import Tensor, TinyJit, nn
from tinygrad.helpers import Context, to_tuple, tqdm
from tinygrad.nn.state import get_parameters
from tinygrad.uop.ops import Ops, UOp

STEPS, BATCH, SEED, GOAL = 200, 128, 42, 0.95
# sums are taken in another order on several devices, so the last bits differ, and every step feeds them back
TOLERANCE = 1e-5

class Net:
  def __init__(self):
    self.c1, self.c2, self.out = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1), nn.Linear(128, 10)
  def __call__(self, x:Tensor) -> Tensor:
    layers: list = [self.c1, Tensor.relu, Tensor.max_pool2d, self.c2, Tensor.relu, Tensor.max_pool2d, lambda x: x.flatten(1), self.out]
    return x.sequential(layers)

# ***** data *****

@dataclass(frozen=True)
class Digits:
  train_x: np.ndarray; train_y: np.ndarray; test_x: np.ndarray; test_y: np.ndarray # noqa: E702
  def batches(self, steps:int, size:int):
    rng = np.random.RandomState(SEED)
    for _ in range(steps):
      rows = rng.choice(len(self.train_x), size, replace=False)
      yield self.train_x[rows], self.train_y[rows]

def load_digits() -> Digits:
  from sklearn.datasets import load_digits as load
  raw = load()
  x, y = raw.images.reshape(-1, 1, 8, 8).astype(np.float32)/16, raw.target.astype(np.int32)
  order = np.random.RandomState(0).permutation(len(x))
  test, train = order[:360], order[360:]
  return Digits(x[train], y[train], x[test], y[test])

# ***** training *****

def place(x:np.ndarray, devices:tuple[str, ...], axis:int|None=None) -> Tensor:
  """Rows of x split over the devices on axis, or with axis None a copy on each."""
  return Tensor(x).shard(devices, axis=axis).realize()

@dataclass
class Run:
  devices: tuple[str, ...]
  net: Net
  losses: list[float] = field(default_factory=list)
  seconds: list[float] = field(default_factory=list)
  accuracy: float = 0.0
  moved: int = 0

def make_net(devices:tuple[str, ...]) -> Net:
  Tensor.manual_seed(SEED)
  net = Net()
  Tensor.realize(*get_parameters(net))
  for p in get_parameters(net): p.shard_(devices, axis=None)
  Tensor.realize(*get_parameters(net))
  return net

def loss_of(net:Net, x:Tensor, y:Tensor) -> Tensor: return net(x).sparse_categorical_crossentropy(y)

def train(data:Digits, devices:tuple[str, ...], steps:int, batch:int=BATCH, show=True) -> Run:
  run = Run(devices, make_net(devices))
  opt = nn.optim.SGD(get_parameters(run.net), lr=0.05, momentum=0.9)

  @TinyJit
  def step(x:Tensor, y:Tensor) -> Tensor:
    opt.zero_grad()
    loss = loss_of(run.net, x, y).backward()
    return loss.realize(*opt.schedule_step())

  every = 1 if sys.stderr.isatty() else max(1, steps//10)
  with Context(TRAINING=1), tqdm(total=steps, desc=f"{len(devices)} device{'s'[:len(devices)-1]}", unit=" steps", disable=not show) as bar:
    for i, (x, y) in enumerate(data.batches(steps, batch), 1):
      tx, ty = place(x, devices, 0), place(y, devices, 0)
      start = time.perf_counter()
      run.losses.append(step(tx, ty).item())
      run.seconds.append(time.perf_counter() - start)
      if i % every == 0 or i == steps: bar.update(i - bar.n)
  # the jit runs as python in the first call and captures in the second
  if step.captured is not None: run.moved = bytes_moved(step.captured._linear)
  guess = run.net(place(data.test_x, devices)).argmax(1).numpy()
  run.accuracy = float((guess == data.test_y).mean())
  return run

# np.max, not max: a loss that is no number must not pass unseen
def difference(a:Run, b:Run) -> float: return float(np.abs(np.subtract(a.losses, b.losses)).max())

# ***** what crosses between devices *****

def calls(linear:UOp) -> Iterator[UOp]:
  for c in linear.src:
    # on some devices the jit puts several calls into one graph
    if c.src[0].op is Ops.CUSTOM_FUNCTION and c.src[0].arg == "graph": yield from calls(c.src[0].src[0])
    else: yield c

def bytes_moved(linear:UOp) -> int:
  """Bytes a captured step copies from one device to another: the copies of its schedule, one by one, not a formula."""
  def crossing(copy:UOp) -> int:
    dest, src = copy.src[1:3]
    return sum(dest.max_numel()*dest.dtype.itemsize for d,s in zip(to_tuple(dest.device), to_tuple(src.device)) if d != s)
  return sum(crossing(c) for c in calls(linear) if c.src[0].op is Ops.COPY)

def least_bytes(net:Net, n:int) -> int:
  """
  The least any allreduce of the gradients and the loss can move, all devices together. A sum of b bytes over n devices is b*(n-1) in for the
  partial sums, each byte of which has to reach the device that adds it, and b*(n-1) out for the result: 2*(n-1)/n*b for each device.
  """
  return 2*(n-1)*(sum(p.nbytes() for p in get_parameters(net)) + 4)

# ***** picture *****

def held(t:Tensor) -> list[np.ndarray]:
  """What every device has in its own memory of a realized tensor."""
  buf = next(u for u in t.uop.toposort() if u.op is Ops.BUFFER).buffer
  return [b.numpy().reshape(-1, *t.shape[1:]) for b in getattr(buf, "bufs", [buf])]

def sheet(a:np.ndarray, cols:int) -> np.ndarray:
  """Small pictures side by side, cols in a line, with a gap between any two."""
  a = np.pad(a, ((0, -len(a) % cols), (0, 1), (0, 1)), constant_values=np.nan)
  return a.reshape(-1, cols, *a.shape[1:]).swapaxes(1, 2).reshape(-1, cols*a.shape[2])[:-1, :-1]

def first_step(data:Digits, many:Run, batch:int) -> tuple[list[list[np.ndarray]], list[Tensor]]:
  """What every device holds in the first step: its rows of the batch, a weight, that weight's gradient before and after the allreduce. And the
  tensors that these are of, but for the gradient before the allreduce."""
  x, y = next(data.batches(1, batch))
  tx, ty = place(x, many.devices, 0), place(y, many.devices, 0)
  alone_on, n = many.devices[:1], len(many.devices)
  net, alone = make_net(many.devices), make_net(alone_on)
  grad = loss_of(net, tx, ty).gradient(net.c1.weight)[0].contiguous().realize()
  # the sum before the allreduce is never stored: take it from the same rows on one device
  def own(*rows:np.ndarray) -> np.ndarray: return loss_of(alone, *(place(r, alone_on) for r in rows)).gradient(alone.c1.weight)[0].numpy()/n
  return [held(tx), held(net.c1.weight), [own(*p) for p in zip(held(tx), held(ty))], held(grad)], [tx, net.c1.weight, grad]

def kept(t:Tensor) -> list[str]:
  """Which part of t each device keeps, in the package's own words, if it has any: 0.14.0 and the first stages of the series don't."""
  return [f"{p.where}  {p.nbytes:,} bytes" for p in t.layout().parts] if hasattr(t, "layout") else []

def plot(path:str, data:Digits, one:Run, many:Run, batch:int):
  import matplotlib
  matplotlib.use("Agg")
  import matplotlib.pyplot as plt
  n, rows, shown = len(many.devices), batch//len(many.devices), min(len(many.devices), 8)
  (pieces, weights, before, after), tensors = first_step(data, many, batch)
  batch_at, weight_at, grad_at = map(kept, tensors)
  fig = plt.figure(figsize=(4 + 2.3*shown, 15), constrained_layout=True)
  top, bottom = np.asarray(fig.subfigures(2, 1, height_ratios=(4, 10), hspace=0.03))

  left, right = top.subplots(1, 2, width_ratios=(3, 2))
  left.plot(one.losses, lw=5, color="0.8", label="1 device")
  left.plot(many.losses, lw=1.2, color="black", ls="--", label=f"{n} devices")
  left.set(xlabel="step", ylabel="loss", yscale="log", title="Loss of each batch")
  left.legend()
  right.plot([max(abs(a-b), 1e-8) for a,b in zip(one.losses, many.losses)], ".", color="tab:red", ms=4)
  right.axhline(TOLERANCE, color="0.5", ls=":")
  right.text(0, TOLERANCE, "allowed", color="0.4", va="bottom")
  right.set(xlabel="step", yscale="log", ylim=(5e-9, TOLERANCE*5), title="Difference of the losses (1e-8: or less)")

  bottom.suptitle("What each device holds in the first step" + (f" (the first {shown} of {n} devices)" if shown < n else ""), fontsize="x-large")
  grid = bottom.add_gridspec(4, shown+2, width_ratios=[1.1] + [2]*shown + [0.12])
  wmax, gmax = max(np.abs(w).max() for w in weights), max(np.abs(g).max() for g in after)
  split = f"split: {rows} rows each" + (", 24 shown" if rows > 24 else "")
  lines = [("Batch", split, [sheet(p.reshape(-1, 8, 8)[:24], 6) for p in pieces], None, batch_at),
           ("Weights of c1", "the same on all", [sheet(w.reshape(-1, 3, 3), 4) for w in weights], wmax, weight_at),
           ("Gradient of c1", "before the allreduce:\nof its own rows,\nother on each", [sheet(g.reshape(-1, 3, 3), 4) for g in before], gmax, []),
           ("Gradient of c1", "after the allreduce:\nthe sum,\nthe same on all", [sheet(g.reshape(-1, 3, 3), 4) for g in after], gmax, grad_at)]
  for r, (name, what, pictures, peak, at) in enumerate(lines):
    label = bottom.add_subplot(grid[r, 0])
    label.axis("off")
    label.text(0, 0.5, f"$\\bf{{{name.replace(' ', '~')}}}$\n{what}", va="center", transform=label.transAxes)
    for i in range(shown):
      ax, color = bottom.add_subplot(grid[r, i+1]), plt.get_cmap("tab10")(i)
      im = ax.imshow(pictures[i], cmap="gray_r" if peak is None else "RdBu", vmin=0 if peak is None else -peak, vmax=1 if peak is None else peak)
      if r == 0: ax.set_title(many.devices[i], color=color, fontweight="bold")
      if at: ax.set_xlabel(at[i])
      ax.set(xticks=[], yticks=[])
      for side in ax.spines.values(): side.set(color=color, linewidth=2.5)
    if peak is not None: bottom.colorbar(im, cax=bottom.add_subplot(grid[r, shown+1]))
  fig.savefig(path, dpi=90)
  plt.close(fig)
  print()
  for name,t in zip(("batch", "weights of c1", "gradient of c1"), tensors):
    if hasattr(t, "layout"): print(f"{name}: {t.layout()}")

# ***** command line *****

class Args(argparse.ArgumentParser):
  def error(self, message:str): sys.exit(f"digits: {message}")

def parse(argv:list[str]|None=None) -> argparse.Namespace:
  p = Args(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  p.add_argument("--devices", type=int, default=4, metavar="N", help="CPU devices to train on (default 4)")
  p.add_argument("--steps", type=int, default=STEPS, metavar="N", help=f"training steps (default {STEPS})")
  p.add_argument("--batch", type=int, default=BATCH, metavar="N", help=f"images a step (default {BATCH})")
  p.add_argument("--plot", metavar="FILE", help="picture of the losses and of what each device holds")
  args = p.parse_args(argv)
  if args.devices < 2: p.error(f"--devices {args.devices}: at least 2 are needed, one device is always trained beside them")
  if args.steps < 1: p.error(f"--steps {args.steps}: at least 1 is needed")
  if not 1 <= args.batch <= 1437: p.error(f"--batch {args.batch}: must lie between 1 and 1437, the number of training images")
  if args.batch % args.devices: p.error(f"--devices {args.devices} does not divide the batch of {args.batch}")
  if args.plot: check_plot(p, pathlib.Path(args.plot))
  return args

def check_plot(p:Args, path:pathlib.Path):
  try: from matplotlib.backends.backend_agg import FigureCanvasAgg
  except ImportError: p.error("--plot needs matplotlib: pip install matplotlib")
  if not path.parent.is_dir(): p.error(f"--plot {path}: there is no folder {path.parent}")
  if path.is_dir(): p.error(f"--plot {path}: is a folder")
  if not os.access(path if path.exists() else path.parent, os.W_OK): p.error(f"--plot {path}: may not be written")
  kinds = FigureCanvasAgg.filetypes
  if path.suffix[1:].lower() not in kinds: p.error(f"--plot {path}: the name must end in one of {', '.join(sorted(kinds))}")

def table(one:Run, many:Run, diff:float, least:int):
  def row(name, *cells): print(f"{name:34s}" + "".join(f"{c:>14s}" for c in cells))
  print()
  row("", "1 device", f"{len(many.devices)} devices")
  row("test accuracy", *(f"{r.accuracy:.2%}" for r in (one, many)))
  row("loss of the last step", *(f"{r.losses[-1]:.6f}" for r in (one, many)))
  row("largest difference of the losses", "", f"{diff:.2e}")
  # the gradients of several devices do cross: none seen means one step only, or a jit (HCQ2) that has turned the copies into programs of its own
  row("bytes between devices a step", f"{one.moved:,}", f"{many.moved:,}" if many.moved else "not seen")
  row("least possible", "0", f"{least:,}")
  # the first two steps compile and capture
  row("seconds a step", *(f"{statistics.median(r.seconds[2:]):.4f}" if len(r.seconds) > 2 else "-" for r in (one, many)))

def main(argv:list[str]|None=None) -> int:
  args = parse(argv)
  try: data = load_digits()
  except ImportError: sys.exit("digits: the data come with scikit-learn: pip install scikit-learn")
  many_devices = tuple(f"CPU:{i}" for i in range(args.devices))
  with Context(DEV="CPU"):
    one, many = (train(data, d, args.steps, args.batch) for d in (("CPU",), many_devices))
    diff = difference(one, many)
    table(one, many, diff, least_bytes(many.net, args.devices))
    if args.plot:
      plot(args.plot, data, one, many, args.batch)
      print(f"plot written to {args.plot}")
  if not diff <= TOLERANCE:
    print(f"\nFAILED: the losses differ by {diff:.2e}, more than {TOLERANCE:.0e}", file=sys.stderr)
    return 1
  if args.steps >= STEPS and min(one.accuracy, many.accuracy) < GOAL:
    print(f"\nFAILED: a test accuracy is below {GOAL:.0%}", file=sys.stderr)
    return 1
  return 0

if __name__ == "__main__": sys.exit(main())
