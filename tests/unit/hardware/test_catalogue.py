"""The catalogue: names that the world uses, figures that agree with arithmetic, their sources."""

import csv
import os
from pathlib import Path

import pytest

from gnnperf.errors import InputError
from gnnperf.hardware import (
    Hardware,
    Platform,
    find_hardware,
    get_hardware,
    get_platform,
    list_hardware,
    list_platforms,
    platform_of,
)
from gnnperf.hardware.reading import figures

SHARED = Path(os.environ.get("GNNPERF_SHARED", Path(__file__).parents[4] / "shared"))

NAMES = {
    "NVIDIA_A100-PCIE-40GB": "a100-pcie-40gb",
    "NVIDIA A100 80GB PCIe": "a100-pcie-80gb",
    "NVIDIA A100-SXM4-40GB": "a100-sxm-40gb",
    "NVIDIA A100-PG509-200": "a100-sxm-40gb",
    "A100-SXM (NVLink node)": "a100-sxm-80gb",
    "Tesla V100-PCIE-32GB": "v100-pcie-32gb",
    "Tesla V100-SXM2-16GB": "v100-sxm2-16gb",
    "Tesla V100-DGXS-32GB": "v100-dgxs-32gb",
    "V100-SXM3 32GB (DGX-2)": "v100-sxm3-32gb",
    "Tesla P100-PCIE-16GB": "p100-pcie-16gb",
    "Tesla P4": "p4",
    "Tesla T4": "t4",
    "NVIDIA L4": "l4",
    "NVIDIA H100 80GB HBM3": "h100-sxm",
    "h100_sxm": "h100-sxm",
    "H100 SXM (p5.48xlarge)": "h100-sxm",
    "H100 (96GB HBM2e 2.4TB/s, 500W, 400Gb/s per GPU)": "h100-sxm-96gb-hbm2e",
    "GH200 96GB (Clariden/Alps, 4 GPU/node, Slingshot-11)": "gh200-96gb",
    "rtx_pro_6000_server": "rtx-pro-6000-server",
    "RTX PRO 6000 S": "rtx-pro-6000-server",
    "H800": "h800-sxm",
    "RTX 6000 Ada": "rtx-6000-ada",
    "NVIDIA GeForce RTX 2080 Ti": "rtx-2080-ti",
    "GB200 NVL72": "gb200",
    "NVIDIA B200": "b200-sxm",
    "AMD Instinct MI210": "mi210",
    "AMD_Instinct_MI250": "mi250",
    "AMD Instinct MI300X VF": "mi300x",
}


@pytest.mark.parametrize(("name", "expected"), NAMES.items())
def test_names_of_traces_and_tables_are_known(name: str, expected: str) -> None:
    assert get_hardware(name).name == expected


def test_every_gpu_of_the_given_tables_is_known() -> None:
    tables = [SHARED / "data" / name for name in ("gpus.csv", "multigpu")]
    if not tables[0].exists():
        pytest.skip("the measured data is not beside this checkout (set GNNPERF_SHARED)")
    names = set()
    for path in (tables[0], *sorted(tables[1].glob("*.csv"))):
        with path.open(encoding="utf-8") as file:
            names |= {row["gpu"] for row in csv.DictReader(file)}
    assert len(names) > 30
    assert [name for name in sorted(names) if find_hardware(name) is None] == []


def test_groups_of_the_evaluation() -> None:
    members: dict[str, set[str]] = {}
    for hardware in list_hardware():
        members.setdefault(hardware.group, set()).add(hardware.name)
    assert members["ampere-gddr"] == {"a10", "a40", "rtx-a6000"}
    assert members["ada"] == {"l20", "l40", "l40s", "rtx-6000-ada", "rtx-4090"}
    assert members["blackwell-dc"] == {"b200-sxm", "b300-sxm", "gb200", "gb300"}
    assert {"h100-sxm", "h800-sxm", "h200-sxm", "h20"} <= members["hopper"]
    assert {"mi100", "mi210", "mi250"} <= members["cdna1-2"]
    assert members["l4"] == {"l4"}
    assert all(name.startswith("a100") for name in members["a100"])


def test_every_figure_has_a_source() -> None:
    items: list[Hardware | Platform] = [*list_hardware(), *list_platforms()]
    for item in items:
        assert [key for key in figures(item) if not item.sources.get(key)] == [], item.name


def test_vector_peaks_follow_from_cores_and_clock() -> None:
    """fp32 = SMs x operations per clock x clock; the operations are architecture's, from ISA."""
    per_clock = {"pascal": (128, 256), "volta": (128,), "turing": (128,), "cdna3": (256,)}
    per_clock |= {"ada": (256,), "hopper": (256,), "blackwell": (256,), "ampere": (128, 256)}
    for hardware in list_hardware():
        if hardware.architecture not in per_clock or hardware.name == "h20":
            continue
        clock = hardware.sm_count * hardware.boost_clock_mhz * 1e6
        rate = hardware.peak_tflops["fp32_vector"] * 1e12 / clock
        nearest = min(per_clock[hardware.architecture], key=lambda n: abs(n - rate))
        assert rate == pytest.approx(nearest, rel=0.045), hardware.name


def test_tensor_peaks_are_dense() -> None:
    """The known operations per SM and clock of each generation; sparse figures would be double."""
    expected: dict[str, float] = {
        "v100-sxm2-32gb": 1024,
        "t4": 1024,
        "a100-sxm-80gb": 2048,
        "a40": 1024,
    }
    expected |= {"l40s": 1024, "l40": 512, "h100-sxm": 4096, "h100-pcie": 4096, "mi300x": 2048}
    expected |= {"b200-sxm": 8192 * 0.945, "mi210": 1024, "mi355x": 4096}
    for name, operations in expected.items():
        hardware = get_hardware(name)
        clock = (hardware.tensor_clock_mhz or hardware.boost_clock_mhz) * 1e6
        rate = hardware.peak_tflops["fp16_tensor"] * 1e12 / (hardware.sm_count * clock)
        assert rate == pytest.approx(operations, rel=0.015), name


def test_memory_bandwidths_follow_from_bus_and_clock() -> None:
    """Bus width in bits x transfers per second, from the boards' memory specification."""
    buses = {"t4": (256, 10.0), "rtx-a6000": (384, 16.0), "l40": (384, 18.0), "p4": (256, 6.0)}
    buses |= {"rtx-4090": (384, 21.0), "mi210": (4096, 3.2), "mi100": (4096, 2.4)}
    buses |= {"rtx-6000-ada": (384, 20.0), "l4": (192, 12.5), "rtx-2080-ti": (352, 14.0)}
    for name, (bits, gigatransfers) in buses.items():
        stated = get_hardware(name).memory_bandwidth_gb_per_s
        assert stated == pytest.approx(bits / 8 * gigatransfers, rel=0.005), name


def test_an_unknown_name_is_one_line_with_close_names() -> None:
    with pytest.raises(InputError) as caught:
        get_hardware("h1000")
    text = str(caught.value)
    assert "h1000" in text
    assert "h100-sxm" in text
    assert "YAML file" in text
    assert "\n" not in text
    assert find_hardware("no such thing") is None


def test_platforms() -> None:
    node = platform_of(get_hardware("h100"))
    assert node.name == "hgx-h100"
    assert node.intra_node.bandwidth_gb_per_s == 450
    assert node.inter_node is not None
    assert node.inter_node.bandwidth_gb_per_s == 50
    assert get_platform("DGX A100").gpu == "a100-sxm-80gb"
    assert platform_of(get_hardware("l40s")).name == "pcie4-server"
    assert platform_of(get_hardware("l40s")).gpu == "l40s"
    assert platform_of(get_hardware("cpu")).inter_node is not None
    for platform in list_platforms():
        assert get_hardware(platform.gpu).name == platform.gpu
    with pytest.raises(InputError, match="unknown platform"):
        get_platform("dgx-z")
