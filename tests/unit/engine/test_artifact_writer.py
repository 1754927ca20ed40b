"""Artifacts of a run contain its masked events, whatever becomes known and whatever fails."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from runner.core.engine import artifact_writer, artifacts
from runner.core.engine.artifact_writer import ArtifactWriter
from runner.core.engine.job import Event, Job
from runner.core.masking.masker import MASK, TOO_SLOW
from tests.kit.shortage import no_descriptor_left

SECRET = 'hun"ter2 line one\nhunter2 line two'
EVENT: Event = {
    "event": "runner_on_ok",
    "counter": 1,
    "uuid": "a-1",
    "stdout": json.dumps({"msg": SECRET}),
    "event_data": {"host": "localhost", "res": {"msg": SECRET, "list": SECRET.splitlines()}},
}
NOTHING: Event = {"event": "verbose", "counter": 2, "uuid": "b-2", "stdout": ""}
Made = Callable[..., Job]


@pytest.fixture
def job(make_job: Made) -> Job:
    return make_job()


def folder(job: Job) -> Path:
    return job.run_dir / "artifacts" / job.ident


def contents(job: Job) -> str:
    return "\n".join(path.read_text() for path in job.run_dir.rglob("*") if path.is_file())


async def written(job: Job, *events: Event, source: Path | None = None, late: tuple[str, ...] = ()) -> ArtifactWriter:
    """Write these events; `late` values become known after them."""
    writer = ArtifactWriter(job, {"pod": "shop/run-1"})
    await writer.begin()
    for event in events:
        await writer.add(event)
    job.secrets.learn(late)
    await writer.end({"status": "successful", "rc": "0"}, source)
    return writer


async def test_the_layout_is_that_of_ansible_runner_and_private(job: Job) -> None:
    await written(job, {**EVENT, "stdout": "first"}, NOTHING, {"event": "x", "counter": "3", "uuid": "c", "stdout": ""})
    assert {path.name for path in folder(job).rglob("*") if path.is_file()} == {
        *("1-a-1.json", "2-b-2.json", "stdout", "stderr", "status", "rc", "pod")
    }
    assert (folder(job) / "stdout").read_text() == "first\n\n"
    assert json.loads((folder(job) / "job_events/1-a-1.json").read_text())["event"] == "runner_on_ok"
    assert (folder(job).parent / "latest").readlink() == Path(job.ident)
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder(job).rglob("*") if path.is_file()} == {0o600}


async def test_an_event_whose_name_leads_elsewhere_has_no_file(job: Job) -> None:
    await written(job, {**NOTHING, "uuid": "../../evil", "stdout": "shown"})
    assert list((folder(job) / "job_events").iterdir()) == []
    assert (folder(job) / "stdout").read_text() == "shown\n"


async def test_values_that_become_known_later_are_masked_at_the_end(job: Job) -> None:
    await written(job, EVENT, NOTHING, late=(SECRET,))
    assert "ter2" not in contents(job)
    event = json.loads((folder(job) / "job_events/1-a-1.json").read_text())
    assert event["event_data"]["res"] == {"msg": MASK, "list": [MASK, MASK]}


async def test_events_that_may_hold_unknown_values_are_removed(job: Job) -> None:
    writer = ArtifactWriter(job, {})
    await writer.begin()
    await writer.add(EVENT)
    job.secrets.exhaust("withheld: too many")
    await writer.add(NOTHING)
    await writer.end({"rc": "0"}, None)
    assert list((folder(job) / "job_events").iterdir()) == []
    assert (folder(job) / "stdout").read_text() == "withheld: too many\n"


async def test_events_that_were_withheld_from_the_start_remain(job: Job) -> None:
    job.secrets.exhaust()
    await written(job, {**NOTHING, "stdout": "withheld"})
    assert (folder(job) / "stdout").read_text() == "withheld\n"


async def test_files_that_cannot_be_searched_in_time_are_removed_or_contain_the_reason(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifact_writer, "_SECONDS", -1.0)
    await written(job, EVENT, late=(SECRET,))
    assert "ter2" not in contents(job)
    assert (folder(job) / "stdout").read_text() == f"{TOO_SLOW}\n"
    assert list((folder(job) / "job_events").iterdir()) == []


async def test_the_command_and_the_facts_of_ansible_runner_are_masked_copies(job: Job, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "fact_cache").mkdir(parents=True)
    (source / "command").write_text(json.dumps({"env": {"PASSWORD": SECRET}}))
    (source / "fact_cache" / "localhost").write_text(json.dumps({"fact": SECRET}))
    (tmp_path / "outside").write_text("{}")
    (source / "fact_cache" / "link").symlink_to(tmp_path / "outside")
    os.mkfifo(source / "fact_cache" / "pipe")
    job.secrets.add_initial([SECRET])
    await written(job, source=source)
    assert json.loads((folder(job) / "command").read_text()) == {"env": {"PASSWORD": MASK}}
    assert [path.name for path in (folder(job) / "fact_cache").iterdir()] == ["localhost"]
    assert json.loads((folder(job) / "fact_cache" / "localhost").read_text()) == {"fact": MASK}


async def test_links_that_a_role_lays_are_not_followed(job: Job, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text(SECRET)
    writer = ArtifactWriter(job, {})
    await writer.begin()
    (folder(job) / "stdout").unlink()
    (folder(job) / "stdout").symlink_to(outside)
    await writer.add(EVENT)
    job.secrets.learn([SECRET])
    await writer.end({}, None)
    assert outside.read_text() == SECRET
    assert writer.is_broken


async def test_a_run_whose_artifacts_cannot_be_written_continues(job: Job, capfd: pytest.CaptureFixture[str]) -> None:
    writer = ArtifactWriter(job, {})
    await writer.begin()
    with no_descriptor_left():
        await writer.add(EVENT)
        await writer._write(None)
    await writer.add(EVENT)
    await writer.end({"rc": "0"}, None)
    assert capfd.readouterr().out.count("Cannot write the artifacts of a run") == 1


async def test_a_burst_of_events_waits_for_the_disk(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifact_writer, "_MOST_WAITING", 1000)
    writer = ArtifactWriter(job, {})
    await writer.begin()
    for number in range(1, 101):
        await writer.add({**NOTHING, "counter": number, "uuid": f"u-{number}", "stdout": "x" * 50})
        assert writer._size <= 1000
    await writer.end({}, None)
    assert len(list((folder(job) / "job_events").iterdir())) == 100
    assert (folder(job) / "stdout").read_text().count("\n") == 100


async def test_artifacts_of_a_run_whose_operator_died_are_removed_and_those_of_others_remain(job: Job) -> None:
    root = folder(job).parent
    await written(job, NOTHING)
    artifacts.discard_unfinished(root)
    assert folder(job).exists()
    (folder(job) / "status").unlink()
    (root / "earlier").mkdir()
    artifacts.discard_unfinished(root)
    assert [path.name for path in root.iterdir()] == ["earlier"]


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
