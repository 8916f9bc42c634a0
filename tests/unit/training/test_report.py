"""The tables of left-out runs."""

from typing import Any

from gnnperf.training.report import spread_lines


def run(edge_free: float, network: float) -> dict[str, list[dict[str, Any]]]:
    devices = ("t4", "l4")
    rows = [
        {"label": "bmm", "device": d, "prior": 20.0, "edge_free": edge_free, "network": network + i}
        for i, d in enumerate(devices)
    ]
    return {"models": rows}


def test_ops_of_models_over_seeds_as_mean_and_range() -> None:
    table = spread_lines([run(12.0, 10.0), run(10.0, 11.0)])
    assert table[-1] == (
        "| bmm | 20.0 (20.0 to 20.0) | 11.0 (10.0 to 12.0) | 11.0 (10.5 to 11.5) | 1 of 2 |"
    )
