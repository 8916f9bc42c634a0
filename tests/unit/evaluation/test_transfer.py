import numpy as np
import pytest

from gnnperf.data.tables import KERNEL_TABLE, KernelTable, Names, family_dims, make_table
from gnnperf.evaluation.networks import Networks
from gnnperf.evaluation.transfer import (
    Pair,
    main,
    nearness,
    one_per_op,
    op_keys,
    pairs_of,
    table_of,
)
from gnnperf.hardware import get_hardware


def table(devices: list[str], rows: np.ndarray, us: list[float]) -> KernelTable:
    dims = family_dims("gemm", len(us), batch=1, m=rows, n=512, k=512)
    return make_table(
        np.array(us),
        dims,
        peers={},
        device=Names.of(devices),
        raw_device=Names.of(devices),
        family="gemm",
        label="linear",
        dtype="float32",
        source="neusight",
        launch_included=False,
        row=np.arange(len(us)),
        origin=KERNEL_TABLE,
    )


def test_rows_of_one_op_share_a_key_and_the_median_stays() -> None:
    found = table(["l4"] * 4 + ["t4"], np.array([64, 64, 64, 128, 64]), [3.0, 1.0, 2.0, 9.0, 7.0])
    keys = op_keys(found)
    assert keys[0] == keys[1] == keys[2] == keys[4] != keys[3]
    single, _ = one_per_op(found)
    assert sorted(single.duration_us.tolist()) == [2.0, 7.0, 9.0]


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ("h200-sxm", "one group"),
        ("a100-sxm-80gb", "one vendor"),
        ("mi300x", "two vendors"),
    ],
)
def test_nearness_of_gpus(other: str, expected: str) -> None:
    assert nearness(get_hardware("h100-sxm"), get_hardware(other)) == expected
    assert nearness(get_hardware("a40"), get_hardware("a100-sxm-80gb")) == "one architecture"


def test_full_trust_takes_out_what_both_gpus_have_in_common() -> None:
    shared = np.linspace(-0.5, 0.5, 40)
    pair = Pair("h200-sxm", "h100-sxm", "one group", np.full(40, "gemm"), shared, -shared)
    line = table_of([pair])[2]
    assert line.startswith("| gemm | one group | 1 | 40 |")
    assert line.endswith("| 0.0 |")


def test_pairs_of_a_table_with_the_shipped_network() -> None:
    rows = np.tile(np.arange(1, 31) * 64, 2)
    us = (rows / 10.0).tolist()
    measured = table(["h100-sxm"] * 30 + ["h200-sxm"] * 30, rows, us)
    pairs = list(pairs_of(measured, Networks(None, None), 100))
    assert [(p.target, p.source) for p in pairs] == [
        ("h100-sxm", "h200-sxm"),
        ("h200-sxm", "h100-sxm"),
    ]
    assert len(pairs[0].error) == 30
    # the same rows seen from the other side: what is error there is evidence here
    assert np.allclose(pairs[0].error, -pairs[1].evidence)


def test_a_missing_table_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nowhere.parquet"]) == 2
    assert "nowhere.parquet" in capsys.readouterr().err
