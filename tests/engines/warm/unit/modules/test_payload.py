"""What of a payload is noticed to have changed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.engines.warm.modules import payload
from runner.engines.warm.modules.payload import Entry, NotPlain, Payload
from runner.engines.warm.stamps import Stamp, stamp
from tests.kit.forks import in_a_fork, load_plugins, seen


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "module.py"
    path.write_text("pass\n", encoding="utf-8")
    return path


def resolved(path: Path, around: tuple[Stamp, ...] = ()) -> Payload:
    entry = Entry(str(path), b"", is_package=False, source=None, is_builtin=False)
    seen = stamp(str(path))
    assert seen
    return Payload("own.module", str(path), {"own.module": entry}, (seen,), around, starts_anew=False)


def rewrite(module: Path) -> None:
    module.write_text("pass  # more\n", encoding="utf-8")


def replace(module: Path) -> None:
    """Replace it by a file of the same age and size."""
    status = module.stat()
    other = module.with_name("other.py")
    other.write_text("pasS\n", encoding="utf-8")
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(module)


@pytest.mark.parametrize("change", [rewrite, replace, Path.unlink])
def test_a_payload_is_valid_until_a_file_of_it_changes(module: Path, change: Callable[[Path], None]) -> None:
    known = resolved(module)
    assert known.is_valid(())
    change(module)
    assert not known.is_valid(())


@pytest.mark.lengthy
def test_a_module_written_during_its_resolution_is_not_cached(module: Path) -> None:
    source = b"import os\n"  # as it was when it was read

    def act() -> object:
        load_plugins()
        return payload.resolve("own", str(module), source)

    assert in_a_fork(act) == repr(NotPlain(f"{module} is being written"))


def test_a_payload_expires_when_another_file_could_override_a_part_of_it(module: Path, tmp_path: Path) -> None:
    folder = tmp_path / "module_utils"
    folder.mkdir()
    known = resolved(module, payload.overrides([str(folder)], "/builtin"))
    assert known.is_valid(payload.overrides([str(folder)], "/builtin"))

    (folder / "basic.py").write_text("pass\n", encoding="utf-8")

    assert not known.is_valid(payload.overrides([str(folder)], "/builtin"))


def test_ansibles_own_folder_overrides_nothing_by_whatever_name(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "basic.py").write_text("pass\n", encoding="utf-8")
    (tmp_path / "link").symlink_to(own)

    assert payload.overrides([str(own), str(tmp_path / "link")], os.path.realpath(own)) == ()


def test_strings_of_ansibles_own_kinds_become_plain_ones_byte_by_byte() -> None:
    class Own(str):
        __slots__ = ()

    found = payload.plain(Own("ä\udcff"))

    assert (type(found), found) == (str, "ä\udcff")


@pytest.mark.lengthy
def test_a_module_of_a_collection_is_resolved_with_every_synthetic_package(tmp_path: Path) -> None:
    folder = tmp_path / "ansible_collections" / "own" / "kit" / "plugins"
    (folder / "modules").mkdir(parents=True)
    (folder / "module_utils").mkdir()
    (folder / "module_utils" / "helper.py").write_text("ANSWER = 42\n", encoding="utf-8")
    path = folder / "modules" / "tell.py"
    path.write_text("from ansible_collections.own.kit.plugins.module_utils.helper import ANSWER\n", encoding="utf-8")

    def act() -> object:
        load_plugins(str(tmp_path))
        found = payload.resolve("own.kit.tell", str(path), path.read_bytes())
        return {name: entry.read().decode() for name, entry in found.entries.items() if "own" in name}

    entries = seen(act)
    assert entries["ansible_collections.own.kit.plugins.module_utils.helper"] == "ANSWER = 42\n"
    assert entries["ansible_collections.own.kit.plugins.modules"] == ""


@pytest.mark.lengthy
def test_files_that_payloads_have_in_common_are_parsed_once() -> None:
    def act() -> object:
        load_plugins()
        from ansible.executor import module_common  # noqa: PLC0415 - not in the process of the tests
        from ansible.plugins.loader import module_loader  # noqa: PLC0415 - as above

        def resolved(name: str) -> Payload:
            path = module_loader.find_plugin(name)
            return payload.resolve(name, path, Path(path).read_bytes())

        apart = resolved("stat"), resolved("file")
        with payload.parsed_once():
            together = resolved("stat"), resolved("file")
            known = module_common.compile.cache_info()
        return together == apart, known.hits >= len(apart[0].entries) - 10, hasattr(module_common, "compile")

    assert in_a_fork(act) == repr((True, True, False))
