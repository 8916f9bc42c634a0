"""What the network is given: every feature with its name, unit and transform.

The list is stored in a checkpoint and compared by name when one is loaded, so that a network is
never fed other numbers than it was trained on.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Feature:
    """One input of the network."""

    name: str
    unit: str
    """unit before the transform; 1 for a ratio, a count or a flag"""
    transform: str
    """identity, log (natural, of the value), log1p"""

    def as_text(self) -> list[str]:
        """What a checkpoint stores."""
        return [self.name, self.unit, self.transform]


HARDWARE_COLUMNS: tuple[Feature, ...] = (
    Feature("bandwidth", "B/us", "log"),
    Feature("l2_bytes", "B", "log"),
    Feature("l2_split", "1", "identity"),
    Feature("l2_bandwidth", "B/us", "log"),
    Feature("sms", "1", "log"),
    Feature("clock", "GHz", "log"),
    Feature("power", "W", "log"),
    Feature("node", "nm", "log"),
    Feature("async_matrix", "1", "identity"),
    Feature("tensor_memory", "1", "identity"),
    Feature("gpu", "1", "identity"),
    Feature("vector_peak", "FLOP/us", "log"),
    Feature("stacked_memory", "1", "identity"),
    Feature("amd", "1", "identity"),
)
"""Columns of a hardware row. They enter through the prior's terms and as ratios, never alone."""

TERMS: tuple[Feature, ...] = (
    Feature("time", "us", "log"),
    Feature("launch_share", "1", "log"),
    Feature("compute_share", "1", "log"),
    Feature("memory_share", "1", "log"),
    Feature("cache_share", "1", "log"),
    Feature("throttle", "1", "log"),
    Feature("cache_hit", "1", "identity"),
    Feature("wave_tail", "1", "log"),
    Feature("waves", "1", "log"),
)
"""What every analytic prior tells of a row beside its time: shares of the whole, tail, waves."""

RATIOS: tuple[Feature, ...] = (
    Feature("bound_position", "1", "log"),
    Feature("footprint_over_l2", "1", "log"),
    Feature("items_over_sms", "1", "log"),
    Feature("flops", "FLOP", "log1p"),
    Feature("bytes", "B", "log1p"),
    Feature("element_bytes", "B", "log"),
    Feature("launch_included", "1", "identity"),
    Feature("in_model", "1", "identity"),
)
"""Generic features of a row: its demands against what the device gives.

What is the same for all rows of a device (its ridge point, its power) is left to the prior: with a
dozen devices to learn from, a network can only memorize them by it.
"""

DIMENSIONS: tuple[Feature, ...] = tuple(
    Feature(f"dim_{i:02d}", "as docs/families.md", "log1p") for i in range(16)
)
"""The family's own dimensions."""

DIVISORS: tuple[Feature, ...] = tuple(
    Feature(f"divisor_{i:02d}", "1", "log2 of the largest power of two that divides, at most 7")
    for i in range(6)
)
"""How well the first dimensions are aligned: vector loads and full tiles depend on it."""

FEATURES: tuple[Feature, ...] = (*TERMS, *RATIOS, *DIVISORS, *DIMENSIONS)
"""Inputs of the residual network in order."""
