# kernels and operations of graphs with pads. the figures are those of 0.14.0, where PAD was zero outside
import unittest
import pytest
from tinygrad import Tensor, Context, GlobalCounters, dtypes, nn
from tinygrad.dtype import Invalid

def empty(*shape, dtype=dtypes.float32) -> Tensor: return Tensor.empty(*shape, dtype=dtype)

class Block:
  def __init__(self):
    self.c1, self.c2 = (nn.Conv2d(8, 8, 3, padding=1, bias=False) for _ in range(2))
    self.b1, self.b2 = nn.BatchNorm(8), nn.BatchNorm(8)
  def __call__(self, x:Tensor) -> Tensor: return (self.b2(self.c2(self.b1(self.c1(x)).relu())) + x).relu()

class CountCase(unittest.TestCase):
  def setUp(self): self.enterContext(Context(DEV="NULL"))

  def layer(self, *layers):
    # weights without contents
    for p in nn.state.get_parameters(layers): p.replace(empty(*p.shape, dtype=p.dtype))
    return layers if len(layers) > 1 else layers[0]

  def count(self, kernels:int, ops:int, *outs:Tensor):
    GlobalCounters.reset()
    Tensor.realize(*outs)
    self.assertEqual(GlobalCounters.kernel_count, kernels)
    self.assertLessEqual(GlobalCounters.global_ops, ops)

class TestConvCounts(CountCase):
  def test_conv(self):
    x = empty(4, 8, 32, 32)
    for stride,ops in ((1, 9528320), (2, 2377984)): self.count(1, ops, self.layer(nn.Conv2d(8, 16, 3, padding=1, stride=stride))(x))

  def test_conv_relu_conv(self):
    a, b = self.layer(nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1))
    self.count(2, 900352, b(a(empty(2, 4, 16, 16)).relu()))

  def test_bottleneck(self):
    a, b, c = self.layer(nn.Conv2d(16, 8, 1), nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 16, 1))
    self.count(3, 865920, c(b(a(empty(2, 16, 16, 16)).relu()).relu()))

  def test_resnet_block(self):
    block, x = self.layer(Block()), empty(2, 8, 16, 16)
    self.count(2, 1228128, block(x))
    self.count(6, 4783008, *block(x).sum().gradient(block.c1.weight, block.c2.weight, x))

  def test_conv_transpose(self): self.count(1, 268080, empty(2, 4, 8, 8).conv_transpose2d(empty(4, 8, 3, 3), stride=2, padding=1))

  def test_winograd(self):
    conv, x = self.layer(nn.Conv2d(8, 8, 3, padding=1)), empty(2, 8, 16, 16)
    with Context(WINO=1): self.count(4, 300544, conv(x))

  def test_pools(self):
    x = empty(2, 4, 16, 16)
    self.count(1, 8832, x.max_pool2d(3, 2, padding=1))
    self.count(1, 5696, x.avg_pool2d(3, 2, padding=1))
    self.count(1, 8448, x.avg_pool2d(3, 2, padding=1, count_include_pad=False))
    self.count(2, 205280, x.avg_pool2d(3, 2, padding=1).square().sum().gradient(x)[0])

class TestGradientCounts(CountCase):
  # at or below 0.14.0 in every case, and below it where a pad meets a pad
  @pytest.mark.patch("flat-pad-gates")
  def test_conv(self):
    conv, x = self.layer(nn.Conv2d(8, 16, 3, padding=1)), empty(2, 8, 16, 16)
    self.count(3, 4503664, *conv(x).square().sum().gradient(x, conv.weight))

  @pytest.mark.patch("flat-pad-gates")
  def test_conv_relu_conv(self):
    a, b = self.layer(nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1))
    x = empty(2, 4, 16, 16)
    self.count(6, 3480568, *b(a(x).relu()).square().sum().gradient(x, a.weight, b.weight))

  @pytest.mark.patch("flat-pad-gates")
  def test_max_pool(self):
    x = empty(2, 4, 16, 16)
    self.count(3, 582144, x.max_pool2d(3, 2, padding=1).sum().gradient(x)[0])

  def test_pads(self):
    x = empty(32, 32)
    self.count(1, 4352, x.pad((1, 1)).square().sum().gradient(x)[0])
    self.count(1, 2844, x.pad(((1, 1), (1, 1))).pad(((1, 1), (1, 1))).square().sum().gradient(x)[0])

  def test_cat(self):
    xs = [empty(i+1, 8) for i in range(4)]
    self.count(1, 480, *Tensor.cat(*xs).square().sum().gradient(*xs))

class TestFillIsNotStored(CountCase):
  # a fill belongs to the kernel of its reader, or of its source
  def test_two_readers(self):
    p = (empty(64, 64) + 1).pad((2, 2))
    self.count(2, 28288, p.sum(1), p * 2)

  def test_between_reduces(self):
    x = empty(16, 64)
    self.count(1, 1039, x.sum(1).pad((2, 2)).sum())
    self.count(2, 1484, x.sum(1).pad((2, 2)).reshape(20, 1).expand(20, 20) + empty(20, 20))

  def test_softmax_and_matmul(self):
    self.count(3, 43072, empty(64, 60).pad((2, 2)).softmax(1))
    self.count(1, 536608, empty(60, 60).pad(((2, 2), (0, 4))) @ empty(64, 64))

  def test_pad_of_pad(self):
    self.count(1, 144, empty(8, 8).pad((1, 1)).pad((1, 1)) + 1)
    self.count(1, 10285, empty(64, 64).pad((1, 2)).pad(((3, 1), None)).sum(1))

  def test_cat(self):
    xs = [empty(i+1, 8) for i in range(8)]
    self.count(1, 3024, Tensor.cat(*xs))
    self.count(1, 3312, Tensor.cat(*xs).sum(0))

  def test_movement(self):
    self.count(1, 4096, empty(64, 64).roll((3, -5), (0, 1)) + 1)
    self.count(1, 9120, empty(8, 16, 16).pad((2, 2, 2, 2), mode="reflect").sum((1, 2)))
    self.count(1, 114944, empty(256, 256).tril())

  def test_scans(self):
    self.count(1, 1440000, empty(8, 300).cumsum(1))
    self.count(1, 2880000, empty(8, 300).cummax(1)[0])
    self.count(3, 5248780, empty(5000).cumsum())

  def test_sort(self): self.count(29, 59296, *empty(60).sort())

class TestCollapse(CountCase):
  # sums over a pad of a constant have a closed form: no loop is left
  def test_arange(self):
    for n,ops in ((32768, 57344), (40000, 70000), (65536, 114688)):
      with self.subTest(n=n): self.count(1, ops, Tensor.arange(n) + empty(n, dtype=dtypes.int32))
    self.count(1, 200000, Tensor.linspace(0, 1, 50000) + empty(50000))
    self.count(1, 110000, Tensor.eye(200) + empty(200, 200))

  def test_index(self):
    i = empty(64, dtype=dtypes.int32)
    self.count(1, 24000, i.one_hot(100) + empty(64, 100, dtype=dtypes.int32))
    self.count(1, 96, empty(1000, 16)[i[:30].contiguous().realize().pad((1, 1))])

  def test_index_of_a_large_axis(self):
    i, table = empty(8, dtype=dtypes.int32), empty(1, 40000, 4)
    self.count(2, 20000, (Tensor.arange(40000).reshape(1, -1, 1) == i.reshape(8, 1, 1)).where(table, 0).sum(1))
    # an axis that only the fill depends on
    self.count(1, 8, empty(8, 1).expand(8, 40000).pad((1, 1)).sum(1))

  def test_embedding(self):
    e, i = self.layer(nn.Embedding(100, 32)), empty(4, 16, dtype=dtypes.int32)
    self.count(1, 192, self.layer(nn.Embedding(1000, 32))(i))
    self.count(1, 19200, e(i).sum().gradient(e.weight)[0])

  def test_large_reduce_still_splits(self):
    x = empty(40000)
    self.count(2, 82500, x.pad((500, 500)).sum())
    self.count(2, 92750, x.pad((500, 500), value=-1).max())

class TestInvalidPadCounts(CountCase):
  def test_no_more_than_a_zero(self):
    # what has no data is neither stored nor selected
    self.count(1, 7504, empty(64, 64).pad((1, 2), value=Invalid).sum(1))
    self.count(1, 7504, empty(64, 64).pad((1, 2), value=Invalid).max(1))

if __name__ == "__main__":
  unittest.main()
