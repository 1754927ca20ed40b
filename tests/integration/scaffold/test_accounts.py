"""The service account of a watch in each kind of deployment, with the manifests of docs/proxy.md."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from runner.core.kube import service_accounts
from runner.sdk.devcluster import cluster
from tests.kit.go_programs import get_helm
from tests.kit.places import BIN, ROOT
from tests.kit.processes import captured

pytestmark = pytest.mark.xdist_group("accounts")

WRITTEN = "memcached-runs"

Json = dict[str, Any]
Sh = Callable[..., str]


@pytest.fixture(scope="module")
def sh(tmp_path_factory: pytest.TempPathFactory) -> Sh:
    """Run a command in the folder of a project whose watch has an account."""
    home = tmp_path_factory.mktemp("accounts")
    folder = home / "memcached-operator"
    folder.mkdir()
    kubectl, helm = cluster.find_kubectl(os.environ), get_helm(os.environ, sys.stderr)
    assert kubectl is not None
    places = [str(BIN), str(kubectl.parent), str(helm.parent), os.environ["PATH"]]
    environ = {**os.environ, "PATH": os.pathsep.join(places), "HOME": str(home)}

    def run(*command: str) -> str:
        done = captured(*command, cwd=folder, env=environ)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("ansible-operator", "init", "--domain=example.com")
    run("ansible-operator", "create", "api", "--group=cache", "--version=v1", "--kind=Memcached")
    (folder / "watches.yaml").write_text(f"{(folder / 'watches.yaml').read_text()}  serviceAccount: {WRITTEN}\n")
    page = (ROOT / "docs/proxy.md").read_text()
    (block,) = re.findall(r"<!-- manifests of an account -->\n```yaml\n(.*?)```", page, re.DOTALL)
    (folder / "config/rbac/memcached_runs.yaml").write_text(block)
    listed = folder / "config/rbac/kustomization.yaml"
    listed.write_text(f"{listed.read_text()}  - memcached_runs.yaml\n")
    run("ansible-operator", "validate")
    return run


def check(namespace: str, own: str, accounts: set[str], rules: list[Json]) -> None:
    """See that the operator finds the account of runs by its own one, and may impersonate it."""
    found = service_accounts.candidates(WRITTEN, namespace, service_accounts.user(f"{namespace}/{own}"))[0]
    name = found.partition("/")[2]
    assert name in accounts
    (rule,) = [each for each in rules if "impersonate" in each["verbs"]]
    assert (rule["resourceNames"], sorted(rule["verbs"])) == ([name], ["get", "impersonate"])


def check_manifests(text: str) -> None:
    documents = [each for each in yaml.safe_load_all(text) if each]
    (manager,) = [each for each in documents if each["kind"] == "Deployment"]
    own = manager["spec"]["template"]["spec"]["serviceAccountName"]
    roles = {each["metadata"]["name"]: each for each in documents if each["kind"] == "Role"}
    bound = [
        roles[each["roleRef"]["name"]]
        for each in documents
        if each["kind"] == "RoleBinding" and own in {subject["name"] for subject in each["subjects"]}
    ]
    accounts = {each["metadata"]["name"] for each in documents if each["kind"] == "ServiceAccount"}
    check(
        manager["metadata"].get("namespace", "default"),
        own,
        accounts,
        [rule for role in bound for rule in role["rules"]],
    )


def test_make_deploy_gives_both_accounts_the_same_prefix(sh: Sh) -> None:
    check_manifests(sh("kubectl", "kustomize", "config/default"))


def test_a_helm_release_of_any_name_gives_both_accounts_the_same_prefix(sh: Sh) -> None:
    sh("ansible-operator", "generate", "chart")
    for release in ("memcached-operator", "cache", "a-much-longer-name-of-a-release-than-is-usual"):
        chart = ("dist/chart/memcached-operator", "--namespace=tools", "--kube-version=1.35.0")
        check_manifests(sh("helm", "template", release, *chart))


def test_olm_creates_both_accounts_in_its_namespace(sh: Sh) -> None:
    sh(
        "ansible-operator",
        "generate",
        "bundle",
        "--bundle-version=0.0.1",
        "--image=example.com/memcached-operator:v0.0.1",
    )
    (file,) = Path(sh("pwd").strip()).glob("bundle/manifests/*.clusterserviceversion.yaml")
    strategy = yaml.safe_load(file.read_text())["spec"]["install"]["spec"]
    own = strategy["deployments"][0]["spec"]["template"]["spec"]["serviceAccountName"]
    granted = [*strategy["permissions"], *strategy["clusterPermissions"]]
    rules = [rule for each in granted if each["serviceAccountName"] == own for rule in each["rules"]]
    check("operators", own, {each["serviceAccountName"] for each in granted}, rules)
