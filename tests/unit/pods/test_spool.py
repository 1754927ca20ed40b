"""Files of a run in a pod at the operator."""

from __future__ import annotations

import json
from pathlib import Path

from runner.pods.spool import Artifacts, Line, Spool

LINES = [Line(1, b'{"a": 1}', is_last=False), Line(2, b"", is_last=False), Line(3, b"{}", is_last=True)]


def test_an_operator_finds_the_lines_that_its_predecessor_applied(tmp_path: Path) -> None:
    for line in LINES:
        Spool(tmp_path / "run", "one").add(line)
    assert list(Spool(tmp_path / "run", "one").lines()) == LINES
    assert list(Spool(tmp_path / "run", "other").lines()) == []
    assert list((tmp_path / "run").iterdir()) == []


def test_an_incomplete_last_line_is_dropped_and_written_again(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "one")
    (file,) = [tmp_path / ".received-one"]
    spool.add(LINES[0])
    whole = file.read_bytes()
    spool.add(LINES[2])
    size = len(file.read_bytes())
    for cut in range(len(whole) + 1, size):
        file.write_bytes(file.read_bytes()[:cut])
        assert list(spool.lines()) == LINES[:1]
        assert file.read_bytes() == whole
        spool.add(LINES[2])
    assert list(spool.lines()) == [LINES[0], LINES[2]]


def test_only_ordinary_names_of_events_become_files(tmp_path: Path) -> None:
    kept = Artifacts(tmp_path, "one", "shop/run-1")
    kept.add({"event": "x", "counter": 1, "uuid": "a-b", "stdout": "first"})
    kept.add({"event": "x", "counter": 2, "uuid": "../../evil", "stdout": "second"})
    kept.add({"event": "x", "counter": "3", "uuid": "c", "stdout": ""})
    kept.end("successful", 0)
    folder = tmp_path / "artifacts/one"
    assert [path.name for path in (folder / "job_events").iterdir()] == ["1-a-b.json"]
    assert json.loads((folder / "job_events/1-a-b.json").read_text())["stdout"] == "first"
    assert (folder / "stdout").read_text() == "first\nsecond\n"
    assert ((folder / "rc").read_text(), (folder / "status").read_text()) == ("0", "successful")
    assert {path.name for path in tmp_path.iterdir()} == {"env", "artifacts"}
