"""`gnnperf simulate TRACE...`: as `infer`, with formulas of data sheets and shapes alone."""

import argparse

from gnnperf.cli.steps import add_step_arguments, predict_step


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    add_step_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Predict, print, write what was asked for."""
    return predict_step(args, "analytic", None, None)
