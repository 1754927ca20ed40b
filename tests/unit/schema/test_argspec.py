"""A role's argument spec, made from the schema of its kind: what went one way comes back the other."""

from __future__ import annotations

from typing import Any

import pytest

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
