"""Messages about YAML that does not parse: place, advice and the line."""

from __future__ import annotations

import pytest

from runner.base.yamlfile import tree

TABS = "indent with spaces, not with tabs"


@pytest.mark.parametrize(
    ("text", "place", "advice", "excerpt"),
    [
        ("a:\n\tb: 1\n", "f:2: column 1", TABS, ["→b: 1", "^"]),
        ("a:\n  b: 1\n \tc: 2\n", "f:3: column 2", TABS, [" →c: 2", " ^"]),
        ("a: b: c\n", "f:1: column 5", "quote a value that contains a colon and a space", ["a: b: c", "    ^"]),
        ("a: @x\n", "f:1: column 4", "quote a value that begins with this character", ["a: @x", "   ^"]),
        ("a: 'x\nb: 1\n", "f:1: column 4", "close the quote", ["a: 'x", "   ^"]),
        ("a: [1\nb: 2\n", "f:2: column 2", "close the bracket", ["b: 2", " ^"]),
        ('a: "x" y\n', "f:1: column 8", "check the indentation, and quotes", ['a: "x" y', "       ^"]),
        ("a: *x\n", "f:1: column 4", "quote a value that begins with *", ["a: *x", "   ^"]),
        ('a: "\\d"\n', "f:1: column 6", "write two backslashes", ['a: "\\d"', "     ^"]),
        ("b" * 99 + ": c: d\n", "f:1: column 103", "quote a value", ["b" * 33 + ": c: d", " " * 36 + "^"]),
        ("a: [\n", "f:1: column 1", "", []),
    ],
)
def test_a_syntax_error_shows_place_advice_and_the_line(text: str, place: str, advice: str, excerpt: list[str]) -> None:
    problems = tree.Problems()
    tree.documents(tree.expand("f", text, {}), problems)
    ((_, report),) = problems.report(strict=False)
    first, *shown = report.split("\n")
    assert first.startswith(place.replace(": column", ": error: invalid YAML in column") + f": {advice}")
    assert shown == [f"    {line}" for line in excerpt]


def test_the_line_of_a_syntax_error_has_no_control_characters() -> None:
    problems = tree.Problems()
    tree.documents(tree.expand("f", "a: b: \x9b31m\n", {}), problems)
    ((_, report),) = problems.report(strict=False)
    assert "\x9b" not in report
