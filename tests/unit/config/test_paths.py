from __future__ import annotations

import sys
from pathlib import Path

import pytest

from runner.base.config import paths
from runner.base.config.paths import SearchPath
from runner.values.objects import GVK, ObjectKey


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def places(cwd: Path, roles: str = "", collections: str = "") -> SearchPath:
    environ = {"HOME": str(cwd.parent / "home")}
    return paths.search_path(cwd=cwd, roles_path=roles, collections_path=collections, environ=environ)


def make(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def test_a_missing_role_lists_the_searched_folders_in_order(cwd: Path) -> None:
    found = paths.find_role("memcached", places(cwd, f"{cwd}/a::~/b"))
    assert found.path is None
    assert found.searched == (
        cwd / "a/memcached",
        cwd / "a/roles/memcached",
        cwd.parent / "home/b/memcached",
        cwd.parent / "home/b/roles/memcached",
        cwd / "roles/memcached",
    )


def test_an_absolute_role_is_searched_only_at_its_path(cwd: Path) -> None:
    make(cwd / "roles/memcached")
    wrong = paths.find_role("/nowhere/memcached", places(cwd))
    assert wrong == paths.SearchResult(None, (Path("/nowhere/memcached"),))
    role = make(cwd / "elsewhere")
    assert paths.find_role(str(role), places(cwd)).path == role


def test_a_file_is_not_found_as_a_role(cwd: Path) -> None:
    make(cwd / "roles")
    (cwd / "roles/memcached").touch()
    assert paths.find_role("memcached", places(cwd)).path is None


@pytest.mark.parametrize(
    "root", ["given/ansible_collections", "../home/.ansible/collections/ansible_collections", "roles"], ids=str
)
def test_a_role_of_a_collection_is_found_by_its_full_name(cwd: Path, root: str) -> None:
    inside = "cache.tools.memcached" if root == "roles" else "cache/tools/roles/memcached"
    role = make(cwd.parent / "project" / root / inside)
    found = paths.find_role("cache.tools.memcached", places(cwd, collections="given"))
    assert found.path is not None
    assert found.path.samefile(role)


def test_a_collections_path_may_name_the_folder_ansible_collections_itself(cwd: Path) -> None:
    role = make(cwd / "given/ansible_collections/cache/tools/roles/memcached")
    found = paths.find_role("cache.tools.memcached", places(cwd, collections="given/ansible_collections"))
    assert found.path == role


def test_a_missing_role_of_a_collection_lists_the_default_folders(cwd: Path) -> None:
    tried = paths.find_role("cache.tools.memcached", places(cwd, collections="given")).searched
    below = "ansible_collections/cache/tools/roles/memcached"
    assert tried[:3] == (
        cwd / "given" / below,
        cwd.parent / "home/.ansible/collections" / below,
        Path("/usr/share/ansible/collections") / below,
    )
    assert tried[-1] == cwd / "roles/cache.tools.memcached"


def test_collections_of_python_packages_and_of_the_operator_are_found(
    cwd: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    collection = make(tmp_path / "site-packages/ansible_collections/cache/tools")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "site-packages")])
    assert paths.find_collection("cache.tools", places(cwd)).path == collection
    shipped = Path(paths.__file__).parents[2] / "collections/ansible_collections"
    assert shipped in places(cwd).collections


def environment(cwd: Path, roles: str = "", collections: str = "", **environ: str) -> dict[str, str]:
    """Return the variables of runs for a user whose HOME, and so ~/.ansible.cfg, is beside the project."""
    given = {"HOME": str(cwd.parent / "home"), **environ}
    return paths.ansible_environment(places(cwd, roles, collections), given, cwd)


def config(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def without_system_config(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ignore the /etc/ansible/ansible.cfg of the machine that runs the tests."""
    own = paths.ansible_configs
    monkeypatch.setattr(paths, "ansible_configs", lambda environ, cwd: own(environ, cwd)[:-1])


def test_ansibles_environment_contains_the_search_paths_as_absolute_paths(cwd: Path) -> None:
    home = cwd.parent / "home"
    assert environment(cwd, "my-roles", "given") == {
        "ANSIBLE_ROLES_PATH": f"{cwd}/my-roles:{cwd}/my-roles/roles",
        "ANSIBLE_COLLECTIONS_PATH": f"{cwd}/given:{home}/.ansible/collections:/usr/share/ansible/collections",
    }


@pytest.mark.usefixtures("without_system_config")
@pytest.mark.parametrize(
    ("text", "environ", "home"),
    [
        ("", {}, "~/.ansible"),
        ("[defaults]\nforks = 3\n", {}, "~/.ansible"),
        ("[defaults]\nhome = /a%%\n", {}, "/a%%"),
        ("[defaults]\nhome = /a\n", {"ANSIBLE_HOME": "/b"}, "/b"),
        ("[galaxy]\nroles_path = /no-such-setting\n", {}, "~/.ansible"),
        ("not an INI file", {}, "~/.ansible"),
    ],
)
def test_plays_find_roles_of_the_project_as_in_the_image(
    cwd: Path, text: str, environ: dict[str, str], home: str
) -> None:
    config(cwd.parent / "home/.ansible.cfg", text)
    assert environment(cwd, **environ) == {
        "ANSIBLE_ROLES_PATH": f"{cwd}/roles:{home}/roles:/usr/share/ansible/roles:/etc/ansible/roles"
    }


def test_default_paths_do_not_override_those_of_ansible_cfg(cwd: Path) -> None:
    config(cwd.parent / "home/.ansible.cfg", "[defaults]\nroles_path = ~/shared-roles ; of all projects\n")
    assert environment(cwd) == {}


def test_only_the_file_that_ansible_reads_counts(cwd: Path) -> None:
    config(cwd / "ansible.cfg", "[defaults]\nroles_path = /not-read-by-runs\n")
    config(cwd.parent / "home/.ansible.cfg", "[defaults]\nroles_path = /hidden\n")
    config(cwd / "settings/ansible.cfg", "[defaults]\nforks = 3\n")
    for given in ("settings", "settings/ansible.cfg"):
        found = environment(cwd, ANSIBLE_CONFIG=given)
        assert found["ANSIBLE_CONFIG"] == f"{cwd}/settings/ansible.cfg"
        assert found["ANSIBLE_ROLES_PATH"].startswith(f"{cwd}/roles:")


def test_an_object_has_a_run_folder_of_its_own() -> None:
    memcached, key = GVK("cache.example.com", "v1", "Memcached"), ObjectKey("team", "sample")
    assert paths.run_dir(Path("/r"), memcached, key) == Path("/r/cache.example.com/v1/Memcached/team/sample")
    assert paths.run_dir(Path("/r"), GVK("", "v1", "Node"), ObjectKey("", "n")) == Path("/r/v1/Node/n")
