"""Least privilege, judged by the real authorizer: what is missing is named, and what was recorded is enough."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from runner.features.rights.record import INFERRED
from tests.kit.places import ROOT
from tests.kit.rights import granted
from tests.kit.tasks import keep, status, task
from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from tests.kit.objects import Api, Things
    from tests.kit.operator import Operator, Project

RBAC = "/apis/rbac.authorization.k8s.io/v1"
LACKS = "The operator lacks a right; add the rule"
KIND = {"apiVersion": "cache.example.com/v1alpha1", "kind": "Memcached"}
# What the scaffold of the Go operator grants: config/rbac/role.yaml and leader_election_role.yaml of a project.
ALL = ["create", "delete", "get", "list", "patch", "update", "watch"]
SCAFFOLD = [
    {"apiGroups": [""], "resources": ["secrets", "pods", "pods/exec", "pods/log"], "verbs": ALL},
    {"apiGroups": ["apps"], "resources": ["deployments", "daemonsets", "replicasets", "statefulsets"], "verbs": ALL},
    {"apiGroups": ["test.example.com"], "resources": ["things", "things/status", "things/finalizers"], "verbs": ALL},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ALL},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ALL},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
]
SECRET = keep("a Secret", "Secret", fields={"stringData": {"size": "{{ size | string }}"}}) + status(size="{{ size }}")


def broken(operator: Operator) -> list[str]:
    return [line for line in operator.get("/readyz").splitlines() if line.startswith("[-]")]


def test_rights_that_are_missing_at_start_are_named_and_count_as_soon_as_they_are_given(
    project: Project, things: Things
) -> None:
    space = project.namespace
    project.role("thing", "- name: Say hello\n  ansible.builtin.debug: {msg: hello}\n")
    project.watch("thing", finalizer={"name": "test.example.com/end", "role": "thing"})
    given = project.rules
    little = {"apiGroups": ["test.example.com"], "resources": ["things"], "verbs": ["get"]}
    project.rules = [little]
    operator = project.start(ready=False)
    wait_until(lambda: len(operator.lines(msg=LACKS)) == 2, "two resources to be named")
    account = f"system:serviceaccount:{space}:operator"
    head = f"in namespace {space} (as {account}); add to its Role: {{apiGroups: [test.example.com], resources: "
    assert sorted(line["problem"] for line in operator.lines(msg=LACKS)) == [
        f"forbidden: list, patch, watch things.test.example.com {head}[things], verbs: [list, patch, watch]}}",
        f"forbidden: patch things.test.example.com/status {head}[things/status], verbs: [patch]}}",
    ]
    refused = "[-]watch/thing.v1.test.example.com failed: failing: "
    wait_until(
        lambda: any(refused in line and 'cannot list resource "things"' in line for line in broken(operator)),
        "the probe to name the right that the watch lacks",
    )
    project.rules = given
    wait_until(operator.is_ready, "the rights to count")
    things.create("one", {})
    things.await_success("one")
    things.delete("one")
    things.await_gone("one")


HIDDEN = task("Say something", "ansible.builtin.debug", {"msg": "hidden"}, no_log=True)


def test_the_rights_of_a_go_operators_scaffold_suffice_and_those_of_runs_are_recorded(
    project: Project, things: Things, api: Api
) -> None:
    space = project.namespace
    project.rules = SCAFFOLD
    project.role("thing", HIDDEN + SECRET)
    project.role("end", "- name: Say goodbye\n  ansible.builtin.debug: {msg: goodbye}\n")
    project.watch("thing", finalizer={"name": "test.example.com/end", "role": "end"})
    record = project.folder / "recorded.yaml"
    election = ("--leader-elect", "--leader-election-id=it", f"--leader-election-namespace={space}")
    operator = project.start(*election, f"--record-rbac={record}")
    things.create("one", {"size": 1})
    things.await_success("one")
    secret = f"/api/v1/namespaces/{space}/secrets/one"
    assert api.call("GET", secret)["metadata"]["ownerReferences"][0]["name"] == "one"
    api.call("DELETE", secret)
    wait_until(lambda: api.call("GET", secret), "the Secret to come back")
    wait_until(lambda: things.get("one")["status"].get("size") is not None, "what the role says of it")
    things.delete("one")
    things.await_gone("one")
    assert [line["problem"] for line in operator.lines(msg=LACKS)] == []
    assert [line for line in operator.lines(level="error") if "forbidden" in str(line)] == []
    assert operator.stop() == 0

    assert "Say something" in operator.log
    assert "Proxy request failed" not in operator.log
    role, inferred = yaml.safe_load_all(record.read_text())
    assert [rule for rule in role["rules"] if rule.get("resources") == ["secrets"] and "create" in rule["verbs"]]
    assert [rule for rule in role["rules"] if "nonResourceURLs" in rule] == []
    assert [rule["resources"] for rule in inferred["rules"] if "delete" in rule["verbs"]] == [["secrets"]]


CONFINE = """
mount --make-rprivate /
mount --bind "$1" "$1"
mount --bind "$2" "$2"
mount -o remount,ro,bind /
shift 2
exec unshare --user --map-user=12345 --map-group=0 setpriv --no-new-privs "$@"
"""


@pytest.fixture
def scratch() -> Iterator[Path]:
    """What the container has for `/tmp`. Its path is short as well, since programs put sockets there."""
    with tempfile.TemporaryDirectory(prefix="t-") as folder:
        yield Path(folder)


def confined(project: Project, scratch: Path) -> list[str]:
    """A command that runs another as the Deployment of config/manager has it run.

    As a user whom nobody has heard of, of group 0, without capabilities, where nothing can be written but below
    the project's folder and what stands for `/tmp`. Where such a place cannot be made the command is empty.
    """
    command = ["unshare", "--mount", "sh", "-ec", CONFINE, "confine", str(project.folder), str(scratch)]
    works = subprocess.run([*command, "true"], check=False, capture_output=True).returncode == 0
    return command if works else []


def live(project: Project, scratch: Path, *flags: str, within: Sequence[str] = ()) -> Operator:
    """Let a Memcached of the sample be created, changed and deleted; return the operator, which has ended.

    The change is what makes the runs need `patch`: the first run of an object only creates.
    """
    api, space = project.api, project.namespace
    memcacheds = f"/apis/cache.example.com/v1alpha1/namespaces/{space}/memcacheds"
    entry = f"/api/v1/namespaces/default/configmaps/memcached.{space}.mc"
    # A home where nothing can be written.
    environment = {"TMPDIR": str(scratch), "HOME": "/proc/none"}
    operator = project.start("--namespace=default", *flags, environment=environment, within=within)
    api.call("POST", memcacheds, {**KIND, "metadata": {"name": "mc"}, "spec": {"size": 1}})
    ended = operator.await_line("Run ended", name="mc")
    assert ended["outcome"] == "succeeded", operator.log[-4000:]
    assert api.call("GET", entry)["data"]["size"] == "1"
    api.call("PATCH", f"{memcacheds}/mc", {"spec": {"size": 2}}, "application/merge-patch+json")
    wait_until(lambda: api.call("GET", entry)["data"]["size"] == "2", f"the change:\n{operator.log[-4000:]}")
    api.call("DELETE", f"{memcacheds}/mc")
    wait_until(lambda: api.call("GET", f"{memcacheds}/mc") is None, f"the Memcached to go:\n{operator.log[-4000:]}")
    assert api.call("GET", entry) is None
    assert operator.stop() == 0
    return operator


@pytest.mark.nightly
def test_the_sample_runs_with_only_the_recorded_rights_and_as_an_arbitrary_user(
    project: Project, api: Api, scratch: Path
) -> None:
    space = project.namespace
    shutil.copytree(ROOT / "roles", project.folder / "roles")
    finalizer = {"name": "cache.example.com/finalizer", "role": "memcached_finalizer"}
    watch = {"group": "cache.example.com", "version": "v1alpha1", "kind": "Memcached", "role": "memcached"}
    project.watches.append({**watch, "finalizer": finalizer})
    project.bind_everywhere()
    record = project.folder / "recorded.yaml"
    first = live(project, scratch, f"--record-rbac={record}")
    assert first.lines(msg=LACKS) == []

    wide = f"operator-{space}"
    api.call("DELETE", f"{RBAC}/clusterrolebindings/{wide}")
    api.call("DELETE", f"{RBAC}/namespaces/{space}/rolebindings/{wide}")
    recorded = yaml.safe_load_all(record.read_text())
    roles = [role for role in recorded if INFERRED not in role["metadata"]["annotations"]]
    assert {(role["kind"], role["metadata"].get("namespace")) for role in roles} == {
        ("Role", space),
        ("Role", "default"),
    }
    for role in roles:
        name = f"{space}-recorded"
        where = role["metadata"]["namespace"]
        api.grant(*granted(name, role["rules"], namespace=where, account=(space, "operator")))
    second = live(project, scratch, within=confined(project, scratch))
    assert [line for line in second.lines() if "forbidden" in str(line)] == []
