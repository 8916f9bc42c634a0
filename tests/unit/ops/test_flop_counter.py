"""FLOPs of parsed calls against torch's own counter, run on tensors without data."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from gnnperf.graph import dtype_index
from gnnperf.ops.call import Call, TensorSpec
from gnnperf.ops.distribute import cost_of, op_work

aten = torch.ops.aten


def spec(tensor: torch.Tensor) -> TensorSpec:
    return TensorSpec(tuple(tensor.shape), dtype_index(str(tensor.dtype)), tuple(tensor.stride()))


def call_of(name: str, arguments: tuple[Any, ...]) -> Call:
    args, values = [], []
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            args.append((spec(argument),))
            values.append(None)
        else:
            args.append(())
            values.append(str(argument))
    return Call(name, tuple(args), tuple(values))


def t(*shape: int) -> torch.Tensor:
    return torch.empty(shape, device="meta")


NO, YES = False, True
PAIR = [1, 1]
CASES: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = [
    ("mm", aten.mm, (t(7, 5), t(5, 9))),
    ("addmm", aten.addmm, (t(9), t(7, 5), t(5, 9))),
    ("bmm", aten.bmm, (t(3, 7, 5), t(3, 5, 9))),
    ("baddbmm", aten.baddbmm, (t(3, 7, 9), t(3, 7, 5), t(3, 5, 9))),
    ("convolution", aten.convolution,
     (t(2, 4, 12, 10), t(6, 4, 3, 5), None, [2, 1], [1, 2], PAIR, NO, [0, 0], 1)),
    ("convolution", aten.convolution,
     (t(2, 4, 12, 10), t(6, 2, 3, 3), None, PAIR, [2, 2], [2, 2], NO, [0, 0], 2)),
    ("convolution", aten.convolution,
     (t(2, 4, 12, 10), t(4, 6, 3, 3), None, [2, 2], PAIR, PAIR, YES, [0, 0], 1)),
    ("convolution", aten.convolution, (t(2, 4, 12), t(6, 4, 3), None, [1], [1], [1], NO, [0], 1)),
    ("convolution", aten.convolution,
     (t(2, 4, 6, 8, 8), t(6, 4, 3, 3, 3), None, [1] * 3, [1] * 3, [1] * 3, NO, [0] * 3, 1)),
    ("convolution_backward", aten.convolution_backward,
     (t(2, 6, 12, 10), t(2, 4, 12, 10), t(6, 4, 3, 3), [0], PAIR, PAIR, PAIR, NO, [0, 0], 1,
      [YES, YES, NO])),
    ("convolution_backward", aten.convolution_backward,
     (t(2, 6, 12, 10), t(2, 4, 12, 10), t(6, 4, 3, 3), [0], PAIR, PAIR, PAIR, NO, [0, 0], 1,
      [NO, YES, NO])),
    ("_scaled_dot_product_flash_attention", aten._scaled_dot_product_flash_attention,
     (t(2, 8, 128, 64).half(), t(2, 8, 96, 64).half(), t(2, 8, 96, 64).half(), 0.0, NO)),
    ("_scaled_dot_product_efficient_attention", aten._scaled_dot_product_efficient_attention,
     (t(2, 8, 128, 64), t(2, 8, 96, 64), t(2, 8, 96, 32), None, NO, 0.0, NO)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "op", "arguments"), CASES)
def test_flops_agree(name: str, op: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    with FlopCounterMode(display=False) as counter:
        op(*arguments)
    work = op_work(call_of(f"aten::{name}", arguments))
    assert work.known
    assert cost_of(work).flops[0] == counter.get_total_flops() > 0


def test_attention_backward_agrees() -> None:
    q, k, v = (t(2, 8, 128, 64).half() for _ in range(3))
    out, statistics = t(2, 8, 128, 64).half(), t(2, 8, 128)
    arguments = (out, q, k, v, out, statistics, None, None, 128, 128, 0.0, False, t(2), t(2))
    name = "_scaled_dot_product_flash_attention_backward"
    with FlopCounterMode(display=False) as counter:
        aten._scaled_dot_product_flash_attention_backward(*arguments)
    work = op_work(call_of(f"aten::{name}", arguments))
    assert cost_of(work).flops[0] == counter.get_total_flops() > 0


def test_a_training_step_of_a_small_network_adds_up() -> None:
    """Every op that the dispatcher runs, parsed one by one, against the counter's total.

    (Without groups: torch's counter counts the gradient of a grouped weight `groups` times.)
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    found = []

    class Record(TorchDispatchMode):
        def __torch_dispatch__(  # noqa: ANN204
            self,
            func: Callable[..., object],
            types: object,
            args: tuple[Any, ...] = (),
            kwargs: dict[str, Any] | None = None,
        ):
            work = op_work(call_of(f"aten::{func.__name__.split('.')[0]}", args))
            if work.known and work.family in ("gemm", "conv", "attention"):
                found.append(cost_of(work).flops[0])
            return func(*args, **(kwargs or {}))

    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(8, 8, 3, stride=2),
        torch.nn.Flatten(),
        torch.nn.LazyLinear(10),
    )
    net(torch.zeros(1, 3, 16, 16))
    net = net.to("meta")
    with FlopCounterMode(display=False) as counter, Record():
        net(t(4, 3, 16, 16)).sum().backward()
    assert sum(found) == counter.get_total_flops() > 0
