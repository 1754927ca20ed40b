"""What a task without a fork may touch, and what happens where it comes to something else."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

import pytest
from ansible.playbook.task import Task
from ansible.plugins.loader import filter_loader, lookup_loader
from ansible.utils.display import Display

from runner.engines.warm import versions
from runner.engines.warm.patches import guard, safe
from runner.engines.warm.patches.guard import NeedsFork, UnforkedTask
from tests.kit.forks import in_a_fork, load_plugins, seen


def unforked(**fields: Any) -> tuple[UnforkedTask, list[str]]:
    """Make a task that records the calls of its methods."""
    calls: list[str] = []
    return UnforkedTask(lambda: calls.append("commit"), with_modules=True, **fields), calls


def test_outside_of_an_unforked_task_no_fork_is_requested() -> None:
    guard.need_fork("plugin")
    guard.record_module_start()

    assert not guard.is_unforked()


def test_a_task_without_effects_so_far_starts_again_in_a_worker() -> None:
    task, calls = unforked()

    with pytest.raises(NeedsFork), guard.run_unforked(task):
        guard.need_fork("plugin")

    assert calls == []
    assert not guard.is_unforked()


def test_a_task_whose_module_has_run_does_not_start_again() -> None:
    task, calls = unforked()

    with guard.run_unforked(task):
        guard.record_module_start()
        guard.record_module_start()
        guard.need_fork("plugin")

    assert calls == ["commit"]


@pytest.mark.parametrize(
    ("template", "is_foreseeable"),
    [
        ("it.rc == 0 and 'x' in it.stdout", True),
        ("it is failed or it is not ansible.builtin.changed", True),
        ("{{ item | b64encode }} {{ it.spec.update.sort }} {{ items | sort(attribute='a') }}", True),
        ("lookup('env', 'HOME') ~ query( 'ansible.builtin.items', [1])", True),
        ("lookup('k8s', kind='Pod') or lookup('kubernetes.core.k8s', kind='Pod')", True),
        ("lookup('template', 'deployment.yaml.j2') | from_yaml", True),
        ("it.result.metadata.name | community.general.json_query('a.b')", True),
        ("it | own", False),
        ("items | map('own')", False),
        ("it is own_test", False),
        ("it | attr('x')", False),
        ("it | own.utils.shout", False),
        ("items | select('own.utils.is_loud')", False),
        ("items | selectattr('a', 'own.utils.is_loud')", False),
        ("lookup('pipe', 'true')", False),
        ("lookup(name)", False),
        ("q('own.utils.search')", False),
        ("kept.append(1)", False),
        ("kept['pop']()", False),
        ("it.set_type('x')", False),
    ],
)
def test_unsafe_plugins_and_changes_are_foreseen(template: str, *, is_foreseeable: bool) -> None:
    assert safe.are_foreseeable([template], ["own", "own_test"]) is is_foreseeable


def test_other_threads_are_not_watched() -> None:
    found: list[bool] = []
    task, _ = unforked()

    with guard.run_unforked(task):
        thread = threading.Thread(target=lambda: found.append(guard.is_unforked()))
        thread.start()
        thread.join()
        found.append(guard.is_unforked())

    assert found == [False, True]


@pytest.mark.parametrize(
    ("value", "name", "changes"),
    [
        ([1], "append", True),
        ({1}, "add", True),
        ({"a": 1}, "update", True),
        (deque([1]), "rotate", True),
        ({"update": 1}, "update", False),
        ({"a": 1}, "items", False),
        ("text", "remove", False),
        ([1], "index", False),
    ],
)
def test_mutating_methods_are_detected_and_keys_of_the_same_names_are_not(
    value: object, name: str, *, changes: bool
) -> None:
    assert safe.is_mutating(value, name) is changes


def checked(name: str, folder: Path | None = None) -> str:
    """Return what comes of a filter's name in a template of a task without a fork."""

    def act() -> object:
        load_plugins()
        if folder:
            filter_loader.add_directory(str(folder))
        known = guard._KnownPlugins(filter_loader)
        with guard.run_unforked(unforked()[0]):
            known.check(name)
            return known.get(name).ansible_name

    return in_a_fork(act)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        *(
            (f"{prefix}b64encode", "'ansible.builtin.b64encode'")
            for prefix in ("", "ansible.builtin.", "ansible.legacy.")
        ),
        *((name, "NeedsFork('plugin')") for name in ("own.utils.shout", "attr")),
    ],
)
def test_only_filters_of_ansible_core_that_do_not_reach_all_methods_are_known(name: str, found: str) -> None:
    assert checked(name) == found


@pytest.mark.lengthy
def test_filters_of_the_project_need_a_fork_also_where_they_bear_a_known_name(tmp_path: Path) -> None:
    text = "class FilterModule:\n    def filters(self):\n        return {'b64encode': str, 'shout': str}\n"
    (tmp_path / "own.py").write_text(text, encoding="utf-8")

    for name in ("shout", "b64encode", "ansible.legacy.shout", "ansible.legacy.b64encode"):
        assert checked(name, tmp_path) == "NeedsFork('plugin')"
    assert checked("ansible.builtin.b64encode", tmp_path) == "'ansible.builtin.b64encode'"
    assert checked("b64decode", tmp_path) == "'ansible.builtin.b64decode'"


@pytest.mark.lengthy
def test_a_task_that_needs_a_filter_of_the_project_after_its_module_gets_it(tmp_path: Path) -> None:
    text = "class FilterModule:\n    def filters(self):\n        return {'b64encode': str, 'shout': str}\n"
    (tmp_path / "own.py").write_text(text, encoding="utf-8")

    def act() -> object:
        load_plugins()
        filter_loader.add_directory(str(tmp_path))
        guard._hook_loader(filter_loader, guard._KnownPlugins(filter_loader))
        with guard.run_unforked(unforked()[0]):
            guard.record_module_start()
            return [filter_loader.get(name).j2_function(1) for name in ("shout", "b64encode")]

    assert seen(act) == ["1", "1"]


@pytest.mark.parametrize(
    "fields",
    [
        {"changed_when": "1 | own"},
        {"failed_when": "1 | own"},
        {"until": "1 | own"},
        {"loop": [1], "loop_control": {"label": "{{ 1 | own }}"}},
        {"loop": [1], "loop_control": {"break_when": "1 | own"}},
        {"loop": [1], "environment": {"A": "{{ 1 | own }}"}},
        pytest.param(
            {"register": {"it": "_task.result | own"}},
            marks=pytest.mark.skipif(versions.CORE < (2, 21), reason="a newer form of `register`"),
        ),
    ],
)
def test_all_templates_after_the_module_of_a_task_are_searched(fields: dict[str, object]) -> None:
    def act() -> object:
        load_plugins()
        task = Task.load({"command": "echo", **fields})
        return safe.are_foreseeable(guard._later_templates(task), ["own"])

    assert seen(act) is False


def test_a_task_that_only_registers_its_result_is_not_searched() -> None:
    def act() -> object:
        load_plugins()
        return guard._later_templates(Task.load({"command": "echo", "register": "it"}))

    assert seen(act) == []


@pytest.mark.lengthy
def test_filters_of_the_project_are_not_loaded_by_the_check(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("import os\nos._exit(3)\n", encoding="utf-8")

    assert checked("b64encode", tmp_path) == "NeedsFork('plugin')"


@pytest.mark.lengthy
def test_filters_of_the_project_need_a_fork_if_another_thread_holds_a_lock_that_they_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "_NAMES_WITHIN", 0.5)
    text = "from ansible.utils.display import Display\nwith Display()._lock:\n    pass\n"
    (tmp_path / "own.py").write_text(text, encoding="utf-8")

    def act() -> object:
        load_plugins()
        filter_loader.add_directory(str(tmp_path))
        known = guard._KnownPlugins(filter_loader)
        held = threading.Event()

        def hold() -> None:
            with Display()._lock:
                held.set()
                threading.Event().wait()

        threading.Thread(target=hold, daemon=True).start()
        held.wait()
        durations = []
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(NeedsFork), guard.run_unforked(unforked()[0]):
                known.check("b64encode")
            durations.append(time.monotonic() - began)
        return [durations[0] >= 0.5, durations[1] < 0.5]

    assert seen(act) == [True, True]


def test_a_filter_of_a_collection_is_found_again_after_the_collection_changed(tmp_path: Path) -> None:
    folder = tmp_path / "ansible_collections/community/general/plugins/filter"
    (folder / "__pycache__").mkdir(parents=True)  # the interpreter may create it, which changes the folder once more
    text = "class FilterModule:\n    def filters(self):\n        return {'shout': lambda text: text + %r}\n"

    def add(name: str, mark: str) -> None:
        (folder / f"{name}.py").write_text(text % mark, encoding="utf-8")
        os.utime(folder, (1_000_000_000, 1_000_000_000))

    def act() -> object:
        load_plugins(str(tmp_path))
        known = guard._KnownPlugins(filter_loader)
        one, other = (known.get("community.general.shout") for _ in range(2))
        (folder / "second.py").write_text(text % "?", encoding="utf-8")
        return [one is other, one.j2_function("a"), known.get("community.general.shout").j2_function("a")]

    add("first", "!")
    assert seen(act) == [True, "a!", "a?"]


@pytest.mark.lengthy
def test_the_names_of_a_project_are_read_again_after_its_folder_changed(tmp_path: Path) -> None:
    os.utime(tmp_path, (1_000_000_000, 1_000_000_000))
    text = "class FilterModule:\n    def filters(self):\n        return {'shout': str}\n"

    def act() -> object:
        load_plugins()
        filter_loader.add_directory(str(tmp_path))
        known = guard._KnownPlugins(filter_loader)
        before = [sorted(known.names_of_project()) for _ in range(2)]
        (tmp_path / "own.py").write_text(text, encoding="utf-8")
        return [*before, sorted(known.names_of_project())]

    assert seen(act) == [[], [], ["shout"]]


@pytest.mark.parametrize(
    ("name", "known"), [("env", True), ("password", True), ("pipe", False), ("url", False), ("none.such", False)]
)
def test_lookups_without_effects_on_their_process_are_known(name: str, *, known: bool) -> None:
    def act() -> object:
        load_plugins()
        return guard._is_core(lookup_loader, name, safe.LOOKUPS)

    assert in_a_fork(act) == repr(known)
