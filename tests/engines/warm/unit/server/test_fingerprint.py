"""What is watched for changes: whatever decides what a fork server loads."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import ansible
import pytest
from ansible.plugins.loader import lookup_loader

from runner.engines.warm.server import fingerprint
from runner.engines.warm.stamps import stamp
from tests.kit.forks import in_a_fork, load_plugins


@pytest.fixture
def collections(tmp_path: Path) -> Path:
    """A folder of collections with `own.utils`."""
    folder = tmp_path / "collections" / "ansible_collections" / "own" / "utils"
    (folder / "plugins" / "module_utils").mkdir(parents=True)
    (folder / "plugins" / "module_utils" / "helper.py").write_text("value = 1\n", encoding="utf-8")
    return tmp_path / "collections"


def watched(collections: Path, *imports: str) -> set[str]:
    """Return what is watched where these have been imported."""

    def act() -> object:
        load_plugins(str(collections))
        for name in imports:
            __import__(name)
        return fingerprint.watched()

    found: tuple[str, ...] = eval(in_a_fork(act))  # noqa: S307 - a tuple of strings, as it was written
    return set(found)


def test_packages_and_the_folders_where_there_could_be_some_are_watched(collections: Path) -> None:
    found = watched(collections)

    assert str(Path(ansible.__file__).parent) in found
    assert {path for path in sys.path if path.endswith("site-packages")} <= found


def test_a_library_that_is_overwritten_in_place_changes_a_watched_stamp(
    collections: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "site-packages" / "watched_library"
    library.mkdir(parents=True)
    (library / "__init__.py").touch()
    part = library / "part.py"
    part.write_text("value = 1\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(library.parent))

    # Only those of the test: pytest and other processes write to folders that are watched too.
    paths = [path for path in watched(collections, "watched_library.part") if path.startswith(str(tmp_path))]
    before = {path: stamp(path) for path in paths}
    with part.open("r+", encoding="utf-8") as file:
        file.write("value = 2\n")
    os.utime(part, ns=(0, 0))

    assert [path for path in paths if stamp(path) != before[path]] == [str(part)]


def test_the_standard_library_is_not_watched(collections: Path) -> None:
    assert str(Path(os.__file__).parent) not in watched(collections)


@pytest.mark.lengthy
def test_collections_are_watched_as_folders_until_something_of_them_is_loaded(collections: Path) -> None:
    helper = collections / "ansible_collections/own/utils/plugins/module_utils/helper.py"

    before = watched(collections)
    after = watched(collections, "ansible_collections.own.utils.plugins.module_utils.helper")

    for folder in ("", "own", "own/utils"):
        assert str(collections / "ansible_collections" / folder) in before
    assert str(helper) not in before
    assert str(helper) in after


def test_missing_configuration_files_are_watched_too(
    collections: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ANSIBLE_CONFIG", str(tmp_path / "own.cfg"))

    assert {str(tmp_path / "own.cfg"), "/etc/ansible/ansible.cfg"} <= watched(collections)


def test_folders_of_plugins_that_are_configured_are_watched_with_their_files(collections: Path, tmp_path: Path) -> None:
    (tmp_path / "lookups").mkdir()
    (tmp_path / "lookups" / "own.py").write_text("", encoding="utf-8")

    def act() -> object:
        load_plugins(str(collections))
        lookup_loader.config = [str(tmp_path / "lookups")]
        found = fingerprint.watched()
        return str(tmp_path / "lookups") in found, str(tmp_path / "lookups" / "own.py") in found

    assert in_a_fork(act) == "(True, True)"
