"""The verb `hardware`."""

import json
from pathlib import Path

import pytest

from gnnperf.cli.main import main


def test_list_and_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    assert main(["hardware", "list", "--json", str(out)]) == 0
    assert "hgx-h100" in capsys.readouterr().out
    listed = json.loads(out.read_text())
    assert {"h100-sxm", "cpu"} <= {device["name"] for device in listed["devices"]}
    assert main(["hardware", "show", "NVIDIA H100 80GB HBM3", "--json", str(out)]) == 0
    text = capsys.readouterr().out
    assert "3350" in text
    assert "data sheet" in text
    assert json.loads(out.read_text())["memory_bandwidth_gb_per_s"] == 3350
    assert main(["hardware", "show", "dgx-a100"]) == 0
    assert "nvlink3" in capsys.readouterr().out


def test_unknown_name_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hardware", "show", "h1000"]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "vendor: nvidia\narchitecture: hopper\npeak_tflops: {fp32_vector: 60}\n"
        "memory_bandwidth_gb_per_s: 3000\nmemory_size_gb: 80\nl2_size_mb: 50\nsm_count: 120\n"
        "boost_clock_mhz: 1800\nboard_power_w: 600\nprocess_node_nm: 4\n"
    )
    assert main(["hardware", "check", str(path)]) == 0
    assert "no source for" in capsys.readouterr().out
    path.write_text(path.read_text().replace("3000", "3.0"))
    assert main(["hardware", "check", str(path)]) == 2
    assert "memory_bandwidth_gb_per_s" in capsys.readouterr().err
