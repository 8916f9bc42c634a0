"""`gnnperf dataset ACTION`: one module per action, `gnnperf.cli.dataset_ACTION`.

An action's module is a verb of its own (`add_arguments`, `run`) that imports what is expensive
only in `run`. To add one: the module, and its line here.
"""

import argparse
from importlib import import_module
from typing import cast

from gnnperf.cli.main import Parser, Verb

ACTIONS: dict[str, str] = {
    "record": "run small real workloads here and record them",
    "build": "turn traces into a kernel table or into execution graphs",
    "synth": "make graphs labelled by the analytic simulator with noise",
    "import": "read public tables of measured kernels and labelled models",
}
"""Action -> its line of help."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions with their options."""
    actions = parser.add_subparsers(
        dest="action", metavar="ACTION", required=True, parser_class=Parser
    )
    for name, line in ACTIONS.items():
        action = actions.add_parser(name, help=line, description=line[0].upper() + line[1:] + ".")
        _module(name).add_arguments(action)


def run(args: argparse.Namespace) -> int:
    """Do the action."""
    return _module(args.action).run(args)


def _module(action: str) -> Verb:
    return cast(Verb, import_module(f"gnnperf.cli.dataset_{action}"))
