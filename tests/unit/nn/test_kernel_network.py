"""The network: equal to its prior before training, bounded, blind without edges, monotone."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from gnnperf.data.tables import family_dims
from gnnperf.features import FEATURES, Measurement, make_rows, ratios
from gnnperf.graph import dtype_index
from gnnperf.hardware import get_hardware
from gnnperf.nn.inputs import Inputs
from gnnperf.nn.model import Edges, KernelNetwork, ModelConfig
from gnnperf.nn.network import NetworkShape, ResidualNetwork
from gnnperf.nn.predict import RowEdges
from gnnperf.nn.prior import KINDS, AnalyticPrior, kind_of
from gnnperf.nn.prior_processor import ProcessorPrior
from gnnperf.ops import FAMILIES, MAX_DIMS, OpBatch, family_index, family_names

GENERIC = {"gemm": (1, 512, 1024, 768), "attention": (4, 16, 4, 512, 512, 64, 64, 1, 0, 1)}
GENERIC |= {"conv": (8, 64, 64, 56, 56, 3, 3, 1, 1, 1, 1, 1, 1, 1), "norm": (2048, 1024)}
GENERIC |= {"moe": (256, 4096, 1536, 64, 4, 1, 1, 0, 1), "softmax": (4096, 1024)}
GENERIC |= {"moe_gemm": (256, 4096, 1536, 64, 4, 3072, 4096)}


def every_family(dtype: str = "float16") -> OpBatch:
    names = family_names()
    dims = np.zeros((len(names), MAX_DIMS))
    for i, name in enumerate(names):
        values = GENERIC.get(name, (1e6,) * len(FAMILIES[name].dims))
        dims[i, : len(values)] = values
    types = np.full(len(names), dtype_index(dtype), np.int8)
    known = np.ones(len(names), np.bool_)
    return OpBatch(np.arange(len(names), dtype=np.int16), dims, types, known)


def inputs(batch: OpBatch, device: str) -> tuple[Inputs, torch.Tensor]:
    how = Measurement.same(len(batch), launch_included=False, in_model=False)
    rows = make_rows(batch, [get_hardware(device)], np.zeros(len(batch), np.int64), how)
    return Inputs.of(rows, np.array([-1])), torch.from_numpy(ratios(rows))


def scaled_network(slots: tuple[str, ...]) -> KernelNetwork:
    torch.manual_seed(0)
    network = KernelNetwork(ModelConfig(("l4",), ("neusight:pytorch:any",), slots, hidden=16))
    network.mean.zero_()
    network.deviation.fill_(1.0)
    return network.eval()


@pytest.mark.parametrize("device", ["h100-sxm", "t4", "mi210", "cpu", "rtx-pro-6000-server"])
def test_untrained_network_equals_its_prior_on_every_family(device: str) -> None:
    x, generic = inputs(every_family(), device)
    slots = tuple(
        f"{KINDS[k]}/{family_names()[f]}"
        for k, f in zip(kind_of(x).tolist(), x.family.tolist(), strict=True)
    )
    log_time, half, terms = scaled_network(slots)(x, generic, Edges.none())
    assert torch.isfinite(terms).all()
    assert torch.equal(log_time, terms[:, 0])
    assert (half > 0).all()
    assert (log_time > -1).all()


def test_prior_grows_with_the_work() -> None:
    network = scaled_network(())
    for family, column in (("gemm", 1), ("norm", 0), ("attention", 0), ("moe", 0)):
        times = []
        for factor in (1, 8, 64):
            batch = every_family()
            batch.dims[family_index(family), column] *= factor
            x, generic = inputs(batch, "h100-sxm")
            log_time, _, _ = network(x, generic, Edges.none())
            times.append(log_time[family_index(family)].item())
        assert times[0] < times[1] < times[2], family


def test_prior_stays_above_the_roofline_of_a_large_product() -> None:
    batch = every_family("bfloat16")
    batch.dims[family_index("gemm"), :4] = 1, 8192, 8192, 8192
    x, generic = inputs(batch, "a100-sxm-80gb")
    time = scaled_network(())(x, generic, Edges.none())[0][family_index("gemm")].exp().item()
    roof = 2 * 8192**3 / 312e6
    assert roof < time < 2 * roof


def test_residual_is_bounded_and_edges_matter_only_where_they_are() -> None:
    torch.manual_seed(0)
    net = ResidualNetwork(NetworkShape(len(FEATURES), 2, hidden=16, dropout=0.0)).eval()
    with torch.no_grad():
        net.residual.normal_(0, 5)
    features, slot = torch.randn(6, len(FEATURES)), torch.tensor([0, 1, 0, 1, 0, 1])
    none = Edges.none()
    alone, _ = net(features, slot, none.index, none.kind)
    assert alone.abs().max() <= 0.6
    edges = RowEdges(np.array([0]), np.array([1]), np.array([False])).tensors()
    joined, _ = net(features, slot, edges.index, edges.kind)
    assert not torch.equal(joined[:2], alone[:2])
    assert torch.equal(joined[2:], alone[2:])


def test_direction_and_type_of_an_edge_matter() -> None:
    torch.manual_seed(0)
    net = ResidualNetwork(NetworkShape(len(FEATURES), 1, hidden=16, dropout=0.0)).eval()
    with torch.no_grad():
        net.residual.normal_()
    features, slot = torch.randn(2, len(FEATURES)), torch.zeros(2, dtype=torch.int64)

    def first(source: int, destination: int, data: bool) -> torch.Tensor:
        e = RowEdges(np.array([source]), np.array([destination]), np.array([data])).tensors()
        return net(features, slot, e.index, e.kind)[0]

    forward = first(0, 1, False)
    assert not torch.allclose(forward, first(1, 0, False))
    assert not torch.allclose(forward, first(0, 1, True))


def test_relabelling_rows_changes_nothing() -> None:
    torch.manual_seed(0)
    net = ResidualNetwork(NetworkShape(len(FEATURES), 1, hidden=16, dropout=0.0)).eval()
    with torch.no_grad():
        net.residual.normal_()
    features, slot = torch.randn(5, len(FEATURES)), torch.zeros(5, dtype=torch.int64)
    source, destination = np.array([0, 1, 2, 3]), np.array([1, 2, 3, 4])
    order = np.array([3, 1, 4, 0, 2])
    place = np.argsort(order)
    data = np.array([True, False, True, False])
    a = RowEdges(source, destination, data).tensors()
    b = RowEdges(place[source], place[destination], data).tensors()
    plain, _ = net(features, slot, a.index, a.kind)
    moved, _ = net(features[order], slot, b.index, b.kind)
    assert torch.allclose(moved, plain[order], atol=1e-5)


def test_edge_free_twin_ignores_edges() -> None:
    net = ResidualNetwork(NetworkShape(len(FEATURES), 1, hidden=16, edges=False)).eval()
    with torch.no_grad():
        net.residual.normal_()
    features, slot = torch.randn(3, len(FEATURES)), torch.zeros(3, dtype=torch.int64)
    edges = RowEdges(np.array([0]), np.array([1]), np.array([True])).tensors()
    none = Edges.none()
    alone, _ = net(features, slot, none.index, none.kind)
    assert torch.equal(alone, net(features, slot, edges.index, edges.kind)[0])


def in_step(
    dims: tuple[float, ...], step: bool, family: str = "elementwise", **changes: float
) -> float:
    """Time of an fp32 op on the processor by a prior of the given coefficients."""
    batch = OpBatch(
        np.array([family_index(family)], np.int16),
        np.array([dims + (0.0,) * (MAX_DIMS - len(dims))]),
        np.array([dtype_index("float32")], np.int8),
        np.ones(1, np.bool_),
    )
    how = Measurement.same(1, launch_included=True, in_model=step)
    rows = make_rows(batch, [get_hardware("cpu")], np.zeros(1, np.int64), how)
    prior = ProcessorPrior(0, ())
    with torch.no_grad():
        for name, value in changes.items():
            prior.base[name].fill_(np.log(value))
        return float(prior.terms(Inputs.of(rows, np.array([-1]))).log_time.exp())


def test_new_pages_cost_in_a_step_and_only_where_the_output_is_new() -> None:
    numel = 4e6  # 16 MB out, far above fault_mb
    fresh = (numel, 8 * numel, 4 * numel, 1.0, 2.0)
    in_place = (*fresh, 0.0, 0.0, 1.0)
    same = {"cold": 1.0, "fault_mb": 0.01}
    free = in_step(fresh, step=True, fault=1e-6, **same)
    assert free == pytest.approx(in_step(fresh, step=False, **same), rel=1e-3)
    assert in_step(in_place, step=True, fault=1e3, **same) == pytest.approx(free, rel=1e-3)
    # 16 MB at 1,000 us each, all of them new
    assert in_step(fresh, step=True, fault=1e3, **same) == pytest.approx(free + 16e3, rel=0.05)


def test_a_step_wants_more_cache_and_random_numbers_take_their_time() -> None:
    half_cache = (2e6, 8e6, 8e6, 1.0, 1.0, 0.0, 0.0, 1.0)
    alone, among_others = (in_step(half_cache, step, cold=4.0) for step in (False, True))
    assert among_others > 1.1 * alone
    drawn = (1e6, 0.0, 4e6, 10.0, 0.0, 0.0, 1.0)
    clock = get_hardware("cpu").boost_clock_mhz / 1e3
    few, many = (in_step(drawn, False, random=r) for r in (1e-6, 37.0))
    assert many - few == pytest.approx(1e6 * 37e-3 / clock, rel=0.2)


def test_the_gradient_of_a_whole_table_is_filled_first() -> None:
    table = (500_000.0, 64.0, 256.0, 256.0)  # 128 MB
    whole, rows = (in_step((*table, d, 1.0), False, "embedding") for d in (1.0, 2.0))
    bandwidth = get_hardware("cpu").memory_bandwidth_gb_per_s * 1e3
    assert whole - rows > 0.5 * 128e6 / bandwidth


def test_a_family_that_no_step_held_has_the_common_part_of_what_a_step_adds() -> None:
    prior = ProcessorPrior(0, ())
    with torch.no_grad():
        prior.common["call"].fill_(np.log(3.0))
        prior.in_step["call"][family_index("softmax")] = np.log(2.0)
    x, _ = inputs(every_family("float32"), "cpu")
    own = [prior.own(replace(x, in_model=torch.full((len(x),), step))) for step in (0.0, 1.0)]
    change = own[1]["call"] / own[0]["call"]
    assert change[family_index("softmax")].item() == pytest.approx(6.0)
    assert change[family_index("conv")].item() == pytest.approx(3.0)
    assert torch.equal(own[1]["kernels"], own[0]["kernels"])


def test_a_checkpoint_from_before_steps_still_loads() -> None:
    network = scaled_network(("processor/gemm",))
    weights = network.state_dict()
    old = {
        n: v for n, v in weights.items() if not any(p in n for p in ("in_step", "common", "fault"))
    }
    assert len(old) < len(weights)
    other = scaled_network(("processor/gemm",))
    other.load_state_dict(old)
    batch = every_family("float32")
    x, _ = inputs(batch, "cpu")
    assert torch.equal(other.prior(x), network.prior(x))


@pytest.mark.parametrize(
    ("kind", "family", "dtype", "kept", "kept_inside"),
    [
        ("norm", "norm", "float32", 0.5, 0.0),
        ("softmax", "softmax", "float32", 0.5, 1.0),
        ("tensor16", "gemm", "bfloat16", 0.0, 1.0),
        ("vector_conv", "conv", "float32", 1.0, 1.0),
    ],
)
def test_an_op_on_an_unseen_device_keeps_a_share_of_the_residual(
    kind: str, family: str, dtype: str, kept: float, kept_inside: float
) -> None:
    network = scaled_network((f"{kind}/{family}",))
    with torch.no_grad():
        for net in network.members:
            net.residual.normal_()
    batch = every_family(dtype).take(np.array([family_index(family)]))
    times = {}
    for inside in (False, True):
        for device in (-1, 0):
            how = Measurement.same(1, launch_included=False, in_model=inside)
            rows = make_rows(batch, [get_hardware("l4")], np.zeros(1, np.int64), how)
            x, generic = Inputs.of(rows, np.array([device])), torch.from_numpy(ratios(rows))
            log_time, _, terms = network(x, generic, Edges.none())
            times[inside, device] = float((log_time - terms[:, 0]).detach())
    assert abs(times[False, 0]) > 0.01
    assert times[False, -1] == pytest.approx(times[False, 0] * kept, abs=1e-5)
    assert times[True, -1] == pytest.approx(times[True, 0] * kept_inside, abs=1e-5)


@pytest.mark.parametrize(
    ("device", "slower"), [("a100-pcie-40gb", True), ("v100-pcie-32gb", False), ("mi210", False)]
)
def test_batched_products_with_a_side_of_64_run_as_a_tile_of_128_would(
    device: str, slower: bool
) -> None:
    prior = AnalyticPrior(1, ("neusight:pytorch:any",))
    batched = prior.of_kind(KINDS.index("vector_batched"))
    dims = np.concatenate([family_dims("gemm", 1, batch=96, m=1024, n=n, k=512) for n in (64, 128)])
    batch = OpBatch(
        np.full(2, family_index("gemm"), np.int16),
        dims,
        np.full(2, dtype_index("float32"), np.int8),
        np.ones(2, np.bool_),
    )
    x, _ = inputs(batch, device)
    times = {}
    for narrow in (1e-6, 1.0):
        with torch.no_grad():
            batched.base["narrow"].fill_(np.log(narrow))
        times[narrow] = prior(x)[:, 0].exp().detach()
    half, full = times[1.0]
    assert (half / times[1e-6][0] > 1.5) == slower
    assert float(half / full) == pytest.approx(1.0 if slower else 0.5, abs=0.2)


def test_a_checkpoint_from_before_narrow_tiles_cost_more_still_loads() -> None:
    prior = AnalyticPrior(1, ("neusight:pytorch:any",))
    old = {n: v for n, v in prior.state_dict().items() if not n.endswith(".narrow")}
    other = AnalyticPrior(1, ("neusight:pytorch:any",))
    other.load_state_dict(old)
    batched = other.of_kind(KINDS.index("vector_batched"))
    assert float(batched.base["narrow"].detach().exp()) < 1e-6
