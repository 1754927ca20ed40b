"""Marks in the output of ansible-playbook begin events only if their data was sent."""

from __future__ import annotations

import base64
import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.engine.child import EventFilter

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
