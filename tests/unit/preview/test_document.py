"""The schema of `--output json`: programs read it, so a field is never renamed or removed."""

from __future__ import annotations

import json

from runner.features.plan.changes import ObjectChange, Plan, ResourcePlan
from runner.features.plan.fields import ABSENT, FieldChange
from runner.features.plan.tasks import UnplannedTask
from runner.sdk.preview.grouping import document
from runner.values.objects import GVK, ObjectKey, ObjectRef

MEMCACHED = GVK("cache.example.com", "v1", "Memcached")


def resource(name: str) -> ObjectRef:
    return ObjectRef(MEMCACHED, ObjectKey("shop", name), "uid")


def change(name: str) -> ObjectChange:
    fields = (
        FieldChange("spec.size", 1, 2),
        FieldChange("spec.new", ABSENT, None),
        FieldChange("spec.old", "x", ABSENT),
    )
    return ObjectChange("change", GVK("apps", "v1", "Deployment"), ObjectKey("shop", name), fields)


def test_the_document_has_all_fields() -> None:
    task = UnplannedTask("Run", "/r.yml:3", "ansible.builtin.command", "why")
    plan = Plan(
        [
            ResourcePlan(resource("a"), "complete", (change("a"),)),
            ResourcePlan(resource("b"), "partial", (change("b"),), (task,), more_unplanned=1),
            ResourcePlan(resource("c"), "failed", message="no", finalizing=True),
        ]
    )
    named = {"apiVersion": "cache.example.com/v1", "kind": "Memcached", "namespace": "shop"}
    of_object = {
        "verb": "change",
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "recreated": False,
        "collected": False,
        "notValidated": "",
        "fields": [
            {"path": "spec.size", "before": 1, "after": 2},
            {"path": "spec.new", "after": None},
            {"path": "spec.old", "before": "x"},
        ],
    }
    complete = {"message": "", "finalizer": False, "unplanned": [], "moreUnplanned": 0, "unwritten": []}
    found = document(plan)
    assert found == {
        "version": 1,
        "result": "failed",
        "partial": True,
        "resources": [
            {
                **named,
                **complete,
                "name": "a",
                "state": "complete",
                "changes": [{**of_object, "namespace": "shop", "name": "a"}],
            },
            {
                **named,
                **complete,
                "name": "b",
                "state": "partial",
                "changes": [{**of_object, "namespace": "shop", "name": "b"}],
                "unplanned": [
                    {"task": "Run", "path": "/r.yml:3", "action": "ansible.builtin.command", "reason": "why"}
                ],
                "moreUnplanned": 1,
            },
            {
                **named,
                **complete,
                "name": "c",
                "state": "failed",
                "message": "no",
                "finalizer": True,
                "changes": [],
            },
        ],
        "groups": [
            {
                "apiVersion": "cache.example.com/v1",
                "kind": "Memcached",
                "count": 2,
                "total": 3,
                "resources": [{"namespace": "shop", "name": "a"}, {"namespace": "shop", "name": "b"}],
                "changes": [{**of_object, "namespace": "<namespace>", "name": "<name>"}],
            }
        ],
    }
    assert json.loads(json.dumps(found)) == found


def test_the_result_is_one_of_three() -> None:
    changes, none = (change("a"),), ()
    results = [document(Plan([ResourcePlan(resource("a"), "complete", each)]))["result"] for each in (changes, none)]
    assert results == ["changes", "unchanged"]
    assert document(Plan([]))["result"] == "unchanged"
