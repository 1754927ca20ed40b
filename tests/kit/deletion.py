"""Copies of the package `runner` without features or engines."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tests.kit.places import ROOT

LISTS = ("app/features.py", "app/engines.py", "cli/main.py", "cli/authors.py")
"""Modules that name features and engines. `runner.sdk` does too; the image of an operator does not have it."""
FOLDERS = tuple(
    f"{kind}/{path.parent.name}"
    for kind, file in (("features", "feature.py"), ("engines", "plugin.py"))
    for path in sorted((ROOT / "runner" / kind).glob(f"*/{file}"))
)
"""All features and engines."""
NEEDED_BY = {"features/references": "features/hosts"}
"""The Secret with the credentials of hosts is a reference."""


def without(copy: Path, *folders: str) -> Path:
    """Copy `runner` without these folders, and without the lines that name them. Return the folder of the copy."""
    runner = copy / "runner"
    shutil.copytree(ROOT / "runner", runner, ignore=shutil.ignore_patterns("__pycache__", "sdk"))
    for name in {*folders, *filter(None, map(NEEDED_BY.get, folders))}:
        shutil.rmtree(runner / name)
        for path in LISTS:
            text = (runner / path).read_text(encoding="utf-8")
            (runner / path).write_text(_without(text, f"runner.{name.replace('/', '.')}"), encoding="utf-8")
    return copy


def _without(text: str, package: str) -> str:
    """Return the text without the lines that import a package or use what they import."""
    names = re.findall(rf"^from {re.escape(package)} import \w+ as (\w+)$", text, re.MULTILINE)
    of_package = re.compile(rf"from {re.escape(package)} import .*" + "".join(rf"|\s*{name}\..*" for name in names))
    return "".join(line for line in text.splitlines(keepends=True) if not of_package.fullmatch(line.rstrip("\n")))
