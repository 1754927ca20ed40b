"""Fields and rules of a schema, made from the options of a role."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from runner.sdk.schema import rules
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
        ("{choices: [yes, no, auto]}", {"type": "string", "enum": ["True", "False", "auto"]}),
        ("{type: path, choices: [on, true]}", {"type": "string", "enum": ["True"]}),
        ("{choices: [no, 'off']}", {"type": "string", "enum": ["off"]}),
        ("{type: bool, choices: [yes, no]}", {"type": "boolean", "enum": [True, False]}),
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
            "{type: list, elements: dict, options: {a: {type: int}}, default: [{a: 1}, {}]}",
            {
                "type": "array",
                "items": {"type": "object", "properties": {"a": {"type": "integer", "format": "int64"}}},
                "default": [{"a": 1}, {}],
            },
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
        ("{type: list, default: ['{{ other }}']}", "only the role can evaluate a template"),
        ("{type: dict, default: {a: {b: '{{ other }}'}}}", "only the role can evaluate a template"),
        ("{type: list, elements: str, default: [80]}", "the API server would refuse a value in it"),
        ("{type: list, elements: str, choices: [a], default: [b]}", "the API server would refuse a value in it"),
        ("{type: dict, options: {a: {type: int}}, default: {a: many}}", "the API server would refuse a value in it"),
        (
            "{type: dict, options: {http_port: {}}, default: {http_port: x}}",
            "the API server would refuse a value in it",
        ),
        ("{type: dict, options: {a: {required: true}}, default: {}}", "the API server would refuse a value in it"),
        ("{type: int, default: 9223372036854775808}", "its type is not integer"),
        ("{type: float, default: .inf}", "its type is not number"),
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


NAMES = {"a": "a", "b_b": "bB", "c": "c", "namespace": "namespace", "d_": "my-key"}


@pytest.mark.parametrize(
    ("holder", "rule", "message"),
    [
        (
            {"mutually_exclusive": [["a", "b_b"]]},
            "!(has(self.a) && has(self.bB))",
            "only one of a and bB may be set",
        ),
        (
            {"mutually_exclusive": ["a", "c"]},
            "!(has(self.a) && has(self.c))",
            "only one of a and c",
        ),
        (
            {"required_together": [["a", "b_b", "c"]]},
            "has(self.a) == has(self.bB) && has(self.a) == has(self.c)",
            "a, bB and c",
        ),
        ({"required_one_of": [["a", "c"]]}, "has(self.a) || has(self.c)", "one of a and c must be set"),
        (
            {"required_if": [["a", "x", ["b_b", "c"]]]},
            '!(has(self.a) && self.a == "x") || (has(self.bB) && has(self.c))',
            'bB and c must be set when a is "x"',
        ),
        (
            {"required_if": [["a", True, ["b_b", "c"], True]]},
            "!(has(self.a) && self.a == true) || (has(self.bB) || has(self.c))",
            "one of bB and c must be set when a is true",
        ),
        ({"required_by": {"a": ["c"]}}, "!has(self.a) || (has(self.c))", "c must be set when a is"),
        ({"required_by": {"a": "c"}}, "!has(self.a) || (has(self.c))", "c must be set when a is"),
        (
            {"required_one_of": [["namespace", "d_"]]},
            "has(self.__namespace__) || has(self.my__dash__key)",
            "one of namespace and my-key",
        ),
    ],
)
def test_constraints_of_several_options_become_a_rule(holder: dict[str, Any], rule: str, message: str) -> None:
    [found], problems = rules.of(holder, NAMES)
    assert (found["rule"], problems) == (rule, [])
    assert found["message"].startswith(message)


@pytest.mark.parametrize(
    "holder",
    [
        {"required_if": [["a"]]},
        {"required_together": [["a", "unknown"]]},
        {"required_by": 3},
        {"mutually_exclusive": [3]},
    ],
)
def test_an_invalid_constraint_is_reported(holder: dict[str, Any]) -> None:
    found, [sentence] = rules.of(holder, NAMES)
    assert found == []
    assert sentence.startswith(next(iter(holder)))


@pytest.mark.parametrize(
    ("rule", "asks"),
    [
        ("has(self.a)", True),
        ("has(self.a) && size(self.a) > 0", True),
        ("has(self.a) || has(self.b)", True),
        ("has(self.a) || has(self.set)", False),
        ("has(self.a) || size(self.b) > 0", False),
        ("has(self.set)", False),
        ("self.a > 3", False),
        ("!has(self.a) || has(self.b)", False),
        ("!(has(self.a) && has(self.b))", False),
        ("!(self.x && has(self.a) && self.y)", False),
        ("!(self.x && has(self.a) || has(self.b) && self.y)", False),
        ("!(has(self.a) && self.a == 3) || (has(self.b) && has(self.c))", False),
    ],
)
def test_a_rule_that_an_empty_object_always_violates_is_detected(rule: str, *, asks: bool) -> None:
    assert rules.requires_a_field(rule, {"properties": {"set": {"default": 1}, "a": {}}}) is asks


@pytest.mark.parametrize("options", ["[a]", "5", "{on: {type: bool}, a: {}}", "{1: {}, a: {}}"])
def test_options_that_are_no_map_of_names_are_reported(options: str) -> None:
    found, problems = properties(options)
    assert list(found) == (["a"] if "a: {}" in options else [])
    assert problems == ["spec: options must be a map from names to options; quote names such as on and 1"]


@pytest.mark.parametrize("option", ["{choices: }", "{choices: 5}", "{type: list, choices: }"])
def test_choices_without_a_value_restrict_nothing(option: str) -> None:
    assert "enum" not in str(properties(f"{{a: {option}}}"))


@pytest.mark.parametrize(
    "choices", ["[yes, no]", "[yes, no, auto]", "[on, true]", "[no, 'no']", "[no, 'off', auto]", "['yes', 'no']"]
)
def test_the_choices_of_text_in_the_schema_are_the_texts_that_ansible_accepts(choices: str) -> None:
    made, _ = properties(f"{{mode: {{choices: {choices}}}}}")
    specs = {"mode": {"choices": yaml.safe_load(choices)}}
    texts = ["True", "False", "true", "false", "yes", "no", "on", "off", "auto"]
    accepted = {text for text in texts if not ArgumentSpecValidator(specs).validate({"mode": text}).error_messages}
    quoted = {"True", "False"} if choices == "['yes', 'no']" else set()  # synonyms of a choice that is clear
    assert set(made["mode"]["enum"]) == accepted - quoted
