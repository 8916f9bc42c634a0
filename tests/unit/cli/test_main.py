"""The command line: exit statuses, one line of complaint, cheap start."""

import subprocess
import sys
import time

import pytest

from gnnperf.cli.main import VERBS, main


def test_help_needs_neither_torch_nor_a_second() -> None:
    code = (
        "import sys; from gnnperf.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'pytorch_lightning', 'wandb', 'pyarrow'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert time.perf_counter() - began < 30  # a hang, not a speed


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_a_help_that_reads(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_status:
        main([verb, "--help"])
    assert exit_status.value.code == 0
    assert f"gnnperf {verb}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [["nonsense"], ["infer"], ["infer", "none.json", "--engine", "magic"], ["hardware"]]
)
def test_wrong_usage_is_one_line_and_exit_2(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_status:
        main(words)
    assert exit_status.value.code == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_a_missing_file_is_one_line_and_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["infer", "none.json", "--engine", "analytic"]) == 2
    complaint = capsys.readouterr().err
    assert "none.json" in complaint
    assert len(complaint.strip().splitlines()) == 1
