"""When the operator reads an object before it trusts the cache, and what it concludes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from runner.core.kube.cache import Cache, Summary
from runner.core.kube.client import Client
from runner.core.kube.discovery import ApiResource
from runner.core.kube.watch_events import Applied, Deleted
from runner.core.queue import reasons
from runner.core.queue.reasons import RunReason
from runner.core.reconcile.attempt import Attempt, ForgetRegistry
from runner.core.reconcile.decisions import Done, Retry
from runner.core.reconcile.hooks import Skip
from runner.core.reconcile.own_hooks import OwnerCheck
from runner.features.plan.feature import DRIFT
from runner.features.prune.feature import PRUNE
from runner.features.references.feature import REFERENCE
from runner.features.rollout.feature import ROLLOUT
from runner.values.errors import ApiUnavailableError, ForbiddenError, KindNotFoundError, NotFoundError
from runner.values.objects import Object, ObjectKey, ObjectRef, OwnerState
from tests.kit.reasons import REASONS
from tests.kit.watch_values import scope_value, watch_value
from tests.unit.controller.attempts import RESOURCE, THINGS, attempt_value

KEY = ObjectKey("ns", "one")
EXISTS, GONE, REPLACED = OwnerState.EXISTS, OwnerState.GONE, OwnerState.REPLACED


def _thing(uid: str) -> Object:
    return {"metadata": {"namespace": "ns", "name": "one", "uid": uid, "resourceVersion": uid}}


@dataclass
class Cluster:
    """The API server's object, and the cache that may lag."""

    stored: Object | Exception | None = None
    cache: Cache = field(default_factory=Cache)
    revision: int = 0
    reads: int = 0
    deselected: Object | None = None

    def see(self, obj: Object | None) -> None:
        """Deliver an event of the watch."""
        self.revision += 1
        self.cache.apply("", Applied(obj) if obj is not None else Deleted(_thing("any")))

    async def get(self, resource: ApiResource, key: ObjectKey) -> Object:
        assert (resource, key) == (RESOURCE, KEY)
        self.reads += 1
        if self.stored is None:
            raise NotFoundError("no", status=404)
        if isinstance(self.stored, Exception):
            raise self.stored
        return self.stored


class _Cached:
    """The informer's side of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def revision(self) -> int:
        return self._cluster.revision

    def get(self, key: ObjectKey) -> Object | None:
        return self._cluster.cache.get(key) or self._cluster.deselected

    def summary(self, key: ObjectKey) -> Summary | None:
        return self._cluster.cache.summary(key)


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster(_thing("old"))
    made.see(_thing("old"))
    return made


@pytest.fixture
def registry() -> ForgetRegistry:
    return ForgetRegistry()


@pytest.fixture
def check(cluster: Cluster, registry: ForgetRegistry) -> OwnerCheck:
    return OwnerCheck(
        replace(scope_value(watch_value(gvk=THINGS), _Cached(cluster)), registry=registry), cast("Client", cluster)
    )


def _attempt(reason: RunReason, *, finalizing: bool = False) -> Attempt:
    return attempt_value(_thing("old"), reason, finalizing=finalizing)


@pytest.mark.parametrize("reason", REASONS)
async def test_only_a_run_that_no_event_of_the_object_started_reads_it_first(
    cluster: Cluster, check: OwnerCheck, reason: RunReason
) -> None:
    assert await check.before_run(_attempt(reason)) is EXISTS
    doubtful = {*(reasons.DEPENDENT, reasons.REQUEUED, reasons.RETRY), *(PRUNE, reasons.RESYNC)}
    doubtful |= {DRIFT, ROLLOUT}
    assert cluster.reads == (reason in doubtful)


async def test_a_kind_that_is_not_served_makes_no_object_deleted(cluster: Cluster, check: OwnerCheck) -> None:
    cluster.stored = KindNotFoundError("404 page not found")
    with pytest.raises(KindNotFoundError):  # the attempt is repeated
        await check.before(_attempt(reasons.RETRY))
    cluster.see(None)
    assert await check.during_run(RESOURCE, ObjectRef(THINGS, KEY, "old")) is EXISTS


async def test_a_read_that_did_not_find_an_object_is_repeated_until_the_watch_tells(
    cluster: Cluster, check: OwnerCheck
) -> None:
    attempt = _attempt(reasons.DELETED, finalizing=True)
    cluster.stored = None
    decided = await check.before(attempt)
    assert isinstance(decided, Skip)
    assert isinstance(decided.result, Retry)
    assert not decided.result.ran
    cluster.stored = _thing("old")
    assert await check.before(attempt) is attempt
    cluster.stored = _thing("new")
    decided = await check.before(attempt)
    assert isinstance(decided, Skip)
    assert isinstance(decided.result, Done)


async def test_an_object_that_a_read_did_not_find_is_read_before_each_run_until_it_is_found(
    cluster: Cluster, check: OwnerCheck
) -> None:
    cluster.stored = None
    assert await check.before_run(_attempt(reasons.DEPENDENT)) is GONE
    assert await check.before_run(_attempt(REFERENCE)) is GONE
    cluster.stored = _thing("old")
    assert await check.before_run(_attempt(REFERENCE)) is EXISTS
    assert await check.before_run(_attempt(REFERENCE)) is EXISTS
    assert cluster.reads == 3


async def test_a_write_reads_the_object_only_if_the_cache_has_another_or_none(
    cluster: Cluster, check: OwnerCheck
) -> None:
    owner = ObjectRef(THINGS, KEY, "old")
    assert await check.during_run(RESOURCE, owner) is EXISTS
    assert cluster.reads == 0
    cluster.stored = None
    cluster.see(None)
    assert await check.during_run(RESOURCE, owner) is GONE
    cluster.stored = _thing("new")
    cluster.see(_thing("new"))
    assert await check.during_run(RESOURCE, owner) is REPLACED
    reads = cluster.reads
    assert await check.during_run(RESOURCE, owner) is REPLACED
    assert cluster.reads == reads


async def test_an_old_list_that_lacks_an_object_refuses_nothing(cluster: Cluster, check: OwnerCheck) -> None:
    owner = ObjectRef(THINGS, KEY, "old")
    cluster.see(None)
    assert [await check.during_run(RESOURCE, owner) for _ in range(3)] == [EXISTS] * 3
    assert cluster.reads == 1
    cluster.stored = None
    cluster.see(_thing("other"))
    assert await check.during_run(RESOURCE, owner) is GONE


async def test_an_object_that_left_the_selection_exists(cluster: Cluster, check: OwnerCheck) -> None:
    cluster.see(None)
    cluster.deselected = _thing("old")
    assert await check.during_run(RESOURCE, ObjectRef(THINGS, KEY, "old")) is EXISTS
    assert cluster.reads == 0


@pytest.mark.parametrize("error", [ForbiddenError("no", status=403), ApiUnavailableError("away")])
async def test_a_run_continues_if_its_object_cannot_be_read(
    cluster: Cluster, check: OwnerCheck, error: Exception
) -> None:
    cluster.see(None)
    cluster.stored = error
    assert await check.during_run(RESOURCE, ObjectRef(THINGS, KEY, "old")) is EXISTS


async def test_an_unavailable_api_server_fails_the_attempt_and_a_missing_right_does_not(
    cluster: Cluster, check: OwnerCheck
) -> None:
    cluster.stored = ForbiddenError("no", status=403)
    assert await check.before_run(_attempt(reasons.DEPENDENT)) is EXISTS
    cluster.stored = ApiUnavailableError("away")
    with pytest.raises(ApiUnavailableError):
        await check.before_run(_attempt(reasons.DEPENDENT))


async def test_nothing_is_kept_of_a_forgotten_object(
    cluster: Cluster, check: OwnerCheck, registry: ForgetRegistry
) -> None:
    cluster.stored = None
    assert await check.before_run(_attempt(reasons.DEPENDENT)) is GONE
    registry.forget(KEY)
    assert await check.before_run(_attempt(REFERENCE)) is EXISTS
