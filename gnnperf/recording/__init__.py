"""Recording small real workloads, and reading what a recording says of itself.

Only `session`, `models`, `workloads` and `microbenchmark` import torch; importing the package
does not.
"""

from gnnperf.recording.manifest import Manifest, Measured, Recording, measured_of, read_manifest

__all__ = ["Manifest", "Measured", "Recording", "measured_of", "read_manifest"]
