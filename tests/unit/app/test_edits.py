"""What edits of a project's files mean: other watches, or kinds whose runs would come out differently."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from runner.app import edits
from runner.app.edits import ProjectPaths, WatchedSources, affected
from runner.config.paths import SearchPath, search_path
from runner.errors import ConfigError
from runner.objects import GVK
from runner.watches.watch import Finalizer, LoadedWatches, Playbook, Role, Watch

pytestmark = pytest.mark.lengthy

MakeWatch = Callable[..., Watch]
A, B = GVK("example.com", "v1", "A"), GVK("example.com", "v1", "B")


def role(path: Path) -> Role:
    return Role(path.name, path)


class TestWhoIsAffected:
    def test_a_role_affects_the_kinds_whose_watches_run_it(self, make_watch: MakeWatch, tmp_path: Path) -> None:
        finalizer = Finalizer("example.com/end", role(tmp_path / "roles/end"), {}, None)
        one = make_watch(gvk=A, content=role(tmp_path / "roles/a"), finalizer=finalizer)
        other = make_watch(gvk=B, content=role(tmp_path / "roles/b"))
        assert affected([one, other], [tmp_path / "roles/a/tasks/main.yml"]) == {A}
        assert affected([one, other], [tmp_path / "roles/end/tasks/main.yml"]) == {A}
        assert affected([one, other], [tmp_path / "roles/ab/tasks/main.yml"]) == {A, B}
        assert affected([one, other], []) == frozenset()

    def test_a_file_outside_of_all_roles_affects_all_kinds(self, make_watch: MakeWatch, tmp_path: Path) -> None:
        one = make_watch(gvk=A, content=role(tmp_path / "roles/a"))
        other = make_watch(gvk=B, content=role(tmp_path / "roles/b"))
        assert affected([one, other], [tmp_path / "ansible.cfg"]) == {A, B}

    def test_a_playbook_may_use_any_role(self, make_watch: MakeWatch, tmp_path: Path) -> None:
        one = make_watch(gvk=A, content=role(tmp_path / "roles/a"))
        other = make_watch(gvk=B, content=Playbook(tmp_path / "playbooks/b.yml"))
        assert affected([one, other], [tmp_path / "roles/a/tasks/main.yml"]) == {A, B}


class Bench:
    """A project whose watches file is what `watches` says, and `problem` what is wrong with it."""

    def __init__(self, folder: Path, watch: Watch) -> None:
        self._loop = asyncio.get_running_loop()
        self.folder = folder
        self.watches: tuple[Watch, ...] = (watch,)
        self.problem = ""
        self.refused = asyncio.Event()
        self.places: SearchPath = search_path(cwd=folder, roles_path="", collections_path="", environ={})
        self.sources = WatchedSources(
            ProjectPaths(folder / "watches.yaml", self.places, folder, self.load), LoadedWatches((watch,), ())
        )

    def load(self) -> LoadedWatches:
        if problem := self.problem:
            self._loop.call_soon_threadsafe(self.refused.set)
            raise ConfigError(problem)
        return LoadedWatches(self.watches, ())

    def write(self, name: str, text: str) -> None:
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        fresh = self.folder.with_suffix(".new")
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(self.folder / name)  # at once, so that no half of it is an edit of its own


@pytest_asyncio.fixture
async def bench(tmp_path: Path, make_watch: MakeWatch, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    monkeypatch.setattr(edits, "_SETTLE", 0.02)
    for name, text in {"roles/a/tasks/main.yml": "[]", "watches.yaml": "[]"}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    made = Bench(tmp_path, make_watch(gvk=A, content=role(tmp_path / "roles/a")))
    async with made.sources:
        yield made


@pytest.mark.asyncio
async def test_an_edit_of_a_role_names_its_kind_and_file(bench: Bench) -> None:
    bench.write("roles/a/tasks/main.yml", "[{}]")
    edit = await bench.sources.edited()
    assert edit.loaded is None
    assert edit.kinds == {A}
    assert edit.why == "roles/a/tasks/main.yml changed"


@pytest.mark.asyncio
async def test_a_new_file_in_a_new_folder_is_detected(bench: Bench) -> None:
    bench.write("roles/a/templates/deep/new.j2", "text")
    assert (await bench.sources.edited()).files == ("roles/a/templates/deep/new.j2",)


@pytest.mark.asyncio
async def test_changed_watches_are_returned_and_a_changed_comment_is_ignored(
    bench: Bench, make_watch: MakeWatch
) -> None:
    waiting = asyncio.create_task(bench.sources.edited())
    bench.watches = (make_watch(gvk=A, content=role(bench.folder / "roles/a"), line=7),)
    bench.write("watches.yaml", "# a comment\n[]")
    bench.write("roles/a/tasks/main.yml", "[{}]")
    assert (await waiting).loaded is None
    bench.watches = (make_watch(gvk=B, content=role(bench.folder / "roles/a")),)
    bench.write("watches.yaml", "[]")
    edit = await bench.sources.edited()
    assert edit.loaded == LoadedWatches(bench.watches, ())
    assert edit.files[0] == str(bench.folder / "watches.yaml")


@pytest.mark.asyncio
async def test_an_invalid_edit_is_logged_once_and_its_files_are_part_of_the_next_valid_edit(bench: Bench) -> None:
    with capture_logs() as logged:
        waiting = asyncio.create_task(bench.sources.edited())
        bench.problem = "watches.yaml:1: is wrong\nwatches.yaml:2: is wrong too"
        bench.write("roles/a/tasks/main.yml", "[{}]")
        await bench.refused.wait()
        bench.refused.clear()
        bench.write("roles/a/tasks/other.yml", "[{}]")
        await bench.refused.wait()
        bench.problem = ""
        bench.write("watches.yaml", "[ ]")
        edit = await waiting
    assert edit.files == ("roles/a/tasks/main.yml", "roles/a/tasks/other.yml")
    problems = [line["problem"] for line in logged if line["log_level"] == "error"]
    assert problems == ["watches.yaml:1: is wrong; watches.yaml:2: is wrong too"]


@pytest.mark.asyncio
async def test_a_log_file_beside_the_watches_file_is_ignored(bench: Bench) -> None:
    bench.watches = (bench.watches[0],)
    waiting = asyncio.create_task(bench.sources.edited())
    bench.write("operator.log", "line")
    bench.write("roles/a/tasks/main.yml", "[{}]")
    assert (await waiting).files == ("roles/a/tasks/main.yml",)
