"""`generate pods`, as a user types it. Kustomize reads these files in tests/integration/scaffold/test_modes.py."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from runner.base.config import sources
from runner.base.credentials.auth import OwnNamespaces
from runner.core.kube.discovery import ApiResource
from runner.core.kube.rights import Places, Right
from runner.core.watches.watch import Finalizer, Role
from runner.engines.pod import jobs
from runner.engines.pod.fields import PodPolicy, isolated
from runner.engines.pod.plugin import PLUGIN
from runner.features.rights import cli as rbac_cli
from runner.sdk.packaging import deployments
from runner.values.objects import GVK, ObjectKey, ObjectRef
from tests.kit.jobs import job_value
from tests.kit.watch_values import watch_value

Json = dict[str, Any]
Type = Callable[[str], tuple[int, str, str]]

PAGE = Path(__file__).parents[3] / "docs/pods.md"
YAML = re.compile(r"^```yaml\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PODS = Path("config/pods")
DEFAULT = Path("config/default/kustomization.yaml")
OWN = "shop-system"
OWN_NAMESPACES = OwnNamespaces(OWN, OWN, OWN)
POLICY = PodPolicy(1, {}, {"image": "example.com/ee:1"})
IN_PODS = "  isolation: pod\n  podTemplate: {image: example.com/ee:1}\n"


@pytest.fixture
def typed(typed: Type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Type:
    monkeypatch.chdir(tmp_path)
    assert typed("init --domain example.com --project-name shop")[0] == 0
    assert typed("create api --group g --kind Basket")[0] == 0
    return typed


def of_operator(policy: PodPolicy) -> set[Right]:
    """Return the rights for pods in the operator's own namespace."""
    settings = sources.load(Namespace(), {"ANSIBLE_OPERATOR_LEADER_ELECTION_ID": "shop"}).settings
    return PLUGIN.rights.of_operator(settings, [watch_value(more=isolated(policy))], OWN_NAMESPACES)


def in_pods() -> None:
    """Let the last watch use pods."""
    with Path("watches.yaml").open("a") as file:
        file.write(IN_PODS)


def document(path: str | Path, kind: str = "") -> Json:
    found = [each for each in yaml.safe_load_all(Path(path).read_text()) if not kind or each["kind"] == kind]
    return dict(found[-1])


def manager() -> Json:
    return document("config/manager/manager.yaml", "Deployment")


def of_kind(*, namespaced: bool) -> ApiResource:
    gvk = GVK("g.example.com", "v1alpha1", "Basket")
    return ApiResource(gvk, "baskets", namespaced=namespaced, verbs=frozenset(), subresources=frozenset())


def lacking(needed: Iterable[Right]) -> set[Right]:
    """Return the rights that the generated roles do not grant. A Role only counts in the operator's namespace."""
    wide, own = document(PODS / "role.yaml"), document(PODS / "authority_role.yaml")

    def is_granted(right: Right) -> bool:
        rules = [*(wide["rules"] if right.namespace != OWN else ()), *(own["rules"] if right.namespace == OWN else ())]
        return any(rbac_cli._grants(rule, right) for rule in rules)

    return {right for right in needed if not is_granted(right)}


@pytest.mark.lengthy
def test_the_folder_is_written_and_included_once(typed: Type) -> None:
    in_pods()
    code, out, _ = typed("generate pods")
    assert code == 0
    assert "created  config/pods/kustomization.yaml\n" in out
    assert document(DEFAULT)["components"] == ["../pods"]
    kustomization = document(PODS / "kustomization.yaml")
    used = {*kustomization["resources"], *kustomization["configurations"]}
    used |= {each["path"] for each in kustomization["patches"] if "path" in each}
    assert used == {path.name for path in PODS.iterdir()} - {"kustomization.yaml"}
    assert "@{" not in "".join(path.read_text() for path in PODS.iterdir())
    (PODS / "role.yaml").write_text((PODS / "role.yaml").read_text() + "# edited\n")
    before = {path: path.read_text() for path in (DEFAULT, *PODS.iterdir())}
    assert typed("generate pods") == (0, "Note: config/pods and config/default are up to date\n", "")
    assert {path: path.read_text() for path in before} == before


@pytest.mark.parametrize("field", ["", "  isolation: process\n"])
def test_without_a_watch_that_uses_pods_nothing_is_written(typed: Type, field: str) -> None:
    with Path("watches.yaml").open("a") as file:
        file.write(field)
    code, _, err = typed("generate pods")
    assert (code, "no watch sets isolation: pod" in err) == (2, True)
    assert not PODS.exists()
    assert "components" not in document(DEFAULT)


@pytest.mark.lengthy
@pytest.mark.parametrize("namespaces", [(), ("a", "b")], ids=["all", "some"])
@pytest.mark.parametrize(("namespaced", "finalizes"), [(True, False), (True, True), (False, False)])
def test_the_roles_grant_what_the_check_at_start_requires(
    typed: Type, namespaces: tuple[str, ...], *, namespaced: bool, finalizes: bool
) -> None:
    if not namespaced:
        typed("create api --group g --kind Market --namespaced=false")
    if finalizes:
        typed("create api --group g --kind Market --finalizer")
    in_pods()
    typed("generate pods")
    finalizer = Finalizer("f", Role("r", Path("/roles/r")), {}, None) if finalizes else None
    watch = watch_value(more=isolated(POLICY), finalizer=finalizer)
    needed = PLUGIN.rights.of_watch(watch, of_kind(namespaced=namespaced), Places(namespaces, OWN_NAMESPACES))
    assert lacking(needed | of_operator(POLICY)) == set()
    reads_all = Right("", OWN, "", "secrets", "list")
    assert (lacking({reads_all}) == set()) is (finalizes or not namespaced)
    assert "--leader-election-id=shop" in deployments.container(manager())["args"]


@pytest.mark.lengthy
def test_the_roles_grant_what_warm_pods_require(typed: Type) -> None:
    in_pods()
    typed("generate pods")
    needed = of_operator(replace(POLICY, warm=1))
    assert lacking(needed) != set()
    with Path("watches.yaml").open("a") as file:
        file.write("  warmPods: 1\n")
    assert typed("generate pods")[0] == 0
    assert lacking(needed) == set()
    assert typed("generate pods") == (0, "Note: config/pods and config/default are up to date\n", "")


@pytest.mark.lengthy
def test_pods_reach_the_operator_through_its_service(typed: Type) -> None:
    in_pods()
    typed("generate pods")
    service = document(PODS / "service.yaml")
    container = deployments.container(document(PODS / "manager_patch.yaml"))
    environ = {each["name"]: each["value"] for each in container["env"]}
    loaded = sources.load(Namespace(), environ)
    assert loaded.settings.pods_address == service["metadata"]["name"]
    (port,) = container["ports"]
    assert loaded.settings.pods_bind_address == f":{port['containerPort']}"
    (served,) = service["spec"]["ports"]
    assert (served["port"], served["targetPort"]) == (port["containerPort"], port["name"])
    labels = manager()["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert service["spec"]["clusterIP"] == "None"


def test_the_network_policy_admits_the_pods_of_runs(typed: Type) -> None:
    in_pods()
    typed("generate pods")
    (patch,) = (each for each in document(PODS / "kustomization.yaml")["patches"] if "target" in each)
    policy = document("config/network-policy/allow-metrics-traffic.yaml")
    assert patch["target"] == {"kind": policy["kind"], "name": policy["metadata"]["name"]}
    (change,) = yaml.safe_load(patch["patch"])
    (selector,) = change["value"]["from"]
    owner = ObjectRef(GVK("g", "v1", "Basket"), ObjectKey("a", "b"), "uid")
    run = job_value(gvk=owner.gvk, key=owner.key, uid=owner.uid)
    labels = jobs.job(run, PodPolicy(1, {}, {"image": "ee:1"}), "run", "a")["spec"]["template"]["metadata"]["labels"]
    assert selector["podSelector"]["matchLabels"].items() <= labels.items()
    assert selector["namespaceSelector"] == {}
    assert [each["port"] for each in change["value"]["ports"]] == [8444]
    shown = yaml.safe_load(next(each for each in YAML.findall(PAGE.read_text()) if "kind: NetworkPolicy" in each))
    assert shown["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    _, operator = shown["spec"]["egress"]
    assert [each["port"] for each in operator["ports"]] == [8444]
    (to,) = operator["to"]
    of_manager = manager()["spec"]["template"]["metadata"]["labels"]
    assert to["podSelector"]["matchLabels"].items() <= of_manager.items()


@pytest.mark.lengthy
def test_the_first_manifests_confine_namespaced_kinds_unless_the_watch_sets_the_field(typed: Type) -> None:
    assert typed("create api --group g --kind Region --namespaced=false")[0] == 0
    file = Path("watches.yaml")
    region = "- {group: g.example.com, version: v1alpha1, kind: Region, role: basket, isolation: pod, podTemplate: {image: a}}\n"  # noqa: E501 - one line
    file.write_text(
        "- version: v1alpha1\n  group: g.example.com\n  kind: Basket\n  role: basket\n  isolation: pod  # why\n"
        "  podTemplate: {image: a}\n" + region
    )
    assert typed("generate pods")[0] == 0
    basket, clustered = yaml.safe_load(file.read_text())
    assert basket["ownNamespaceOnly"] is True
    assert "ownNamespaceOnly" not in clustered
    assert "isolation: pod  # why\n  ownNamespaceOnly: true\n" in file.read_text()
    file.write_text(file.read_text().replace("  ownNamespaceOnly: true\n", ""))
    assert typed("generate pods")[0] == 0
    assert "ownNamespaceOnly" not in file.read_text()


@pytest.mark.parametrize("more", ["  vars: {a: ${HOME}}\n", "---\n- x: 1\n"])
def test_a_watch_is_confined_or_the_user_has_to_do_it(typed: Type, more: str) -> None:
    """Without its variables, the first text is no YAML."""
    in_pods()
    path = Path("watches.yaml")
    path.write_text(before := path.read_text().replace("  isolation", "  Isolation") + more)
    code, _, error = typed("generate pods")
    if "vars" in more:
        assert (code, path.read_text()) == (2, before)
        assert "cannot edit the watch; add `ownNamespaceOnly: true` to it by hand" in error
    else:
        assert (code, path.read_text()) == (0, before.replace("n: pod\n", "n: pod\n  ownNamespaceOnly: true\n"))
