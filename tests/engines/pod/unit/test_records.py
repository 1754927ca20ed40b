"""Secrets and Jobs of runs in pods."""

from __future__ import annotations

from typing import Any, cast

import pytest

from runner.core.kube.client import Client
from runner.core.kube.discovery import ApiResource
from runner.engines.pod.fields import PodPolicy
from runner.engines.pod.jobs import Address
from runner.engines.pod.records import Records
from runner.values.errors import ApiUnavailableError, ConflictError, ForbiddenError, ServerError
from runner.values.objects import GVK, Object, ObjectKey, ObjectRef
from tests.kit.jobs import job_value

PREFIX = 'Error creating: pods "run-1-x7k2p" is forbidden: '
QUOTA = "exceeded quota: small, requested: pods=1, used: pods=5, limited: pods=5"


class Events:
    """An API server with these Events of a Job, or one that refuses to list them."""

    def __init__(self, *messages: str, refuses: bool = False) -> None:
        self.messages, self.refuses = messages, refuses

    async def request(self, method: str, path: str, params: dict[str, str]) -> dict[str, Any]:
        assert (method, path) == ("GET", "/api/v1/namespaces/shop/events")
        assert "involvedObject.name=run-1" in params["fieldSelector"]
        if self.refuses:
            raise ForbiddenError("events is forbidden", status=403)
        return {"items": [{"message": each} for each in self.messages]}


ABSENT = 'error looking up service account shop/{0}: serviceaccount "{0}" not found'


@pytest.mark.parametrize(
    ("events", "refusal"),
    [
        pytest.param(Events(PREFIX + QUOTA), QUOTA, id="a-quota"),
        pytest.param(Events(PREFIX + ABSENT.format("runs")), ABSENT.format("runs"), id="a-missing-account"),
        pytest.param(Events(PREFIX + ABSENT.format("default")), "", id="the-default-account-of-a-new-namespace"),
        pytest.param(
            Events(PREFIX + ABSENT.format("default"), PREFIX + QUOTA), QUOTA, id="the-default-account-and-then-a-quota"
        ),
        pytest.param(Events(), "", id="no-event"),
        pytest.param(Events(refuses=True), "", id="no-permission"),
    ],
)
async def test_a_pod_is_refused_unless_it_only_waits_for_the_default_account_of_its_namespace(
    events: Events, refusal: str
) -> None:
    records = Records(cast("Client", events), lambda: pytest.fail("no address is needed"), "operator", {})
    assert await records.refusal(ObjectKey("shop", "run-1")) == refusal


class Conflicts:
    """An API server that rejects each creation with 409."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    async def create(self, resource: ApiResource, namespace: str, obj: Object) -> Object:
        assert (resource.plural, namespace, obj["kind"]) == ("jobs", "shop", "Job")
        raise ConflictError("409", status=409, reason=self.reason)


async def test_only_the_reason_already_exists_means_that_the_job_of_a_run_exists() -> None:
    owner = ObjectRef(GVK("cache.example.com", "v1", "Memcached"), ObjectKey("shop", "main"), "u1")
    policies = {owner.gvk: PodPolicy(1, {}, {"image": "ee:1"})}
    job = job_value(gvk=owner.gvk, key=owner.key, uid=owner.uid)

    async def create(reason: str) -> None:
        records = Records(cast("Client", Conflicts(reason)), lambda: pytest.fail("no address"), "operator", policies)
        await records.create_job(job, "run-u1-1", "shop")

    await create("AlreadyExists")
    with pytest.raises(ConflictError):
        await create("Conflict")


class Labelled:
    """An API server with these Jobs, all with the label of the resource `u1`."""

    def __init__(self, *jobs: str) -> None:
        self.jobs = jobs
        self.created: list[str] = []
        self.deleted: list[str] = []

    async def request(self, _method: str, path: str, params: dict[str, str]) -> dict[str, Any]:
        assert params["labelSelector"].endswith("=u1")
        return {"items": [{"metadata": {"name": name}} for name in self.jobs] if path.endswith("/jobs") else []}

    async def create(self, _resource: ApiResource, _namespace: str, obj: Object) -> Object:
        self.created.append(obj["metadata"]["name"])
        return obj

    async def delete(self, _resource: ApiResource, key: ObjectKey) -> None:
        self.deleted.append(key.name)


async def test_a_job_that_only_has_the_label_of_a_run_is_not_deleted_as_an_earlier_one() -> None:
    owner = ObjectRef(GVK("cache.example.com", "v1", "Memcached"), ObjectKey("shop", "main"), "u1")
    api = Labelled("backup", "run-u2-9", "run-u1-1", "run-u1-2", "run-u1-3")
    address = Address("operator:8444", "operator", "certificate", b"key")
    policies = {owner.gvk: PodPolicy(1, {}, {"image": "ee:1"})}
    records = Records(cast("Client", api), lambda: address, "operator", policies)
    await records.create(job_value(gvk=owner.gvk, key=owner.key, uid=owner.uid))
    assert api.deleted == ["run-u1-1"]
    assert api.created == ["run-u1-4", "run-u1-4"]


class Interrupted:
    """An API server that fails once, or refuses, before it lists the Secrets of runs."""

    def __init__(self, error: Exception) -> None:
        self.errors = [error]
        self.lists = 0

    async def request(self, _method: str, path: str, params: dict[str, str]) -> dict[str, Any]:
        assert path == "/api/v1/namespaces/operator/secrets"
        assert params
        self.lists += 1
        if self.errors:
            raise self.errors.pop()
        return {"items": []}


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("error", "lists"),
    [
        (ApiUnavailableError("refused"), 2),
        (ServerError("etcd", status=500), 2),
        (ForbiddenError("secrets is forbidden", status=403), 1),
    ],
)
async def test_the_search_for_runs_of_objects_that_are_gone_waits_for_the_end_of_an_outage(
    error: Exception, lists: int
) -> None:
    api = Interrupted(error)
    records = Records(cast("Client", api), lambda: pytest.fail("no address"), "operator", {})
    await records.sweep(GVK("cache.example.com", "v1", "Memcached"), lambda *_: True)
    assert api.lists == lists
