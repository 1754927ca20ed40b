from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from runner.base.yamlfile import tree

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


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
