"""differential fuzzer of sharding: random programs on several devices, against numpy, and against the same program on one device

  fuzz_sharding.py [--programs N] [--seed S] [--mode eager|lazy|jit|grad] [--only OP,OP] [--meshes]
  fuzz_sharding.py --one 'PROGRAM'     replays one, PROGRAM as a failure's line has it; 'SEED:NUMBER' is the program of that number of a run

A program is a dict: n devices, the mesh that they are or None, a mode, ins (shape, dtype, axis, way, seed) and ops (name, numbers of the sources,
arguments). Values are numbered, the inputs first and then the ops. An argument that is a dict is a constant tensor with a placement of its own.
"""
import os
os.environ.setdefault("SYMBOLIC_MULTI", "1")
# a view may start at an odd place, where 0.14.0 takes it for aligned memory and crashes. its own switch for that
os.environ.setdefault("ALIGNED", "0")
import argparse, itertools, math, random, re, select, subprocess, sys, time, traceback, warnings  # noqa: E402
import numpy as np  # noqa: E402
from tinygrad import Tensor, TinyJit, dtypes  # noqa: E402
from tinygrad.dtype import strong_dtype  # noqa: E402

class Reject(Exception): pass  # this op can't be tested on these values
def need(ok):
  if not ok: raise Reject()

MARGIN, TOL, BOUND = {"f": 5e-3, "i": 0}, {"float32": 2e-4, "float16": 2e-2}, {"float32": 1e4, "float16": 200, "int32": 1e6}
KIND = {"float32": "f", "float16": "f", "int32": "i", "bool": "b"}

def data(shape, dtype, seed):
  # no value twice, so that max and sort have one answer
  n = math.prod(shape)
  perm = np.random.RandomState(seed).permutation(n).reshape(shape)
  return np.asarray((perm*7//3) % 2 == 0 if dtype == "bool" else perm-n//2 if dtype == "int32" else (perm-n/2+0.3)*min(6/max(n, 1), 0.5), dtype=dtype)

def nested(devices, mesh):
  """the devices as a mesh"""
  return devices if mesh is None else tuple(devices[i:i+mesh[1]] for i in range(0, len(devices), mesh[1]))

# ***** the ops: arguments from a generator, numpy, tinygrad *****

OPS = {}
def op(name, gen, ref, tg=None, grad=True, w=1.): OPS[name] = (gen, ref, tg or ref, grad, w)

def cast(b, a): return b.astype(a.dtype) if isinstance(a, np.ndarray) else b.cast(a.dtype)
def apart(a, b):
  # a comparison of what is rounded in another way on each side has no answer
  d = np.abs(np.asarray(a, np.float64)-b)
  need(np.asarray(a).dtype.kind != "f" or np.all((d == 0) | (d > MARGIN["f"])) and not (np.any(d == 0) and np.any(np.asarray(a) % 1)))
def far(x, axis):
  s = np.sort(x, axis=axis)
  need(x.dtype.kind != "b" and (x.shape[axis] == 1 or np.diff(s, axis=axis).min() > (MARGIN["f"] if x.dtype.kind == "f" else 0)))
def inside(x, v):
  need(np.abs(x).max() <= v)
  return x

for name, kinds, ref, tg, grad in [
  ("neg", "fi", lambda x: -x, None, True), ("relu", "f", lambda x: np.maximum(x, 0), lambda t: t.relu(), True),
  ("abs", "fi", np.abs, lambda t: t.abs(), True), ("square", "fi", np.square, lambda t: t.square(), True),
  ("exp", "f", lambda x: np.exp(inside(x, 4)), lambda t: t.exp(), True), ("tanh", "f", np.tanh, lambda t: t.tanh(), True),
  ("sigmoid", "f", lambda x: 1/(1+np.exp(-x)), lambda t: t.sigmoid(), True),
  ("sqrt", "f", lambda x: np.sqrt(np.abs(x)+0.5), lambda t: (t.abs()+0.5).sqrt(), True),
  ("recip", "f", lambda x: 1/(np.abs(x)+0.5), lambda t: (t.abs()+0.5).reciprocal(), True),
  ("not", "b", np.logical_not, lambda t: t.logical_not(), False), ("same", "fib", lambda x: x, lambda t: t.contiguous(), True),
  ("clone", "fib", lambda x: x, lambda t: t.clone(), False), ("realize", "fib", lambda x: x, lambda t: t.contiguous().realize(), False)]:
  op(name, lambda g, kinds=kinds: ((g.v(kinds),), ()), ref, tg or ref, grad, 0.5)
op("cast", lambda g: ((i:=g.v(),), (g.pick([d for d in KIND if d != "bool" and d != g.dt(i)] if g.mode != "grad" else ["float32"]),)),
   lambda x, d: (apart(np.round(x), x) if KIND[d] == "i" else None, x.astype(np.int32 if d == "int32" else np.float64))[1],
   lambda t, d: t.cast(getattr(dtypes, d)))

for name, kinds, ref, tg, grad in [
  ("add", "fi", lambda a,b: a+b, None, True), ("sub", "fi", lambda a,b: a-b, None, True), ("mul", "fi", lambda a,b: a*b, None, True),
  ("maximum", "fi", lambda a,b: (apart(a, b), np.maximum(a, b))[1], lambda a,b: a.maximum(b), True),
  ("minimum", "fi", lambda a,b: (apart(a, b), np.minimum(a, b))[1], lambda a,b: a.minimum(b), True),
  ("div", "f", lambda a,b: a/(np.abs(b)+0.5), lambda a,b: a/(b.abs()+0.5), True),
  ("idiv", "i", lambda a,b: a//(np.abs(b)+1), lambda a,b: a//(b.abs()+1), False),
  ("mod", "i", lambda a,b: a%(np.abs(b)+1), lambda a,b: a%(b.abs()+1), False),
  ("lt", "fi", lambda a,b: (apart(a, b), a < b)[1], lambda a,b: a < b, False),
  ("eq", "fi", lambda a,b: (apart(a, b), a == b)[1], lambda a,b: a == b, False),
  ("and", "ib", lambda a,b: a & b, None, False), ("or", "ib", lambda a,b: a | b, None, False), ("xor", "ib", lambda a,b: a ^ b, None, False)]:
  op(name, lambda g, kinds=kinds: ((i:=g.v(kinds), g.like(i)), ()), lambda a,b,f=ref: f(a, cast(b, a)),
     lambda a,b,f=tg or ref: f(a, cast(b, a)), grad, 0.6)
op("gt", lambda g: ((g.v("fi"),), (g.pick((0, 1, -1)),)), lambda x,c: (apart(x, c), x > c)[1], lambda t,c: t > c, False)
op("scale", lambda g: ((g.v("fi"),), (g.i(-2, 3), g.i(-2, 2))), lambda x,m,c: x*m+c)
op("where", lambda g: ((g.v("b"), i:=g.v(), g.like(i)), ()), lambda c,a,b: np.where(c, a, cast(b, a)),
   lambda c,a,b: c.where(a, cast(b, a)), w=2)
op("masked_fill", lambda g: ((i:=g.v("fi"), g.into("b", g.sh(i))), (g.i(-3, 3),)), lambda x,m,c: np.where(m, c, x).astype(x.dtype),
   lambda t,m,c: t.masked_fill(m, c))

def axes(g, i): return g.pick((None, g.axis(i), g.axis(i), tuple(sorted(g.r.sample(range(-1, len(g.sh(i))-1), g.i(1, len(g.sh(i))))))))
def reduce_(g, kinds, one=False, wide=False):
  # the CPU computes float16 wider where it isn't stored: such an element equals the stored largest no more, and 0.14.0 finds no place for that either
  i = g.choose(lambda v: KIND[v.dtype.name] in kinds and v.ndim > 0 and not (wide and v.dtype.name == "float16"))
  return ((i,), (g.axis(i) if one else axes(g, i), g.i(0, 1) == 1))
def tie(x, a, k):
  if x.dtype.kind == "f": # the gradient of a near tie has no answer
    near = np.abs(x-x.max(axis=a, keepdims=True))
    need(np.all((near == 0) | (near > MARGIN["f"])))
  return x.max(axis=a, keepdims=k)
def logsumexp(x, a, k): return np.log(np.exp(inside(x, 50)).sum(axis=a, keepdims=k))
def arg(f):
  def g(x, a, k): return (far(x, a), np.expand_dims(f(x, axis=a), a) if k else f(x, axis=a))[1].astype(np.int32)
  return g
for name, kinds, ref, grad in [
  ("sum", "fib", lambda x,a,k: x.sum(axis=a, keepdims=k), True), ("mean", "fib", lambda x,a,k: x.mean(axis=a, keepdims=k), True),
  ("prod", "fi", lambda x,a,k: (inside(np.prod(np.abs(x)+1, axis=a, dtype=np.float64), 1e4), x.prod(axis=a, keepdims=k))[1], True),
  ("max", "fib", tie, True), ("min", "fi", lambda x,a,k: -tie(-x, a, k), True), ("logsumexp", "f", logsumexp, True),
  ("any", "b", lambda x,a,k: x.any(axis=a, keepdims=k), False), ("all", "b", lambda x,a,k: x.all(axis=a, keepdims=k), False),
  ("argmax", "fi", arg(np.argmax), False), ("argmin", "fi", arg(np.argmin), False)]:
  op(name, lambda g, kinds=kinds, one="arg" in name or "log" in name, wide="arg" in name: reduce_(g, kinds, one, wide),
     ref, lambda t,a,k,f=name: getattr(t, f)(axis=a, keepdim=k), grad)
op("std", lambda g: ((i:=g.v("f"),), (g.axis(i), True)), lambda x,a,k:
   (need(x.shape[a] > 1 and x.std(axis=a).min() > 0.1), x.std(axis=a, ddof=1, keepdims=k))[1],
   lambda t,a,k: t.std(axis=a, keepdim=k))
op("softmax", lambda g: ((i:=g.v("f"),), (g.axis(i),)), lambda x,a: np.exp(x-logsumexp(x, a, True)), lambda t,a: t.softmax(a))
op("cumsum", lambda g: ((i:=g.v("fi"),), (g.axis(i),)), lambda x,a: x.cumsum(axis=a), lambda t,a: t.cumsum(a))
op("cummax", lambda g: ((i:=g.v("fi"),), (g.axis(i), g.i(0, g.dt(i) != "float16"))),
   lambda x,a,w: (far(x, a), np.maximum.accumulate(x, axis=a) if not w else
   np.maximum.accumulate(np.where(x == np.maximum.accumulate(x, axis=a), np.arange(x.shape[a]).reshape((-1,)+(1,)*(x.ndim-1-a%x.ndim)), 0),
   axis=a))[1],
   lambda t,a,w: t.cummax(a)[w], False)
def sort_(x, a, d, w, k=None):
  far(x, a)
  idx = np.argsort(-x if d else x, axis=a)[(slice(None),)*(a % x.ndim)+(slice(k),)]
  return idx.astype(np.int32) if w else np.take_along_axis(x, idx, a)
op("sort", lambda g: ((i:=g.v("fi"),), (g.axis(i, 9), g.i(0, 1) == 1, g.i(0, 1))), sort_, lambda t,a,d,w: t.sort(a, d)[w], False, 0.4)
op("topk", lambda g: ((i:=g.v("fi"),), (a:=g.axis(i, 9), g.i(0, 1) == 1, g.i(0, 1), g.i(1, g.sh(i)[a]))),
   sort_, lambda t,a,d,w,k: t.topk(k, a, d)[w], False, 0.4)

op("matmul", lambda g: ((i:=g.v("fi"), g.v(KIND[g.dt(i)])), ()), lambda a,b: a@cast(b, a), None, w=0.6)
op("matmul_t", lambda g: ((i:=g.v("fi", 2), g.v(KIND[g.dt(i)], 2)), ()), lambda a,b: a@cast(b, a).swapaxes(-1, -2),
   lambda a,b: a@cast(b, a).transpose(-1, -2))

op("flip", lambda g: ((i:=g.v(),), (tuple(g.some(i)),)), lambda x,a: np.flip(x, a), lambda t,a: t.flip(a))
NP_MODE = {"constant": {}, "reflect": {"mode": "reflect"}, "replicate": {"mode": "edge"}, "circular": {"mode": "wrap"}}
def pad_(x, p, mode, v):
  # numpy can't pad by less than nothing. circular wraps what is left, the others read all
  def cut(x): return x[tuple(slice(max(-b, 0), s-max(-a, 0)) for s,(b,a) in zip(x.shape, p))]
  pos = [(max(b, 0), max(a, 0)) for b,a in p]
  if mode in ("constant", "circular"): x = cut(x)
  need(x.size and all(max(q) < s+{"reflect": 0, "circular": 1}.get(mode, 99) for q,s in zip(pos, x.shape)))
  if mode == "constant": return np.pad(x, pos, constant_values=v if x.dtype.kind == "f" else int(v) if x.dtype.kind == "i" else bool(v))
  x = np.pad(x, pos, **NP_MODE[mode])
  return x if mode == "circular" else x[tuple(slice(max(-b, 0), s-max(-a, 0)) for s,(b,a) in zip(x.shape, p))]
def pad_args(g):
  i, mode = g.v(), g.pick(("constant", "constant", *NP_MODE))
  fill = g.pick({"f": (0., 1., -2.5), "i": (0, 1, -2), "b": (False, True)}[KIND[g.dt(i)]]) if mode == "constant" else 0
  return (i,), (tuple((g.i(-1, 3), g.i(-1, 3)) if g.i(0, 1) else (0, 0) for _ in g.sh(i)), mode, fill)
op("pad", pad_args, pad_, lambda t,p,m,v: t.pad(p, mode=m, value=v), w=4)
# a pad with inf that a reduce takes away again
op("pad_inf_max", lambda g: ((i:=g.v("f"),), (g.axis(i), g.i(0, 2), g.i(1, 2))), lambda x,a,b,e: (tie(x, a, False), x.max(axis=a))[1],
   lambda t,a,b,e: t.pad(tuple((b, e) if d == a else (0, 0) for d in range(t.ndim)), value=-math.inf).max(a))

def span(g, s): return (b:=g.i(0, s-1), g.i(b+1, s))
def get_args(g, i):
  sh, kind = g.sh(i), g.pick("ssit")
  idx = []
  for s in sh[:g.i(1, len(sh))]:
    match g.pick({"s": "::s:r", "i": ":isr", "t": ":st:"}[kind]):
      case ":": idx.append(slice(None))
      case "s": idx.append(slice(*span(g, s), g.pick((None, 1, 2, 3))))
      case "r": idx.append(g.pick((slice(None, None, -1), slice(s-1, None, -2), slice(g.i(0, s-1), None, -1), slice(None, None, -3))))
      case "i": idx.append(g.i(-s, s-1))
      case "t": idx.append(None)
  if kind == "t":
    # all of one shape, no place twice
    n = min(g.pick(([s for s in (2, 3, 4, 6, g.n) if s <= min(sh)]) or (1,)), min(sh))
    idx = [g.index(g.r.sample(range(s), n)) if j is None else j for j,s in zip(idx, sh)]
  elif kind == "i" and len(idx) < len(sh) and g.i(0, 2) == 0: idx.insert(g.i(0, len(idx)), Ellipsis)
  if kind != "t" and g.i(0, 4) == 0: idx.insert(g.i(0, len(idx)), None)
  return tuple(idx)
op("getitem", lambda g: ((i:=g.v(),), (get_args(g, i),)), lambda x,i: x[i], None, w=5)
op("index2", lambda g: ((i:=g.v(),), (g.index(np.array([g.i(-s, s-1) for _ in range(g.n*2)]).reshape(g.n, 2).tolist() if (s:=g.sh(i)[0]) else 0),)),
   lambda x,i: x[i,], None)
op("shrink", lambda g: ((i:=g.v(),), (tuple(span(g, s) if g.i(0, 1) else None for s in g.sh(i)),)),
   lambda x,a: x[tuple(slice(*(s or (None,))) for s in a)],
   lambda t,a: t.shrink(a), w=2)
op("chunk", lambda g: ((i:=g.v(),), (g.i(2, 4), g.axis(i), g.i(0, 1))),
   lambda x,c,a,w: np.concatenate(pieces(x, c, a)[::-1], a) if w else pieces(x, c, a)[-1],
   lambda t,c,a,w: Tensor.cat(*t.chunk(c, a)[::-1], dim=a) if w else t.chunk(c, a)[-1])
op("split", lambda g: ((i:=g.v(),), (g.i(1, 3), g.axis(i), g.i(0, 1))), lambda x,c,a,w: pieces(x, math.ceil(x.shape[a]/c), a, c)[-w],
   lambda t,c,a,w: t.split(c, a)[-w])
def pieces(x, c, a, step=None): return np.split(x, list(range(0, x.shape[a], step or math.ceil(x.shape[a]/c)))[1:], a)
op("roll", lambda g: ((i:=g.v(),), (g.i(-4, 4), g.axis(i))), lambda x,s,a: np.roll(x, s, a), lambda t,s,a: t.roll(s, a), w=2)
op("cat", lambda g: ((i:=g.v(), *[g.same(i) for _ in range(g.i(1, 2))]), (g.axis(i),)), lambda *x: np.concatenate(x[:-1], x[-1]),
   lambda *x: Tensor.cat(*x[:-1], dim=x[-1]),
   w=2)
op("stack", lambda g: ((i:=g.v(), g.same(i)), (g.i(0, len(g.sh(i))),)), lambda *x: np.stack(x[:-1], x[-1]),
   lambda *x: Tensor.stack(*x[:-1], dim=x[-1]), w=2)
op("repeat", lambda g: ((i:=g.v(),), (tuple(g.pick((1, 1, 2, 3)) for _ in g.sh(i)),)), np.tile, lambda t,r: t.repeat(r))
op("repeat_interleave", lambda g: ((i:=g.v(),), (g.i(2, 3), g.axis(i))), lambda x,r,a: np.repeat(x, r, a), lambda t,r,a: t.repeat_interleave(r, a))
def shapes(g, i):
  sh = list(g.sh(i))
  for _ in range(g.i(1, 2)):
    d = g.i(0, len(sh)-1)
    if g.i(0, 1) and len(sh) > 1: sh[d:d+2] = [math.prod(sh[d:d+2])]
    elif divs := [k for k in range(2, sh[d]) if sh[d] % k == 0]: sh[d:d+1] = [k:=g.pick(divs), sh[d]//k]
  return tuple(g.r.sample(sh, len(sh)) if g.i(0, 2) == 0 else sh)
op("reshape", lambda g: ((i:=g.v(),), (shapes(g, i),)), lambda x,s: x.reshape(s), None, w=5)
op("permute", lambda g: ((i:=g.v("fib", 2),), (tuple(g.r.sample(range(len(g.sh(i))), len(g.sh(i)))),)),
   lambda x,a: x.transpose(a), lambda t,a: t.permute(a), w=2)
op("expand", lambda g: ((i:=g.v(),), ((g.i(1, 3),)*g.i(0, 1)+tuple(g.i(1, 4) if s == 1 else s for s in g.sh(i)),)),
   np.broadcast_to, lambda t,s: t.expand(s))
op("unsqueeze", lambda g: ((i:=g.v(),), (g.i(0, len(g.sh(i))),)), np.expand_dims, lambda t,a: t.unsqueeze(a))
op("squeeze", lambda g: ((i:=g.v(),), (g.pick([a for a,s in enumerate(g.sh(i)) if s == 1]),)), np.squeeze, lambda t,a: t.squeeze(a))
for name in ("tril", "triu"):
  op(name, lambda g: ((g.v("fib", 2),), (g.i(-2, 2),)), getattr(np, name), lambda t,k,f=name: getattr(t, f)(k))
def gather_args(g):
  a, sh = g.axis(i:=g.v()), list(g.sh(i))
  sh[a] = g.i(1, 4)
  return (i,), (a, g.index(np.array([g.i(0, g.sh(i)[a]-1) for _ in range(math.prod(sh))]).reshape(sh).tolist(), False))
op("gather", gather_args, lambda x,a,i: np.take_along_axis(x, i, a), lambda t,a,i: t.gather(a, i))
def scatter_args(g):
  a, sh = g.axis(i:=g.v("fi"), 12), list(g.sh(i))
  sh[a] = g.i(1, sh[a])
  rows = np.moveaxis(np.array([g.r.sample(range(g.sh(i)[a]), sh[a]) for _ in range(math.prod(sh)//sh[a])]).reshape(sh[:a]+sh[a+1:]+[sh[a]]), -1, a)
  return (i,), (a, g.index(rows.tolist(), False), g.const(tuple(sh), g.dt(i)), g.pick((None, "sum", "amax")))
def scatter_(x, a, i, v, how):
  ret, at = x.copy(), tuple(i if d == a else o for d,o in enumerate(np.indices(i.shape)))
  ret[at] = v if how is None else x[at]+v if how == "sum" else np.maximum(x[at], v)
  return ret
op("scatter", scatter_args, scatter_,
   lambda t,a,i,v,how: t.scatter(a, i, cast(v, t)) if how is None else t.scatter_reduce(a, i, cast(v, t), how), False)
op("one_hot", lambda g: ((g.v("i"),), (g.i(2, 5),)), lambda x,k: (np.abs(x)[..., None]%k == np.arange(k)).astype(np.int32),
   lambda t,k: (t.abs()%k).one_hot(k), False)

def set_args(g):
  i, how = g.v(), g.pick(("set", "set", "iadd"))
  need(how == "set" or g.dt(i) != "bool")
  idx = tuple(j for j in get_args(g, i) if j is not None)
  sh = np.zeros(g.sh(i))[mat(idx, lambda d: np.array(d["ix"]))].shape
  match g.pick("scv"):
    case "s": return (i,), (idx, g.pick(("clone", "realized")), how, g.i(0, 1) == 1 if g.dt(i) == "bool" else g.i(-3, 3))
    case "c": return (i,), (idx, g.pick(("clone", "realized")), how, g.const(sh, g.dt(i)))
    case "v": return (i, g.into(KIND[g.dt(i)], sh)), (idx, g.pick(("clone", "realized")), how)
def split_set(r): return r if isinstance(r[0], tuple) else (*r[1:], r[0])
def set_np(x, *r):
  idx, _, how, v = split_set(r)
  ret, v = x.copy(), v if isinstance(v, (int, bool)) else cast(v, x)
  if how == "set": ret[idx] = v
  else: ret[idx] += v
  return ret
def set_tg(t, *r):
  idx, way, how, v = split_set(r)
  ret, v = t.clone(), v if isinstance(v, (int, bool)) else cast(v, t)
  if way == "realized": ret.realize()
  if how == "set": ret[idx] = v
  else: ret[idx] += v
  return ret
op("setitem", set_args, set_np, set_tg, False, 5)
op("assign", lambda g: ((i:=g.v(), g.into(KIND[g.dt(i)], g.sh(i))), (g.i(0, 1),)), lambda x,v,r: np.broadcast_to(cast(v, x), x.shape),
   lambda t,v,r: (t.clone().realize() if r else t.clone()).assign(cast(v, t)), False)

def windows(x, k, s, d=None):
  v = np.lib.stride_tricks.sliding_window_view(x, [1+(a-1)*d for a in k] if d else k, tuple(range(x.ndim-len(k), x.ndim)))
  v = v[(Ellipsis,)+tuple(slice(None, None, s) for _ in k)+(slice(None),)*len(k)]
  return v[(Ellipsis,)+(slice(None, None, d),)*len(k)] if d else v
def padded(x, k, p, fill): return np.pad(x, [(0, 0)]*(x.ndim-len(k))+[(p, p)]*len(k), constant_values=fill)
def conv_args(g):
  i = g.v("f", 2)
  nd = g.i(1, min(2, len(g.sh(i))-1))
  ci = g.sh(i)[-nd-1]
  groups, k = g.pick([c for c in range(1, ci+1) if ci % c == 0]), tuple(g.i(1, min(3, s)) for s in g.sh(i)[-nd:])
  return (i,), (g.const((groups*g.i(1, 3) if g.i(0, 1) else groups*g.n, ci//groups)+k, "float32"), groups, g.i(1, 2), g.i(0, 1), g.i(1, 2))
def conv_np(x, w, groups, stride, p, d):
  k, x = w.shape[2:], x.reshape((-1,)+x.shape[-w.ndim+1:])
  need(all(s+2*p >= 1+(a-1)*d for s,a in zip(x.shape[2:], k)) and np.abs(w).sum() < 100)
  v = windows(padded(x, k, p, 0), k, stride, d)
  v = v.reshape(v.shape[:1]+(groups, -1)+v.shape[2:])
  r = np.einsum({1: "ngcxa,gkca->ngkx", 2: "ngcxyab,gkcab->ngkxy"}[len(k)], v, w.reshape((groups, -1)+w.shape[1:]))
  return r.reshape((r.shape[0], -1)+r.shape[3:])
op("conv", conv_args, conv_np,
   lambda t,w,g,s,p,d: t.reshape((-1,)+t.shape[-w.ndim+1:]).conv2d(cast(w, t), groups=g, stride=s, padding=p, dilation=d), w=3)
def pool_args(g): return (i:=g.v("f", 2),), (k:=tuple(g.i(1, min(3, s)) for s in g.sh(i)[-g.i(1, 2):]), g.i(1, 3), g.i(0, min(k)//2))
op("avg_pool", pool_args, lambda x,k,s,p: windows(padded(x, k, p, 0), k, s).mean(axis=tuple(range(-len(k), 0))),
   lambda t,k,s,p: t.avg_pool2d(k, s, padding=p))
def max_pool(x, k, s, p):
  v = windows(padded(x, k, p, -1e9), k, s)
  return tie(v.reshape(v.shape[:x.ndim]+(-1,)), -1, False)
op("max_pool", pool_args, max_pool, lambda t,k,s,p: t.max_pool2d(k, s, padding=p))
def interp_np(x, size, mode, ac):
  for a,o in zip(range(-len(size), 0), size):
    i, ar = x.shape[a], np.arange(o)
    need(not ac or o > 1)
    if mode == "linear": at = np.clip(ar*(i-1)/(o-1) if ac else (ar+0.5)*i/o-0.5, 0, i-1)
    else: at = np.floor(np.float32(i/o)*(ar+(0.5 if "exact" in mode else 0)).astype(np.float32))
    lo, hi = np.floor(at).astype(int), np.ceil(at).astype(int)
    x = np.moveaxis(np.moveaxis(x.take(lo, a), a, -1)*(1-(at-lo))+np.moveaxis(x.take(hi, a), a, -1)*(at-lo), -1, a)
  return x
op("interpolate", lambda g: ((i:=g.v("f"),), (tuple(g.i(1, 8) for _ in range(g.i(1, min(2, len(g.sh(i)))))),
   m:=g.pick(("linear", "nearest", "nearest-exact")),
   m == "linear" and g.i(0, 1) == 1)), interp_np, lambda t,s,m,ac: t.interpolate(s, m, ac))
op("reshard", lambda g: ((i:=g.v(),), (g.place(g.sh(i)), g.mesh)), lambda x,a,m: x,
   lambda t,a,m: t.shard(nested(t.device, m), a) if isinstance(t.device, tuple) else t, w=3)
op("to_cpu", lambda g: ((g.v(),), ()), lambda x: x, lambda t: t.cast(strong_dtype(t.dtype)).to("CPU"), w=0)

# ***** a program on numpy *****

def mat(a, f): return tuple(mat(x, f) for x in a) if isinstance(a, tuple) else f(a) if isinstance(a, dict) else a
def array(d): return np.array(d["ix"], dtype=np.int32) if "ix" in d else data(d["shape"], d["dtype"], d["seed"])
def lift(x): return x.astype(np.float64) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x

def step(name, xs, args):
  fd = next((x.dtype for x in xs if x.dtype.kind == "f"), np.dtype(np.float32))
  if name == "cast" and KIND[args[0]] == "f": fd = np.dtype(args[0])
  with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    r = np.asarray(OPS[name][1](*[lift(x) for x in xs], *mat(args, lambda d: lift(array(d)))))
    r = r.astype({"f": fd, "b": np.bool_}.get(r.dtype.kind, np.int32)) if r.dtype.kind == "b" or np.abs(r).max(initial=0) < 1e9 else need(False)
  need(0 < r.size <= 2000 and r.ndim <= 6 and (r.dtype.kind == "b" or np.all(np.isfinite(r)) and np.abs(r).max() <= BOUND[r.dtype.name]))
  return r

def reference(p, call=0):
  vals = [data(shape, dtype, seed+1000*call) for shape,dtype,_,_,seed in p["ins"]]
  for name, srcs, args in p["ops"]: vals.append(step(name, [vals[s] for s in srcs], args))
  return vals

def outputs(p):
  used = {s for _,srcs,_ in p["ops"] for s in srcs}
  first = len(p["ins"]) if p["ops"] else 0
  every = range(first, len(p["ins"])+len(p["ops"]))
  return list(every) if p["mode"] == "eager" else [every[-1]] if p["mode"] == "grad" else [i for i in every if i not in used]

# ***** a program on tinygrad *****

def read(t):
  """the value, and of a value that all devices have: what each of them has"""
  t = t.contiguous().realize()
  if isinstance(t.device, tuple) and not t.uop.windows and t.uop.has_buffer_identity() and t.uop.buffer.size == math.prod(t.shape):
    bufs = t.uop.buffer.bufs
    lanes = [np.frombuffer(bytes(b.as_memoryview()), dtype=t.numpy().dtype)[:math.prod(t.shape)].reshape(t.shape) for b in bufs]
    return lanes if any(not np.array_equal(v, lanes[0], equal_nan=v.dtype.kind == "f") for v in lanes) else lanes[:1]
  return [t.numpy()]

def below(u):
  """of what u is a view, which may be contiguous on each device"""
  while (b:=u.base).op.name == "CONTIGUOUS": u = b.src[0]
  return b

def run(p, single=False):
  """a list of values of the outputs for each call"""
  devices, consts = tuple(f"CPU:{i}" for i in range(p["n"])), {}
  def put(a, axis, way="realize"):
    t = Tensor(a, device="CPU")
    if not single: t = t.shard(nested(devices, p.get("mesh")), axis)
    if way.startswith("contiguous"): t = t.contiguous()
    return t.realize() if way.endswith("realize") else t
  def const(d):
    if d["ax"] == "list": return d["ix"]
    return consts[repr(d)] if repr(d) in consts else consts.setdefault(repr(d), put(array(d), d["ax"]))
  def inputs(call): return [put(data(shape, dtype, seed+1000*call), axis, way) for shape,dtype,axis,way,seed in p["ins"]]
  def body(*vals):
    vals = list(vals)
    for name, srcs, args in p["ops"]:
      vals.append(OPS[name][2](*[vals[s] for s in srcs], *mat(args, const)))
      if p["mode"] == "eager": vals[-1].realize()
    outs = [vals[i] for i in outputs(p)]
    # what a captured function returns of its input unchanged stays the first input
    if p["mode"] == "jit": outs = [o.clone() if any(below(o.uop) is below(x.uop) for x in vals[:len(p["ins"])]) else o for o in outs]
    if p["mode"] in ("lazy", "jit"): Tensor.realize(*outs)
    return outs
  if p["mode"] == "jit":
    jit = TinyJit(body)
    return [[read(o) for o in jit(*[x.realize() for x in inputs(call)])] for call in range(4)]
  out = body(*(ins:=inputs(0)))
  if p["mode"] != "grad": return [[read(o) for o in out]]
  w = Tensor(data(out[0].shape, "float32", 7), device="CPU")
  if isinstance(out[0].device, tuple): w = w.shard(devices)
  wanted = [t for i,t in enumerate(ins) if i in reached(p)]
  # before what is read replaces what it was computed from
  grads = (out[0]*w).sum().gradient(*wanted)
  return [[read(out[0])]+[read(x) for x in grads]]

def reached(p):
  vals, n = reference(p), len(p["ins"])
  seen = {n+len(p["ops"])-1}
  for i,(_,srcs,_) in reversed(list(enumerate(p["ops"]))):
    if n+i in seen: seen |= {s for s in srcs if vals[s].dtype.kind == "f"}
  return seen

def differs(call, i, g, w, scale):
  if len(g) > 1: return f"call {call}, output {i}: the devices have different values"
  if g[0].dtype != w.dtype: return f"call {call}, output {i}: dtype {g[0].dtype}, not {w.dtype}"
  if g[0].shape != w.shape: return f"call {call}, output {i}: shape {g[0].shape}, not {w.shape}"
  if w.dtype.kind in "ib": bad = g[0] != w
  else: bad = ~np.isclose(g[0].astype(np.float64), w, rtol=TOL[w.dtype.name], atol=scale)
  if bad.any(): return f"call {call}, output {i} of shape {w.shape}: {bad.sum()} differ, the first at {tuple(map(int, np.argwhere(bad)[0]))}: " \
                       f"{g[0][bad].flat[0]}, not {w[bad].flat[0]}"

def compare(got, want, scale, one=None):
  """the first output that isn't what is wanted, nor what one device has"""
  for call, (gs, ws) in enumerate(zip(got, want)):
    for i, (g, w) in enumerate(zip(gs, ws)):
      if (bad:=differs(call, i, g, w, scale)) and (one is None or (bad:=differs(call, i, g, one[call][i][0], scale))): return bad

def kind_of(e):
  at = [f"{f.filename.split('tinygrad/')[-1]}:{f.lineno}" for f in traceback.extract_tb(e.__traceback__)
        if re.search(r"tinygrad/(schedule/|mixin/|tensor.py|engine/|uop/ops|codegen/)", f.filename) and f.name not in ("graph_rewrite", "<lambda>")]
  text = re.sub(r"\([#, ]*\)", "(..)", re.sub(r"dtypes\.\w+|UOp\w*\(.*", "..", re.sub(r"\d+", "#", str(e).split("\n")[0])))[:50]
  where = next((x for x in at[::-1] if x[:9] == "schedule/"), at[-1] if at else "?")
  return f"{type(e).__name__}: {text} at {where}", f"{str(e)[:300]} at {' > '.join(at[-5:])}"

def judge(p):
  """None: right. else (kind, text). kinds in brackets are no fault of sharding"""
  try: refs = [reference(p, call) for call in range(4 if p["mode"] == "jit" else 1)]
  except Exception: return "[invalid]", "numpy can't do it"
  def tolerance(): return max(TOL.get(v.dtype.name, 0)*max(1, np.abs(v).max(initial=0)) for vals in refs for v in vals if v.dtype.kind == "f") \
    if any(v.dtype.kind == "f" for v in refs[0]) else 0
  want, scale = [[vals[i] for i in outputs(p)] for vals in refs], tolerance()
  err = None
  try: got = run(p)
  except Exception as e: err = kind_of(e)
  if err is not None or p["mode"] == "grad" or compare(got, want, scale):
    try: one = run(p, True)
    except Exception as e: return ("[one device raises too]", str(e)[:100]) if err or p["mode"] == "grad" else ("wrong", compare(got, want, scale))
    if err is not None: return err
    # memory that isn't written differs each time
    if (also:=compare(one if p["mode"] != "grad" else [one[0][:1]], want, scale)): return "[one device is wrong too]", also
    same = compare(got, want, scale, one)
    if p["mode"] == "grad":
      scale *= max(1, max(np.abs(g[0]).max() for g in one[0]))
      bad = compare(got, [[g[0] for g in gs] for gs in one], scale)
      return ("wrong gradient" if "output 0" not in bad else "wrong", bad) if bad else None
    if not same: return "[one device is wrong too]", compare(got, want, scale)
    return "wrong"+("" if "differ," in same else " "+same.split(": ")[1].split(",")[0]), same

class Worker:
  """judges programs in a process of its own: a wrong kernel may kill it, or never end"""
  proc = None
  def judge(self, p, seconds=120):
    if self.proc is not None and self.proc.poll() is not None: self.close()
    if self.proc is None:
      env = {**os.environ, "PYTHONPATH": os.pathsep.join(x for x in sys.path if x)} # the same tinygrad, however this process found it
      self.proc = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                   env=env)
    self.proc.stdin.write(repr(p)+"\n")
    self.proc.stdin.flush()
    if select.select([self.proc.stdout], [], [], seconds)[0] and (line:=self.proc.stdout.readline()): return parse(line)
    slow = self.proc.poll() is None and not select.select([self.proc.stdout], [], [], 1)[0]
    self.close()
    return ("took too long", f"more than {seconds} s") if slow else ("died", "the process died")
  def close(self):
    if self.proc is None: return
    self.proc.kill()
    self.proc.communicate()
    self.proc = None

def work():
  out = os.fdopen(os.dup(1), "w")
  os.dup2(2, 1) # what tinygrad prints is no answer
  for line in sys.stdin: print(repr(judge(parse(line))), file=out, flush=True)

def parse(text): return eval(text, {"__builtins__": {}, "slice": slice, "Ellipsis": Ellipsis, "inf": math.inf, "nan": math.nan})

# ***** programs *****

MESHES = ((2, 2), (2, 2), (2, 4), (4, 2), (3, 2), (2, 3))

class Gen:
  def __init__(self, r, mode=None, only=None, meshes=False):
    self.r, self.mode, self.mesh = r, mode or r.choice(("eager", "lazy", "lazy", "jit", "grad")), r.choice(MESHES) if meshes else None
    self.n = math.prod(self.mesh) if self.mesh else r.choice((2, 2, 3, 4, 8))
    names = [n for n in OPS if OPS[n][4] and (self.mode != "grad" or OPS[n][3]) and (not only or n in only)]
    sizes = (1, 2, 3, 5, self.n, self.n, self.n, self.n*2, self.n*2, self.n*3)
    base = [self.pick(sizes) for _ in range(self.i(1, 4))]
    dtype = "float32" if self.mode == "grad" else self.pick((*KIND, "float32", "float32", "int32"))
    self.ins, self.ops = [], []
    while not self.ins or len(self.ins) < 3 and self.i(0, 2):
      shape = base if not self.ins else [1 if self.i(0, 4) == 0 else s for s in base[(self.i(0, 3) == 0 and len(base) > 1):]]
      if self.i(0, 5) == 0: self.r.shuffle(shape:=list(shape))
      while math.prod(shape) > 500: shape[self.pick([a for a,s in enumerate(shape) if s > self.n] or [a for a,s in enumerate(shape) if s > 1])] = 1
      ax = self.place(shape, 4)
      if self.ins and self.i(0, 2) == 0 and self.mode != "grad": dtype = self.pick(tuple(KIND))
      self.ins.append((tuple(shape), dtype, ax, self.pick(("realize", "realize", "lazy", "contiguous", "contiguous realize")), self.i(0, 999)))
    self.calls = [[data(s, d, seed+1000*c) for s,d,_,_,seed in self.ins] for c in range(4 if self.mode == "jit" else 1)]
    n, tries = self.i(1, 8), 0
    while len(self.ops) < n and (tries:=tries+1) < 200:
      name = self.r.choices(names, [OPS[x][4] for x in names])[0]
      self.add(name)
    if self.ops and self.i(0, 4) == 0: self.add("to_cpu", -1)
  def add(self, name, last=None):
    try:
      srcs, args = OPS[name][0](self) if last is None else ((len(self.calls[0])-1,), ())
      new = [step(name, [vals[s] for s in srcs], args) for vals in self.calls]
    except (Reject, ValueError, IndexError): return # not for these values. numpy says so itself for shapes
    self.ops.append((name, srcs, args))
    for vals, v in zip(self.calls, new): vals.append(v)
  def program(self): return {"n": self.n, "mesh": self.mesh, "mode": self.mode, "ins": self.ins, "ops": self.ops}
  # what the generators of arguments use
  def i(self, a, b): return self.r.randint(a, b)
  def pick(self, xs):
    need(len(xs))
    return self.r.choice(xs)
  def sh(self, i): return self.calls[0][i].shape
  def dt(self, i): return self.calls[0][i].dtype.name
  def choose(self, ok):
    found = [i for i,v in enumerate(self.calls[0]) if ok(v)]
    return max(found) if found and self.i(0, 1) else self.pick(found)
  def v(self, kinds="fib", rank=1): return self.choose(lambda v: KIND[v.dtype.name] in kinds and v.ndim >= rank)
  def like(self, i): return self.choose(lambda v: "bif".index(KIND[v.dtype.name]) <= "bif".index(KIND[self.dt(i)])) # what a cast to its dtype keeps
  def same(self, i): return self.choose(lambda v: v.dtype.name == self.dt(i) and v.shape == self.sh(i))
  def into(self, kind, shape): return self.choose(lambda v: KIND[v.dtype.name] == kind and v.ndim <= len(shape) and
                                                  all(a in (1, b) for a,b in zip(v.shape[::-1], shape[::-1])))
  def axis(self, i, most=99): return self.pick([a for a,s in enumerate(self.sh(i)) if s <= most])
  def some(self, i): return sorted(self.r.sample(range(len(self.sh(i))), self.i(1, len(self.sh(i)))))
  def place(self, shape, even=2):
    def one(n): return self.pick([None]+[a for a,s in enumerate(shape) if s % n == 0]*even+[*range(len(shape))])
    return one(self.n) if self.mesh is None or self.i(0, 3) == 0 else tuple(map(one, self.mesh))
  def index(self, ix, lists=True): return {"ix": ix, "ax": "list" if lists and self.i(0, 3) == 0 else self.place(np.array(ix).shape)}
  def const(self, shape, dtype): return {"shape": shape, "dtype": dtype, "seed": self.i(0, 99), "ax": self.place(shape)}

def generate(seed, number, **kw): return Gen(random.Random(f"{seed}:{number}"), **kw).program()

# ***** smaller programs that fail in the same way *****

def renumber(p, keep, instead={}):
  """the program of only these values, others replaced"""
  n, keep = len(p["ins"]), sorted(keep)
  def at(i):
    while i in instead: i = instead[i]
    return keep.index(i)
  return {**p, "ins": [p["ins"][i] for i in keep if i < n],
          "ops": [(name, tuple(at(s) for s in srcs), args) for k,(name,srcs,args) in enumerate(p["ops"]) if k+n in keep]}

def needed(p, last):
  seen, n = set(last), len(p["ins"])
  for k,(_,srcs,_) in reversed(list(enumerate(p["ops"]))):
    if k+n in seen: seen |= set(srcs)
  return seen

def smaller(p):
  n, total = len(p["ins"]), len(p["ins"])+len(p["ops"])
  for k in range(n, total-1): yield lambda k=k: renumber(p, needed(p, [k]))
  for out in outputs({**p, "mode": "lazy"}): yield lambda out=out: renumber(p, needed(p, [out]))
  for k in reversed(range(n, total)):
    for s in set(p["ops"][k-n][1]):
      yield lambda k=k, s=s: renumber(q:=renumber(p, set(range(total))-{k}, {k: s}), needed(q, outputs({**q, "mode": "lazy"})))
  for mode in ("lazy", "eager")[:("lazy", "eager", p["mode"]).index(p["mode"])]: yield lambda mode=mode: {**p, "mode": mode}
  for m in (2, 3, 4):
    if m < p["n"] and not p.get("mesh"): yield lambda m=m: {**p, "n": m}
  if p.get("mesh") and not any(isinstance(i[2], tuple) for i in p["ins"]): yield lambda: {**p, "mesh": None}
  if p.get("mesh") and p["mesh"] != (2, 2): yield lambda: {**p, "n": 4, "mesh": (2, 2)}
  for k,(shape,dtype,ax,way,seed) in enumerate(p["ins"]):
    for new in [(shape,"float32",ax,way,seed), (shape,dtype,None,way,seed), (shape,dtype,ax,"realize",seed), (shape,dtype,ax,way,0)]:
      if new != p["ins"][k]: yield lambda k=k, new=new: {**p, "ins": p["ins"][:k]+[new]+p["ins"][k+1:]}
  for k,(name,srcs,args) in enumerate(p["ops"]):
    if (whole:=mat(args, lambda d: {**d, "ax": None})) != args: yield lambda k=k, o=(name,srcs,whole): {**p, "ops": p["ops"][:k]+[o]+p["ops"][k+1:]}
    for j,s in itertools.product(range(len(srcs)), range(n)):
      if srcs[j] >= n: yield lambda k=k, o=(name,srcs[:j]+(s,)+srcs[j+1:],args): renumber(q:={**p, "ops": p["ops"][:k]+[o]+p["ops"][k+1:]},
                                                                                           needed(q, [len(p["ins"])+len(p["ops"])-1]))

def shrunk(p, kind, judge, seconds=40):
  end, again = time.monotonic()+seconds, True
  while again:
    again = False
    for make in smaller(p):
      if time.monotonic() > end: return p
      try: ok = (q:=make()) != p and (bad:=judge(q)) is not None and bad[0] == kind
      except Exception: ok = False # not a program any more
      if ok:
        p, again = q, True
        break
  return p

def explore(programs, seed=0, tell=lambda *_: None, **kw):
  """what failed: {kind: [program]}, each kind's first few as small as they get"""
  found, start, worker = {}, time.monotonic(), Worker()
  try:
    for i in range(programs):
      p = generate(seed, i, **kw)
      if (bad:=worker.judge(p)) is not None:
        if bad[0][0] != "[" and (again:=worker.judge(p)) != bad:
          if again is None or again[0] != bad[0]: bad = (f"not twice, first {bad[0]}", bad[1])
        if bad[0][0] != "[" and len(found.get(bad[0], ())) < 4:
          bad = worker.judge(p:=shrunk(p, bad[0], worker.judge)) or bad
          # these say nothing of where, the smallest program does
          if bad[0] in ("wrong", "died", "wrong gradient", "took too long"): bad = (f"{bad[0]}: {', '.join(o[0] for o in p['ops'])}", bad[1])
        if len(found.get(bad[0], ())) < 4: tell(f"{seed}:{i} {bad[0]} ({bad[1]})\n  --one \"{p}\"")
        found.setdefault(bad[0], []).append(p)
      if (i+1) % 50 == 0: tell(f"{i+1} programs, {time.monotonic()-start:.0f} s, {sum(len(v) for k,v in found.items() if k[0] != '[')} failures")
  finally: worker.close()
  return found

def main():
  ap = argparse.ArgumentParser(usage=__doc__)
  ap.add_argument("--programs", type=int, default=200)
  ap.add_argument("--seed", type=int, default=0)
  ap.add_argument("--mode", choices=("eager", "lazy", "jit", "grad"))
  ap.add_argument("--only")
  ap.add_argument("--meshes", action="store_true", help="on meshes of 2x2 to 4x2 devices")
  ap.add_argument("--one")
  ap.add_argument("--trace", action="store_true", help="with --one: run it before all else, for its traceback")
  ap.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
  args = ap.parse_args()
  if args.worker: return work()
  kw = {"mode": args.mode, "only": args.only.split(",") if args.only else None, "meshes": args.meshes}
  if args.one:
    p = generate(*args.one.split(":"), **kw) if re.fullmatch(r"\d+:\d+", args.one) else parse(args.one)
    print(p, ", ".join(f"{i}: {v.shape} {v.dtype}" for i,v in enumerate(reference(p))), sep="\n", flush=True)
    if args.trace: print(run(p))
    print(bad:=judge(p))
    return 1 if bad and bad[0][0] != "[" else 0
  start = time.monotonic()
  found = explore(args.programs, args.seed, lambda text: print(text, flush=True), **kw)
  for kind, ps in sorted(found.items(), key=lambda x: -len(x[1])): print(f"{len(ps):5} {kind}: --one \"{min(ps, key=lambda p: len(repr(p)))}\"")
  wrong, raised = (sum(len(ps) for k,ps in found.items() if k[0] != "[" and ("wrong" in k) == w) for w in (True, False))
  print(f"{args.programs} programs in {time.monotonic()-start:.0f} s, {wrong} wrong, {raised} raised. in [] what is no fault of sharding")
  return 1 if wrong or raised else 0

if __name__ == "__main__": sys.exit(main())
