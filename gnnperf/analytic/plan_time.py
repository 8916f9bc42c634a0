"""Time of one training step under a plan: layers, schedule, communication, optimizer."""

from dataclasses import dataclass
from math import ceil

from gnnperf.analytic.collectives import collective_time_us
from gnnperf.analytic.plan_layers import Prices, head_us, layer_time
from gnnperf.analytic.plan_model import Plan, Transformer
from gnnperf.errors import InputError
from gnnperf.hardware import Platform

ADAM_BYTES = 38.0
"""per parameter: gradient to float32 and back to zero, two moments, master and 2-byte weight"""
ACCUMULATE_BYTES = 6.0
"""per parameter and micro-batch: the gradient is added to a float32 buffer"""
OVERLAP = 0.9
"""share of the compute time that communication can hide under"""
NETWORK_SHARE = 0.8
"""of a NIC's bandwidth that collectives over nodes reach at best (design notes, 3)"""


@dataclass(frozen=True)
class StepTime:
    """Parts of one step, in us; exposed ones only."""

    total_us: float
    compute_us: float
    """of all micro-batches on the slowest stage"""
    bubble_us: float
    tensor_us: float
    """tensor, context and expert parallel communication of the slowest stage"""
    data_us: float
    """reduction of gradients, gathering of parameters"""
    optimizer_us: float


def step_time(model: Transformer, plan: Plan, prices: Prices, platform: Platform) -> StepTime:
    """Predict one step from shapes and data sheets.

    1F1B (Narayanan et al. 2021): T = m t_last + (p - 1) t_mid / v, the last stage also holding
    the logits. Ranks are placed tensor first, then data, then pipeline.

    Raises:
        InputError: The degrees of parallelism do not make up the GPUs.
    """
    _check(plan)
    layers = ceil(model.layers / plan.pipeline)
    m = plan.micro_batches
    one = layer_time(model, plan, prices).total_us(plan.recompute)
    talk = layers * _layer_talk_us(model, plan, platform) + _pipe_us(model, plan, platform)
    middle = layers * one + talk
    accumulate = _stage_params(model, plan) * ACCUMULATE_BYTES / prices.rate
    if m > 1 and plan.sharding not in ("gradients", "full"):
        middle += accumulate
    last = middle + head_us(model, plan, prices)
    bubble = (plan.pipeline - 1) * middle / plan.virtual
    compute = m * (last - talk)
    data = _data_us(model, plan, platform, compute)
    update = _optimizer_us(model, plan, prices)
    total = m * last + bubble + data + update
    return StepTime(total, compute, bubble, m * talk, data, update)


def bubble_share(pipeline: int, micro_batches: int, virtual: int = 1) -> float:
    """Idle share of a balanced 1F1B schedule: (p - 1) / (v m + p - 1)."""
    return (pipeline - 1) / (virtual * micro_batches + pipeline - 1)


def _check(plan: Plan) -> None:
    product = plan.tensor * plan.data * plan.pipeline * plan.context
    if product != plan.gpus:
        raise InputError(
            f"tp {plan.tensor} x dp {plan.data} x pp {plan.pipeline} x cp {plan.context} "
            f"make {product} GPUs, not {plan.gpus}",
            field="n_gpus",
        )


def _width(plan: Plan) -> float:
    return 4.0 if plan.dtype in ("float32", "tf32") else 2.0


def _spread(ranks: int, stride: int, platform: Platform) -> int:
    """Nodes over which `ranks` ranks, `stride` apart, lie."""
    per_node = max(1, platform.gpus_per_node // stride)
    return max(1, ceil(ranks / per_node))


def _collective_us(kind: str, size: float, ranks: int, stride: int, platform: Platform) -> float:
    """The measured curve, and across nodes never faster than 0.8 of the NICs (2 (n-1)/n bytes)."""
    if ranks <= 1:
        return 0.0
    nodes = _spread(ranks, stride, platform)
    time = float(collective_time_us(kind, size, size, ranks, nodes, platform))
    if nodes > 1 and platform.inter_node is not None:
        twice = 2.0 if kind == "all_reduce" else 1.0
        moved = twice * (ranks - 1) / ranks * size / (ranks / nodes)
        nic = platform.inter_node.bandwidth_gb_per_s * 1e3 * NETWORK_SHARE
        time = max(time, moved / nic)
    return time


def _layer_talk_us(model: Transformer, plan: Plan, platform: Platform) -> float:
    """Tensor, expert and context parallel communication of one layer and micro-batch."""
    size = plan.tokens * model.hidden * _width(plan)
    reductions = 6 if plan.recompute == "full" else 4
    total = reductions * _collective_us("all_reduce", size, plan.tensor, 1, platform)
    if model.experts > 1 and plan.expert > 1:
        routed = size * model.top_k
        swap = _collective_us("all_to_all", routed, plan.expert, plan.tensor, platform)
        total += (6 if plan.recompute == "full" else 4) * swap
    if plan.context > 1:
        keys = plan.micro_batch * plan.seq * 2 * model.kv_width / plan.tensor * _width(plan)
        gather = _collective_us("all_gather", keys, plan.context, plan.tensor, platform)
        total += 3 * gather * (1 - OVERLAP)
    return total


def _pipe_us(model: Transformer, plan: Plan, platform: Platform) -> float:
    """Activations to the next stage and gradients back, split over the tensor ranks."""
    if plan.pipeline <= 1:
        return 0.0
    size = plan.tokens * model.hidden * _width(plan) / plan.tensor
    stride = plan.tensor * plan.context * plan.data
    one = _collective_us("send_recv", size, 2, stride, platform)
    return 2 * one * plan.virtual


def _stage_params(model: Transformer, plan: Plan) -> float:
    """Trained parameters of one rank on the first or last stage."""
    if plan.frozen:
        return 0.0
    layers = ceil(model.layers / plan.pipeline)
    experts = model.experts / min(plan.expert, model.experts) * model.expert_params
    layer = (model.attention_params + experts) / plan.tensor
    return layers * layer + model.vocab * model.hidden / plan.tensor


def _data_us(model: Transformer, plan: Plan, platform: Platform, compute_us: float) -> float:
    """Exposed time of gradients (and of sharded parameters) among data-parallel ranks."""
    params, ranks = _stage_params(model, plan), plan.data * plan.context
    width = _width(plan)
    if plan.sharding in ("gradients", "full"):
        gathers = 2 if plan.sharding == "full" else 1
        gather = _collective_us("all_gather", params * width, ranks, plan.tensor, platform)
        scatter = _collective_us("reduce_scatter", params * width, ranks, plan.tensor, platform)
        repeats = plan.micro_batches if plan.sharding == "full" else 1
        return max(0.0, repeats * (gathers * gather + scatter) - OVERLAP * compute_us)
    reduce = _collective_us("all_reduce", params * width, ranks, plan.tensor, platform)
    if not plan.overlap:
        return reduce
    return max(0.1 * reduce, reduce - OVERLAP * compute_us / plan.micro_batches / 2)


def _optimizer_us(model: Transformer, plan: Plan, prices: Prices) -> float:
    if not plan.optimizer:
        return 0.0
    shards = plan.data * plan.context if plan.sharding != "none" else 1
    return _stage_params(model, plan) / shards * ADAM_BYTES / prices.rate
