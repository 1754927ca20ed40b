from __future__ import annotations

from typing import Any

import pytest
import yaml

from runner.sdk.schema.fields import SchemaMaker


def properties(options: str, *, snake_case_parameters: bool = True) -> tuple[dict[str, Any], list[str]]:
    maker = SchemaMaker(snake_case_parameters)
    return maker.spec({"options": yaml.safe_load(options)})["properties"], maker.problems


@pytest.mark.parametrize(
    ("option", "schema"),
    [
        ("{}", {"type": "string"}),
        ("{type: path}", {"type": "string"}),
        ("{type: int, default: 3}", {"type": "integer", "format": "int64", "default": 3}),
        ("{type: float, default: 1}", {"type": "number", "default": 1}),
        ("{type: bool, default: false}", {"type": "boolean", "default": False}),
        ("{type: bytes}", {"x-kubernetes-int-or-string": True}),
        ("{type: raw}", {"x-kubernetes-preserve-unknown-fields": True}),
        ("{type: dict}", {"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
        ("{choices: [a, b], default: b}", {"type": "string", "enum": ["a", "b"], "default": "b"}),
        ("{choices: {a: one, b: two}}", {"type": "string", "enum": ["a", "b"]}),
        ("{no_log: true}", {"type": "string", "format": "password"}),
        ("{description: [One., Two.]}", {"description": "One.\nTwo.", "type": "string"}),
        (
            "{description: 'V(@) for O(zone) (optional); RV(x), L(more, https://a.example/b), HTTP(S), C()'}",
            {
                "description": "@ for zone (optional); x, more (https://a.example/b), HTTP(S), C()",
                "type": "string",
            },
        ),
        ("{type: list}", {"type": "array", "items": {"x-kubernetes-preserve-unknown-fields": True}}),
        (
            "{type: list, elements: str, choices: [a], default: [a]}",
            {"type": "array", "items": {"type": "string", "enum": ["a"]}, "default": ["a"]},
        ),
        (
            "{type: list, elements: dict, options: {some_name: {required: true}}}",
            {
                "type": "array",
                "items": {"type": "object", "properties": {"someName": {"type": "string"}}, "required": ["someName"]},
            },
        ),
        (
            "{type: dict, options: {a: {type: dict, options: {b: {type: int}}}}}",
            {
                "type": "object",
                "properties": {
                    "a": {"type": "object", "properties": {"b": {"type": "integer", "format": "int64"}}},
                },
            },
        ),
    ],
)
def test_an_option_becomes_a_field(option: str, schema: dict[str, Any]) -> None:
    assert properties(f"field: {option}") == ({"field": schema}, [])


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("{default: '{{ other }}'}", "only the role can evaluate a template"),
        ("{type: int, default: many}", "the default 'many' is skipped, because its type is not integer"),
        ("{type: int, default: true}", "the default True is skipped, because its type is not integer"),
        ("{choices: [a], default: b}", "is not one of the choices"),
        ("{type: colour}", "unknown type 'colour'"),
    ],
)
def test_options_without_an_equivalent_in_a_schema_are_reported(option: str, why: str) -> None:
    found, [problem] = properties(f"field: {option}")
    assert problem.startswith("spec.field: ")
    assert why in problem
    assert "default" not in found["field"]


@pytest.mark.parametrize(
    ("option", "field"), [("size", "size"), ("http_port", "httpPort"), ("egress_ips", "egressIps"), ("a_1", "a_1")]
)
def test_a_field_is_named_so_that_the_role_gets_its_variable(option: str, field: str) -> None:
    assert list(properties(f"{option}: {{}}")[0]) == [field]


def test_an_option_that_no_field_becomes_is_reported_with_the_name_that_works() -> None:
    _, problems = properties("bannerText: {type: str}")
    gets = "the role gets this field as the variable banner_text; name the option banner_text"
    assert problems == [f"spec.bannerText: {gets}"]


def test_without_snake_case_fields_are_named_as_options() -> None:
    assert list(properties("http_port: {}", snake_case_parameters=False)[0]) == ["http_port"]


def test_variables_of_the_operator_and_of_the_watch_are_not_fields() -> None:
    options = {"ansible_operator_meta": {"required": True}, "image": {}, "size": {}}
    assert list(SchemaMaker().spec({"options": options}, frozenset({"image"}))["properties"]) == ["size"]


def test_an_object_may_leave_its_spec_out_unless_something_in_it_is_required() -> None:
    assert SchemaMaker().spec({"options": {"a": {}}})["default"] == {}
    wanted = SchemaMaker().spec({"options": {"a": {"required": True}, "b": {"required": True, "default": "x"}}})
    assert "default" not in wanted
    assert wanted["required"] == ["a"]


def test_the_specs_description_is_the_entry_points() -> None:
    assert SchemaMaker().spec({"short_description": "Short.", "description": ["Long."]})["description"] == "Long."
    assert SchemaMaker().spec({"short_description": "Short."})["description"] == "Short."
