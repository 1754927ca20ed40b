"""Attributes of playbook objects: copied and validated quickly, to the same end as by Ansible itself."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from runner.engines.warm import versions
from runner.engines.warm.patches import fields
from tests.kit.forks import load_plugins, seen

pytestmark = pytest.mark.lengthy

TASKS: tuple[dict[str, Any], ...] = (
    {"ansible.builtin.debug": {"msg": "{{ text }}"}, "when": ["text is defined", True], "tags": ["a", "{{ text }}"]},
    {"ansible.builtin.set_fact": {"a": 1}, "loop": [1, 2], "loop_control": {"label": "{{ item }}"}, "vars": {"x": 1}},
    {"ansible.builtin.command": "true", "environment": {"A": "{{ text }}"}, "changed_when": False, "no_log": True},
    {
        "ansible.builtin.command": "true",
        "retries": 3,
        "delay": "{{ number }}",
        "until": ["flag"],
        "async": 0,
        "poll": 5,
    },
    {"ansible.builtin.ping": None, "become": True, "become_user": "{{ text }}", "ignore_errors": "{{ flag }}"},
    {"ansible.builtin.ping": None, "connection": "local", "remote_user": "root", "become_exe": "", "port": 22},
    {"ansible.builtin.ping": None, "notify": "change", "throttle": 2, "run_once": True, "delegate_to": "localhost"},
)
WRONG: tuple[dict[str, Any], ...] = (
    {"ansible.builtin.ping": None, "retries": "many"},
    {"ansible.builtin.ping": None, "ignore_errors": "{{ text }}"},
    {"ansible.builtin.ping": None, "delay": "{{ missing }}"},
    {"ansible.builtin.ping": None, "connection": "{{ missing }}"},
    {"ansible.builtin.ping": None, "connection": "#jinja2: wrong"},
)
VALUES = {"text": "words", "number": 7, "flag": True}


def block(*tasks: dict[str, Any]) -> Any:
    """Load a block with these tasks, in a play that says something too."""
    from ansible.parsing.dataloader import DataLoader  # noqa: PLC0415 - in a fork
    from ansible.playbook.play import Play  # noqa: PLC0415 - as above

    load_plugins()
    loader = DataLoader()
    content = {"hosts": "all", "vars": {"y": 2}, "become": False, "tasks": [{"block": list(tasks)}]}
    (outer,) = Play.load(trusted(content), loader=loader).tasks
    return outer


def trusted(value: Any) -> Any:
    """Mark texts as Ansible marks those of a playbook."""
    if isinstance(value, dict):
        return {key: trusted(each) for key, each in value.items()}
    if isinstance(value, list):
        return [trusted(each) for each in value]
    if isinstance(value, str) and versions.TAGGED:
        from ansible.template import trust_as_template  # noqa: PLC0415 - since 2.19

        return trust_as_template(value)
    return value


def state(thing: Any, depth: int = 0) -> Any:
    """Return all that an object of a playbook has, and its copies must have too."""
    if depth > 3:
        return "..."
    return {
        name: [type(value).__name__, state(value, depth + 1) if hasattr(value, "fattributes") else repr(value)]
        for name, value in sorted(vars(thing).items())
        if name not in {"_loader", "_variable_manager", "_play", "_role"}
    }


@pytest.mark.parametrize("number", range(len(TASKS)))
def test_a_copy_has_what_ansibles_own_has_and_shares_no_container(number: int) -> None:
    def act() -> object:
        outer = block(TASKS[number])
        (task,) = outer.block
        found = []
        theirs = [thing.copy() for thing in (task, outer)]
        fields.install()
        for thing, other in zip((task, outer), theirs, strict=True):
            ours = thing.copy()
            shared = [
                name
                for name, value in vars(ours).items()
                if type(value) in {list, dict} and value and value is vars(thing).get(name) and name != "_ds"
            ]
            found.append([without_addresses(state(ours)) == without_addresses(state(other)), shared])
        return found

    assert seen(act) == [[True, []], [True, []]]


def without_addresses(value: Any) -> str:
    """Return a value as JSON without the addresses that the `repr` of an object contains."""
    return re.sub(r"0x[0-9a-f]+", "", json.dumps(value))


@pytest.mark.parametrize("task", [*TASKS, *WRONG], ids=str)
def test_validation_ends_as_ansibles_own_does(task: dict[str, Any]) -> None:
    def validated() -> object:
        from ansible.parsing.dataloader import DataLoader  # noqa: PLC0415 - in a fork
        from ansible.template import Templar  # noqa: PLC0415 - as above

        (loaded,) = block(task).block
        loaded.squash()
        templar = Templar(DataLoader(), variables=VALUES)
        try:
            loaded.post_validate(templar=templar._engine if versions.TAGGED else templar)
        except Exception as error:  # noqa: BLE001 - it is what is compared
            return f"{type(error).__name__}: {error}"
        return without_addresses({name: each for name, each in state(loaded).items() if name != "_uuid"})

    def ours() -> object:
        fields.install()
        return validated()

    theirs = seen(validated)
    assert "_parent" in theirs or task in WRONG, theirs
    assert uuids(seen(ours)) == uuids(theirs)


@pytest.mark.parametrize("text", ["words", "", "{{ text }}", "{% raw %}", "#jinja2: wrong", "{", "ü", "a\nb"])
@pytest.mark.parametrize("mark", [True, False])
def test_texts_of_a_connection_end_as_by_ansible_itself(text: str, *, mark: bool) -> None:
    def validated() -> object:
        from ansible.parsing.dataloader import DataLoader  # noqa: PLC0415 - in a fork
        from ansible.playbook.play_context import PlayContext  # noqa: PLC0415 - as above
        from ansible.template import Templar  # noqa: PLC0415 - as above

        context = PlayContext()
        context.remote_addr = trusted(text) if mark else text
        try:
            templar = Templar(DataLoader(), variables=VALUES)
            context.post_validate(templar=templar._engine if versions.TAGGED else templar)
        except Exception as error:  # noqa: BLE001 - it is what is compared
            return f"{type(error).__name__}: {error}"
        return without_addresses(state(context))

    def ours() -> object:
        fields.install()
        return validated()

    assert uuids(seen(ours)) == uuids(seen(validated))


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("task", TASKS, ids=str)
def test_a_task_takes_from_its_parents_what_it_takes_by_ansible_itself(task: dict[str, Any], *, dynamic: bool) -> None:
    def evaluated() -> object:
        from ansible.playbook.block import Block  # noqa: PLC0415 - in a fork
        from ansible.playbook.task_include import TaskInclude  # noqa: PLC0415 - as above

        around = {
            "tags": ["outer"],
            "when": ["flag"],
            "environment": [{"B": "2"}],
            "become_user": "other",
            "throttle": 3,
        }
        outer = block({"block": [{"block": [task], "ignore_errors": True}], **around})
        (middle,) = outer.block
        (inner,) = middle.block
        (loaded,) = inner.block
        include = TaskInclude(block=inner)
        include.statically_loaded = not dynamic
        include.tags = ["included"]
        include.no_log = True
        below = Block(play=outer._play, parent_block=include)
        loaded._parent = below
        found = []
        for each in (include, loaded):
            own = each.copy()
            own.squash()
            found.append({name: value for name, value in state(own).items() if name not in {"_parent", "_uuid"}})
        return [uuids(without_addresses(each)) for each in found]

    def ours() -> object:
        fields.install()
        return evaluated()

    theirs = seen(evaluated)
    assert "outer" in theirs[1], theirs
    assert seen(ours) == theirs


def uuids(text: str) -> str:
    """Each object has one of its own."""
    return re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "", text)


def test_a_class_with_ways_of_its_own_is_copied_as_ever() -> None:
    def act() -> object:
        from ansible.playbook.task import Task  # noqa: PLC0415 - in a fork

        class Noisy(Task):  # type: ignore[misc]  # Ansible has no types
            accessed: list[str] = []  # noqa: RUF012 - the test reads it

            def __setattr__(self, name: str, value: object) -> None:
                self.accessed.append(name)
                super().__setattr__(name, value)

        fields.install()
        made = Noisy()
        Noisy.accessed.clear()
        made.copy()
        return "name" in Noisy.accessed

    assert seen(act) is True
