"""References of objects: fields of a watch, their index, changes, and reads of what metadata do not show."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from runner.core.dependents.notification import Notification
from runner.core.kube.discovery import Discovery
from runner.core.kube.state import SECRETS
from runner.core.kube.watch_events import Restarted, Synced
from runner.core.watches.spec_paths import SpecPath
from runner.features.references import state as reference_states
from runner.features.references.by_label import LabelledReferences, LabelSelection
from runner.features.references.feature import REFERENCE
from runner.features.references.fields import REFERENCES, WatchReference
from runner.features.references.kind import ReferenceKind
from runner.features.references.state import (
    ReferencedState,
    ReferenceIndex,
    difference,
    has_to_be_read,
    names,
    references_of,
)
from runner.features.references.watching import DeferredReferences
from runner.values.errors import ApiError, ApiUnavailableError, ForbiddenError, ServerError
from runner.values.objects import GVK, ObjectKey, ObjectRef
from tests.unit.watches.sample import HEAD, Errors, One

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from runner.core.kube.client import Client


KIND, SECRET = GVK("test.example.com", "v1", "Thing"), GVK("", "v1", "Secret")
ONE, TWO = ObjectRef(KIND, ObjectKey("shop", "one")), ObjectRef(KIND, ObjectKey("shop", "two"))
PASSWORD = ObjectRef(SECRET, ObjectKey("shop", "password"))


def secret(version: str = "1", value: str = "old", uid: str = "u", **meta: Any) -> dict[str, Any]:
    return {"metadata": {"uid": uid, "resourceVersion": version, **meta}, "data": {"key": value}, "status": version}


def seen(obj: dict[str, Any], *, whole: bool = True, uses_generation: bool = False) -> ReferencedState:
    return ReferencedState.of(obj, SECRET, whole=whole, uses_generation=uses_generation)


class TestNames:
    @pytest.mark.parametrize(
        ("spec", "found"),
        [
            ({"ref": "a"}, ["shop/a"]),
            ({"ref": ["a", "b"]}, ["shop/a", "shop/b"]),
            ({"ref": {"name": "a"}}, ["shop/a"]),
            ({"ref": {"name": "a", "namespace": "vault", "key": "k"}}, ["vault/a"]),
            ({"ref": [{"name": "a"}, "b", [{"name": "c"}]]}, ["shop/a", "shop/b", "shop/c"]),
            ({"ref": ""}, []),
            ({"ref": None}, []),
            ({"ref": {}}, []),
            ({"ref": [None, {"namespace": "vault"}]}, []),
            ({}, []),
            ("odd", []),
        ],
    )
    def test_a_path_leads_to_names_objects_with_names_and_lists_of_both(self, spec: Any, found: list[str]) -> None:
        reference = WatchReference(SECRET, SpecPath.parse("spec.ref"), "", "", "")
        obj = {"metadata": {"name": "one", "namespace": "shop"}, "spec": spec}
        assert [str(key) for key in names(reference, obj)] == found

    @pytest.mark.parametrize(
        "value", [3, True, {"name": 3}, {"name": "a", "namespace": 3}, "a/b", "50%", "..", "a" * 254]
    )
    def test_an_invalid_name_is_an_error_with_its_path(self, value: Any) -> None:
        reference = WatchReference(SECRET, SpecPath.parse("spec.ref"), "", "", "")
        with pytest.raises(ValueError, match=r"spec\.ref is not a reference; set a name"):
            list(names(reference, {"spec": {"ref": value}}))

    def test_a_name_of_the_watch_is_in_the_namespace_of_the_object_or_of_the_watch(self) -> None:
        obj = {"metadata": {"name": "one", "namespace": "shop"}}
        assert list(names(WatchReference(SECRET, None, "all", "", ""), obj)) == [ObjectKey("shop", "all")]
        assert list(names(WatchReference(SECRET, None, "all", "", "vault"), obj)) == [ObjectKey("vault", "all")]

    @pytest.mark.parametrize(
        ("namespace", "namespaces", "own", "watched"),
        [
            ("", (), "shop", {"shop/a"}),
            ("", ("other",), "shop", {"shop/a", "other/c"}),
            ("", ("*",), "shop", {"shop/a", "vault/b", "other/c"}),
            ("vault", (), "shop", {"vault/a", "vault/b"}),
            ("", (), "", {"a", "vault/b", "other/c"}),
        ],
    )
    def test_a_spec_refers_to_its_own_namespace_and_to_those_that_the_watch_allows(
        self, namespace: str, namespaces: tuple[str, ...], own: str, watched: set[str]
    ) -> None:
        reference = WatchReference(SECRET, SpecPath.parse("spec.ref"), "", "", namespace, frozenset(namespaces))
        ref = ["a", {"name": "b", "namespace": "vault"}, {"name": "c", "namespace": "other"}]
        found = references_of([reference], {"metadata": {"name": "one", "namespace": own}, "spec": {"ref": ref}})
        assert {str(each.key) for each in found.watched} == watched
        assert len(found.foreign) == 3 - len(watched)
        assert not found.excess

    def test_a_spec_refers_to_a_hundred_objects_at_most_beside_those_of_the_watch(self) -> None:
        spec = {"ref": ["0", *map(str, range(120))], "others": "z"}
        references = [
            WatchReference(SECRET, SpecPath.parse("spec.ref"), "", "", ""),
            WatchReference(KIND, SpecPath.parse("spec.others"), "", "", ""),
            WatchReference(SECRET, None, "defaults", "", "vault"),
        ]
        found = references_of(references, {"metadata": {"name": "one", "namespace": "shop"}, "spec": spec})
        assert len(found.watched) == 101
        assert ObjectRef(SECRET, ObjectKey("vault", "defaults")) in found.watched
        assert [each.key.name for each in found.excess] == [*map(str, range(100, 120)), "z"]

    def test_of_a_spec_with_hundreds_of_thousands_of_names_a_thousand_are_read(self) -> None:
        reference = WatchReference(SECRET, SpecPath.parse("spec.ref"), "", "", "")
        spec = {"ref": [*map(str, range(2000)), {"invalid": ["not read"]}, 3]}
        found = references_of([reference], {"metadata": {"name": "one", "namespace": "shop"}, "spec": spec})
        assert (len(found.watched), len(found.excess), found.invalid) == (100, 900, ())

    def test_an_invalid_reference_does_not_hide_others(self) -> None:
        references = [WatchReference(SECRET, SpecPath.parse(f"spec.{name}"), "", "", "") for name in ("odd", "ref")]
        obj = {"metadata": {"name": "one", "namespace": "shop"}, "spec": {"odd": 3, "ref": "a"}}
        found = references_of(references, obj)
        assert [str(each.key) for each in found.watched] == ["shop/a"]
        assert len(found.invalid) == 1


class TestStates:
    def test_only_another_content_is_a_change(self) -> None:
        old = seen(secret())
        assert difference(old, seen(secret("2", labels={"a": "b"}, managedFields=[{}]))) == ""
        assert difference(old, seen(secret("2", "new"))) == "changed"
        assert difference(old, seen(secret("2", uid="v"))) == "was recreated"
        assert (difference(None, old), difference(old, None), difference(None, None)) == ("appeared", "is gone", "")

    def test_metadata_shows_a_change_only_of_kinds_with_a_generation(self) -> None:
        old, new = secret(generation=1), secret("2", generation=2)
        alone = {"whole": False, "uses_generation": True}
        assert difference(seen(old, **alone), seen(new, **alone)) == "changed"
        assert difference(seen(old, **alone), seen(secret("2", generation=1), **alone)) == ""
        assert not has_to_be_read(seen(old, uses_generation=True), seen(new, **alone))
        assert has_to_be_read(seen(old), seen(new, whole=False))
        assert not has_to_be_read(seen(old), seen(old, whole=False))

    def test_content_that_was_never_read_counts_as_changed_with_its_version(self) -> None:
        assert difference(seen(secret(), whole=False), seen(secret("2"))) == "may have changed"

    def test_nothing_of_a_value_is_kept_and_its_digest_is_this_process_s_own(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        state = seen(secret(value="hunter2-hunter2"))
        assert "hunter2" not in repr(state)
        monkeypatch.setattr(reference_states, "_KEY", b"another process")
        assert seen(secret(value="hunter2-hunter2")).content != state.content
        assert seen(secret(value="hunter2-hunter2")).lasting("auto") == state.lasting("auto") == "u:1"
        assert seen(secret(generation=4), uses_generation=True).lasting("off") == "u:g4"


class TestIndex:
    def test_the_first_and_the_last_reference_to_an_object_are_returned_once(self) -> None:
        index = ReferenceIndex()
        assert index.update(ONE, frozenset({PASSWORD})) == ([PASSWORD], [])
        assert index.update(TWO, frozenset({PASSWORD})) == ([], [])
        assert index.targets(PASSWORD) == {ONE, TWO}
        assert index.update(ONE, frozenset()) == ([], [])
        assert index.forget(TWO) == [PASSWORD]
        assert index.targets(PASSWORD) == frozenset()

    def test_an_object_that_is_gone_leaves_nothing(self) -> None:
        index = ReferenceIndex()
        index.update(ONE, frozenset({PASSWORD}))
        index.forget(ONE)
        assert index.forget(ONE) == []
        assert (index.references(ONE), list(index.objects(KIND, ""))) == (frozenset(), [])

    def test_objects_are_found_by_namespace_with_those_that_have_none(self) -> None:
        index, wide = ReferenceIndex(), ObjectRef(KIND, ObjectKey("", "wide"))
        for target in (ONE, wide, ObjectRef(KIND, ObjectKey("vault", "far"))):
            index.update(target, frozenset())
        assert set(index.objects(KIND, "shop")) == {ONE, wide}
        assert len(list(index.objects(KIND, ""))) == 3
        assert list(index.objects(SECRET, "")) == []


class TestRuns:
    def notification(self, version: str, target: ObjectRef = ONE) -> Notification:
        return Notification(target, replace(PASSWORD, uid="u"), "changed", None, reason=REFERENCE, version=version)

    def test_a_notification_is_not_deferred_unless_its_object_runs(self) -> None:
        runs = DeferredReferences()
        runs.began(TWO)
        assert not runs.defer(self.notification("2"))

    def test_writes_of_a_run_cause_no_notification_of_it_whichever_of_event_and_write_is_first(self) -> None:
        runs = DeferredReferences()
        runs.began(ONE)
        runs.wrote(ONE, "u", "2")
        assert runs.defer(self.notification("2"))
        assert runs.defer(self.notification("3"))
        assert runs.defer(self.notification("4"))
        runs.wrote(ONE, "u", "3")
        assert [notification.version for notification in runs.ended(ONE)] == ["4"]
        runs.wrote(ONE, "u", "5")
        assert runs.defer(self.notification("5"))
        assert not runs.defer(self.notification("5", TWO))

    def test_a_notification_is_deferred_until_the_last_of_several_runs_ends(self) -> None:
        runs = DeferredReferences()
        runs.began(ONE)
        runs.began(ONE)
        assert runs.defer(self.notification("2"))
        assert runs.ended(ONE) == []
        assert [notification.version for notification in runs.ended(ONE)] == ["2"]


SELECTED = LabelSelection(GVK("", "v1", "Secret"), "for=things", "")


@pytest.fixture
def labelled() -> LabelledReferences:
    """References in the namespaces `a` and `b`, which no client watches."""
    client: Any = None
    return LabelledReferences(client, Discovery(client), ["a", "b"], SELECTED, lambda *_: None, lambda _: None)


async def test_a_refused_namespace_is_unknown_and_its_neighbour_is_known(labelled: LabelledReferences) -> None:
    refused, listed = labelled._watches
    refused.health.failing(ForbiddenError("may not list", status=403), {})
    listed.health.is_listed = True  # as the watcher notes it at the end of a list
    for happened in (Restarted("b"), Synced()):
        listed._take(happened)
    assert (labelled.is_seen("a"), labelled.is_known("a"), labelled.trouble("a")) == (False, False, "may not list")
    assert (labelled.is_seen("b"), labelled.is_known("b"), labelled.trouble("b")) == (True, True, "")
    assert not labelled.is_known("")


async def test_the_first_watch_covers_all_namespaces_of_a_cluster_scoped_kind(labelled: LabelledReferences) -> None:
    first, second = labelled._watches
    second.health.is_redundant = True
    for happened in (Restarted("b"), Synced()):
        second._take(happened)
    assert not labelled.is_known("b")
    first.health.is_listed = True
    for happened in (Restarted("a"), Synced()):
        first._take(happened)
    assert labelled.is_known("b")


def test_a_reference_is_a_kind_and_a_way_to_find_its_objects(one: One) -> None:
    rest = (
        "  references:\n  - {group: apps, version: v1, kind: Deployment, path: 'spec.apps[*].name', namespace: shop}\n"
    )
    (reference,) = one(rest).more.get(REFERENCES)
    assert (reference.gvk, reference.namespace) == (GVK("apps", "v1", "Deployment"), "shop")
    assert reference.path is not None
    assert reference.path.text == "spec.apps[*].name"
    assert reference.namespaces == frozenset()


def test_a_watch_lists_the_namespaces_that_a_spec_may_name(one: One) -> None:
    rest = "  references:\n  - {version: v1, kind: Secret, path: spec.a, namespaces: [vault, '*']}\n"
    (reference,) = one(rest).more.get(REFERENCES)
    assert reference.namespaces == {"vault", "*"}


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("{kind: Secret, path: spec.a}", "references[0].version: missing or empty: set the API version"),
        ("{version: v1, path: spec.a}", "references[0].kind: missing or empty: set a kind, such as Secret"),
        ("{version: v1, kind: Secret}", "references[0]: selects no objects: set one of path"),
        (
            "{version: v1, kind: Secret, path: spec.a, name: b}",
            "references[0]: path and name are mutually exclusive: set one of",
        ),
        ("{version: v1, kind: Secret, path: a}", "references[0].path: invalid path 'a'"),
        ("{version: v1, kind: Secret, path: }", "references[0].path: invalid path ''"),
        ("{version: v1, kind: Secret, name: a/b}", "references[0].name: invalid object name 'a/b'"),
        ("{version: v1, kind: Secret, selector: {}}", "references[0].selector: selects all objects of the kind"),
        (
            "{version: v1, kind: Secret, selector: a=b}",
            "references[0].selector: found text ('a=b'), expected a mapping",
        ),
        ("{version: v1, kind: Secret, name: a, namespace: b/c}", "references[0].namespace: invalid namespace 'b/c'"),
        (
            "{version: v1, kind: Secret, path: spec.a, namespaces: [b/c]}",
            "references[0].namespaces: invalid namespace 'b/c'",
        ),
        ("spec.secret", "references[0]: found text, expected a mapping with group, version, kind, path"),
    ],
)
def test_an_invalid_reference_is_one_error(errors: Errors, item: str, message: str) -> None:
    (line,) = errors(f"{HEAD}  references:\n  - {item}\n")
    assert message in line
    assert line.startswith("watches.yaml:6: ")


BAD, GOOD, OTHER = (ObjectKey(space, name) for space, name in (("evil", "50%"), ("shop", "good"), ("shop", "other")))


class Reads:
    """Answers to reads by key: an error, or none for an object. Notes what was read, in order."""

    def __init__(self) -> None:
        self.errors: dict[ObjectKey, Exception] = {}
        self.read: list[ObjectKey] = []

    async def get(self, _resource: object, key: ObjectKey) -> dict[str, Any]:
        self.read.append(key)
        await asyncio.sleep(0.01)
        if (error := self.errors.get(key)) is not None:
            raise error
        return {"metadata": {"name": key.name, "namespace": key.namespace, "uid": key.name, "resourceVersion": "1"}}

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[ReferenceKind]:
        """Read references of one kind, without a watch."""
        client, discovery = cast("Client", self), cast("Discovery", None)
        kind = ReferenceKind(client, discovery, SECRETS.gvk, (), lambda *_: None, lambda *_: None, reads_status=False)
        kind._resource = SECRETS
        task = asyncio.create_task(kind._read())
        yield kind
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def request(kind: ReferenceKind, *keys: ObjectKey) -> None:
    for key in keys:
        kind.add(key)
        kind._request_read(key, None)


@pytest.mark.virtual_time
@pytest.mark.parametrize("error", [ApiError("invalid name", status=400), ServerError("cannot decrypt", status=500)])
async def test_an_object_that_cannot_be_read_delays_no_other_one(error: Exception) -> None:
    reads = Reads()
    reads.errors[BAD] = error
    async with reads.reading() as kind:
        request(kind, GOOD, BAD)
        await asyncio.sleep(120)
        assert kind.is_known(GOOD)
        assert not kind.is_known(BAD)
        request(kind, OTHER)
        await asyncio.sleep(1)
        assert kind.is_known(OTHER), "another object is not read only when the wait for the first one is over"
        del reads.errors[BAD]
        await asyncio.sleep(60)
        assert kind.is_known(BAD)
    assert reads.read.count(GOOD) == reads.read.count(OTHER) == 1
    assert reads.read.count(BAD) < 20


@pytest.mark.virtual_time
async def test_an_object_whose_reads_time_out_delays_another_one_by_one_wait_at_most() -> None:
    reads = Reads()
    reads.errors[BAD] = ApiUnavailableError("timeout")
    async with reads.reading() as kind:
        request(kind, GOOD, BAD)
        await asyncio.sleep(60)
        assert kind.is_known(GOOD)


@pytest.mark.virtual_time
async def test_nothing_is_read_again_and_again_while_all_reads_fail() -> None:
    reads = Reads()
    reads.errors = dict.fromkeys((BAD, GOOD, OTHER), ApiUnavailableError("refused"))
    async with reads.reading() as kind:
        request(kind, BAD, GOOD, OTHER)
        await asyncio.sleep(600)
        assert len(reads.read) < 40
        reads.errors.clear()
        await asyncio.sleep(60)
        assert all(map(kind.is_known, (BAD, GOOD, OTHER)))
