"""Times the prediction of a million kernels, as a ratio to a plain MLP over as many rows.

python tests/benchmarks/bench_kernels.py TABLE... [--rows 1000000] [--hardware h100-sxm]

The rows of kernel tables (`gnnperf dataset import`), drawn again and again. The MLP has the
features' number of inputs and two hidden layers of 64.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import torch

from gnnperf.api.predictor import default_checkpoint
from gnnperf.data.tables import load_table
from gnnperf.features import FEATURES
from gnnperf.hardware import get_hardware
from gnnperf.nn.predict import CHUNK, KernelModel


def main() -> int:
    """Print seconds and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="+", type=Path, metavar="TABLE")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--hardware", default="h100-sxm")
    args = parser.parse_args()
    model, hardware = KernelModel.load(default_checkpoint()), get_hardware(args.hardware)
    generator = np.random.default_rng(0)
    seconds, done = 0.0, 0
    share = args.rows // len(args.tables)
    for path in args.tables:
        table = load_table(path)
        batch = table.take(generator.integers(0, len(table), share)).batch()
        begin = time.perf_counter()
        model.predict(batch, hardware)
        seconds, done = seconds + time.perf_counter() - begin, done + share
    plain = torch.nn.Sequential(
        torch.nn.Linear(len(FEATURES), 64),
        torch.nn.GELU(),
        torch.nn.Linear(64, 64),
        torch.nn.GELU(),
        torch.nn.Linear(64, 1),
    )
    rows = torch.randn(CHUNK, len(FEATURES))
    begin = time.perf_counter()
    with torch.inference_mode():
        for _ in range(done // CHUNK):
            plain(rows)
    mlp = time.perf_counter() - begin
    threads = torch.get_num_threads()
    sys.stdout.write(
        f"{done} kernels on {hardware.name}: {seconds:.1f} s with {threads} threads, "
        f"{seconds / mlp:.1f} x a plain MLP ({mlp:.2f} s)\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
