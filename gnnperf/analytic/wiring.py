"""What a group of ranks gets of a platform's links, and links that a table describes in words."""

import re
from dataclasses import replace

from gnnperf.hardware import (
    Hardware,
    Link,
    Platform,
    find_hardware,
    list_platforms,
    platform_of,
)

CUBE_MESH = ("dgx-1v", "dgx-1v-16gb", "p100-dgx-1")
"""Platforms whose GPUs are joined by a hybrid cube mesh of six links each."""
PAIR_MESH = ("gh200-quad",)
"""Platforms whose `intra_node` bandwidth holds to each neighbour, not for all of them together."""
BRIDGE = Link("nvlink-bridge", 300.0, 1.9)
"""NVLink bridge between two PCIe cards (A100, H100: 600 GB/s both ways; vendor's data sheets)."""
EFA_LATENCY_US = 15.5
"""Elastic Fabric Adapter, as its vendor stated it at its launch (MPI, small messages)."""


def fabric_gb_per_s(platform: Platform, ranks_per_node: int) -> float:
    """Bandwidth of one device to the others of its group inside the node, one direction.

    A switch gives every group the whole figure. A full mesh (AMD xGMI, the DGX Station) gives a
    group of n the share of its n - 1 links; a DGX-1 cube mesh 1, 4 and 6 of 6 links to groups of
    2, 4 and 8 (its topology: one link to two neighbours of the quad, two to the third).
    """
    full, peers = platform.intra_node.bandwidth_gb_per_s, max(ranks_per_node - 1, 1)
    if platform.name in PAIR_MESH:
        return full * min(peers, platform.gpus_per_node - 1)
    if platform.name in CUBE_MESH:
        return full * (1 if ranks_per_node <= 2 else 4 if ranks_per_node <= 4 else 6) / 6
    if platform.intra_node.name.startswith("xgmi") or platform.name.startswith("dgx-station"):
        return full * min(1.0, peers / max(platform.gpus_per_node - 1, 1))
    return full


def described_platform(hardware: Hardware, words: str, ranks_per_node: int = 0) -> Platform:
    """The usual platform of a device, corrected by what a table says of its links.

    Understood: `N Gb/s node`, `NxM Gb/s ... per node`, `N Gb/s per GPU`, `NxM Gb/s IB` (a node),
    `K GPU/node`, and `pairwise NVLink` (a bridge joins two cards, more of them go by PCIe).
    """
    platform = platform_of(hardware)
    if platform.name.endswith("-server") and "sxm" in hardware.name:
        platform = next((p for p in list_platforms() if _sibling(p, hardware)), platform)
    found = re.search(r"(\d+) ?GPU/node", words)
    if found:
        platform = replace(platform, gpus_per_node=int(found[1]))
    speed = re.search(r"(?:(\d+)x)?(\d+) ?Gb/s", words)
    if speed and platform.inter_node is not None:
        rate = int(speed[1] or 1) * int(speed[2]) / 8
        if "per GPU" not in words[speed.end() :]:
            rate /= platform.gpus_per_node
        inter = replace(platform.inter_node, name="as described", bandwidth_gb_per_s=rate)
        platform = replace(platform, inter_node=inter)
    if "EFA" in words and platform.inter_node is not None:
        slower = replace(platform.inter_node, latency_us=EFA_LATENCY_US)
        platform = replace(platform, inter_node=slower)
    if "pairwise NVLink" in words:
        pcie = Link("pcie", hardware.pcie_gb_per_s or 31.5, 2.5)
        platform = replace(platform, intra_node=BRIDGE if ranks_per_node <= 2 else pcie)
    return platform


def _sibling(platform: Platform, hardware: Hardware) -> bool:
    """Whether a platform is that of a module of the same generation (an H100 of other memory)."""
    module = find_hardware(platform.gpu)
    return module is not None and "sxm" in module.name and module.group == hardware.group
