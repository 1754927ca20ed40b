"""What `init` and `create api` write for a project, and how a project that stands in the repository compares with it.

`own` are the paths that such a project has changed as it likes, as patterns in which `*` stands for any text, also
across folders. Files that only keep a folder need not be there.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import chdir
from fnmatch import fnmatchcase
from pathlib import Path

from runner.cli import main

_BLOCK = re.compile(r"^```sh\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_GENERATING = ("ansible-operator init", "ansible-operator create api")


class ReadmeError(Exception):
    """A README does not say, in the one way that is understood here, what its project was made by."""


def commands_of(readme: str, name: str) -> list[list[str]]:
    """Return the arguments of `ansible-operator` that a project of this name was made by, from its README.

    Raises ReadmeError unless exactly one `sh` block has them, and nothing else but making the folder.
    """
    joined = readme.replace("\\\n", " ")
    blocks = [each["body"] for each in _BLOCK.finditer(joined) if any(line in each["body"] for line in _GENERATING)]
    if len(blocks) != 1:
        raise ReadmeError(f"{len(blocks)} `sh` blocks have `{_GENERATING[0]}` or `create api`; have all in one")
    lines = [" ".join(line.split()) for line in blocks[0].splitlines() if line.strip()]
    rest = [line for line in lines if line != f"mkdir {name} && cd {name}"]
    if strange := [line for line in rest if not line.startswith(_GENERATING)]:
        raise ReadmeError(f"the block may have `mkdir {name} && cd {name}`, `init` and `create api`, not: {strange}")
    return [shlex.split(line)[1:] for line in rest]


def generate(folder: Path, commands: Sequence[Sequence[str]]) -> dict[str, str]:
    """Make the folder, and in it a project by these commands; return its files' texts by their paths."""
    folder.mkdir()
    with chdir(folder):
        for command in commands:
            assert main.main(list(command)) == os.EX_OK, command
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def missing_files(project: Path, generated: Mapping[str, str]) -> list[str]:
    return [path for path in generated if not _is_any(path, ("*.gitkeep",)) and not (project / path).is_file()]


def missing_lines(project: Path, generated: Mapping[str, str], own: Sequence[str]) -> list[str]:
    """Return the generated lines that the project has not, or not in their order."""
    missing = []
    for path, text in generated.items():
        if _is_any(path, ("*.gitkeep", *own)):
            continue
        lines = iter((project / path).read_text().splitlines() if (project / path).is_file() else ())
        missing += [f"{path}: {line}" for line in text.splitlines() if line not in lines]
    return missing


def foreign_files(project: Path, generated: Mapping[str, str], own: Sequence[str]) -> list[str]:
    """Return the files of config/ and molecule/ that are neither generated nor the project's own."""
    files = (path for folder in ("config", "molecule") for path in (project / folder).rglob("*") if path.is_file())
    paths = sorted(str(path.relative_to(project)) for path in files)
    return [path for path in paths if path not in generated and not _is_any(path, own)]


def _is_any(path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(path, pattern) for pattern in patterns)
