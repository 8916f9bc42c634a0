"""Errors that a user can act on: each message is one line that says what, where and what to do."""

from pathlib import Path


class GnnperfError(Exception):
    """Base of every error that gnnperf raises on purpose; the CLI prints it in one line, exit 2."""


class InputError(GnnperfError):
    """A file, a field or a value that gnnperf cannot use.

    Args:
        problem: What is wrong, with the value met.
        path: The file it was met in, if any.
        field: The field, event or option in that file, if any.
        remedy: What to do about it.
    """

    def __init__(
        self,
        problem: str,
        *,
        path: str | Path | None = None,
        field: str | None = None,
        remedy: str | None = None,
    ) -> None:
        self.problem, self.path, self.field, self.remedy = problem, path, field, remedy
        where = ": ".join(str(part) for part in (path, field) if part is not None)
        text = f"{where}: {problem}" if where else problem
        if remedy:
            text += f"; {remedy}"
        super().__init__(" ".join(text.split()))


class UnknownNameError(InputError):
    """A name that is not among the known ones; the message lists those that are."""

    def __init__(self, what: str, name: str, known: list[str], remedy: str | None = None) -> None:
        listed = ", ".join(known) if known else "none"
        super().__init__(f"unknown {what} {name!r} (known: {listed})", remedy=remedy)
