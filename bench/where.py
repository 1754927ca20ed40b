"""Where the time of a run goes: of the first one after a start, and of later ones. `python -m bench.where`.

Two operators are started for each role. The first is only timed; py-spy samples the second, and slows it down. So the
seconds are those of the first, divided by the samples of the second. Each gets an object as soon as it is ready, and
changes of it, which are the later runs. py-spy needs root, or the right to trace processes.

The parts of a run, by the innermost frame in the stack of the playbook's process that `PARTS` knows: templates, fields
of tasks and plays, plugins and Python modules that are loaded, files that are parsed, results and events, and the rest
of Ansible. While a module runs, its own process counts: API calls, and the module's own code. What is left is waiting,
such as for a process that starts.

`BENCH_CASES` (names of `bench.corpus`, with commas) and `BENCH_REPEATS` (3 later runs) make it smaller.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.corpus import CASES, Case
from bench.engine_bed import Access, Bed, service
from bench.operator_process import DEADLINE, OperatorProcess, Project, moment, running
from bench.results import Result, show, tell
from runner.base.credentials import auth
from runner.core.kube.client import Client
from runner.sdk import devcluster
from tests.kit.wait import until

_CASE = "where"
_NAMESPACE = "bench-where"
_RATE = 200
"""Samples a second."""
_ATTACHING = 2.0
"""Seconds in which py-spy finds the processes that are there."""
_SETTLE = 1.0
"""Seconds after which the runs that a run causes have begun."""

_PLAYBOOK, _MODULE = "_be_playbook (", "_be_module ("
_STARTED = "exit_code (runner/agent/interpreter.py"
_WAITING = "waiting"
PARTS: Sequence[tuple[str, re.Pattern[str]]] = tuple(
    (part, re.compile(pattern))
    for part, pattern in (
        (_WAITING, r"wait_for_answer|\(select(ors)?\.py|recv_fds|Connection\._recv|_wait_on_pending"),
        ("files", r"\((yaml/|ansible/parsing/|ansible/_internal/_yaml/|ansible/playbook/(role/|helpers|included))"),
        ("plugins", r"\((ansible/plugins/loader\.py|ansible/utils/collection_loader/|<frozen importlib|importlib/)"),
        ("templates", r"\((ansible/_internal/_templating/|ansible/template/|jinja2/|.*patches/(templates|values)\.py)"),
        ("events", r"(callback|_events?_|send_callback|event_socket|task_result|process_pending)"),
        ("fields", r"\(ansible/playbook/|post_validate|\(ansible/vars/|patches/(fields|copies)\.py"),
    )
)
"""Parts of a playbook's process, by the frames `FUNCTION (FILE:LINE)` that belong to them."""
_API = re.compile(r"\((http/client|urllib3/|ssl|socket)")


@dataclass(frozen=True, slots=True)
class Wall:
    """Seconds of one run, from the change of its object."""

    until_process: float
    until_end: float
    until_status: float


def shares(lines: Iterable[str]) -> Mapping[str, float]:
    """Return the share of each part in a run, from lines of py-spy: `FRAME;FRAME;... SAMPLES`. They sum up to 1."""
    playbook, module = Counter[str](), Counter[str]()
    for line in lines:
        stack, _, samples = line.rpartition(" ")
        frames = stack.split(";")
        if (own := _after(_MODULE, frames)) is not None:
            if any("run_module" in frame for frame in own):
                module["API" if any(_API.search(frame) for frame in own) else "module"] += int(samples)
        elif _after(_PLAYBOOK, frames) is not None and (own := _after(_STARTED, frames)) is not None:
            playbook[_part(own)] += int(samples)
    # Modules run while the playbook's process waits for them.
    playbook[_WAITING] = max(0, playbook[_WAITING] - module.total())
    both = playbook + module
    return {part: count / both.total() for part, count in both.items()}


def _after(mark: str, frames: Sequence[str]) -> Sequence[str] | None:
    """Return the frames within the last one with this mark; None if there is none."""
    at = next((at for at in reversed(range(len(frames))) if mark in frames[at]), None)
    return None if at is None else frames[at + 1 :]


def _part(frames: Sequence[str]) -> str:
    known = (part for frame in reversed(frames) for part, pattern in PARTS if pattern.search(frame))
    return next(known, "rest of Ansible")


def main() -> None:
    """Measure on a control plane that goes afterwards."""
    names = os.environ.get("BENCH_CASES", "portal,typical,queue").split(",")
    repeats = int(os.environ.get("BENCH_REPEATS", "3"))
    with (
        devcluster.start(name="bench", progress=sys.stderr) as cluster,
        tempfile.TemporaryDirectory(prefix="ansible-operator-bench-") as folder,
        service() as url,
    ):
        asyncio.run(_measure(cluster, Path(folder), url, [case for case in CASES if case.name in names], repeats))


async def _measure(cluster: devcluster.DevCluster, folder: Path, url: str, cases: Iterable[Case], repeats: int) -> None:
    async with Client(await auth.load(str(cluster.kubeconfig), None, auth.HostEnvironment.of_process())) as client:
        await client.request("POST", "/api/v1/namespaces", body={"metadata": {"name": _NAMESPACE}})
        bed = Bed(client, folder / "runs", Access("{}", ""), url, cluster.exec_container, _NAMESPACE)
        for case in cases:
            tell("{}; load average {:.1f}, {:.1f}, {:.1f}".format(case.name, *os.getloadavg()))
            await bed.install(case)
            project = Project(folder / case.name, cluster.kubeconfig)
            project.folder.mkdir()
            for file in case.folder.iterdir():
                (project.folder / file.name).symlink_to(file)
            for result in await _of_case(bed, project, case, repeats):
                show(result)


async def _of_case(bed: Bed, project: Project, case: Case, repeats: int) -> Iterator[Result]:
    async with running(project, _NAMESPACE) as operator:
        await operator.await_ready()
        walls = [await _run(bed, operator, case, number) for number in range(1 + repeats)]
    await bed.delete(case.path(_NAMESPACE, case.name))
    async with running(project, _NAMESPACE) as operator:
        await operator.await_ready()
        sampled = [await _sampled(bed, operator, case, number) for number in range(2)]
    await bed.delete(case.path(_NAMESPACE, case.name))
    return itertools.chain(
        _results(f"{case.name}, first", walls[:1], sampled[0]), _results(f"{case.name}, again", walls[1:], sampled[1])
    )


async def _run(bed: Bed, operator: OperatorProcess, case: Case, number: int) -> Wall:
    """Create the object, or change it, and wait for its status, and then for the runs that this causes."""
    runs, began = len(operator.lines("Run started")), time.time()
    await bed.apply(case, case.name, trigger=number)
    process = (await operator.await_lines(runs + 1, "Run's process started"))[runs]
    end = (await operator.await_lines(runs + 1, "Run ended"))[runs]
    await until(partial(_is_done, bed, case), "the run to be in the status", DEADLINE)
    wall = Wall(moment(process) - began, moment(end) - began, time.time() - began)
    while True:
        await asyncio.sleep(_SETTLE)
        if len(operator.lines("Run started")) == len(operator.lines("Run ended")):
            return wall


async def _is_done(bed: Bed, case: Case) -> bool:
    obj = await bed.client.request("GET", case.path(_NAMESPACE, case.name))
    conditions = {condition["type"]: condition for condition in obj.get("status", {}).get("conditions", [])}
    successful = conditions.get("Successful", {})
    is_current = successful.get("observedGeneration") == obj["metadata"]["generation"]
    return bool(is_current and successful.get("status") == "True")


async def _sampled(bed: Bed, operator: OperatorProcess, case: Case, number: int) -> Mapping[str, float]:
    """Sample all processes of the operator during a run; return the share of each part."""
    file = operator.project.folder / f"samples-{number}"
    spy = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("py-spy"),
        *("record", "--subprocesses", "--idle", "--format=raw", f"--rate={_RATE}"),
        *(f"--pid={operator.pid}", f"--output={file}"),
        stdout=subprocess.DEVNULL,
    )
    await asyncio.sleep(_ATTACHING)
    await _run(bed, operator, case, number)
    spy.send_signal(signal.SIGINT)
    if await spy.wait():
        raise RuntimeError("py-spy failed; it needs root, or the right to trace processes")
    return shares(file.read_text(encoding="utf-8").splitlines())


def _results(what: str, walls: Sequence[Wall], parts: Mapping[str, float]) -> Iterator[Result]:
    def median(read: Callable[[Wall], float]) -> float:
        return statistics.median(map(read, walls))

    yield Result(_CASE, f"{what}: all", median(lambda wall: wall.until_status), "s")
    yield Result(_CASE, f"{what}: until the run's process starts", median(lambda wall: wall.until_process), "s")
    run = median(lambda wall: wall.until_end - wall.until_process)
    for part, share in sorted(parts.items(), key=lambda item: -item[1]):
        yield Result(_CASE, f"{what}: run, {part}", run * share, "s")
    status = median(lambda wall: wall.until_status - wall.until_end)
    yield Result(_CASE, f"{what}: from its end to the status", status, "s")


if __name__ == "__main__":
    main()
