"""What `validate` says of watches and samples that the project's CRDs do not allow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kit.commands import Type

CRD = Path("config/crd/bases/cache.example.com_memcacheds.yaml")
SAMPLE = Path("config/samples/cache_v1alpha1_memcached.yaml")
WATCHES = Path("watches.yaml")
SPEC: dict[str, Any] = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 1},
        "users": {
            "type": "array",
            "items": {"type": "object", "properties": {"secretRef": {"type": "object"}, "name": {"type": "string"}}},
        },
        "env": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}


@pytest.fixture
def errors(typed: Type) -> Any:
    """A project whose role reads anything, and the errors that `validate` prints of it."""
    crd = yaml.safe_load(CRD.read_text())
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = SPEC
    CRD.write_text(yaml.safe_dump(crd))
    Path("roles/memcached/tasks/main.yml").write_text('---\n- name: Show\n  debug:\n    msg: "{{ vars[x] }}"\n')
    give_sample({"size": 1})

    def validate() -> list[str]:
        code, out, _ = typed("validate")
        found = [line for line in out.splitlines() if "error: " in line]
        assert bool(found) is (code == 2), out
        return found

    return validate


def give_sample(spec: object, **different: Any) -> None:
    head = {"apiVersion": "cache.example.com/v1alpha1", "kind": "Memcached", "metadata": {"name": "mc"}}
    SAMPLE.write_text(yaml.safe_dump({**head, "spec": spec, **different}))


def give_watch(**different: Any) -> None:
    (watch,) = yaml.safe_load(WATCHES.read_text())
    WATCHES.write_text(yaml.safe_dump([{**watch, **different}]))


@pytest.mark.lengthy
@pytest.mark.parametrize(("path", "margin"), [(WATCHES, "  "), (CRD, ""), (SAMPLE, "")])
def test_an_impossible_date_in_a_file_of_the_project_is_an_error(errors: Any, path: Path, margin: str) -> None:
    path.write_text(path.read_text().rstrip("\n") + f"\n{margin}since: 2026-02-31\n")
    place = f"{path}:{len(path.read_text().splitlines())}: error: invalid YAML in column {len(margin) + 8}"
    reason = "correct the value '2026-02-31', or quote it if it is text (day is out of range for month)"
    assert f"{place}: {reason}" in errors()


@pytest.mark.lengthy
def test_a_project_whose_watches_and_samples_fit_its_crds_has_no_error(errors: Any) -> None:
    give_watch(
        references=[
            {"version": "v1", "kind": "Secret", "path": path}
            for path in ("spec.users[*].secretRef", "spec.users.name", "spec.env.*", "spec.env.ANY")
        ]
    )
    give_sample({"size": 2, "users": [{"secretRef": {}, "name": "a"}], "env": {"A": "b"}})
    assert errors() == []


def test_a_number_of_a_crd_that_json_cannot_represent_is_an_error(errors: Any) -> None:
    crd = yaml.safe_load(CRD.read_text())
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["default"] = {"size": float("inf")}
    CRD.write_text(yaml.safe_dump(crd))
    assert f"{CRD}:1: error: number .inf cannot be represented in JSON" in errors()


def test_a_watched_kind_without_a_crd_is_an_error_with_the_kind_that_was_meant(errors: Any) -> None:
    give_watch(kind="Memcache")
    (error,) = errors()
    assert error == (
        f"{WATCHES}:1: error: cache.example.com/v1alpha1, Kind=Memcache: no CRD in config/crd/bases defines "
        "the watched kind Memcache; did you mean Memcached?"
    )


def test_a_watched_version_that_the_crd_does_not_serve_is_an_error_with_those_it_serves(errors: Any) -> None:
    give_watch(version="v1beta1")
    (error,) = errors()
    assert error == (
        f"{WATCHES}:1: error: cache.example.com/v1beta1, Kind=Memcached: {CRD} does not serve the version v1beta1; "
        "it serves v1alpha1"
    )


@pytest.mark.parametrize("group", ["other.example.com", ""])
def test_a_watched_kind_of_a_group_without_crds_in_the_project_is_not_an_error(errors: Any, group: str) -> None:
    give_watch(group=group, kind="Deployment", version="v1")
    assert errors() == []


@pytest.mark.lengthy
@pytest.mark.parametrize(
    ("path", "advice"),
    [
        ("spec.sise", "has no field sise there; did you mean size?"),
        ("spec.users[*].secret", "has no field secret there; did you mean secretRef?"),
        ("spec.env[*]", "has no field [*] there"),
        ("spec.size.name", "has no field name there"),
    ],
)
def test_a_path_of_references_that_the_schema_lacks_is_an_error(errors: Any, path: str, advice: str) -> None:
    give_watch(references=[{"version": "v1", "kind": "Secret", "path": path}])
    (error,) = errors()
    assert error == (
        f"{WATCHES}:1: error: cache.example.com/v1alpha1, Kind=Memcached: references[0].path: {path} matches no "
        f"object: {CRD} {advice}"
    )


@pytest.mark.lengthy
@pytest.mark.parametrize(
    ("spec", "line", "error"),
    [
        ({}, 5, "spec.size: required field is missing"),
        ({"size": 0}, 6, "spec.size: 0 is too small: the minimum is 1"),
        ({"size": "3"}, 6, "spec.size: found text (3), expected a whole number"),
        ({"env": {"A": 1}, "size": 1}, 7, "spec.env.A: found a number (1), expected text; quote it"),
        ({"size": 1, "users": [{"name": {}}]}, 8, "spec.users[0].name: found a mapping, expected text"),
    ],
)
def test_a_sample_that_violates_its_schema_is_an_error_with_line_and_field(
    errors: Any, spec: object, line: int, error: str
) -> None:
    give_sample(spec)
    assert errors() == [f"{SAMPLE}:{line}: error: {error}"]


@pytest.mark.lengthy
def test_an_unknown_field_of_a_sample_is_a_warning_because_the_api_server_drops_it(errors: Any, typed: Type) -> None:
    give_sample({"size": 1, "sice": 2})
    assert errors() == []
    warning = f"{SAMPLE}:6: warning: spec.sice: the schema has no such field; did you mean size?"
    assert warning in typed("validate")[1].splitlines()


@pytest.mark.lengthy
def test_a_sample_of_an_unknown_kind_or_version_is_an_error_except_of_another_group(errors: Any) -> None:
    give_sample({}, kind="Memcache")
    assert errors() == [
        f"{SAMPLE}:1: error: no CRD in config/crd/bases defines the kind Memcache; did you mean Memcached?"
    ]
    give_sample({}, apiVersion="cache.example.com/v1")
    assert errors() == [f"{SAMPLE}:1: error: {CRD} does not serve the version v1; it serves v1alpha1"]
    give_sample({"any": "thing"}, apiVersion="v1", kind="Secret")
    assert errors() == []


def test_invalid_yaml_of_a_sample_is_an_error_with_its_line(errors: Any) -> None:
    SAMPLE.write_text("kind: Memcached\nspec: {\n")
    (error,) = errors()
    assert error.startswith(f"{SAMPLE}:2: error: invalid YAML in column ")


@pytest.mark.lengthy
def test_a_watch_with_pods_in_a_project_without_their_manifests_is_a_warning_with_its_remedy(typed: Type) -> None:
    def warnings() -> list[str]:
        code, out, _ = typed("validate")
        assert code == 0, out
        return [line for line in out.splitlines() if "isolation: pod" in line]

    WATCHES.write_text(WATCHES.read_text() + "  isolation: pod\n  podTemplate: {image: example.com/ee:1}\n")
    (without_account, _) = warnings()
    assert "isolation: pod without serviceAccount: the role in the pod has all permissions" in without_account
    assert typed("validate --strict")[0] == 2
    WATCHES.write_text(WATCHES.read_text() + "  serviceAccount: accounts/runs\n")
    (missing,) = warnings()
    assert missing.startswith("watches.yaml:")
    assert "the project has no config/pods, so a deployed operator has no Service" in missing
    assert missing.endswith("run `ansible-operator generate pods`")
    assert typed("generate pods")[0] == 0
    assert warnings() == []
    default = Path("config/default/kustomization.yaml")
    default.write_text(default.read_text().replace("- ../pods\n", ""))
    (unlisted,) = warnings()
    assert "config/default/kustomization.yaml lacks ../pods" in unlisted
    default.unlink()
    assert warnings() == []


@pytest.mark.lengthy
def test_a_service_account_that_no_manifest_defines_is_an_error(errors: Any) -> None:
    give_watch(serviceAccount="memcached-runs")
    (error,) = errors()
    assert error.startswith(
        f"{WATCHES}:1: error: cache.example.com/v1alpha1, Kind=Memcached: serviceAccount: no manifest"
    )
    assert (
        "in config defines the ServiceAccount memcached-runs (found: controller-manager); add it with its Role" in error
    )
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "memcached-runs", "namespace": "system"},
    }
    Path("config/rbac/runs.yaml").write_text(yaml.safe_dump(account))
    assert errors() == []
    give_watch(serviceAccount="shop-operator-memcached-runs")  # with the prefix of kustomize
    assert errors() == []
    give_watch(serviceAccount="elsewhere/runs")
    assert errors() == []
    give_watch(serviceAccount="other")
    assert len(errors()) == 1
    Path("config/default/kustomization.yaml").unlink()  # deployed by something else
    assert errors() == []
