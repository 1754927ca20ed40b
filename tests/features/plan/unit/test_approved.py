"""Which writes of a run an approved plan contains."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from runner.app.features import OWN_STATUS
from runner.core.kube.discovery import ApiResource
from runner.features.plan.approved import ApprovedPlan
from runner.features.plan.changes import PlannedOwner
from runner.features.plan.trial.overlay import Overlay, PlannedChange
from runner.values.objects import GVK, Object, ObjectKey, ObjectRef, key_of

MAPS = ApiResource(GVK("", "v1", "ConfigMap"), "configmaps", True, frozenset(), frozenset())  # noqa: FBT003 - namespaced
JOBS = ApiResource(GVK("batch", "v1", "Job"), "jobs", True, frozenset(), frozenset())  # noqa: FBT003 - as above
WEBS = ApiResource(GVK("example.com", "v1", "Web"), "webs", True, frozenset(), frozenset())  # noqa: FBT003 - as above
OWNER = PlannedOwner(ObjectRef(WEBS.gvk, ObjectKey("shop", "w"), "owner"), OWN_STATUS)


def obj(name: str, uid: str = "u", version: str = "1", **more: Any) -> Object:
    return {"metadata": {"name": name, "namespace": "shop", "uid": uid, "resourceVersion": version}, **more}


def record(
    overlay: Overlay, before: Object | None, after: Object | None, resource: ApiResource = MAPS, **options: Any
) -> PlannedChange:
    key = key_of(before or after or {})
    overlay.record(resource, key, before, after, existed=before is not None, **options)
    return overlay.writes[-1]


def write(before: Object | None, after: Object | None, resource: ApiResource = MAPS, **options: Any) -> PlannedChange:
    return record(Overlay(), before, after, resource, **options)


def approved(overlay: Overlay, ended: list[str] | None = None) -> ApprovedPlan:
    return ApprovedPlan(overlay, OWNER, (ended if ended is not None else []).append)


def test_each_write_of_an_object_is_approved_on_its_own() -> None:
    plan = Overlay()
    record(plan, obj("a", data={"k": 1}), obj("a", data={"k": 2}))
    record(plan, None, obj("a", data={"k": 3}))
    approval = approved(plan)
    assert approval.refusal(write(obj("a", data={"k": 1}), obj("a", data={"k": 2}))) == ""
    assert approval.refusal(write(obj("a", data={"k": 2}), obj("a", data={"k": 3}))) == ""
    assert "change ConfigMap shop/a: data.k" in approval.refusal(
        write(obj("a", data={"k": 1}), obj("a", data={"k": 3}))
    )


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (obj("b", data={"k": 1}), obj("b", data={"k": 2}), "of this object: change ConfigMap shop/b: data.k"),
        (obj("a", uid="other", data={"k": 1}), obj("a", uid="other", data={"k": 2}), "change ConfigMap shop/a"),
        (obj("a", data={"k": 1}), None, "delete ConfigMap shop/a"),
        (None, obj("a", data={"k": 2}), "create ConfigMap shop/a"),
        (obj("a", data={"k": 1}), obj("a", data={"k": 2, "m": "secret"}), "change ConfigMap shop/a: data.k, data.m"),
    ],
)
def test_another_write_is_named_without_its_values(before: Object | None, after: Object | None, text: str) -> None:
    plan = Overlay()
    record(plan, obj("a", data={"k": 1}), obj("a", data={"k": 2}))
    refusal = approved(plan).refusal(write(before, after))
    assert refusal.endswith(text) or f"{text}:" in refusal
    assert "secret" not in refusal


def test_other_fields_may_change_meanwhile() -> None:
    plan = Overlay()
    record(plan, obj("a", data={"k": 1}), obj("a", data={"k": 2}))
    before = obj("a", version="7", data={"k": 1, "other": 1}, status={"ready": 1})
    assert approved(plan).refusal(write(before, {**before, "data": {"k": 2, "other": 1}})) == ""


def test_a_write_without_an_effect_is_approved() -> None:
    assert approved(Overlay()).refusal(write(obj("a", data={"k": 1}), obj("a", version="2", data={"k": 1}))) == ""


def test_the_operators_part_of_the_owners_status_does_not_count() -> None:
    plan = Overlay()
    record(plan, obj("w", "owner"), obj("w", "owner", status={"size": 1}), WEBS)
    condition = {"type": "Running", "status": "True"}
    before = obj("w", "owner", status={"plan": {"hash": "h"}, "conditions": [condition]})
    after = obj("w", "owner", status={"plan": {"hash": "h"}, "conditions": [condition], "size": 1})
    approval = approved(plan)
    assert approval.refusal(write(before, after, WEBS)) == ""
    after["status"]["size"] = 2
    assert "status" in approval.refusal(write(before, after, WEBS))


def test_generated_names_and_uids_are_those_of_the_plan() -> None:
    plan = Overlay()
    planned = obj("job-plan1", "planned")
    planned["metadata"]["generateName"] = "job-"
    record(plan, None, planned, JOBS)
    owned = {"ownerReferences": [{"uid": "planned", "name": "job-plan1"}]}
    child = obj("child")
    record(plan, None, {**child, "metadata": {**child["metadata"], **owned}})
    record(plan, None, None, JOBS)  # no object: the key is empty, and it is not that of the job
    plan.record(JOBS, ObjectKey("shop", "job-plan1"), None, None, existed=True)
    approval = approved(plan)
    creation = write(None, planned, JOBS)
    assert approval.refusal(creation) == ""
    real = obj("job-x7k2p", "real")
    real["metadata"]["generateName"] = "job-"
    approval.sent(creation, real)
    owned = {"ownerReferences": [{"uid": "real", "name": "job-x7k2p"}]}
    assert approval.refusal(write(None, {**child, "metadata": {**child["metadata"], **owned}})) == ""
    assert approval.refusal(write(real, None, JOBS)) == ""
    assert approval.refusal(write(obj("job-other", "third"), None, JOBS)) != ""


def test_an_object_that_the_api_server_could_not_check_is_compared_as_it_was_sent() -> None:
    plan = Overlay()
    sent = obj("a", spec={"x": 1})
    record(plan, None, sent, reason="the namespace exists in the plan only", requested=sent)
    approval = approved(plan)
    with_defaults = obj("a", spec={"x": 1, "y": "default"})
    assert approval.refusal(write(None, with_defaults, requested=sent)) == ""
    other = obj("a", spec={"x": 1, "y": "given"})
    assert approval.refusal(write(None, other, requested=other)) != ""


def test_the_first_refusal_ends_the_run_once() -> None:
    ended: list[str] = []
    approval = approved(Overlay(), ended)
    approval.refuse("first")
    approval.refuse("second")
    assert (approval.refused, ended) == ("first", ["first"])


def test_values_that_the_api_server_chose_are_approved_in_other_objects_and_in_decoded_secrets() -> None:
    services, secrets = (
        ApiResource(
            GVK("", "v1", kind), f"{kind.lower()}s", namespaced=True, verbs=frozenset(), subresources=frozenset()
        )
        for kind in ("Service", "Secret")
    )

    def encoded(text: str) -> str:
        return base64.b64encode(text.encode()).decode()

    plan = Overlay()
    web = plan.unknown.with_placeholders(
        services.gvk, ObjectKey("shop", "web"), obj("web", "planned", spec={"clusterIP": "10.0.0.1"}), None, frozenset()
    )
    placeholder = web["spec"]["clusterIP"]
    record(plan, None, web, services)
    record(plan, None, obj("urls", data={"url": f"http://{placeholder}/"}))
    record(plan, None, obj("secret", data={"url": encoded(f"http://{placeholder}/")}), secrets)
    approval = approved(plan)
    creation = write(None, web, services)
    assert approval.refusal(creation) == ""
    approval.sent(creation, obj("web", "real", spec={"clusterIP": "10.96.7.8"}))
    for address, is_approved in (("10.96.7.8", True), ("10.96.7.9", False)):
        urls = write(None, obj("urls", data={"url": f"http://{address}/"}))
        secret = write(None, obj("secret", data={"url": encoded(f"http://{address}/")}), secrets)
        assert [not approval.refusal(each) for each in (urls, secret)] == [is_approved, is_approved]
