"""Changes of the status of a reference that trigger the objects with it."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from runner.features.references.kind import FEW
from runner.values.objects import GVK
from tests.features.references.integration.bed import THING, by_label, by_path
from tests.kit.objects import CRD, Hand, definition
from tests.kit.wait import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.features.references.integration.bed import Refer, Referring

NAMES = ["main", *(f"w{number:02}" for number in range(FEW + 2))]


@pytest.fixture
async def widget(hand: Hand) -> AsyncIterator[GVK]:
    """A kind with a status, and objects of it."""
    kind = GVK(f"r{uuid.uuid4().hex[:8]}.example.com", "v1", "Widget")
    await hand.install(definition(kind.group, kind.kind))
    for name in NAMES:
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name, "labels": {"a": "b"}}}
        await hand.create({**body, "spec": {"a": 1}})
    yield kind
    await hand.delete(CRD, f"widgets.{kind.group}")


async def _changes(hand: Hand, widget: GVK) -> None:
    """Change the status in a way that means nothing, then in one that does, and at last the spec."""
    for status in ({"lastSeenTime": "now"}, {"phase": "Ready"}):
        await hand.patch(widget, "main", {"status": status}, "status")


def _generation(it: Referring, widget: GVK) -> int | None:
    """Return the generation of the referenced object that the last event had."""
    state = it.references._kinds[widget].state(it.key("main"))
    return state.generation if state is not None else None


@pytest.mark.parametrize("names", [NAMES[:1], NAMES], ids=["few names", "many names"])
async def test_a_status_that_means_something_triggers_each_object_with_the_reference(
    hand: Hand, refer: Refer, widget: GVK, names: list[str]
) -> None:
    async with refer(by_path(widget)) as it:
        it.names("one", names)
        it.names("two", "main")
        await it.knows("one")
        await it.knows("two")
        before = it.references.fingerprint(THING, it.key("one"))
        await _changes(hand, widget)
        await it.triggers(("one", "main changed: status"), ("two", "main changed: status"))
        assert it.references.fingerprint(THING, it.key("one")) not in {None, before}
        await hand.patch(widget, "main", {"spec": {"a": 2}})
        await it.triggers(("one", "main changed"), ("two", "main changed"))


async def test_a_status_of_a_selected_object_triggers_and_none_does_if_the_watch_sets_it(
    hand: Hand, refer: Refer, widget: GVK
) -> None:
    async with refer(by_label(widget, "a=b")) as it:
        it.names("one", "")
        await it.knows("one")
        await _changes(hand, widget)
        await it.triggers(("one", "main changed: status"))
    async with refer(by_path(widget), watch_dependent_status="off") as it:
        it.names("one", "main")
        await it.knows("one")
        await hand.patch(widget, "main", {"status": {"phase": "Lost"}}, "status")
        await hand.patch(widget, "main", {"spec": {"a": 2}})
        await it.triggers(("one", "main changed"))
        assert not it.triggered


async def test_a_status_that_changes_during_a_run_triggers_once_at_its_end_though_the_run_wrote_the_object(
    hand: Hand, refer: Refer, widget: GVK
) -> None:
    async with refer(by_path(widget)) as it:
        it.names("one", "main")
        await it.knows("one")
        async with it.run("one") as run:
            for phase in ("A", "B", "C"):
                await hand.patch(widget, "main", {"status": {"phase": phase}}, "status")
            await run.patch(widget, "main", {"spec": {"a": 2}})
            await until(lambda: _generation(it, widget) == 2, "the event of the last change")
            assert not it.triggered
        await it.triggers(("one", "main changed: status"))
