"""The two sides of the comparison, and what a run on each costs.

Cold is `ansible-runner run`, as the Go operator starts it, in a folder that is made ready beforehand. Warm is the
operator's own engine in this process, from the job to its result: making the folder ready counts, and so does what
this process spends.

CPU is user and system time. Cold: that of `ansible-runner` and of all descendants that were waited for, by `wait4`.
Warm: what `getrusage` says of this process and of its children that were waited for meanwhile (runs' supervisors among
them, with all that is below), and what `/proc` says of the fork servers and of their children. The kernel gives the
latter in hundredths of a second, so figures of CPU are means over all repeats.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from bench import process_stats
from runner.engine import processes, run_dir
from runner.engine.engines import EngineSettings
from runner.engine.job import Event, Job, Outcome
from runner.engine.run_engine import RunEngine

_TICKS = os.sysconf("SC_CLK_TCK")
_SAMPLE_EVERY = 0.02


@dataclass(frozen=True, slots=True)
class Cost:
    """What runs cost: seconds from the first one's start to the last one's end, and seconds of CPU of all of them."""

    wall: float
    cpu: float
    did: tuple[tuple[str, int], ...]
    """What the recaps say: tasks by how they ended. The same on both sides, or they did different things."""


class Side(Protocol):
    """Something that runs jobs."""

    async def run(self, jobs: Sequence[Job]) -> Cost:
        """Run them at once. One that fails is a RuntimeError."""
        ...

    def processes(self) -> list[int]:
        """Return the processes that are there because of runs, now."""
        ...


class Cold:
    """`ansible-runner run` for each job."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def run(self, jobs: Sequence[Job]) -> Cost:
        """Run them at once."""
        folders = [run_dir.prepare(job, processes.run_id(self._root, job.ident), os.environ) for job in jobs]
        began = time.perf_counter()
        spent = await asyncio.gather(*(asyncio.to_thread(_ansible_runner, folder) for folder in folders))
        wall = time.perf_counter() - began
        stats = [_stats(_events(folder.artifacts / folder.ident)) for folder in folders]
        for folder, job in zip(folders, jobs, strict=True):
            run_dir.clear(folder, job.max_artifacts, job.secrets)
        return Cost(wall, sum(spent), _sum(stats))

    def processes(self) -> list[int]:
        """Return the runs' processes."""
        return _of_runs(self._root, ())


class Warm:
    """The operator's engine."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.engine = RunEngine(root, EngineSettings("warm", frozenset(), 0))

    async def run(self, jobs: Sequence[Job]) -> Cost:
        """Run them at once."""
        seen: list[list[Event]] = [[] for _ in jobs]
        before, began = self._spent(), time.perf_counter()
        results = await asyncio.gather(
            *(self.engine.run(job, events.append) for job, events in zip(jobs, seen, strict=True))
        )
        wall, cpu = time.perf_counter() - began, self._spent() - before
        for result in results:
            if result.outcome is not Outcome.SUCCEEDED:
                raise RuntimeError(f"a run of the benchmark failed: {result}")
        if self.engine.problem:
            raise RuntimeError(f"runs were not warm: {self.engine.problem}")
        return Cost(wall, cpu, _sum([_stats(events) for events in seen]))

    def processes(self) -> list[int]:
        """Return the fork servers' and the runs' processes."""
        return _of_runs(self._root, self.engine.servers)

    def _spent(self) -> float:
        """Seconds of CPU of everything that belongs to this side, since whenever."""
        usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        own = sum(usage.ru_utime + usage.ru_stime for usage in usages)
        return own + sum(process_stats.cpu_seconds(pid) + _of_children(pid) for pid in self.engine.servers)


def _ansible_runner(folder: run_dir.RunFolder) -> float:
    """Run it; return the seconds of CPU that it and everything below it took."""
    installed = Path(sys.executable).parent  # it looks for ansible-playbook on the path
    environment = {**folder.environment, "PATH": f"{installed}{os.pathsep}{folder.environment['PATH']}"}
    command = [
        str(installed / "ansible-runner"),
        "run",
        str(folder.path),
        *("--ident", folder.ident, "--playbook", str(folder.playbook), "--inventory", str(folder.inventory)),
        f"-{'v' * folder.verbosity}",
    ]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        said = (folder.artifacts / folder.ident / "stdout").read_text(encoding="utf-8")
        raise RuntimeError(f"{' '.join(command)} ended with exit code {process.returncode}:\n{said[-4000:]}")
    return usage.ru_utime + usage.ru_stime


def _events(artifacts: Path) -> Iterable[Event]:
    return (json.loads(file.read_bytes()) for file in (artifacts / "job_events").glob("*.json"))


def _stats(events: Iterable[Event]) -> dict[str, int]:
    """Return the play recap of localhost."""
    (stats,) = (event["event_data"] for event in events if event["event"] == "playbook_on_stats")
    return {kind: stats[kind].get("localhost", 0) for kind in ("ok", "changed", "skipped", "failures")}


def _sum(recaps: list[dict[str, int]]) -> tuple[tuple[str, int], ...]:
    return tuple((kind, sum(recap[kind] for recap in recaps)) for kind in recaps[0])


def _of_children(pid: int) -> float:
    """Seconds of CPU of a process' children that it has waited for."""
    text = Path(f"/proc/{pid}/stat").read_bytes()
    fields = text[text.rindex(b")") + 2 :].split()
    return (int(fields[13]) + int(fields[14])) / _TICKS


def _of_runs(root: Path, servers: Iterable[int]) -> list[int]:
    prefix = processes.run_id(root, "").partition(":")[0]
    table = processes.table()
    roots = {pid for pid in table if (processes.marker(pid) or "").startswith(f"{prefix}:")} | set(servers)
    found = roots | processes.descendants(table, roots)
    return [pid for pid in found if pid in table and not table[pid].zombie]


async def added_memory(side: Side, jobs: Sequence[Job]) -> float:
    """Run jobs at once; return the most memory in MiB that they added together, by looking again and again (PSS)."""
    before = memory(side.processes())
    running = asyncio.create_task(side.run(jobs))
    peak = 0.0
    while not running.done():
        peak = max(peak, await asyncio.to_thread(lambda: memory(side.processes())))
        await asyncio.sleep(_SAMPLE_EVERY)
    await running
    return peak - before


def memory(pids: Iterable[int]) -> float:
    """Return what processes use together in MiB; one that ends meanwhile counts nothing."""
    return sum(map(_proportional, pids))


def _proportional(pid: int) -> float:
    try:
        return process_stats.proportional(pid)
    except (OSError, ValueError):
        return 0.0


def again(job: Job, ident: str) -> Job:
    """The same job, as another run."""
    return replace(job, ident=ident)
