"""Facts: Ansible processes them when they have changed. A file only gets a new time if its content is the same."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.engines.warm import versions
from runner.engines.warm.patches import fact_cache
from tests.kit.forks import in_a_fork, load_plugins, seen

since_2_19 = pytest.mark.skipif(not versions.TAGGED, reason="before ansible-core 2.19 only facts are saved")

ONE, TWO = {"a": 1}, {"a": 2}


def steps(folder: Path, act: Callable[[Any, Path], object]) -> str:
    """Return what this says of a cache and its file, with the hook in place."""

    def inside() -> object:
        from ansible.plugins.loader import cache_loader  # noqa: PLC0415 - in a fork

        load_plugins()
        fact_cache.install()
        cache = cache_loader.get("jsonfile", _uri=str(folder), _timeout=0, _prefix="")
        cache.set("host", ONE)
        (file,) = folder.iterdir()  # Ansible puts something before a host's name
        return act(cache, file)

    return in_a_fork(inside)


def payload(text: str) -> str:
    """Return the facts in a cache's file."""
    return str(json.loads(text).get("__payload__"))


@since_2_19
def test_unchanged_facts_are_not_written_again_but_get_a_new_time(tmp_path: Path) -> None:
    def act(cache: Any, file: Path) -> object:
        before = file.stat().st_ino
        renewed: list[object] = []
        os.utime = renewed.append  # type: ignore[assignment]  # in a process of its own
        cache.set("host", dict(ONE))
        same = file.stat().st_ino == before
        return same, renewed == [str(file)], cache.get("host") == ONE, len(list(tmp_path.iterdir()))

    assert steps(tmp_path, act) == "(True, True, True, 1)"


@since_2_19
@pytest.mark.parametrize("how", ["changed", "removed", "replaced"])
def test_facts_or_a_file_that_changed_are_written(tmp_path: Path, how: str) -> None:
    def act(cache: Any, file: Path) -> object:
        if how == "changed":
            cache.set("host", TWO)
            assert "2" in payload(file.read_text(encoding="utf-8"))
        else:
            file.unlink()
        if how == "replaced":
            file.write_text("{}", encoding="utf-8")
        cache.set("host", dict(ONE))
        return "1" in payload(file.read_text(encoding="utf-8"))

    assert steps(tmp_path, act) == "True"


FACTS = {
    "ansible_distribution": "Debian",
    "ansible_env": {"PATH": "/bin", "nested": [1, {"deep": "{{ text }}"}]},
    "ansible_local": {"own": {"a": "b"}},
    "_ansible_facts_gathered": True,
    "ansible_ssh_host": "removed with a warning",
    "plain": None,
}


class Variables:
    """Ansible's variables of two hosts."""

    def __init__(self, *, hooked: bool) -> None:
        from ansible.inventory.manager import InventoryManager  # noqa: PLC0415 - in a fork
        from ansible.parsing.dataloader import DataLoader  # noqa: PLC0415 - as above
        from ansible.vars.manager import VariableManager  # noqa: PLC0415 - as above

        load_plugins()
        if hooked:
            fact_cache.install()
        loader = DataLoader()
        self.inventory = InventoryManager(loader=loader, sources="one,two,")
        self.manager = VariableManager(loader=loader, inventory=self.inventory)

    def of(self, host: str) -> dict[str, Any]:
        """Return the variables of a host."""
        found: dict[str, Any] = self.manager.get_vars(host=self.inventory.get_host(host))
        return found


def shown(variables: dict[str, Any]) -> str:
    """Return variables with the types of their values."""

    def typed(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: typed(each) for name, each in value.items()}, type(value).__name__
        if isinstance(value, list):
            return [typed(each) for each in value], type(value).__name__
        return value, type(value).__name__

    return repr(typed({name: value for name, value in variables.items() if name != "omit"}))  # which is random


@pytest.mark.parametrize("facts", [FACTS, {}, {"ansible_distribution": "Debian"}], ids=["all", "none", "one"])
def test_the_variables_of_hosts_are_those_of_plain_ansible_after_each_change(facts: dict[str, Any]) -> None:
    def history(*, hooked: bool) -> list[str]:
        variables = Variables(hooked=hooked)
        manager = variables.manager
        found: list[str] = []

        def note() -> None:
            found.extend(shown(variables.of(host)) for host in ("one", "two", "one"))

        note()
        manager.set_host_facts("one", dict(facts))
        note()
        variables.of("one")["ansible_facts"]["distribution"] = "changed by a task"
        variables.of("one")["ansible_distribution"] = "changed by a task"
        note()
        manager.set_host_facts("one", {"ansible_distribution": "Fedora", "ansible_new": [1]})
        manager.set_host_facts("two", {"ansible_distribution": "Debian"})
        note()
        manager.set_nonpersistent_facts("one", {"ansible_distribution": "by set_fact"})
        note()
        manager.clear_facts("one")
        note()
        return found

    assert seen(lambda: history(hooked=True)) == seen(lambda: history(hooked=False))


def test_unchanged_facts_are_processed_once() -> None:
    def act() -> Any:
        from ansible.vars import clean, manager  # noqa: PLC0415 - in a fork

        count: list[object] = []
        copy = clean.module_response_deepcopy

        def counted(value: Any) -> Any:
            count.append(value)
            return copy(value)

        clean.module_response_deepcopy = counted
        variables = Variables(hooked=True)
        variables.manager.set_host_facts("one", {"ansible_distribution": "Debian"})
        counts = []
        for _ in range(3):
            variables.of("one")
            counts.append(len(count))
        variables.manager.set_host_facts("one", {"ansible_distribution": "Fedora"})
        variables.of("one")
        return [counts[0] > 0, counts[1:] == counts[:-1], len(count) > counts[-1], hasattr(manager, "namespace_facts")]

    assert seen(act) == [True, True, True, True]


def test_facts_that_ansible_removes_with_a_warning_are_processed_each_time() -> None:
    def act() -> Any:
        from ansible.utils.display import Display  # noqa: PLC0415 - in a fork

        warned: list[object] = []
        Display.warning = lambda _, message, **__: warned.append(message)
        variables = Variables(hooked=True)
        variables.manager.set_host_facts("one", dict(FACTS))
        for _ in range(3):
            variables.of("one")
        return len(warned)

    assert seen(act) == 3
