"""A user's own file: read where it is right, refused in one line where it is not."""

from pathlib import Path

import pytest
import yaml

from gnnperf.errors import InputError
from gnnperf.hardware import get_hardware, get_platform, platform_of, read_hardware

GOOD = {
    "vendor": "nvidia",
    "architecture": "hopper",
    "peak_tflops": {"fp32_vector": 60, "bf16_tensor": 800},
    "memory_bandwidth_gb_per_s": 3000,
    "memory_size_gb": 80,
    "l2_size_mb": 50,
    "sm_count": 120,
    "boost_clock_mhz": 1800,
    "board_power_w": 600,
    "process_node_nm": 4,
}


def write(folder: Path, data: object, name: str = "my-gpu.yaml") -> Path:
    path = folder / name
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    return path


def test_a_file_works_where_a_name_does(tmp_path: Path) -> None:
    hardware = get_hardware(str(write(tmp_path, GOOD | {"sources": {"*": "data sheet"}})))
    assert (hardware.name, hardware.group, hardware.kind) == ("my-gpu", "my-gpu", "gpu")
    assert hardware.peak_tflops == {"fp32_vector": 60.0, "bf16_tensor": 800.0}
    assert hardware.sources["l2_size_mb"] == "data sheet"
    assert hardware.l2_bandwidth_gb_per_s is None
    assert platform_of(hardware).gpu == "my-gpu"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"memory_bandwith": 3}, ["memory_bandwith", "unknown key"]),
        ({"memory_bandwidth_gb_per_s": 3.0}, ["memory_bandwidth_gb_per_s", "10^9 bytes"]),
        ({"boost_clock_mhz": 1.8}, ["boost_clock_mhz", "MHz"]),
        ({"sm_count": "many"}, ["sm_count", "expected int"]),
        ({"peak_tflops": {"fp32": 60}}, ["peak_tflops.fp32", "fp32_vector"]),
        ({"peak_tflops": {"bf16_tensor": 60}}, ["peak_tflops.fp32_vector", "missing"]),
        ({"peak_tflops": {"fp32_vector": 60e12}}, ["peak_tflops.fp32_vector", "10^12"]),
        ({"sources": {"l3": "x"}}, ["l3", "source of an unknown figure"]),
        ({"l2_size_mb": None}, ["l2_size_mb", "expected float"]),
    ],
)
def test_a_wrong_figure_is_named(
    tmp_path: Path, change: dict[str, object], words: list[str]
) -> None:
    path = write(tmp_path, GOOD | change)
    with pytest.raises(InputError) as caught:
        get_hardware(path)
    text = str(caught.value)
    assert all(word in text for word in [*words, "my-gpu.yaml"]), text
    assert "\n" not in text


def test_missing_figures_are_named(tmp_path: Path) -> None:
    short = {k: v for k, v in GOOD.items() if k not in ("sm_count", "board_power_w")}
    with pytest.raises(InputError, match="missing sm_count, board_power_w"):
        get_hardware(write(tmp_path, short))


def test_levels_of_a_family_file_are_merged(tmp_path: Path) -> None:
    family = {
        "common": GOOD | {"sources": {"*": "sheet", "sm_count": "white paper"}},
        "families": {"big": {"sm_count": 200}, "bigger": {"extends": "big", "l2_size_mb": 99}},
        "devices": {"one": {}, "two": {"extends": "bigger", "memory_size_gb": 141}},
    }
    one, two = read_hardware(write(tmp_path, family))
    assert (one.sm_count, one.l2_size_mb, one.memory_size_gb) == (120, 50, 80)
    assert (two.sm_count, two.l2_size_mb, two.memory_size_gb) == (200, 99, 141)
    assert two.sources["sm_count"] == "white paper"
    assert two.sources["memory_size_gb"] == "sheet"
    with pytest.raises(InputError, match="2 devices"):
        get_hardware(tmp_path / "my-gpu.yaml")
    family["devices"] = {"one": {"extends": "none"}}
    with pytest.raises(InputError, match="no family"):
        read_hardware(write(tmp_path, family))


def test_a_platform_file(tmp_path: Path) -> None:
    link = {"name": "nvlink", "bandwidth_gb_per_s": 450, "latency_us": 2}
    data = {"gpu": "h100-sxm", "gpus_per_node": 8, "nics_per_node": 8, "cpu": "any"}
    path = write(tmp_path, data | {"intra_node": link, "inter_node": link | {"name": "ib"}})
    platform = get_platform(path)
    assert platform.inter_node is not None
    assert (platform.intra_node.name, platform.inter_node.name) == ("nvlink", "ib")
    bad = data | {"intra_node": link | {"bandwidth_gb_per_s": 4.5e11}}
    with pytest.raises(InputError, match="one direction"):
        get_platform(write(tmp_path, bad))


def test_absent_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        get_hardware(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    "families", [{"f": {"extends": "f"}}, {"f": {"extends": "g"}, "g": {"extends": "f"}}]
)
def test_a_family_that_extends_itself_is_refused(
    tmp_path: Path, families: dict[str, object]
) -> None:
    path = write(tmp_path, {"families": families, "devices": {"a": GOOD | {"extends": "f"}}})
    with pytest.raises(InputError, match="extends itself"):
        read_hardware(path)
