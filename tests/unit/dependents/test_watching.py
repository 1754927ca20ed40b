"""Kinds that are watched as dependents, the owners of their objects, and how often an owner is triggered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from runner.base.credentials import auth
from runner.base.monitoring.background import Background
from runner.core.dependents.store import KindStore
from runner.core.dependents.watching import Dependents
from runner.core.kube.client import Client
from runner.core.kube.discovery import ApiResource, Discovery
from runner.core.kube.state import FileState
from runner.core.kube.watch_events import Applied, Deleted, Restarted, Synced
from runner.core.kube.watch_health import WatchState, covering
from runner.core.queue.reasons import Cause
from runner.core.watches.watch import Watch
from runner.features.loopguard.guard import LoopGuard
from runner.features.readcache.bodies import ReadCache
from runner.values.errors import ForbiddenError, KindNotFoundError
from runner.values.objects import GVK, Object, ObjectKey, ObjectRef, Owner
from tests.kit.wait import patience

pytestmark = pytest.mark.virtual_time

VERBS = frozenset({"get", "list", "watch", "create"})
WATCHED = GVK("cache.example.com", "v1alpha1", "Memcached")
OWNER = Owner(ObjectRef(WATCHED, ObjectKey("ns", "mc"), "uid-mc"), namespaced=True)
FLEET = Owner(ObjectRef(GVK("cache.example.com", "v1", "Fleet"), ObjectKey("", "all"), "uid-all"), namespaced=False)

Make = Callable[..., "Harness"]


def resource(
    kind: str, *, group: str = "apps", namespaced: bool = True, verbs: frozenset[str] = VERBS, status: bool = True
) -> ApiResource:
    subresources = frozenset({"status"} if status else ())
    return ApiResource(GVK(group, "v1", kind), f"{kind.lower()}s", namespaced, verbs, subresources)


DEPLOYMENT = resource("Deployment")
MISSING = GVK("apps", "v1", "Missing")
CLUSTER_ROLE = resource("ClusterRole", group="rbac.authorization.k8s.io", namespaced=False)


def child(version: int, *, generation: int = 1, namespace: str = "ns", kind: str = "Deployment", **meta: Any) -> Object:
    reference = {"apiVersion": "cache.example.com/v2", "kind": "Memcached", "name": "mc", "uid": "uid-mc"}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {
            "name": "web",
            "namespace": namespace,
            "uid": "uid-web",
            "resourceVersion": str(version),
            "generation": generation,
            "ownerReferences": [reference],
            **meta,
        },
    }


class Harness:
    """`Dependents` whose watches a test speaks for."""

    def __init__(self, client: Client, folder: Path, namespaces: tuple[str, ...], watches: tuple[Watch, ...]) -> None:
        self.triggered: list[tuple[float, GVK, ObjectKey, str]] = []
        self.leads = True
        self.over_budget = 0
        guard = LoopGuard(self._wake, self._count)
        self.dependents = Dependents(
            *(client, Discovery(client), namespaces, watches, guard.trigger),
            KindStore(FileState(folder)),
            lambda: self.leads,
        )

    def _wake(self, target: ObjectRef, cause: Cause) -> None:
        self.triggered.append((asyncio.get_running_loop().time(), target.gvk, target.key, cause.details[0]))

    def _count(self, _: GVK) -> None:
        self.over_budget += 1

    def ran(self, owner: Owner, obj: Object) -> None:
        """Have a run of an owner write a Deployment."""
        self.dependents.began(owner)
        self.dependents.wrote(owner, DEPLOYMENT, obj)
        self.dependents.ended(owner)

    @property
    def reasons(self) -> list[str]:
        return [why for *_, why in self.triggered]

    def tell(self, event: Restarted | Synced | Applied | Deleted, scope: str = "") -> None:
        """Say something in place of the Deployments' watch."""
        kind = self.dependents._kinds["apps", "Deployment"]
        if isinstance(event, Synced):
            for health in covering(kind._healths, scope):
                health.is_listed = True
        kind._received(scope, event)


@pytest.fixture
def make(tmp_path: Path, make_watch: Callable[..., Watch]) -> Make:
    """Make a harness; called with fields of the watch that differ."""
    path = tmp_path / "kubeconfig"
    path.write_text(
        "{current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}], users: [{name: u, user: {}}],"
        " clusters: [{name: k, cluster: {server: 'http://127.0.0.1:1'}}]}"
    )
    client = Client(asyncio.run(auth.load(str(path), None, auth.HostEnvironment.of_process())))

    def build(*, namespaces: tuple[str, ...] = (), **watch: Any) -> Harness:
        fleet = make_watch(gvk=FLEET.ref.gvk)
        return Harness(client, tmp_path, namespaces, (make_watch(gvk=WATCHED, **watch), fleet))

    return build


@pytest.fixture
def harness(make: Make) -> Harness:
    """A harness whose Deployments are watched, because a run of the owner wrote one."""
    harness = make()
    harness.dependents.wrote(OWNER, DEPLOYMENT, child(1))
    return harness


def test_an_owned_objects_kind_is_watched_once(make: Make) -> None:
    dependents = make().dependents
    assert dependents.wants(OWNER, DEPLOYMENT, "ns")
    dependents.wrote(OWNER, DEPLOYMENT, child(1))
    assert not dependents.wants(OWNER, DEPLOYMENT, "ns")
    dependents.read(OWNER, DEPLOYMENT, child(1))
    assert dependents.watched() == {DEPLOYMENT.gvk}


@pytest.mark.parametrize(
    ("options", "kind", "is_wanted"),
    [
        ({}, resource("Event", group="events.k8s.io"), False),
        ({}, resource("Event", group=""), False),
        ({}, resource("TokenReview", verbs=frozenset({"create"})), False),
        ({}, CLUSTER_ROLE, False),
        ({"watch_dependent_resources": False}, DEPLOYMENT, False),
        ({"blacklist": frozenset({DEPLOYMENT.gvk})}, DEPLOYMENT, False),
        ({"namespaces": ("here",)}, DEPLOYMENT, True),
        ({"references": []}, DEPLOYMENT, True),
    ],
    ids=["events", "core events", "no list", "cluster", "disabled", "blacklist", "elsewhere", "not owned"],
)
def test_kinds_that_cannot_be_watched_or_are_disabled_or_in_other_namespaces_or_not_owned_are_not_watched(
    make: Make, options: dict[str, Any], kind: ApiResource, *, is_wanted: bool
) -> None:
    owners = {"ownerReferences": options["references"]} if "references" in options else {}
    dependents = make(**{name: value for name, value in options.items() if name != "references"}).dependents
    assert is_wanted or not dependents.wants(OWNER, kind, "ns")
    dependents.wrote(OWNER, kind, child(1, kind=kind.gvk.kind, **owners))
    dependents.read(OWNER, kind, child(1, kind=kind.gvk.kind, **owners))
    assert dependents.watched() == frozenset()


def test_cluster_scoped_kinds_are_watched_if_enabled_or_for_cluster_scoped_owners(make: Make) -> None:
    assert make(watch_cluster_scoped_resources=True).dependents.wants(OWNER, CLUSTER_ROLE, "")
    assert make().dependents.wants(FLEET, CLUSTER_ROLE, "")


def test_each_namespace_has_its_watch(make: Make) -> None:
    dependents = make(namespaces=("ns", "other")).dependents
    dependents.wrote(OWNER, DEPLOYMENT, child(1))
    kind = dependents._kinds["apps", "Deployment"]
    assert [watcher.namespace for watcher in kind._watchers] == ["ns", "other"]
    assert {kind.scope_of(ObjectKey(space, "web")) for space in ("ns", "other")} == {"ns", "other"}


def test_a_kind_whose_watch_is_not_connected_is_a_problem_and_not_live(harness: Harness) -> None:
    assert harness.dependents.problems() == ["apps/v1, Kind=Deployment: connecting: no response yet"]
    assert harness.dependents.live() == {DEPLOYMENT.gvk: False}


async def test_a_stored_kind_is_watched_if_a_namespace_allows_it_and_later_if_it_is_not_served(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    dependents = make(namespaces=("a", "b")).dependents
    answers: dict[str, Exception | None] = {"a": ForbiddenError("no", status=403), "b": None}
    served = {WATCHED: resource("Thing"), DEPLOYMENT.gvk: DEPLOYMENT}

    async def find(gvk: GVK) -> ApiResource:
        if gvk not in served:
            raise KindNotFoundError(f"the API server does not serve {gvk}")
        return served[gvk]

    async def list_page(_: ApiResource, namespace: str, *__: Any) -> None:
        if (error := answers[namespace]) is not None:
            raise error

    monkeypatch.setattr(dependents._discovery, "find", find)
    monkeypatch.setattr(dependents._client, "list_page", list_page)
    stored = {WATCHED: {DEPLOYMENT.gvk, MISSING}}
    monkeypatch.setattr(dependents._store, "load", lambda: asyncio.sleep(0, (stored, {})))
    resuming = asyncio.create_task(dependents._resume())
    await asyncio.sleep(10)
    assert dependents.watched() == {DEPLOYMENT.gvk}
    assert dependents._resumed.is_set()
    assert dependents.unknown(WATCHED, "b") == f"the API server does not serve {MISSING}"
    served[MISSING] = resource("Missing")
    await asyncio.sleep(40)
    assert dependents.watched() == {DEPLOYMENT.gvk, served[MISSING].gvk}
    assert resuming.done()


async def test_a_stored_kind_that_each_namespace_refuses_is_known_as_not_watched_until_a_run_creates_one(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    dependents = make(namespaces=("a", "b")).dependents
    served = {WATCHED: resource("Thing"), DEPLOYMENT.gvk: DEPLOYMENT}

    async def list_page(*_: Any) -> None:
        raise ForbiddenError("no", status=403)

    monkeypatch.setattr(dependents._discovery, "find", lambda gvk: asyncio.sleep(0, served[gvk]))
    monkeypatch.setattr(dependents._client, "list_page", list_page)
    monkeypatch.setattr(dependents._store, "load", lambda: asyncio.sleep(0, ({WATCHED: {DEPLOYMENT.gvk}}, {})))
    await dependents._resume()
    assert dependents.is_resumed
    assert dependents.unwatched(WATCHED) == [DEPLOYMENT.gvk]
    dependents._ensure(WATCHED, DEPLOYMENT)
    assert dependents.unwatched(WATCHED) == []


async def test_a_removed_version_of_a_kind_is_not_missing_while_another_one_is_watched(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    dependents = make().dependents
    former = GVK("apps", "v1beta1", "Deployment")
    served = {WATCHED: resource("Thing"), DEPLOYMENT.gvk: DEPLOYMENT}

    async def find(gvk: GVK) -> ApiResource:
        if gvk not in served:
            raise KindNotFoundError(f"the API server does not serve {gvk}")
        return served[gvk]

    monkeypatch.setattr(dependents._discovery, "find", find)
    monkeypatch.setattr(dependents._store, "load", lambda: asyncio.sleep(0, ({WATCHED: {former}}, {})))
    resuming = asyncio.create_task(dependents._resume())
    await asyncio.sleep(10)
    assert dependents.unknown(WATCHED, "ns") == f"the API server does not serve {former}"
    dependents.wrote(OWNER, DEPLOYMENT, child(1))
    await asyncio.sleep(40)
    assert dependents.unknown(WATCHED, "ns") == "Deployment: connecting: no response yet"
    assert resuming.done()


async def test_an_owner_is_found_whatever_the_version_of_its_reference(harness: Harness) -> None:
    harness.tell(Applied(child(2, generation=2)))
    assert harness.triggered == [(0.0, WATCHED, ObjectKey("ns", "mc"), "Deployment ns/web changed: spec")]


async def test_dependents_of_kinds_of_other_operators_trigger_nothing(harness: Harness) -> None:
    foreign = {"apiVersion": "other.example.com/v1", "kind": "Memcached", "name": "mc", "uid": "u"}
    harness.tell(Applied(child(5, name="x", ownerReferences=[foreign])))
    harness.tell(Deleted(child(6, name="x", ownerReferences=[foreign])))
    assert harness.triggered == []


async def test_owners_of_another_replica_are_not_triggered_and_not_counted_as_contention(
    harness: Harness, capsys: pytest.CaptureFixture[str]
) -> None:
    harness.leads = False
    for version in range(2, 40):
        harness.tell(Applied(child(version, generation=version)))
    assert harness.triggered == []
    harness.leads = True
    harness.tell(Applied(child(41, generation=41)))
    assert len(harness.triggered) == 1
    assert "triggered repeatedly" not in capsys.readouterr().out


def far(version: int, **meta: Any) -> Object:
    """An object in another namespace whose annotations name the owner."""
    fixed = {"name": "x", "namespace": "far", "uid": "uid-x", "ownerReferences": []}
    return child(version, **{**fixed, "annotations": OWNER.annotations(), **meta})


TENANT = Owner(ObjectRef(WATCHED, ObjectKey("far", "mine"), "uid-mine"), namespaced=True)


async def test_annotations_name_an_owner_in_another_namespace_if_its_run_wrote_the_object(make: Make) -> None:
    harness = make()
    harness.dependents.wrote(OWNER, DEPLOYMENT, far(1))
    harness.tell(Applied(far(2, generation=2)))
    harness.tell(Deleted(far(3, generation=2)))
    assert [(key, why) for _, _, key, why in harness.triggered] == [
        (OWNER.ref.key, "Deployment far/x changed: spec"),
        (OWNER.ref.key, "Deployment far/x was deleted"),
    ]


async def test_dependents_in_a_namespace_whose_watch_fails_are_unknown(make: Make) -> None:
    harness = make(namespaces=("ns", "far"))
    harness.dependents.wrote(OWNER, DEPLOYMENT, child(1))
    own, other = harness.dependents._kinds["apps", "Deployment"]._healths
    own.state, own.is_listed = WatchState.LIVE, True
    other.state, other.last_error = WatchState.FAILING, "forbidden"
    assert harness.dependents.owned_now(OWNER)
    harness.dependents.wrote(OWNER, DEPLOYMENT, far(1))
    assert not harness.dependents.owned_now(OWNER)
    other.state, other.is_listed = WatchState.LIVE, True
    assert harness.dependents.owned_now(OWNER)


@pytest.mark.parametrize("namespace", ["far", ""])
async def test_annotations_that_another_user_wrote_do_not_trigger_an_owner_in_another_namespace(
    make: Make, namespace: str
) -> None:
    harness = make(watch_cluster_scoped_resources=True)
    harness.dependents.wrote(OWNER, DEPLOYMENT, child(1))
    # Also if the user's own resource wrote the object, or a run of the owner reads it.
    harness.dependents.wrote(TENANT, DEPLOYMENT, far(2, namespace=namespace))
    harness.dependents.read(OWNER, DEPLOYMENT, far(2, namespace=namespace, creationTimestamp="2999-01-01T00:00:00Z"))
    for version in range(3, 9):
        harness.tell(Applied(far(version, generation=version, namespace=namespace)))
    harness.tell(Deleted(far(9, namespace=namespace)))
    harness.tell(Applied(far(10, namespace=namespace, uid="uid-y")))
    assert harness.triggered == []
    assert not harness.dependents.owned_now(OWNER) or not any(
        key.namespace == namespace
        for key, _ in harness.dependents._kinds["apps", "Deployment"].ledger.owned_by(OWNER.ref)
    )


async def test_an_object_with_an_old_name_that_no_run_wrote_does_not_inherit_the_owner(make: Make) -> None:
    harness = make()
    harness.dependents.wrote(OWNER, DEPLOYMENT, far(1))
    harness.tell(Deleted(far(2)))
    harness.tell(Applied(far(3, uid="uid-forged")))
    for version in range(4, 20):
        harness.tell(Applied(far(version, generation=version, uid="uid-forged")))
    assert harness.reasons == ["Deployment far/x was deleted", "Deployment far/x was recreated"]


async def test_an_object_that_is_older_than_the_record_counts_once_a_run_of_its_owner_reads_it(
    harness: Harness,
) -> None:
    old = {"creationTimestamp": "2020-01-01T00:00:00Z"}
    harness.tell(Applied(far(2, **old)))
    harness.tell(Applied(far(3, generation=3, **old)))
    assert harness.triggered == []
    assert harness.dependents.wants(OWNER, DEPLOYMENT, "far")
    harness.dependents.read(TENANT, DEPLOYMENT, far(3, generation=3, **old))
    harness.tell(Applied(far(4, generation=4, **old)))
    assert harness.triggered == []
    harness.dependents.read(OWNER, DEPLOYMENT, far(4, generation=4, **old))
    harness.tell(Applied(far(5, generation=5, **old)))
    assert harness.reasons == ["Deployment far/x changed: spec"]


def test_kinds_that_the_storage_refused_are_saved_as_soon_as_it_accepts_them(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.core.dependents.watching._SAVING_AGAIN", (0.01, 0.02))
    obstacle = tmp_path / "dependent-kinds.json"
    obstacle.mkdir()

    async def scenario() -> None:
        dependents = make().dependents
        async with dependents._client, asyncio.timeout(patience()), asyncio.TaskGroup() as group:
            following = group.create_task(dependents.follow(Background()))
            with capture_logs() as logs:
                dependents.wrote(OWNER, DEPLOYMENT, child(1))
                while not any("Cannot save" in each["event"] for each in logs):
                    await asyncio.sleep(0.01)
            obstacle.rmdir()
            while not (await KindStore(FileState(tmp_path)).load())[0].get(WATCHED):
                await asyncio.sleep(0.01)
            following.cancel()

    asyncio.run(scenario())


def test_which_objects_runs_wrote_in_other_namespaces_survives_a_restart_and_reaches_the_next_leader(
    make: Make, tmp_path: Path
) -> None:
    async def scenario() -> None:
        first, replica = make().dependents, make().dependents
        later = {"creationTimestamp": "2999-01-01T00:00:00Z"}
        async with first._client, asyncio.timeout(patience()), asyncio.TaskGroup() as group:
            tasks = [group.create_task(each.follow(Background())) for each in (first, replica)]
            await asyncio.gather(first._loaded.wait(), replica._loaded.wait())
            first.wrote(OWNER, DEPLOYMENT, far(1, **later))
            while not (records := (await KindStore(FileState(tmp_path)).load())[1]) or not records[WATCHED].marks:
                await asyncio.sleep(0.01)
            replica.leadership_changed()
            restarted = make().dependents
            tasks.append(group.create_task(restarted.follow(Background())))
            for each in (restarted, replica):
                while OWNER.ref not in each._rules.targets(DEPLOYMENT, far(2, **later)):
                    await asyncio.sleep(0.01)
                assert each._rules.targets(DEPLOYMENT, far(3, uid="uid-forged", **later)) == ()
            for task in tasks:
                task.cancel()

    asyncio.run(scenario())


async def test_dependents_in_other_namespaces_trigger_an_owner_within_a_budget(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    harness = make()
    for number in range(200):
        harness.dependents.wrote(OWNER, DEPLOYMENT, far(1, name=f"x{number}", uid=f"uid-{number}"))
    for number in range(200):
        harness.tell(Applied(far(2, generation=2, name=f"x{number}", uid=f"uid-{number}")))
    assert len(harness.triggered) == 30
    assert harness.over_budget == 170
    for number in range(100):
        harness.dependents.wrote(OWNER, DEPLOYMENT, child(1, name=f"near{number}", uid=f"near-{number}"))
        harness.tell(Applied(child(2, generation=2, name=f"near{number}", uid=f"near-{number}")))
    assert len(harness.triggered) == 130, "dependents in the owner's namespace have no budget"
    await asyncio.sleep(60.0)
    assert len(harness.triggered) == 131, "what was delayed triggers the owner once"
    harness.tell(Deleted(far(3, name="x1", uid="uid-1")))
    assert len(harness.triggered) == 132
    assert capsys.readouterr().out.count("trigger an object too often") == 1


async def test_a_reference_to_a_cluster_scoped_owner_counts_only_with_its_uid(make: Make) -> None:
    harness = make()
    ours: dict[str, Any] = {"ownerReferences": [FLEET.reference()]}
    forged: dict[str, Any] = {"ownerReferences": [{**FLEET.reference(), "uid": "guessed"}], "name": "x", "uid": "uid-x"}
    harness.ran(FLEET, child(1, **ours))
    for version in range(2, 5):
        harness.tell(Applied(child(version, generation=version, **forged)))
    harness.tell(Deleted(child(5, **forged)))
    assert harness.triggered == []
    harness.tell(Applied(child(6, generation=6, **ours)))
    assert harness.reasons == ["Deployment ns/web changed: spec"]


async def test_a_recreated_cluster_scoped_owner_runs_when_dependents_of_the_earlier_one_are_deleted(make: Make) -> None:
    harness = make()
    earlier: dict[str, Any] = {"ownerReferences": [FLEET.reference()]}
    again = Owner(replace(FLEET.ref, uid="uid-again"), namespaced=False)
    harness.ran(FLEET, child(1, **earlier))
    harness.dependents.forget(FLEET.ref.gvk, FLEET.ref.key)
    harness.dependents.began(again)
    harness.dependents.ended(again)
    harness.tell(Deleted(child(2, **earlier)))
    assert harness.reasons == ["Deployment ns/web was deleted"]


async def test_an_object_that_a_run_wrote_counts_whatever_uid_its_reference_has(make: Make) -> None:
    harness = make()
    other: dict[str, Any] = {"ownerReferences": [{**FLEET.reference(), "uid": "uid-before-a-restart"}]}
    harness.ran(FLEET, child(1, **other))
    harness.tell(Applied(child(2, generation=2, **other)))
    assert harness.reasons == ["Deployment ns/web changed: spec"]


async def test_a_cluster_scoped_owner_has_no_namespace(make: Make) -> None:
    harness = make(namespaces=("ns",))
    harness.ran(FLEET, child(1, ownerReferences=[FLEET.reference()]))
    harness.tell(Deleted(child(2, ownerReferences=[FLEET.reference()])), "ns")
    assert [(gvk, key) for _, gvk, key, _ in harness.triggered] == [(FLEET.ref.gvk, FLEET.ref.key)]


async def test_notifications_of_a_running_owner_are_deferred_until_its_run_ends(make: Make) -> None:
    harness = make()
    harness.dependents.began(OWNER)
    harness.dependents.wrote(OWNER, DEPLOYMENT, child(1))
    harness.tell(Applied(child(2, generation=2)))
    harness.tell(Applied(child(3, generation=3)))
    assert harness.triggered == []
    harness.dependents.wrote(OWNER, DEPLOYMENT, child(3, generation=3))
    harness.dependents.ended(OWNER)
    assert harness.reasons == ["Deployment ns/web changed: spec"]


async def test_a_deletion_by_a_run_triggers_no_owner(make: Make) -> None:
    harness = make()
    for answer in ({"kind": "Status", "details": {"uid": "uid-web"}}, child(2)):
        harness.dependents.began(OWNER)
        harness.dependents.wrote(OWNER, DEPLOYMENT, child(1))
        harness.dependents.deleted(OWNER, DEPLOYMENT, answer)
        harness.dependents.ended(OWNER)
        harness.tell(Deleted(child(2)))
    assert harness.triggered == []


def test_runs_are_answered_from_memory_only_about_dependents_of_their_watch(make: Make) -> None:
    old_version = GVK("apps", "v1beta1", "Deployment")
    for dependents, follows in (
        (make().dependents, True),
        (make(blacklist=frozenset({old_version})).dependents, False),
    ):
        assert not dependents.follows(OWNER, DEPLOYMENT)
        dependents.wrote(OWNER, DEPLOYMENT, child(1))
        assert dependents.follows(OWNER, DEPLOYMENT) is follows, "no version of a blacklisted kind"
        assert not dependents.follows(FLEET, DEPLOYMENT)


async def test_the_latest_version_of_a_dependent_is_passed_to_the_read_cache_at_once(make: Make) -> None:
    harness, cache = make(), ReadCache(1 << 20)
    harness.dependents.listener = cache
    harness.dependents.wrote(OWNER, DEPLOYMENT, child(1))
    entries = cache.entries("apps", "deployments")
    assert entries is not None
    key, kind = ObjectKey("ns", "web"), harness.dependents._kinds["apps", "Deployment"]

    def seen() -> list[tuple[str, str]]:
        versions = (kind.version(ObjectKey("ns", name)) for name in ("web", "theirs"))
        return [version for version in versions if version is not None]

    harness.tell(Restarted(""))
    harness.tell(Applied(child(2)))
    harness.tell(Applied(child(3, name="theirs", ownerReferences=[])))
    harness.tell(Synced())
    assert (seen(), entries.is_seen(key)) == ([("uid-web", "2")], True)
    harness.tell(Restarted(""))
    harness.tell(Synced())
    assert (seen(), entries.is_seen(key)) == ([], False)
    harness.tell(Applied(child(4)))
    harness.tell(Applied(child(5, ownerReferences=[])))
    assert (seen(), entries.is_seen(key)) == ([], False)
    harness.tell(Applied(child(6)))
    harness.tell(Deleted(child(7)))
    assert (seen(), entries.is_seen(key)) == ([], False)
