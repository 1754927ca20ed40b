"""When there is a fork server and when there is none, in virtual time; servers that are none stand for them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from runner.core.engine.starter import ColdStarter, Started
from runner.engines.warm.messages import Load
from runner.engines.warm.server import client
from runner.engines.warm.server.client import ServerDiedError, ServerError
from runner.engines.warm.server.pool import Pool
from runner.features.rolemetrics.endpoint import ADDRESS_VARIABLE
from tests.kit.wait import patience

pytestmark = pytest.mark.virtual_time

ENVIRONMENT = {"A": "1"}
ORDER: Any = None


class Cold(ColdStarter):
    """Takes each order, and does nothing."""

    async def start(self, *_: object) -> Started:
        return Started(1, *[None] * 4)  # type: ignore[arg-type]  # no test reads them


class Standing:
    """A server that is there, until it is closed or dies."""

    pid, runs = 4711, 0
    started_at = math.inf  # whenever it dies, it is young

    def __init__(self) -> None:
        self._closed = asyncio.Event()
        self._how = ""
        self.disabled: dict[str, str] = {}
        self.problems: tuple[str, ...] = ()

        self.is_up_to_date = True
        self.cannot_fork = ""

    async def is_current(self) -> bool:
        return self.is_up_to_date

    async def run(self, *_: object) -> Started:
        if self.cannot_fork:
            raise client.ForkError(self.cannot_fork)
        self.runs += 1
        return Started(self.pid, *[None] * 4)  # type: ignore[arg-type]  # as above

    @property
    def is_closed(self) -> bool:
        return self._closed.is_set()

    async def wait_for_death(self) -> str:
        await self._closed.wait()
        return self._how

    def die(self) -> None:
        self._how = "killed by signal 9"
        self._closed.set()

    async def close(self) -> None:
        self._closed.set()


class Launches:
    """Refuses to start servers for as long as it has a reason."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.at: list[float] = []
        self.servers: list[Standing] = []
        self.loads: list[Load] = []
        self.seconds = 0.1
        """How long a server loads."""
        self.deaths = 0
        """Servers that die while they load."""
        self.cleanups = 0

    def clean_up(self) -> None:
        self.cleanups += 1

    async def __call__(self, environment: Mapping[str, str], folder: Path, load: Load) -> Any:
        del environment, folder
        self.at.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.seconds)
        self.loads.append(load)
        if self.deaths:
            self.deaths -= 1
            raise ServerDiedError("killed by signal 9")
        if self.reason:
            raise ServerError(self.reason)
        self.servers.append(Standing())
        return self.servers[-1]


@pytest.fixture
def launches() -> Launches:
    return Launches("")


@pytest.fixture
async def warm(launches: Launches) -> AsyncIterator[Pool]:
    made = Pool(Path("/nowhere"), Cold(), (), launches, launches.clean_up)
    yield made
    await made.close()


async def test_a_server_that_starts_before_the_addresses_of_the_operators_servers_are_known_serves_the_runs(
    launches: Launches, warm: Pool
) -> None:
    await warm.warm_up({"A": "1"})
    for address in ("http://127.0.0.1:5050", "http://127.0.0.1:41000"):
        await warm.start(ORDER, {"A": "1", ADDRESS_VARIABLE: address})
    assert len(launches.servers) == 1


async def test_runs_do_not_delay_the_next_attempt_to_start_a_server(launches: Launches, warm: Pool) -> None:
    launches.reason = "no room"

    for _ in range(100):
        await asyncio.gather(*(warm.start(ORDER, ENVIRONMENT) for _ in range(3)))
        await asyncio.sleep(0.2)

    began = launches.at[0]
    pauses = [round(later - earlier - 0.1) for earlier, later in zip(launches.at, launches.at[1:], strict=False)]
    assert pauses == [1, 2, 4, 8]
    assert asyncio.get_running_loop().time() - began < 31


async def test_runs_without_a_fork_server_use_new_processes_until_the_problem_is_solved(
    launches: Launches, warm: Pool
) -> None:
    launches.reason = "no room"
    assert (await warm.start(ORDER, ENVIRONMENT)).pid == 1
    assert (warm.servers(), warm.problem) == ([], "no room")

    launches.reason = ""
    await asyncio.sleep(2)

    assert (warm.servers(), warm.problem) == ([4711], None)
    assert (await warm.start(ORDER, ENVIRONMENT)).pid == 4711


async def test_a_problem_lasts_since_it_began_whatever_the_latest_reason_is(launches: Launches, warm: Pool) -> None:
    launches.reason = "no room"
    await warm.warm_up(ENVIRONMENT)
    assert warm.lasting_problem(10) is None

    launches.reason = "no memory"
    await asyncio.sleep(11)

    assert warm.lasting_problem(10) == "no memory"
    assert warm.lasting_problem(20) is None


async def test_a_run_that_was_not_forked_although_there_is_a_server_is_a_problem(warm: Pool) -> None:
    await warm.warm_up(ENVIRONMENT)

    warm.learn(
        ENVIRONMENT, '{"plugins": []}\n{"mismatch": "runs have other values of A than the fork server"}\n', "run-1"
    )

    assert warm.problem == "runs have other values of A than the fork server"


async def test_findings_of_the_self_test_are_reported_and_are_not_a_problem(launches: Launches, warm: Pool) -> None:
    await warm.warm_up(ENVIRONMENT)
    (server,) = launches.servers

    server.disabled, server.problems = {"templates": "AttributeError"}, ("a module was slow",)

    assert warm.shortfalls() == {"templates": "disabled: AttributeError", "self-test": "a module was slow"}
    assert warm.problem is None


@pytest.mark.parametrize(("runs", "later", "replaced"), [(5, 0, 10), (4, 0, 30), (4, 1, 20), (0, 5, 20)])
async def test_a_server_is_replaced_by_one_that_preloads_more_soon_if_it_has_many_runs(
    launches: Launches, warm: Pool, runs: int, later: int, replaced: float
) -> None:
    await warm.warm_up(ENVIRONMENT)
    for _ in range(runs):
        await warm.start(ORDER, ENVIRONMENT)
    warm.learn(ENVIRONMENT, '{"plugins": ["ansible.plugins.lookup.sequence"]}\n', "run-1")
    assert warm.problem is None
    await asyncio.sleep(20.0)
    for _ in range(later):
        await warm.start(ORDER, ENVIRONMENT)
    await asyncio.sleep(20.0)

    started, renewed = launches.at
    assert renewed - started == pytest.approx(replaced, abs=0.5)
    assert launches.servers[0].is_closed


async def test_runs_that_begin_while_the_new_server_loads_do_not_replace_it_at_once(
    launches: Launches, warm: Pool
) -> None:
    await warm.warm_up(ENVIRONMENT)
    for _ in range(5):
        await warm.start(ORDER, ENVIRONMENT)
    launches.seconds = 25.0  # longer than the interval until the next renewal
    warm.learn(ENVIRONMENT, '{"plugins": ["ansible.plugins.lookup.sequence"]}\n', "run-1")
    await asyncio.sleep(30.0)
    await warm.start(ORDER, ENVIRONMENT)
    await asyncio.sleep(10.0)
    warm.learn(ENVIRONMENT, '{"plugins": ["ansible.plugins.lookup.lines"]}\n', "run-1")
    await asyncio.sleep(1.0)

    assert len(launches.at) == 2


async def test_a_server_that_dies_soon_after_its_start_is_replaced_at_once_without_a_problem(
    launches: Launches, warm: Pool
) -> None:
    await warm.warm_up(ENVIRONMENT)

    launches.servers[-1].die()
    await asyncio.sleep(0.5)

    assert (len(launches.servers), warm.servers(), warm.problem) == (2, [4711], None)


async def test_if_servers_die_repeatedly_runs_use_new_processes_for_a_while(launches: Launches, warm: Pool) -> None:
    await warm.warm_up(ENVIRONMENT)
    for _ in range(2):
        launches.servers[-1].die()
        await asyncio.sleep(0.5)

    assert warm.problem == "the fork server died soon after its start (killed by signal 9)"
    assert (await warm.start(ORDER, ENVIRONMENT)).pid == 1

    await asyncio.sleep(1)
    assert (await warm.start(ORDER, ENVIRONMENT)).pid == 4711


async def test_closing_ends_all_servers_of_concurrent_environments(launches: Launches, warm: Pool) -> None:
    environments = [{"A": str(number)} for number in range(9)]
    for _ in range(3):
        for number, environment in enumerate(environments):
            await warm.start(ORDER, environment)
            warm.preload(environment, Load(modules=frozenset({f"module_{len(launches.servers)}_{number}"})))
        running = [asyncio.create_task(warm.start(ORDER, environment)) for environment in environments]
        await warm.settle()
        await asyncio.gather(*running)
    async with asyncio.timeout(patience()):
        await warm.close()

    assert len(launches.servers) > len(environments)
    assert [server for server in launches.servers if not server.is_closed] == []


@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.1, 0.15])
async def test_closing_while_servers_start_leaves_none(launches: Launches, warm: Pool, seconds: float) -> None:
    running = [asyncio.create_task(warm.start(ORDER, {"A": str(number)})) for number in range(9)]
    await asyncio.sleep(seconds)
    async with asyncio.timeout(patience()):
        await warm.close()
    await asyncio.gather(*running, return_exceptions=True)
    assert [server for server in launches.servers if not server.is_closed] == []


async def test_cleanup_runs_after_a_server_dies_or_fails_to_start_and_not_after_it_is_closed(
    launches: Launches, warm: Pool
) -> None:
    await warm.warm_up(ENVIRONMENT)
    assert launches.cleanups == 0
    launches.servers[0].die()
    await asyncio.sleep(5)
    assert launches.cleanups == 1
    launches.reason = "no room"
    await warm.warm_up({"B": "1"})
    assert launches.cleanups == 2
    await warm.close()
    assert launches.cleanups == 2


@pytest.mark.parametrize("deaths", [1, 2])
async def test_a_server_killed_while_loading_is_started_once_more_and_then_without_a_load(
    launches: Launches, warm: Pool, deaths: int
) -> None:
    learned = Load(plugins=frozenset({"a"}))
    warm.preload(ENVIRONMENT, learned)
    launches.deaths = deaths
    await warm.warm_up(ENVIRONMENT)
    assert launches.loads == [learned, learned, Load()][: deaths + 1]
    assert (warm.problem, launches.cleanups) == (None, deaths)


async def test_a_server_that_cannot_be_replaced_after_many_runs_serves_on_and_the_next_attempts_are_rare(
    launches: Launches, warm: Pool
) -> None:
    await warm.warm_up(ENVIRONMENT)
    launches.servers[0].runs = 2000
    launches.reason = "no room"

    with capture_logs() as lines:
        for _ in range(100):
            assert (await warm.start(ORDER, ENVIRONMENT)).pid == 4711
            await asyncio.sleep(0.2)

    assert len(launches.at) == 1 + 5  # after 0, 1, 3, 7 and 15 seconds
    assert warm.problem is None
    assert [(line["event"], line["reason"]) for line in lines if line["log_level"] == "warning"] == [
        ("A fork server cannot be replaced; runs are forked from the old one", "no room")
    ]
    launches.reason = ""
    await asyncio.sleep(20)
    assert [server.is_closed for server in launches.servers] == [True, False]


async def test_a_server_that_cannot_be_replaced_by_one_that_preloads_more_is_no_problem(
    launches: Launches, warm: Pool
) -> None:
    await warm.warm_up(ENVIRONMENT)
    launches.reason = "no room"

    with capture_logs() as lines:
        warm.preload(ENVIRONMENT, Load(modules=frozenset({"kubernetes.core.k8s"})))
        await warm.settle()

    assert warm.problem is None
    assert "Runs are not forked" not in str(lines)
    assert (await warm.start(ORDER, ENVIRONMENT)).pid == 4711
    launches.reason = ""
    await asyncio.sleep(2)
    assert [server.is_closed for server in launches.servers] == [True, False]


async def test_a_server_that_is_out_of_date_and_cannot_be_replaced_is_a_problem_with_its_reason(
    launches: Launches, warm: Pool
) -> None:
    await warm.warm_up(ENVIRONMENT)
    launches.reason = "no room"
    warm.preload(ENVIRONMENT, Load(modules=frozenset({"kubernetes.core.k8s"})))
    await warm.settle()

    launches.servers[0].is_up_to_date = False

    assert (await warm.start(ORDER, ENVIRONMENT)).pid == 1
    assert warm.problem == "no room"


async def test_a_run_that_the_server_cannot_fork_uses_a_new_process_and_the_reason_is_reported(
    launches: Launches, warm: Pool
) -> None:
    await warm.warm_up(ENVIRONMENT)
    launches.servers[0].cannot_fork = "Resource temporarily unavailable"

    with capture_logs() as lines:
        assert (await warm.start(ORDER, ENVIRONMENT)).pid == 1

    problems = [warm.problem]
    assert [line["reason"] for line in lines if "Runs are not forked" in line["event"]] == problems
    await asyncio.sleep(2)  # the next server can
    assert [*problems, warm.problem] == ["Resource temporarily unavailable", None]
    assert (await warm.start(ORDER, ENVIRONMENT)).pid == 4711


async def test_while_a_server_loads_for_long_runs_use_new_processes_and_then_the_server(
    launches: Launches, warm: Pool
) -> None:
    launches.seconds = 100.0

    began = asyncio.get_running_loop().time()
    assert (await warm.start(ORDER, ENVIRONMENT)).pid == 1

    assert asyncio.get_running_loop().time() - began == pytest.approx(60)
    problems = [warm.problem]
    await asyncio.sleep(41)
    assert [*problems, warm.problem] == ["the fork server loads for more than 60 seconds", None]
    assert (await warm.start(ORDER, ENVIRONMENT)).pid == 4711
    assert len(launches.at) == 1
