"""Objects that are found by their labels."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from runner.objects import GVK
from tests.integration.references.bed import LABEL, SECRET, THING, by_label, content, secret
from tests.kit.objects import CRD, Hand, definition

if TYPE_CHECKING:
    from tests.integration.references.bed import Allow, Refer


async def test_a_change_of_a_selected_object_triggers_the_objects_of_its_namespace(hand: Hand, refer: Refer) -> None:
    await hand.create(secret("labelled", labels={"for": "things"}))
    await hand.create(secret("plain"))
    async with refer(by_label(SECRET, "for=things"), namespaces=()) as it:
        it.names("one", None)
        it.names("far", None, namespace="kube-system")
        it.names("wide", None, namespace="")
        await it.knows("one")
        await hand.patch(SECRET, "plain", content("two"))
        await hand.patch(SECRET, "labelled", LABEL)
        await hand.patch(SECRET, "labelled", content("two"))
        await it.triggers(("one", "labelled changed"), ("wide", "labelled changed"))
        await hand.patch(SECRET, "plain", {"metadata": {"labels": {"for": "things"}}})
        await it.triggers(("one", "plain appeared"), ("wide", "plain appeared"))
        await hand.patch(SECRET, "plain", {"metadata": {"labels": {"for": None}}})
        await it.triggers(("one", "plain is gone"), ("wide", "plain is gone"))
        assert [selector for _, selector, whole in it.client.opened] == [""]


async def test_a_namespace_set_in_the_watch_applies_to_all_objects(hand: Hand, refer: Refer) -> None:
    await hand.create(secret("shared", labels={"for": "things"}))
    async with refer(by_label(SECRET, "for=things", hand.namespace), namespaces=("default",)) as it:
        it.names("near", None)
        it.names("far", None, namespace="default")
        await it.knows("near")
        await hand.patch(SECRET, "shared", content("two"))
        await it.triggers(("far", "shared changed"), ("near", "shared changed"))


async def test_an_object_that_ran_before_the_first_list_runs_again(
    hand: Hand, refer: Refer, allow: Allow, user: str
) -> None:
    await hand.create(secret("labelled", labels={"for": "things"}))
    async with refer(by_label(SECRET, "for=things"), user=user) as it:
        it.names("ran", None)
        it.names("waits", None)
        await it.references.ready(THING, it.key("ran"))
        async with it.run("ran"):
            pass
        await allow("list", "watch")
        await it.triggers(("ran", "labelled existed before the watch started"))


async def test_a_kind_that_is_served_later_brings_its_objects(hand: Hand, refer: Refer) -> None:
    kind = GVK(f"r{uuid.uuid4().hex[:8]}.example.com", "v1", "Widget")
    async with refer(by_label(kind, "for=things")) as it:
        it.names("one", None)
        await it.knows("one")
        async with it.run("one"):
            pass
        await hand.install(definition(kind.group, kind.kind))
        await hand.create(
            {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "w", "labels": {"for": "things"}}}
        )
        try:
            await it.triggers(("one", "Widget " + f"{hand.namespace}/w "))
        finally:
            await hand.client.delete(await hand.discovery.find(CRD), it.key(f"widgets.{kind.group}"))


async def test_the_selected_objects_determine_the_fingerprint(hand: Hand, refer: Refer) -> None:
    async with refer(by_label(SECRET, "for=things")) as it:
        it.names("one", None)
        await it.knows("one")
        empty = it.references.fingerprint(THING, it.key("one"))
        await hand.create(secret("labelled", labels={"for": "things"}))
        await it.triggers(("one", "appeared"))
        assert it.references.fingerprint(THING, it.key("one")) not in {empty, None}
