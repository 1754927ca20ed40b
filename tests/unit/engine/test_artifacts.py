from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from runner.core.engine import artifacts


def make(folder: Path, count: int) -> None:
    for number in range(count):
        (folder / f"run-{number}" / "job_events").mkdir(parents=True)
        os.utime(folder / f"run-{number}", (number, number))
    artifacts.point_latest(folder, f"run-{count - 1}")


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("keep", "left"),
    [
        (0, {"run-0", "run-1", "run-2", "latest"}),
        (-1, set()),
        (1, {"run-2", "latest"}),
        (2, {"run-1", "run-2", "latest"}),
        (3, {"run-0", "run-1", "run-2", "latest"}),
        (20, {"run-0", "run-1", "run-2", "latest"}),
    ],
)
def test_the_newest_are_kept(tmp_path: Path, keep: int, left: set[str]) -> None:
    make(tmp_path, 3)

    artifacts.rotate(tmp_path, keep)

    assert names(tmp_path) == left


def test_removing_an_object_takes_an_empty_namespace_along(tmp_path: Path) -> None:
    for name in ("one", "two"):
        make(tmp_path / "ns" / name / "artifacts", 1)

    artifacts.remove(tmp_path / "ns" / "one")
    assert names(tmp_path / "ns") == {"two"}
    artifacts.remove(tmp_path / "ns" / "two")
    artifacts.remove(tmp_path / "ns" / "two")

    assert names(tmp_path) == set()


def test_idents_sort_by_time_and_never_repeat() -> None:
    moment = datetime(2026, 11, 21, 12, 0, tzinfo=timezone(timedelta(hours=2)))

    many = [artifacts.new_ident(moment) for _ in range(100)]

    assert len(set(many)) == 100
    assert many[0].startswith("20261121T100000.000000Z-")
    assert many[0] < artifacts.new_ident(datetime(2026, 11, 21, 10, 0, 0, 1, tzinfo=UTC))
