"""Today's code reads what an earlier version stored. The version at 816c3769 wrote `stored_formats.json`."""

from __future__ import annotations

import base64
import json
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from runner.base.config import sources
from runner.core.dependents.ownership import WrittenObjects
from runner.core.dependents.store import KindStore, storage
from runner.core.kube.client import Client, Selection
from runner.core.kube.discovery import ApiResource
from runner.core.kube.state import FileState
from runner.core.queue import reasons
from runner.core.queue.reasons import ReconcileRequest
from runner.core.reconcile import decisions
from runner.core.reconcile.attempt import Attempt
from runner.core.watches.watch import Finalizer
from runner.engines.pod import jobs, setup
from runner.features.hosts import record as hosts
from runner.features.plan import plan_status, published
from runner.features.plan.changes import ObjectChange, ResourcePlan
from runner.features.plan.fields import FieldChange
from runner.features.plan.published import PlanBasis
from runner.features.plan.runs import PlanConfigMaps
from runner.features.prune import records as prune_records
from runner.features.prune.record import CreationRecord
from runner.features.prune.records import RecordStore
from runner.features.rollout.member import Member
from runner.features.rollout.state import BY_USER, RolloutStore, State
from runner.features.unchanged.hooks import LastRun, RunInputs
from runner.values.digests import digest_of
from runner.values.errors import NotFoundError
from runner.values.lease_guard import LeaseGuard
from runner.values.objects import GVK, Object, ObjectKey, ObjectRef, key_of
from tests.kit.watch_values import watch_value

FORMATS: dict[str, Any] = json.loads(Path(__file__).with_name("stored_formats.json").read_text())
OBJ: Object = FORMATS["object"]
KIND, KEY = GVK("example.com", "v1", "Database"), ObjectKey("shop", "one")
OWNER = ObjectRef(KIND, KEY, "uid-one")
CONFIG_MAP, DEPLOYMENT = GVK("", "v1", "ConfigMap"), GVK("apps", "v1", "Deployment")
CONTENT = "a" * 24
CHANGE = ObjectChange("change", DEPLOYMENT, KEY, (FieldChange("spec.replicas", 1, 2),))
PLAN = ResourcePlan(OWNER, "complete", (CHANGE,))


class Cluster:
    """An API server that has the stored objects, and accepts no write."""

    credentials = SimpleNamespace(namespace="operators")

    async def get(self, resource: ApiResource, key: ObjectKey) -> Object:
        for obj in FORMATS.values():
            if (obj["kind"], key_of(obj)) == (resource.gvk.kind, key):
                return cast("Object", obj)
        raise NotFoundError(f"no {resource.gvk.kind} {key}", status=404)

    async def request(self, _method: str, _path: str, *, params: dict[str, str]) -> Object:
        wanted = dict(each.split("=") for each in params["labelSelector"].split(","))
        items = (obj for obj in FORMATS.values() if wanted.items() <= obj["metadata"].get("labels", {}).items())
        return {"items": list(items)}


CLIENT = cast("Client", Cluster())


@pytest.mark.parametrize("is_file", [False, True])
async def test_kinds_of_dependents_and_objects_that_runs_wrote(tmp_path: Path, *, is_file: bool) -> None:
    (tmp_path / "dependent-kinds.json").write_text(json.dumps(FORMATS["kinds"]["data"], indent=1))
    store = KindStore(FileState(tmp_path) if is_file else storage(CLIENT, "operators", tmp_path))
    assert (await store.load())[0] == {KIND: {DEPLOYMENT, CONFIG_MAP}, GVK("", "v1", "Namespace"): frozenset()}
    written = WrittenObjects("2026-02-02T00:00:00Z")
    written.load((await store.load())[1])
    assert written.has(OWNER, "uid-far")
    assert written.is_older(OWNER, {"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}})
    assert not written.is_older(OWNER, {"metadata": {"creationTimestamp": "2026-01-03T00:00:00Z"}})


@pytest.mark.parametrize("namespace", ["operators", None])
async def test_records_of_created_objects(tmp_path: Path, namespace: str | None) -> None:
    (tmp_path / "created-objects").mkdir()
    (tmp_path / "created-objects" / "uid-one.json").write_text(json.dumps(FORMATS["record"]["data"]))
    store = RecordStore(prune_records.storage(CLIENT, namespace, tmp_path))
    assert [(each, each.uid) for each in await store.owners()] == [(OWNER, "uid-one")]
    text = await store.load("uid-one")
    assert text is not None
    record = CreationRecord.parse(text)
    settings, web = record.objects.values()
    assert (settings.gvk, settings.key, settings.uid, settings.release, settings.unused, settings.tasks) == (
        *(CONFIG_MAP, ObjectKey("shop", "one-settings"), "uid-1", "shop/rel", 1, ("t1", "t2")),
    )
    assert (settings.basis.generation, settings.basis.omitted) == ("3", ("task-digest",))
    assert (web.intended, web.exempt, web.basis.generation) == (1767312000, True, "4")
    assert record.spell() == text


async def test_state_of_a_rollout() -> None:
    (store,) = await RolloutStore.all(CLIENT, "")
    assert (store.namespace, store.kind, store.namespaces) == ("operators", KIND, ("shop", "bank"))
    assert store.selection == Selection("tier=gold", "metadata.name!=x")
    one, two = frozenset({"uid-one"}), frozenset({"uid-two"})
    expected = State(
        *(CONTENT, 1, 1767312000.5, BY_USER), salt="17", limits=(1, 3, 10), begun=one | two, ready=one, failed=two
    )
    assert await store.load() == await RolloutStore(CLIENT, "operators", KIND).load() == expected


async def test_config_map_of_a_plan_is_the_one_that_today_s_code_would_write() -> None:
    watch = watch_value(gvk=KIND)
    resource = ApiResource(KIND, "databases", True, frozenset(), frozenset())  # noqa: FBT003 - namespaced
    run = decisions.run_content(watch, {**OBJ, "metadata": {**OBJ["metadata"], "finalizers": []}})
    assert run is not None
    request = ReconcileRequest(KEY, reasons.CHANGED, (), 0, 0, 0.0)
    attempt = Attempt(request, OBJ, run, resource, LeaseGuard(lambda: True), "ident")
    assert await PlanConfigMaps(KIND, CLIENT).write(attempt, PLAN) == FORMATS["plan"]["metadata"]["name"]


def test_plan_in_the_status_whose_approval_stays_valid() -> None:
    plan = plan_status.of_status(OBJ)
    basis = PlanBasis(PLAN, "uid-one", 3, "role-digest", {"/api/v1/namespaces/shop/configmaps/a": "1"})
    assert (plan["hash"], plan["approval"]) == (basis.hash(plan["nonce"]), {"hash": "old", "state": "executed"})
    assert published.differences(plan, replace(basis, generation=4)) == ("the object changed (generation 3 → 4)",)
    assert plan_status.drift_of(OBJ) == published.drift(PLAN, plan_status.drift_of(OBJ)["time"])


async def test_certificate_authority_of_runs_in_pods() -> None:
    settings = sources.load(Namespace(), {}).settings
    assert await setup._authority(settings, CLIENT, "operators") == (b"the certificate", b"the key")


def test_run_in_a_pod_is_continued() -> None:
    stored = {**FORMATS["run"], "data": {"token": base64.b64encode(b"the token").decode()}}
    run = jobs.recorded(stored, "uid-one", b"the key")
    assert run is not None
    assert (run.name, run.namespace) == ("run-of-one-1", "shop")
    assert (run.record.ident, run.record.generation, run.record.purpose) == ("20260102-000000-ab", 3, "apply")
    assert run.token == "the token"
    assert jobs.recorded(stored, "uid-one", b"another key") is None


def test_last_run_hosts_conditions_and_finalizer_of_an_object() -> None:
    last = LastRun.of(OBJ)
    assert last is not None
    assert last.outdated(RunInputs(digest_of(OBJ), "role-digest", "named-digest"), 1767315599.0) == ""
    assert (last.owned, last.reads, last.due) == ("owned-digest", {"/api/v1/nodes": "d"}, 1767315600.0)
    (host,) = hosts.all_hosts((), hosts.entries(OBJ))
    assert (host.name, host.written, host.port, host.user, host.key) == (
        "db",
        "10.0.0.7",
        22,
        "admin",
        "ssh-ed25519 AAAA",
    )
    member = Member.of(OBJ, {}, "apply")
    assert (member.content, member.failed, member.is_new) == (CONTENT, False, False)
    deleted = {**OBJ, "metadata": {**OBJ["metadata"], "deletionTimestamp": "2026-01-03T00:00:00Z"}}
    watch = watch_value(gvk=KIND)
    watch = watch_value(gvk=KIND, finalizer=Finalizer("database.example.com/finalizer", watch.content, {}, None))
    run = decisions.run_content(watch, deleted)
    assert run is not None
    assert run.finalizing
