from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from runner.agent import machine

MEMINFO = "MemTotal:       8000000 kB\nMemFree:        1000000 kB\nMemAvailable:   5000000 kB\n"


@pytest.fixture(autouse=True)
def eight_schedulable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_without_a_limit_every_schedulable_cpu_counts(tmp_path: Path) -> None:
    assert machine.usable_cpus(tmp_path) == 8
    write(tmp_path, **{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"})
    assert machine.usable_cpus(tmp_path) == 8


def test_the_quota_of_a_container_limits_and_a_part_counts_as_one(tmp_path: Path) -> None:
    write(tmp_path, **{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"})
    assert machine.usable_cpus(tmp_path) == 2
    write(tmp_path, **{"sys/fs/cgroup/cpu.max": "10000 100000\n"})
    assert machine.usable_cpus(tmp_path) == 1


def test_the_lowest_cpu_quota_of_a_parent_group_applies(tmp_path: Path) -> None:
    write(
        tmp_path,
        **{
            "proc/self/cgroup": "0::/pods/mine\n",
            "sys/fs/cgroup/pods/cpu.max": "300000 100000\n",
            "sys/fs/cgroup/pods/mine/cpu.max": "500000 100000\n",
        },
    )
    assert machine.usable_cpus(tmp_path) == 3


def test_cgroup_v1_limits_cpus(tmp_path: Path) -> None:
    write(
        tmp_path,
        **{
            "proc/self/cgroup": "3:memory:/x\n2:cpu,cpuacct:/docker/abc\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "400000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        },
    )
    assert machine.usable_cpus(tmp_path) == 4
    write(tmp_path, **{"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n"})
    assert machine.usable_cpus(tmp_path) == 8


def test_the_pressure_of_cpus_is_that_of_the_own_container_or_else_of_the_machine(tmp_path: Path) -> None:
    assert machine.cpu_stall(tmp_path) is None
    line = "some avg10=1.00 avg60=2.00 avg300=3.00 total={}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"
    write(tmp_path, **{"proc/self/cgroup": "0::/pods/mine\n", "proc/pressure/cpu": line.format(9_500_000)})
    assert machine.cpu_stall(tmp_path) == 9.5
    write(tmp_path, **{"sys/fs/cgroup/pods/mine/cpu.pressure": line.format(2_000_000)})
    assert machine.cpu_stall(tmp_path) == 2
    write(tmp_path, **{"sys/fs/cgroup/cpu.pressure": line.format(1_250_000)})
    assert machine.cpu_stall(tmp_path) == 1.25


@pytest.mark.parametrize("text", ["", "garbage", "some avg10=1.00", "some total=x", "full total=7"])
def test_pressure_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    write(tmp_path, **{"proc/self/cgroup": "0::/\n", "proc/pressure/cpu": text})
    assert machine.cpu_stall(tmp_path) is None


@pytest.mark.parametrize("text", ["", "garbage", "0 0", "-5 100000", "100000"])
def test_a_limit_that_cannot_be_read_limits_nothing(tmp_path: Path, text: str) -> None:
    write(tmp_path, **{"proc/self/cgroup": "0::/\nnonsense\n", "sys/fs/cgroup/cpu.max": text})
    assert machine.usable_cpus(tmp_path) == 8


def test_without_a_limit_the_memory_of_the_machine_applies(tmp_path: Path) -> None:
    write(tmp_path, **{"proc/meminfo": MEMINFO, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"})
    assert machine.total_memory(tmp_path) == 8_000_000 * 1024
    assert machine.free_memory(tmp_path) == 5_000_000 * 1024


def test_the_lowest_memory_limit_of_a_parent_group_applies(tmp_path: Path) -> None:
    write(
        tmp_path,
        **{
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "0::/pods/mine\n",
            "sys/fs/cgroup/pods/memory.max": "1000000\n",
            "sys/fs/cgroup/pods/memory.current": "900000\n",
            "sys/fs/cgroup/pods/mine/memory.max": "2000000\n",
            "sys/fs/cgroup/pods/mine/memory.current": "1000\n",
        },
    )
    assert machine.total_memory(tmp_path) == 1_000_000
    assert machine.free_memory(tmp_path) == 100_000


def test_cgroup_v1_limits_memory(tmp_path: Path) -> None:
    write(
        tmp_path,
        **{
            "proc/self/cgroup": "3:cpu:/x\n2:memory:/docker/abc\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "4000\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "5000\n",
        },
    )
    assert machine.total_memory(tmp_path) == 4000
    assert machine.free_memory(tmp_path) == 0


def test_memory_is_unlimited_if_no_limit_can_be_read(tmp_path: Path) -> None:
    assert machine.total_memory(tmp_path) == machine.free_memory(tmp_path) == sys.maxsize


def test_killed_processes_are_those_of_the_own_cgroup(tmp_path: Path) -> None:
    write(
        tmp_path,
        **{
            "proc/self/cgroup": "0::/pods/mine\n",
            "sys/fs/cgroup/memory.events": "oom_kill 9\n",
            "sys/fs/cgroup/pods/memory.events": "oom_kill 7\n",
            "sys/fs/cgroup/pods/mine/memory.events": "low 5\nmax 40\noom 3\noom_kill 2\noom_group_kill 1\n",
        },
    )
    assert machine.oom_kills(tmp_path) == 2


def test_in_a_container_the_mount_is_the_own_cgroup(tmp_path: Path) -> None:
    write(tmp_path, **{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.events": "oom 3\noom_kill 2\n"})
    assert machine.oom_kills(tmp_path) == 2


def test_cgroup_v1_counts_killed_processes_beside_an_unused_v2(tmp_path: Path) -> None:
    counted = "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n"
    write(
        tmp_path,
        **{
            "proc/self/cgroup": "3:cpu:/x\n2:memory:/kubepods/pod1/abc\n0::/\n",
            "sys/fs/cgroup/memory/memory.oom_control": counted,
        },
    )
    assert machine.oom_kills(tmp_path) == 4


@pytest.mark.parametrize("text", ["", "oom_kill_disable 0\n", "oom_kill many\n"])
def test_without_a_counter_no_process_was_killed(tmp_path: Path, text: str) -> None:
    assert machine.oom_kills(tmp_path) == 0
    write(tmp_path, **{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.events": text})
    assert machine.oom_kills(tmp_path) == 0


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1048576\n"}, 1048576),
        ({"proc/self/cgroup": "0::/pod\n", "sys/fs/cgroup/pod/memory.max": "max\n"}, 0),
        ({"proc/self/cgroup": "4:memory:/a\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "2097152\n"}, 2097152),
        ({"proc/self/cgroup": "4:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{2**63 - 4096}\n"}, 0),
        ({}, 0),
    ],
)
def test_the_memory_limit_is_that_of_the_container_and_zero_without_one(
    files: dict[str, str], limit: int, tmp_path: Path
) -> None:
    write(tmp_path, **files)
    assert machine.memory_limit(tmp_path) == limit
