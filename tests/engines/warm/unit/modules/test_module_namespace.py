"""What modules find in their interpreter: what was imported aside for them, and what of it no longer holds.

What changes the process for good is looked at in forks.
"""

from __future__ import annotations

import importlib
import logging
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from runner.engines.warm import versions
from runner.engines.warm.modules import module_namespace
from runner.engines.warm.modules.module_namespace import ModuleNamespace
from runner.engines.warm.modules.payload import Entry, Payload, digest_of
from tests.kit.forks import in_a_fork, seen

UTILS = "ansible_collections.own.utils"
MAIN = f"{UTILS}.plugins.modules.main"
PACKAGES = ("ansible_collections", "ansible_collections.own", UTILS, f"{UTILS}.plugins", f"{UTILS}.plugins.modules")


@pytest.fixture
def files(tmp_path: Path) -> Callable[..., Payload]:
    """Write a module and what it needs, by Python names; of the same names the last text counts."""

    def write(main: str, **utils: str) -> Payload:
        entries: dict[str, Entry] = {}
        for package in PACKAGES:
            entries[package] = Entry(f"<payload>/{package}", b"", is_package=True, source=b"", is_builtin=False)
        for name, text in {MAIN: main, **{f"{UTILS}.{name}": text for name, text in utils.items()}}.items():
            path = tmp_path / f"{name.rpartition('.')[2]}.py"
            path.write_text(text, encoding="utf-8")
            digest = digest_of(text.encode())
            entries[name] = Entry(str(path), digest, is_package=False, source=None, is_builtin=False)
        return Payload(MAIN, entries[MAIN].path, entries, (), (), starts_anew=False)

    return write


Files = Callable[..., Payload]


def build(*payloads: Payload, skip: frozenset[str] = frozenset()) -> ModuleNamespace:
    return module_namespace.build(payloads, skip, sys.path, ())


def value_of(namespace: ModuleNamespace, payload: Payload, name: str = f"{UTILS}.helper") -> str:
    """Return the `value` that a module finds by importing this."""

    def act() -> object:
        module_namespace.enter(namespace)
        module_namespace.take(namespace, payload, "/archive")
        return importlib.import_module(name).value

    return in_a_fork(act)


def test_modules_imported_for_the_namespace_are_separate_from_the_controllers(files: Files) -> None:
    import ansible.module_utils.common.text.converters as controllers  # noqa: PLC0415 - that is the subject

    before = dict(sys.modules)
    meta_path, path = list(sys.meta_path), list(sys.path)

    namespace = build(files("import os\n", helper="value = 1\n"))

    assert namespace.modules[f"{UTILS}.helper"].value == 1
    assert f"{UTILS}.helper" not in sys.modules
    assert sys.modules["ansible.module_utils.common.text.converters"] is controllers
    assert {name for name in sys.modules if module_namespace.is_ours(name)} == {
        name for name in before if module_namespace.is_ours(name)
    }
    assert (sys.meta_path, sys.path) == (meta_path, path)


def test_modules_themselves_are_compiled_and_not_imported(files: Files) -> None:
    payload = files("raise SystemExit\n", helper="value = 1\n")

    namespace = build(payload)

    assert MAIN not in namespace.modules
    assert [path for path, _ in namespace.codes] == [payload.path]


@pytest.mark.parametrize("text", ["raise ValueError\n", "import there_is_no_such_library\n", "this is no Python\n"])
def test_a_file_that_cannot_be_imported_is_not_in_the_namespace(files: Files, text: str) -> None:
    namespace = build(files("pass\n", broken=text, helper="value = 1\n"))

    assert f"{UTILS}.broken" not in namespace.modules
    assert f"{UTILS}.helper" in namespace.modules


def test_a_module_finds_its_own_file_where_that_was_changed_since(files: Files) -> None:
    namespace = build(files("pass\n", helper="value = 'before'\n"))

    assert value_of(namespace, files("pass\n", helper="value = 'after, and longer'\n")) == "'after, and longer'"


def test_a_module_finds_nothing_of_collections_but_what_its_payload_holds(files: Files) -> None:
    namespace = build(files("pass\n", helper="value = 1\n", other="value = 2\n"))

    found = value_of(namespace, files("pass\n", helper="value = 1\n"), f"{UTILS}.other")

    assert found == f"ModuleNotFoundError(\"No module named '{UTILS}.other'\")"


def test_two_payloads_with_different_files_each_find_their_own(files: Files, tmp_path: Path) -> None:
    first = files("pass\n", helper="value = 'first'\n")
    (tmp_path / "second.py").write_text("value = 'second'\n", encoding="utf-8")
    own = Entry(str(tmp_path / "second.py"), digest_of(b"value = 'second'\n"), False, None, False)  # noqa: FBT003
    second = Payload(MAIN, first.path, {**first.entries, f"{UTILS}.helper": own}, (), (), starts_anew=False)

    namespace = build(first, second)

    assert value_of(namespace, first) == "'first'"
    assert value_of(namespace, second) == "'second'"


def test_modules_see_nothing_of_what_the_controller_set_up(files: Files) -> None:
    payload = files("pass\n")
    namespace = build(payload)

    def act() -> Mapping[str, Any]:
        logging.root.addHandler(logging.NullHandler())
        warnings.simplefilter("error")
        sys.path.insert(0, "/controller")
        module_namespace.enter(namespace)
        module_namespace.take(namespace, payload, "/archive")
        return {
            "handlers": logging.root.handlers,
            "filters": tuple(warnings.filters) == namespace.filters,
            "path": sys.path[0],
            "controller": "/controller" in sys.path,
            "ansible": [
                name for name in sys.modules if module_namespace.is_ours(name) and name not in namespace.modules
            ],
        }

    expected = {"handlers": [], "filters": True, "path": "/archive", "controller": False, "ansible": []}
    assert in_a_fork(act) == repr(expected)


@pytest.mark.skipif(not versions.TAGGED, reason="ansible-core 2.18 names no module that deprecates something")
def test_what_deprecates_something_has_the_name_that_its_place_in_the_archive_gives_it() -> None:
    names = {"ansible.legacy.own": "own", "ansible.modules.uri": "uri", "ansible.module_utils.shared": "shared"}
    entries = {
        name: Entry(f"/project/{file}.py", b"", is_package=False, source=None, is_builtin=False)
        for name, file in names.items()
    }
    of_collection = "/x/ansible_collections/own/utils/plugins/modules/main.py"

    def act() -> object:
        deprecator = importlib.import_module("ansible.module_utils._internal._deprecator")
        module_namespace._name_files(deprecator, entries)
        paths = [*(entry.path for entry in entries.values()), of_collection]
        return [deprecator._path_as_plugininfo(path).resolved_name for path in paths]

    assert seen(act) == ["ansible.legacy.own", "ansible.builtin.uri", "ansible.builtin", "own.utils.main"]
