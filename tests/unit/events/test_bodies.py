"""Names of Events are valid names of objects."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from runner.base.events import bodies
from runner.base.events.bodies import ApiEvent, name_of
from runner.values.objects import GVK, ObjectKey, ObjectRef

SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-subdomain-names"""
EVENT = ApiEvent(
    ObjectRef(GVK("example.com", "v1", "Thing"), ObjectKey("ns", "a"), "uid"), None, "Normal", "Ran", "Run", "note"
)


@pytest.mark.parametrize("name", ["a", "b" * 253, f"{'c' * 199}-later", f"{'d' * 199}.later", f"{'e' * 197}---later"])
def test_the_name_of_an_event_is_valid_wherever_the_name_of_its_object_is_cut(name: str) -> None:
    regarding = replace(EVENT.regarding, key=ObjectKey("ns", name))
    made = name_of(replace(EVENT, regarding=regarding), 1_700_000_000_000_000_000)
    assert SUBDOMAIN.fullmatch(made)
    assert len(made) <= 253


def test_control_characters_of_a_note_are_visible() -> None:
    assert bodies._bounded("\x1b]0;pwn\x07") == "\\x1b]0;pwn\\x07"
