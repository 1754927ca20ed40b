"""Objects that are found by their labels."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from runner.objects import GVK
from tests.integration.dependents.conftest import CRD, Hand, definition
from tests.integration.references.conftest import LABEL, SECRET, THING, by_label, content, secret

if TYPE_CHECKING:
    from tests.integration.references.conftest import Allow, Refer


async def test_a_change_of_what_is_selected_wakes_the_objects_of_its_namespace(hand: Hand, refer: Refer) -> None:
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
        await it.wakes(("one", "labelled changed"), ("wide", "labelled changed"))
        await hand.patch(SECRET, "plain", {"metadata": {"labels": {"for": "things"}}})
        await it.wakes(("one", "plain appeared"), ("wide", "plain appeared"))
        await hand.patch(SECRET, "plain", {"metadata": {"labels": {"for": None}}})
        await it.wakes(("one", "plain is gone"), ("wide", "plain is gone"))
        assert [selector for _, selector, whole in it.client.opened] == [""]


async def test_a_namespace_of_the_watch_s_own_counts_for_all_objects(hand: Hand, refer: Refer) -> None:
    await hand.create(secret("shared", labels={"for": "things"}))
    async with refer(by_label(SECRET, "for=things", hand.namespace), namespaces=("default",)) as it:
        it.names("near", None)
        it.names("far", None, namespace="default")
        await it.knows("near")
        await hand.patch(SECRET, "shared", content("two"))
        await it.wakes(("far", "shared changed"), ("near", "shared changed"))


async def test_a_run_that_began_before_anything_was_known_is_made_up_for(
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
        await it.wakes(("ran", "labelled existed before the watch started"))


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
            await it.wakes(("one", "Widget " + f"{hand.namespace}/w "))
        finally:
            await hand.client.delete(await hand.discovery.find(CRD), it.key(f"widgets.{kind.group}"))


async def test_what_is_selected_makes_the_fingerprint(hand: Hand, refer: Refer) -> None:
    async with refer(by_label(SECRET, "for=things")) as it:
        it.names("one", None)
        await it.knows("one")
        empty = it.references.fingerprint(THING, it.key("one"))
        await hand.create(secret("labelled", labels={"for": "things"}))
        await it.wakes(("one", "appeared"))
        assert it.references.fingerprint(THING, it.key("one")) not in {empty, None}
