"""What Prometheus' own promtool says of rules, expressions and metrics."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from tests.kit.processes import captured
from tests.kit.programs import get_promtool

_STRINGS = re.compile(r'"[^"]*"')
_LABELS = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)|\{[^}]*\}|\[[^]]*\]")
_NAMES = re.compile(r"(?<![\w.])[a-zA-Z_:][\w:]*(?!\s*\(|\w)")
_OPERATORS = {"and", "or", "unless", "bool", "offset"}


def problems_of_rules(spec: dict[str, Any], folder: Path) -> str:
    """What `promtool check rules` finds wrong; empty when nothing is."""
    return _problems("check", "rules", str(_written(spec, folder / "checked.yaml")))


def problems_of_alerts(spec: dict[str, Any], tests: dict[str, Any], folder: Path) -> str:
    """Where `promtool test rules` sees other alerts than `tests` say; empty when it sees the same."""
    rules = _written(spec, folder / "rules.yaml")
    return _problems("test", "rules", str(_written({"rule_files": [rules.name], **tests}, folder / "tests.yaml")))


def problems_of_expressions(expressions: Iterable[str], folder: Path) -> str:
    """What is wrong of expressions in PromQL."""
    rules = [{"record": f"expression:{number}", "expr": each} for number, each in enumerate(expressions)]
    return problems_of_rules({"groups": [{"name": "expressions", "rules": rules}]}, folder)


def problems_of_metrics(text: str) -> str:
    """What `promtool check metrics` finds wrong of what is exposed; empty when nothing is."""
    return _problems("check", "metrics", given=text)


def names_in(expression: str) -> set[str]:
    """The series that a valid expression is about: names that are no functions, operators or labels."""
    bare = _LABELS.sub("", _STRINGS.sub('""', expression))
    return set(_NAMES.findall(bare)) - _OPERATORS


def _written(content: dict[str, Any], file: Path) -> Path:
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    return file


def _problems(*arguments: str, given: str = "") -> str:
    program = get_promtool(os.environ, sys.stderr)
    done = captured(program, *arguments, input=given)
    return "" if done.returncode == 0 else done.stdout + done.stderr
