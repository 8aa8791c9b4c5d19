"""Small named programs, and what their schedules hold: kernels, copies, ops, bytes moved between devices, kernel sources.

Every function in GRAPHS returns the tensors to realize, all on the NULL device: nothing runs, and the counts are exact.
"""
from __future__ import annotations
import functools, hashlib
from typing import Callable
from tinygrad import Tensor, UOp, Variable, dtypes, nn
from tinygrad.codegen import to_program_cache
from tinygrad.engine.realize import compile_linear, estimate_uop, get_call_arg_uops
from tinygrad.helpers import Context, to_tuple
from tinygrad.nn.state import get_parameters
from tinygrad.schedule import schedule_cache
from tinygrad.uop.ops import Ops, sym_infer

GRAPHS: dict[str, Callable[[], list[Tensor]]] = {}
BIG: set[str] = set()  # scheduled but not compiled, which would take minutes: no ops are known of these
def graph(f=None, training=False, big=False):
  if f is None: return functools.partial(graph, training=training, big=big)
  @functools.wraps(f)
  def build() -> list[Tensor]:
    with Context(DEV="NULL", TRAINING=int(training)): return list(r) if isinstance(r:=f(), (list, tuple)) else [r]
  GRAPHS[f.__name__] = build
  if big: BIG.add(f.__name__)
  return build

# ***** measuring *****

def schedule(outs:list[Tensor]) -> tuple[UOp, dict[str, int]]:
  outs = [t for t in outs if not t.uop.is_virtual and not t.uop.has_buffer_identity()]
  return outs[0].linear_with_vars(*outs[1:]) if outs else (UOp(Ops.LINEAR, src=()), {})

def scheduled(name:str, lower=True) -> tuple[UOp, dict[str, int]]:
  with Context(DEV="NULL", BEAM=0, PARALLEL=0):
    Tensor.manual_seed(0)
    # each graph on its own: no kernel of an earlier one, and the memory does not grow
    schedule_cache.clear()
    to_program_cache.clear()
    linear, var_vals = schedule(GRAPHS[name]())
    return compile_linear(linear) if lower and name not in BIG else linear, var_vals

def bytes_moved(call:UOp) -> int:
  """Bytes that a COPY call carries from one device to another."""
  dest, src = get_call_arg_uops(call)[:2]
  return sum(dest.max_numel()*dest.dtype.itemsize for d,s in zip(to_tuple(dest.device), to_tuple(src.device)) if d != s)

def counts(linear:UOp, var_vals:dict[str, int]) -> dict[str, int]:
  """Kernels and copies count each device: a kernel that four devices run is four kernels. Ops are known of compiled kernels only."""
  ret = dict(kernels=0, copies=0, ops=0, mem=0, moved=0)
  for call in linear.src:
    n, est, is_copy = len(to_tuple(call.src[1].device)), estimate_uop(call), call.src[0].op is Ops.COPY
    ret["copies" if is_copy else "kernels"] += n
    ret["ops"] += n*sym_infer(est.ops, var_vals)
    ret["mem"] += n*sym_infer(est.mem, var_vals)
    if is_copy: ret["moved"] += bytes_moved(call)
  return ret

def sources(linear:UOp) -> list[str]:
  """The text of every call in order, each with its devices: two trees that give the same list launch the same kernels."""
  def text(call:UOp) -> str:
    if call.src[0].op is Ops.COPY: return f"copy {call.src[1].max_numel()} {call.src[1].dtype}"
    return next((u.arg for u in call.src[0].src if u.op is Ops.SOURCE), call.src[0].key.hex())  # not compiled: the kernel's own hash
  return [" ".join("/".join(to_tuple(b.device)) for b in get_call_arg_uops(call)) + "\n" + text(call) for call in linear.src]

def source_hash(name:str) -> str: return hashlib.sha256("\n".join(sources(scheduled(name)[0])).encode()).hexdigest()
def measure(name:str, lower=True) -> dict[str, int]: return counts(*scheduled(name, lower))

# ***** helpers *****

D4 = tuple(f"NULL:{i}" for i in range(4))
def T(*shape, dtype=dtypes.float32, axis="one", devices=D4) -> Tensor:
  """A realized tensor without data: on one device, or sharded on axis, or (axis None) whole on every device."""
  t = Tensor.empty(*shape, dtype=dtype)
  if axis == "one": return t
  buf = (t:=t.shard(devices, axis).realize()).uop.buffer
  for b in getattr(buf, "bufs", [buf]): b.ensure_allocated()
  return t
def hollow(model, axis="one"):
  """The same model with buffers in place of the random numbers, so that no kernel that draws them is counted."""
  for p in get_parameters(model): p.replace(T(*p.shape, dtype=p.dtype, axis=axis))
  return model
def max_pool(x:Tensor, *args, **kwargs) -> Tensor:
  ret = x.max_pool2d(*args, **kwargs)
  assert isinstance(ret, Tensor)
  return ret
def grads(loss:Tensor, *xs:Tensor) -> list[Tensor]: return loss.gradient(*xs)
def step(loss:Tensor, opt) -> list[Tensor]:
  opt.zero_grad()
  return [loss.backward()] + opt.schedule_step()

# ***** pads *****

@graph
def pad_twice_plus_one(): return T(10).pad((1, 1)).pad((1, 1)) + 1
@graph
def pad_values_twice_plus_one(): return T(10).pad((1, 1), value=1).pad((1, 1), value=2) + 1
@graph
def pad_value(): return T(16, 16).pad(((1, 2), (3, 4)), value=-2.5)
@graph
def pad_inf_max(): return T(16, 16).pad(((1, 2), (3, 4)), value=-float("inf")).max(1)
@graph
def pad_sum(): return T(32, 32).pad(((1, 1), (2, 2))).sum()
@graph
def pad_prod(): return (T(32, 32)+2).pad(((1, 1), (2, 2))).prod(0)
@graph
def pad_exp_sum(): return T(32, 32).pad(((1, 1), (2, 2))).exp().sum(1)
@graph
def pad_bool_any(): return (T(32, 32) > 0).pad(((1, 1), (2, 2))).any(1)
@graph
def pad_int_matmul(): return T(16, 15, dtype=dtypes.int).pad((None, (0, 1))) @ T(16, 16, dtype=dtypes.int)
@graph
def pad_reflect(): return T(1, 4, 16, 16).pad((2, 3, 1, 2), mode="reflect")
@graph
def pad_replicate(): return T(1, 4, 16, 16).pad((2, 3, 1, 2), mode="replicate")
@graph
def pad_circular(): return T(1, 4, 16, 16).pad((2, 3, 1, 2), mode="circular").contiguous()
@graph
def pad_negative(): return T(16, 16).pad(((-2, 3), (4, -1))) * 2
@graph
def pad_symbolic():
  i = Variable("i", 1, 8).bind(3)
  return T(10)[:i].pad((0, 10-i)).sum()
@graph
def pad_backward():
  x = T(16, 16)
  return grads((x.pad(((1, 1), (2, 2))) * T(18, 20)).sum(), x)
@graph
def pad_of_a_kernel(): return (T(64, 64) @ T(64, 64)).pad(((1, 1), (1, 1))) + 1
@graph
def pad_of_a_reduce_twice():
  x = T(64, 64).sum(1)
  return x.pad((1, 1)) + x.pad((2, 0))

# ***** joining, moving, indexing *****

@graph
def cat_2(): return T(8, 8).cat(T(8, 8))
@graph
def cat_100_uneven(): return Tensor.cat(*[T(1 + i%7, 16) for i in range(100)])
@graph
def cat_inner_axis_then_sum(): return Tensor.cat(*[T(8, 3+i) for i in range(6)], dim=1).sum(1)
@graph
def cat_backward():
  a, b = T(8, 8), T(4, 8)
  return grads((a.cat(b) * T(12, 8)).sum(), a, b)
@graph
def stack_8(): return Tensor.stack(*[T(8, 8) for _ in range(8)], dim=1)
@graph
def roll(): return T(16, 16).roll((3, -2), (0, 1)).contiguous()
@graph
def tril(): return T(64, 64).tril(1)
@graph
def triu_softmax(): return (T(64, 64) + Tensor.full((64, 64), -float("inf")).triu(1)).softmax(-1)
@graph
def diagonal(): return T(32, 32).diagonal().contiguous()
@graph
def diag(): return T(32).diag().contiguous()
@graph
def eye_matmul(): return Tensor.eye(32) @ T(32, 32)
@graph
def repeat_and_unfold(): return T(32).repeat(3).unfold(0, 4, 3).contiguous()
@graph
def strided_getitem(): return T(32, 32)[::3, 1::2] + 1
@graph
def strided_getitem_backward():
  x = T(32, 32)
  # contiguous: 0.14.0 doesn't store a result that's a padded view
  return [grads((x.square()[::3, 1::2] * T(11, 16)).sum(), x)[0].contiguous()]
@graph
def setitem_slice():
  x = T(32, 32).contiguous().realize()
  x[2:8, 4:9] = T(6, 5)
  return x
@graph
def setitem_strided():
  x = T(32).contiguous().realize()
  x[::3] = T(11)
  return x
@graph
def gather(): return T(32, 16).gather(0, T(8, 16, dtype=dtypes.int))
@graph
def take_rows(): return T(1000, 16)[T(32, dtype=dtypes.int)]
@graph
def take_rows_backward():
  x = T(100, 16)
  return grads((x[T(32, dtype=dtypes.int)] * T(32, 16)).sum(), x)
@graph
def scatter(): return T(16, 16).scatter(1, T(16, 4, dtype=dtypes.int), T(16, 4))

# ***** arange and friends *****

@graph
def arange_small(): return Tensor.arange(256).clone()
@graph
def arange_40000(): return Tensor.arange(40000).clone()
@graph
def arange_1_3_steps(): return Tensor.arange(1, 100000, 3).clone()
@graph
def linspace(): return Tensor.linspace(0, 1, 1000).clone()
@graph
def cumsum(): return T(16, 300).cumsum(1)
@graph
def cumsum_long(): return T(4000).cumsum()
@graph
def cumprod(): return T(16, 40).cumprod(1)
@graph
def cummax(): return T(16, 40).cummax(1)[0]
@graph
def logcumsumexp(): return T(8, 40).logcumsumexp(1)
@graph
def one_hot(): return T(64, dtype=dtypes.int).one_hot(50).clone()
@graph
def embedding(): return hollow(nn.Embedding(5000, 64))(T(4, 16, dtype=dtypes.int))
@graph
def embedding_backward():
  e = hollow(nn.Embedding(500, 64))
  return grads((e(T(4, 16, dtype=dtypes.int)) * T(4, 16, 64)).sum(), e.weight)
@graph
def argmax(): return T(64, 300).argmax(1)
@graph
def sort(): return T(4, 100).sort(1)
@graph
def topk(): return T(4, 50).topk(5)
@graph(big=True)
def keccak(): return T(100, dtype=dtypes.uint8).keccak()
@graph
def rand(): return Tensor.rand(100, 33)
@graph
def randn(): return Tensor.randn(64, 64)
@graph
def randperm(): return Tensor.randperm(100)
@graph(training=True)
def dropout(): return T(64, 64).dropout(0.3)

# ***** nets *****

@graph
def conv_pad(): return T(4, 16, 32, 32).conv2d(T(32, 16, 3, 3), padding=1)
@graph
def conv_stride_2(): return T(1, 8, 33, 33).conv2d(T(16, 8, 3, 3), stride=2, padding=1)
@graph
def conv_dilated_groups(): return T(2, 8, 20, 20).conv2d(T(16, 4, 3, 3), T(16), groups=2, dilation=2, padding=2)
@graph
def conv_1d(): return T(2, 8, 100).conv2d(T(16, 8, 5), padding=2)
@graph
def conv_3d(): return T(1, 4, 8, 8, 8).conv2d(T(8, 4, 3, 3, 3), padding=1)
@graph
def conv_relu_conv(): return T(2, 16, 16, 16).conv2d(T(16, 16, 3, 3), padding=1).relu().conv2d(T(16, 16, 3, 3), padding=1)
@graph
def conv_backward():
  x, w = T(1, 16, 32, 32), T(16, 16, 3, 3)
  return grads(x.conv2d(w, padding=1).sum(), x, w)
@graph
def conv_stride_2_backward():
  x, w = T(1, 8, 33, 33), T(16, 8, 3, 3)
  return grads(x.conv2d(w, stride=2, padding=1).square().sum(), x, w)
@graph
def conv_transpose(): return T(2, 8, 10, 10).conv_transpose2d(T(8, 4, 3, 3), stride=2, padding=1, output_padding=1)
@graph
def conv_transpose_backward():
  x, w = T(2, 8, 10, 10), T(8, 4, 3, 3)
  return grads(x.conv_transpose2d(w, stride=2, padding=1).square().sum(), x, w)
@graph
def max_pool_2(): return max_pool(T(2, 8, 28, 28), (2, 2))
@graph
def max_pool_padded(): return max_pool(T(2, 8, 28, 28), (3, 3), stride=2, padding=1)
@graph
def max_pool_backward():
  x = T(2, 16, 56, 56)
  return grads(max_pool(x, (3, 3), stride=2, padding=1).sum(), x)
@graph
def max_pool_ceil(): return max_pool(T(2, 4, 29, 29), (3, 3), stride=2, ceil_mode=True)
@graph
def avg_pool_padded(): return T(2, 8, 28, 28).avg_pool2d((3, 3), stride=2, padding=1)
@graph
def avg_pool_uncounted_backward():
  x = T(2, 4, 28, 28)
  return grads(x.avg_pool2d((3, 3), stride=2, padding=1, count_include_pad=False).square().sum(), x)
@graph
def max_unpool():
  found = T(1, 2, 16, 16).max_pool2d((2, 2), return_indices=True)
  assert isinstance(found, tuple)
  return found[0].max_unpool2d(found[1])
@graph
def interpolate_linear(): return T(1, 3, 16, 16).interpolate((23, 31))
@graph
def interpolate_nearest(): return T(1, 3, 16, 16).interpolate((32, 32), mode="nearest")
@graph
def softmax(): return T(64, 500).softmax(-1)
@graph
def softmax_of_padded(): return T(16, 30).pad((None, (0, 2)), value=-float("inf")).softmax(-1)
@graph
def layernorm(): return hollow(nn.LayerNorm(256))(T(32, 256))
@graph
def layernorm_backward():
  m, x = hollow(nn.LayerNorm(256)), T(32, 256)
  return grads((m(x) * T(32, 256)).sum(), x, *get_parameters(m))
@graph(training=True)
def batchnorm_train():
  m = hollow(nn.BatchNorm(16))
  return [m(T(8, 16, 14, 14)), m.running_mean, m.running_var]
@graph(training=True)
def batchnorm_backward():
  m, x = hollow(nn.BatchNorm(16)), T(8, 16, 14, 14)
  return grads((m(x) * T(8, 16, 14, 14)).sum(), x, m.weight, m.bias)
@graph
def cross_entropy_backward():
  x = T(64, 100)
  return grads(x.sparse_categorical_crossentropy(T(64, dtype=dtypes.int)), x)
@graph
def lstm(): return hollow(nn.LSTMCell(32, 64))(T(8, 32), (T(8, 64), T(8, 64)))
@graph
def attention(): return T(2, 4, 64, 32).scaled_dot_product_attention(T(2, 4, 64, 32), T(2, 4, 64, 32))
@graph
def attention_causal_backward():
  q, k, v = (T(2, 4, 64, 32) for _ in range(3))
  return grads((q.scaled_dot_product_attention(k, v, is_causal=True) * T(2, 4, 64, 32)).sum(), q, k, v)

class Block:
  """One transformer layer: attention and MLP, each after a layer norm and added to its input."""
  def __init__(self, dim:int, heads:int, wide:int):
    self.heads, self.n1, self.n2 = heads, nn.LayerNorm(dim), nn.LayerNorm(dim)
    self.qkv, self.out = nn.Linear(dim, 3*dim), nn.Linear(dim, dim)
    self.up, self.down = nn.Linear(dim, wide), nn.Linear(wide, dim)
  def __call__(self, x:Tensor) -> Tensor:
    q, k, v = (t.reshape(*x.shape[:2], self.heads, -1).transpose(1, 2) for t in self.qkv(self.n1(x)).chunk(3, dim=-1))
    x = x + self.out(q.scaled_dot_product_attention(k, v, is_causal=True).transpose(1, 2).reshape(x.shape))
    return x + self.down(self.up(self.n2(x)).gelu())
@graph
def transformer_block(): return hollow(Block(64, 4, 256))(T(2, 32, 64))
@graph
def transformer_block_backward():
  m = hollow(Block(64, 4, 256))
  return grads((m(T(2, 32, 64)) * T(2, 32, 64)).sum(), *get_parameters(m))
@graph(training=True)
def transformer_4_layers_step():
  m = hollow([Block(64, 4, 256) for _ in range(4)])
  return step((T(2, 32, 64).sequential(m) * T(2, 32, 64)).sum(), nn.optim.AdamW(get_parameters(m)))

class ConvNet:
  def __init__(self):
    self.c1, self.c2, self.head = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1), nn.Linear(64, 10)
  def __call__(self, x:Tensor) -> Tensor: return self.head(max_pool(self.c2(max_pool(self.c1(x).relu())).relu()).flatten(1))
@graph(training=True)
def conv_net_step():
  m = hollow(ConvNet())
  return step(m(T(16, 1, 8, 8)).sparse_categorical_crossentropy(T(16, dtype=dtypes.int)), nn.optim.SGD(get_parameters(m), lr=0.1))

class ResBlock:
  def __init__(self, cin:int, cout:int, stride:int=1):
    self.c1, self.n1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm(cout)
    self.c2, self.n2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False), nn.BatchNorm(cout)
    self.cut: list = [] if stride == 1 and cin == cout else [nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm(cout)]
  def __call__(self, x:Tensor) -> Tensor: return (self.n2(self.c2(self.n1(self.c1(x)).relu())) + x.sequential(self.cut)).relu()
@graph
def resnet_block(): return hollow(ResBlock(64, 64))(T(2, 64, 16, 16))
@graph(training=True)
def resnet_block_backward():
  m = hollow(ResBlock(64, 64))
  return grads(m(T(2, 64, 16, 16)).sum(), m.c1.weight, m.c2.weight)
@graph(training=True)
def resnet_step():
  m = hollow([nn.Conv2d(3, 16, 3, padding=1), lambda x: max_pool(x, (3, 3), stride=2, padding=1), ResBlock(16, 16), ResBlock(16, 32, 2)])
  return step(T(2, 3, 16, 16).sequential(m).mean((2, 3)).square().sum(), nn.optim.SGD(get_parameters(m), lr=0.1))

class Bottleneck:
  """1x1 down to width, 3x3, 1x1 up to four times width, added to the input (through a 1x1 where the shapes differ)."""
  def __init__(self, cin:int, width:int, stride:int):
    def unit(i:int, o:int, k:int, s:int=1) -> list: return [nn.Conv2d(i, o, k, s, k//2, bias=False), nn.BatchNorm(o)]
    self.body = [*unit(cin, width, 1), Tensor.relu, *unit(width, width, 3, stride), Tensor.relu, *unit(width, 4*width, 1)]
    self.cut = unit(cin, 4*width, 1, stride) if stride != 1 or cin != 4*width else []
  def __call__(self, x:Tensor) -> Tensor: return (x.sequential(self.body) + x.sequential(self.cut)).relu()
class ResNet50:
  def __init__(self):
    self.stem: list = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm(64), Tensor.relu]
    self.blocks: list = []
    cin = 64
    for width, depth, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
      for i in range(depth):
        self.blocks.append(Bottleneck(cin, width, stride if i == 0 else 1))
        cin = 4*width
    self.head = nn.Linear(2048, 1000)
  def __call__(self, x:Tensor) -> Tensor:
    return self.head(max_pool(x.sequential(self.stem), (3, 3), stride=2, padding=1).sequential(self.blocks).mean((2, 3)))
@graph(big=True)
def resnet50(): return hollow(ResNet50())(T(1, 3, 224, 224))

# ***** several devices *****

class MLP:
  def __init__(self, *dims:int): self.layers = [nn.Linear(i, o) for i,o in zip(dims, dims[1:])]
  def __call__(self, x:Tensor) -> Tensor:
    for l in self.layers[:-1]: x = l(x).relu()
    return self.layers[-1](x)
def data_parallel(optim) -> list[Tensor]:
  m = hollow(MLP(64, 128, 10), axis=None)
  loss = m(T(32, 64, axis=0)).sparse_categorical_crossentropy(T(32, dtype=dtypes.int, axis=0))
  return step(loss, optim(get_parameters(m)))
@graph(training=True)
def data_parallel_sgd(): return data_parallel(lambda p: nn.optim.SGD(p, lr=0.1))
@graph(training=True)
def data_parallel_momentum(): return data_parallel(lambda p: nn.optim.SGD(p, lr=0.1, momentum=0.9))
@graph(training=True)
def data_parallel_adam(): return data_parallel(nn.optim.Adam)
@graph(training=True)
def data_parallel_conv_net():
  m = hollow(ConvNet(), axis=None)
  loss = m(T(16, 1, 8, 8, axis=0)).sparse_categorical_crossentropy(T(16, dtype=dtypes.int, axis=0))
  return step(loss, nn.optim.SGD(get_parameters(m), lr=0.1))
@graph
def tensor_parallel_mlp(): return (T(8, 64, axis=None) @ T(64, 128, axis=1)).relu() @ T(128, 64, axis=0)
@graph
def tensor_parallel_mlp_backward():
  up, down = T(64, 128, axis=1), T(128, 64, axis=0)
  return grads(((T(8, 64, axis=None) @ up).relu() @ down).square().sum(), up, down)
def sharded_heads():
  x, ws = T(2, 16, 64, axis=None), [T(64, 64, axis=1) for _ in range(3)] + [T(64, 64, axis=0)]
  q, k, v = ((x @ w).reshape(2, 16, 8, 8).transpose(1, 2) for w in ws[:3])
  return q.scaled_dot_product_attention(k, v).transpose(1, 2).reshape(2, 16, 64) @ ws[3], ws
@graph
def tensor_parallel_attention(): return sharded_heads()[0]
@graph
def tensor_parallel_attention_backward():
  y, ws = sharded_heads()
  return grads(y.square().sum(), *ws)
@graph
def fsdp(): return (T(16, 128, axis=0) @ T(128, 256, axis=0)).relu() @ T(256, 128, axis=0)
@graph
def add_axis_0_axis_1(): return T(64, 64, axis=0) + T(64, 64, axis=1)
@graph
def allreduce_1m(): return T(4, 2**20, axis=0).sum(0)
@graph
def allreduce_1k(): return T(4, 1024, axis=0).sum(0)
@graph
def shard_gather_to_one(): return T(64, 64, axis=0).to("NULL")
@graph
def shard_sum_axis(): return T(64, 64, axis=0).sum(1)
@graph
def shard_pad_other_axis(): return T(64, 64, axis=0).pad((None, (1, 2))).sum(1)
@graph
def shard_layernorm(): return hollow(nn.LayerNorm(64), axis=None)(T(32, 64, axis=0))
@graph
def shard_zeros(): return Tensor.zeros(2**20).clone().shard(D4, 0)
@graph
def replicate_then_multiply(): return T(64, 64, axis=None) * T(64, 64, axis=0)
