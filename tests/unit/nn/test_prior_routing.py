"""Routing of experts against the draw that it stands for, and the libraries' effects."""

import numpy as np
import torch

from gnnperf.features import TECHNOLOGIES, variant_technologies
from gnnperf.nn.prior_routing import routing


def _dims(tokens: int, experts: int, top_k: int, parts: int, skew: float) -> torch.Tensor:
    return torch.tensor([[tokens, 64, 64, experts, top_k, 1, parts, skew]], dtype=torch.float32)


def _drawn(
    tokens: int, experts: int, top_k: int, parts: int, skew: float, draws: int
) -> tuple[float, float]:
    """Mean pairs and active experts of the busiest rank over real draws."""
    generator = np.random.default_rng(3)
    pairs, active = [], []
    many = tokens * top_k > experts
    low, high = (1.0, 0.8 * tokens) if many else (0.01, 2.0)
    for _ in range(draws):
        power = 1 - skew
        u = generator.random(experts)
        load = ((high**power - low**power) * u + low**power) ** (1 / power)
        load = np.minimum(np.round(load / load.sum() * tokens * top_k), tokens)
        for _ in range(int(tokens * top_k - load.sum())):
            load[np.argmin(load)] += 1
        ranks = load.reshape(parts, -1)
        busiest = ranks[ranks.sum(1).argmax()]
        pairs.append(busiest.sum())
        active.append((busiest > 0).sum())
    return float(np.mean(pairs)), float(np.mean(active))


def test_even_routing_reaches_as_many_experts_as_there_are_pairs() -> None:
    for tokens, expected in ((1, 8), (4, 32), (16, 128), (64, 128)):
        found = routing(_dims(tokens, 128, 8, 1, 0.0))
        assert float(found.active) == expected
        assert float(found.pairs) == tokens * 8


def test_even_routing_divides_among_ranks() -> None:
    found = routing(_dims(1024, 128, 8, 16, 0.0))
    assert float(found.pairs) == 1024 * 8 / 16
    assert float(found.active) == 8
    assert float(found.all_pairs) == 1024 * 8


def test_skewed_routing_is_that_of_the_draw() -> None:
    for tokens, parts in ((16, 1), (64, 1), (1024, 1), (256, 4), (4096, 16)):
        pairs, active = _drawn(tokens, 128, 8, parts, 1.2, 200)
        found = routing(_dims(tokens, 128, 8, parts, 1.2))
        assert abs(np.log(float(found.pairs) / pairs)) < 0.2
        assert abs(np.log(float(found.active) / active)) < 0.2


def test_libraries_by_their_names() -> None:
    kinds = list(TECHNOLOGIES)
    names = (
        "aiconfigurator:sglang:sglang_fused_moe_triton",
        "aiconfigurator:trtllm:torch_flow",
        "aiconfigurator:vllm:vllm_flash_attn_fa3",
        "aiconfigurator:sglang:any",
    )
    found = variant_technologies(names)
    assert [kinds[i] for i in found[:3]] == ["triton", "tensorrt-llm", "flash-attention"]
    assert found[3] == -1
