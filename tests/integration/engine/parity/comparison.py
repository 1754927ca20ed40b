"""Runs one project with both engines, one after the other in the same folders, and compares everything they show.

As the folders are the same, no path may differ; what may stands in `differences.py`. With `settled` the engine under
test runs twice: what it learned from its first run, and has loaded before the second, must not show. Without that, a
second run would be a fork of the same server as the first, and repeat it. `PARITY_ENGINE=exec` compares the cold engine
with itself, which tests the list; `PARITY_KEEP=FOLDER` keeps what was seen where it differs; `PARITY_SETTLED=1` settles
every test, as `make test-nightly` does.
"""

from __future__ import annotations

import asyncio
import http.server
import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.base.config.settings import EngineName
from runner.core.engine.job import Event, Job, Outcome, RunResult
from runner.core.watches.watch import Content, Playbook, Role
from runner.values.objects import GVK, ObjectKey
from tests.integration.engine.parity.differences import differences
from tests.integration.engine.parity.observe import Observation, files, remains
from tests.kit.engines import ProcessEngines
from tests.kit.jobs import job_value
from tests.kit.wait import until

PROJECT = Path(__file__).with_name("project")
KIND = GVK("cache.example.com", "v1alpha1", "Memcached")


@dataclass(frozen=True, slots=True)
class Place:
    """Where all runs take place."""

    project: Path
    root: Path
    http: str

    @property
    def runs(self) -> Path:
        """What runs leave; what stands beside it is the engine's."""
        return self.root / KIND.group

    @property
    def works(self) -> Path:
        """What roles write."""
        return self.project.with_name("work")

    def run_dir(self, name: str = "sample") -> Path:
        return self.runs / KIND.version / KIND.kind / "default" / name

    def work(self, name: str = "sample") -> Path:
        return self.works / name


@dataclass(frozen=True, slots=True)
class Hanging:
    """A run of `hanging.yml` that hangs."""

    pid: int
    """The process that hangs."""
    events: list[Event]
    work: Path
    cancel: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Parity:
    """An engine, the name that it knows the engine under test by, and where runs take place."""

    engine: ProcessEngines
    name: EngineName
    place: Place
    processes_of: Callable[[Path], list[int]]
    keep: Path | None
    """Where pairs that differ are kept, as JSON."""

    async def __call__(
        self,
        content: Content | str,
        expected: Outcome = Outcome.SUCCEEDED,
        *,
        before: Callable[[], object] = lambda: None,
        any_order: bool = False,
        settled: bool = False,
        **changes: Any,
    ) -> Observation:
        """Run with both, compare, and return what the cold run showed. `content` may name a playbook of the project.

        `before` makes each run find the same. With `settled` the engine under test runs once more, after it has loaded
        what its first run has shown.
        """
        before()
        cold = await self.observe(content, "exec", **changes)
        assert cold.result.outcome is expected, f"{cold.result}\n{cold.stdout()[-3000:]}"
        settled = self.name != "exec" and (settled or bool(os.environ.get("PARITY_SETTLED")))
        for which in ("first", "second") if settled else ("only",):
            if which == "second":
                await self.engine.settle()
            before()
            other = await self.observe(content, self.name, **changes)
            self._compare(cold, other, f"{content}, {which} run:", any_order=any_order)
        return cold

    def _compare(self, cold: Observation, other: Observation, what: str, *, any_order: bool) -> None:
        found = differences(cold.value(), other.value(), any_order=any_order)
        if found and self.keep:
            number = len(list(self.keep.iterdir())) + 1
            kept = json.dumps([what, cold.value(), other.value(), any_order], default=str)
            (self.keep / f"{number}.json").write_text(kept, encoding="utf-8")
        assert not found, f"{what}\n{found}"

    async def under_test(self, content: Content | str, **changes: Any) -> Observation:
        """Run with the engine under test alone."""
        return await self.observe(content, self.name, **changes)

    async def interrupted(
        self,
        where: str,
        expected: Outcome,
        act: Callable[[Hanging], object],
        *,
        how: str = "",
        broken_off: bool = False,
        **changes: Any,
    ) -> Observation:
        """Run `hanging.yml` with both, `act` once it hangs, compare, and return what the cold run showed.

        With `broken_off` the run's own files may end anywhere: what is told to end may still write how its task failed.
        """
        seen = []
        for engine in ("exec", self.name):
            extra_vars = {"where": where, "how": how}
            one = await self.observe("hanging.yml", engine, act, extra_vars=extra_vars, **changes)
            assert one.result.outcome is expected, f"{one.result}\n{one.stdout()[-3000:]}"
            seen.append(one.broken_off() if broken_off else one)
        self._compare(seen[0], seen[1], f"{where} {how}:", any_order=False)
        return seen[0]

    async def together(self, content: str, expected: Outcome, count: int) -> None:
        """Run as many at once, with both engines; compare each with the one of the same name."""
        sides = []
        for engine in ("exec", self.name):
            self._clear()
            sides.append(await asyncio.gather(*(self._of_many(content, engine, f"run-{n}") for n in range(count))))
        for number, (cold, other) in enumerate(zip(*sides, strict=True)):
            assert cold.result.outcome is expected, f"{cold.result}\n{cold.stdout()[-3000:]}"
            self._compare(cold, other, f"{content}, {number} of {count}:", any_order=False)

    async def _of_many(self, content: str, engine: EngineName, name: str) -> Observation:
        return await self._observe(
            content, engine, None, name=name, extra_vars={"own": name}, environment={"OF_RUN": name}
        )

    async def observe(
        self, content: Content | str, engine: EngineName, act: Callable[[Hanging], object] | None = None, **changes: Any
    ) -> Observation:
        """Run once, in folders made anew."""
        self._clear()
        return await self._observe(content, engine, act, name="sample", **changes)

    def _clear(self) -> None:
        for folder in (self.place.runs, self.place.works):
            shutil.rmtree(folder, ignore_errors=True)

    async def _observe(
        self,
        content: Content | str,
        engine: EngineName,
        act: Callable[[Hanging], object] | None,
        *,
        name: str,
        **changes: Any,
    ) -> Observation:
        place, work = self.place, self.place.work(name)
        content = Playbook(place.project / content) if isinstance(content, str) else content
        work.mkdir(parents=True)
        events: list[Event] = []
        os.environ.pop("PYTEST_CURRENT_TEST", None)  # the name of the test is no reason for another fork server
        running = asyncio.create_task(self.engine.run(self.job(content, name, **changes), events.append, engine))
        if act:
            await until(lambda: running.done() or (work / "begun").exists(), "the run to hang")
            assert not running.done(), running.result()
            pid = int((work / "begun").read_text(encoding="ascii"))
            (work / "begun").unlink()
            act(Hanging(pid, events, work, running.cancel))
        try:
            result = await running
        except asyncio.CancelledError:
            result = RunResult(Outcome.CANCELED, None, (), "", None, 0.0)
        looked = await asyncio.to_thread(files, run=place.run_dir(name), work=work)
        return Observation(result, events, looked, remains(self.processes_of, place.root) if name == "sample" else [])

    def job(self, content: Content, name: str = "sample", **changes: Any) -> Job:
        """Describe a run; `extra_vars` and `environment` are added to what every run is given."""
        place = self.place
        given = {
            "work": str(place.work(name)),
            "http": place.http,
            "bare_python": sys._base_executable,  # type: ignore[attr-defined]  # as `venv` finds it
        }
        fields: dict[str, Any] = {
            "gvk": KIND,
            "key": ObjectKey("default", name),
            "content": content,
            "run_dir": place.run_dir(name),
            "deadline": 850.0,
            **changes,
            "extra_vars": {**given, **changes.get("extra_vars", {})},
            "environment": {"ANSIBLE_GATHERING": "explicit", **changes.get("environment", {})},
        }
        return job_value(**fields)

    def role(self, name: str) -> Role:
        """Return a role of the project."""
        return Role(name, self.place.project / "roles" / name)


class _Echo(http.server.BaseHTTPRequestHandler):
    """Answers with what it was asked."""

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        text = f"{self.command} {self.path}\n{self.rfile.read(length).decode()}".encode()
        self.send_response(404 if self.path == "/missing" else 200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_POST = do_GET  # noqa: N815 - the name that the server looks for

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class' name
        """Say nothing."""
