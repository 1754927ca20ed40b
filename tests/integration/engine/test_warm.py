"""Fork servers: when there is one, when another takes its place, and that no run is lost on the way."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from runner.agent import process_tree
from runner.core.engine.job import Outcome
from tests.kit.engines import ProcessEngines
from tests.kit.wait import until

if TYPE_CHECKING:
    from tests.integration.engine.runs import Runs

pytestmark = pytest.mark.asyncio(loop_scope="session")

RunsOf = Callable[[ProcessEngines, Path, Path], Any]
HELLO = "- {name: hello, debug: {msg: hi}}"
ANCESTORS = """
- name: ancestors
  debug: {msg: "{{ lookup('pipe', command) }}"}
  vars: {command: "p=$$; while [ $p -gt 1 ]; do echo $p; p=$(sed -n 's/^PPid:[[:space:]]*//p' /proc/$p/status); done"}
"""


@pytest_asyncio.fixture(loop_scope="session")
async def warm(runs_of: RunsOf, tmp_path: Path) -> AsyncIterator[Any]:
    """Runs with fork servers of the test's own, of which one is ready."""
    async for runs in _ready(runs_of, tmp_path):
        yield runs


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shared(runs_of: RunsOf, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Any]:
    """Runs of tests that end no fork server."""
    async for runs in _ready(runs_of, tmp_path_factory.mktemp("shared")):
        yield runs


async def _ready(runs_of: RunsOf, folder: Path) -> AsyncIterator[Any]:
    os.environ.pop("PYTEST_CURRENT_TEST", None)  # the name of the test is no reason for another fork server
    engine = ProcessEngines(folder / "runner")
    engine.expect([], {})
    await engine.settle()
    yield runs_of(engine, folder / "runner", folder / "operator")
    await engine.close(0)


def server(runs: Runs) -> int:
    (pid,) = runs.engine.pool.servers()
    return pid


def lives(pid: int) -> bool:
    process = process_tree.read(pid)
    return process is not None and not process.zombie


@pytest.mark.full
async def test_a_server_that_dies_is_replaced_before_it_is_needed_and_the_next_one_gets_unanswered_requests(
    warm: Runs,
) -> None:
    first = server(warm)
    assert os.getpgid(first) != os.getpgid(0), "Ctrl-C in a terminal goes only to the operator"
    os.kill(first, signal.SIGKILL)
    await until(lambda: warm.engine.pool.servers() not in ([], [first]))
    second = server(warm)
    assert (await warm.run(warm.tasks(HELLO))).result.outcome is Outcome.SUCCEEDED
    assert server(warm) == second

    os.kill(second, signal.SIGSTOP)
    orders = [
        asyncio.create_task(warm.run(warm.tasks(HELLO), run_dir=warm.run_dir.with_name(name)))
        for name in ("a", "b", "c")
    ]
    folders = [warm.run_dir.with_name(name) / "env" / "kubeconfig" for name in ("a", "b", "c")]
    await until(lambda: all(folder.exists() for folder in folders))
    await until(lambda: sum(not order.done() for order in orders) == 2)  # a supervisor had been forked before
    os.kill(second, signal.SIGKILL)

    assert [(await order).result.outcome for order in orders] == [Outcome.SUCCEEDED] * 3
    assert warm.engine.pool.servers() != [second]
    # If both servers lived for a short time, the next one starts after a pause.
    await until(lambda: warm.engine.pool.problem is None)


async def waiting(before: set[int]) -> int:
    """Return the pid of the supervisor that the server has forked for the next run. It has a session of its own."""

    def found() -> list[int]:
        own = [each for each in process_tree.table().values() if each.parent == os.getpid() and not each.zombie]
        return [each.pid for each in own if each.session == each.pid and each.pid not in before]

    await until(lambda: len(found()) == 1)
    return found()[0]


async def test_a_supervisor_that_waits_gets_the_next_order_or_is_replaced_and_ends_with_its_server(warm: Runs) -> None:
    before = {each.pid for each in process_tree.table().values()}
    await warm.run(warm.tasks(HELLO))
    first = await waiting(before)
    ran = await warm.run(warm.tasks(ANCESTORS))
    assert str(first) in str(ran.said("ancestors")).split()
    second = await waiting(before)
    assert process_tree.read(first) is None

    os.kill(second, signal.SIGKILL)
    await until(lambda: not lives(second))
    assert (await warm.run(warm.tasks(HELLO))).result.outcome is Outcome.SUCCEEDED
    third = await waiting(before)
    assert third != second
    assert warm.engine.pool.problem is None

    await warm.engine.close(0)
    assert process_tree.read(third) is None


async def test_content_installed_or_configured_later_is_used_by_the_next_run(
    own: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collections, config = tmp_path / "collections", tmp_path / "ansible.cfg"
    plugin = collections / "ansible_collections" / "own" / "kit" / "plugins" / "filter" / "said.py"
    plugin.parent.mkdir(parents=True)
    config.write_text("[defaults]\ndisplay_skipped_hosts = true\n")
    text = 'class FilterModule:\n    def filters(self):\n        return {"said": lambda value: "%s"}\n'
    plugin.write_text(text % "before")
    monkeypatch.setenv("ANSIBLE_CONFIG", str(config))
    monkeypatch.setenv("ANSIBLE_COLLECTIONS_PATH", str(collections))
    playbook = own.tasks(
        "- {name: said, debug: {msg: \"{{ '' | own.kit.said }} {{ lookup('config', 'DEFAULT_FORKS') }}\"}}"
    )

    before = await own.run(playbook)
    await own.engine.settle()  # by now the filter is preloaded
    again = await own.run(playbook)
    first = server(own)
    plugin.write_text(text % "afterwards")
    config.write_text("[defaults]\nforks = 17\n")
    await asyncio.sleep(1.1)  # a server is looked at no more than once a second
    afterwards = await own.run(playbook)

    assert before.said("said") == again.said("said") == "before 5"
    assert afterwards.said("said") == "afterwards 17"
    assert server(own) != first


async def test_runs_whose_environment_has_empty_variables_are_forked(
    own: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCH_NAMESPACE", "")

    ran = await own.run(own.tasks("- {name: said, debug: {msg: \"<{{ lookup('env', 'WATCH_NAMESPACE') }}>\"}}"))

    assert ran.said("said") == "<>"
    assert own.engine.pool.problem is None


async def test_plugins_that_a_run_loaded_are_preloaded_by_the_next_fork_server(shared: Runs) -> None:
    first = set(shared.engine.pool.servers())
    playbook = shared.tasks(
        "- {name: said, debug: {msg: \"{{ '1.2' is version('1.1', '>') }} {{ lookup('sequence', 'end=2') }}\"}}"
    )

    before = await shared.run(playbook)
    await shared.engine.settle()
    afterwards = await shared.run(playbook)

    assert first
    await until(lambda: not any(map(lives, first)))
    assert afterwards.said("said") == before.said("said")


async def test_a_kubernetes_lookup_is_preloaded_for_the_next_run(shared: Runs) -> None:
    filters = shared.content / "filter_plugins"
    filters.mkdir(parents=True)
    (filters / "own.py").write_text(
        "import sys\n\nclass FilterModule:\n    def filters(self):\n"
        "        return {'is_loaded': lambda name: name in sys.modules}\n"
    )
    playbook = shared.tasks("""
- name: said
  debug: {msg: "{{ 'ansible_collections.kubernetes.core.plugins.lookup.k8s' | is_loaded }}"}
- name: looked up
  set_fact: {found: "{{ query('kubernetes.core.k8s', kind='Pod') }}"}
  ignore_errors: true
""")

    before = await shared.run(playbook)
    await shared.engine.settle()
    afterwards = await shared.run(playbook)

    assert str(before.said("said")) == "False"
    assert str(afterwards.said("said")) == "True"


async def test_each_environment_has_a_server_of_its_own(shared: Runs) -> None:
    playbook = shared.tasks(
        "- {name: said, debug: {msg: \"{{ lookup('env', 'OWN') }} {{ lookup('config', 'DEFAULT_FORKS') }}\"}}"
    )

    before = set(shared.engine.pool.servers())

    said = [
        (await shared.run(playbook, environment=environment)).said("said")
        for environment in ({"OWN": "a"}, {"OWN": "b", "ANSIBLE_FORKS": "3"}, {"OWN": "a"})
    ]

    assert said == ["a 5", "b 3", "a 5"]
    assert len(set(shared.engine.pool.servers()) - before) == 2


async def test_a_run_that_uses_too_much_memory_is_ended_with_the_cause(
    runs_of: RunsOf, tmp_path: Path, processes_of: Callable[[Path], list[int]]
) -> None:
    engine = ProcessEngines(tmp_path / "runner", memory_limit=300 << 20)
    runs = runs_of(engine, tmp_path / "runner", tmp_path / "operator")
    hungry = "import time; kept = bytearray(400 << 20); kept[::4096] = b'x' * len(kept[::4096]); time.sleep(600)"
    playbook = runs.tasks(f'- {{name: hungry, command: {{argv: ["{sys.executable}", -c, "{hungry}"]}}}}')
    try:
        ran = await runs.run(playbook)

        assert ran.result.outcome is Outcome.DIED
        assert ran.result.message.startswith("the run was ended because its processes used ")
        assert "more than --run-memory-limit allows (300 MiB), during task 'hungry'" in ran.result.message
        assert processes_of(runs.root) == []
        assert (await runs.run(runs.tasks(HELLO))).result.outcome is Outcome.SUCCEEDED
    finally:
        await engine.close(0)
