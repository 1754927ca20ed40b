from __future__ import annotations

import io
import threading
from typing import Any

import pytest

from runner.engine import blocks
from runner.engine.job import Event
from runner.objects import GVK, ObjectKey

DASHES = "-" * 79


def event(name: str, action: str = "command", stdout: str = "changed: [localhost]", **data: Any) -> Event:
    return {
        "event": name,
        "stdout": stdout,
        "event_data": {"task": "a task", "task_action": action, "task_path": "/r/main.yml:7", **data},
    }


def test_a_task_begins_with_its_own_title() -> None:
    text = blocks.block(event("playbook_on_task_start", stdout="\r\nTASK [a task] ******"), "tasks")

    assert text == (
        "\n--------------------------- Ansible Task StdOut -------------------------------\n"
        f"TASK [a task] ******\n{DASHES}\n"
    )


def test_a_failure_is_shown_with_its_file_and_line() -> None:
    text = blocks.block(event("runner_on_failed", stdout="fatal: no"), "tasks")

    assert text is not None
    assert text.splitlines()[2:5] == [
        "TASK [a task] ********************************",
        "task path: /r/main.yml:7",
        "fatal: no",
    ]


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


def test_an_event_without_output_makes_no_block() -> None:
    assert blocks.block(event("runner_item_on_ok", stdout="\n"), "tasks") is None


def test_everything_shows_every_event_and_nothing_none() -> None:
    start = event("runner_on_start", stdout="")

    everything = blocks.block(start, "everything")

    assert everything is not None
    assert '"event": "runner_on_start", "task": "a task"' in everything
    assert blocks.block(event("playbook_on_task_start"), "nothing") is None


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


def test_ordinary_output_is_not_changed() -> None:
    output = (
        'ok: [localhost] => {\n    "a": [\n        {\n            "b": 1\n        },\n        {}\n    ]\n}\n'
        "[WARNING]: careful\n--- before\n+++ äé"
    )
    assert blocks.attributable(output) == output


def test_control_characters_are_visible_and_colours_are_dropped() -> None:
    text = "\x1b[0;31mfatal\x1b[0m: \x1b[2J\x07 \x1b\x1b[1m[K over\rwritten \x85\x9b1m \u202eevil\u2028\ttab"
    visible = r"fatal: \x1b[2J\x07 \x1b[K over\x0dwritten \x85\x9b1m \u202eevil\u2028" + "\ttab"
    assert blocks.attributable(text) == visible


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
        self.back.wait(10)
        return super().write(text)


def test_blocks_come_out_whole_and_in_order() -> None:
    stream = io.StringIO()
    writer = blocks.BlockWriter(stream)

    for number in range(100):
        writer.write(f"{number}\n")
    writer.close()

    assert stream.getvalue() == "".join(f"{number}\n" for number in range(100))


def test_a_stuck_reader_does_not_block_the_writer_and_gets_the_number_of_dropped_blocks() -> None:
    stream = Stuck()
    writer = blocks.BlockWriter(stream, room=20)
    writer.write("x" * 15)
    assert stream.entered.wait(5)

    writer.write("too much at once")
    writer.write("again too much at once")
    writer.write("fits")
    stream.back.set()
    writer.close()

    assert stream.getvalue() == (
        "x" * 15 + "fits" + "\n2 blocks of task output were dropped: nobody read this stream\n"
    )
