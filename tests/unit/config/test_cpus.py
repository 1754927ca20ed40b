from __future__ import annotations

import os
from pathlib import Path

import pytest

from runner.config import cpus


@pytest.fixture(autouse=True)
def eight_schedulable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_without_a_limit_every_schedulable_cpu_counts(tmp_path: Path) -> None:
    assert cpus.usable(tmp_path) == 8
    write(tmp_path, **{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"})
    assert cpus.usable(tmp_path) == 8


def test_the_quota_of_a_container_limits_and_a_part_counts_as_one(tmp_path: Path) -> None:
    write(tmp_path, **{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"})
    assert cpus.usable(tmp_path) == 2
    write(tmp_path, **{"sys/fs/cgroup/cpu.max": "10000 100000\n"})
    assert cpus.usable(tmp_path) == 1


def test_the_tightest_group_around_the_process_wins(tmp_path: Path) -> None:
    write(
        tmp_path,
        **{
            "proc/self/cgroup": "0::/pods/mine\n",
            "sys/fs/cgroup/pods/cpu.max": "300000 100000\n",
            "sys/fs/cgroup/pods/mine/cpu.max": "500000 100000\n",
        },
    )
    assert cpus.usable(tmp_path) == 3


def test_cgroup_v1_limits_too(tmp_path: Path) -> None:
    write(
        tmp_path,
        **{
            "proc/self/cgroup": "3:memory:/x\n2:cpu,cpuacct:/docker/abc\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "400000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        },
    )
    assert cpus.usable(tmp_path) == 4
    write(tmp_path, **{"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n"})
    assert cpus.usable(tmp_path) == 8


@pytest.mark.parametrize("text", ["", "garbage", "0 0", "-5 100000", "100000"])
def test_a_limit_that_cannot_be_read_limits_nothing(tmp_path: Path, text: str) -> None:
    write(tmp_path, **{"proc/self/cgroup": "0::/\nnonsense\n", "sys/fs/cgroup/cpu.max": text})
    assert cpus.usable(tmp_path) == 8
