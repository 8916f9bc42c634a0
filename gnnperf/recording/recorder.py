"""Records a set: one process per rank of each workload, then the manifest of all."""

import json
import logging
import math
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch

from gnnperf.errors import InputError
from gnnperf.recording.manifest import (
    FORMAT,
    NAME,
    Machine,
    Manifest,
    Measured,
    RecordedFile,
    Recording,
    read_manifest,
    sha256_of,
    write_manifest,
)
from gnnperf.recording.session import Spec
from gnnperf.recording.workloads import Workload, select

_log = logging.getLogger(__name__)

METHOD = (
    "Each workload in a process of its own (one per rank): warm-up, unprofiled rounds, one "
    "iteration under ExecutionTraceObserver, steps under the profiler with shapes and without "
    "stacks, unprofiled rounds again. CPU: perf_counter around each iteration; CUDA: events at "
    "the end of each iteration. Median and percentiles over the iterations of all rounds; of "
    "several ranks those of the slowest. A run whose rounds differ by more than the limit, or "
    "whose profiled steps are faster than that, is repeated; the steadiest attempt is kept."
)


@dataclass(frozen=True)
class Effort:
    """How long a recording may take."""

    rounds: int = 2
    round_iterations: int = 8
    round_seconds: float = 0.8
    profiled_steps: int = 4
    attempts: int = 3
    """runs of a workload whose doubt exceeds `steady`"""
    steady: float = 0.05
    """(slowest - fastest round) / median, or (median - profiled) / median"""
    seed: int = 0


QUICK = Effort(rounds=1, round_iterations=3, round_seconds=0.0, profiled_steps=3, attempts=1)


def record_set(
    out: Path,
    suites: list[str],
    device: str = "auto",
    threads: int = 1,
    effort: Effort | None = None,
    tell: Callable[[Recording], None] | None = None,
) -> Manifest:
    """Record workloads into `out` (one folder each) and write the manifest.

    Recordings that `out` already holds stay, unless they are recorded again.

    Args:
        out: Folder of the set.
        suites: Names or families of workloads; none means all.
        device: auto, cpu or cuda.
        threads: Threads of an op, in each rank.
        effort: How long to measure.
        tell: Called after each recording.

    Raises:
        InputError: No such workload or device, or a recording failed.
    """
    effort = effort or Effort()
    chosen = select(suites)
    device = device_here(device)
    machine = describe_machine(device)
    present = manifest_for(out, machine)
    recordings = {r.name: r for r in present.recordings}
    for name, workload in chosen.items():
        if device == "cuda" and workload.ranks > torch.cuda.device_count():
            _log.warning("%s: needs %d GPUs, skipped", name, workload.ranks)
            continue
        recording = _record(out, name, workload, device, threads, effort)
        recordings[recording.name] = recording
        in_order = tuple(recordings[key] for key in sorted(recordings))
        write_manifest(replace(present, method=METHOD, recordings=in_order), out)
        if tell is not None:
            tell(recording)
    return read_manifest(out)


def describe_machine(device: str) -> Machine:
    """The machine and the versions that a recording depends on."""
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    versions |= {"gnnperf": _version("gnnperf")}
    cpu = _cpu_model()
    name = cpu
    if device == "cuda":
        name = torch.cuda.get_device_name(0)
        versions |= {"cuda": str(torch.version.cuda), "hip": str(torch.version.hip)}
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    system = f"{platform.system()} {platform.machine()}"
    return Machine(device, name, cpu, os.cpu_count() or 1, round(memory, 1), system, versions)


def _record(
    out: Path, name: str, workload: Workload, device: str, threads: int, effort: Effort
) -> Recording:
    best, least = None, math.inf
    label = name if threads == 1 else f"{name}-{threads}t"
    for _ in range(effort.attempts):
        with tempfile.TemporaryDirectory() as scratch:
            results = _run_ranks(Path(scratch), name, workload, device, threads, effort)
            measured = _measured(results, workload.ranks)
            slowest = max(median(result["profiled_us"]) for result in results)
            doubt = _doubt(measured, slowest)
            if doubt < least:
                files = _keep(Path(scratch), out, label, results)
                least = doubt
                best = Recording(
                    label,
                    workload.family,
                    workload.description,
                    effort.seed,
                    workload.ranks,
                    threads,
                    effort.profiled_steps,
                    round(slowest, 1),
                    measured,
                    files,
                )
        if least <= effort.steady:
            break
    if best is None:
        raise InputError("no attempt to record", field=name)
    return best


def _run_ranks(
    scratch: Path, name: str, workload: Workload, device: str, threads: int, effort: Effort
) -> list[dict[str, Any]]:
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads))
    processes = []
    for rank in range(workload.ranks):
        spec = Spec(
            workload=name,
            device=device,
            seed=effort.seed,
            threads=threads,
            rank=rank,
            folder=str(scratch),
            rounds=effort.rounds,
            round_iterations=effort.round_iterations,
            round_seconds=effort.round_seconds,
            profiled_steps=effort.profiled_steps,
            rendezvous=str(scratch / "rendezvous"),
        )
        path = scratch / f"spec_rank{rank}.json"
        path.write_text(json.dumps(asdict(spec)), encoding="utf-8")
        command = [sys.executable, "-m", "gnnperf.recording.session", str(path)]
        processes.append(
            subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        )
    for process in processes:
        _, complaint = process.communicate()
        if process.returncode:
            last = (complaint.strip().splitlines() or ["no message"])[-1]
            for other in processes:
                other.kill()
            raise InputError(f"recording failed: {last}", field=name)
    paths = (scratch / f"result_rank{rank}.json" for rank in range(workload.ranks))
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def _measured(results: list[dict[str, Any]], ranks: int) -> Measured:
    of_ranks = [r["rounds_us"] for r in results]
    rounds: list[list[float]] = max(of_ranks, key=lambda rounds: median(chain(*rounds)))
    times = list(chain(*rounds))
    deciles = quantiles(times, n=10, method="inclusive")
    return Measured(
        round(median(times), 1),
        round(deciles[0], 1),
        round(deciles[-1], 1),
        len(times),
        tuple(round(median(r), 1) for r in rounds),
        round(results[0]["cpu_share"], 3) if ranks == 1 else None,
    )


def _doubt(measured: Measured, profiled_us: float) -> float:
    """How far the rounds differ, or the profiled steps are the faster ones; relative."""
    spread = max(measured.rounds_us) - min(measured.rounds_us)
    return max(spread, measured.median_us - profiled_us) / measured.median_us


def _keep(
    scratch: Path, out: Path, label: str, results: list[dict[str, Any]]
) -> tuple[RecordedFile, ...]:
    folder = out / label
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for rank, result in enumerate(results):
        for kind, name in result["files"].items():
            path = folder / name
            path.write_bytes((scratch / name).read_bytes())
            size = path.stat().st_size
            files.append(RecordedFile(f"{label}/{name}", kind, rank, sha256_of(path), size))
    return tuple(files)


def manifest_for(out: Path, machine: Machine) -> Manifest:
    """What a folder's manifest holds so far.

    Raises:
        InputError: It was written on another machine or with other versions.
    """
    if not (out / NAME).is_file():
        return Manifest(FORMAT, machine, "", ())
    manifest = read_manifest(out)
    if manifest.machine != machine:
        raise InputError(
            "holds recordings of another machine or other versions",
            path=out / NAME,
            remedy="give another --out",
        )
    return manifest


def device_here(wanted: str) -> str:
    """The device to use for auto, cpu or cuda.

    Raises:
        InputError: There is none of the kind.
    """
    have = torch.cuda.is_available()
    if wanted == "cuda" and not have:
        raise InputError("no CUDA or ROCm device here", field="--device", remedy="give cpu or auto")
    return ("cuda" if have else "cpu") if wanted == "auto" else wanted


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    wanted = {"model name": "", "cpu family": "", "model": ""}
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() in wanted and not wanted[key.strip()]:
            wanted[key.strip()] = value.strip()
    if not wanted["model name"]:
        return platform.processor() or platform.machine()
    return f"{wanted['model name']} (family {wanted['cpu family']}, model {wanted['model']})"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
