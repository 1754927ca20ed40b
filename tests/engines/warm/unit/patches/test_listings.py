"""Plugins that are found once: what Ansible finds, also after something was added."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from ansible.plugins.loader import PluginLoader, module_loader

from runner.engines.warm.patches import listings
from tests.kit.forks import load_plugins, seen


def _make_old(folder: Path) -> None:
    os.utime(folder, (1_000_000_000, 1_000_000_000))


class Searches:
    """Ansible's searches for modules with the shortcut, and how many of them Ansible did itself."""

    def __init__(self, root: Path) -> None:
        load_plugins(str(root))
        self.root = root
        self.count = 0
        step = PluginLoader._resolve_plugin_step

        def counted(*args: Any, **options: Any) -> Any:
            self.count += 1
            return step(*args, **options)

        PluginLoader._resolve_plugin_step = counted
        listings.install()

    def find(self, name: str, collections: Iterable[str] = ()) -> str:
        """Return the file that two searches find, relative to the collections."""
        paths = {module_loader.find_plugin(name, collection_list=list(collections)) for _ in range(2)}
        (path,) = paths
        return str(path).removeprefix(f"{self.root}/ansible_collections/")


def collection(root: Path, name: str, *modules: str, routing: str = "") -> Path:
    """Make a collection that has not changed for a long time; return its folder of modules."""
    folder = root / "ansible_collections" / name.replace(".", "/")
    (folder / "plugins").mkdir(parents=True)
    (folder / "meta").mkdir()
    (folder / "meta/runtime.yml").write_text(routing or "requires_ansible: '>=2.9'\n", encoding="utf-8")
    found = folder / "plugins/modules"
    for module in modules:
        found.mkdir(exist_ok=True)
        (found / f"{module}.py").touch()
    for each in (folder, folder / "plugins", found):
        if each.exists():
            _make_old(each)
    return found


def test_a_module_is_searched_once_and_each_caller_gets_its_own_result(tmp_path: Path) -> None:
    def act() -> Any:
        searches = Searches(tmp_path)
        results = [module_loader.find_plugin_with_context("copy") for _ in range(3)]
        results[0].redirect_list.append("changed")
        results[1].load_attempts.append("changed")
        return [searches.count, results[2].redirect_list, "changed" in results[2].load_attempts]

    assert seen(act) == [1, ["copy"], False]


@pytest.mark.parametrize("others", [[], ["other"]])
def test_an_earlier_collection_is_searched_again_when_a_module_is_added_to_it(
    tmp_path: Path, others: list[str]
) -> None:
    first = collection(tmp_path, "first.one", *others)
    collection(tmp_path, "second.one", "thing")

    def act() -> Any:
        searches, names = Searches(tmp_path), ("first.one", "second.one", "ansible.legacy")
        before, count = searches.find("thing", names), searches.count
        first.mkdir(exist_ok=True)
        (first / "thing.py").touch()
        return [before, count, searches.find("thing", names), searches.count > count]

    assert seen(act) == ["second/one/plugins/modules/thing.py", 1, "first/one/plugins/modules/thing.py", True]


def test_a_module_in_a_folder_of_the_project_that_was_added_is_found(tmp_path: Path) -> None:
    (tmp_path / "library").mkdir()
    (tmp_path / "library/copy.py").touch()

    def act() -> Any:
        searches = Searches(tmp_path)
        before = searches.find("copy")
        module_loader.add_directory(str(tmp_path / "library"))
        return [before == searches.find("copy"), searches.find("copy").endswith("/library/copy.py")]

    assert seen(act) == [False, True]


@pytest.mark.parametrize(
    "entry", ["deprecation: {warning_text: old, removal_version: 9.0.0}", "redirect: own.new.thing"]
)
def test_a_search_with_a_message_is_repeated(tmp_path: Path, entry: str) -> None:
    collection(tmp_path, "own.old", "thing", routing=f"plugin_routing: {{modules: {{thing: {{{entry}}}}}}}\n")
    collection(tmp_path, "own.new", "thing")

    def act() -> Any:
        searches = Searches(tmp_path)
        searches.find("own.old.thing")
        return searches.count

    assert seen(act) == (4 if entry.startswith("redirect") else 2)


def test_a_module_that_is_not_found_is_searched_again(tmp_path: Path) -> None:
    own = collection(tmp_path, "own.one", "other")

    def act() -> Any:
        searches = Searches(tmp_path)
        before = searches.find("own.one.thing")
        (own / "thing.py").touch()
        return [before, searches.find("own.one.thing")]

    assert seen(act) == ["None", "own/one/plugins/modules/thing.py"]
