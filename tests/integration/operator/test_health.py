"""What probes say while something around the operator is broken; all of it is broken from outside."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import urllib3

from tests.kit.wait import patience, wait_until

if TYPE_CHECKING:
    from runner.sdk.devcluster import DevCluster
    from tests.kit.objects import Things
    from tests.kit.operator import Operator, Project

CHATTY = """
    - name: Say much
      ansible.builtin.debug:
        msg: "{{ 'x' * 200000 }}"
"""
# What every interpreter does first that starts while this is there.
BREAKS = "import os\nos.write(2, b'no interpreter starts here\\n')\nos._exit(3)\n"
# The operator writes into a pipe; who reads it can be stopped.
PIPED = 'mkfifo pipe; cat < pipe & echo $! > reader; exec "$@" > pipe 2>&1'


class Probes:
    """Sends requests over one connection that stays open until the server closes it."""

    def __init__(self, operator: Operator) -> None:
        port, limit = operator.port("/readyz"), patience()
        self._pool = urllib3.HTTPConnectionPool("127.0.0.1", port, maxsize=1, retries=False, timeout=limit)

    def ask(self, path: str) -> tuple[int, list[str]]:
        answer = self._pool.request("GET", path)
        return answer.status, answer.data.decode().splitlines()

    def broken(self, path: str) -> list[str]:
        """The checks that failed."""
        return [line for line in self.ask(path)[1] if line.startswith("[-]")]

    def close(self) -> None:
        self._pool.close()


@pytest.fixture
def operator(project: Project) -> Iterator[Operator]:
    project.role("thing", CHATTY)
    project.watch("thing")
    interpreters = project.folder / "interpreters"
    interpreters.mkdir()
    yield project.start(
        "--engine=warm",
        "--log-level=debug",
        within=["bash", "-c", PIPED, "piped"],
        environment={"PYTHONPATH": str(interpreters)},
    )
    reader = int((project.folder / "reader").read_text())
    os.kill(reader, signal.SIGCONT)


@pytest.fixture
def probes(operator: Operator) -> Iterator[Probes]:
    probes = Probes(operator)
    yield probes
    probes.close()


@pytest.mark.full
def test_probes_fail_during_each_fault_and_pass_after_it(
    operator: Operator,
    probes: Probes,
    project: Project,
    things: Things,
    devcluster: DevCluster,
) -> None:
    checks = ["ping", "event-loop", "proxy", "watch-silence/thing.v1.test.example.com"]
    assert probes.ask("/healthz") == (200, ["ok"])
    status, lines = probes.ask("/readyz?verbose")
    assert status == 200
    assert sorted(lines) == sorted(
        [f"[+]{name} ok" for name in (*checks, "startup", "engine", "identity", "watch/thing.v1.test.example.com")]
        + ["readyz check passed"]
    )

    # No file can be opened any more: runs that begin would find no proxy.
    before = resource.prlimit(operator.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(operator.process.pid, resource.RLIMIT_NOFILE, (4, before[1]))
    wait_until(lambda: probes.broken("/healthz"), "the proxy to be missed")
    assert probes.broken("/healthz") == ["[-]proxy failed: cannot be reached: Too many open files"]
    resource.prlimit(operator.process.pid, resource.RLIMIT_NOFILE, before)
    wait_until(lambda: probes.ask("/healthz")[0] == 200, "the proxy to be found again")

    # The fork server is gone, and no other one starts: a restart would not help.
    server = operator.await_line("Fork server is ready")["pid"]
    breaks = project.write("interpreters/sitecustomize.py", BREAKS)
    os.kill(server, signal.SIGKILL)
    wait_until(lambda: probes.broken("/readyz"), "the engine to be missed")
    assert [line.partition(":")[0] for line in probes.broken("/readyz")] == ["[-]engine failed"]
    assert "no interpreter starts here" in probes.broken("/readyz")[0]
    assert probes.ask("/healthz") == (200, ["ok"])
    breaks.unlink()
    wait_until(lambda: probes.ask("/readyz")[0] == 200, "another fork server")

    # The API server is away: a restart would not help, and who starts now waits.
    devcluster.stop_apiserver()
    late = project.start(f"--runner-dir={project.folder / 'late'}", ready=False)
    late.await_line("Serving")
    wait_until(lambda: probes.broken("/readyz"), "the watch to be missed")
    (broken,) = probes.broken("/readyz")
    assert broken.startswith("[-]watch/thing.v1.test.example.com failed: failing: ")
    assert probes.ask("/healthz") == (200, ["ok"])
    with closing(Probes(late)) as waiting:
        unreachable = "[-]startup failed: Cannot reach the API server: GET /version: "
        wait_until(lambda: [line.startswith(unreachable) for line in waiting.broken("/readyz")] == [True], "the cause")
        assert waiting.ask("/healthz") == (200, ["ok"])
    # Ansible is loaded meanwhile. Whoever is stopped before its first run leaves nothing of it.
    ended = project.start(f"--runner-dir={project.folder / 'ended'}", "--log-level=debug", ready=False)
    server = ended.await_line("Fork server is ready")["pid"]
    assert ended.stop() == 0
    assert not Path(f"/proc/{server}").exists()
    assert list((project.folder / "ended").glob(".warm-*")) == []

    devcluster.start_apiserver()
    wait_until(lambda: probes.ask("/readyz")[0] == 200, "the watch to be live again")
    wait_until(late.is_ready, "the other operator to have started")
    assert late.stop() == 0

    # Nobody takes what the operator writes: it is stuck in the middle of a line.
    reader = int((project.folder / "reader").read_text())
    os.kill(reader, signal.SIGSTOP)
    for number in range(5):
        things.create(f"thing-{number}")
    wait_until(lambda: probes.broken("/healthz"), "the event loop to be stuck")
    assert probes.broken("/healthz")[0].startswith("[-]event-loop failed: blocked for ")
    os.kill(reader, signal.SIGCONT)
    wait_until(lambda: probes.ask("/healthz")[0] == 200, "the event loop to work again")
    things.await_success("thing-0")
    assert operator.stop() == 0
