"""An operator whose view of the cluster lags, misses events, or ends between two writes.

Three families, after the Sieve project (https://www.usenix.org/conference/osdi22/presentation/sun): intermediate states
(the operator ends before or after each of its effective writes), unobserved states (events are merged, or lost with a
410), and stale states (a frozen watch, and a start against an API server that lags). The relay makes the faults, and a
watch of the test's own sees what really happens.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml

from runner.sdk.devcluster import DevCluster
from tests.faults import history
from tests.faults.history import OUTSIDE, Seen
from tests.faults.world import NAMESPACE, World, world
from tests.kit.objects import GROUP, Api
from tests.kit.relay import KillPoint, Release
from tests.kit.wait import patience, wait_until

FINALIZER = f"{GROUP}/views"
THINGS = f"/apis/{GROUP}/v1/namespaces/{NAMESPACE}/things"
MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
SKIPPED = "Run skipped: the object was deleted, and the watch has not delivered the event yet"
MOST_WRITES = 60
"""More than the story has, so that its end is noticed."""
PARTS = 4
"""Tests of the enumeration."""

TASKS = """---
- name: Begin
  note: &note
    path: "{notes}"
    what: begin
    words:
      - "{{{{ ansible_operator_meta.name }}}}"
      - "{{{{ _test_example_com_thing.metadata.uid }}}}"
      - "{{{{ _test_example_com_thing.metadata.generation }}}}"
      - "{{{{ 'finalizing' if finalizing | default(false) else 'ordinary' }}}}"

- name: Make what the resource owns, and what it does not
  kubernetes.core.k8s:
    definition:
      - apiVersion: v1
        kind: ConfigMap
        metadata:
          name: "{{{{ ansible_operator_meta.name }}}}"
          namespace: "{{{{ ansible_operator_meta.namespace }}}}"
        data:
          size: "{{{{ size | string }}}}"
          owner: "{{{{ _test_example_com_thing.metadata.uid }}}}"
      - apiVersion: v1
        kind: ConfigMap
        metadata:
          name: "{{{{ ansible_operator_meta.name }}}}-outside"
          namespace: "{{{{ ansible_operator_meta.namespace }}}}"
          annotations:
            ansible.sdk.operatorframework.io/inject-owner: "false"
        data:
          owner: "{{{{ _test_example_com_thing.metadata.uid }}}}"
  when: not finalizing | default(false)

- name: Delete what the resource does not own
  kubernetes.core.k8s:
    api_version: v1
    kind: ConfigMap
    name: "{{{{ ansible_operator_meta.name }}}}-outside"
    namespace: "{{{{ ansible_operator_meta.namespace }}}}"
    state: absent
  when: finalizing | default(false)

- name: End
  note:
    <<: *note
    what: end
"""


class Witness:
    """A watch of the API server itself, from now on."""

    def __init__(self, api: Api, path: str) -> None:
        self._client = api._client
        listed = api.call("GET", path)
        self._path = f"{path}?watch=true&resourceVersion={listed['metadata']['resourceVersion']}"
        self._answer: urllib3.BaseHTTPResponse | None = None
        self.seen: list[Seen] = []
        self._ready = threading.Event()
        self._stops = False
        self._thread = threading.Thread(target=self._follow, name="witness", daemon=True)

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(patience())

    def _follow(self) -> None:
        self._answer = self._client.rest_client.pool_manager.request(
            "GET", self._client.configuration.host + self._path, preload_content=False, timeout=None
        )
        self._ready.set()
        rest = b""
        try:
            for piece in self._answer.stream(1 << 16):
                *lines, rest = (rest + piece).split(b"\n")
                for event in map(json.loads, lines):
                    self.seen.append(Seen.of(event["type"], event["object"]))
        except (urllib3.exceptions.HTTPError, OSError):
            if not self._stops:
                raise

    def stop(self) -> None:
        self._stops = True
        if self._answer is not None:
            self._answer.shutdown()
        self._thread.join(patience())
        if self._answer is not None:
            self._answer.close()


@dataclass
class View:
    """The world of one test."""

    world: World
    witnesses: list[Witness] = field(default_factory=list)
    kills: int = 0
    first_line: int = 0

    def begin(self, *, finalizer: bool) -> None:
        """Start an operator, with or without a finalizer."""
        watch: dict[str, Any] = {"group": GROUP, "version": "v1", "kind": "Thing", "role": "thing"}
        watch["retry"] = {"delay": "500ms", "maxDelay": "4s"}
        if finalizer:
            watch["finalizer"] = {"name": FINALIZER, "vars": {"finalizing": True}}
        (self.world.folder / "project/watches.yaml").write_text(yaml.safe_dump([watch]), encoding="utf-8")
        self.world.relay.lag(THINGS)
        self.first_line = len(self.world.written())
        for path in (THINGS, MAPS):
            witness = Witness(self.world.api, path)
            witness.start()
            self.witnesses.append(witness)
        self.start()

    def start(self) -> None:
        self.world.start_operator()
        self.world.await_ready()

    def end(self) -> None:
        if self.world.lives and self.world.life.process.poll() is None:
            self.world.stop_operator(signal.SIGKILL)
        for witness in self.witnesses:
            witness.stop()

    @property
    def seen(self) -> list[Seen]:
        return [seen for witness in self.witnesses for seen in list(witness.seen)]

    def create(self, name: str, size: int) -> str:
        return str(self.world.things.create(name, {"size": size})["metadata"]["uid"])

    def converge(self, sizes: Mapping[str, int]) -> None:
        """Wait for the wanted end state."""
        api = self.world.api

        def differences() -> list[str]:
            if self.world.life.process.poll() is not None:  # it was ended at a write
                self.kills += 1
                self.start()
            return history.not_as_wanted(api.call("GET", THINGS)["items"], api.call("GET", MAPS)["items"], sizes)

        wait_until(lambda: not differences(), lambda: "\n".join([*differences(), self.world.last_words()]))

    def check(self, explained: Mapping[str, int] | None = None) -> None:
        """Check what must hold of everything that happened; `explained`: further creations by name."""
        lines = self.world.written()[self.first_line :]
        explained = explained or {}
        found = [
            *history.repeated(self.seen, explained),
            *history.lost_twice(self.seen, explained),
            *history.robbed(self.seen),
            *history.finalized_wrongly(lines, self.kills),
            *history.not_current(self.seen),
        ]
        assert found == [], "\n".join([*found, *map(str, lines), self.world.last_words()])

    def logged(self, message: str) -> list[dict[str, Any]]:
        return [line for life in self.world.lives for line in life.lines(message)]


@pytest.fixture(scope="module")
def _world(devcluster: DevCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("views")
    command = (str(Path(sys.executable).with_name("ansible-operator")),)
    with world(devcluster, folder, random.Random(1), command) as made:
        tasks = folder / "project/roles/thing/tasks/main.yml"
        tasks.write_text(TASKS.format(notes=made.notes), encoding="utf-8")
        yield made


@pytest.fixture
def view(_world: World) -> Iterator[View]:
    made = View(_world)
    yield made
    made.end()
    _world.relay.forget_writes()
    for thing in _world.api.call("GET", THINGS)["items"]:
        name = thing["metadata"]["name"]
        _world.things.merge(name, {"metadata": {"finalizers": None}})
        _world.things.delete(name)
    for config_map in _world.api.call("GET", MAPS)["items"]:
        if (config_map.get("data") or {}).get("owner"):
            _world.api.call("DELETE", f"{MAPS}/{config_map['metadata']['name']}")


def _replace(view: View, name: str, size: int) -> str:
    """Delete an object and create it again under its name, as fast as possible; return the new UID."""
    view.world.things.delete(name)
    view.world.things.await_gone(name)
    return view.create(name, size)


# Stale states.


@pytest.mark.nightly
def test_while_the_watch_lags_a_recreated_object_gets_no_further_runs_for_its_old_uid(view: View) -> None:
    view.begin(finalizer=False)
    old = view.create("one", 1)
    view.converge({"one": 1})
    view.world.relay.freeze(THINGS)
    _replace(view, "one", 2)
    # The garbage collector deletes what the old object owned, and the watch of dependents reports that.
    wait_until(lambda: view.logged(SKIPPED), lambda: f"the run to be skipped; {view.world.last_words()}")
    assert [line["uid"] for line in view.logged(SKIPPED)] == [old] * len(view.logged(SKIPPED))
    view.world.relay.thaw(THINGS)
    view.converge({"one": 2})
    view.check()


@pytest.mark.nightly
def test_an_operator_that_starts_against_a_lagging_api_server_finalizes_nothing_of_a_newer_object(view: View) -> None:
    view.begin(finalizer=True)
    view.create("two", 1)
    view.converge({"two": 1})
    view.world.stop_operator(signal.SIGKILL)
    things = view.world.things
    things.delete("two")
    past = view.world.api.call("GET", THINGS)
    assert [item["metadata"]["deletionTimestamp"] for item in past["items"]]
    view.world.relay.freeze(THINGS, past)
    things.merge("two", {"metadata": {"finalizers": None}})
    new = view.create("two", 2)
    view.world.api.call("DELETE", f"{MAPS}/two{OUTSIDE}")
    view.world.api.call("POST", MAPS, {"metadata": {"name": f"two{OUTSIDE}"}, "data": {"owner": new}})
    view.start()
    wait_until(lambda: view.logged(SKIPPED), lambda: f"the finalizer to be skipped; {view.world.last_words()}")
    view.world.relay.thaw(THINGS)
    view.converge({"two": 2})
    view.check()


@pytest.mark.nightly
def test_an_operator_that_runs_objects_of_old_uids_is_detected(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = (sys.executable, str(Path(__file__).with_name("broken.py")), "owners")
    monkeypatch.setattr(view.world, "command", broken)
    view.begin(finalizer=False)
    old = view.create("broken", 1)
    view.converge({"broken": 1})
    view.world.relay.freeze(THINGS)
    _replace(view, "broken", 2)
    wait_until(
        lambda: history.repeated(view.seen, {}) and history.lost_twice(view.seen, {}),
        lambda: f"dependents to be made and deleted again; {view.world.last_words()}",
    )
    with pytest.raises(AssertionError, match=f"broken was made [0-9]+ times for {old}"):
        view.check()
    view.world.relay.thaw(THINGS)


# Unobserved states.


@pytest.mark.parametrize(
    ("release", "delay"),
    [
        pytest.param(Release.MERGED, 0.0, id="merged events", marks=pytest.mark.full),
        pytest.param(Release.EXPIRED, 0.0, id="410", marks=pytest.mark.nightly),
        pytest.param(Release.EACH, 0.0, id="late events", marks=pytest.mark.nightly),
        pytest.param(Release.EACH, 1.5, id="delayed events", marks=pytest.mark.nightly),
    ],
)
def test_states_between_two_deliveries_of_a_watch_have_no_effect(view: View, release: Release, delay: float) -> None:
    view.begin(finalizer=False)
    relay, name = view.world.relay, f"unseen-{release.value}"
    view.create(name, 1)
    view.create("brief", 1)
    view.converge({name: 1, "brief": 1})
    relay.freeze(THINGS)
    _replace(view, name, 2)
    view.world.things.merge(name, {"spec": {"size": 3}})
    view.world.things.delete("brief")
    _replace(view, name, 4)
    view.world.api.call("DELETE", f"{MAPS}/brief{OUTSIDE}")
    relay.lags[THINGS].delay = delay
    relay.thaw(THINGS, release)
    try:
        view.converge({name: 4})
    finally:
        relay.lags[THINGS].delay = 0.0
    view.check()


# Intermediate states.


def _story(view: View, name: str, kill: KillPoint | None) -> int:
    """Create, change, delete and recreate an object; return how many effective writes that took."""
    relay = view.world.relay
    relay.forget_writes(kill)
    view.create(name, 1)
    view.converge({name: 1})
    view.world.things.merge(name, {"spec": {"size": 2}})
    view.converge({name: 2})
    view.world.things.delete(name)
    view.converge({})
    view.create(name, 3)
    view.converge({name: 3})
    return len(relay.written)


def _kill(view: View) -> None:
    os.kill(view.world.life.process.pid, signal.SIGKILL)
    view.world.life.process.wait(patience())


def _points(view: View, part: int | None) -> list[tuple[int, bool]]:
    """Return effective writes of the story, and whether the operator ends before each: one by chance, or a part."""
    view.begin(finalizer=True)
    writes = _story(view, "story-0", None)
    view.check()
    assert 12 <= writes <= MOST_WRITES, view.world.relay.written
    points = [(number, before) for number in range(1, writes + 1) for before in (True, False)]
    if part is None:
        return [random.Random(os.environ.get("FAULTS_SEED", "1")).choice(points)]
    return points[part::PARTS]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "part",
    [
        pytest.param(None, marks=pytest.mark.full, id="one of them"),
        *(pytest.param(part, marks=pytest.mark.nightly, id=f"part {part + 1} of {PARTS}") for part in range(PARTS)),
    ],
)
def test_an_operator_that_ends_before_or_after_any_of_its_writes_completes_the_work(
    view: View, part: int | None
) -> None:
    killed = []
    for number, before in _points(view, part):
        view.first_line, view.kills = len(view.world.written()), 0
        for witness in view.witnesses:
            witness.seen.clear()
        for thing in view.world.api.call("GET", THINGS)["items"]:
            view.world.things.delete(thing["metadata"]["name"])
        view.converge({})
        name = f"story-{number}-{'before' if before else 'after'}"
        writes = _story(view, name, KillPoint(number, before, partial(_kill, view)))
        view.check()
        # A slow machine can add a write to a story, so another one can end before it.
        assert view.kills == 1 or writes < number, f"the operator was not ended at write {number} of {writes}"
        killed += [name] * view.kills
    sys.stdout.write(f"{len(killed)} kills\n")
    assert killed
