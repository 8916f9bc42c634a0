"""The node that a device sits in."""

import pytest

from gnnperf.hardware import get_hardware, list_hardware, platform_of


@pytest.mark.parametrize(
    "device", [d.name for d in list_hardware() if "sxm" in d.name or d.name.startswith("mi3")]
)
def test_a_module_is_joined_by_more_than_its_host_link(device: str) -> None:
    hardware = get_hardware(device)
    assert platform_of(hardware).intra_node.bandwidth_gb_per_s > (hardware.pcie_gb_per_s or 0)
