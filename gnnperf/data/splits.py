"""Splits of measured rows by device group, model or weight shape; never by row.

Rows of one group resemble each other so much (the same GPU, the same weights at another batch)
that a split by row would measure memory, not prediction.
"""

import hashlib

import numpy as np

from gnnperf.data.tables import RECORDING, TRACE, Bool, KernelTable, Names
from gnnperf.errors import UnknownNameError
from gnnperf.features import TRAINING_SESSION
from gnnperf.hardware import find_hardware, list_hardware


def device_group(device: str) -> str:
    """The devices that are left out together with one; its own name if the catalogue lacks it."""
    found = find_hardware(device)
    return device if found is None else found.group


WORKLOAD = "workload-"
"""How the groups of recorded steps begin."""
_SAME_MODEL = ("ddp-", "infer-")
"""Prefixes of recordings that run another recording's model."""


def workload_group(recording: str) -> str:
    """The recordings that are left out together with one: those of its model.

    By name: infer-bert-small, ddp-bert and bert-wide are all workload-bert.
    """
    for prefix in _SAME_MODEL:
        recording = recording.removeprefix(prefix)
    return WORKLOAD + recording.partition("-")[0]


TRACED = "trace-"
"""How the groups of traced kernels begin that are left out while their GPU is known."""


def trace_groups(table: KernelTable) -> Names:
    """[n] the set of traces that each row is of (`trace-NAME`), "" for rows of other sources."""
    codes = np.where(table.source.mask(TRACE), table.model.codes + 1, 0)
    return Names(codes.astype(np.int32), ("", *(TRACED + n for n in table.model.names))).compact()


def known_group(name: str) -> str:
    """A group by its name or by a device in it; a group of recordings as it is.

    Raises:
        UnknownNameError: Neither a group nor a device; lists the groups.
    """
    if name.startswith(WORKLOAD):
        return name
    groups = sorted({hardware.group for hardware in list_hardware()})
    if name in groups:
        return name
    found = find_hardware(name)
    if found is None:
        raise UnknownNameError("group of devices", name, groups)
    return found.group


def device_groups(table: KernelTable) -> Names:
    """[n] the device group of each row."""
    return table.device.map({name: device_group(name) for name in table.device.names})


def row_groups(table: KernelTable) -> Names:
    """[n] what each row is left out with: its device's group, of a recorded op its workload."""
    devices, models = table.device, table.model
    recorded = table.source.mask(RECORDING)
    codes = np.where(recorded, len(devices.names) + models.codes, devices.codes)
    names = [device_group(n) for n in devices.names] + [workload_group(n) for n in models.names]
    used, places = np.unique(codes, return_inverse=True)
    distinct = tuple(dict.fromkeys(names[c] for c in used.tolist()))
    translate = np.array([distinct.index(names[c]) for c in used.tolist()], np.int32)
    return Names(translate[places.reshape(-1)], distinct)


def in_group(table: KernelTable, group: str) -> Bool:
    """[n] whether each row's device belongs to a group (or to the group of a device)."""
    return device_groups(table).mask(known_group(group))


def held_groups(groups: Names, share: float, seed: int = 0) -> Bool:
    """[n] whether each row's group is drawn, by a hash of its name, into a share of all groups.

    The draw depends on nothing else: it is the same in every table and in every run.
    """
    drawn = {}
    for name in groups.names:
        digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
        drawn[name] = int.from_bytes(digest[:8], "big") / 2**64 < share
    return groups.lookup(drawn, False).astype(np.bool_)


def questionable(table: KernelTable) -> dict[str, Bool]:
    """Reason -> [n] rows that are known not to show what they seem to.

    Found by comparing rows with rows: the Tesla P4's linear layers in NeuSight's training table
    ran other kernels (a quarter of the speed) than those of its test table and of its models.
    """
    p4 = table.raw_device.mask("Tesla P4") & table.source.mask("neusight")
    other = p4 & table.label.mask("linear") & table.split.mask("train")
    return {"P4 linear, training table: other kernels than in use": other}


def implementations(table: KernelTable) -> Names:
    """[n] what ran each row: its kernel source, of NeuSight's training tables their session.

    Those tables were timed in another session than the test tables and the models: the same
    devices reach 10 to 25 % more there on neighbouring shapes (V100, P100, T4).
    """
    session = table.source.mask("neusight") & table.split.mask("train")
    names = (*table.kernel_source.names, TRAINING_SESSION)
    codes = np.where(session, len(names) - 1, table.kernel_source.codes)
    return Names(codes.astype(np.int32), names)
