"""The command ``tersum``: ``perf`` measures collectives, ``plan`` predicts them, ``tune-codec``
ranks formats on captured sums, ``learn-table`` and ``train-kronecker`` make some for them, ``info``
describes the machine, ``trace`` merges traces.

Also ``python -m tersum``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tersum.cli import (
    info_command,
    learn_table_command,
    perf_command,
    plan_command,
    trace_command,
    train_kronecker_command,
    tune_codec_command,
)
from tersum.cli.command_error import CommandError
from tersum.errors import TersumError


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="tersum", description="Quantized collectives for distributed machine learning."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    info_command.add_parser(commands)
    learn_table_command.add_parser(commands)
    perf_command.add_parser(commands)
    plan_command.add_parser(commands)
    trace_command.add_parser(commands)
    train_kronecker_command.add_parser(commands)
    tune_codec_command.add_parser(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status: 0, 1 (failed or wrong results), 2 (usage),
    130 (Ctrl-C)."""
    arguments = build_parser().parse_args(argv)
    try:
        status: int = arguments.run(arguments)
    except CommandError as error:
        print(f"tersum {arguments.command}: {error}", file=sys.stderr)
        return error.exit_status
    except TersumError as error:
        print(f"tersum {arguments.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"tersum {arguments.command}: interrupted", file=sys.stderr)
        return 130
    return status
