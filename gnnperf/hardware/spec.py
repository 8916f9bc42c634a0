"""What gnnperf knows of a device and of the platform around it: figures of data sheets."""

from dataclasses import dataclass, field

PEAK_PATHS: tuple[str, ...] = (
    "fp64_vector",
    "fp32_vector",
    "fp16_vector",
    "bf16_vector",
    "fp64_tensor",
    "fp32_tensor",  # AMD matrix cores; NVIDIA has none
    "tf32_tensor",
    "fp16_tensor",
    "bf16_tensor",
    "fp8_tensor",
    "int8_tensor",
    "fp4_tensor",
)
"""Keys of `Hardware.peak_tflops`: element type and path. Dense figures, never 2:4 sparse."""


@dataclass(frozen=True)
class Hardware:
    """One device (GPU or CPU). Every optional figure is None where no source states it."""

    name: str
    """the catalogue's name: h100-sxm"""
    aliases: tuple[str, ...]
    """names that traces, NeuSight, aiconfigurator and pipeweave give it"""
    kind: str
    """gpu or cpu"""
    vendor: str
    """nvidia, amd, intel, generic"""
    architecture: str
    """pascal, volta, turing, ampere, ada, hopper, blackwell, cdna1 ... ; cpu"""
    group: str
    """GPUs that are left out of training together: hopper-dc, ampere-a100, ..."""
    peak_tflops: dict[str, float]
    """by PEAK_PATHS, in 1e12 FLOP/s (or OP/s) at boost clock"""
    memory_bandwidth_gb_per_s: float
    """10^9 bytes per second"""
    memory_size_gb: float
    """GiB as sold"""
    l2_size_mb: float
    """MiB of the last cache before memory that all SMs share (AMD: L2; see also infinity cache)"""
    sm_count: int
    """SMs, compute units or cores"""
    boost_clock_mhz: float
    board_power_w: float
    process_node_nm: float
    l2_partitions: int = 1
    """2 where the L2 consists of two halves, each nearer to half of the SMs (A100, H100, ...)"""
    l2_bandwidth_gb_per_s: float | None = None
    last_level_cache_mb: float | None = None
    """AMD infinity cache"""
    base_clock_mhz: float | None = None
    tensor_clock_mhz: float | None = None
    """the clock of the tensor peaks, where the vendor states another one than boost (H100)"""
    memory_type: str = ""
    """HBM2e, GDDR6, ..."""
    shared_memory_kb_per_sm: float | None = None
    register_file_kb_per_sm: float | None = None
    max_threads_per_sm: int | None = None
    max_blocks_per_sm: int | None = None
    warp_size: int = 32
    compute_capability: str = ""
    """8.0, 9.0, gfx942"""
    launch_overhead_us: float = 2.5
    """from the launch call's end to the start of an isolated kernel, warm"""
    kernel_gap_us: float = 1.0
    """between two queued kernels of a stream"""
    pcie_gb_per_s: float | None = None
    """host link, one direction"""
    sources: dict[str, str] = field(default_factory=dict)
    """for every figure: where it stands (data sheet, white paper, vendor's page)"""
    notes: str = ""
    """where sources disagree, and what the device is (one GCD, ...)"""


@dataclass(frozen=True)
class Link:
    """A way between devices."""

    name: str
    """nvlink4, xgmi, pcie5, ib-ndr"""
    bandwidth_gb_per_s: float
    """10^9 bytes per second of one device, one direction"""
    latency_us: float


@dataclass(frozen=True)
class Platform:
    """A node of several devices and its way to other nodes."""

    name: str
    """hgx-h100"""
    aliases: tuple[str, ...]
    gpu: str
    """name of its device in the catalogue"""
    gpus_per_node: int
    intra_node: Link
    inter_node: Link | None
    nics_per_node: int
    cpu: str
    sources: dict[str, str] = field(default_factory=dict)
    notes: str = ""
