import numpy as np
import pytest

from gnnperf.data.splits import held_groups, implementations, in_group, known_group, questionable
from gnnperf.data.tables import KernelTable, Names, family_dims, make_table
from gnnperf.errors import UnknownNameError
from gnnperf.features import TRAINING_SESSION, variant_name


def table(devices: list[str], **columns: object) -> KernelTable:
    rows = len(devices)
    return make_table(
        np.ones(rows),
        family_dims("softmax", rows, rows=1, cols=1),
        peers={},
        device=Names.of(devices),
        family="softmax",
        launch_included=True,
        row=np.arange(rows),
        **columns,
    )


@pytest.mark.parametrize(
    "together",
    [
        ("a100-pcie-40gb", "a100-pcie-80gb", "a100-sxm-80gb"),
        ("a40", "rtx-a6000"),
        ("l20", "l40", "l40s", "rtx-6000-ada"),
        ("h100-sxm", "h800-sxm", "h200-sxm", "h20"),
        ("b200-sxm", "b300-sxm", "gb200", "gb300"),
        ("mi100", "mi210"),
    ],
)
def test_relatives_are_left_out_together_and_nothing_else(together: tuple[str, ...]) -> None:
    others = ("p4", "p100-pcie-16gb", "t4", "v100-pcie-32gb", "l4", "a nameless one")
    found = in_group(table([*together, *others]), together[0])
    assert found.tolist() == [True] * len(together) + [False] * len(others)


def test_a_group_is_known_by_its_devices() -> None:
    assert known_group("NVIDIA L4") == known_group("l4")
    with pytest.raises(UnknownNameError, match="hopper"):
        known_group("no such group")


def test_whole_groups_are_held_and_always_the_same_ones() -> None:
    names = Names.of([f"gemm n={i % 500}" for i in range(2000)])
    held = held_groups(names, 0.2)
    by_group = held.reshape(4, 500)
    assert (by_group == by_group[0]).all()
    assert 60 < by_group[0].sum() < 140
    shuffled = np.random.default_rng(0).permutation(2000)
    assert (held_groups(names.take(shuffled).compact(), 0.2) == held[shuffled]).all()
    assert (held_groups(names, 0.2, seed=1) != held).any()


def test_training_rows_of_the_p4_are_questionable() -> None:
    rows = table(
        ["p4", "p4", "t4"],
        raw_device=Names.of(["Tesla P4", "Tesla P4", "Tesla T4"]),
        source="neusight",
        label="linear",
        split=Names.of(["train", "test", "train"]),
    )
    assert [mask.tolist() for mask in questionable(rows).values()] == [[True, False, False]]


def test_the_training_session_of_neusight_is_an_implementation_of_its_own() -> None:
    rows = table(
        ["t4", "t4", "t4"],
        source=Names.of(["neusight", "neusight", "aiconfigurator"]),
        split=Names.of(["train", "test", "train"]),
        kernel_source=Names.of(["sgemm", "sgemm", "cublas"]),
    )
    found = implementations(rows)
    texts = [found.names[code] for code in found.codes]
    assert texts == [TRAINING_SESSION, "sgemm", "cublas"]
    assert variant_name("neusight", "pytorch", texts[0]) == "neusight:pytorch:training session"
    assert variant_name("neusight", "pytorch", texts[1]) == "neusight:pytorch:any"
