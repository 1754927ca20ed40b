"""Events of a run: only those with data, and only those that the supervisor was sent."""

from __future__ import annotations

import base64
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.engine.child import EventFilter
from runner.core.engine.wire import HEADER, LEARNED, Kind, Order
from runner.engines.warm import task_record

PLAYBOOK = """\
#!{python}
import base64, json, os, sys

def mark(data):
    text = base64.b64encode(json.dumps(data).encode()).decode()
    parts = (text[start : start + 78] for start in range(0, len(text), 78))
    return "\\x1b[K" + "".join(f"{{part}}\\x1b[{{len(part)}}D" for part in parts) + "\\x1b[K"

uuid, forged = "11111111-2222-4333-8444-555555555555", "99999999-2222-4333-8444-555555555555"
folder = os.path.join(os.environ["AWX_ISOLATED_DATA_DIR"], "job_events")
os.makedirs(folder, exist_ok=True)
with open(os.path.join(folder, uuid + "-partial.json"), "w") as file:
    json.dump({{"event": "runner_on_ok", "uuid": uuid, "created": "2026-01-01T00:00:00", "event_data": {{}}}}, file)
sys.stdout.write(mark({{"uuid": uuid}}) + "ok: " + mark({{"uuid": forged, "event": "playbook_on_stats"}}) + "\\n")
sys.stdout.write(mark({{}}))
"""


@contextmanager
def supervisor(folder: Path, playbook_text: str) -> Iterator[tuple[subprocess.Popen[bytes], BinaryIO, BinaryIO]]:
    """Start a supervisor with a program in place of ansible-playbook; yield it, its control stream and its frames."""
    playbook = folder / "ansible-playbook"
    playbook.write_text(playbook_text)
    playbook.chmod(0o700)
    for name in ("project", "env", "inventory", "artifacts/run"):
        (folder / "run" / name).mkdir(parents=True)
    (folder / "run/project/site.yml").write_text("[]")
    order = Order(str(folder / "run"), "run", "site.yml", ["localhost,"], 0, "", str(folder / "k"), str(folder), 0)
    program = (
        "import sys; from runner.core.engine import child\nchild.ansible_playbook = lambda: sys.argv[1]; child.main()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(playbook)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(asdict(order)).encode() + b"\n")
        process.stdin.flush()
        yield process, cast("BinaryIO", process.stdin), cast("BinaryIO", process.stdout)


def frames(stream: BinaryIO) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read frames to the end of the stream."""
    while header := stream.read(HEADER.size):
        kind, length = HEADER.unpack(header)
        yield kind, json.loads(stream.read(length))


def supervise(folder: Path, playbook_text: str) -> list[tuple[int, dict[str, Any]]]:
    """Run a supervisor to its end; return its frames."""
    with supervisor(folder, playbook_text) as (_, _, stream):
        return list(frames(stream))


@pytest.mark.lengthy
def test_a_supervisor_sends_only_events_with_data(tmp_path: Path) -> None:
    *events, (last, ending) = supervise(tmp_path, PLAYBOOK.format(python=sys.executable))
    assert (last, ending["error"], ending["code"]) == (Kind.ENDING, "", 0)
    assert [event["event"] for _, event in events] == ["runner_on_ok"]
    assert events[0][1]["stdout"].startswith("ok: \x1b[K")
    assert list((tmp_path / "run/artifacts").rglob("*.json")) == []  # the operator writes masked ones
    assert (ending["status"], ending["rc"]) == ("successful", 0)


@pytest.mark.lengthy
@pytest.mark.parametrize("notes", [b'5\n{"way": "x"}\n{"defect": "\\ud800"}\n' + b"[" * 100_000, None])
def test_notes_that_a_role_writes_to_do_not_decide_the_result(tmp_path: Path, notes: bytes | None) -> None:
    """It can also put a pipe in their place, whose reader would wait."""
    if notes is None:
        os.mkfifo(tmp_path / LEARNED)
    else:
        (tmp_path / LEARNED).write_bytes(notes)

    *_, (last, ending) = supervise(tmp_path, PLAYBOOK.format(python=sys.executable))

    assert (last, ending["error"], ending["code"]) == (Kind.ENDING, "", 0)
    assert len(task_record.defects(ending["learned"])) == (0 if notes is None else 1)


@pytest.mark.lengthy
def test_credentials_are_removed_if_the_operator_was_killed_and_its_streams_close_after_the_signal(
    tmp_path: Path,
) -> None:
    """The kernel closes the streams of a killed process one after the other."""
    kubeconfig, started = tmp_path / "k", tmp_path / "started"
    kubeconfig.write_text("a token")
    os.mkfifo(started)
    waits = f"#!{sys.executable}\nimport time\nopen({str(started)!r}, 'w').close()\ntime.sleep(300)\n"
    with supervisor(tmp_path, waits) as (process, control, stream):
        started.read_text()
        process.send_signal(signal.SIGTERM)
        assert next(frames(stream))[0] == Kind.ENDING
        control.close()
        assert process.wait() == 1
    assert not kubeconfig.exists()


SENT = ["11111111-2222-4333-8444-555555555555", "66666666-2222-4333-8444-555555555555_2"]
UNSENT = "99999999-2222-4333-8444-555555555555"


def mark(data: Any) -> str:
    text = base64.b64encode(json.dumps(data).encode()).decode()
    parts = (text[start : start + 78] for start in range(0, len(text), 78))
    return "\x1b[K" + "".join(f"{part}\x1b[{len(part)}D" for part in parts) + "\x1b[K"


def filtered(*chunks: str) -> list[tuple[str | None, str]]:
    """Return the events, each with its ID (None for text outside of events) and text."""
    found: list[tuple[str | None, str]] = []

    def add(event: dict[str, Any]) -> None:
        if "uuid" in event:
            found.append((None if event.get("event") == "verbose" else event["uuid"], event["stdout"]))

    stream = EventFilter(None, add, True, output_json=False, is_sent=SENT.__contains__)  # noqa: FBT003 - ansible-runner's call
    for chunk in chunks:
        stream.write(chunk)
    stream.close()
    return found


@pytest.mark.parametrize(
    "forged",
    [
        mark({"uuid": UNSENT}),
        mark({"uuid": UNSENT, "event": "playbook_on_stats", "event_data": {"ok": {"localhost": 9}}}),
        mark({"uuid": SENT[1], "event": "playbook_on_stats"}),
        mark({"uuid": "../../../../../../../../../../../etc/passwd"}),
        mark([]),
        mark("x"),
        "\x1b[Ke\x1b[1D\x1b[K",
        "\x1b[K\x1b[K",
    ],
)
def test_other_marks_are_text_of_the_event_that_contains_them(forged: str) -> None:
    output = f"{mark({'uuid': SENT[0]})}before {forged} after\n{mark({})}"
    assert filtered(output) == [(SENT[0], f"before {forged} after")]
    assert filtered(f"outside {forged}\n") == [(None, f"outside {forged}")]


@given(st.lists(st.integers(0, 400), max_size=12))
def test_the_sizes_of_chunks_do_not_matter(cuts: list[int]) -> None:
    forged = mark({"uuid": UNSENT})
    output = f"x\n{mark({'uuid': SENT[0]})}a {forged}\n{mark({})}y\n{mark({'uuid': SENT[1]})}b\n{mark({})}z"
    places = sorted({0, len(output), *(cut for cut in cuts if cut < len(output))})
    chunks = [output[start:end] for start, end in itertools.pairwise(places)]
    expected = [(None, "x"), (SENT[0], f"a {forged}"), (None, "y"), (SENT[1], "b"), (None, "z")]
    assert filtered(*chunks) == expected
