"""A prediction as a table for people."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gnnperf.api.prediction import Prediction
from gnnperf.errors import InputError
from gnnperf.timeline.export import to_chrome
from gnnperf.timeline.replay import Result
from gnnperf.timeline.shares import Share, level_of

MAX_WARNINGS = 12
FILES = 3
"""Files of a job that are named; of more the first one."""
SCOPES = 3
"""Scopes that a level must have to be shown."""
NAME_WIDTH = 44
PIPE_WIDTH = 110
"""Columns of a line where standard output is no terminal."""


def write_json(data: dict[str, Any], path: str | Path) -> None:
    """Write one JSON document; a NaN in it is an internal error, not a value.

    Raises:
        InputError: The file cannot be written.
    """
    text = json.dumps(data, indent=1, allow_nan=False)
    try:
        Path(path).write_text(text + "\n", encoding="utf-8")
    except OSError as why:
        raise InputError(f"cannot write ({why.strerror})", path=path) from why


def duration(us: float) -> str:
    """Microseconds in the unit that reads best."""
    if us >= 1e6:
        return f"{us / 1e6:.3f} s"
    if us >= 1e3:
        return f"{us / 1e3:.3f} ms"
    return f"{us:.1f} us"


def console() -> Console:
    """Standard output; wide enough for the tables where it is no terminal."""
    plain = Console(emoji=False)
    return plain if plain.is_terminal else Console(emoji=False, width=PIPE_WIDTH)


def short_name(name: str) -> str:
    """A kernel's name without its return type, namespace and template arguments."""
    if not re.search(r"[<(]", name):
        return name[:NAME_WIDTH]
    plain = name.replace("(anonymous namespace)::", "").removeprefix("void ")
    plain = re.sub(r"\[clone .*\]$", "", plain)
    head = re.split(r"[<(]", plain, maxsplit=1)[0]
    functor = re.search(r"(\w*(?:Functor|Op|_kernel)\w*)[<(,]", plain[len(head) + 1 :])
    short = head.split("::")[-1]
    if functor and short in ("vectorized_elementwise_kernel", "elementwise_kernel"):
        short += f" {functor.group(1)}"
    return short[:NAME_WIDTH]


def print_prediction(prediction: Prediction, console: Console, top: int = 10) -> None:
    """Iteration time, breakdown, op families, heaviest ops, critical path, what to beware of."""
    _headline(prediction, console)
    console.print(_breakdown(prediction))
    if prediction.by_phase:
        console.print(_shares("By phase", "phase", prediction.by_phase))
        _scopes(prediction, console, top)
    console.print(_families(prediction))
    console.print(_kernels(prediction, top))
    if prediction.savings:
        console.print(_savings(prediction))
    _caveats(prediction, console)


def _headline(prediction: Prediction, console: Console) -> None:
    time, source = prediction.iteration_time_us, prediction.provenance
    console.print(
        f"[bold]Iteration time {duration(time.predicted)}[/bold] on {escape(source['hardware'])}"
        f" ({time.coverage:.0%} interval {duration(time.low)} to {duration(time.high)},"
        f" {source['engine']} engine)"
    )
    if time.measured is not None:
        error = 100 * (time.predicted / time.measured - 1)
        console.print(
            f"Measured {duration(time.measured)} ({source['measured_how']}): {error:+.1f} %"
        )
    files = source["source"].split(", ")
    named = (
        source["source"] if len(files) <= FILES else f"{files[0]} and {len(files) - 1} files more"
    )
    console.print(escape(f"Step {source['step_name']} of {named}: {source['bound']}"))
    console.print(escape(f"The step is {source['step_choice']}."))


def _breakdown(prediction: Prediction) -> Table:
    table = Table(title="Where the time goes", title_justify="left")
    table.add_column("part")
    table.add_column("time", justify="right")
    table.add_column("of the step", justify="right")
    whole = prediction.iteration_time_us.predicted or 1.0
    for part, us in prediction.breakdown_us.items():
        name = "added by contention" if part == "contention" else part.replace("_", " ")
        table.add_row(name, duration(us), f"{us / whole:.1%}")
    return table


def _shares(title: str, what: str, shares: Sequence[Share]) -> Table:
    table = Table(title=title, title_justify="left")
    for heading in (what, "works", "device time", "of it exposed", "on the critical path"):
        table.add_column(heading, justify="left" if heading == what else "right")
    for row in shares:
        times = (duration(us) for us in (row.device_us, row.exposed_us, row.path_us))
        table.add_row(escape(row.name), str(row.count), *times)
    return table


def _scopes(prediction: Prediction, console: Console, top: int) -> None:
    """The heaviest scopes of the outermost level that has several of them."""
    if not prediction.by_scope:
        console.print("By scope: the trace holds neither module calls nor annotations")
        return
    levels: dict[int, list[Share]] = {}
    for share in prediction.by_scope:
        levels.setdefault(level_of(share.name), []).append(share)
    chosen = next((s for s in levels.values() if len(s) >= SCOPES), prediction.by_scope)
    title = f"By scope ({prediction.provenance['scopes']}; all with --json)"
    console.print(_shares(title, "scope", chosen[:top]))


def _families(prediction: Prediction) -> Table:
    table = Table(title="By op family", title_justify="left")
    for heading in ("family", "count", "predicted", "measured", "share"):
        table.add_column(heading, justify="left" if heading == "family" else "right")
    for row in prediction.by_family:
        measured = "-" if row.measured_us is None else duration(row.measured_us)
        table.add_row(
            row.family, str(row.count), duration(row.predicted_us), measured, f"{row.share:.1%}"
        )
    return table


def _kernels(prediction: Prediction, top: int) -> Table:
    totals: dict[tuple[str, str], list[float]] = {}
    for k in prediction.kernels:
        entry = totals.setdefault((k.name, k.family), [0, 0.0, 0.0, 0.0, 0.0])
        entry[0] += 1
        entry[1] += k.predicted_us
        entry[2] += k.low_us
        entry[3] += k.high_us
        entry[4] += float("nan") if k.measured_us is None else k.measured_us
    table = Table(title=f"The {top} heaviest ops", title_justify="left")
    for heading in ("op", "family", "count", "predicted", "interval", "measured"):
        text = heading in ("op", "family")
        table.add_column(heading, justify="left" if text else "right", no_wrap=not text)
    heaviest = sorted(totals.items(), key=lambda item: -item[1][1])[:top]
    for (name, family), (count, us, low, high, measured) in heaviest:
        table.add_row(
            escape(short_name(name)),
            family,
            str(int(count)),
            duration(us),
            f"{duration(low)} to {duration(high)}",
            "-" if measured != measured else duration(measured),
        )
    return table


def _savings(prediction: Prediction) -> Table:
    table = Table(title="Critical path: what it would save to have them free", title_justify="left")
    for heading in ("op or call", "count", "time on the path", "saves at most"):
        table.add_column(heading, justify="left" if heading == "op or call" else "right")
    for row in prediction.savings:
        table.add_row(
            escape(short_name(row.name)),
            str(row.count),
            duration(row.path_us),
            duration(row.saving_us),
        )
    return table


def _caveats(prediction: Prediction, console: Console) -> None:
    if prediction.unknown_ops:
        total = sum(prediction.unknown_ops.values())
        console.print(f"[yellow]{total} ops unknown or without sizes[/yellow]:")
        ranked = sorted(prediction.unknown_ops.items(), key=lambda item: -item[1])
        for name, count in ranked[:MAX_WARNINGS]:
            console.print(f"  {count:6d} x {short_name(name)}", markup=False, highlight=False)
        if len(ranked) > MAX_WARNINGS:
            console.print(f"  and {len(ranked) - MAX_WARNINGS} names more (all with --json)")
    for line in prediction.warnings[:MAX_WARNINGS]:
        console.print(f"warning: {line}", style="yellow", markup=False, highlight=False)
    if len(prediction.warnings) > MAX_WARNINGS:
        console.print(f"and {len(prediction.warnings) - MAX_WARNINGS} warnings more (--json)")


def write_timeline(result: Result, path: str | Path) -> None:
    """Write the computed timeline as a Chrome trace (Perfetto opens it)."""
    write_json(to_chrome(result), path)
