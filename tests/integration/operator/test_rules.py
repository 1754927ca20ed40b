"""Each rule of config/rbac taken away: what asks for it says which verbs on which resource are missing."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from structlog.testing import capture_logs

from runner.base.config import sources
from runner.base.credentials import auth
from runner.core.dependents.store import KindStore, storage
from runner.core.kube import rights
from runner.core.kube.client import Client
from runner.core.kube.discovery import Discovery
from runner.core.kube.rights import Places, Right
from runner.core.watches.watch import Finalizer, Role
from runner.features.replicas import feature as replicas
from runner.features.replicas.election import LeaseRecord
from runner.features.replicas.leases import LeaseClient
from runner.features.rights.privileges import RightsCheck
from runner.values.errors import ForbiddenError
from runner.values.objects import GVK
from tests.kit.places import ROOT
from tests.kit.rights import granted
from tests.kit.wait import wait_until
from tests.kit.watch_values import watch_value

if TYPE_CHECKING:
    from runner.sdk.devcluster import DevCluster
    from tests.kit.objects import Api

FILES = ("role.yaml", "leader_election_role.yaml", "metrics_auth_role.yaml")
AT_START = ("memcacheds", "memcacheds/status", "leases", "tokenreviews", "subjectaccessreviews")
IN_RUNS = ("deployments", "configmaps", "pods")
"""In the order in which the sample's role comes to them."""
ELSEWHERE = ("events", "memcacheds/finalizers")
"""Rules that the first Event reports, or that only clusters that check owner references need."""
LEASE = "memcached-operator"
SETTINGS = replace(
    sources.load(Namespace(), {}).settings, leader_elect=True, leader_election_id=LEASE, metrics_require_rbac=True
)
PROBLEM = re.compile(
    rf"forbidden: (?P<verbs>\w+(?:, \w+)*) (?P<resource>\S+) (?:{LEASE} )?(?:in namespace|at the cluster scope)"
)
MEMCACHED = GVK("cache.example.com", "v1alpha1", "Memcached")


def rules(files: Sequence[str] = FILES) -> list[dict[str, Any]]:
    """All of them, a resource in each."""
    roles = (yaml.safe_load((ROOT / "config" / "rbac" / file).read_text(encoding="utf-8")) for file in files)
    return [{**rule, "resources": [each]} for role in roles for rule in role["rules"] for each in rule["resources"]]


def without(resource: str) -> list[dict[str, Any]]:
    return [rule for rule in rules() if rule["resources"] != [resource]]


def as_user(admin: Path, user: str, folder: Path) -> Path:
    """A kubeconfig of who is this user."""
    document = yaml.safe_load(admin.read_text(encoding="utf-8"))
    document["users"][0]["user"]["as"] = user
    path = folder / user
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


async def reported(kubeconfig: Path, needed: set[Right]) -> list[str]:
    """What an operator with this kubeconfig says when it starts."""
    with capture_logs() as logs:
        async with Client(
            await auth.load(str(kubeconfig), None, auth.HostEnvironment({}, kubeconfig.parent))
        ) as client:
            await RightsCheck(client, Discovery(client), lambda _: None).check(needed)
    return [line["problem"] for line in logs]


async def test_each_missing_rule_of_the_operator_is_named_at_start(
    api: Api, devcluster: DevCluster, namespace: str, tmp_path: Path
) -> None:
    admin = devcluster.kubeconfig
    async with Client(await auth.load(str(admin), None, auth.HostEnvironment({}, tmp_path))) as client:
        resource = await Discovery(client).find(MEMCACHED)
    watch = watch_value(finalizer=Finalizer("cache.example.com/end", Role("end", Path("/roles/end")), {}, None))
    own = auth.OwnNamespaces("", namespace, namespace)
    needed = rights.OF_WATCHES.of_watch(watch, resource, Places([namespace], own))
    needed |= replicas.FEATURE.rights.of_operator(SETTINGS, [watch], own) | rights.OF_METRICS.of_operator(
        SETTINGS, [watch], own
    )
    assert {right.resource for right in needed} == set(AT_START)
    assert {rule["resources"][0] for rule in rules()} == {*AT_START, *IN_RUNS, *ELSEWHERE}

    users = {f"{namespace}-without-{number}": name for number, name in enumerate(("", *AT_START))}
    for user, missing in users.items():
        api.grant(*granted(user, without(missing), user=user))
    for user, missing in users.items():
        has = sorted(right for right in needed if right.resource != missing)
        wait_until(lambda who=user, has=has: all(api.allows(who, each.attributes()) for each in has), user)  # type: ignore[misc]
        problems = await reported(as_user(Path(admin), user, tmp_path), needed)
        found = [match.groupdict() for match in map(PROBLEM.match, problems) if match]
        rules_to_add = {(right.resource, right.name) for right in needed if right.resource == missing}
        assert len(found) == len(problems) == len(rules_to_add), problems
        verbs = {verb for problem in found for verb in problem["verbs"].split(", ")}
        assert verbs == {each.verb for each in needed if each.resource == missing}
        for problem in found:
            plural, slash, subresource = problem["resource"].partition("/")
            assert f"{plural.partition('.')[0]}{slash}{subresource}" == missing
            assert f"(as {user}); add to its " in problems[0]


async def test_the_operator_can_write_its_own_lease_and_config_map_and_no_other(
    api: Api, devcluster: DevCluster, namespace: str, tmp_path: Path
) -> None:
    user = f"{namespace}-elected"
    api.grant(*granted(user, rules(("leader_election_role.yaml",)), user=user))
    needed = replicas.FEATURE.rights.of_operator(SETTINGS, [], auth.OwnNamespaces("", namespace, namespace))
    wait_until(lambda: all(api.allows(user, each.attributes()) for each in needed), user)
    kubeconfig = as_user(Path(devcluster.kubeconfig), user, tmp_path)
    kinds = {MEMCACHED: frozenset({GVK("apps", "v1", "Deployment")})}
    now = "2026-01-01T00:00:00.000000Z"
    record = LeaseRecord("a", 15, now, now, 0)
    async with Client(await auth.load(str(kubeconfig), None, auth.HostEnvironment({}, tmp_path))) as client:
        await KindStore(storage(client, namespace, Path())).save(kinds, {})
        assert (await KindStore(storage(client, namespace, Path())).load())[0] == kinds
        await KindStore(storage(client, namespace, Path())).save({MEMCACHED: frozenset()}, {})
        assert (await KindStore(storage(client, namespace, Path())).load())[0] == {MEMCACHED: frozenset()}

        lease = LeaseClient(client, namespace, LEASE)
        await lease.write(record)
        written = await lease.write(record)
        assert await lease.read() == written

        other = LeaseClient(client, namespace, "other")
        await other.write(record)
        with pytest.raises(ForbiddenError):
            await other.write(record)
        for verb, body in (("GET", None), ("PUT", {"kind": "ConfigMap", "metadata": {"name": "kube-root-ca.crt"}})):
            with pytest.raises(ForbiddenError):
                await client.request(verb, f"/api/v1/namespaces/{namespace}/configmaps/kube-root-ca.crt", body=body)
