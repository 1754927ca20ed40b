from __future__ import annotations

import pytest

from runner.compatibility import conditions
from runner.compatibility.conditions import BOOLEAN, LIST, MAPPING, NOTHING, NUMBER, TEMPLATE, TEXT, UNKNOWN

VARIABLES = {"names": LIST, "secret": TEXT}


@pytest.mark.parametrize(
    ("condition", "source", "kind"),
    [
        ("names | length", "names | length", NUMBER),
        ("names", "names", LIST),
        ("secret", "secret", TEXT),
        ("x is defined and x | length", "x | length", NUMBER),
        ("size == 3 or found.resources", "found.resources", LIST),
        ("found['resources'][0]", "found['resources'][0]", MAPPING),
        ("result.stdout", "result.stdout", TEXT),
        ("result.rc", "result.rc", NUMBER),
        ("x | default('')", "x | default('')", TEXT),
        ("x | default([]) | length", "x | default([]) | length", NUMBER),
        ("x | default({})", "x | default({})", MAPPING),
        ("text | regex_search('a')", "text | regex_search('a')", TEXT),
        ("{{ names | length }}", "names | length", NUMBER),
        ("names | select('match', 'a') | list", "names | select('match', 'a') | list", LIST),
        ("a if b else ''", "''", TEXT),
        ("text.split(',')", "", LIST),
        ("query('k8s', kind='Pod')", "", LIST),
        ("size + 1", "", NUMBER),
        ("2 * 3", "", NUMBER),
        ("size - other", "", NUMBER),
        ("", "", NOTHING),
        ("x | default(none)", "x | default(None)", NOTHING),
        ("ready | ternary('yes', 'no')", "ready | ternary('yes', 'no')", TEXT),
        ("'http' in {{ kinds }} or x", "", TEMPLATE),
        ("{{ a }} and {{ b }}", "", TEMPLATE),
        ("this['resources'][0]['metadata']['labels']", "this['resources'][0]['metadata']['labels']", MAPPING),
        ("x | json_query('a[].b')", "x | json_query('a[].b')", LIST),
        ("  names |\n  length", "names | length", NUMBER),
        ("lookup('env', 'X')", "", TEXT),
        ("lookup('ansible.builtin.env', 'X') | trim", "", TEXT),
        ("lookup('k8s', kind='Pod')", "", "a mapping or a list"),
        ("lookup('file', 'a', wantlist=true)", "", LIST),
        ("image | regex_replace('a', 'b')", "image | regex_replace('a', 'b')", TEXT),
        ("x | mandatory | md5", "x | mandatory | md5", TEXT),
        ("ready and names | dict2items", "names | dict2items", LIST),
    ],
)
def test_a_condition_of_another_type_is_found_with_its_part(condition: str, source: str, kind: str) -> None:
    assert conditions.broken_part(condition, VARIABLES) == (source, kind)


@pytest.mark.parametrize(
    "condition",
    [
        "names | length > 0",
        "'a' + name",
        "'%s-1' % name",
        "name * 2",
        "'=' * 20",
        "first + second",
        "not names | length",
        "x is defined",
        "x is defined and x | bool",
        "enabled",
        "enabled | default(false)",
        "result is failed or result.changed",
        "'a' in names",
        "text.startswith('a')",
        "x | default(omit)",
        "(names | length) == (others | length)",
        "true",
        "ready | ternary(true, false)",
        "unknown_filter(x)",
        "names[0]",
        "x | json_query('a[?b] | [0]')",
        "x | json_query('a.b')",
        "'{{ names }}' == '[]'",
        "not a valid ( expression",
    ],
)
def test_a_boolean_condition_and_one_of_unknown_type_are_accepted(condition: str) -> None:
    assert conditions.broken_part(condition, VARIABLES) is None


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("x is defined and not y", BOOLEAN),
        ("x == 1 or 'a' in y", BOOLEAN),
        ("x | bool", BOOLEAN),
        ("result.changed", BOOLEAN),
        ("x.startswith('a')", BOOLEAN),
        ("true if x is defined else false", BOOLEAN),
        ("ready | ternary(true, false)", BOOLEAN),
        ("(x is defined) | mandatory", BOOLEAN),
        ("x", UNKNOWN),
        ("x | default(false)", UNKNOWN),
        ("x is defined and x", UNKNOWN),
        ("lookup('vars', 'x')", UNKNOWN),
        ("x | some_filter", UNKNOWN),
        ("not a valid ( expression", UNKNOWN),
    ],
)
def test_a_type_is_a_boolean_only_if_it_is_proven(expression: str, kind: str) -> None:
    assert conditions.type_of(expression, VARIABLES) == kind


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("{{ a == b }}", BOOLEAN),
        ("{{ secret }}", TEXT),
        ("{{ a }}{{ b }}", TEXT),
        ("{{ a and secret }}", TEXT),
        ("{{ a == b }}\n", BOOLEAN),
        ("{% set c = a %}{{ a == b }}", BOOLEAN),
        ("{{ a", UNKNOWN),
        (" {{ a == b }}", TEXT),
        ("{% if a %}true{% else %}false{% endif %}", TEXT),
        ("prefix-{{ a }}", TEXT),
        (True, BOOLEAN),
        ([], LIST),
        (object(), UNKNOWN),
    ],
)
def test_a_template_with_text_around_it_is_text(value: object, kind: str) -> None:
    assert conditions.type_of_template(value, VARIABLES) == kind
