"""CPUs and memory that a container may use, from files of cgroup v2 and v1 below another root."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from runner.agent import machine

MEMINFO = "MemTotal:       8000000 kB\nMemFree:        1000000 kB\nMemAvailable:   5000000 kB\n"
CGROUP, V2 = "proc/self/cgroup", "sys/fs/cgroup"
Files = dict[str, str]


@pytest.fixture(autouse=True)
def eight_schedulable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)


def write(root: Path, files: Files) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def v1_cpu(quota: str) -> Files:
    folder = "sys/fs/cgroup/cpu/cpu.cfs_"
    groups = "3:memory:/x\n2:cpu,cpuacct:/docker/abc\n"
    return {CGROUP: groups, f"{folder}quota_us": f"{quota}\n", f"{folder}period_us": "100000\n"}


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        pytest.param({}, 8, id="no cgroup"),
        pytest.param({CGROUP: "0::/\n", f"{V2}/cpu.max": "max 100000\n"}, 8, id="no limit"),
        pytest.param({CGROUP: "0::/\n", f"{V2}/cpu.max": "150000 100000\n"}, 2, id="a part counts as one"),
        pytest.param({CGROUP: "0::/\n", f"{V2}/cpu.max": "10000 100000\n"}, 1, id="less than one"),
        pytest.param(
            {
                CGROUP: "0::/pods/mine\n",
                f"{V2}/pods/cpu.max": "300000 100000\n",
                f"{V2}/pods/mine/cpu.max": "500000 100000\n",
            },
            3,
            id="the lowest quota of a parent group applies",
        ),
        pytest.param(v1_cpu("400000"), 4, id="v1"),
        pytest.param(v1_cpu("-1"), 8, id="v1 without a limit"),
        *(
            pytest.param({CGROUP: "0::/\nnonsense\n", f"{V2}/cpu.max": text}, 8, id=f"unreadable {text!r}")
            for text in ("", "garbage", "0 0", "-5 100000", "100000")
        ),
    ],
)
def test_the_quota_of_a_container_limits_its_cpus(tmp_path: Path, files: Files, cpus: int) -> None:
    write(tmp_path, files)
    assert machine.usable_cpus(tmp_path) == cpus


def v1_memory(limit: int | str) -> Files:
    folder = "sys/fs/cgroup/memory/memory."
    groups = "3:cpu:/x\n2:memory:/docker/abc\n"
    return {CGROUP: groups, f"{folder}limit_in_bytes": f"{limit}\n", f"{folder}usage_in_bytes": "5000\n"}


@pytest.mark.parametrize(
    ("files", "total", "free", "limit"),
    [
        pytest.param({}, sys.maxsize, sys.maxsize, 0, id="nothing can be read"),
        pytest.param(
            {"proc/meminfo": MEMINFO, CGROUP: "0::/\n", f"{V2}/memory.max": "max\n"},
            8_000_000 * 1024,
            5_000_000 * 1024,
            0,
            id="without a limit that of the machine applies",
        ),
        pytest.param(
            {
                "proc/meminfo": MEMINFO,
                CGROUP: "0::/pods/mine\n",
                f"{V2}/pods/memory.max": "1000000\n",
                f"{V2}/pods/memory.current": "900000\n",
                f"{V2}/pods/mine/memory.max": "2000000\n",
                f"{V2}/pods/mine/memory.current": "1000\n",
            },
            1_000_000,
            100_000,
            1_000_000,
            id="the lowest limit of a parent group applies",
        ),
        pytest.param(v1_memory(4000), 4000, 0, 4000, id="v1"),
        pytest.param(
            v1_memory(2**63 - 4096) | {"proc/meminfo": MEMINFO},
            8_000_000 * 1024,
            5_000_000 * 1024,
            0,
            id="v1 without a limit",
        ),
    ],
)
def test_the_memory_is_that_of_the_container_or_of_the_machine(
    tmp_path: Path, files: Files, total: int, free: int, limit: int
) -> None:
    write(tmp_path, files)
    assert machine.total_memory(tmp_path) == total
    assert machine.free_memory(tmp_path) == free
    assert machine.memory_limit(tmp_path) == limit


@pytest.mark.parametrize(
    ("files", "kills"),
    [
        pytest.param(
            {
                CGROUP: "0::/pods/mine\n",
                f"{V2}/memory.events": "oom_kill 9\n",
                f"{V2}/pods/memory.events": "oom_kill 7\n",
                f"{V2}/pods/mine/memory.events": "low 5\nmax 40\noom 3\noom_kill 2\noom_group_kill 1\n",
            },
            2,
            id="those of the own cgroup",
        ),
        pytest.param(
            {CGROUP: "0::/\n", f"{V2}/memory.events": "oom 3\noom_kill 2\n"}, 2, id="the mount is the own cgroup"
        ),
        pytest.param(
            {
                CGROUP: "3:cpu:/x\n2:memory:/kubepods/pod1/abc\n0::/\n",
                f"{V2}/memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n",
            },
            4,
            id="v1 beside an unused v2",
        ),
        pytest.param({}, 0, id="no cgroup"),
        *(
            pytest.param({CGROUP: "0::/\n", f"{V2}/memory.events": text}, 0, id=f"no counter in {text!r}")
            for text in ("", "oom_kill_disable 0\n", "oom_kill many\n")
        ),
    ],
)
def test_processes_that_the_kernel_killed_are_counted(tmp_path: Path, files: Files, kills: int) -> None:
    write(tmp_path, files)
    assert machine.oom_kills(tmp_path) == kills
