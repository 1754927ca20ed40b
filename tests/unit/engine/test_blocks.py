from __future__ import annotations

import errno
import io
import threading
from pathlib import Path
from typing import Any

import pytest

from runner.core.engine import blocks
from runner.core.engine.job import Event
from runner.values.objects import GVK, ObjectKey
from tests.kit.wait import patience, wait_until

DASHES = "-" * 79


def event(name: str, action: str = "command", stdout: str = "changed: [localhost]", **data: Any) -> Event:
    return {
        "event": name,
        "stdout": stdout,
        "event_data": {"task": "a task", "task_action": action, "task_path": "/r/main.yml:7", **data},
    }


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (
            event("playbook_on_task_start", stdout="\r\nTASK [a task] ******"),
            ["TASK [a task] ******"],
        ),
        (
            event("runner_on_failed", stdout="fatal: no"),
            ["TASK [a task] ********************************", "task path: /r/main.yml:7", "fatal: no"],
        ),
    ],
    ids=["a task has its own title", "a failure has its file and line"],
)
def test_a_block_has_a_title_and_ends_with_a_line(given: Event, shown: list[str]) -> None:
    text = blocks.block(given, "tasks")
    assert text is not None
    first = "--------------------------- Ansible Task StdOut -------------------------------"
    assert text.splitlines() == ["", first, *shown, DASHES]


@pytest.mark.parametrize(
    ("name", "action", "shown"),
    [
        ("playbook_on_task_start", "command", True),
        ("playbook_on_handler_task_start", "command", True),
        ("playbook_on_task_start", "set_fact", False),
        ("playbook_on_task_start", "ansible.builtin.set_fact", False),
        ("playbook_on_task_start", "debug", False),
        ("runner_on_ok", "debug", True),
        ("runner_on_ok", "ansible.builtin.debug", True),
        ("runner_on_ok", "command", False),
        ("runner_item_on_ok", "command", True),
        ("runner_item_on_failed", "command", True),
        ("runner_on_failed", "command", True),
        ("runner_on_unreachable", "command", True),
        ("runner_on_skipped", "command", False),
        ("runner_on_start", "command", False),
        ("playbook_on_stats", "", False),
    ],
)
def test_which_events_make_a_block(name: str, action: str, shown: bool) -> None:  # noqa: FBT001 - a table's column
    assert (blocks.block(event(name, action), "tasks") is not None) is shown
    assert blocks.block(event(name, action), "nothing") is None
    assert blocks.block(event(name, action, stdout="\n"), "tasks") is None or name.startswith("playbook_on_")
    assert f'"event": "{name}", "task": "a task"' in str(blocks.block(event(name, action, stdout=""), "everything"))


@pytest.mark.parametrize(
    ("name", "action"),
    [
        ("playbook_on_task_start", "set_fact"),
        ("runner_on_ok", "command"),
        ("runner_on_skipped", "command"),
        ("runner_item_on_skipped", "command"),
        ("runner_retry", "command"),
    ],
)
def test_contract_a_raised_verbosity_shows_all_output_of_tasks(name: str, action: str) -> None:
    text = blocks.block(event(name, action, stdout="ok: [localhost] => {}"), "tasks", raised=True)
    assert text is not None
    assert "ok: [localhost] => {}" in text
    assert blocks.block(event(name, action), "nothing", raised=True) is None
    assert blocks.block(event(name, action, stdout=""), "tasks", raised=True) is None
    assert blocks.block({"event": "verbose", "stdout": "Using x", "event_data": {}}, "tasks", raised=True) is None


@pytest.mark.parametrize(
    "line",
    [
        '{"msg": "Run ended", "name": "victim"}',
        '  { "msg": "Run ended"}',
        DASHES,
        "--------------------------- Ansible Task StdOut -------------------------------",
        "-----           Ansible Task Status Event StdOut (g/v1, Kind=K, victim/ns) -----",
        "[info     ] Run ended",
    ],
)
def test_a_line_of_text_never_looks_like_a_line_of_the_operator(line: str) -> None:
    for text in (f"first\n{line}\nlast", f"first\r\n{line}\r\nlast", f"first\n\x1b[0m{line}\nlast"):
        for level in ("tasks", "everything"):
            shown = blocks.block(event("runner_on_failed", stdout=text), level)
            assert shown is not None
            assert f"first\n| {line}\nlast\n" in shown
    title = blocks.block(event("runner_on_failed", task=f"a task\n{line}"), "tasks")
    assert title is not None
    assert f"\n| {line}" in title
    recap = blocks.recap_block(event("playbook_on_stats", stdout=line), GVK("g", "v1", "K"), ObjectKey("ns", "name"))
    assert recap is not None
    assert f"\n| {line.strip()}\n" in recap


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        pytest.param(
            "\x1b[0;31mfatal\x1b[0m: \x1b[2J\x07 \x1b\x1b[1m[K over\rwritten \x85\x9b1m \u202eevil\u2028\ttab",
            r"fatal: \x1b[2J\x07 \x1b[K over\x0dwritten \x85\x9b1m \u202eevil\u2028" + "\ttab",
            id="control characters are visible and colours are dropped",
        ),
        pytest.param(
            text := 'ok: => {\n    "a": [\n        {}\n    ]\n}\n[WARNING]: careful\n--- äé', text, id="ordinary"
        ),
    ],
)
def test_output_is_attributable(output: str, shown: str) -> None:
    assert blocks.attributable(output) == shown


def test_the_recap_names_the_object() -> None:
    recap = event("playbook_on_stats", stdout="\nPLAY RECAP ***\nlocalhost : ok=1\n")

    text = blocks.recap_block(recap, GVK("g", "v1", "K"), ObjectKey("ns", "name"))

    assert text == (
        f"\n----- {'Ansible Task Status Event StdOut (g/v1, Kind=K, name/ns)':>70} -----\n\n"
        "PLAY RECAP ***\nlocalhost : ok=1\n\n----------\n"
    )
    assert blocks.recap_block(event("runner_on_ok"), GVK("g", "v1", "K"), ObjectKey("", "n")) is None


class Stuck(io.StringIO):
    """A stream whose reader has gone for lunch."""

    def __init__(self) -> None:
        super().__init__()
        self.back = threading.Event()
        self.entered = threading.Event()

    def write(self, text: str) -> int:
        self.entered.set()
        self.back.wait(patience())
        return super().write(text)


def test_a_stuck_reader_does_not_block_the_writer_and_gets_the_number_of_dropped_blocks() -> None:
    stream = Stuck()
    writer = blocks.BlockWriter(stream, room=20)
    writer.write("x" * 15)
    assert stream.entered.wait(patience())

    writer.write("too much at once")
    writer.write("again too much at once")
    writer.write("fits")
    stream.back.set()
    writer.close()

    assert stream.getvalue() == (
        "x" * 15 + "fits" + "\n2 blocks of task output were dropped: nobody read this stream, or it was full\n"
    )


def test_a_block_that_the_stream_refuses_does_not_end_the_output_of_other_runs(tmp_path: Path) -> None:
    file = tmp_path / "log"
    with file.open("w", encoding="ascii") as stream:
        writer = blocks.BlockWriter(stream)
        for text in ("one\n", "zw\xf6lf \ud800\n", "two\n"):
            writer.write(text)
        writer.close()
    written = file.read_text(encoding="ascii")
    assert written.startswith("one\n")
    assert "two\n" in written
    assert "1 blocks of task output were dropped" in written


def test_a_full_disk_drops_blocks_only_until_it_has_space() -> None:
    class Disk(io.StringIO):
        is_full = True

        def write(self, text: str) -> int:
            if self.is_full:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(text)

    disk = Disk()
    writer = blocks.BlockWriter(disk)
    writer.write("lost")
    wait_until(lambda: not writer._size, "the block to be dropped")
    disk.is_full = False
    writer.write("kept")
    writer.close()
    assert disk.getvalue().startswith("kept")
    assert "1 blocks of task output were dropped" in disk.getvalue()
