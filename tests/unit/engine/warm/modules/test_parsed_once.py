"""What modules need comes out the same whether or not each file is parsed once only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ansible
import pytest
from ansible.executor import module_common

from runner.engine.warm.modules import payload
from runner.engine.warm.modules.parsed_once import parsed_once
from runner.engine.warm.modules.payload import Payload
from tests.kit.forks import in_a_fork, load_plugins

MODULES = Path(ansible.__file__).parent / "modules"
NAMES = ("ping", "stat")


def resolved(name: str) -> Payload:
    path = MODULES / f"{name}.py"
    return payload.resolve(f"ansible.legacy.{name}", str(path), path.read_bytes())


def note_parses(into: list[str]) -> None:
    """Note the names of what Ansible looks for imports in."""
    visit = module_common.ModuleDepFinder.visit

    def noted(self: Any, tree: Any) -> Any:
        into.append(self.module_fqn)
        return visit(self, tree)

    module_common.ModuleDepFinder.visit = noted


@pytest.mark.lengthy
def test_payloads_are_the_same_and_no_file_is_parsed_twice() -> None:
    def act() -> object:
        load_plugins()
        alone = [resolved(name) for name in NAMES]
        parses: list[str] = []
        note_parses(parses)
        with parsed_once():
            together = [resolved(name) for name in NAMES]
        return together == alone, len(parses) == len(set(parses)), "ansible.module_utils.basic" in parses

    assert in_a_fork(act) == "(True, True, True)"


def test_ansible_parses_by_itself_again_afterwards() -> None:
    finder = module_common.ModuleDepFinder

    with parsed_once():
        assert module_common.ModuleDepFinder is not finder

    assert module_common.ModuleDepFinder is finder
    assert "compile" not in vars(module_common)


def test_ansible_parses_by_itself_again_after_a_module_that_cannot_be_parsed(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("from ansible.module_utils.basic import (\n", encoding="utf-8")

    with pytest.raises(Exception, match=r"broken"), parsed_once():
        payload.resolve("broken", str(broken), broken.read_bytes())

    assert "compile" not in vars(module_common)
