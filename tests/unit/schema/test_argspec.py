"""A role's argument spec, made from the schema of its kind: what went one way comes back the other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from runner.sdk.schema.argspec import ArgumentSpecMaker
from runner.sdk.schema.fields import SchemaMaker

SPEC: dict[str, Any] = {
    "options": {
        "size": {"description": "How many.", "type": "int", "required": True},
        "log_level": {"type": "str", "required": False, "default": "info", "choices": ["info", "debug"]},
        "share": {"type": "float", "required": False},
        "tls": {
            "type": "dict",
            "required": False,
            "options": {
                "secret_name": {"type": "str", "required": False},
                "key": {"type": "str", "required": False, "no_log": True},
                "is_own": {"type": "bool", "required": False, "default": False},
            },
            "mutually_exclusive": [["secret_name", "key"]],
        },
        "users": {
            "type": "list",
            "elements": "dict",
            "required": False,
            "options": {"name": {"type": "str", "required": True}},
        },
        "zones": {"type": "list", "elements": "str", "choices": ["a", "b"], "required": False},
        "labels": {"type": "dict", "required": False},
        "namespace": {"type": "raw", "required": False},
    },
    "mutually_exclusive": [["size", "share", "tls"]],
    "required_together": [["tls", "users", "zones"]],
    "required_one_of": [["size", "share"]],
    "required_if": [["log_level", "debug", ["size", "tls"]], ["log_level", "info", ["size", "share"], True]],
    "required_by": {"namespace": ["size"], "tls": ["users", "zones"]},
}


def test_an_argument_spec_is_restored_from_the_schema_generated_from_it() -> None:
    maker, reader = SchemaMaker(), ArgumentSpecMaker()
    found = reader.spec(maker.spec(SPEC))
    assert found == SPEC
    assert reader.problems == maker.problems == []


def test_fields_keep_their_spelling_where_the_watch_keeps_it() -> None:
    schema = {"properties": {"httpPort": {"type": "integer"}}}
    assert list(ArgumentSpecMaker(snake_case_parameters=False).spec(schema)["options"]) == ["httpPort"]
    assert list(ArgumentSpecMaker().spec(schema)["options"]) == ["http_port"]


def test_a_required_field_with_a_default_becomes_an_option_that_ansible_accepts() -> None:
    inner = {"type": "object", "required": ["class"], "properties": {"class": {"type": "string", "default": "fast"}}}
    schema = {"required": ["size", "disk"], "properties": {"size": {"type": "integer", "default": 3}, "disk": inner}}
    options = ArgumentSpecMaker().spec(schema)["options"]
    assert ArgumentSpecValidator(options).validate({"size": 3, "disk": {"class": "fast"}}).error_messages == []
    assert [options["size"]["required"], options["disk"]["required"]] == [False, True]


def test_descriptions_of_several_lines_become_paragraphs() -> None:
    schema = {"properties": {"a": {"type": "string", "description": "One.\nTwo."}}}
    assert ArgumentSpecMaker().spec(schema)["options"]["a"]["description"] == ["One.", "Two."]


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "integer", "minimum": 1, "maximum": 9}, "spec.a: an argument spec cannot express maximum, minimum"),
        ({"type": "string", "format": "date-time"}, "spec.a: an argument spec cannot express format"),
        (
            {"type": "object", "x-kubernetes-validations": [{"rule": "self.b > self.c"}]},
            "cannot express the rule `self.b > self.c`; add it to meta/crd_validations.yml",
        ),
    ],
)
def test_constraints_without_an_equivalent_in_argument_specs_are_reported(schema: dict[str, Any], problem: str) -> None:
    reader = ArgumentSpecMaker()
    reader.spec({"properties": {"a": {**schema, "properties": {"b": {"type": "integer"}}}}})
    assert [problem in each for each in reader.problems] == [True]


@pytest.mark.parametrize(
    "rule",
    [
        "!(has(self.a) && has(self.b)) && !(has(self.a) && has(self.c))",
        "has(self.a) == has(self.b) && has(self.b) == has(self.c)",
        "!(has(self.a) && self.a == oops) || (has(self.b))",
        '!(has(self.a) && self.a == "x") || (has(self.b) && has(self.c) || has(self.a))',
        "has(self.a) || has(self.gone)",
    ],
)
def test_a_rule_similar_to_a_generated_one_is_reported_and_not_converted(rule: str) -> None:
    reader = ArgumentSpecMaker()
    properties = {name: {"type": "string"} for name in "abc"}
    made = reader.spec({"properties": properties, "x-kubernetes-validations": [{"rule": rule}]})
    assert list(made) == ["options"]
    assert len(reader.problems) == 1


def test_two_fields_with_the_same_variable_are_reported() -> None:
    reader = ArgumentSpecMaker()
    made = reader.spec({"properties": {"logLevel": {"type": "string"}, "log_level": {"type": "integer"}}})
    assert made["options"] == {"log_level": {"type": "str", "required": False}}
    assert reader.problems == ["spec.log_level: skipped, because another field has the same variable name 'log_level'"]


if TYPE_CHECKING:
    from tests.kit.commands import Type


CRD = Path("config/crd/bases/cache.example.com_memcacheds.yaml")
SPECS = Path("roles/memcached/meta/argument_specs.yml")
SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "description": "How many.", "minimum": 1},
        "tls": {"type": "object", "properties": {"secretName": {"type": "string"}}},
    },
    "x-kubernetes-validations": [{"rule": "has(self.size) == has(self.tls)"}, {"rule": "self.size < 9"}],
}


def give_schema(schema: dict[str, Any]) -> None:
    crd = yaml.safe_load(CRD.read_text())
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = schema
    CRD.write_text(yaml.safe_dump(crd))


def main_of_specs() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(SPECS.read_text())["argument_specs"]["main"]
    return found


@pytest.mark.lengthy
def test_a_role_without_argument_specs_gets_them_from_the_crd(typed: Type) -> None:
    give_schema(SCHEMA)
    SPECS.unlink()
    code, out, err = typed("generate argspec")
    assert (code, out) == (0, f"changed  {SPECS}\n")
    assert main_of_specs() == {
        "options": {
            "size": {"description": "How many.", "type": "int", "required": True},
            "tls": {
                "type": "dict",
                "options": {"secret_name": {"type": "str", "required": False}},
                "required": False,
            },
        },
        "required_together": [["size", "tls"]],
    }
    assert err.splitlines() == [
        f"warning: {SPECS}: spec.size: an argument spec cannot express minimum; only the CRD has it",
        (
            f"warning: {SPECS}: spec: an argument spec cannot express the rule `self.size < 9`; "
            "add it to meta/crd_validations.yml of the role"
        ),
    ]
    assert typed("generate argspec --check")[:2] == (0, "1 argument spec is up to date\n")


def test_existing_options_are_kept_and_missing_ones_added(typed: Type) -> None:
    give_schema(SCHEMA)
    SPECS.write_text(
        "---\nargument_specs:\n  main:\n    # by hand\n    options:\n      size: {type: int, default: 3}  # mine\n"
        "  other:\n    options: {}\n"
    )
    before = SPECS.read_text().splitlines()
    assert typed("generate argspec --check")[:2] == (1, f"differs  {SPECS}\n")
    assert SPECS.read_text().splitlines() == before
    assert typed("generate argspec")[0] == 0
    after = SPECS.read_text().splitlines()
    assert [line for line in after if line in before] == before
    assert main_of_specs()["options"]["size"] == {"type": "int", "default": 3}
    assert main_of_specs()["options"]["tls"]["type"] == "dict"
    assert main_of_specs()["required_together"] == [["size", "tls"]]


def test_a_crd_without_fields_generates_no_argument_spec(typed: Type) -> None:
    SPECS.unlink()
    assert typed("generate argspec")[0] == 0
    assert not SPECS.exists()


@pytest.mark.parametrize(
    ("versions", "why"),
    [
        ([{"name": "v1alpha1", "schema": {"openAPIV3Schema": {"properties": {"spec": {"properties": []}}}}}], ""),
        (["v1alpha1"], "the CRD has no version v1alpha1"),
        (3, "the CRD has no version v1alpha1"),
    ],
)
def test_a_crd_of_another_shape_is_no_crash(typed: Type, versions: object, why: str) -> None:
    crd = yaml.safe_load(CRD.read_text())
    crd["spec"]["versions"] = versions
    CRD.write_text(yaml.safe_dump(crd))
    code, _, err = typed("generate argspec")
    assert (code, why in err) == (2 if why else 0, True)


def test_a_field_without_a_schema_accepts_any_value() -> None:
    assert ArgumentSpecMaker().spec({"properties": {"size": None}})["options"] == {
        "size": {"type": "raw", "required": False}
    }


def test_an_argument_spec_in_another_encoding_is_an_error(typed: Type) -> None:
    SPECS.write_bytes(b"# caf\xe9\n")
    code, _, err = typed("generate argspec")
    assert (code, "invalid UTF-8" in err) == (2, True)


def test_options_in_flow_style_are_an_error_with_the_lines_to_add(typed: Type) -> None:
    give_schema(SCHEMA)
    SPECS.write_text("argument_specs: {main: {options: {size: {type: int}}}}\n")
    before = SPECS.read_text()
    code, _, err = typed("generate argspec")
    assert code == 2
    assert f"{SPECS.resolve()}: cannot edit the file; add this by hand to argument_specs.main.options:" in err
    assert SPECS.read_text() == before


@pytest.mark.lengthy
def test_a_kind_that_runs_a_playbook_has_no_argument_specs(typed: Type) -> None:
    Path("playbooks").mkdir(exist_ok=True)
    Path("playbooks/one.yml").write_text("- hosts: localhost\n  tasks: []\n")
    Path("watches.yaml").write_text(
        "- {version: v1alpha1, group: cache.example.com, kind: Memcached, playbook: playbooks/one.yml}\n"
    )
    code, _, err = typed("generate argspec")
    assert code == 2
    assert "runs a playbook; only roles have argument specs" in err


def test_a_role_outside_of_the_project_is_not_written(typed: Type, tmp_path_factory: pytest.TempPathFactory) -> None:
    give_schema(SCHEMA)
    elsewhere = tmp_path_factory.mktemp("theirs") / "memcached"
    Path("roles/memcached").rename(elsewhere)
    Path("watches.yaml").write_text(
        f"- {{version: v1alpha1, group: cache.example.com, kind: Memcached, role: {elsewhere}}}\n"
    )
    code, _, err = typed("generate argspec")
    assert code == 2
    assert "is outside of the project; copy it, or wrap it in a role of the project" in err
