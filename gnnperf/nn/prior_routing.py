"""Which rows of a mixture of experts meet on the busiest rank, from the layer's dimensions alone.

Balanced routing spreads the pairs (token, expert) evenly: as many experts get tokens as there are
pairs, up to all. Skewed routing draws each expert's load from a truncated power law (of exponent
`skew`; from 1 to 0.8 tokens where pairs outnumber experts, else from 0.01 to 2), scales the loads
to the number of pairs, rounds them, gives what rounding lost to experts without tokens, and times
the rank with the highest sum: the way in which the tables that hold a skew were measured
(public collector of aiconfigurator). Here the draw is replaced by its quantiles.
"""

from typing import NamedTuple

import torch
from torch import Tensor

QUANTILES = 48
_CAP, _FEW = 0.8, (0.01, 2.0)
"""most loaded expert over tokens; range of the loads where experts outnumber pairs"""


class Routing(NamedTuple):
    """What the busiest rank gets; all [n] but `load`."""

    pairs: Tensor
    """(token, expert) pairs on the rank, at least 1"""
    active: Tensor
    """experts of the rank that get a token, at least 1"""
    load: Tensor
    """[n, QUANTILES] tokens of one expert of the rank, by quantile"""
    all_pairs: Tensor
    """pairs on all ranks together"""


def routing(dims: Tensor) -> Routing:
    """From the dimensions of `moe` rows.

    Args:
        dims: [n, >= 8] tokens, hidden, inter, experts, top_k, tensor, expert parallel, skew.
    """
    tokens, experts, top_k, parts = (dims[:, i].clamp(min=1.0) for i in (0, 3, 4, 6))
    skew = dims[:, 7]
    even = skew <= 0
    own = (experts / parts).clamp(min=1.0)
    mean = tokens * top_k / experts
    load = torch.minimum(_skewed(tokens, mean, skew), tokens.unsqueeze(1))
    deviation = load.std(1, correction=0) / mean
    missing = (mean - load.round().mean(1)).clamp(min=0.0)
    share = ((load.round() > 0).float().mean(1) + missing).clamp(max=1.0)
    share = torch.where(even, mean.clamp(max=1.0), share)
    busiest = torch.where(even, 0.0, _highest_of(parts))
    pairs = mean * own * (1 + deviation * busiest / torch.sqrt(own))
    pairs = torch.minimum(torch.minimum(pairs, own * tokens), tokens * top_k).clamp(min=1.0)
    active = own * share + busiest * torch.sqrt(own * share * (1 - share))
    active = torch.minimum(torch.minimum(active, own), pairs).clamp(min=1.0)
    load = torch.where(even.unsqueeze(1), mean.unsqueeze(1), load)
    load = load * (pairs / (mean * own)).unsqueeze(1)
    return Routing(pairs, active, load, tokens * top_k)


def _skewed(tokens: Tensor, mean: Tensor, skew: Tensor) -> Tensor:
    """[n, QUANTILES] quantiles of an expert's load; their mean is `mean`."""
    many = mean > 1
    low = torch.where(many, 1.0, _FEW[0]).unsqueeze(1)
    high = torch.where(many, (_CAP * tokens).clamp(min=1.01), _FEW[1]).unsqueeze(1)
    power = 1 - skew
    power = torch.where(power.abs() < 0.02, -0.02, power).unsqueeze(1)
    quantile = (torch.arange(QUANTILES) + 0.5) / QUANTILES
    drawn = ((high**power - low**power) * quantile + low**power) ** (1 / power)
    return drawn / drawn.mean(1, keepdim=True) * mean.unsqueeze(1)


def _highest_of(count: Tensor) -> Tensor:
    """[n] expected largest of `count` standard normal draws (Blom's approximation); 0 for one."""
    highest = torch.special.ndtri((count - 0.375) / (count + 0.25))
    return torch.where(count > 1, highest, 0.0)
