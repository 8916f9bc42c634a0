"""Sizes that keep the code readable: one thought per file and per function."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "gnnperf").rglob("*.py"))
FILE_LINES, FUNCTION_LINES = 400, 60


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_and_functions_stay_small(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= FILE_LINES, f"{path.name} has outgrown one thought"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= FUNCTION_LINES, f"{path.name}: {node.name} has {length} lines"


def test_no_utils_package() -> None:
    assert not [p for p in SOURCES if "utils" in p.name or "utils" in p.parent.name]
