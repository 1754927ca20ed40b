"""A guide as steps: the commands, files and output of its fenced blocks.

Each kind of block says by its info string what it is; the rest of the guide is for people alone.

    ```sh                commands, typed into the first terminal, each after the one before has ended
    ```sh terminal=2     the same in another terminal, opened where the first one was
    ```sh stays          a command that goes on until its terminal gets Ctrl-C
    ```keys              what is pressed: Ctrl-C
    ```text              what the commands of the block before it print, in the same terminal
    ```text terminal=1   what that terminal shows, sooner or later, after all that it has shown before
    ```yaml              a file: the line before the block ends in its name, as `NAME`:, and says "at the end of" where
                         the block is added to it; else it is all of it
    ```console           commands that are not run by the test; the part says why

In text, spaces count as one, and … stands for anything. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_BLOCK = re.compile(r"(?P<lead>[^\n]*)\n\n```(?P<info>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"^```", re.MULTILINE)
_FILE = re.compile(r"`(?P<name>[^`]+)`:$")
_TERMINAL = re.compile(r"terminal=(\d)")


class GuideError(Exception):
    """The guide has a block of an invalid form, or lacks the expected output."""


@dataclass(frozen=True, slots=True)
class Commands:
    """Lines that are typed, each after the one before has ended; one that `stays` goes on."""

    terminal: int
    lines: tuple[str, ...]
    stays: bool


@dataclass(frozen=True, slots=True)
class Keys:
    """What is pressed."""

    terminal: int


@dataclass(frozen=True, slots=True)
class Shown:
    """What a terminal shows; `of_commands`: of those of the block before, which have ended."""

    terminal: int
    lines: tuple[str, ...]
    of_commands: bool


@dataclass(frozen=True, slots=True)
class File:
    """What is written into a file, or added at its end."""

    name: str
    content: str
    added: bool


Step = Commands | Keys | Shown | File


def steps(text: str) -> list[Step]:
    """Return the steps of the guide in order. Raises GuideError for a block of no known kind."""
    blocks = list(_BLOCK.finditer(text))
    if len(blocks) * 2 != len(_FENCE.findall(text)):
        raise GuideError("a block is not fenced as the others are: a line, an empty one, ```, and ``` at its end")
    found: list[Step] = []
    last = Commands(1, (), stays=False)
    for block in blocks:
        kind, _, rest = block["info"].partition(" ")
        given = _TERMINAL.search(rest)
        match kind:
            case "sh":
                lines = re.sub(r"\\\n\s*", "", block["body"]).splitlines()
                last = Commands(int(given[1]) if given else 1, tuple(lines), "stays" in rest.split())
                found.append(last)
            case "text":
                lines, of_commands = block["body"].splitlines(), given is None and not last.stays
                found.append(Shown(int(given[1]) if given else last.terminal, tuple(lines), of_commands))
            case "keys" if block["body"] == "Ctrl-C\n":
                found.append(Keys(int(given[1]) if given else 1))
            case "yaml":
                found.append(_file(block["lead"], block["body"]))
            case "console":
                pass
            case _:
                raise GuideError(f"no block of this guide is of the kind {block['info']!r}")
    return found


def matches(wanted: tuple[str, ...], said: str) -> bool:
    """Say whether that was said: each line somewhere, in this order, with … for anything."""
    rest = " ".join(said.split())
    for piece in (" ".join(piece.split()) for line in wanted for piece in line.split("…")):
        _, found, rest = rest.partition(piece) if piece else ("", "…", rest)
        if not found:
            return False
    return True


def _file(lead: str, content: str) -> File:
    found = _FILE.search(lead)
    if found is None:
        raise GuideError(f"this line is to end in the name of the file that follows, as `name`: {lead!r}")
    return File(found["name"], content, "at the end of" in lead.casefold())
