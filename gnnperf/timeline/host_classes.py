"""Which class of host time an op is of: its family, or what it is to the framework."""

import re
from functools import lru_cache

from gnnperf.ops.parsers import has_no_work, parser_of

ANNOTATION = "annotation"
"""A range that a user or the framework names: it costs what the ops inside it cost."""
ENGINE = "autograd engine"
BACKWARD = "autograd node"
ALLOCATE = "allocation"
VIEW = "view"
UNKNOWN = "unknown"


_COLLECTIVE = ("nccl:", "c10d::", "record_param_comms")
_FIXED: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"autograd::engine"), ENGINE),
    (re.compile(r".*(Backward\d*|AccumulateGrad|CopySlices|CopyBackwards)$"), BACKWARD),
    (re.compile(r"(?!nccl:|record_param_comms|triton_)(?!.*::)"), ANNOTATION),
    (re.compile(r"aten::(empty|empty_like|empty_strided|new_empty\w*|resize_)$"), ALLOCATE),
)


@lru_cache(maxsize=65536)
def host_class(name: str) -> str:
    """The class of a host op by its full name."""
    for pattern, fixed in _FIXED:
        if pattern.match(name):
            return fixed
    found = parser_of(name)
    if found is not None:
        return found[0]
    if name.startswith(_COLLECTIVE):
        return "collective"
    return VIEW if has_no_work(name) else UNKNOWN
