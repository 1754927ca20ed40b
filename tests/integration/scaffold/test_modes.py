"""Own, single, several and all namespaces: the operator runs with exactly the rights of each, and goes without hanging.

The Deployment is real, kwok plays its pod, and the operator is a process with that pod's flags, variables and token.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import yaml

from runner.sdk import devcluster as clusters
from tests.integration.scaffold import installed, olm
from tests.kit.go_programs import get_helm
from tests.kit.shell import Sh, generate, shell
from tests.kit.tasks import config_map
from tests.kit.wait import patience, wait_until

pytestmark = [pytest.mark.xdist_group("scaffold"), pytest.mark.full]

HOME = "dock-operator-system"
A, B, C = PLACES = ("berths-a", "berths-b", "berths-c")
"""C is never watched."""
BERTHS = "berths.dock.example.net"
HARBOURS = "harbours.dock.example.net"
RULE = """\
  - apiGroups: [""]
    resources: [configmaps]
    verbs: [create, get, list, patch, watch]
"""
IN_PODS = """\
  isolation: pod
  podTemplate: {image: example.com/ee:1}
"""
OF_OPERATOR = (
    *((verb, "dock.example.net", "berths", "") for verb in ("list", "watch", "patch")),
    ("patch", "dock.example.net", "berths", "status"),
    ("update", "dock.example.net", "berths", "finalizers"),
    *((verb, "", "secrets", "") for verb in ("list", "delete")),
    *((verb, "batch", "jobs", "") for verb in ("list", "create", "delete")),
)
OF_ROLE = (("create", "", "configmaps", ""), ("list", "", "configmaps", ""))
OF_CLUSTER = (
    *((verb, "dock.example.net", "harbours", "") for verb in ("list", "watch")),
    ("patch", "dock.example.net", "harbours", "status"),
    ("create", "authentication.k8s.io", "tokenreviews", ""),
    ("create", "events.k8s.io", "events", ""),
)
AT_HOME = (
    ("create", "coordination.k8s.io", "leases", ""),
    ("update", "coordination.k8s.io", "leases", "", "dock-operator"),
    ("patch", "", "configmaps", "", "ansible-operator-dependent-kinds"),
    ("create", "", "secrets", ""),
    ("get", "", "secrets", "", "dock-operator-pods-ca"),
    ("watch", "", "pods", ""),
)
OF_NOBODY = (("update", "", "secrets", ""), ("delete", "", "configmaps", ""), ("create", "", "pods", ""))

Install = Callable[["Sh", Path, Sequence[str]], Callable[[], object]]
"""Installs the operator for these namespaces (none: all), and returns what removes it again."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kind with a finalizer, one that belongs to no namespace, and one whose runs would be in pods."""
    folder = generate(
        tmp_path_factory.mktemp("modes") / "dock-operator",
        "init --domain example.net",
        "create api --group dock --kind Berth --finalizer",
        "create api --group dock --kind Harbour --namespaced=false",
        "create api --group dock --kind Crane",
    )
    with (folder / "watches.yaml").open("a") as file:
        file.write(IN_PODS)
    generate(folder, "generate pods")
    (folder / "roles/berth/tasks/main.yml").write_text(config_map(data={"size": "{{ size | string }}"}))
    with (folder / "config/rbac/role.yaml").open("a") as file:
        file.write(RULE)
    return folder


@pytest.fixture(scope="module")
def sh(project: Path, devcluster: clusters.DevCluster) -> Iterator[Sh]:
    """Run a command in the project, as an administrator; the namespaces of the tests are there."""
    helm = get_helm(os.environ, sys.stderr)
    own = {f"HELM_{each}_HOME": str(project.parent / each) for each in ("CACHE", "CONFIG", "DATA")}
    run = shell(project, devcluster, own, helm)
    for each in PLACES:
        run("kubectl", "create", "namespace", each)
    yield run
    run("kubectl", "delete", "namespace", *PLACES, HOME, "--wait=false", "--ignore-not-found")


def by_kustomize(sh: Sh, _: Path, watched: Sequence[str]) -> Callable[[], object]:
    target = [f"WATCH_NAMESPACES={','.join(watched)}"] if watched else []
    sh("make", "deploy", *target)
    return lambda: sh("make", "undeploy", "TIMEOUT=120s", *target)


def by_helm(sh: Sh, _: Path, watched: Sequence[str]) -> Callable[[], object]:
    sh("make", "chart")
    values = ["--set=rbac.scope=Namespaced"] if watched else []
    if watched and watched != (HOME,):
        values.append(f"--set=watchNamespaces={{{','.join(watched)}}}")
    where = f"--namespace={HOME}"
    sh("helm", "install", "dock-operator", "dist/chart/dock-operator", where, "--create-namespace", *values)

    def remove() -> None:
        sh("make", "uninstall", "TIMEOUT=120s")
        sh("helm", "uninstall", "dock-operator", where)
        sh("kubectl", "delete", "namespace", HOME)

    return remove


def by_olm(sh: Sh, project: Path, watched: Sequence[str]) -> Callable[[], object]:
    """What OLM does with the bundle and an OperatorGroup of these target namespaces."""
    sh("make", "bundle")
    made = olm.installed(project / "bundle/manifests", HOME, watched)
    sh.apply(*made)

    def remove() -> None:
        sh("make", "uninstall", "TIMEOUT=120s")
        sh("kubectl", "delete", "--filename=-", "--ignore-not-found", stdin=yaml.safe_dump_all(made))

    return remove


def may(sh: Sh, space: str, rights: Sequence[Sequence[str]]) -> set[bool]:
    """What the real authorizer says of the operator's account; an empty namespace is the whole cluster.

    A right is a verb, a group, a resource, a subresource, and for one object its name.
    """
    account = installed.pod_of(sh, HOME)["spec"]["serviceAccountName"]
    reviews = [
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": f"system:serviceaccount:{HOME}:{account}",
                "resourceAttributes": {
                    "namespace": space,
                    "verb": verb,
                    "group": group,
                    "resource": resource,
                    "subresource": subresource,
                    "name": "".join(name),
                },
            },
        }
        for verb, group, resource, subresource, *name in rights
    ]
    create = ("kubectl", "create", "--filename=-", "--output=jsonpath={.status.allowed} ")
    output = sh(*create, stdin=yaml.safe_dump_all(reviews))
    assert len(output.split()) == len(rights), output
    return {each == "true" for each in output.split()}


def berth(sh: Sh, name: str, space: str, size: int) -> None:
    kind = {"apiVersion": "dock.example.net/v1alpha1", "kind": "Berth"}
    sh.apply({**kind, "metadata": {"name": name, "namespace": space}, "spec": {"size": size}})


def await_size(sh: Sh, name: str, space: str, size: int) -> None:
    def has() -> bool:
        found = sh.get("configmaps", f"--namespace={space}")["items"]
        return any(each["metadata"]["name"] == name and each["data"]["size"] == str(size) for each in found)

    wait_until(has, f"a ConfigMap of size {size} in {space}")


def has_succeeded(sh: Sh, what: str, space: str = "default") -> bool:
    """Whether the last run of an object was about what it is now, and all went well."""
    found = sh.get(what, f"--namespace={space}")
    return any(
        (each["type"], each["status"], each["observedGeneration"])
        == ("Successful", "True", found["metadata"]["generation"])
        for each in (found.get("status") or {}).get("conditions") or ()
    )


@pytest.mark.parametrize(
    ("install", "watched"),
    [
        pytest.param(by_kustomize, (A, B), id="kustomize-several"),
        pytest.param(by_kustomize, (), id="kustomize-all", marks=pytest.mark.nightly),
        pytest.param(by_helm, (A,), id="helm-single", marks=pytest.mark.nightly),
        pytest.param(by_olm, (HOME,), id="olm-own", marks=pytest.mark.nightly),
        pytest.param(by_olm, (A, B), id="olm-several", marks=pytest.mark.nightly),
        pytest.param(by_olm, (), id="olm-all", marks=pytest.mark.nightly),
    ],
)
def test_an_operator_has_the_rights_of_its_install_mode_and_no_others(
    sh: Sh,
    project: Path,
    devcluster: clusters.DevCluster,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    install: Install,
    watched: Sequence[str],
) -> None:
    remove = install(sh, project, watched)
    name = str(request.node.callspec.id)
    places = watched or (A, C)
    unwatched = [each for each in PLACES if watched and each not in watched]
    sh.wait("--for=condition=Established", f"crd/{BERTHS}", f"crd/{HARBOURS}")
    # The authorizer learns of rights a moment after they were given; the operator is to find them all.
    for space, rights in [*((each, OF_OPERATOR + OF_ROLE) for each in places), ("", OF_CLUSTER), (HOME, AT_HOME)]:
        wait_until(lambda: may(sh, space, rights) == {True}, f"{rights} in {space!r}")  # noqa: B023
    with installed.operator(sh, devcluster, project, HOME, tmp_path) as operator:
        for each in (*unwatched, *places):
            berth(sh, name, each, 1)
        sh("kubectl", "apply", "--filename=config/samples/dock_v1alpha1_harbour.yaml")
        for each in places:
            await_size(sh, name, each, 1)
            berth(sh, name, each, 2)
        for each in places:
            await_size(sh, name, each, 2)
            wait_until(lambda: has_succeeded(sh, f"{BERTHS}/{name}", each), "its status")  # noqa: B023
        wait_until(lambda: has_succeeded(sh, f"{HARBOURS}/harbour-sample"), "the harbour's")

        for each in unwatched:
            assert may(sh, each, OF_OPERATOR + OF_ROLE) == {False}
            untouched = sh.get(f"{BERTHS}/{name}", f"--namespace={each}")
            assert "status" not in untouched
            assert "finalizers" not in untouched["metadata"]
        assert may(sh, "", OF_OPERATOR + OF_ROLE) == {not watched}
        assert may(sh, "", OF_NOBODY) == {False}
        if HOME not in watched and install is not by_olm:
            assert may(sh, HOME, OF_OPERATOR) == {not watched}

        sh("kubectl", "delete", f"{BERTHS}/{name}", f"--namespace={places[0]}", f"--timeout={patience():.0f}s")
        lines = operator.log.splitlines()
        assert [line for line in lines if "forbidden" in line.lower() or "HTTP 403" in line] == []
        assert not operator.lines(msg="The operator lacks a right; add the rule")
        assert [line for line in lines if any(each in line for each in unwatched)] == []
        remove()
        ended = operator.lines(msg="Run ended", name=name, reason="deleted")
        assert {line["namespace"] for line in ended} == {*places}
    left = sh(
        "kubectl", "get", "namespaces,crd,clusterroles,clusterrolebindings,roles,rolebindings", "-A", "-o", "name"
    )
    assert [line for line in left.splitlines() if "dock" in line] == []


def test_without_an_operator_undeploy_lists_objects_that_wait_for_finalizers(sh: Sh, project: Path) -> None:
    sh("make", "deploy")
    sh.wait("--for=condition=Established", f"crd/{BERTHS}")
    berth(sh, "alone", A, 1)
    patch = ("patch", f"{BERTHS}/alone", f"--namespace={A}", "--type=merge")
    sh("kubectl", *patch, '--patch={"metadata":{"finalizers":["dock.example.net/finalizer"]}}')
    output = sh("make", "undeploy", "TIMEOUT=2s", check=False)
    assert "nobody has run their finalizers within 2s" in output
    assert ["Berth", A, "alone", "[dock.example.net/finalizer]"] in [line.split() for line in output.splitlines()]
    assert "make run in another terminal" in output
    crds = [sh.get("crd", each)["metadata"] for each in (BERTHS, HARBOURS)]
    assert not any("deletionTimestamp" in each for each in crds)
    assert sh.get("deployments", f"--namespace={HOME}")["items"]
    assert "Error" in output.splitlines()[-1]
    sh("kubectl", *patch, '--patch={"metadata":{"finalizers":null}}')
    sh("make", "undeploy", "TIMEOUT=120s")
    assert "dock" not in sh("kubectl", "get", "namespaces,crd,clusterroles", "--output=name")
