"""What an operator that has nothing to do may hold: processes, files, sockets and memory within bounds."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from pathlib import Path

from runner.agent import process_tree
from tests.faults.actions import fork_servers
from tests.faults.world import World

_DESCRIPTORS = 60
"""An operator with one kind, one dependent kind and one fork server holds about thirty."""
_SOCKETS = 45
_MEMORY_GROWTH = 48.0
"""MiB above what it held when it was idle for the first time: about the caches that fill with what is seen."""
_MEMORY = 260.0
_MOST_SERVERS = 3
_ARTIFACTS = 3


def found(world: World) -> list[str]:
    """Say what is there that should not be; empty when nothing has leaked."""
    return [*_processes(world), *_files(world), *_descriptors(world), *_memory(world)]


def is_idle(world: World) -> bool:
    """Whether no run goes on: no process lives but the operator's own. (What is dead and not buried, is a leak.)"""
    return not process_tree.living(_of_runs(world))


def going_on(world: World) -> str:
    """Describe the runs that go on."""
    return "\n".join(["the last run to end:", *map(_describe, process_tree.living(_of_runs(world)))])


def where_it_stands(world: World) -> str:
    """Describe what the operator's threads wait for (proc_pid_status(5), proc_pid_wchan(5))."""
    found = []
    for thread in sorted(Path(f"/proc/{world.life.process.pid}/task").glob("*")):
        with contextlib.suppress(OSError):
            state = next(line for line in (thread / "status").read_text().splitlines() if line.startswith("State"))
            found.append(f"thread {thread.name}: {state} in {(thread / 'wchan').read_text()}")
    return "\n".join(["the operator's threads:", *found])


def _of_runs(world: World) -> list[process_tree.Process]:
    """Every process that the operator, or an earlier one, brought about, but fork servers."""
    table = process_tree.table()
    pid = world.life.process.pid
    below = process_tree.descendants(table, [pid])
    marked = {each for each in table if _is_ours(world, each)}
    return [table[each] for each in (below | marked) - fork_servers(pid) - {pid}]


def _servers(world: World) -> list[int]:
    """The fork servers, without the supervisors that wait for an order: those have sessions of their own."""
    table = process_tree.table()
    return [pid for pid in fork_servers(world.life.process.pid) if pid in table and table[pid].session != pid]


def _is_ours(world: World, pid: int) -> bool:
    """Whether a process was started below the world's operators, wherever it is now."""
    if pid == os.getpid():
        return False
    with contextlib.suppress(OSError):
        return f"FAULTS_WORLD={world.folder}".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    return False


def _processes(world: World) -> list[str]:
    left = [f"process {_describe(each)}" for each in _of_runs(world)]
    servers = _servers(world)
    return left + ([f"{len(servers)} fork servers"] if len(servers) > _MOST_SERVERS else [])


def _describe(process: process_tree.Process) -> str:
    with contextlib.suppress(OSError):
        folder = Path(f"/proc/{process.pid}")
        command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        where = f"{(folder / 'comm').read_text().strip()}, session {process.session}"
        return f"{process.pid} of {process.parent}{' (zombie)' if process.zombie else ''}: {where}: {command}"
    return f"{process.pid} (gone now)"


def _files(world: World) -> list[str]:
    runs = world.disk.folder / "runs"
    servers = _servers(world)
    scratch = sorted(runs.glob(".warm-*"))
    left = [f"scratch folders {[each.name for each in scratch]} of {len(servers)} fork servers"] * (
        len(scratch) > len(servers)
    )
    left += [f"a kubeconfig: {each}" for each in runs.glob("**/env/kubeconfig")]
    left += [f"temporary files: {each}" for each in runs.glob("**/tmp")]
    for folder in runs.glob("*/*/Thing/*/*"):
        if folder.name not in world.sizes and folder.is_dir():
            left.append(f"the folder of an object that is gone: {folder}")
        kept = [each for each in (folder / "artifacts").glob("*") if each.is_dir() and not each.is_symlink()]
        if len(kept) > _ARTIFACTS:
            left.append(f"{len(kept)} artifacts in {folder}")
    return left


def _descriptors(world: World) -> list[str]:
    kinds: Counter[str] = Counter()
    for each in Path(f"/proc/{world.life.process.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            kinds[str(each.readlink()).partition(":")[0]] += 1
    left = []
    if kinds.total() > _DESCRIPTORS or kinds["socket"] > _SOCKETS:
        left.append(f"open files: {dict(kinds)}")
    if world.relay.connections > _SOCKETS:
        left.append(f"{world.relay.connections} connections to the API server")
    return left


def _memory(world: World) -> list[str]:
    life = world.life
    held = resident(life.process.pid)
    life.idle_memory = life.idle_memory or held
    if held > _MEMORY or held - life.idle_memory > _MEMORY_GROWTH:
        return [f"{held:.0f} MiB of memory, {life.idle_memory:.0f} when it was idle first"]
    return []


def resident(pid: int) -> float:
    """Return the memory of a process in MiB (proc_pid_statm(5))."""
    return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
