"""Digests of what a plan run reads: what changes by itself does not count, and no Secret's content does."""

from __future__ import annotations

from typing import Any

from runner.features.plan.trial.overlay import KindId, Overlay
from runner.features.plan.trial.read_digests import ABSENT, read_digest
from runner.values.objects import RECORD_OF, Object

MAPS, SECRETS = KindId("", "configmaps"), KindId("", "secrets")


def obj(uid: str = "u", version: str = "1", **more: Any) -> Object:
    meta = {"name": "a", "namespace": "ns", "uid": uid, "resourceVersion": version, "generation": int(version)}
    return {"metadata": {**meta, **more.pop("metadata", {})}, **more}


def test_status_and_maintained_metadata_do_not_count() -> None:
    first = read_digest(obj(data={"k": 1}), MAPS, "owner")
    assert first == read_digest(obj(version="2", data={"k": 1}, status={"ready": 1}), MAPS, "owner")
    assert first != read_digest(obj(data={"k": 2}), MAPS, "owner")
    assert first != read_digest(obj("recreated", data={"k": 1}), MAPS, "owner")
    assert first != read_digest(obj(data={"k": 1}, metadata={"labels": {"a": "b"}}), MAPS, "owner")
    assert read_digest({}, MAPS, "owner") == ABSENT


def test_a_secret_counts_by_its_version() -> None:
    first = read_digest(obj(data={"password": "one"}), SECRETS, "owner")
    assert first == read_digest(obj(data={"password": "two"}), SECRETS, "owner")
    assert first != read_digest(obj(version="2", data={"password": "one"}), SECRETS, "owner")


def test_the_runs_own_object_and_its_plan_do_not_count() -> None:
    config_map = obj("plan", metadata={"annotations": {RECORD_OF: "owner"}})
    assert read_digest(obj("owner", spec={}), MAPS, "owner") == ""
    assert read_digest(config_map, MAPS, "owner") == ""
    alone = read_digest({"items": [obj()]}, MAPS, "owner")
    assert read_digest({"items": [obj(), obj("owner"), config_map]}, MAPS, "owner") == alone
    assert read_digest({"items": [obj(), config_map]}, MAPS, "another") != alone


def test_the_first_read_of_a_path_counts_and_pages_are_kept_apart() -> None:
    overlay = Overlay()
    overlay.saw("/api/v1/pods", [("labelSelector", "a=b"), ("limit", "1")], "first")
    overlay.saw("/api/v1/pods", [("labelSelector", "a=b")], "second")
    overlay.saw("/api/v1/pods", [("labelSelector", "a=b"), ("continue", "token")], "page")
    assert overlay.reads == {"/api/v1/pods?labelSelector=a%3Db": "first", "/api/v1/pods?labelSelector=a%3Db#1": "page"}
