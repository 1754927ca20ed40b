from __future__ import annotations

import pytest

from runner.compatibility import conditions
from runner.compatibility.conditions import LIST, MAPPING, NOTHING, NUMBER, TEMPLATE, TEXT

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
        ("", "", NOTHING),
        ("x | default(none)", "x | default(None)", NOTHING),
        ("ready | ternary('yes', 'no')", "ready | ternary('yes', 'no')", TEXT),
        ("'http' in {{ kinds }} or x", "", TEMPLATE),
        ("{{ a }} and {{ b }}", "", TEMPLATE),
        ("this['resources'][0]['metadata']['labels']", "this['resources'][0]['metadata']['labels']", MAPPING),
        ("x | json_query('a[].b')", "x | json_query('a[].b')", LIST),
        ("  names |\n  length", "names | length", NUMBER),
    ],
)
def test_a_condition_of_another_type_is_found_with_its_part(condition: str, source: str, kind: str) -> None:
    assert conditions.broken_part(condition, VARIABLES) == (source, kind)


@pytest.mark.parametrize(
    "condition",
    [
        "names | length > 0",
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
