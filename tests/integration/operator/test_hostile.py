"""Hostile resources do not affect others: see `hostile`. `make hostile` tests more of them."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.operator import hostile
from tests.integration.operator.hostile import FORGED, Hostile
from tests.kit.objects import GROUP, MEMCACHED, Things, memcacheds
from tests.kit.wait import patience, wait_until

if TYPE_CHECKING:
    from tests.kit.objects import Api
    from tests.kit.operator import Operator, Project

COUNT = int(os.environ.get("HOSTILE_COUNT", "80"))
SEED = int(os.environ.get("HOSTILE_SEED", "1"))
PATIENCE = 120.0 + COUNT
"""Seconds for all of them."""
NEIGHBOUR = 60.0 + COUNT
"""Seconds within which a neighbour in the tenant's own namespace is reconciled meanwhile: it waits with the others."""
ELSEWHERE = 60.0
"""Seconds within which a neighbour in another namespace is reconciled, however many hostile resources there are."""
CONDITIONS = 30.0
"""Seconds until the status of the last one is written."""
GROWTH = 20.0
"""MiB of memory that may remain."""
FIRST_GROWTH = 60.0
"""MiB that may remain of the first resources: the interpreter keeps free blocks between small objects that it needs."""
FRAME = "-" * 79
OPENINGS = ("--------------------------- Ansible Task StdOut", "----- ")
CLOSINGS = (FRAME, "----------")


@pytest.fixture
def count() -> int:
    """Number of hostile resources."""
    return COUNT


class Tenant:
    """The hostile one. Objects are read as text: no decoder of Python reads them all."""

    def __init__(self, api: Api, path: str) -> None:
        self._pool = api._pool
        self._host = api._client.configuration.host
        self._path = path

    def create(self, each: Hostile) -> bytes | None:
        """Return the API server's answer if it refuses the object."""
        headers = {"Content-Type": "application/json"}
        answer = self._pool.request("POST", self._host + self._path, body=each.manifest, headers=headers)
        while answer.status == 504:  # the API server had no time; it may have created the object
            answer = self._pool.request("POST", self._host + self._path, body=each.manifest, headers=headers)
            if answer.status == 409:
                return None
        return None if answer.status == 201 else answer.data

    def conditions(self, each: Hostile) -> dict[str, dict[str, Any]]:
        data = self._pool.request("GET", f"{self._host}{self._path}/{each.name}").data
        start = data.rfind(b'"status":{')  # the last field
        if start < 0:
            return {}
        found, _ = json.JSONDecoder().raw_decode(data[start + len(b'"status":') :].decode())
        return {entry["type"]: entry for entry in found.get("conditions", [])}

    def delete_all(self) -> None:
        answer = self._pool.request("DELETE", self._host + self._path)
        assert answer.status == 200, answer.data


class Neighbours:
    """Objects of other users: of the same kind, of another kind, and in another namespace."""

    def __init__(self, api: Api, things: Things, other: Things) -> None:
        self.rounds = 0
        self.slowest = 0.0
        """Seconds until all were reconciled."""
        self.elsewhere = 0.0
        """Seconds until the one in the other namespace was."""
        self._things, self._other, self._memcacheds = things, other, memcacheds(api, things.namespace)

    def reconcile(self) -> None:
        """Create one of each, and wait for their runs."""
        name, began = f"neighbour-{self.rounds}", time.monotonic()
        for neighbour in (self._things, self._other):
            neighbour.create(name, {"text": "hello"})
        self._memcacheds.create(name, {"size": 1})
        self._other.await_success(name)
        self.elsewhere = max(self.elsewhere, time.monotonic() - began)
        self._things.await_success(name)
        self._memcacheds.await_success(name)
        self.slowest = max(self.slowest, time.monotonic() - began)
        self.rounds += 1


def _unexplained(tenant: Tenant, each: Hostile) -> str:
    """Return what is missing in the conditions of an object; empty if they report the result of its run."""
    found = tenant.conditions(each)
    failure = found.get("Failure", {})
    failed = failure.get("status") == "True" and failure.get("message")
    if found.get("Running", {}).get("reason") == "Paused":
        return ""
    if each.is_too_deep and not (failed and "nests deeper than" in failure["message"]):
        return f"{each.name} nests too deeply: {found}"
    if found.get("Successful", {}).get("status") != "True" and not failed:
        return f"{each.name} has no result: {found}"
    ignored = found.get("IgnoredVariables", {})
    if found.get("Successful", {}).get("status") == "True" and each.reserved and ignored.get("status") != "True":
        return f"{each.name} sets {each.reserved}, which no condition names: {found}"
    return ""


def _unattributable(log: str) -> list[str]:
    """Return the lines of a log that are neither the operator's own nor within a block of task output."""
    found, closing = [], ""
    for line in log.split("\n"):
        try:
            own = json.loads(line) if line.startswith("{") else None
        except ValueError:
            own = None
        if isinstance(own, dict):
            if FORGED in str(own.get("msg")):
                found.append(line)
        elif closing:
            closing = "" if line == closing else closing
        elif line.startswith(OPENINGS):
            closing = CLOSINGS[OPENINGS.index(next(each for each in OPENINGS if line.startswith(each)))]
        elif line.strip():
            found.append(line)
    return found


def _files(folder: Path) -> set[str]:
    """Return the files that are no output of runs."""
    kept = ("runs/", "operator-")
    files = (str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file())
    return {each for each in files if not each.startswith(kept)}


def _is_empty(folder: Path) -> bool:
    """Return whether nothing is in a folder, which the operator removes with the last run folder in it."""
    try:
        return not any(folder.iterdir())
    except FileNotFoundError:
        return True


def _memory(operator: Operator) -> float:
    status = Path(f"/proc/{operator.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


def _done(operator: Operator, names: Iterable[str]) -> bool:
    ended = {
        line["name"]
        for line in operator.lines()
        if line["msg"] in {"Run ended", "Object cannot run; waiting for a change"}
    }
    return set(names) <= ended


def test_a_log_line_of_a_tenant_is_detected() -> None:
    own = '{"level":"info","msg":"Run ended"}'
    block = f"\n{OPENINGS[0]} ---\n\nTASK [x]\nok\n\n{FRAME}"
    assert _unattributable(f"{own}\n{block}\n{own}\n") == []
    assert _unattributable(f"{own}\nTraceback\n") == ["Traceback"]
    forged = f'{{"msg":"{FORGED}"}}'
    assert _unattributable(f"{own}\n{forged}\n") == [forged]
    assert _unattributable(block.replace("ok", forged)) == [forged]


def test_every_special_name_is_in_some_resource_and_the_seed_determines_all(tmp_path: Path) -> None:
    made = hostile.resources(50, 3, tmp_path)
    assert made == hostile.resources(50, 3, tmp_path)
    assert len({each.name for each in made}) == 50
    text = b"".join(each.manifest for each in made)
    assert [name for name in hostile.special_names() if f'"{name}":'.encode() not in text] == []
    assert max(len(each.name) for each in made) == 253
    assert any(each.is_too_deep for each in made)


@pytest.mark.full
@pytest.mark.timeout(600 + 4 * COUNT)
def test_hostile_resources_harm_neither_the_operator_nor_their_neighbours(
    project: Project, things: Things, neighbour: Things, api: Api, temporary: Path, count: int
) -> None:
    project.role("thing", "- ansible.builtin.debug: {msg: \"{{ text | default('') }}\"}\n")
    project.role("memcached", "- ansible.builtin.debug: {msg: hello}\n")
    project.watch("thing")
    project.watch("memcached", **MEMCACHED)
    project.bind_everywhere()
    canary = project.folder / "canary"
    for folder in (canary, project.folder / "home"):
        folder.mkdir(exist_ok=True)
    environment = {"HOME": str(project.folder / "home"), "TMPDIR": str(temporary)}
    operator = project.start(
        "--engine=warm", "--max-concurrent-reconciles=4", f"--namespace={neighbour.namespace}", environment=environment
    )
    neighbours = Neighbours(api, things, neighbour)
    neighbours.reconcile()
    made = hostile.resources(count, SEED, canary)
    files, tenant = _files(project.folder), Tenant(api, things.path)
    folder = project.folder / "runs" / GROUP / "v1/Thing" / things.namespace
    memory, took = [_memory(operator)], 0.0
    for part in (made[: count // 2], made[count // 2 :]):
        took += _attack(part, operator, tenant, neighbours)
        tenant.delete_all()
        wait_until(lambda: _is_empty(folder), "the run folders to go")
        neighbours.reconcile()
        wait_until(
            lambda: _memory(operator) < memory[-1] + (GROWTH if len(memory) > 1 else FIRST_GROWTH),
            f"memory to return to {memory} MiB; it is {_memory(operator):.0f} MiB",
        )
        memory.append(_memory(operator))
    sys.stdout.write(
        f"{count} resources in {took:.0f} s; {neighbours.rounds} rounds of neighbours of up to "
        f"{neighbours.slowest:.0f} s, in another namespace {neighbours.elsewhere:.0f} s; MiB: {memory}\n"
    )
    assert _files(project.folder) <= files
    assert list(canary.iterdir()) == []
    assert _unattributable(operator.log) == []
    assert operator.lines(level="error", msg="Reconcile failed unexpectedly") == []
    assert operator.process.poll() is None
    assert operator.stop() == 0


def _attack(made: Sequence[Hostile], operator: Operator, tenant: Tenant, neighbours: Neighbours) -> float:
    """Create resources, and wait until each has a result; return the seconds that this took."""
    began = time.monotonic()
    expected = [each.name for each in made if b'paused":' not in each.manifest]
    with ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(tenant.create, each) for each in made]
        while not (all(each.done() for each in answers) and _done(operator, expected)):
            assert time.monotonic() - began < patience(PATIENCE), "all hostile resources to have a result"
            neighbours.reconcile()
            assert neighbours.slowest < patience(NEIGHBOUR)
            assert neighbours.elsewhere < patience(ELSEWHERE)
            assert operator.is_ready()
    assert [refused for each in answers if (refused := each.result()) is not None] == []
    took, end = time.monotonic() - began, time.monotonic() + CONDITIONS
    while (unexplained := [why for each in made if (why := _unexplained(tenant, each))]) and time.monotonic() < end:
        time.sleep(1)
    assert not unexplained, "\n".join(unexplained)
    return took
