"""ActionSets on a real MariaDB server: what is stored restores, what fails is undone, and nothing is done twice."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.integration.examples.deployed import Example, Install, Resources
from tests.integration.scaffold.installed import Json
from tests.kit import mariadb as databases
from tests.kit.wait import wait_until

ROWS = [["1", "tea"], ["2", "it's 100 %"]]
PHASES = ["quiesce", "snapshot", "upload", "unquiesce"]
SPEC = {
    "blueprint": "blueprint-sample",
    "action": "backup",
    "target": "shop",
    "argumentsFrom": [{"configMapRef": {"name": "shop-database"}}, {"secretRef": {"name": "shop-database"}}],
}
RESTORE = {**SPEC, "action": "restore", "target": "restored"}


@dataclass
class Shop:
    """A namespace with a database, whose server notes all that it is asked."""

    example: Example
    server: databases.Server
    store: Path

    @property
    def sets(self) -> Resources:
        return self.example.resources("ActionSet", "bakery")

    @property
    def schedules(self) -> Resources:
        return self.example.resources("ActionSchedule", "bakery")

    def prepare(self) -> None:
        self.server.sql("SET GLOBAL log_output = 'TABLE'; SET GLOBAL general_log = 1; CREATE DATABASE shop")
        self.server.sql("CREATE TABLE orders (id INT PRIMARY KEY, what VARCHAR(40))", "shop")
        self.server.sql("INSERT INTO orders VALUES (1, 'tea'), (2, 'it''s 100 %')", "shop")
        sh = self.example.sh
        sh("kubectl", "create", "namespace", "bakery")
        where = (f"--from-literal=host={self.server.host}", f"--from-literal=port={self.server.port}")
        sh("kubectl", "create", "configmap", "shop-database", "--namespace=bakery", *where)
        password = f"--from-literal=password={databases.ROOT_PASSWORD}"
        sh("kubectl", "create", "secret", "generic", "shop-database", "--namespace=bakery", password)

    def status(self, name: str) -> Json:
        found: Json = self.sets.get(name).get("status") or {}
        return found

    def await_end(self, name: str, state: str) -> Json:
        """Wait until it has ended, and its run too; return its status."""
        wait_until(lambda: self.status(name).get("state") in {"Complete", "Failed"}, f"the end of {name}")
        found = self.status(name)
        assert found["state"] == state, json.dumps(found, indent=1) + self.example.output(name)
        self.sets.await_success(name)
        assert [self.sets.condition(name, of)["status"] for of in ("Complete", "Failed", "Ready")] == [
            str(state == "Complete"),
            str(state == "Failed"),
            str(state == "Complete"),
        ]
        return self.status(name)

    def scratch(self, name: str) -> Path:
        """Return where what lies between its phases is."""
        return Path(f"/tmp/actions-{self.sets.get(name)['metadata']['uid']}")

    def locks_taken(self) -> list[str]:
        """Return the owners of all requested locks in order: a namespace and a name for each attempt."""
        asked = "SELECT argument FROM mysql.general_log WHERE argument LIKE 'CREATE DATABASE actions\\_lock%'"
        return [line.partition("'")[2].split()[0] for (line,) in self.server.sql(asked)]

    def is_open(self) -> bool:
        """Whether everybody may write to the server, and no lock is left on it."""
        locks = "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = 'actions_lock'"
        return self.server.sql(f"SELECT @@global.read_only, ({locks})") == [["0", "0"]]

    def locking(self) -> list[list[str]]:
        """Return the connections that wait until they may make the server read-only."""
        return self.server.sql("SELECT id FROM information_schema.processlist WHERE info = 'SET GLOBAL read_only = 1'")

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Somebody writes to the table all the while, so that the server cannot be made read-only."""
        where = [f"--host={self.server.host}", f"--port={self.server.port}", "--user=root", "--protocol=tcp"]
        command = [databases.find("mariadb"), "--no-defaults", *where, f"--password={databases.ROOT_PASSWORD}"]
        with subprocess.Popen(
            [*command, "--batch", "--unbuffered", "--skip-column-names"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as session:
            assert session.stdin is not None
            assert session.stdout is not None
            session.stdin.write("LOCK TABLES shop.orders WRITE; SELECT 'locked';\n")
            session.stdin.flush()
            assert session.stdout.readline() == "locked\n"
            yield
            # The end of its input ends the session and its locks.

    def runs(self, name: str) -> list[Json]:
        """Return what the log of the operator, as it was started last, says of runs that have ended."""
        assert self.example.operator is not None
        return self.example.operator.lines(msg="Run ended", name=name)

    def stories(self, name: str) -> list[tuple[str, str, str]]:
        """Return type, reason and message of its Events as kubectl lists them."""
        about = f"--field-selector=involvedObject.name={name},involvedObject.kind=ActionSet"
        found = json.loads(self.example.sh("kubectl", "get", "events", "--namespace=bakery", about, "--output=json"))
        return [(each["type"], each["reason"], each["message"]) for each in found["items"]]

    def await_events(self, name: str, *wanted: tuple[str, str, str]) -> None:
        wait_until(lambda: set(wanted) <= set(self.stories(name)), f"{wanted} among {self.stories(name)}")


@pytest.fixture
def shop(
    install: Install, mariadb: databases.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shop]:
    store = tmp_path / "store"
    store.mkdir()
    # What the Deployment mounts at the default's place.
    monkeypatch.setenv("ACTIONS_STORE", str(store))
    made = Shop(install("actions"), mariadb, store)
    made.prepare()
    yield made
    made.example.sh("kubectl", "delete", "namespace", "bakery", "--wait=false")


@pytest.mark.nightly
def test_actions_are_done_once_and_what_fails_is_undone(shop: Shop) -> None:
    shop.example.start()
    key = an_action_waits_for_its_blueprint_and_stores_what_restores(shop)
    another_action_restores_it_and_goes_when_its_time_has_come(shop, key)
    a_phase_that_fails_is_undone(shop)
    an_edit_does_nothing_again(shop)
    what_was_cut_short_is_undone_and_nothing_is_done_again_by_the_next_version(shop)
    a_schedule_makes_one_for_each_slot_and_none_beside_another(shop)
    assert shop.is_open()
    nobody_has_told_the_password(shop)
    shop.example.remove()


def an_action_waits_for_its_blueprint_and_stores_what_restores(shop: Shop) -> str:
    shop.sets.create("first", SPEC)
    shop.sets.await_condition("first", "Failure", saying="There is no Blueprint blueprint-sample")
    assert shop.locks_taken() == []
    shop.example.sh("kubectl", "apply", "--filename=config/samples/actions_v1alpha1-blueprint.yaml")

    status = shop.await_end("first", "Complete")
    assert status["progress"] == "4/4"
    assert [(each["name"], each["state"]) for each in status["phases"]] == [(name, "Complete") for name in PHASES]
    times = [each[when] for each in status["phases"] for when in ("startedAt", "endedAt")]
    assert [status["startedAt"], *times, status["finishedAt"]] == sorted(
        [status["startedAt"], *times, status["finishedAt"]]
    )
    told = [("PhaseStarted", "started"), ("PhaseEnded", "ended")]
    shop.await_events("first", *(("Normal", why, f"Phase {name} {how}") for name in PHASES for why, how in told))
    shop.await_events("first", ("Normal", "ActionComplete", "All 4 phases are complete"))
    assert shop.is_open()

    snapshot = shop.store / status["artifact"]["key"]
    assert hashlib.sha256(snapshot.read_bytes()).hexdigest() == status["artifact"]["sha256"]
    shop.server.sql("CREATE DATABASE empty")
    shop.server.sql(f"source {snapshot}", "empty")
    assert shop.server.sql("SELECT * FROM orders ORDER BY id", "empty") == ROWS
    key: str = status["artifact"]["key"]
    return key


def another_action_restores_it_and_goes_when_its_time_has_come(shop: Shop, key: str) -> None:
    shop.sets.create("second", {**RESTORE, "arguments": {"key": key}, "ttlSecondsAfterFinished": 1})
    shop.sets.await_gone("second")
    assert shop.server.sql("SELECT * FROM orders ORDER BY id", "restored") == ROWS
    shop.sets.create("third", {**RESTORE, "arguments": {"key": key}})
    assert "is not empty" in shop.await_end("third", "Failed")["message"]


def a_phase_that_fails_is_undone(shop: Shop) -> None:
    (shop.store / "taken").write_text("no folder")
    shop.sets.create("failing", {**SPEC, "arguments": {"bucket": "taken"}})
    status = shop.await_end("failing", "Failed")
    assert (status["failedPhase"], status["progress"]) == ("upload", "2/4")
    assert [each["state"] for each in status["phases"]] == ["Complete", "Complete", "Failed", "Pending"]
    assert [each.get("compensated", False) for each in status["phases"]] == [True, False, True, False]
    assert status["message"] in shop.sets.condition("failing", "Failed")["message"]
    assert shop.locks_taken() == ["bakery/first", "bakery/failing"]
    assert shop.is_open()
    assert not shop.scratch("failing").exists()
    shop.await_events(
        "failing",
        ("Normal", "PhaseStarted", "Phase upload started"),
        ("Warning", "PhaseEnded", "Phase upload failed"),
        ("Normal", "PhaseEnded", "Phase undo upload ended"),
        ("Normal", "PhaseEnded", "Phase undo quiesce ended"),
    )


def an_edit_does_nothing_again(shop: Shop) -> None:
    patch = ("--type=merge", '--patch={"spec": {"target": "other"}}')
    told = shop.example.sh("kubectl", "patch", "actionset", "first", "--namespace=bakery", *patch, check=False)
    assert "an ActionSet runs once" in told
    before = {name: shop.status(name)["startedAt"] for name in ("first", "failing")}
    for name in before:
        shop.sets.change(name, ttlSecondsAfterFinished=864000)
        shop.sets.await_success(name)
    assert {name: shop.status(name)["startedAt"] for name in before} == before
    assert shop.locks_taken() == ["bakery/first", "bakery/failing"]
    # Its end is longer ago than that.
    shop.sets.change("third", ttlSecondsAfterFinished=0)
    shop.sets.await_gone("third")


def what_was_cut_short_is_undone_and_nothing_is_done_again_by_the_next_version(shop: Shop) -> None:
    operator = shop.example.operator
    assert operator is not None
    with shop.writing():
        shop.sets.create("cut", {**SPEC, "arguments": {"lock_seconds": "86400"}})
        wait_until(shop.locking, "the server to be asked to be read-only")
        operator.process.kill()
        operator.process.wait()
    # The server applies the last request, whichever client sent it.
    wait_until(lambda: not shop.locking(), "the server to have done what it was asked for")
    assert not shop.is_open()
    # A killed operator does not release its Lease; without the deletion the next one would wait 15 seconds.
    shop.example.sh("kubectl", "delete", "lease", "--all", f"--namespace={shop.example.home}")
    shop.example.upgrade("IMG=example.com/actions-operator:v0.0.2")
    shop.example.start()

    status = shop.await_end("cut", "Failed")
    assert (status["failedPhase"], status["message"]) == ("quiesce", "The operator was ended before the phase was")
    assert shop.is_open()
    assert not shop.scratch("cut").exists()
    for name in ("first", "failing"):
        run = wait_until(partial(shop.runs, name), f"a run of {name}")[0]
        assert (run["changed"], run["outcome"]) == (0, "succeeded"), shop.example.output(name)
    assert shop.locks_taken() == ["bakery/first", "bakery/failing", "bakery/cut"]


def a_schedule_makes_one_for_each_slot_and_none_beside_another(shop: Shop) -> None:
    template = {"spec": {**SPEC, "arguments": {"lock_seconds": "86400"}}}
    spec = {"everySeconds": 2, "offsetSeconds": 1, "historyLimit": 1, "template": template}
    shop.schedules.create("often", spec)

    def last() -> str:
        found: str = (shop.schedules.get("often").get("status") or {}).get("lastActionSet", "")
        return found

    shop.sets.await_gone(wait_until(last, "the first one"))
    # From now on none goes that is looked at.
    shop.schedules.change("often", historyLimit=100)
    shop.schedules.await_success("often")
    with shop.writing():
        skipped = shop.schedules.get("often")["status"].get("skippedSlot", 0)
        now = wait_until(lambda: _later(shop, skipped), "two slots that were left out")
        assert now is not None
        assert now["active"] == [now["lastActionSet"]]
    held = now["lastActionSet"]
    shop.await_end(held, "Complete")
    wait_until(lambda: last() != held, "the next one")
    shop.schedules.change("often", suspend=True)
    shop.schedules.await_success("often")
    assert shop.schedules.get("often")["status"]["nextAt"] == ""

    final = last()
    shop.await_end(final, "Complete")
    made = [name.removeprefix("bakery/") for name in shop.locks_taken()[3:]]
    assert made == sorted(set(made)), "one of a slot has run twice"
    assert all(name.startswith("often-") and int(name.removeprefix("often-")) % 2 == 1 for name in made)
    shop.schedules.delete("often")
    wait_until(lambda: shop.sets.all("actions.example.com/schedule=often") == [], "its ActionSets to go with it")


def _later(shop: Shop, slot: int) -> Json | None:
    status: Json = shop.schedules.get("often")["status"]
    return status if status.get("skippedSlot", 0) > slot + 2 else None


def nobody_has_told_the_password(shop: Shop) -> None:
    """Neither to the log, nor to run folders, nor in status and Events."""
    # Folders of objects that are gone go too, whenever that may be; and those of a killed run with the next operator.
    files = [
        path for path in shop.example.scratch.rglob("*") if {"first", "failing"} & {*path.parts} and path.is_file()
    ]
    kept = [*shop.example.scratch.glob("operator-*/log"), *files]
    assert any("artifacts" in path.parts for path in kept)
    cluster = shop.example.sh("kubectl", "get", "actionsets,events", "--namespace=bakery", "--output=json")
    assert "ActionComplete" in cluster
    assert "actionset" in cluster
    assert databases.ROOT_PASSWORD not in cluster
    assert [path for path in kept if databases.ROOT_PASSWORD.encode() in path.read_bytes()] == []
