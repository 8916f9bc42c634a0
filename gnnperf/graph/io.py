"""A job as one compact file: a zip of numpy arrays (`.npz`, no pickle) with a JSON header."""

import json
import zipfile
import zlib
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnnperf.errors import GnnperfError, InputError
from gnnperf.graph.job import Job, Rendezvous
from gnnperf.graph.model import (
    Arguments,
    Collectives,
    Edges,
    ExecutionGraph,
    GraphMeta,
    Lanes,
    Nodes,
    Tensors,
)

FORMAT = 1
"""Number of the file's layout; a reader refuses a newer one."""

T = TypeVar("T")

_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, msgspec.MsgspecError)
"""What a damaged archive raises besides."""

_TABLES: dict[str, type] = {
    "nodes": Nodes,
    "arguments": Arguments,
    "inputs": Tensors,
    "outputs": Tensors,
    "edges": Edges,
    "lanes": Lanes,
    "collectives": Collectives,
}


def save_job(job: Job, path: str | Path) -> Path:
    """Write a job to one compressed file; returns the path written."""
    arrays: dict[str, NDArray[Any]] = {}
    header: dict[str, Any] = {"gnnperf_graph": FORMAT, "folded_ranks": job.folded_ranks}
    texts: dict[tuple[str, ...], int] = {}
    header["graphs"] = [
        {"strings": texts.setdefault(g.strings, len(texts)), "meta": asdict(g.meta)}
        for g in job.graphs
    ]
    header["strings"] = list(texts)
    for index, graph in enumerate(job.graphs):
        arrays[f"{index}/output_ptr"] = graph.output_ptr
        for name in _TABLES:
            table = getattr(graph, name)
            for column in fields(table):
                arrays[f"{index}/{name}/{column.name}"] = getattr(table, column.name)
    for column in fields(Rendezvous):
        arrays[f"rendezvous/{column.name}"] = getattr(job.rendezvous, column.name)
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    target = Path(path)
    with target.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    return target


def load_job(path: str | Path) -> Job:
    """Read what `save_job` wrote.

    Raises:
        InputError: The file is no graph file, is damaged, or has a newer layout.
    """
    try:
        with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            header = json.loads(arrays["header"].tobytes())
            if header["gnnperf_graph"] > FORMAT:
                raise InputError(
                    f"graph file of layout {header['gnnperf_graph']}, newer than {FORMAT}",
                    path=path,
                    remedy="update gnnperf",
                )
            texts = [tuple(t) for t in header["strings"]]
            graphs = tuple(
                _graph(arrays, i, g, texts[g["strings"]]) for i, g in enumerate(header["graphs"])
            )
            joined = _columns(Rendezvous, arrays, "rendezvous")
            job = Job(graphs, joined, msgspec.convert(header["folded_ranks"], int))
            job.check()
    except InputError:
        raise
    except (OSError, LookupError, ValueError, TypeError, GnnperfError, *_DAMAGE) as why:
        raise InputError(
            f"not a gnnperf graph file ({type(why).__name__}: {why})",
            path=path,
            remedy="give a file written by `gnnperf dataset build` or save_job",
        ) from why
    return job


def _graph(
    arrays: Any,  # noqa: ANN401
    index: int,
    header: dict[str, Any],
    strings: tuple[str, ...],
) -> ExecutionGraph:
    tables: dict[str, Any] = {
        name: _columns(table, arrays, f"{index}/{name}") for name, table in _TABLES.items()
    }
    unknown = set(header["meta"]) - {f.name for f in fields(GraphMeta)}
    if unknown:
        raise ValueError(f"unknown {', '.join(sorted(unknown))}")
    return ExecutionGraph(
        strings=msgspec.convert(strings, tuple[str, ...]),
        output_ptr=_column(arrays, f"{index}/output_ptr", np.int64),
        meta=msgspec.convert(header["meta"], GraphMeta),
        **tables,
    )


def _columns(table: type[T], arrays: Any, place: str) -> T:  # noqa: ANN401
    """A table of arrays of the element types that its columns declare."""
    types = {name: get_args(get_args(hint)[1])[0] for name, hint in get_type_hints(table).items()}
    return table(
        **{name: _column(arrays, f"{place}/{name}", dtype) for name, dtype in types.items()}
    )


def _column(arrays: Any, name: str, dtype: type) -> NDArray[Any]:  # noqa: ANN401
    column: NDArray[Any] = arrays[name]
    if column.ndim != 1 or not np.can_cast(column.dtype, dtype, "same_kind"):
        raise ValueError(f"{name} is {column.dtype}{list(column.shape)}")
    return column.astype(dtype, copy=False)
