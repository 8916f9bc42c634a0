"""Entry point: finds the verb, loads its module only then, turns errors into one line."""

import argparse
import logging
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn, Protocol, cast

from gnnperf import __version__
from gnnperf.errors import GnnperfError, InputError

VERBS: dict[str, str] = {
    "infer": "predict the iteration time of a trace, here or on other hardware",
    "simulate": "the same with the analytic engine alone",
    "validate": "check trace files: format, steps, links, shapes, named checks",
    "hardware": "list, show or check descriptions of GPUs and platforms",
    "dataset": "record, import, build or synthesize training data",
    "train": "train the network from a YAML config",
    "evaluate": "score predictions on measured kernels and iterations",
    "calibrate": "fit a trained network to a GPU with a few measurements",
}
"""Verb -> its line of help; its module is gnnperf.cli.VERB."""


class Verb(Protocol):
    """What a verb's module offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the verb's options."""
        ...

    def run(self, args: argparse.Namespace) -> int:
        """Do it; returns the exit status."""
        ...


class Parser(argparse.ArgumentParser):
    """A parser whose complaint is one line."""

    def error(self, message: str) -> NoReturn:
        """Exit 2 with the problem and where to read more, in one line."""
        self.exit(2, f"gnnperf: {message}; see `{self.prog} --help`\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; 0 done, 1 internal error, 2 bad usage or input."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = Parser(
        prog="gnnperf",
        description="Predicts the time of a training step on GPUs that you may not own.",
        epilog="`gnnperf VERB --help` tells the options of a verb.",
    )
    parser.add_argument("--version", action="version", version=f"gnnperf {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=Parser)
    chosen = next((a for a in arguments if not a.startswith("-")), None)
    module: Verb | None = None
    for name, line in VERBS.items():
        verb = verbs.add_parser(name, help=line, description=line[0].upper() + line[1:] + ".")
        if name == chosen:
            module = cast(Verb, import_module(f"gnnperf.cli.{name}"))
            _add_common(verb)
            module.add_arguments(verb)
    args = parser.parse_args(arguments)
    logging.basicConfig(format="%(message)s", level=_level(args), stream=sys.stderr)
    return _run(cast(Verb, module), args)


def _add_common(parser: argparse.ArgumentParser) -> None:
    loud = parser.add_mutually_exclusive_group()
    loud.add_argument("-v", "--verbose", action="store_true", help="say more on stderr")
    loud.add_argument("-q", "--quiet", action="store_true", help="say only errors on stderr")


def _level(args: argparse.Namespace) -> int:
    if args.verbose:
        return logging.DEBUG
    return logging.ERROR if args.quiet else logging.WARNING


def _run(module: Verb, args: argparse.Namespace) -> int:
    try:
        return module.run(args)
    except GnnperfError as why:
        print(f"gnnperf: {why}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except OSError as why:
        told = InputError(why.strerror or str(why), path=why.filename, remedy="check the path")
        print(f"gnnperf: {told}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("gnnperf: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
