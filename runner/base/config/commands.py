"""Commands of the command line, which their packages add."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeAlias

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001 - it has no public name
"""Group of commands."""


def add(
    commands: Subparsers,
    name: str,
    run: Callable[[argparse.Namespace], int],
    text: str,
    description: str,
    usage: str | None = None,
    epilog: str | None = None,
) -> argparse.ArgumentParser:
    """Add a command whose flags cannot be abbreviated. `run` returns the exit code; `text` is for the group's help."""
    parser = commands.add_parser(
        name,
        help=text,
        usage=usage,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(func=run)
    return parser
