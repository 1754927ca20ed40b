"""Responses to probes, and when a failing check counts."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import pytest
import urllib3

from runner.base.monitoring import health
from runner.base.monitoring.endpoints import Address
from runner.base.monitoring.health import GRACE, HealthChecks, ProbeServer, ProbeTimeouts
from runner.values.errors import ConfigError
from tests.kit.wait import patience, until

PATIENT, IMPATIENT = ProbeTimeouts(), ProbeTimeouts(response=0.05, stuck=0.0)
ANYWHERE = Address("127.0.0.1", 0)


@dataclass
class Thing:
    """Something that is looked at, and a clock."""

    now: float = 100.0
    problem: str | None = None
    found: HealthChecks = field(init=False)

    def __post_init__(self) -> None:
        self.found = HealthChecks(lambda: self.now)
        self.found.add("thing", lambda: self.problem)

    def at(self, now: float) -> str | None:
        self.now = now
        return self.found.run().ready["thing"]


def test_a_check_that_has_passed_fails_after_its_grace_time() -> None:
    thing = Thing()
    assert thing.at(100) is None
    thing.problem = "gone"
    assert thing.at(101) is None
    assert thing.at(101 + GRACE - 0.1) is None
    assert thing.at(101 + GRACE) == "gone"


def test_the_latest_reason_is_reported_and_a_success_restarts_the_grace_time() -> None:
    thing = Thing()
    thing.at(100)
    thing.problem = "refused"
    thing.at(101)
    thing.problem = "cut"
    assert thing.at(101 + GRACE) == "cut"
    thing.problem = None
    assert thing.at(200) is None
    thing.problem = "refused"
    assert thing.at(201) is None


def test_the_liveness_probe_has_only_checks_that_a_restart_can_repair() -> None:
    thing = Thing(problem="away")
    thing.found.add("proxy", lambda: "dead", live=True)
    report = thing.found.run()
    assert report.live == {"proxy": "dead"}
    assert report.ready == {"thing": "away", "proxy": "dead"}


PROBLEMS = {"proxy": None, "watch/a": "failing: no\n answer"}


def test_responses_have_the_format_of_the_api_servers_probes() -> None:
    assert health.respond("readyz", {"proxy": None}, verbose=False) == health.ProbeResponse(200, "ok")
    assert (
        health.respond("readyz", {"proxy": None}, verbose=True).text == "[+]ping ok\n[+]proxy ok\nreadyz check passed\n"
    )
    expected = "[+]ping ok\n[+]proxy ok\n[-]watch/a failed: failing: no answer\nreadyz check failed\n"
    assert health.respond("readyz", PROBLEMS, verbose=False) == health.ProbeResponse(500, expected)


def test_a_single_check_can_be_requested_or_excluded() -> None:
    assert health.respond("readyz", PROBLEMS, only="proxy", verbose=False) == health.ProbeResponse(200, "ok")
    assert health.respond("readyz", PROBLEMS, only="watch/a", verbose=False).status == 500
    unknown = health.respond("readyz", PROBLEMS, only="other", verbose=False)
    assert (unknown.status, unknown.text) == (404, "unknown check other; known checks: ping, proxy, watch/a\n")
    left_out = health.respond("readyz", PROBLEMS, exclude=["watch/a", "other"], verbose=True)
    assert left_out.status == 200
    assert left_out.text.splitlines()[-3:] == [
        "[+]watch/a excluded: ok",
        "warn: some health checks cannot be excluded: no matches for other",
        "readyz check passed",
    ]


def ask(port: int, path: str) -> tuple[int, str]:
    answer = urllib3.request("GET", f"http://127.0.0.1:{port}{path}", retries=False, timeout=patience())
    return answer.status, answer.data.decode()


async def serving(stack: AsyncExitStack, found: HealthChecks, timeouts: ProbeTimeouts = PATIENT) -> int:
    server = ProbeServer(found, timeouts)
    stack.push_async_callback(server.close)
    return await server.start(ANYWHERE)


async def test_a_probe_runs_the_checks_and_returns_no_old_results() -> None:
    thing = Thing()
    async with AsyncExitStack() as stack:
        port = await serving(stack, thing.found, ProbeTimeouts(response=30))
        assert await asyncio.to_thread(ask, port, "/readyz/thing") == (200, "ok")
        thing.problem, thing.now = "gone", 200.0
        assert await asyncio.to_thread(ask, port, "/readyz/thing") == (200, "ok")
        thing.now += GRACE
        status, text = await asyncio.to_thread(ask, port, "/readyz")
    assert (status, text.splitlines()[2]) == (500, "[-]thing failed: gone")


async def test_a_blocked_event_loop_fails_the_liveness_probe_while_it_is_blocked() -> None:
    found = HealthChecks(time.monotonic)
    responses: list[tuple[int, str]] = []
    async with AsyncExitStack() as stack:
        port = await serving(stack, found, IMPATIENT)

        def probe() -> None:
            responses.append(ask(port, "/healthz"))

        thread = threading.Thread(target=probe)
        thread.start()
        thread.join()  # what stands in the event loop's way is this wait
        (blocked,) = responses
        assert blocked[0] == 500
        assert blocked[1].splitlines()[1].startswith("[-]event-loop failed: blocked for ")
        patient = await serving(stack, found, ProbeTimeouts(response=30))
        assert await asyncio.to_thread(ask, patient, "/healthz") == (200, "ok")


async def test_a_probe_that_waits_no_longer_causes_no_error_when_the_checks_have_run() -> None:
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context.get("exception")))
    runs = asyncio.Event()
    found = HealthChecks(time.monotonic)
    found.add("thing", runs.set)
    async with AsyncExitStack() as stack:
        port = await serving(stack, found, IMPATIENT)
        thread = threading.Thread(target=ask, args=(port, "/healthz"))
        thread.start()
        thread.join()
        await runs.wait()
    assert errors == []


async def test_a_server_whose_start_was_canceled_ends_without_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda caught: errors.append(caught.exc_value))
    server = ProbeServer(HealthChecks(time.monotonic), PATIENT)
    starting = asyncio.create_task(server.start(ANYWHERE))
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await until(lambda: server._stop is not None and server._own is not None)
    await server.close()
    assert errors == []


async def test_a_busy_event_loop_is_not_stuck_and_the_last_results_are_returned() -> None:
    thing = Thing(problem="away")
    thing.found.run()
    async with AsyncExitStack() as stack:
        port = await serving(stack, thing.found, ProbeTimeouts(response=0.05, stuck=3600))
        responses: list[tuple[int, str]] = []
        thread = threading.Thread(target=lambda: responses.append(ask(port, "/readyz?verbose")))
        thread.start()
        thread.join()
    assert responses[0][1].splitlines()[1:3] == ["[+]event-loop ok", "[-]thing failed: away"]


def test_notes_are_part_of_verbose_responses_and_fail_no_probe() -> None:
    found = HealthChecks(time.monotonic)
    found.add_notes(lambda: {"warm-engine/tasks": "disabled: a symbol\nis gone"})
    notes = found.run().notes

    assert health.respond("readyz", {}, verbose=False, notes=notes) == health.ProbeResponse(200, "ok")
    expected = "[+]ping ok\n[!]warm-engine/tasks disabled: a symbol is gone\nreadyz check passed\n"
    assert health.respond("readyz", {}, verbose=True, notes=notes) == health.ProbeResponse(200, expected)


async def test_an_address_in_use_is_an_error_that_names_flag_and_address() -> None:
    async with AsyncExitStack() as stack:
        port = await serving(stack, HealthChecks(time.monotonic))
        server = ProbeServer(HealthChecks(time.monotonic), ProbeTimeouts())
        with pytest.raises(ConfigError, match=f"--health-probe-bind-address: cannot listen on 127.0.0.1:{port}"):
            await server.start(Address("127.0.0.1", port))
        await server.close()
