"""Objects that are found by their labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.features.references.integration.bed import LABEL, SECRET, THING, by_label, content, secret
from tests.kit.objects import Hand

if TYPE_CHECKING:
    from tests.features.references.integration.bed import Refer


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


async def test_the_selected_objects_determine_the_fingerprint(hand: Hand, refer: Refer) -> None:
    async with refer(by_label(SECRET, "for=things")) as it:
        it.names("one", None)
        await it.knows("one")
        empty = it.references.fingerprint(THING, it.key("one"))
        await hand.create(secret("labelled", labels={"for": "things"}))
        await it.triggers(("one", "appeared"))
        assert it.references.fingerprint(THING, it.key("one")) not in {empty, None}
