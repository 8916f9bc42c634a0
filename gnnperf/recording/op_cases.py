"""Single ops of many sizes, for learning how long an op takes on this device.

Each case makes its tensors and returns a call that does one op. Sizes are drawn at random, evenly
on a logarithmic scale, below a limit of work, so that a case takes some milliseconds at most.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

Call = Callable[[], object]
aten: Any = torch.ops.aten


@dataclass(frozen=True)
class Draw:
    """Draws sizes and makes tensors on one device."""

    device: torch.device
    random: Random = field(default_factory=Random)

    def size(self, low: int, high: int) -> int:
        """Log-uniform in [low, high]; half of the time rounded to a multiple of 8."""
        value = round(math.exp(self.random.uniform(math.log(low), math.log(high))))
        rounded = value if value < 16 or self.random.random() < 0.5 else value // 8 * 8
        return min(max(rounded, low), high)

    def sizes(self, limit: float, *ranges: tuple[int, int]) -> tuple[int, ...]:
        """A size for each range, drawn again until their product is within the limit."""
        while True:
            drawn = tuple(self.size(*one) for one in ranges)
            if math.prod(drawn) <= limit:
                return drawn

    def normal(self, *shape: int) -> Tensor:
        """Standard normal numbers."""
        return torch.randn(*shape, device=self.device)

    def indices(self, high: int, *shape: int) -> Tensor:
        """Indices below `high`, a few of which are frequent."""
        return (
            torch.rand(*shape, device=self.device) ** self.random.choice((1, 2, 4)) * high
        ).long()


CASES: dict[str, tuple[int, Callable[[Draw], Call]]] = {}
"""label/variant -> (how many sizes, maker of a call); the label is what `evaluate` reports"""


def cases(draw: Draw, share: float) -> Iterator[tuple[str, Call]]:
    """(label, call) of every case; `share` scales how many sizes of each are drawn."""
    for name, (count, make) in CASES.items():
        for _ in range(max(1, round(count * share))):
            yield name.partition("/")[0], make(draw)


def number_of_cases(share: float) -> int:
    """How many cases `cases` yields."""
    return sum(max(1, round(count * share)) for count, _ in CASES.values())


def _case(name: str, count: int) -> Callable[[Callable[[Draw], Call]], Callable[[Draw], Call]]:
    def add(make: Callable[[Draw], Call]) -> Callable[[Draw], Call]:
        CASES[name] = (count, make)
        return make

    return add


@_case("linear/forward", 350)
def _linear(draw: Draw) -> Call:
    m, k, n = draw.sizes(4e8, (1, 4096), (8, 4096), (8, 4096))
    return partial(F.linear, draw.normal(m, k), draw.normal(n, k), draw.normal(n))


@_case("linear/gradients", 350)
def _linear_gradients(draw: Draw) -> Call:
    m, k, n = draw.sizes(4e8, (1, 4096), (8, 4096), (8, 4096))
    if draw.random.random() < 0.5:
        return partial(torch.mm, draw.normal(m, n), draw.normal(n, k))
    return partial(torch.mm, draw.normal(m, n).t(), draw.normal(m, k))


@_case("bmm/all", 300)
def _bmm(draw: Draw) -> Call:
    batch, m, k, n = draw.sizes(4e8, (1, 128), (1, 1024), (8, 512), (8, 1024))
    a, b = draw.normal(batch, m, k), draw.normal(batch, k, n)
    if draw.random.random() < 0.33:
        b = draw.normal(batch, n, k).transpose(1, 2)
    elif draw.random.random() < 0.5:
        a = draw.normal(batch, k, m).transpose(1, 2)
    return partial(torch.bmm, a, b)


def _convolution(draw: Draw) -> tuple[Tensor, Tensor, dict[str, int]]:
    while True:
        batch, inputs, outputs = draw.size(1, 32), draw.size(3, 256), draw.size(8, 256)
        side, kernel = draw.size(4, 96), draw.random.choice((1, 3, 3, 5, 7))
        stride = draw.random.choice((1, 1, 2))
        work = batch * inputs * outputs * (side / stride * kernel) ** 2
        if work < 4e8 and side >= kernel:
            break
    x, weight = draw.normal(batch, inputs, side, side), draw.normal(outputs, inputs, kernel, kernel)
    return x, weight, {"stride": stride, "padding": kernel // 2}


@_case("conv/forward", 200)
def _conv(draw: Draw) -> Call:
    x, weight, how = _convolution(draw)
    return partial(F.conv2d, x, weight, None, **how)


@_case("conv/gradients", 200)
def _conv_gradients(draw: Draw) -> Call:
    x, weight, how = _convolution(draw)
    gradient = torch.ones_like(F.conv2d(x, weight, None, **how))
    masks = ([True, True, False], [True, False, False], [False, True, False])
    stride, padding = [how["stride"]] * 2, [how["padding"]] * 2
    return partial(
        aten.convolution_backward, gradient, x, weight, None, stride, padding,
        [1, 1], False, [0, 0], 1, draw.random.choice(masks),
    )  # fmt: skip


@_case("elementwise/unary", 250)
def _unary(draw: Draw) -> Call:
    x = draw.normal(*draw.sizes(4e6, (1, 4096), (1, 16384)))
    ops = (torch.relu, F.gelu, torch.tanh, torch.sigmoid, torch.exp, torch.sqrt, torch.neg)
    op = draw.random.choice(ops)
    return partial(op, x.abs() if op is torch.sqrt else x)


@_case("elementwise/binary", 300)
def _binary(draw: Draw) -> Call:
    rows, cols = draw.sizes(4e6, (1, 4096), (1, 16384))
    x, y = draw.normal(rows, cols), draw.normal(rows, cols)
    how = draw.random.randrange(4)
    if how == 1:
        y = draw.normal(cols)
    elif how == 2:
        y = draw.normal(cols, rows).t()
    elif how == 3:
        return partial(draw.random.choice((torch.add, torch.mul, torch.div)), x, 1.5)
    return partial(draw.random.choice((torch.add, torch.mul, torch.div)), x, y)


@_case("elementwise/in_place", 250)
def _in_place(draw: Draw) -> Call:
    shape = draw.sizes(4e6, (1, 4096), (1, 16384))
    x, y, z = draw.normal(*shape), draw.normal(*shape), draw.normal(*shape).abs() + 1
    calls = (
        partial(x.add_, y, alpha=-1e-6),
        partial(x.lerp_, y, 0.1),
        partial(x.addcmul_, y, z, value=1e-6),
        partial(x.addcdiv_, y, z, value=1e-6),
        x.zero_,
    )
    return draw.random.choice(calls)


@_case("elementwise/gradients", 200)
def _unary_gradients(draw: Draw) -> Call:
    shape = draw.sizes(4e6, (1, 4096), (1, 16384))
    x, gradient = draw.normal(*shape), draw.normal(*shape)
    calls = (
        partial(aten.threshold_backward, gradient, x, 0),
        partial(aten.gelu_backward, gradient, x),
        partial(aten.tanh_backward, gradient, x),
        partial(aten.native_dropout_backward, gradient, x > 0, 1.1),
        partial(aten.native_dropout, x, 0.1, True),
    )
    return draw.random.choice(calls)


@_case("softmax/all", 250)
def _softmax(draw: Draw) -> Call:
    rows, cols = draw.sizes(4e6, (1, 16384), (8, 8192))
    x = draw.normal(rows, cols)
    op, gradient = draw.random.choice(
        (
            (torch.softmax, aten._softmax_backward_data),
            (torch.log_softmax, aten._log_softmax_backward_data),
        )
    )
    if draw.random.random() < 0.5:
        return partial(op, x, -1)
    return partial(gradient, draw.normal(rows, cols), op(x, -1), 1, torch.float32)


@_case("layer_norm/all", 250)
def _layer_norm(draw: Draw) -> Call:
    rows, cols = draw.sizes(4e6, (1, 16384), (8, 8192))
    x, weight, bias = draw.normal(rows, cols), draw.normal(cols), draw.normal(cols)
    if draw.random.random() < 0.5:
        return partial(F.layer_norm, x, (cols,), weight, bias)
    _, mean, scale = aten.native_layer_norm(x, [cols], weight, bias, 1e-5)
    return partial(
        aten.native_layer_norm_backward, draw.normal(rows, cols), x, [cols], mean, scale,
        weight, bias, [True, True, True],
    )  # fmt: skip


@_case("norm/batch", 120)
def _batch_norm(draw: Draw) -> Call:
    batch, channels, side, _ = draw.sizes(4e6, (1, 64), (4, 512), (2, 64), (2, 64))
    x, weight = draw.normal(batch, channels, side, side), draw.normal(channels)
    state = (draw.normal(channels), draw.normal(channels).abs() + 1)
    arguments = (weight, draw.normal(channels), *state, True, 0.1, 1e-5)
    if draw.random.random() < 0.5:
        return partial(aten.native_batch_norm, x, *arguments)
    _, mean, scale = aten.native_batch_norm(x, *arguments)
    return partial(
        aten.native_batch_norm_backward, torch.ones_like(x), x, weight, *state, mean, scale,
        True, 1e-5, [True, True, True],
    )  # fmt: skip


@_case("reduce/all", 200)
def _reduce(draw: Draw) -> Call:
    x = draw.normal(*draw.sizes(4e6, (1, 8192), (1, 8192)))
    op = draw.random.choice((torch.sum, torch.mean, torch.amax))
    return partial(op, x, draw.random.choice((0, 1)))


@_case("embedding/rows", 150)
def _embedding(draw: Draw) -> Call:
    rows, dim = draw.sizes(8e6, (100, 200_000), (8, 512))
    (lookups,) = draw.sizes(4e6 / dim, (1, 32768))
    indices = draw.indices(rows, lookups)
    if draw.random.random() < 0.6 or rows * dim > 2e6:
        return partial(F.embedding, indices, draw.normal(rows, dim))
    gradient = draw.normal(lookups, dim)
    return partial(aten.embedding_dense_backward, gradient, indices, rows, -1, False)


@_case("embedding/bags", 200)
def _bags(draw: Draw) -> Call:
    rows, dim = draw.sizes(8e6, (100, 200_000), (8, 256))
    bags, pooling = draw.sizes(4e6 / dim, (1, 4096), (1, 64))
    indices = draw.indices(rows, bags * pooling)
    offsets = torch.arange(0, bags * pooling, pooling, device=draw.device)
    return partial(F.embedding_bag, indices, draw.normal(rows, dim), offsets, mode="sum")


@_case("gather/all", 200)
def _gather(draw: Draw) -> Call:
    rows, cols = draw.sizes(2e6, (2, 8192), (2, 4096))
    x, how = draw.normal(rows, cols), draw.random.randrange(3)
    if how == 0:
        return partial(torch.cat, [x, draw.normal(rows, cols)], draw.random.choice((0, 1)))
    if how == 1:
        return partial(torch.index_select, x, 0, draw.indices(rows, rows))
    return partial(torch.gather, x, 1, draw.indices(cols, rows, cols))


@_case("copy/all", 150)
def _copy(draw: Draw) -> Call:
    x = draw.normal(*draw.sizes(4e6, (2, 8192), (2, 8192)))
    if draw.random.random() < 0.3:
        return partial(x.copy_, draw.normal(*x.shape))
    return partial(torch.clone, x.t(), memory_format=torch.contiguous_format)


@_case("pool/all", 80)
def _pool(draw: Draw) -> Call:
    batch, channels, side, _ = draw.sizes(4e6, (1, 64), (4, 256), (4, 64), (4, 64))
    return partial(F.max_pool2d, draw.normal(batch, channels, side, side), 2)


@_case("attention/all", 150)
def _attention(draw: Draw) -> Call:
    batch, heads, length, _ = draw.sizes(4e6, (1, 32), (1, 16), (16, 1024), (16, 1024))
    shape = (batch, heads, length, draw.random.choice((32, 64, 128)))
    q, k, v = (draw.normal(*shape) for _ in range(3))
    causal = draw.random.random() < 0.5
    if draw.device.type != "cpu" or draw.random.random() < 0.5:
        return partial(F.scaled_dot_product_attention, q, k, v, is_causal=causal)
    forward = aten._scaled_dot_product_flash_attention_for_cpu
    out, sums = forward(q, k, v, 0.0, causal)
    backward = aten._scaled_dot_product_flash_attention_for_cpu_backward
    return partial(backward, torch.ones_like(out), q, k, v, out, sums, 0.0, causal)


@_case("optimizer/fused", 80)
def _optimizer(draw: Draw) -> Call:
    count, numel = draw.sizes(4e6, (1, 32), (16, 1_000_000))
    parameters, gradients, first = ([draw.normal(numel) for _ in range(count)] for _ in range(3))
    if draw.random.random() < 0.5:
        return partial(
            aten._fused_sgd_, parameters, gradients, first, weight_decay=0.0, momentum=0.9,
            lr=1e-6, dampening=0.0, nesterov=False, maximize=False, is_first_step=False,
        )  # fmt: skip
    second = [draw.normal(numel).abs() for _ in range(count)]
    steps = [torch.ones((), device=draw.device) for _ in range(count)]
    return partial(
        aten._fused_adamw_, parameters, gradients, first, second, [], steps, lr=1e-6, beta1=0.9,
        beta2=0.999, weight_decay=0.0, eps=1e-8, amsgrad=False, maximize=False,
    )  # fmt: skip


@_case("sort/all", 60)
def _sort(draw: Draw) -> Call:
    rows, cols = draw.sizes(5e5, (1, 1024), (16, 16384))
    x = draw.normal(rows, cols)
    if draw.random.random() < 0.5:
        return partial(torch.topk, x, min(8, cols), 1)
    return partial(torch.sort, x, 1)


@_case("linear/layers", 250)
def _layers(draw: Draw) -> Call:
    """Sizes as models have them: multiples of 32, many rows."""
    m, k, n = (32 * size for size in draw.sizes(4e8 / 32**3, (1, 64), (2, 64), (2, 128)))
    x, weight, how = draw.normal(m, k), draw.normal(n, k), draw.random.randrange(3)
    if how == 0:
        return partial(F.linear, x, weight, draw.normal(n))
    if how == 1:
        return partial(torch.mm, draw.normal(m, n), weight)
    return partial(torch.mm, draw.normal(m, n).t(), x)


@_case("conv/layers", 200)
def _conv_layers(draw: Draw) -> Call:
    """Channels as models have them: powers of two, after the picture's three."""
    while True:
        batch, side = draw.size(1, 32), 4 * draw.size(1, 24)
        inputs, outputs = draw.random.choice((3, 16, 32, 64, 128, 256)), 2 ** draw.size(4, 8)
        kernel, stride = draw.random.choice((1, 3, 3, 5)), draw.random.choice((1, 1, 2))
        if batch * inputs * outputs * (side / stride * kernel) ** 2 < 8e8 and side >= kernel:
            break
    x, weight = draw.normal(batch, inputs, side, side), draw.normal(outputs, inputs, kernel, kernel)
    padding = kernel // 2
    if draw.random.random() < 0.5:
        return partial(F.conv2d, x, weight, None, stride=stride, padding=padding)
    gradient = torch.ones_like(F.conv2d(x, weight, None, stride=stride, padding=padding))
    mask = [inputs > 3, True, False]
    return partial(
        aten.convolution_backward, gradient, x, weight, None, [stride] * 2, [padding] * 2,
        [1, 1], False, [0, 0], 1, mask,
    )  # fmt: skip


@_case("pool/gradients", 80)
def _pool_gradients(draw: Draw) -> Call:
    batch, channels, side, _ = draw.sizes(4e6, (1, 64), (4, 256), (4, 64), (4, 64))
    x = draw.normal(batch, channels, side, side)
    out, indices = F.max_pool2d(x, 2, return_indices=True)
    return partial(
        aten.max_pool2d_with_indices_backward, torch.ones_like(out), x, [2, 2], [2, 2], [0, 0],
        [1, 1], False, indices,
    )  # fmt: skip


@_case("elementwise/random", 80)
def _random(draw: Draw) -> Call:
    x = draw.normal(*draw.sizes(4e6, (1, 4096), (1, 16384)))
    return draw.random.choice((partial(x.bernoulli_, 0.9), x.normal_, x.uniform_))


@_case("embedding/bag gradients", 100)
def _bag_gradients(draw: Draw) -> Call:
    rows, dim = draw.sizes(8e6, (100, 200_000), (8, 256))
    bags, pooling = draw.sizes(4e6 / dim, (1, 4096), (1, 64))
    indices = draw.indices(rows, bags * pooling)
    offsets = torch.arange(0, bags * pooling, pooling, device=draw.device)
    _, *state = aten._embedding_bag(draw.normal(rows, dim), indices, offsets, False, 0)
    return partial(
        aten._embedding_bag_backward, draw.normal(bags, dim), indices, offsets, *state, rows,
        False, 0, False, None,
    )  # fmt: skip
