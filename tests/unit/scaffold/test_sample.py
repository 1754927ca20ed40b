"""The sample operator of this repository is what `init` and `create api` generate, plus its own lines."""

from __future__ import annotations

import os
import re
import subprocess
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import yaml

from runner.base.config import sources
from runner.base.config.paths import AS_DEPLOYED
from runner.core.dependents.store import CONFIG_MAP
from runner.sdk.packaging import deployments
from tests.kit.generated import foreign_files, generate, missing_files, missing_lines
from tests.kit.places import ROOT

OWN = (
    *("Makefile", "Dockerfile", "README.md", ".ansible-lint", ".gitignore", ".dockerignore", ".yamllint"),
    *("roles/*", "config/samples/cache_*_memcached.yaml", "config/crd/bases/*"),
)
"""Of the repository, which is more than the sample; what the roles do, and which fields the kind has."""
ADDED = ("config/samples/memcached-autoscaler.yaml",)
"""An object of Kubernetes' own beside the samples."""
COMMANDS = (
    "init --domain example.com",
    "create api --group cache --version v1alpha1 --kind Memcached --generate-role --finalizer",
    "create api --group cache --version v1 --kind Memcached",
)


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("sample") / "memcached-operator"
    return generate(folder, [line.split() for line in COMMANDS])


@pytest.mark.lengthy
def test_the_sample_has_every_generated_file(generated: dict[str, str]) -> None:
    assert missing_files(ROOT, generated) == []


def test_the_sample_has_every_generated_line_in_its_order(generated: dict[str, str]) -> None:
    assert missing_lines(ROOT, generated, OWN) == []


def test_config_and_molecule_of_the_sample_hold_nothing_that_is_not_generated(generated: dict[str, str]) -> None:
    assert foreign_files(ROOT, generated, ADDED) == []


def test_the_pod_is_given_longer_than_the_operator_takes_to_end(generated: dict[str, str]) -> None:
    """Runs that are let to their end come first, then status, Events, the proxy and Leases: 13 s at most."""
    for text in (generated["config/manager/manager.yaml"], (ROOT / "config/manager/manager.yaml").read_text()):
        deployment = next(each for each in yaml.safe_load_all(text) if each["kind"] == "Deployment")
        flags = [each.removeprefix("--").partition("=") for each in deployments.container(deployment)["args"]]
        given = {name.replace("-", "_"): [value or "true"] for name, _, value in flags}
        taken = sources.load(Namespace(**given), {}).settings.graceful_shutdown_timeout
        assert deployments.pod(deployment)["terminationGracePeriodSeconds"] >= taken + 13


def test_a_project_grants_the_rights_that_k8s_event_needs(generated: dict[str, str]) -> None:
    module = ROOT / "runner/collections/ansible_collections/operator_sdk/util/plugins/modules/k8s_event.py"
    needed = re.search(r"resources \[events\] verbs \[(.+)\]", module.read_text())
    assert needed is not None
    rules = yaml.safe_load(generated["config/rbac/role.yaml"])["rules"]
    (granted,) = (rule["verbs"] for rule in rules if rule["resources"] == ["events"])
    assert sorted(granted) == sorted(needed[1].split(", "))


def test_facts_are_gathered_alike_wherever_the_operator_runs(generated: dict[str, str], tmp_path: Path) -> None:
    manager = list(yaml.safe_load_all(generated["config/manager/manager.yaml"]))[-1]
    (deployed,) = (
        {each["name"]: each["value"]} for each in deployments.container(manager)["env"] if each["name"] in AS_DEPLOYED
    )
    assert deployed == AS_DEPLOYED
    (play,) = yaml.safe_load(generated["molecule/default/create.yml"])
    assert [task["environment"] for task in play["tasks"] if "environment" in task] == [deployed]
    for path, text in generated.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    for environ, value in (({}, "explicit"), ({"ANSIBLE_GATHERING": "implicit"}, "implicit")):
        make = ["make", "run", "ANSIBLE_OPERATOR=echo $$ANSIBLE_GATHERING"]
        done = subprocess.run(
            make, cwd=tmp_path, env={"PATH": os.environ["PATH"], **environ}, check=True, capture_output=True, text=True
        )
        assert done.stdout.splitlines()[-1] == f"{value} run"


def test_generated_manifests_bound_volumes_name_shared_objects_and_admit_only_scrapers(
    generated: dict[str, str],
) -> None:
    def documents(path: str) -> list[dict[str, Any]]:
        return [each for each in yaml.safe_load_all(generated[path]) if each]

    (manager,) = (each for each in documents("config/manager/manager.yaml") if each["kind"] == "Deployment")
    pod = deployments.pod(manager)
    assert [volume["emptyDir"]["sizeLimit"] for volume in pod["volumes"]] == ["2Gi"]

    (role,) = documents("config/rbac/leader_election_role.yaml")
    shared = [rule for rule in role["rules"] if rule["resources"] != ["events"] and "resourceNames" not in rule]
    assert [(rule["resources"], rule["verbs"]) for rule in shared] == [(["leases"], ["create"])]
    lease = next(
        rule["resourceNames"] for rule in role["rules"] if rule["resources"] == ["leases"] and rule not in shared
    )
    assert f"--leader-election-id={lease[0]}" in deployments.container(manager)["args"]
    assert [CONFIG_MAP] in [rule.get("resourceNames") for rule in role["rules"]]

    assert "../network-policy" in documents("config/default/kustomization.yaml")[0]["resources"]
    (policy,) = documents("config/network-policy/allow-metrics-traffic.yaml")
    labels = manager["spec"]["template"]["metadata"]["labels"]
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    (ingress,) = policy["spec"]["ingress"]
    assert [port["port"] for port in ingress["ports"]] == [8443]
    assert "from" not in ingress  # scrapers of every namespace, also in the network of their node
