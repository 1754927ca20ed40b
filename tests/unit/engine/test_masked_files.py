"""What a run leaves on disk is masked once it has ended, or removed."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.engine import masked_files, run_dir
from runner.engine.job import Job
from runner.engine.run_secrets import RunSecrets
from runner.masking.masker import MASK, TOO_SLOW
from tests.shortage import no_descriptor_left

SECRET = 'hun"ter2 line one\nhunter2 line two'
EVENT = {
    "event": "runner_on_ok",
    "stdout": json.dumps({"msg": SECRET}),
    "event_data": {"host": "localhost", "res": {"msg": SECRET, "list": SECRET.splitlines()}},
}


@pytest.fixture
def folder(make_job: Callable[..., Job]) -> run_dir.RunFolder:
    folder = run_dir.prepare(make_job(extra_vars={"pw": SECRET}), "its run", {})
    left = folder.artifacts / folder.ident
    (left / "job_events").mkdir(mode=0o700)
    (left / "job_events" / "1-u.json").write_text(json.dumps(EVENT))
    (left / "job_events" / "2-u.json").write_text('{"stdout": "nothing"}')
    (left / "stdout").write_text(f"{'x' * 200}\n" * 30_000 + f"it is {json.dumps(SECRET)}\n")
    (left / "fact_cache" / "localhost").write_text(json.dumps({"fact": SECRET}))
    (left / "command").write_text(json.dumps({"env": {"PASSWORD": SECRET}}))
    (left / "rc").write_text("0")
    (left / "odd").write_bytes(b"\xff\xfe hunter2 line two")
    for path in left.rglob("*"):
        if path.is_file():
            path.chmod(0o600)
            os.utime(path, (1, 1))
    return folder


def contents(folder: run_dir.RunFolder) -> str:
    found = [path for path in folder.path.rglob("*") if path.is_file()]
    return "\n".join(path.read_bytes().decode(errors="replace") for path in found)


@pytest.mark.lengthy
def test_every_file_with_a_value_is_masked_and_the_others_are_not_touched(folder: run_dir.RunFolder) -> None:
    secrets = RunSecrets()
    secrets.learn([SECRET])
    run_dir.clear(folder, 1, secrets)
    left = folder.artifacts / folder.ident
    assert "ter2" not in contents(folder)
    event = json.loads((left / "job_events" / "1-u.json").read_text())
    assert event["event_data"]["res"] == {"msg": MASK, "list": [MASK, MASK]}
    assert json.loads((left / "command").read_text()) == {"env": {"PASSWORD": MASK}}
    assert (left / "stdout").read_text().endswith(f'it is "{MASK}"\n')
    assert (left / "stdout").stat().st_size > 5_000_000
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in left.rglob("*") if path.is_file())
    assert {path.name for path in left.rglob("*") if path.stat().st_mtime == 1} == {"2-u.json", "rc", "stderr"}
    assert not (folder.path / "env" / "unmasked").exists()


def test_without_secrets_only_the_environment_of_a_run_is_masked(folder: run_dir.RunFolder) -> None:
    secrets = RunSecrets()
    secrets.know([SECRET])
    run_dir.clear(folder, 1, secrets)
    left = folder.artifacts / folder.ident
    assert [path.name for path in left.rglob("*") if path.is_file() and path.stat().st_mtime != 1] == ["command"]
    assert json.loads((left / "command").read_text()) == {"env": {"PASSWORD": MASK}}


@pytest.mark.lengthy
def test_links_that_a_role_laid_are_not_followed(folder: run_dir.RunFolder, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text(SECRET)
    (folder.artifacts / folder.ident / "link").symlink_to(outside)
    os.mkfifo(folder.artifacts / folder.ident / "pipe")
    secrets = RunSecrets()
    secrets.learn([SECRET])
    run_dir.clear(folder, 1, secrets)
    assert outside.read_text() == SECRET


def test_files_are_removed_if_some_secrets_are_unknown(folder: run_dir.RunFolder) -> None:
    secrets = RunSecrets()
    secrets.exhaust()
    run_dir.clear(folder, 1, secrets)
    assert "ter2" not in contents(folder)
    assert [path.name for path in (folder.artifacts / folder.ident).rglob("*") if path.is_file()] == ["rc"]


def test_files_that_cannot_be_searched_in_time_are_removed_or_contain_the_reason(
    folder: run_dir.RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(masked_files, "_SECONDS", -1.0)
    secrets = RunSecrets()
    secrets.learn([SECRET])
    run_dir.clear(folder, 1, secrets)
    left = folder.artifacts / folder.ident
    assert "ter2" not in contents(folder)
    assert (left / "stdout").read_text() == f"{TOO_SLOW}\n"
    assert (left / "rc").read_text() == "0"
    assert list((left / "job_events").iterdir()) == []


def test_without_descriptors_files_that_cannot_be_read_count_as_unmasked(folder: run_dir.RunFolder) -> None:
    secrets = RunSecrets()
    secrets.learn([SECRET])
    for spare in range(2):
        with no_descriptor_left(spare), pytest.raises(OSError, match="Too many open files"):
            run_dir.clear(folder, 1, secrets)
        assert (folder.path / "env" / "unmasked").exists()
    run_dir.clear(folder, 1, secrets)
    assert "ter2" not in contents(folder)
    assert not (folder.path / "env" / "unmasked").exists()
    assert json.loads((folder.artifacts / folder.ident / "command").read_text()) == {"env": {"PASSWORD": MASK}}


@pytest.mark.lengthy
def test_an_error_while_removing_files_does_not_prevent_masking(
    folder: run_dir.RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(run_dir, "_remove", fail)
    secrets = RunSecrets()
    secrets.learn([SECRET])
    with pytest.raises(PermissionError):
        run_dir.clear(folder, 1, secrets)
    assert "ter2" not in contents(folder)


def test_files_that_a_killed_operator_did_not_mask_are_removed(folder: run_dir.RunFolder) -> None:
    earlier = folder.artifacts / "earlier"
    earlier.mkdir()
    folder.kubeconfig.unlink()  # as the supervisor does when the operator has gone
    assert run_dir.unfinished(folder.path.parent) == [(folder.path, "its run")]
    run_dir.abandon(folder.path)
    assert "ter2" not in contents(folder)
    assert sorted(path.name for path in folder.artifacts.iterdir()) == ["earlier"]
    assert run_dir.unfinished(folder.path.parent) == []


def test_a_mark_that_names_another_path_removes_nothing(folder: run_dir.RunFolder) -> None:
    for name in ("..", "../..", "latest", ""):
        (folder.path / "env" / "unmasked").write_text(name)
        run_dir.abandon(folder.path)
        assert (folder.artifacts / folder.ident / "stdout").exists()
