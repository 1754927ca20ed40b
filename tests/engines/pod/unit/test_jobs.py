"""Secrets and Jobs of runs in pods: their content, and how they are created and found."""

from __future__ import annotations

import base64
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from runner.core.engine.job import Job
from runner.core.kube.client import Client
from runner.core.kube.discovery import ApiResource
from runner.engines.pod import jobs
from runner.engines.pod.fields import PodPolicy
from runner.engines.pod.jobs import Address, RunRecord
from runner.engines.pod.records import Records
from runner.values.errors import ApiUnavailableError, ConflictError, ForbiddenError, ServerError
from runner.values.objects import GVK, Object, ObjectKey, ObjectRef
from tests.kit.jobs import job_value

UID = "7b0c3c2e-4f5d-4c8e-9b1a-2f3d4e5f6a7b"
OWNER = ObjectRef(GVK("cache.example.com", "v1", "Memcached"), ObjectKey("shop", "main"), UID)
NAME = jobs.run_name(UID, 7)
KEY = b"key of the authority"
ADDRESS = Address("operator-pods.system.svc:8444", "pods", "PEM", KEY)
POLICY = PodPolicy(1, {}, {"image": "ee:1"})
RECORD = RunRecord("ident-1", 3, "apply", 1700000000.5)


def _run(deadline: float | None = None) -> Job:
    about = {"gvk": OWNER.gvk, "key": OWNER.key, "uid": OWNER.uid}
    return job_value(**about, generation=3, token="the-token", deadline=deadline)


def _pod(policy: PodPolicy) -> Object:
    found: Object = jobs.job(_run(), policy, NAME, "shop")["spec"]["template"]["spec"]
    return found


def test_names_are_those_of_the_resource_and_the_number_of_the_run() -> None:
    assert f"run-{UID}-7" == NAME
    assert len(jobs.run_name(UID, 10**20)) <= 63
    assert jobs.next_number([]) == 1
    assert jobs.next_number([NAME, f"run-{UID}-12", "other-99", "run-x"]) == 13


def test_both_objects_are_owned_by_the_resource() -> None:
    reference = {"apiVersion": "cache.example.com/v1", "kind": "Memcached", "name": "main", "uid": UID}
    for made in (jobs.secret(_run(), RECORD, NAME, "shop", ADDRESS), jobs.job(_run(), POLICY, NAME, "shop")):
        assert made["metadata"]["ownerReferences"] == [reference]
        assert (made["metadata"]["name"], made["metadata"]["namespace"]) == (NAME, "shop")


def test_in_another_namespace_annotations_name_the_resource() -> None:
    for made in (jobs.secret(_run(), RECORD, NAME, "system", ADDRESS), jobs.job(_run(), POLICY, NAME, "system")):
        assert "ownerReferences" not in made["metadata"]  # the garbage collector would delete the object
        assert jobs.elsewhere(made, OWNER.gvk) == OWNER.key
        assert jobs.elsewhere(made, GVK("", "v1", "Secret")) is None
    assert jobs.elsewhere(jobs.job(_run(), POLICY, NAME, "shop"), OWNER.gvk) is None


def test_a_secret_records_the_run() -> None:
    made = jobs.secret(_run(), RECORD, NAME, "shop", ADDRESS)
    made["metadata"]["creationTimestamp"] = "2026-01-02T03:04:05Z"
    found = jobs.recorded(_stored(made), UID, KEY)
    assert found is not None
    assert (found.name, found.namespace, found.record) == (NAME, "shop", RECORD)
    assert "the-token" not in repr(found)
    content = made["stringData"]
    assert (content["token"], content["server"]) == ("the-token", "operator-pods.system.svc:8444")


def _stored(secret: dict[str, Any]) -> dict[str, Any]:
    """Return a Secret as the API server does."""
    content = secret.get("stringData") or {}
    data = {name: base64.b64encode(text.encode()).decode() for name, text in content.items()}
    return {**secret, "data": {**secret.get("data", {}), **data}}


@pytest.mark.parametrize(
    ("uid", "token", "key"), [("other", "the-token", KEY), (UID, "own-token", KEY), (UID, "the-token", b"other")]
)
def test_a_secret_that_another_client_wrote_or_changed_records_nothing(uid: str, token: str, key: bytes) -> None:
    made = jobs.secret(_run(), RECORD, NAME, "shop", ADDRESS)
    assert jobs.recorded(_stored(made), UID, KEY) is not None
    assert jobs.recorded(_stored({**made, "stringData": {"token": token}}), uid, key) is None
    for name in made["metadata"]["annotations"]:
        changed = {**made["metadata"]["annotations"], name: "{}"}
        other = {**made, "metadata": {**made["metadata"], "annotations": changed}}
        assert jobs.recorded(_stored(other), UID, KEY) is None
    assert jobs.recorded(_stored({**made, "metadata": {"name": NAME, "namespace": "shop"}}), UID, KEY) is None


def test_a_pod_has_no_rights_of_its_own_and_starts_once() -> None:
    job = jobs.job(_run(60.0), POLICY, NAME, "shop")
    assert (job["spec"]["backoffLimit"], job["spec"]["activeDeadlineSeconds"]) == (0, 180)
    pod = job["spec"]["template"]["spec"]
    assert (pod["automountServiceAccountToken"], pod["restartPolicy"]) == (False, "Never")
    (container,) = pod["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    for secret in ("the-token", base64.b64encode(b"the-token").decode()):
        assert secret not in str(job)


def test_a_template_adds_to_the_pod_but_does_not_replace_the_agent() -> None:
    volume = {"name": "data", "emptyDir": {}}
    pod = _pod(
        PodPolicy(
            1,
            {"serviceAccountName": "runs", "volumes": (volume,), "nodeSelector": {"pool": "a"}},
            {
                "image": "ee:1",
                "volumeMounts": ({"name": "data", "mountPath": "/data"},),
                "securityContext": {"runAsUser": 7},
            },
        )
    )
    (container,) = pod["containers"]
    confined = _pod(PodPolicy(1, {}, {"image": "ee:1"}))["containers"][0]["securityContext"]
    assert pod["automountServiceAccountToken"] is True
    assert [each["name"] for each in pod["volumes"]] == ["agent", "work", "data"]
    assert [each["mountPath"] for each in container["volumeMounts"]] == [jobs.SECRET_DIR, jobs.WORK, "/data"]
    assert container["command"][0] == "python3"
    assert (container["name"], container["securityContext"]) == (jobs.CONTAINER, {**confined, "runAsUser": 7})


def test_the_record_of_a_run_in_a_warm_pod_names_this_pod_and_cannot_name_another_one() -> None:
    made = jobs.secret(_run(), replace(RECORD, warm="warm-memcached-1"), NAME, "shop", ADDRESS)
    assert "the-token" not in str(made)
    again = jobs.secret(_run(), replace(RECORD, warm="warm-memcached-1"), NAME, "shop", ADDRESS)
    assert again["stringData"] != made["stringData"]
    earlier = jobs.recorded(_stored({**made, "stringData": {"token": "the-token"}}), UID, KEY)
    assert earlier is not None
    assert earlier.token == "the-token"
    found = jobs.recorded(_stored(made), UID, KEY)
    assert found is not None
    assert (found.record.warm, found.token) == ("warm-memcached-1", "the-token")
    assert jobs.recorded(_stored(made), UID, b"another operator") is None
    annotations = made["metadata"]["annotations"]
    made["metadata"]["annotations"] = {key: text.replace("cached-1", "cached-2") for key, text in annotations.items()}
    assert jobs.recorded(_stored(made), UID, KEY) is None


def test_a_warm_pod_is_that_of_a_run_without_a_deadline_in_the_namespace_of_the_operator() -> None:
    policy = PodPolicy(1, {"nodeSelector": {"pool": "runs"}}, {"image": "ee:1"}, warm=1)
    name = jobs.warm_name("Memcached")
    made = jobs.warm_job("Memcached", policy, name, "system", [])
    of_run = jobs.job(_run(), policy, NAME, "shop")
    spec = of_run["spec"]["template"]["spec"]
    spec["volumes"][0]["secret"]["secretName"] = name
    assert made["spec"]["template"]["spec"] == spec
    assert "activeDeadlineSeconds" not in made["spec"]
    assert made["metadata"]["namespace"] == "system"
    assert len(jobs.warm_name("K" * 63)) <= 63


def test_a_pod_belongs_to_a_run_only_if_the_job_of_the_run_controls_it() -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": NAME, "uid": "1", "controller": True}
    meta = {"name": f"{NAME}-x", "namespace": "shop", "labels": {jobs.RUN: NAME}, "ownerReferences": [owner]}
    assert jobs.job_of({"metadata": meta}) == ObjectKey("shop", NAME)
    assert jobs.job_of({"metadata": {**meta, "namespace": "tenant"}}) == ObjectKey("tenant", NAME)
    for forged in ({"name": "mine"}, {"kind": "ReplicaSet"}, {"controller": False}, {"apiVersion": "example.com/v1"}):
        assert jobs.job_of({"metadata": {**meta, "ownerReferences": [{**owner, **forged}]}}) is None
    del meta["ownerReferences"]
    assert jobs.job_of({"metadata": meta}) is None


PREFIX = 'Error creating: pods "run-1-x7k2p" is forbidden: '
QUOTA = "exceeded quota: small, requested: pods=1, used: pods=5, limited: pods=5"


@dataclass
class Api:
    """An API server that lists these objects by kind, after it has answered with these errors."""

    objects: dict[str, list[Object]] = field(default_factory=dict)
    errors: list[Exception] = field(default_factory=list)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    created: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)

    async def request(self, method: str, path: str, params: dict[str, str]) -> dict[str, Any]:
        assert method == "GET"
        self.asked.append((path, params))
        self._fail()
        return {"items": self.objects.get(path.rpartition("/")[2], [])}

    async def create(self, _resource: ApiResource, _namespace: str, obj: Object) -> Object:
        self._fail()
        self.created.append(obj["metadata"]["name"])
        return obj

    async def delete(self, _resource: ApiResource, key: ObjectKey) -> None:
        self.deleted.append(key.name)

    def _fail(self) -> None:
        if self.errors:
            raise self.errors.pop()


def records_of(api: Api, address: Address | None = None) -> Records:
    """Records of an operator in the namespace `operator`. Without `address`, none may be needed."""
    get = (lambda: address) if address is not None else (lambda: pytest.fail("no address is needed"))
    return Records(cast("Client", api), get, "operator", {OWNER.gvk: POLICY})


ABSENT = 'error looking up service account shop/{0}: serviceaccount "{0}" not found'


@pytest.mark.parametrize(
    ("events", "refusal"),
    [
        pytest.param([QUOTA], QUOTA, id="a-quota"),
        pytest.param([ABSENT.format("runs")], ABSENT.format("runs"), id="a-missing-account"),
        pytest.param([ABSENT.format("default")], "", id="the-default-account-of-a-new-namespace"),
        pytest.param([ABSENT.format("default"), QUOTA], QUOTA, id="the-default-account-and-then-a-quota"),
        pytest.param([], "", id="no-event"),
        pytest.param(None, "", id="no-permission"),
    ],
)
async def test_a_pod_is_refused_unless_it_only_waits_for_the_default_account_of_its_namespace(
    events: list[str] | None, refusal: str
) -> None:
    api = Api({"events": [{"message": PREFIX + each} for each in events or ()]})
    if events is None:
        api.errors.append(ForbiddenError("events is forbidden", status=403))
    assert await records_of(api).refusal(ObjectKey("shop", "run-1")) == refusal
    ((path, params),) = api.asked
    assert path == "/api/v1/namespaces/shop/events"
    assert "involvedObject.name=run-1" in params["fieldSelector"]


async def test_only_the_reason_already_exists_means_that_the_job_of_a_run_exists() -> None:
    for reason in ("AlreadyExists", "Conflict"):
        records = records_of(Api(errors=[ConflictError("409", status=409, reason=reason)]))
        with nullcontext() if reason == "AlreadyExists" else pytest.raises(ConflictError):
            await records.create_job(_run(), NAME, "shop")


async def test_a_job_that_only_has_the_label_of_a_run_is_not_deleted_as_an_earlier_one() -> None:
    own = [jobs.run_name(UID, number) for number in range(1, 5)]
    api = Api({"jobs": [{"metadata": {"name": name}} for name in ("backup", "run-u2-9", *own[:3])]})
    await records_of(api, ADDRESS).create(_run())
    assert {params["labelSelector"] for _, params in api.asked} == {f"{jobs.RUN_OF}={UID}"}
    assert (api.deleted, api.created) == ([own[0]], [own[3]] * 2)


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
    api = Api(errors=[error])
    await records_of(api).sweep(OWNER.gvk, lambda *_: True)
    assert [path for path, _ in api.asked] == ["/api/v1/namespaces/operator/secrets"] * lists
    assert all(params for _, params in api.asked)
