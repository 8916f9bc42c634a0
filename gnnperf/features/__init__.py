"""Features of device work on a device: numbers with names and units, made without torch."""

from gnnperf.features.hardware import COLUMN, hardware_row
from gnnperf.features.rows import (
    NO_VARIANT,
    TECHNOLOGIES,
    TRAINING_SESSION,
    Measurement,
    Rows,
    find_variant,
    make_rows,
    ratios,
    variant_name,
    variant_parents,
    variant_technologies,
    with_frameworks,
)
from gnnperf.features.spec import (
    DIMENSIONS,
    DIVISORS,
    FEATURES,
    HARDWARE_COLUMNS,
    RATIOS,
    TERMS,
    Feature,
)

__all__ = [
    "COLUMN",
    "DIMENSIONS",
    "DIVISORS",
    "FEATURES",
    "HARDWARE_COLUMNS",
    "NO_VARIANT",
    "RATIOS",
    "TECHNOLOGIES",
    "TERMS",
    "TRAINING_SESSION",
    "Feature",
    "Measurement",
    "Rows",
    "find_variant",
    "hardware_row",
    "make_rows",
    "ratios",
    "variant_name",
    "variant_parents",
    "variant_technologies",
    "with_frameworks",
]
