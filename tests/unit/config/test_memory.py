from __future__ import annotations

import sys
from pathlib import Path

from runner.config import memory

MEMINFO = "MemTotal:       8000000 kB\nMemFree:        1000000 kB\nMemAvailable:   5000000 kB\n"


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_without_a_limit_the_machine_is_all_there_is(tmp_path: Path) -> None:
    write(tmp_path, **{"proc/meminfo": MEMINFO, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"})
    assert memory.total(tmp_path) == 8_000_000 * 1024
    assert memory.free(tmp_path) == 5_000_000 * 1024


def test_the_tightest_group_around_the_process_limits(tmp_path: Path) -> None:
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
    assert memory.total(tmp_path) == 1_000_000
    assert memory.free(tmp_path) == 100_000


def test_cgroup_v1_limits_too(tmp_path: Path) -> None:
    write(
        tmp_path,
        **{
            "proc/self/cgroup": "3:cpu:/x\n2:memory:/docker/abc\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "4000\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "5000\n",
        },
    )
    assert memory.total(tmp_path) == 4000
    assert memory.free(tmp_path) == 0


def test_where_nothing_can_be_read_nothing_limits(tmp_path: Path) -> None:
    assert memory.total(tmp_path) == memory.free(tmp_path) == sys.maxsize
