"""Commands of the command line, which their packages add. Each has a description, an example and one form of usage."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Callable, Sequence
from typing import TypeAlias

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001 - it has no public name
"""Group of commands."""
_HELP_COLUMN = 36
_WITHIN_PARAGRAPH = re.compile(r"(?<=\S)\n(?=\S)")
_TERM = re.compile(r" +\S.*?  +")
_HANGING = 4


class Formatter(argparse.HelpFormatter):
    """Formatter that wraps all text at the width of the terminal, and breaks no word.

    Indented lines of a description remain lines. If such a line has two columns, its continuation is in the second.
    """

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=_HELP_COLUMN)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return _wrapped(text, width, 0)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines: list[str] = []
        for line in _WITHIN_PARAGRAPH.sub(" ", text).split("\n"):
            term, own = _TERM.match(line), len(line) - len(line.lstrip())
            hanging = own + _HANGING if own else 0
            lines += _wrapped(line, width, term.end() if term and term.end() <= width // 2 else hanging) or [""]
        return textwrap.indent("\n".join(lines), indent)


def _wrapped(text: str, width: int, hanging: int) -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent=" " * hanging, break_on_hyphens=False, break_long_words=False)


def add(
    commands: Subparsers,
    name: str,
    run: Callable[[argparse.Namespace], int] | None,
    text: str,
    description: str,
    examples: Sequence[str],
    form: str = "[flags]",
) -> argparse.ArgumentParser:
    """Add a command whose flags cannot be abbreviated. `run` returns the exit code; `text` is for the group's help.

    `examples` and the lines of `form`, which the usage shows, are arguments.
    """
    parser = commands.add_parser(
        name, help=text, description=description, formatter_class=Formatter, allow_abbrev=False
    )
    parser.usage = "\n       ".join(f"{parser.prog} {line}" for line in form.splitlines())
    lines = (f"  {parser.prog} {arguments}".rstrip() for arguments in examples)
    parser.epilog = "\n".join(("example:" if len(examples) == 1 else "examples:", *lines))
    parser.set_defaults(func=run, parser=parser)
    return parser


def group(commands: Subparsers, name: str, text: str, description: str, examples: Sequence[str]) -> Subparsers:
    """Add a group of commands."""
    parser = add(commands, name, None, text, description, examples, "COMMAND")
    return parser.add_subparsers(title="commands", required=True, metavar="COMMAND", prog=parser.prog)
