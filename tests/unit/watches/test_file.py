from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from runner.app.features import FEATURE_FIELDS
from runner.core.watches import declared
from runner.core.watches import watch as watches
from runner.core.watches.watch import LoadedWatches
from runner.values.errors import ConfigError
from tests.unit.watches.sample import HEAD, KIND, MEMCACHED, Errors, Load, One


class TestEnvironment:
    def test_both_spellings_of_a_variable_are_replaced_by_values_of_any_type(self, one: One) -> None:
        rest = (
            "  manageStatus: ${MANAGE}\n  maxRunnerArtifacts: $KEEP\n  vars: {a: ${A}, b: '${A}', c: ${MAP}, ${K}: 1}\n"
        )
        watch = one(rest, MANAGE="false", KEEP="3", A="1", MAP="{x: [y]}", K="key")
        assert (watch.manage_status, watch.max_runner_artifacts) == (False, 3)
        assert watch.vars == {"a": 1, "b": "1", "c": {"x": ("y",)}, "key": 1}

    def test_a_variable_that_is_not_set_stays_as_it_is_written(self, one: One) -> None:
        rest = "  vars:\n    a: ${NOT_SET}/x\n    b: $NOT_SET\n    c: cost $5, 100$ and $\n    d: ${}\n"
        assert one(rest).vars == {"a": "${NOT_SET}/x", "b": "$NOT_SET", "c": "cost $5, 100$ and $", "d": "${}"}

    def test_a_variable_that_is_empty_leaves_the_default(self, one: One) -> None:
        assert one("  manageStatus: ${EMPTY}\n", EMPTY="").manage_status is True

    def test_an_error_names_a_variable_that_is_not_set(self, errors: Errors) -> None:
        lines = errors(f"{KIND}  role: ${{ROLE}}\n  manageStatus: $MANAGE\n")
        assert lines[0].endswith("(not set in the environment: ROLE)")
        assert lines[1].endswith("(not set in the environment: MANAGE)")

    def test_lines_are_those_of_the_file_also_below_a_value_of_several_lines(self, errors: Errors) -> None:
        text = f"{HEAD}  vars: {{a: $LINES}}\n  manageStatus: 5\n- kind: X\n"
        lines = errors(text, LINES="[1,\n      2,\n      3\n      ]")
        assert [line.split(":")[1] for line in lines] == ["6", "7", "7"]

    def test_a_syntax_error_made_by_a_variable_names_it_and_the_line_of_the_file(self, errors: Errors) -> None:
        (line,) = errors(f"{KIND}  role: $ROLE\n", ROLE="[")
        assert line.startswith("watches.yaml:4: invalid YAML")
        assert "after expansion of ROLE from the environment" in line
        (line,) = errors(f"{KIND}  vars: {{a: ${{A}}}}\n")
        assert line.endswith("(not set in the environment: A)")


class TestWholeFile:
    def test_all_errors_are_reported_at_once_in_the_order_of_the_file(self, errors: Errors) -> None:
        text = """\
- group: cache.example.com
  version: v1alpha1
  kind: Memcached
  role: nowhere
  manageStatus: perhaps
  blacklist: [5]
- group: cache.example.com
  version: v1alpha1
  kind: Memcached
  role: memcached
- kind: ""
  version: [v1]
  role: memcached
- just text
"""
        lines = errors(text)
        assert [line.partition(": ")[0] for line in lines] == [
            f"watches.yaml:{number}" for number in (4, 5, 6, 9, 11, 12, 14)
        ]
        assert lines[2].endswith("blacklist[0]: found a number, expected a mapping with group, version, kind")
        assert lines[3].endswith("kind: duplicate watch of this kind (first in line 1); remove one of them")
        assert "watch 3: kind: missing or empty" in lines[4]
        assert "watch 3: version: found a list" in lines[5]
        assert "watch 4: found text" in lines[6]

    @pytest.mark.parametrize("missing", ["version", "kind"])
    def test_version_and_kind_may_not_be_empty(self, errors: Errors, missing: str) -> None:
        fields = {"version": "v1", "kind": "K", "role": "memcached"} | {missing: ""}
        (line,) = errors(yaml.safe_dump([fields]))
        assert f"watch 1: {missing}: missing or empty" in line

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "watches.yaml: file is empty: expected a list of watches"),
            ("# only a comment\n", "watches.yaml: file is empty"),
            ("---\n", "watches.yaml:1: found nothing, expected a list"),
            ("a: b\n", "watches.yaml:1: found a mapping, expected a list"),
            ("\n\ntext\n", "watches.yaml:3: found text, expected a list"),
            ("- a: 1\n b: 2\n", "watches.yaml:2: invalid YAML in column 2: check the indentation"),
            ("- a: [1\n- b\n", "watches.yaml:2: invalid YAML in column 1: "),
            (
                "- *unknown\n",
                "watches.yaml:1: invalid YAML in column 3: quote a value that begins with * or & ",
            ),
            ("- \x01\n", "watches.yaml: invalid YAML: "),
            ("[" * 700, "watches.yaml: invalid YAML: nested too deeply"),
        ],
    )
    def test_a_file_that_is_not_a_yaml_list_is_an_error(self, errors: Errors, text: str, message: str) -> None:
        (line,) = errors(text)
        assert line.startswith(message)

    def test_a_missing_or_binary_file_is_an_error(self, errors: Errors, project: Path) -> None:
        assert errors(b"\xff\xfe") == [
            "watches.yaml: invalid UTF-8 (invalid start byte at byte 0); save the file as UTF-8"
        ]
        for path, message in ((Path("none.yaml"), "file not found"), (Path("roles"), "cannot read the file")):
            with pytest.raises(ConfigError, match=f"{path}: {message}"):
                watches.load(path, environ={}, cwd=project, roles_path="", collections_path="", features=FEATURE_FIELDS)

    def test_a_byte_order_mark_and_windows_line_ends_are_accepted(self, load: Load) -> None:
        text = HEAD.replace("\n", "\r\n")
        assert load(b"\xef\xbb\xbf" + text.encode()).watches[0].gvk.kind == "Memcached"

    def test_an_empty_list_is_accepted_with_a_warning(self, load: Load) -> None:
        assert load("[]\n") == LoadedWatches((), ("watches.yaml:1: the list is empty: the operator watches nothing",))

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (
                "  manageStats: true\n",
                f"5: {MEMCACHED}: unknown field 'manageStats' is ignored; did you mean manageStatus?",
            ),
            ("  zzz: true\n", f"5: {MEMCACHED}: unknown field 'zzz' is ignored; known fields: group, "),
            ("  [a]: true\n", f"5: {MEMCACHED}: a list as a field name is ignored"),
            ("  finalizer: {name: a, vars: {a: b}, x: y}\n", f"5: {MEMCACHED}: finalizer: unknown field 'x'"),
            ("  role: cleanup\n", "5: duplicate key 'role' (first in line 4); the last value is used"),
            ("  vars: {a: 1, a: 2}\n", "5: duplicate key 'a' (first in line 5); the last value is used"),
            ("  Role: cleanup\n", f"5: {MEMCACHED}: role: duplicate field in different case"),
            ("  blacklist: [{kind: Secret}]\n", f"5: {MEMCACHED}: blacklist[0]: matches nothing"),
            ("---\n- more\n", "6: only the first document of the file is used"),
        ],
    )
    def test_questionable_fields_that_work_are_a_warning(self, load: Load, text: str, message: str) -> None:
        loaded = load(f"{HEAD}{text}")
        assert len(loaded.watches) == 1
        assert [line[: len("watches.yaml:") + len(message)] for line in loaded.warnings] == [f"watches.yaml:{message}"]

    def test_the_last_of_two_values_for_a_field_is_used(self, load: Load) -> None:
        assert load(f"{KIND}  role: nowhere\n  role: memcached\n").watches[0].content.path.name == "memcached"

    def test_a_group_no_api_can_have_is_a_warning(self, load: Load) -> None:
        loaded = load("- {group: example.com/v1, version: v1, kind: K, role: memcached}\n")
        assert "invalid group 'example.com/v1'" in loaded.warnings[0]


NAMES = [each.name for each in declared.with_features(FEATURE_FIELDS)[""]]
FIELD = st.sampled_from((*NAMES, "matchLabels", "matchExpressions", "key", "operator", "values", "name", "<<"))
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(alphabet="ab1-./$: \n", max_size=6)
    | st.sampled_from(["In", "v1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELD, inner, max_size=6),
)


@pytest.mark.lengthy
@given(st.lists(st.dictionaries(FIELD, ANYTHING, max_size=8), max_size=3), st.text(max_size=4))
def test_any_file_is_read_or_refused_with_a_line_for_each_error(entries: list[dict[str, Any]], noise: str) -> None:
    with TemporaryDirectory() as folder:
        (Path(folder) / "w.yaml").write_text(yaml.safe_dump(entries) + noise, encoding="utf-8")
        try:
            watches.load(
                Path("w.yaml"),
                environ={"a": "b"},
                cwd=Path(folder),
                roles_path="",
                collections_path="",
                features=FEATURE_FIELDS,
            )
        except ConfigError as error:
            wrong = [line for line in str(error).splitlines() if not line.startswith("w.yaml:")]
        else:
            wrong = []
    assert wrong == []
