"""Edits of a YAML file keep its other lines, and a syntax error has its place."""

from __future__ import annotations

import difflib
import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.base.yamlfile import tree
from runner.base.yamlfile.edits import BlockDumper, Dumper, Loader, insert, put, replace, with_line_ends
from runner.values.errors import ConfigError

ITEM = "- new: 1\n  more: [2]\n"
RESOURCES = ("resources",)


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        pytest.param(
            "---\n# why\nresources:\n  - a.yaml # this\n  # that\nimages: []\n",
            RESOURCES,
            "---\n# why\nresources:\n  - a.yaml # this\n  - new: 1\n    more: [2]\n  # that\nimages: []\n",
            id="comments stay where they are",
        ),
        pytest.param(
            "resources:\n- a\n#+marker\nx: 1\n",
            RESOURCES,
            "resources:\n- a\n- new: 1\n  more: [2]\n#+marker\nx: 1\n",
            id="a list that is not indented",
        ),
        pytest.param("---\n", (), "---\n- new: 1\n  more: [2]\n", id="a document of nothing"),
        pytest.param("", (), "- new: 1\n  more: [2]\n", id="an empty file"),
        pytest.param(
            "# only a comment", RESOURCES, "# only a comment\nresources:\n  - new: 1\n    more: [2]\n", id="no such key"
        ),
        pytest.param("rules: []\nx: 1\n", ("rules",), "rules:\n  - new: 1\n    more: [2]\nx: 1\n", id="an empty list"),
        pytest.param("rules:\n# c\nx: 1\n", ("rules",), "rules:\n  - new: 1\n    more: [2]\n# c\nx: 1\n", id="a null"),
        pytest.param(
            "spec:\n  versions:\n    - name: v1\n      text: |\n        a\n\n        b\n  scope: C\n",
            ("spec", "versions"),
            "spec:\n  versions:\n    - name: v1\n      text: |\n        a\n\n        b\n"
            "    - new: 1\n      more: [2]\n  scope: C\n",
            id="behind a text of several lines",
        ),
        pytest.param(
            "- a: {b: [1,\n  2]}", (), "- a: {b: [1,\n  2]}\n- new: 1\n  more: [2]\n", id="no line break at the end"
        ),
    ],
)
def test_an_item_is_added_and_nothing_else_changes(text: str, path: tuple[str, ...], expected: str) -> None:
    assert insert(text, path, ITEM, file="f.yaml") == expected


def test_an_item_that_is_there_is_not_added_again() -> None:
    text = "resources: [{new: 1, more: [2]}]\n"
    assert insert(text, RESOURCES, ITEM, file="f.yaml") == text


@pytest.mark.parametrize(
    ("text", "path", "why"),
    [
        ("resources: [a]\n", RESOURCES, "f.yaml:1: cannot extend a list in flow style"),
        ("resources: a\n", RESOURCES, "f.yaml:1: not a list"),
        ("x: 1\n", (), "f.yaml:1: not a list"),
        ("x: 1\n", ("spec", "versions"), "f.yaml: list not found"),
        ("a: &l\n  - 1\nresources: *l\n", RESOURCES, "f.yaml: cannot edit the file without other changes"),
        ("a: 1\n---\nb: 1\n", RESOURCES, "f.yaml: contains several documents"),
    ],
)
def test_an_item_that_cannot_be_added_is_an_error_with_the_lines_to_add(
    text: str, path: tuple[str, ...], why: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        insert(text, path, ITEM, file="f.yaml")
    assert str(caught.value).startswith(why)
    assert str(caught.value).endswith(f"\n{ITEM}")


def test_invalid_yaml_is_an_error_with_its_line() -> None:
    with pytest.raises(ConfigError, match=r"f\.yaml:3: invalid YAML .*; fix the file first"):
        insert("resources:\n  - [a\n", RESOURCES, ITEM, file="f.yaml")


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1, max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.lengthy
@settings(max_examples=20)
@given(st.lists(_VALUES, max_size=3), _VALUES, st.integers(1, 4))
def test_whatever_the_list_holds_only_lines_are_added(held: list[object], behind: object, indent: int) -> None:
    document = {"resources": held, "z": behind}
    text = yaml.safe_dump(document, indent=indent + 1, sort_keys=True, default_flow_style=False)
    after = insert(text, RESOURCES, ITEM, file="f.yaml")
    assert yaml.safe_load(after) == {**document, "resources": [*held, {"new": 1, "more": [2]}]}
    lost = [line for line in difflib.ndiff(text.splitlines(), after.splitlines()) if line.startswith("- ")]
    assert lost == ([] if held else ["- resources: []"])


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("a:\n  b: 1\n", "a:\n  b: 1\n  c:\n    d: 2\n"),
        ("a:\n  b: 1  # why\n\n# end\n", "a:\n  b: 1  # why\n  c:\n    d: 2\n\n# end\n"),
        ("x: 1", "x: 1\na:\n  c:\n    d: 2\n"),
        ("a:\n  c:\n    d: 3\n", "a:\n  c:\n    d: 3\n"),
    ],
)
def test_a_value_is_added_at_the_end_of_its_mapping_and_other_lines_are_kept(text: str, after: str) -> None:
    assert put(text, ("a", "c", "d"), 2, file="f") == after


@pytest.mark.parametrize("text", ["a: {b: 1}\n", "a: 1\n", "- a\n"])
def test_a_value_that_has_no_place_is_to_be_put_by_hand(text: str) -> None:
    with pytest.raises(ConfigError, match="f: cannot edit the file; add this by hand"):
        put(text, ("a", "c", "d"), 2, file="f")


@pytest.mark.parametrize("depth", [0, 7, 14])
def test_replaced_lines_are_wrapped_at_any_depth(depth: int) -> None:
    text = "".join(f"{'  ' * level}level{level}:\n" for level in range(depth + 1)) + "  " * (depth + 1) + "a: 1\n"
    node = yaml.compose(text)
    for _ in range(depth + 1):
        assert isinstance(node, yaml.MappingNode)
        node = node.value[0][1]
    assert isinstance(node, yaml.MappingNode)
    after = replace(text, node, {"a": "a text of many words, which " * 20})
    assert max(map(len, after.splitlines())) <= 110


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@pytest.mark.lengthy
@given(JSON)
def test_any_json_comes_through_yaml_unchanged(value: Any) -> None:
    source = tree.expand("f", json.dumps(value), {})
    problems = tree.Problems()
    (root,) = tree.documents(source, problems)
    assert problems.errors == []
    assert tree.plain(root) == value


@given(st.text(), st.dictionaries(st.sampled_from(["A", "B"]), st.text()))
def test_expansion_keeps_a_line_of_the_file_for_each_line_of_the_result(text: str, environ: dict[str, str]) -> None:
    source = tree.expand("f", f"{text}$A\n${{B}}", environ)
    assert len(source.origins) >= len(source.text.splitlines())
    assert list(source.origins) == sorted(source.origins)


def test_a_report_has_errors_first_hints_last_and_each_message_once() -> None:
    problems = tree.Problems()
    problems.errors.append(tree.Problem("z.yml", 1, "", "broken"))
    problems.warnings += [tree.Problem("b.yml", line, "", "old name") for line in (9, 4, 4)]
    problems.warnings += [tree.Problem(f"{name}.yml", 2, "", "old name") for name in "cdefg"]
    problems.warnings += [
        tree.Problem("a.yml", 1, "", "unused", is_hint=True),
        tree.Problem("y.yml", 0, "kind", "other"),
    ]
    lines = [
        "z.yml:1: error: broken",
        "b.yml:4: {0}: old name (also in line 9, c.yml:2, d.yml:2, e.yml:2, f.yml:2, 1 more)",
        "y.yml: {0}: kind: other",
        "a.yml:1: {0}: unused",
    ]
    assert [line for _, line in problems.report(strict=False)] == [line.format("warning") for line in lines]
    assert problems.report(strict=True) == [("error", line.format("error")) for line in lines]


def test_a_place_without_a_line_has_no_line_0() -> None:
    problems = tree.Problems([tree.Problem(f"{name}.yml", 0, "", "not text") for name in "ab"])
    assert problems.report(strict=False) == [("error", "a.yml: error: not text (also in b.yml)")]


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


@pytest.mark.parametrize("dumper", [Dumper, BlockDumper])
@pytest.mark.parametrize("text", ["y", "N", "1e3", "1234e56", "-1.5E3", ".5", "08", "0o17", "1e3_0"])
def test_text_that_kubectl_would_read_as_another_type_is_quoted(dumper: type[yaml.SafeDumper], text: str) -> None:
    assert yaml.dump({text: text}, Dumper=dumper) == f"'{text}': '{text}'\n"


@pytest.mark.parametrize(
    ("written", "value"), [("1e+06", 1000000.0), ("0o17", 15), ("y", True), ("N", False), ("'1e3'", "1e3")]
)
def test_manifests_are_read_as_kubectl_reads_them(written: str, value: object) -> None:
    assert yaml.load(written, Loader) == value  # noqa: S506 - it is a safe loader


@pytest.mark.parametrize(
    ("original", "text", "expected"),
    [
        ("a\r\nb\r\n", "a\nx\nb\n", "a\r\nx\r\nb\r\n"),
        ("a\r\nb", "a\nb\nc\n", "a\r\nb\r\nc\r\n"),
        ("a\nb\r\nc\n", "a\nb\nx\n", "a\nb\r\nx\n"),
        ("a\n", "b\n", "b\n"),
        ("", "b\n", "b\n"),
    ],
)
def test_a_changed_text_keeps_the_line_ends_of_its_original(original: str, text: str, expected: str) -> None:
    assert with_line_ends(text, original) == expected
