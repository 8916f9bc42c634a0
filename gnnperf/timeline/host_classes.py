"""Which class of host time an op is of: its family, or what it is to the framework."""

import re
from functools import lru_cache

from gnnperf.graph.model import ON_HOST
from gnnperf.ops.parsers import has_no_work, parser_of

ANNOTATION = "annotation"
"""A range that a user or the framework names: it costs what the ops inside it cost."""
ENGINE = "autograd engine"
BACKWARD = "autograd node"
CUSTOM = "custom autograd node"
"""The backward of an op outside of PyTorch: it launches kernels that no op inside it shows."""
ALLOCATE = "allocation"
VIEW = "view"
UNKNOWN = "unknown"


_COLLECTIVE = ("nccl:", "c10d::", "record_param_comms")
_FIXED: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"autograd::engine"), ENGINE),
    (re.compile(r"torch::autograd::CppNode<"), CUSTOM),
    (re.compile(r".*(Backward\d*|AccumulateGrad|CopySlices|CopyBackwards)$"), BACKWARD),
    (re.compile(r"(?!nccl:|record_param_comms|triton_)(?!.*::)"), ANNOTATION),
    (re.compile(r"aten::(empty|empty_like|empty_strided|new_empty\w*|resize_)$"), ALLOCATE),
)


def would_launch(name: str) -> bool:
    """Whether an op launches device work where its tensors lie there."""
    if name.startswith(_COLLECTIVE) or _FIXED[0][0].match(name):
        return False
    return name in ("aten::item", "aten::_local_scalar_dense") or parser_of(name) is not None


@lru_cache(maxsize=65536)
def host_class(name: str) -> str:
    """The class of a host op by its full name.

    With `ON_HOST` behind it, an op whose tensors lie in host memory (counters of an optimizer):
    it launches nothing and is dispatched as a view is.
    """
    if name.endswith(ON_HOST):
        return VIEW
    for pattern, fixed in _FIXED:
        if pattern.match(name):
            return fixed
    found = parser_of(name)
    if found is not None:
        return found[0]
    if name.startswith(_COLLECTIVE):
        return "collective"
    return VIEW if has_no_work(name) else UNKNOWN
