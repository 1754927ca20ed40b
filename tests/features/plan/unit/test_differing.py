"""Fields whose values differ between two plans, and which of them an approval covers."""

from __future__ import annotations

from typing import Any

from runner.app.features import OWN_STATUS
from runner.core.kube.discovery import ApiResource
from runner.features.plan.approved import ApprovedPlan
from runner.features.plan.changes import DifferingValue, PlannedOwner, between
from runner.features.plan.trial.overlay import Overlay
from runner.values.objects import GVK, Object, ObjectKey, ObjectRef

OWNER = PlannedOwner(ObjectRef(GVK("example.com", "v1", "Web"), ObjectKey("shop", "w"), "owner"), OWN_STATUS)
SECRET, MAP = (
    ApiResource(GVK("", "v1", kind), f"{kind.lower()}s", namespaced=True, verbs=frozenset(), subresources=frozenset())
    for kind in ("Secret", "ConfigMap")
)
KEY = ObjectKey("shop", "a")


def obj(**data: Any) -> Object:
    return {"metadata": {"name": "a", "namespace": "shop", "uid": "u"}, "data": data}


def plan(*writes: tuple[ApiResource, Object | None, Object | None]) -> Overlay:
    overlay = Overlay()
    for resource, before, after in writes:
        overlay.record(resource, KEY, before, after, existed=before is not None)
    return overlay


def test_a_random_value_is_named_by_its_field_and_covered_in_new_secrets_only() -> None:
    one = plan((SECRET, None, obj(user="YQ==", password="eA==")), (MAP, obj(k=1, t=0), obj(k=2, t=1)))
    two = plan((SECRET, None, obj(user="YQ==", password="eQ==")), (MAP, obj(k=1, t=0), obj(k=2, t=2)))
    found = between(one, two, OWNER)
    assert [(str(each), each.is_covered) for each in found] == [
        ("Secret shop/a data.password", True),
        ("ConfigMap shop/a data.t", False),
    ]
    changed = between(plan((SECRET, obj(p="1"), obj(p="2"))), plan((SECRET, obj(p="1"), obj(p="3"))), OWNER)
    assert [each.is_covered for each in changed] == [False]


def test_an_object_of_only_one_plan_and_a_field_of_only_one_plan_differ() -> None:
    one = plan((MAP, obj(k=1), obj(k=2)), (SECRET, None, obj()))
    two = plan((MAP, obj(k=1), obj(k=1, more=1)))
    assert [str(each) for each in between(one, two, OWNER)] == [
        "ConfigMap shop/a data.k",
        "ConfigMap shop/a data.more",
        "Secret shop/a (object)",
    ]


def test_an_approval_covers_each_value_of_a_random_field_and_no_other_field() -> None:
    planned = plan((SECRET, None, obj(user="YQ==", **{"tls.key": "eA=="})))
    (field,) = between(planned, plan((SECRET, None, obj(user="YQ==", **{"tls.key": "eQ=="}))), OWNER)
    assert field == DifferingValue(SECRET.gvk, KEY, field.path, is_new=True)
    approval = ApprovedPlan(planned, OWNER, lambda _why: None, (field,))
    for user, key, is_approved in (("YQ==", "eg==", True), ("Yg==", "eg==", False)):
        (write,) = plan((SECRET, None, obj(user=user, **{"tls.key": key}))).writes
        assert (approval.refusal(write) == "") is is_approved
    (write,) = plan((SECRET, None, obj(user="YQ=="))).writes
    assert approval.refusal(write)
