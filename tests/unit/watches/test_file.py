"""Watches files, and values of fields that cannot be used: each is one error that names line and field."""

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


INVALID: dict[str, list[tuple[str, str]]] = {
    # An empty account does not mean the operator's own.
    "serviceAccount": [(text, "") for text in ("a/b/c", "/narrow", "tools/", "Narrow", "a.b/c", "a:b", "{name: a}")]
    + [(text, "") for text in ("", '""', "$EMPTY", "$UNSET")],
    "reconcilePeriod": [(text, "") for text in ("10", "1d", '""', "true", "[1m]", "soon")],
    "maxRunnerArtifacts": [(text, "") for text in ('"5"', "1.5", "true", "-2", "{}")],
    "manageStatus": [
        ('"true"', "found text ('true'), expected true or false without quotes"),
        ("1", "found a number ('1'), expected true or false"),
        ("maybe", "found text ('maybe'), expected true or false"),
        ("[]", "found a list, expected true or false"),
    ],
    "vars": [
        ("[1]", "found a list, expected a mapping"),
        ("text", "found text ('text'), expected a mapping"),
        ("{a: .inf}", "cannot be represented in JSON"),
        ("{[1]: a}", "invalid key: found a list"),
        ("&a {b: *a}", "contains itself"),
        ("{a: !!binary /w==}", "is not text"),
        ("{<<: 1}", "`<<` requires a mapping"),
        ('"\\ud800"', "expected a mapping"),
        ('{a: "\\ud800"}', "unpaired surrogate escape"),
        ("{a: !!bool x}", "invalid value 'x': it is not true or false"),
        ("{a: !!int ''}", "invalid value '': it is not a number"),
    ],
    "engine": [("fast", "invalid engine 'fast': use auto, warm or exec")],
    "ready": [("always", "invalid value 'always': use run or dependents")],
    "prune": [("always", "invalid value 'always': use off, report or delete")],
    "prune.then": [("remove", "invalid value 'remove': use off, report or delete")],
    "prune.kinds": [("[ConfigMap]", "invalid kind 'ConfigMap': use CustomResourceDefinition, Namespace, ")],
    "finalizer": [
        ("{name: example.com/f}", "nothing to run"),
        ("{name: example.com/f, vars: {}}", "nothing to run"),
        ("example.com/f", "found text ('example.com/f'), expected a mapping with name, role, playbook, vars"),
    ],
    "selector": [("app=cache", "found text")],
    "selector.matchLabels": [
        ("[a]", "found a list"),
        ("{a: [b]}", "expected a mapping of text to text"),
        ("{a b: c}", "invalid name 'a b'"),
        ("{a: -c}", "invalid label value '-c'"),
    ],
    "selector.matchExpressions": [("{a: b}", "found a mapping")],
    "fieldSelector": [
        ("", "empty: set a value"),
        ("main", "invalid field selector 'main': use path=value"),
        ("{metadata.name: a}", "found a mapping, expected text"),
    ],
    "name": [
        ("a/b", "invalid object name 'a/b': use the value"),
        ("${TENANT}", "(not set in the environment: TENANT)"),
        ("a,b", "invalid object name 'a,b'"),
        ("[a, b]", "found a list, expected text"),
        ("''", "empty: set a value, or remove the field to watch all objects"),
    ],
    "snakeCaseExcept": [
        ("spec.labels", "found text ('spec.labels'), expected a list"),
        ("[labels]", "invalid path 'labels': use a path in the spec such as spec.config.env"),
        ("['']", "invalid path ''"),
    ],
}


@pytest.mark.parametrize(
    ("field", "text", "message"), [(field, *case) for field, cases in INVALID.items() for case in cases]
)
def test_an_invalid_value_is_one_error_with_its_line_and_its_field(
    errors: Errors, field: str, text: str, message: str
) -> None:
    name, _, part = field.partition(".")
    (line,) = errors(f"{HEAD}  {name}: " + (f"{{{part}: {text}}}\n" if part else f"{text}\n"), EMPTY="")
    assert line.startswith(f"watches.yaml:5: {MEMCACHED}: {field}: ")
    assert message in line


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("finalizer: {role: cleanup}", "finalizer.name: missing or empty"),
        ("finalizer: {name: '', role: cleanup}", "finalizer.name: missing or empty"),
        ("finalizer: {name: a b, role: cleanup}", "finalizer.name: invalid name 'a b'"),
        ("finalizer: {name: example.com/f, role: nowhere}", "finalizer.role: 'nowhere' not found; searched"),
        ("finalizer: {name: example.com/f, playbook: no.yml}", "finalizer.playbook: 'no.yml' not found; searched"),
        ("finalizer: {name: example.com/f, vars: [1]}", "finalizer.vars: found a list"),
        ("snakeCaseExcept: [[spec.a]]", "snakeCaseExcept[0]: found a list, expected text"),
        ("fieldSelector: metadata.name=a\n  name: a", "name: fieldSelector also contains metadata.name"),
    ],
)
def test_a_value_that_cannot_be_used_with_others_is_one_error(errors: Errors, rest: str, message: str) -> None:
    (line,) = errors(f"{HEAD}  {rest}\n")
    assert f"{MEMCACHED}: {message}" in line


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("a", ": found text"),
        ("{operator: Exists}", ".key: missing or empty"),
        ("{key: a, operator: in, values: [b]}", ".operator: invalid operator 'in'"),
        ("{key: a, operator: In}", ".values: missing or empty"),
        ("{key: a, operator: Exists, values: [b]}", ".values: Exists"),
        ("{key: a, operator: In, values: [b c]}", ".values: invalid label value 'b c'"),
    ],
)
def test_an_expression_that_the_api_server_would_refuse_is_an_error(errors: Errors, item: str, message: str) -> None:
    (line,) = errors(f"{HEAD}  selector: {{matchExpressions: [{item}]}}\n")
    assert line.startswith(f"watches.yaml:5: {MEMCACHED}: selector.matchExpressions[0]{message}")


@pytest.mark.parametrize("group", ["", "apps", "rbac.authorization.k8s.io"])
def test_a_finalizer_that_the_api_server_refuses_for_its_own_kinds_is_an_error(errors: Errors, group: str) -> None:
    finalizer = {"name": "finalizer.tenants.example.com", "role": "cleanup"}
    entry = {"group": group, "version": "v1", "kind": "Thing", "role": "memcached", "finalizer": finalizer}
    (line,) = errors(yaml.safe_dump([entry]))
    assert "finalizer.name: the API server refuses 'finalizer.tenants.example.com' without a domain" in line


@pytest.mark.parametrize("group", ["example.com", "gateway.networking.k8s.io"])
def test_a_finalizer_of_a_custom_resource_needs_no_domain(load: Load, group: str) -> None:
    finalizer = {"name": "finalizer.tenants.example.com", "role": "cleanup"}
    entry = {"group": group, "version": "v1", "kind": "Thing", "role": "memcached", "finalizer": finalizer}
    assert load(yaml.safe_dump([entry])).warnings == ()


def test_a_kind_is_watched_in_one_version(errors: Errors) -> None:
    (line,) = errors(f"{HEAD}  role: memcached\n{HEAD.replace('v1alpha1', 'v1')}  role: memcached\n")
    assert line.startswith("watches.yaml:")
    assert "version: the kind is watched in version v1alpha1 (line 1), and each object has all versions" in line


def test_a_variable_with_bytes_that_are_not_utf_8_is_an_error_of_its_line(errors: Errors) -> None:
    (line,) = errors(f"{HEAD}  vars: {{a: $BYTES}}\n", BYTES="\udcff")
    assert "invalid YAML: unacceptable character" in line


def test_labels_can_be_merged_from_an_anchor(load: Load) -> None:
    text = f"{HEAD}  vars: &labels {{tier: gold}}\n  selector: {{matchLabels: {{<<: *labels, app: cache}}}}\n"
    assert load(text).watches[0].selector == "app=cache,tier=gold"
