"""`python -m runner.sdk.devcluster up`: the `cluster` commands without the rest of the command line."""

from __future__ import annotations

import argparse
import sys

from runner.sdk.devcluster import cli
from runner.values.errors import OperatorError


def main() -> int:
    """Run one command; print errors, and exit with code 1."""
    parser = argparse.ArgumentParser(prog="python -m runner.sdk.devcluster")
    cli.add_commands(parser.add_subparsers(required=True))
    arguments = parser.parse_args(["cluster", *sys.argv[1:]])
    try:
        code: int = arguments.func(arguments)
    except OperatorError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return code


if __name__ == "__main__":
    sys.exit(main())
