from __future__ import annotations

from typing import Any

import pytest

from runner.sdk.schema import rules

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
