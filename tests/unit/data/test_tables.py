from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnperf.data.tables import (
    KERNEL_TABLE,
    KernelTable,
    Names,
    family_dims,
    is_table,
    load_table,
    make_table,
    read_tables,
    save_table,
)
from gnnperf.errors import InputError
from gnnperf.graph import DTYPES
from gnnperf.ops import family_index


def table(rows: int = 3, peers: dict[str, list[float]] | None = None) -> KernelTable:
    return make_table(
        np.arange(1.0, rows + 1),
        family_dims("gemm", rows, batch=1, m=np.arange(rows) + 1, n=64, k=32),
        peers={n: np.array(v) for n, v in (peers or {}).items()},
        device=Names.of(["t4", "l4", "t4"][:rows]),
        family="gemm",
        label="linear",
        dtype=Names.of(["bfloat16", "fp8_block", "int4_wo"][:rows]),
        launch_included=True,
        row=np.arange(rows),
        origin=KERNEL_TABLE,
    )


def same(left: KernelTable, right: KernelTable) -> None:
    assert len(left) == len(right)
    for name in ("device", "family", "label", "dtype", "layout", "origin", "model"):
        a, b = getattr(left, name), getattr(right, name)
        assert [a[i] for i in range(len(a))] == [b[i] for i in range(len(b))]
    for name in ("dims", "duration_us", "launch_included", "row"):
        assert np.array_equal(getattr(left, name), getattr(right, name))
    assert left.peers.keys() == right.peers.keys()
    assert all(np.array_equal(v, right.peers[n], equal_nan=True) for n, v in left.peers.items())


def test_batch_has_the_index_of_family_and_type_and_marks_strange_types() -> None:
    batch = table().batch()
    assert (batch.family == family_index("gemm")).all()
    assert [DTYPES[i] for i in batch.dtype] == ["bfloat16", "float8", "unknown"]
    assert batch.known.tolist() == [True, True, False]
    assert batch.dims[2, :4].tolist() == [1, 3, 64, 32]


def test_a_file_gives_back_what_was_saved(tmp_path: Path) -> None:
    before = table(peers={"pipeweave": [2.0, np.nan, 3.0]})
    path = save_table(before, tmp_path / "k.parquet")
    assert is_table(path)
    same(before, load_table(path))
    parts = list(read_tables(path, rows=2))
    assert [len(p) for p in parts] == [2, 1]
    same(before, KernelTable.join(parts))


def test_an_empty_table_can_be_saved(tmp_path: Path) -> None:
    assert len(load_table(save_table(table().take(np.zeros(3, bool)), tmp_path / "e.parquet"))) == 0


def test_joined_parts_lack_the_peers_that_they_do_not_have() -> None:
    both = KernelTable.join([table(2, {"a": [1, 2]}), table(1, {"b": [3]})])
    assert both.peers["a"].tolist()[:2] == [1, 2]
    assert np.isnan(both.peers["a"][2])
    assert np.isnan(both.peers["b"][:2]).all()


def test_names_select_rename_and_forget() -> None:
    names = Names.of(["x", None, "y", "x"])
    assert names.mask("x", "no such").tolist() == [True, False, False, True]
    assert names.lookup({"y": 7}, 0).tolist() == [0, 0, 7, 0]
    assert names.map({"x": "y"}).present() == ["", "y"]
    assert names.take(np.array([2])).compact().names == ("y",)
    assert len(Names.of([])) == 0


@pytest.mark.parametrize("fault", ["foreign", "newer", "column", "junk"])
def test_other_files_are_refused_in_one_line(tmp_path: Path, fault: str) -> None:
    path = save_table(table(), tmp_path / "k.parquet")
    content = pq.read_table(path)
    if fault == "foreign":
        content = content.replace_schema_metadata({})
    elif fault == "newer":
        content = content.replace_schema_metadata({"gnnperf_kernel_table": "99"})
    elif fault == "column":
        content = content.drop_columns(["duration_us"])
    pq.write_table(content, path)
    if fault == "junk":
        path.write_bytes(b"no parquet")
    said = {
        "foreign": "no kernel table",
        "newer": "newer",
        "column": "duration_us",
        "junk": "not a",
    }
    with pytest.raises(InputError, match=said[fault]) as caught:
        load_table(path)
    assert "\n" not in str(caught.value)
    assert isinstance(content, pa.Table)
