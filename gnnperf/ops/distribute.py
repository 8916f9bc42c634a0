"""From one call and the kernels that it launched to rows of work that add up to the op's.

The rule. The op's work goes to its main kernels: for products, convolutions, attention, norms and
recurrences those whose name is of that family, for every other op all of its kernels. Several
main kernels share it: launches of one and the same kernel by their thread blocks, and so all
kernels of the other families; else equally. The two gradients of a convolution go to the kernels
whose names say so, or in order (input first), and if all names say the same one, only that one was
computed. What else was launched are helpers: layout changes and copies move the op's own tensors
once among them, other helpers read and write its result, and none more than its threads can move.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gnnperf.graph import NodeKind, dtype_bytes
from gnnperf.ops.base import FAMILIES, MAX_DIMS, Cost
from gnnperf.ops.call import Call, MissingShapeError, Work, compute_dtype
from gnnperf.ops.copy import transfer
from gnnperf.ops.kernels import (
    Kernel,
    computes_addresses,
    dtype_of_kernel,
    family_of_kernel,
    gradient_of_kernel,
    refine_dtype,
)
from gnnperf.ops.parsers import parser_of

_MAIN: dict[str, frozenset[str]] = {
    "gemm": frozenset(("gemm", "conv")),
    "conv": frozenset(("conv", "gemm")),
    "attention": frozenset(("attention",)),
    "norm": frozenset(("norm",)),
    "moe_gemm": frozenset(("gemm", "moe")),
    "recurrent": frozenset(("recurrent", "gemm")),
}
_HELPERS = frozenset(("copy", "elementwise", "reduce"))
_ELEMENTS_PER_THREAD = 4
_MOST_PER_THREAD = 16
_ELEMENTS_PER_CHUNK = 65536
"""of a multi-tensor optimizer kernel: one block"""
FROM_GRID = "sizes from the launch grid"
HELPER = "helper kernels sized by their op's tensors"


def op_work(call: Call) -> Work:
    """Work of one call; not known where shapes are missing or the op is in no table."""
    found = parser_of(call.name)
    if found is None:
        return _bytes_of(call)
    family, parser = found
    try:
        return parser(call)
    except (MissingShapeError, IndexError, ValueError, ZeroDivisionError):
        return Work(family, (), call.tensors[0].dtype if call.tensors else 0, known=False)


def distribute(call: Call | None, kernels: Sequence[Kernel], assumed: list[str]) -> list[Work]:
    """A row of work for each kernel of one call (None: kernels that no op is known to launch).

    Copies go by their own bytes. Appends to `assumed` what was not recorded.
    """
    rows: dict[int, Work] = {}
    for index, kernel in enumerate(kernels):
        if kernel.kind == NodeKind.COPY:
            rows[index] = _transfer(kernel, call)
    compute = [i for i in range(len(kernels)) if i not in rows]
    shared = _share(call, [kernels[i] for i in compute], assumed) if compute else []
    rows.update(zip(compute, shared, strict=True))
    return [rows[i] for i in range(len(kernels))]


def _share(call: Call | None, kernels: list[Kernel], assumed: list[str]) -> list[Work]:
    work = op_work(call) if call is not None else Work("other", (), 0, known=False)
    if call is not None:
        assumed.extend(call.assumed)
    if not work.known and not work.dims:
        return [_from_grid(kernel, work, assumed) for kernel in kernels]
    main = _main(work.family, kernels)
    result: list[Work] = [work] * len(kernels)
    for index, part in zip(main, _parts(work, [kernels[i] for i in main]), strict=True):
        result[index] = replace(part, dtype=refine_dtype(part.dtype, kernels[index].name))
    helpers = [i for i in range(len(kernels)) if i not in set(main)]
    if helpers:
        assumed.append(HELPER)
        for index, part in zip(helpers, _helpers(work, [kernels[i] for i in helpers]), strict=True):
            result[index] = part
    return result


def _main(family: str, kernels: list[Kernel]) -> list[int]:
    families = [family_of_kernel(kernel.name) for kernel in kernels]
    wanted = _MAIN.get(family)
    everything = list(range(len(kernels)))
    if wanted is None:
        return everything
    named = [i for i in everything if families[i] in wanted]
    return named or [i for i in everything if families[i] not in _HELPERS] or everything


def _parts(work: Work, kernels: list[Kernel]) -> list[Work]:
    """The op's work over its main kernels."""
    told = {gradient_of_kernel(kernel.name) for kernel in kernels}
    if work.family == "conv" and work.dims[14] == 3 and (len(kernels) > 1 or told != {0}):
        directions = _directions(kernels)
        counts = {d: directions.count(d) for d in directions}
        parts = []
        for direction in directions:
            dims = (*work.dims[:14], float(direction), *work.dims[15:])
            parts.append(_scaled(replace(work, dims=dims), 1 / counts[direction]))
        return parts
    shares = _shares(kernels, alike=work.family not in _MAIN)
    return [_scaled(work, share) for share in shares]


def _directions(kernels: list[Kernel]) -> list[int]:
    """1 or 2 for each kernel of a convolution's backward op.

    Both are there unless every name says the same: then only that gradient was computed.
    """
    told = [gradient_of_kernel(kernel.name) for kernel in kernels]
    silent = [i for i, direction in enumerate(told) if not direction]
    missing = [d for d in (1, 2) if d not in told]
    for rank, index in enumerate(silent):
        if len(missing) == 1:
            told[index] = missing[0]
        else:
            told[index] = 1 if rank < (len(silent) + 1) // 2 else 2
    return told


def _shares(kernels: list[Kernel], alike: bool) -> list[float]:
    """By thread blocks where kernels do the same kind of thing (`alike`, or one name)."""
    blocks = [kernel.blocks for kernel in kernels]
    if (alike or len({kernel.name for kernel in kernels}) == 1) and min(blocks) > 0:
        return [b / sum(blocks) for b in blocks]
    return [1 / len(kernels)] * len(kernels)


def _scaled(work: Work, share: float) -> Work:
    if share == 1:
        return work
    family = FAMILIES[work.family]
    dims = tuple(
        value * share if name in family.extensive else value
        for name, value in zip(family.dims, work.dims, strict=False)
    )
    return replace(work, dims=dims)


def cost_of(work: Work) -> Cost:
    """Cost of one row."""
    dims = np.zeros((1, MAX_DIMS))
    dims[0, : len(work.dims)] = work.dims
    return FAMILIES[work.family].cost(dims, np.array([work.dtype], np.int8))


def _helpers(work: Work, kernels: list[Kernel]) -> list[Work]:
    cost = cost_of(work)
    size = dtype_bytes(work.dtype) or 4.0
    all_bytes = float(cost.bytes_read[0] + cost.bytes_written[0])
    result = float(cost.bytes_written[0])
    movers = sum(family_of_kernel(k.name) == "copy" for k in kernels)
    rows = []
    for kernel in kernels:
        family = family_of_kernel(kernel.name)
        most = _elements_of_grid(kernel)
        if family == "copy":
            moved = min(all_bytes / movers, most * size)
            rows.append(Work("copy", (moved, 0, 0, 1, size, size), work.dtype))
        elif family == "reduce":
            numel = result / size
            rows.append(Work("reduce", (2 * numel, numel, 2, 1), work.dtype))
        else:
            numel = 1.0 if computes_addresses(kernel.name) else min(result / size, most)
            dims = (numel, numel * size, numel * size, 1, 1, 0, 0)
            rows.append(Work("elementwise", dims, work.dtype))
    return rows


def _elements_of_grid(kernel: Kernel) -> float:
    """Elements that a kernel's threads can move; no bound where the grid is not known."""
    if kernel.blocks <= 0 or kernel.threads <= 0:
        return float("inf")
    return float(kernel.blocks * kernel.threads * _MOST_PER_THREAD)


def _transfer(kernel: Kernel, call: Call | None) -> Work:
    size = float(max(kernel.bytes, 0))
    if not size and call is not None and call.tensors:
        size = call.tensors[0].nbytes if all(s >= 0 for s in call.tensors[0].shape) else 0.0
    return transfer(kernel.name, size)


def _bytes_of(call: Call) -> Work:
    """An op of no table: reads its inputs, writes its outputs or else its largest input."""
    tensors = [t for t in call.tensors if all(size >= 0 for size in t.shape)]
    if not tensors:
        return Work("other", (), 0, known=False)
    largest = max(tensors, key=lambda t: t.nbytes)
    written = sum(t.nbytes for t in call.outputs if all(s >= 0 for s in t.shape))
    dims = (sum(t.nbytes for t in tensors), written or largest.nbytes, float(largest.numel))
    return Work("other", dims, compute_dtype(tensors), known=False)


def _from_grid(kernel: Kernel, work: Work, assumed: list[str]) -> Work:
    """A kernel whose op has no shapes: its family by name, its size by its threads.

    Products, convolutions and attention hide their inner size: they stay without dims.
    """
    by_name = family_of_kernel(kernel.name)
    main = by_name == "other" or by_name in _MAIN.get(work.family, {by_name})
    family = work.family if main and work.family != "other" else by_name
    dtype = dtype_of_kernel(kernel.name)
    if kernel.blocks <= 0 or kernel.threads <= 0 or family not in _GRID_DIMS:
        return Work(family, (), dtype, known=False)
    assumed.append(FROM_GRID)
    rows, cols = float(kernel.blocks), float(kernel.threads * _ELEMENTS_PER_THREAD)
    if family == "optimizer":
        cols = float(_ELEMENTS_PER_CHUNK)
    numel, size = rows * cols, dtype_bytes(dtype) or 4.0
    known = {"rows": rows, "cols": cols, "numel": numel, "bytes": numel * size, "size": size}
    dims = tuple(v if isinstance(v, float) else known[v] for v in _GRID_DIMS[family])
    return Work(family, dims, dtype, known=False)


_GRID_DIMS: dict[str, tuple[str | float, ...]] = {
    "elementwise": ("numel", "bytes", "bytes", 1.0, 1.0, 0.0, 0.0),
    "copy": ("bytes", 0.0, 0.0, 0.0, "size", "size"),
    "reduce": ("numel", "rows", "cols", 1.0),
    "norm": ("rows", "cols", 0.0, 0.0, 1.0),
    "softmax": ("rows", "cols", 0.0, 0.0),
    "pool": ("numel", 1.0, "numel", 0.0),
    "gather": ("numel", "bytes", "bytes", 0.0, 1.0, 0.0),
    "embedding": ("numel", 1.0, "numel", 0.0, 0.0, 1.0, 1.0, 0.0),
    "sort": ("numel", 1.0, "size", 0.0),
    "optimizer": ("numel", 1.0, 12.0, 0.0, 2.0),
    "triton": ("bytes", "bytes", "numel", 1.0),
    "quantize": ("rows", "cols", "bytes", "numel"),
    "other": ("bytes", "bytes", "numel"),
}
