"""CRDs made of argument specs: what the real API server takes, refuses and explains."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.kit.shell import Sh

pytestmark = pytest.mark.xdist_group("scaffold")

ENTRY = {
    "short_description": "A shelf of a market",
    "options": {
        "ansible_operator_meta": {"type": "dict", "required": True},
        "size": {"type": "int", "required": True, "description": "How many boards there are."},
        "mode": {"choices": ["plain", "cooled"], "default": "plain"},
        "http_port": {"type": "int"},
        "namespace": {"type": "str"},
        "owners": {
            "type": "list",
            "elements": "dict",
            "options": {"name": {"type": "str"}, "id": {"type": "int"}},
            "mutually_exclusive": [["name", "id"]],
            "required_one_of": [["name", "id"]],
        },
    },
    "required_if": [["mode", "cooled", ["http_port"]]],
    "required_together": [["http_port", "namespace"]],
}


@pytest.fixture(scope="module")
def shelves(sh: Sh, project: Path) -> Sh:
    sh("ansible-operator", "create", "api", "--group=shop", "--kind=Shelf", "--plural=shelves")
    specs = project / "roles/shelf/meta/argument_specs.yml"
    specs.write_text(yaml.safe_dump({"argument_specs": {"main": ENTRY}}))
    (specs.parent / "crd_validations.yml").write_text(
        yaml.safe_dump([{"rule": "self.size < 10", "message": "at most nine boards"}])
    )
    sh("ansible-operator", "generate", "crds")
    sh("kubectl", "apply", "-f", "config/crd/bases/shop.example.org_shelves.yaml")
    sh.wait("--for=condition=Established", "crd/shelves.shop.example.org")
    return sh


def apply(sh: Sh, spec: object) -> str:
    shelf = {
        "apiVersion": "shop.example.org/v1alpha1",
        "kind": "Shelf",
        "metadata": {"name": "s", "namespace": "default"},
    }
    flags = ("--dry-run=server", "--output=json")
    return sh.apply(shelf if spec is None else {**shelf, "spec": spec}, flags=flags, check=False)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (None, "spec: Required value"),
        ({}, "spec.size: Required value"),
        ({"size": "three"}, 'must be of type integer: "string"'),
        ({"size": 1, "mode": "warm"}, 'spec.mode: Unsupported value: "warm"'),
        ({"size": 1, "mode": "cooled"}, 'httpPort must be set when mode is "cooled"'),
        ({"size": 1, "httpPort": 80}, "httpPort and namespace must be set together"),
        ({"size": 1, "owners": [{"name": "a", "id": 1}]}, "only one of name and id may be set"),
        ({"size": 1, "owners": [{}]}, "one of name and id must be set"),
        ({"size": 10}, "at most nine boards"),
        ({"size": 1, "sice": 2}, 'unknown field "spec.sice"'),
    ],
)
def test_a_resource_that_the_role_could_not_use_is_refused(shelves: Sh, spec: object, why: str) -> None:
    assert why in apply(shelves, spec)


def test_a_valid_resource_is_accepted_with_its_defaults(shelves: Sh) -> None:
    spec = {"size": 1, "httpPort": 80, "namespace": "a", "owners": [{"name": "a"}, {"id": 1}]}
    assert json.loads(apply(shelves, spec))["spec"] == {**spec, "mode": "plain"}


def test_kubectl_explains_the_fields(shelves: Sh) -> None:
    assert "A shelf of a market" in shelves("kubectl", "explain", "shelves.spec")
    told = shelves("kubectl", "explain", "shelves.spec.size")
    assert "How many boards there are." in told
    assert "size <integer>" in told
