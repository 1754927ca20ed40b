"""The conditions that only the operator writes, which neither plans nor roles' statuses contain."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import runner
from runner.app.features import OWN_STATUS
from runner.core.status import kstatus

ROOT = Path(runner.__file__).parent


def made() -> Iterator[tuple[str, str]]:
    """Yield file and type of each condition that the operator's source makes."""
    for path in sorted(ROOT.rglob("*.py")):
        text = path.read_text()
        if "make(" not in text or "runner.core.status.conditions import" not in text:
            continue
        module = importlib.import_module(".".join(path.relative_to(ROOT.parent).with_suffix("").parts))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "make":
                kind = node.args[0]
                if isinstance(kind, ast.Constant):
                    yield path.name, str(kind.value)
                elif isinstance(kind, ast.Name) and hasattr(module, kind.id):
                    yield path.name, getattr(module, kind.id)


@pytest.mark.lengthy
def test_each_condition_that_the_operator_makes_is_removed_from_what_a_plan_compares() -> None:
    kinds = dict(made())
    assert {"Updated", "Prunable", "Drifted", "Planned"} <= {kind for _, kind in made()}
    assert "member.py" in kinds
    for name, kind in made():
        if kind in kstatus.TYPES:
            continue
        conditions = [{"type": kind, "status": "True"}, {"type": "Mine", "status": "True"}]
        assert OWN_STATUS.removed_from({"conditions": conditions})["conditions"] == conditions[1:], (name, kind)
