"""Runs of the engine's benchmark, and what they cost.

Both sides are the operator's own engine in this process, with `exec` or `warm`, from the job to its result: making the
run folder ready counts, and so does what this process spends.

CPU is user and system time: what `getrusage` reports for this process and for its children that were waited for
meanwhile (runs' supervisors among them, with all that is below), and what `/proc` reports for the fork servers and for
their children. The kernel gives the latter in hundredths of a second, so figures of CPU are means over all repeats.
"""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import process_stats
from runner.agent import process_tree
from runner.base.config.settings import EngineName
from runner.core.engine import processes
from runner.core.engine.job import Event, Job, Outcome
from tests.kit.engines import ProcessEngines

_TICKS = os.sysconf("SC_CLK_TCK")
_SAMPLE_EVERY = 0.02


@dataclass(frozen=True, slots=True)
class Cost:
    """Wall time from the first run's start to the last one's end, and CPU of all of them, in seconds."""

    wall: float
    cpu: float
    recaps: tuple[tuple[int, ...], ...]
    """Of each run: how many tasks were ok, changed, skipped and failed."""
    events: tuple[Sequence[Event], ...]


class Runs:
    """Runs jobs on either engine."""

    def __init__(self, root: Path, without: frozenset[str]) -> None:
        self._root = root
        self.engine = ProcessEngines(root, "warm", without)
        self._servers: set[int] = set()
        """Fork servers that may live: one that was replaced ends later, and what it has spent is no cost of a run."""

    async def run(self, jobs: Sequence[Job], engine: EngineName) -> Cost:
        """Run them at once. A run that fails, or is not started by the engine, is a RuntimeError."""
        seen: list[list[Event]] = [[] for _ in jobs]
        self._servers = {pid for pid in (*self._servers, *self.engine.pool.servers()) if _lives(pid)}
        servers, forked = self._servers, self.engine.pool.started_runs
        before, began = _spent(servers), time.perf_counter()
        results = await asyncio.gather(
            *(self.engine.run(job, events.append, engine) for job, events in zip(jobs, seen, strict=True))
        )
        wall, cpu = time.perf_counter() - began, _spent(servers) - before
        for result, events in zip(results, seen, strict=True):
            if result.outcome is not Outcome.SUCCEEDED:
                last = "\n".join(event.get("stdout") or "" for event in events[-8:])
                raise RuntimeError(f"a run of the benchmark failed: {result}\n{last[-4000:]}")
        if self.engine.pool.started_runs - forked != (len(jobs) if engine == "warm" else 0):
            raise RuntimeError(f"runs were not warm: {self.engine.pool.problem}")
        recaps = [result.recap for result in results if result.recap]
        did = tuple((recap.ok, recap.changed, recap.skipped, recap.failures) for recap in recaps)
        return Cost(wall, cpu, did, tuple(seen))

    def processes(self) -> list[int]:
        """Return the fork servers' and the runs' processes."""
        prefix = processes.run_id(self._root, "").partition(":")[0]
        table = process_tree.table()
        servers = set(self.engine.pool.servers())
        roots = {pid for pid in table if (processes.marker(pid) or "").startswith(f"{prefix}:")} | servers
        return [pid for pid in roots | process_tree.descendants(table, roots) if pid in table and not table[pid].zombie]

    async def added_memory(self, jobs: Sequence[Job]) -> float:
        """Fork jobs at once; return the most memory in MiB that they added together, by sampling (PSS)."""
        before = memory(self.processes())
        running = asyncio.create_task(self.run(jobs, "warm"))
        peak = 0.0
        while not running.done():
            peak = max(peak, await asyncio.to_thread(lambda: memory(self.processes())))
            await asyncio.sleep(_SAMPLE_EVERY)
        await running
        return peak - before


def memory(pids: Iterable[int]) -> float:
    """Return what processes use together in MiB (PSS); one that ends meanwhile counts nothing."""
    return sum(map(_proportional, pids))


def _proportional(pid: int) -> float:
    try:
        return process_stats.proportional(pid)
    except (OSError, ValueError):
        return 0.0


def _spent(servers: Iterable[int]) -> float:
    """Return the seconds of CPU that this process, its former children and the fork servers have used so far.

    A server that has ended meanwhile is among the former children.
    """
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    own = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    return own + sum(process_stats.cpu_seconds(pid) + _of_children(pid) for pid in servers if _lives(pid))


def _lives(pid: int) -> bool:
    return Path(f"/proc/{pid}/task").exists()


def _of_children(pid: int) -> float:
    """Return the seconds of CPU of a process' children that it has waited for."""
    text = Path(f"/proc/{pid}/stat").read_bytes()
    fields = text[text.rindex(b")") + 2 :].split()
    return (int(fields[13]) + int(fields[14])) / _TICKS
