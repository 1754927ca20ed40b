"""What objects refer to by name or label: few, many, other namespaces, missing rights and kinds."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from functools import partial
from typing import TYPE_CHECKING

import pytest

from runner.features.references.kind import FEW
from runner.values.errors import ForbiddenError
from runner.values.objects import GVK, ObjectKey
from tests.features.references.integration.bed import (
    CLUSTER_ROLE,
    LABEL,
    SECRET,
    THING,
    by_label,
    by_path,
    content,
    secret,
)
from tests.kit.objects import CRD, Hand, definition
from tests.kit.wait import until

if TYPE_CHECKING:
    from tests.features.references.integration.bed import Allow, Refer, Referring


MANY = [f"s{number:02}" for number in range(FEW + 4)]


async def test_a_change_of_content_triggers_and_a_change_of_metadata_does_not(hand: Hand, refer: Refer) -> None:
    await hand.create(secret("password"))
    async with refer(by_path(SECRET)) as it:
        it.names("one", "password")
        it.names("two", {"name": "password", "key": "key"})
        it.names("other", "another")
        for name in ("one", "two", "other"):
            await it.knows(name)
        await hand.patch(SECRET, "password", LABEL)
        await hand.patch(SECRET, "password", content("two"))
        await it.triggers(*((name, f"Secret {hand.namespace}/password changed") for name in ("one", "two")))
        await hand.delete(SECRET, "password")
        await it.triggers(("one", "password is gone"), ("two", "password is gone"))
        await hand.create(secret("password"))
        await it.triggers(("one", "password appeared"), ("two", "password appeared"))


async def test_adding_or_removing_a_reference_triggers_nothing(hand: Hand, refer: Refer) -> None:
    for name in ("old", "new"):
        await hand.create(secret(name))
    async with refer(by_path(SECRET)) as it:
        it.names("one", "old")
        await it.knows("one")
        it.names("one", "new")
        await it.knows("one")
        await hand.patch(SECRET, "old", content("two"))
        await hand.patch(SECRET, "new", content("two"))
        await it.triggers(("one", "Secret " + f"{hand.namespace}/new changed"))
        it.references.forget(THING, it.key("one"))
        it.names("witness", "new")
        await it.knows("witness")
        await hand.patch(SECRET, "new", content("three"))
        await it.triggers(("witness", "changed"))


async def test_few_names_are_filtered_by_the_server_and_many_share_one_watch_of_metadata(
    hand: Hand, refer: Refer
) -> None:
    for name in MANY:
        await hand.create(secret(name))
    path = f"/api/v1/namespaces/{hand.namespace}/secrets"
    async with refer(by_path(SECRET)) as it:
        it.names("few", MANY[:FEW])
        await it.knows("few")
        # A watch is opened after its list, by which the references are known.
        await until(lambda: len(it.client.opened) >= FEW, "a watch of each name")
        assert sorted(it.client.opened) == [(path, f"metadata.name={name}", False) for name in MANY[:FEW]]
        it.client.opened.clear()
        it.names("many", MANY)
        await it.knows("many")
        await until(lambda: it.client.opened, "the shared watch")
        assert it.client.opened == [(path, "", True)]
        await it.has_read(MANY[-1])
        for name in (MANY[0], MANY[-1]):
            await hand.patch(SECRET, name, LABEL)
            await hand.patch(SECRET, name, content("two"))
        await it.triggers(("few", MANY[0]), ("many", MANY[0]), ("many", MANY[-1]))
        it.names("late", ["missing", MANY[1]])
        await it.knows("late")
        await hand.create(secret("missing"))
        await it.triggers(("late", "missing appeared"))
        await hand.delete(SECRET, MANY[-1])
        await it.triggers(("many", "is gone"))
        assert it.client.opened == [(path, "", True)]


async def test_another_namespace_is_watched_if_rights_allow_it_or_the_missing_rule_is_logged(
    hand: Hand, refer: Refer, allow: Allow, user: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await allow("list", "watch")
    await hand.create(secret("near"))
    asked = {"namespace": hand.namespace, "verb": "watch", "resource": "secrets"}
    review = {"spec": {"user": user, "resourceAttributes": asked}}

    async def is_allowed() -> bool:
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        return bool((await hand.client.request("POST", path, body=review))["status"]["allowed"])

    # The API server itself learns of a right a little later.
    await until(is_allowed, "the right")
    async with refer(by_path(SECRET, namespaces=frozenset({"kube-system"})), user=user) as it:
        it.names("one", ["near", {"name": "far", "namespace": "kube-system"}])
        async with asyncio.timeout(4):
            await it.references.ready(THING, it.key("one"))
        await hand.patch(SECRET, "near", content("two"))
        await it.triggers(("one", "near changed"))
        assert it.references.fingerprint(THING, it.key("one")) is None
    logged = capsys.readouterr().out
    assert "Cannot watch a referenced object" in logged
    assert "Secret kube-system/far: " in logged
    assert "resources: [secrets], verbs: [list]}" in logged
    async with refer(by_path(SECRET, namespaces=frozenset({"kube-system"}))) as it:
        it.names("one", {"name": "far", "namespace": "kube-system"})
        await it.knows("one")


async def test_a_right_granted_later_triggers_objects_that_ran_without_it(
    hand: Hand, refer: Refer, allow: Allow, user: str
) -> None:
    await hand.create(secret("password"))
    async with refer(by_path(SECRET), user=user) as it:
        for name in ("ran", "waits"):
            it.names(name, ["password", "absent"])
        await it.references.ready(THING, it.key("ran"))
        async with it.run("ran"):
            pass
        await allow("list", "watch")
        await it.triggers(("ran", "password existed before the watch started"))
        await it.knows("ran")


async def test_without_the_right_to_read_a_new_version_counts_as_a_change(
    hand: Hand, refer: Refer, allow: Allow, user: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await allow("list", "watch")
    for name in MANY:
        await hand.create(secret(name))
    async with refer(by_path(SECRET), user=user) as it:
        it.names("one", MANY)
        await it.knows("one")
        await until(lambda: "Cannot read referenced objects" in _logged(capsys), "the operator to say so")
        await hand.patch(SECRET, MANY[3], LABEL)
        await it.triggers(("one", f"{MANY[3]} may have changed"))
        await hand.create(secret("late"))
        it.names("two", "late")
        await it.knows("two")
        await hand.patch(SECRET, "late", content("two"))
        await it.triggers(("two", "late may have changed"))


async def test_a_right_to_read_that_is_granted_later_is_used_without_a_restart(
    hand: Hand,
    refer: Refer,
    allow: Allow,
    user: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("runner.features.references.kind._REFUSED_FOR", 0.0)
    await allow("list", "watch")
    for name in MANY:
        await hand.create(secret(name))
    async with refer(by_path(SECRET), user=user) as it:
        it.names("one", MANY)
        await it.knows("one")
        await until(lambda: "Cannot read referenced objects" in _logged(capsys), "the operator to say so")
        await allow("get")
        await until(partial(_can_read, it, MANY[3]), "the right to be effective")
        await hand.patch(SECRET, MANY[3], LABEL)
        # The read shows a status that was not known before the change.
        await it.triggers(("one", f"{MANY[3]} may have changed"), ("one", f"{MANY[3]} changed: status"))
        await hand.patch(SECRET, MANY[3], {"metadata": {"labels": {"seen": "again"}}})
        await hand.patch(SECRET, MANY[3], content("two"))
        await it.triggers(("one", f"{MANY[3]} changed"))


async def _can_read(it: Referring, name: str) -> bool:
    resource = await it.hand.discovery.find(SECRET)
    with contextlib.suppress(ForbiddenError):
        await it.client.get(resource, it.key(name))
        it.client.read_names.clear()
        return True
    return False


def _logged(capsys: pytest.CaptureFixture[str], seen: list[str] = []) -> str:  # noqa: B006 - gathers over calls
    seen.append(capsys.readouterr().out)
    return "".join(seen)


async def test_a_kind_that_is_not_served_yet_has_no_objects_until_it_is(hand: Hand, refer: Refer) -> None:
    kind = GVK(f"r{uuid.uuid4().hex[:8]}.example.com", "v1", "Widget")
    async with refer(by_path(kind)) as it:
        it.names("one", "main")
        await it.references.ready(THING, it.key("one"))
        async with it.run("one"):
            pass
        crd = definition(kind.group, kind.kind)
        try:
            await hand.install(crd)
            body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "main"}, "spec": {"a": 1}}
            await hand.create(body)
            await it.triggers(("one", "Widget " + f"{hand.namespace}/main appeared"))
            await hand.patch(kind, "main", {"status": {"lastSeenTime": "now"}}, "status")
            await hand.patch(kind, "main", {"spec": {"a": 2}})
            await it.triggers(("one", "main changed"))
        finally:
            await hand.client.delete(await hand.discovery.find(CRD), ObjectKey("", crd["metadata"]["name"]))
        await it.triggers(("one", "main is gone"))


async def test_cluster_scoped_references_are_found_by_name(hand: Hand, refer: Refer) -> None:
    names = [f"{uuid.uuid4().hex[:8]}-{number}" for number in range(FEW + 1)]
    try:
        for name in names:
            await hand.create(_role(name))
        async with refer(by_path(CLUSTER_ROLE)) as it:
            it.names("one", names[0])
            await it.knows("one")
            await hand.patch(CLUSTER_ROLE, names[0], {"rules": []})
            await it.triggers(("one", f"{names[0]} changed"))
            it.names("all", names)
            await it.knows("all")
            await it.has_read(names[1])
            await hand.patch(CLUSTER_ROLE, names[1], LABEL)
            await hand.patch(CLUSTER_ROLE, names[1], {"rules": []})
            await it.triggers(("all", f"{names[1]} changed"))
    finally:
        for name in names:
            await hand.delete(CLUSTER_ROLE, name)


def _role(name: str) -> dict[str, object]:
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    return {
        "apiVersion": CLUSTER_ROLE.api_version,
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": rules,
    }


async def test_a_name_without_its_namespace_and_an_invalid_name_are_logged(
    refer: Refer, capsys: pytest.CaptureFixture[str]
) -> None:
    async with refer(by_path(SECRET), namespaces=()) as it:
        it.names("wide", "password", namespace="")
        it.names("odd", 7)
        await it.references.ready(THING, ObjectKey("", "wide"))
        await it.references.ready(THING, it.key("odd"))
        assert it.client.opened == []
    logged = capsys.readouterr().out
    assert "Secret password has no namespace; set {name, namespace}" in logged
    assert "spec.ref is not a reference" in logged


async def test_writes_of_a_run_do_not_trigger_its_own_object(hand: Hand, refer: Refer) -> None:
    async with refer(by_path(SECRET)) as it:
        for name in ("one", "two"):
            it.names(name, "made")
            await it.knows(name)
        async with it.run("one") as run:
            await run.create(secret("made"))
            await it.triggers(("two", "made appeared"))
        async with it.run("one") as run:
            await run.patch(SECRET, "made", content("two"))
        await it.triggers(("two", "made changed"))
        async with it.run("one"):
            await hand.patch(SECRET, "made", content("three"))
            await it.triggers(("two", "made changed"))
        await it.triggers(("one", "made changed"))
        async with it.run("one") as run:
            await run.delete(SECRET, "made")
        await it.triggers(("two", "made is gone"))


async def test_a_fingerprint_distinguishes_states_across_a_restart(hand: Hand, refer: Refer) -> None:
    await hand.create(secret("password"))
    reference = by_path(SECRET)

    async def fingerprint(it: Referring) -> str | None:
        it.names("one", ["password", "absent"])
        assert it.references.fingerprint(THING, it.key("one")) is None
        await it.references.ready(THING, it.key("one"))
        return it.references.fingerprint(THING, it.key("one"))

    async with refer(reference) as it:
        first = await fingerprint(it)
        it.names("none", [])
        assert it.references.fingerprint(THING, it.key("none")) == ""
    async with refer(reference) as it:
        assert await fingerprint(it) == first
        await hand.patch(SECRET, "password", content("two"))
        await it.triggers(("one", "changed"))
        second = it.references.fingerprint(THING, it.key("one"))
    await hand.create(secret("absent"))
    async with refer(reference) as it:
        assert len({first, second, await fingerprint(it)}) == 3


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
