import numpy as np
import pytest

from gnnperf.analytic.collectives import (
    FITTED,
    KINDS,
    Coefficients,
    collective_time_us,
    evaluate,
    terms,
)
from gnnperf.analytic.sigmoid import Sigmoid, fit_sigmoid, sigmoid_time_us
from gnnperf.analytic.wiring import described_platform, fabric_gb_per_s
from gnnperf.errors import InputError
from gnnperf.hardware import Link, Platform, get_hardware, get_platform
from gnnperf.ops.collective import KINDS as OP_KINDS

NODE = Platform(
    name="ideal",
    aliases=(),
    gpu="h100-sxm",
    gpus_per_node=8,
    intra_node=Link("nvlink3", 100.0, 2.0),
    inter_node=Link("ib", 10.0, 5.0),
    nics_per_node=8,
    cpu="cpu",
)
ones = (1.0,) * len(FITTED)
zeros = (0.0,) * len(FITTED)
RING = Coefficients(zeros, ones, ones, zeros, zeros, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0)
"""An ideal ring: each step costs one link latency, bytes cost bytes / bandwidth."""


def ring_us(kind: str, size: float, n: int, nodes: int = 1, platform: Platform = NODE) -> float:
    return float(evaluate(RING, terms(kind, (size, size), n, nodes, platform)))


def test_kinds_extend_those_of_the_ops() -> None:
    assert KINDS[:-1] == OP_KINDS
    assert KINDS[-1] == "unknown"


@pytest.mark.parametrize(
    ("kind", "n", "expected_us"),
    [
        # 8 MB over 100 GB/s is 80 us; hops of 2 us
        ("all_reduce", 2, 2 * 1 * 2 + 2 * 1 / 2 * 80),
        ("all_reduce", 8, 2 * 7 * 2 + 2 * 7 / 8 * 80),
        ("all_gather", 4, 3 * 2 + 3 / 4 * 80),
        ("reduce_scatter", 8, 7 * 2 + 7 / 8 * 80),
        ("all_to_all", 4, 3 * 2 + 3 / 4 * 80),
        ("broadcast", 8, 7 * 2 + 80),
        ("send_recv", 8, 80),
        ("barrier", 4, 2 * 3 * 2),
        ("all_reduce", 1, 0),
    ],
)
def test_ring_by_hand(kind: str, n: int, expected_us: float) -> None:
    assert ring_us(kind, 8e6, n) == pytest.approx(expected_us)


def test_ring_over_nodes_by_hand() -> None:
    # 2 nodes of 8: each node passes 2 (2-1)/2 of 8 MB through 8 NICs of 10 GB/s: 100 us, less
    # than the fabric's 2 * 7/8 * 80 us; one level of the tree costs 5 us.
    assert ring_us("all_reduce", 8e6, 16, 2) == pytest.approx(2 * 7 * 2 + 5 + 140)
    # one rank a node: no fabric, 2 (4-1)/4 of 8 MB through one NIC, two levels
    assert ring_us("all_reduce", 8e6, 4, 4) == pytest.approx(2 * 5 + 1.5 * 800)
    # of 8 MB a rank of 16 sends half to the other node
    assert ring_us("all_to_all", 8e6, 16, 2) == pytest.approx(7 * 2 + 5 + 400)
    assert ring_us("send_recv", 8e6, 2, 2) == pytest.approx(5 + 800)


def test_whole_buffer_is_found_from_either_side() -> None:
    full = collective_time_us("all_gather", 1e6, 8e6, 8, 1, NODE)
    assert collective_time_us("all_gather", 1e6, 0, 8, 1, NODE) == pytest.approx(full)
    back = collective_time_us("reduce_scatter", 8e6, 1e6, 8, 1, NODE)
    assert collective_time_us("reduce_scatter", 0, 1e6, 8, 1, NODE) == pytest.approx(back)


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "barrier"])
@pytest.mark.parametrize(("n", "nodes"), [(2, 1), (8, 1), (16, 2), (64, 8)])
def test_grows_with_bytes_and_falls_with_bandwidth(kind: str, n: int, nodes: int) -> None:
    size = np.geomspace(1, 1e10, 200)
    h100, a100 = get_platform("hgx-h100"), get_platform("dgx-a100")
    time = collective_time_us(kind, size, size, n, nodes, h100)
    assert (np.diff(time) > 0).all()
    if n != 8 or kind != "all_reduce":  # in-switch reduction aside, only the figures differ
        assert (time <= collective_time_us(kind, size, size, n, nodes, a100)).all()


def test_zero_bytes_cost_latency_alone() -> None:
    nothing = collective_time_us(list(KINDS), 0, 0, 8, 1, NODE)
    assert (nothing > 0).all()
    slow = Platform(**{**NODE.__dict__, "intra_node": Link("nvlink3", 1.0, 2.0)})
    assert collective_time_us(list(KINDS), 0, 0, 8, 1, slow) == pytest.approx(nothing)


def test_unknown_is_priced_like_an_all_reduce_and_arrays_broadcast() -> None:
    size = np.array([1e3, 1e6, 1e9])
    both = collective_time_us([["unknown"], ["all_reduce"]], size, size, 4, 0, NODE)
    assert both.shape == (2, 3)
    assert both[0] == pytest.approx(both[1])
    codes = collective_time_us(KINDS.index("all_reduce"), size, size, 4, 0, NODE)
    assert codes == pytest.approx(both[1])


def test_refusals() -> None:
    with pytest.raises(InputError, match="unknown collective 'all_reduced'"):
        collective_time_us("all_reduced", 1, 1, 2, 1, NODE)
    with pytest.raises(InputError, match="negative bytes"):
        collective_time_us("all_reduce", -1, 1, 2, 1, NODE)
    alone = Platform(**{**NODE.__dict__, "inter_node": None})
    with pytest.raises(InputError, match="no link to other nodes"):
        collective_time_us("all_reduce", 1, 1, 16, 2, alone)


def test_seed_constants_of_the_sigmoid() -> None:
    # all_to_all on four V100, fitted by the seed's authors at commit f360f7c (SEED 2f)
    v100 = Sigmoid(19, 29, 56.7134, 85.6, 2.04954779, 19.37088144, 0.50613566, -0.2803368)
    low, ramp, high = sigmoid_time_us([2.0**10, 2.0**24, 2.0**30], v100, 3 / 4)
    assert low == 85.6
    # by hand: 2.04954779 / (1 + exp(-0.50613566 * 4.62911856)) - 0.2803368 = 1.589614
    assert ramp == pytest.approx(2**24 * 0.75 / (10**1.589614 * 1e3), rel=1e-5)
    assert high == pytest.approx(2**30 * 0.75 / 56713.4 + 85.6)


@pytest.mark.parametrize(
    ("flat_to", "max_gb_per_s", "overhead_us"),
    [(12, 75.6704, 84.2), (12, 130.3734, 43.4)],
)
def test_seed_constants_of_all_reduce(
    flat_to: float, max_gb_per_s: float, overhead_us: float
) -> None:
    s = Sigmoid(flat_to, 25, max_gb_per_s, overhead_us, 1.0, 18.0, 0.5, 0.5)
    assert sigmoid_time_us(2.0**flat_to, s, 1.5) == overhead_us
    far = sigmoid_time_us(2.0**31, s, 1.5)
    assert far == pytest.approx(2**31 * 1.5 / max_gb_per_s / 1e3 + overhead_us)


def test_sigmoid_finds_what_made_the_sweep() -> None:
    true = Sigmoid(12, 26, 80.0, 20.0, 2.2, 17.0, 0.4, -0.3)
    size = 2.0 ** np.arange(8, 32)
    time = sigmoid_time_us(size, true, 1.5)
    found = fit_sigmoid(size, time, 1.5)
    middle = (size > 2.0**14) & (size < 2.0**25)
    assert sigmoid_time_us(size, found, 1.5)[middle] == pytest.approx(time[middle], rel=0.2)


def test_links_of_a_mesh_are_shared_by_the_group() -> None:
    assert fabric_gb_per_s(get_platform("hgx-h100"), 2) == 450
    assert fabric_gb_per_s(get_platform("dgx-1v"), 2) == pytest.approx(25)
    assert fabric_gb_per_s(get_platform("dgx-1v"), 4) == pytest.approx(100)
    assert fabric_gb_per_s(get_platform("mi300x-node"), 2) == pytest.approx(64)
    assert fabric_gb_per_s(get_platform("mi300x-node"), 8) == pytest.approx(448)


@pytest.mark.parametrize(
    ("gpu", "words", "gb_per_s"),
    [
        ("a100-sxm", "8 GPU/node, 800 Gb/s node", 12.5),
        ("a100-sxm", "NVLink3 + 4x100Gb/s EFA per node", 6.25),
        ("h100-sxm", "NVLink4 + EFA 4x100Gb/s per GPU", 50),
        ("h100-sxm", "96GB HBM2e, 500W, 400Gb/s per GPU", 50),
        ("v100-sxm2-16gb", "hybrid cube mesh, 1x100Gb/s IB", 12.5 / 8),
        ("h100-sxm", "DGX H100 NVSwitch", 50),
    ],
)
def test_network_in_words(gpu: str, words: str, gb_per_s: float) -> None:
    platform = described_platform(get_hardware(gpu), words)
    assert platform.inter_node is not None
    assert platform.inter_node.bandwidth_gb_per_s == pytest.approx(gb_per_s)


def test_pairwise_bridge() -> None:
    a100 = get_hardware("a100-sxm")
    assert described_platform(a100, "pairwise NVLink", 2).intra_node.bandwidth_gb_per_s == 300
    assert described_platform(a100, "pairwise NVLink", 4).intra_node.name == "pcie"
