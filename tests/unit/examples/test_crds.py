"""The specs of the sample and the examples accept only the fields that their users may set."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from runner.core.engine.params import snake_case
from tests.kit.places import ROOT

CRDS = sorted((*ROOT.glob("config/crd/bases/*.yaml"), *ROOT.glob("examples/*/config/crd/bases/*.yaml")))


@pytest.mark.parametrize("file", CRDS, ids=lambda file: str(file.name))
def test_the_api_server_drops_unknown_fields_of_a_spec(file: Path) -> None:
    specs = [
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        for version in yaml.safe_load(file.read_text())["spec"]["versions"]
    ]
    assert specs
    for spec in specs:
        assert spec["properties"]
        assert not {"x-kubernetes-preserve-unknown-fields", "additionalProperties"} & spec.keys()


@pytest.mark.parametrize("file", ["watches.yaml", "watches-playbook.yaml"])
def test_the_sample_sets_each_variable_of_its_role_that_is_no_field(file: str) -> None:
    """`vars` override the spec, also where the CRD is an older one."""
    (crd,) = ROOT.glob("config/crd/bases/*.yaml")
    (watch,) = yaml.safe_load((ROOT / file).read_text())
    options = yaml.safe_load((ROOT / "roles/memcached/meta/argument_specs.yml").read_text())["argument_specs"]["main"]
    for version in yaml.safe_load(crd.read_text())["spec"]["versions"]:
        fields = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        set_by_users = {snake_case(name) for name in fields}
        assert set_by_users.isdisjoint(watch["vars"])
        assert set_by_users | watch["vars"].keys() | {"ansible_operator_meta"} == options["options"].keys()
