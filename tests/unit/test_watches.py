from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from runner import watches, yamltree
from runner.errors import ConfigError
from runner.frozen import freeze, thaw
from runner.objects import GVK
from runner.watches import LoadedWatches, Playbook, Role, Watch

Load = Callable[..., LoadedWatches]

HEAD = """\
- group: cache.example.com
  version: v1alpha1
  kind: Memcached
"""
MEMCACHED = "cache.example.com/v1alpha1, Kind=Memcached"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for folder in ("roles/memcached", "roles/cleanup", "playbooks"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "playbooks/site.yml").write_text("[]\n")
    return tmp_path


@pytest.fixture
def load(project: Path) -> Load:
    def load_text(text: str | bytes, **environ: str) -> LoadedWatches:
        raw = text if isinstance(text, bytes) else text.encode()
        (project / "watches.yaml").write_bytes(raw)
        return watches.load(
            Path("watches.yaml"),
            environ={"HOME": str(project / "home"), **environ},
            cwd=project,
            roles_path="",
            collections_path="",
        )

    return load_text


@pytest.fixture
def one(load: Load) -> Callable[..., Watch]:
    def load_one(rest: str = "", **environ: str) -> Watch:
        loaded = load(f"{HEAD}  role: memcached\n{rest}", **environ)
        assert loaded.warnings == ()
        return loaded.watches[0]

    return load_one


@pytest.fixture
def errors(load: Load) -> Callable[..., list[str]]:
    def load_wrong(text: str | bytes, **environ: str) -> list[str]:
        with pytest.raises(ConfigError) as raised:
            load(text, **environ)
        return str(raised.value).splitlines()

    return load_wrong


One = Callable[..., Watch]
Errors = Callable[..., list[str]]


class TestDefaults:
    def test_a_watch_needs_little_and_has_the_rest_by_default(self, one: One, project: Path) -> None:
        assert one() == Watch(
            gvk=GVK("cache.example.com", "v1alpha1", "Memcached"),
            content=Role("memcached", project / "roles/memcached"),
            vars={},
            finalizer=None,
            reconcile_period=None,
            manage_status=True,
            watch_dependent_resources=True,
            watch_cluster_scoped_resources=False,
            watch_annotations_changes=False,
            max_runner_artifacts=20,
            snake_case_parameters=True,
            mark_unsafe=True,
            selector="",
            blacklist=frozenset(),
            line=1,
        )

    def test_an_empty_value_is_the_default(self, one: One) -> None:
        names = ("vars", "reconcilePeriod", "manageStatus", "maxRunnerArtifacts", "selector", "blacklist", "finalizer")
        assert one("".join(f"  {name}:\n" for name in names)) == one()

    def test_every_field_is_read(self, load: Load, project: Path) -> None:
        text = """\
---
# what this operator does
- version: v1
  kind: ConfigMap
  playbook: playbooks/site.yml
  vars: {size: 3}
  reconcilePeriod: 1h2m3.5s
  manageStatus: false
  watchDependentResources: false
  watchClusterScopedResources: true
  watchAnnotationsChanges: true
  maxRunnerArtifacts: 5
  snakeCaseParameters: false
  markUnsafe: false
  selector: {matchLabels: {app: cache}}
  blacklist:
    - {group: apps, version: v1, kind: Deployment}
    - {version: v1, kind: Secret}
  finalizer:
    name: cache.example.com/cleanup
    role: cleanup
    vars: {state: absent}
"""
        loaded = load(text)
        assert loaded.warnings == ()
        assert loaded.watches == (
            Watch(
                gvk=GVK("", "v1", "ConfigMap"),
                content=Playbook(project / "playbooks/site.yml"),
                vars={"size": 3},
                finalizer=watches.Finalizer(
                    "cache.example.com/cleanup", Role("cleanup", project / "roles/cleanup"), {"state": "absent"}
                ),
                reconcile_period=3723.5,
                manage_status=False,
                watch_dependent_resources=False,
                watch_cluster_scoped_resources=True,
                watch_annotations_changes=True,
                max_runner_artifacts=5,
                snake_case_parameters=False,
                mark_unsafe=False,
                selector="app=cache",
                blacklist=frozenset({GVK("apps", "v1", "Deployment"), GVK("", "v1", "Secret")}),
                line=3,
            ),
        )

    def test_field_names_match_without_regard_to_case(self, load: Load) -> None:
        text = "- Group: g.example.com\n  VERSION: v1\n  kind: K\n  Role: memcached\n  managestatus: false\n"
        watch = load(text).watches[0]
        assert (watch.gvk, watch.manage_status) == (GVK("g.example.com", "v1", "K"), False)

    def test_nothing_in_a_watch_can_be_changed(self, one: One) -> None:
        watch = one("  vars: {list: [1, {a: b}]}\n")
        with pytest.raises(FrozenInstanceError):
            watch.vars = {}  # type: ignore[misc]
        with pytest.raises(TypeError):
            watch.vars["list"][1]["a"] = "c"
        with pytest.raises(AttributeError):
            watch.vars["list"].append(2)
        assert thaw(watch.vars) == {"list": [1, {"a": "b"}]}


class TestTypes:
    @pytest.mark.parametrize(
        ("text", "seconds"),
        [
            ("0s", None),
            ("0", None),
            ('"0"', None),
            ("10m", 600),
            ('"1h"', 3600),
            ("off", 0),
            ('"Off"', 0),
            ("500ms", 0.5),
        ],
    )
    def test_a_reconcile_period_is_a_duration_or_off(self, one: One, text: str, seconds: float | None) -> None:
        assert one(f"  reconcilePeriod: {text}\n").reconcile_period == seconds

    @pytest.mark.parametrize("text", ["10", "1d", '""', "true", "[1m]", "soon"])
    def test_a_duration_that_does_not_parse_is_an_error(self, errors: Errors, text: str) -> None:
        (line,) = errors(f"{HEAD}  role: memcached\n  reconcilePeriod: {text}\n")
        assert line.startswith(f"watches.yaml:5: {MEMCACHED}: reconcilePeriod: ")

    def test_a_negative_period_is_off_with_a_warning(self, load: Load) -> None:
        loaded = load(f"{HEAD}  role: memcached\n  reconcilePeriod: -1m\n")
        assert loaded.watches[0].reconcile_period == 0
        assert "negative" in loaded.warnings[0]

    @pytest.mark.parametrize(
        ("text", "value"), [("true", True), ("yes", True), ("y", True), ("off", False), ("N", False)]
    )
    def test_booleans_are_those_of_yaml_1_1(self, one: One, text: str, value: bool) -> None:  # noqa: FBT001 - a case
        assert one(f"  watchAnnotationsChanges: {text}\n").watch_annotations_changes is value

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ('"true"', "is text ('true'); write true or false without quotes"),
            ("1", "is a number ('1'); write true or false"),
            ("maybe", "is text ('maybe'); write true or false"),
            ("[]", "is a list; write true or false"),
        ],
    )
    def test_what_is_no_boolean_is_an_error(self, errors: Errors, text: str, said: str) -> None:
        assert errors(f"{HEAD}  role: memcached\n  manageStatus: {text}\n") == [
            f"watches.yaml:5: {MEMCACHED}: manageStatus: {said}"
        ]

    @pytest.mark.parametrize(("text", "kept"), [("0", 20), ("-1", -1), ("1", 1), ("0x10", 16)])
    def test_run_folders_are_counted_and_zero_means_the_default(self, one: One, text: str, kept: int) -> None:
        assert one(f"  maxRunnerArtifacts: {text}\n").max_runner_artifacts == kept

    @pytest.mark.parametrize("text", ['"5"', "1.5", "true", "-2", "{}"])
    def test_what_is_no_count_of_run_folders_is_an_error(self, errors: Errors, text: str) -> None:
        (line,) = errors(f"{HEAD}  role: memcached\n  maxRunnerArtifacts: {text}\n")
        assert line.startswith(f"watches.yaml:5: {MEMCACHED}: maxRunnerArtifacts: ")

    def test_text_fields_take_any_scalar_as_it_is_written(self, load: Load) -> None:
        watch = load("- version: 1.10\n  kind: on\n  group: 007\n  role: memcached\n").watches[0]
        assert watch.gvk == GVK("007", "1.10", "on")

    def test_vars_may_hold_anything(self, one: One) -> None:
        rest = """\
  vars:
    text: a
    number: 1
    float: 1.5
    large: 1e22
    huge: 123456789012345678901234567890
    flag: yes
    nothing:
    date: 2020-01-01
    time: 12:30
    quoted: "007"
    "{{ odd }} key": "{{ kept }}"
    8080: port
    on: key
    deep: [{a: [1, null]}, []]
    block: |
      two
      lines
    bytes: !!binary aGVsbG8=
"""
        assert thaw(one(rest).vars) == {
            "text": "a",
            "number": 1,
            "float": 1.5,
            "large": 1e22,
            "huge": 123456789012345678901234567890.0,
            "flag": True,
            "nothing": None,
            "date": "2020-01-01",
            "time": "12:30",
            "quoted": "007",
            "{{ odd }} key": "{{ kept }}",
            "8080": "port",
            "on": "key",
            "deep": [{"a": [1, None]}, []],
            "block": "two\nlines\n",
            "bytes": "hello",
        }

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("[1]", "is a list; write a mapping"),
            ("text", "is text ('text'); write a mapping"),
            ("{a: .inf}", "JSON has no number"),
            ("{[1]: a}", "has a list as a key"),
            ("&a {b: *a}", "contains itself"),
            ("{a: !!binary /w==}", "no text"),
            ("{<<: 1}", "`<<` takes a mapping"),
            ('"\\ud800"', "write a mapping"),
            ('{a: "\\ud800"}', "holds half a character"),
        ],
    )
    def test_vars_that_cannot_be_passed_on_are_an_error(self, errors: Errors, text: str, said: str) -> None:
        (line,) = errors(f"{HEAD}  role: memcached\n  vars: {text}\n")
        assert line.startswith(f"watches.yaml:5: {MEMCACHED}: vars: ")
        assert said in line

    def test_anchors_and_merges_work_across_watches(self, load: Load) -> None:
        text = """\
- &base
  version: v1
  kind: A
  role: memcached
  vars: &vars {a: 1, b: 2}
- <<: *base
  kind: B
  vars: {<<: *vars, b: 3}
"""
        first, second = load(text).watches
        assert (second.gvk, second.content) == (GVK("", "v1", "B"), first.content)
        assert second.vars == {"a": 1, "b": 3}


class TestEnvironment:
    def test_both_spellings_of_a_variable_are_replaced_by_values_of_any_type(self, one: One) -> None:
        rest = (
            "  manageStatus: ${MANAGE}\n  maxRunnerArtifacts: $KEEP\n  vars: {a: ${A}, b: '${A}', c: ${MAP}, ${K}: 1}\n"
        )
        watch = one(rest, MANAGE="false", KEEP="3", A="1", MAP="{x: [y]}", K="key")
        assert (watch.manage_status, watch.max_runner_artifacts) == (False, 3)
        assert thaw(watch.vars) == {"a": 1, "b": "1", "c": {"x": ["y"]}, "key": 1}

    def test_a_variable_that_is_not_set_stays_as_it_is_written(self, one: One) -> None:
        rest = "  vars:\n    a: ${NOT_SET}/x\n    b: $NOT_SET\n    c: cost $5, 100$ and $\n    d: ${}\n"
        assert thaw(one(rest).vars) == {"a": "${NOT_SET}/x", "b": "$NOT_SET", "c": "cost $5, 100$ and $", "d": "${}"}

    def test_a_variable_that_is_empty_leaves_the_default(self, one: One) -> None:
        assert one("  manageStatus: ${EMPTY}\n", EMPTY="").manage_status is True

    def test_an_error_names_a_variable_that_is_not_set(self, errors: Errors) -> None:
        lines = errors(f"{HEAD}  role: ${{ROLE}}\n  manageStatus: $MANAGE\n")
        assert lines[0].endswith("(not set in the environment: ROLE)")
        assert lines[1].endswith("(not set in the environment: MANAGE)")

    def test_lines_are_those_of_the_file_also_below_a_value_of_several_lines(self, errors: Errors) -> None:
        text = f"{HEAD}  role: memcached\n  vars: {{a: $LINES}}\n  manageStatus: 5\n- kind: X\n"
        lines = errors(text, LINES="[1,\n      2,\n      3\n      ]")
        assert [line.split(":")[1] for line in lines] == ["6", "7", "7"]

    def test_a_syntax_error_made_by_a_variable_names_it_and_the_line_of_the_file(self, errors: Errors) -> None:
        (line,) = errors(f"{HEAD}  role: $ROLE\n", ROLE="[")
        assert line.startswith("watches.yaml:4: not valid YAML")
        assert "ROLE was replaced from the environment" in line
        (line,) = errors(f"{HEAD}  vars: {{a: ${{A}}}}\n")
        assert line.endswith("(not set in the environment: A)")


class TestContent:
    def test_the_playbook_wins_over_the_role_with_a_warning(self, load: Load, project: Path) -> None:
        loaded = load(f"{HEAD}  role: nowhere\n  playbook: playbooks/site.yml\n")
        assert loaded.watches[0].content == Playbook(project / "playbooks/site.yml")
        assert loaded.warnings == (
            f"watches.yaml:4: {MEMCACHED}: role: role and playbook are both given: the playbook runs; remove the other",
        )

    def test_a_playbook_may_have_an_absolute_path(self, load: Load, project: Path) -> None:
        path = project / "playbooks/site.yml"
        assert load(f"{HEAD}  playbook: {path}\n").watches[0].content == Playbook(path)

    def test_a_missing_role_names_every_place_that_was_tried(self, project: Path) -> None:
        (project / "watches.yaml").write_text(f"{HEAD}  role: nowhere\n")
        with pytest.raises(ConfigError) as raised:
            watches.load(Path("watches.yaml"), environ={}, cwd=project, roles_path="/a:b", collections_path="")
        assert str(raised.value) == (
            f"watches.yaml:4: {MEMCACHED}: role: 'nowhere' was not found; tried /a/nowhere, /a/roles/nowhere, "
            f"{project}/b/nowhere, {project}/b/roles/nowhere, {project}/roles/nowhere"
        )

    def test_a_missing_playbook_names_its_path(self, errors: Errors, project: Path) -> None:
        assert errors(f"{HEAD}  playbook: nowhere.yml\n") == [
            f"watches.yaml:4: {MEMCACHED}: playbook: 'nowhere.yml' was not found; tried {project}/nowhere.yml"
        ]

    def test_neither_role_nor_playbook_is_an_error(self, errors: Errors) -> None:
        assert errors(HEAD) == [f"watches.yaml:1: {MEMCACHED}: has neither role nor playbook; write one of them"]


class TestFinalizer:
    def test_vars_alone_run_the_watchs_own_role(self, one: One) -> None:
        watch = one("  finalizer: {name: example.com/f, vars: {state: absent}}\n")
        assert watch.finalizer is not None
        assert watch.finalizer.content == watch.content
        assert watch.finalizer.vars == {"state": "absent"}

    def test_a_playbook_of_its_own_wins_over_its_role_with_a_warning(self, load: Load, project: Path) -> None:
        finalizer = "{name: example.com/f, role: cleanup, playbook: playbooks/site.yml}"
        loaded = load(f"{HEAD}  role: memcached\n  finalizer: {finalizer}\n")
        found = loaded.watches[0].finalizer
        assert found is not None
        assert found.content == Playbook(project / "playbooks/site.yml")
        assert f"{MEMCACHED}: finalizer.role: role and playbook are both given" in loaded.warnings[0]

    @pytest.mark.parametrize(
        ("finalizer", "said"),
        [
            ("{role: cleanup}", "finalizer.name: is missing or empty"),
            ("{name: '', role: cleanup}", "finalizer.name: is missing or empty"),
            ("{name: a b, role: cleanup}", "finalizer.name: 'a b' is not valid"),
            ("{name: example.com/f}", "finalizer: has nothing to run"),
            ("{name: example.com/f, vars: {}}", "finalizer: has nothing to run"),
            ("{name: example.com/f, role: nowhere}", "finalizer.role: 'nowhere' was not found; tried"),
            ("{name: example.com/f, playbook: no.yml}", "finalizer.playbook: 'no.yml' was not found; tried"),
            ("{name: example.com/f, vars: [1]}", "finalizer.vars: is a list"),
            ("example.com/f", "finalizer: is text ('example.com/f'); write a mapping with name, role, playbook, vars"),
        ],
    )
    def test_a_finalizer_that_cannot_run_is_one_error(self, errors: Errors, finalizer: str, said: str) -> None:
        (line,) = errors(f"{HEAD}  role: memcached\n  finalizer: {finalizer}\n")
        assert line.startswith(f"watches.yaml:5: {MEMCACHED}: {said}")


class TestSelector:
    def test_labels_and_expressions_become_one_string(self, one: One) -> None:
        rest = """\
  selector:
    matchLabels: {app.kubernetes.io/name: cache, ready: true}
    matchExpressions:
      - {key: tier, operator: In, values: [front, back]}
      - {key: zone, operator: NotIn, values: [a]}
      - {key: owner, operator: Exists}
      - {key: paused, operator: DoesNotExist, values: []}
"""
        assert one(rest).selector == (
            "!paused,app.kubernetes.io/name=cache,owner,ready=true,tier in (back,front),zone notin (a)"
        )

    def test_an_empty_selector_selects_everything(self, one: One) -> None:
        assert not one("  selector: {}\n").selector

    @pytest.mark.parametrize(
        ("selector", "said"),
        [
            ("app=cache", "selector: is text"),
            ("{matchLabels: [a]}", "selector.matchLabels: is a list"),
            ("{matchLabels: {a: [b]}}", "selector.matchLabels: holds more than text"),
            ("{matchLabels: {a b: c}}", "selector.matchLabels: 'a b' is not valid"),
            ("{matchLabels: {a: -c}}", "selector.matchLabels: '-c' is no label value"),
            ("{matchExpressions: {a: b}}", "selector.matchExpressions: is a mapping"),
            ("{matchExpressions: [a]}", "selector.matchExpressions[0]: is text"),
            ("{matchExpressions: [{operator: Exists}]}", "selector.matchExpressions[0].key: is missing"),
            (
                "{matchExpressions: [{key: a, operator: in, values: [b]}]}",
                "selector.matchExpressions[0].operator: 'in' is",
            ),
            ("{matchExpressions: [{key: a, operator: In}]}", "selector.matchExpressions[0].values: is missing"),
            (
                "{matchExpressions: [{key: a, operator: Exists, values: [b]}]}",
                "selector.matchExpressions[0].values: Exists",
            ),
            (
                "{matchExpressions: [{key: a, operator: In, values: [b c]}]}",
                "selector.matchExpressions[0].values: 'b c'",
            ),
        ],
    )
    def test_a_selector_the_api_server_would_refuse_is_an_error(self, errors: Errors, selector: str, said: str) -> None:
        (line,) = errors(f"{HEAD}  role: memcached\n  selector: {selector}\n")
        assert line.startswith(f"watches.yaml:5: {MEMCACHED}: {said}")


class TestWholeFile:
    def test_all_errors_are_told_at_once_in_the_order_of_the_file(self, errors: Errors) -> None:
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
        assert lines[2].endswith("blacklist[0]: is a number; write a mapping with group, version, kind")
        assert lines[3].endswith("kind: this kind has a watch already, in line 1; a kind has one watch")
        assert "watch 3: kind: is missing or empty" in lines[4]
        assert "watch 3: version: is a list" in lines[5]
        assert "watch 4: is text" in lines[6]

    @pytest.mark.parametrize("missing", ["version", "kind"])
    def test_version_and_kind_may_not_be_empty(self, errors: Errors, missing: str) -> None:
        fields = {"version": "v1", "kind": "K", "role": "memcached"} | {missing: ""}
        (line,) = errors(yaml.safe_dump([fields]))
        assert f"watch 1: {missing}: is missing or empty" in line

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("", "watches.yaml: is empty; write a list of watches"),
            ("# only a comment\n", "watches.yaml: is empty"),
            ("---\n", "watches.yaml:1: is nothing; write a list"),
            ("a: b\n", "watches.yaml:1: is a mapping; write a list"),
            ("\n\ntext\n", "watches.yaml:3: is text; write a list"),
            ("- a: 1\n b: 2\n", "watches.yaml:2: not valid YAML: "),
            ("- a: [1\n- b\n", "watches.yaml:2: not valid YAML: "),
            ("- *nobody\n", "watches.yaml:1: not valid YAML: found undefined alias"),
            ("- \x01\n", "watches.yaml: not valid YAML: "),
        ],
    )
    def test_a_file_that_is_no_list_or_no_yaml_is_an_error(self, errors: Errors, text: str, said: str) -> None:
        (line,) = errors(text)
        assert line.startswith(said)

    def test_a_file_that_is_no_text_or_not_there_is_an_error(self, errors: Errors, project: Path) -> None:
        assert errors(b"\xff\xfe") == [
            "watches.yaml: not text in UTF-8 (invalid start byte at byte 0); save it as UTF-8"
        ]
        for path, said in ((Path("none.yaml"), "there is no such file"), (Path("roles"), "cannot be read")):
            with pytest.raises(ConfigError, match=f"{path}: {said}"):
                watches.load(path, environ={}, cwd=project, roles_path="", collections_path="")

    def test_a_byte_order_mark_and_windows_line_ends_are_accepted(self, load: Load) -> None:
        text = f"{HEAD}  role: memcached\n".replace("\n", "\r\n")
        assert load(b"\xef\xbb\xbf" + text.encode()).watches[0].gvk.kind == "Memcached"

    def test_an_empty_list_watches_nothing_and_says_so(self, load: Load) -> None:
        assert load("[]\n") == LoadedWatches((), ("watches.yaml:1: the list is empty, so nothing is watched",))

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            (
                "  manageStats: true\n",
                f"5: {MEMCACHED}: unknown field 'manageStats' is ignored; did you mean manageStatus?",
            ),
            ("  zzz: true\n", f"5: {MEMCACHED}: unknown field 'zzz' is ignored; known are group, "),
            ("  [a]: true\n", f"5: {MEMCACHED}: a list as a field's name is ignored"),
            ("  finalizer: {name: a, vars: {a: b}, x: y}\n", f"5: {MEMCACHED}: finalizer: unknown field 'x'"),
            ("  role: cleanup\n", "5: 'role' is given twice (first in line 4); this one counts"),
            ("  vars: {a: 1, a: 2}\n", "5: 'a' is given twice (first in line 5); this one counts"),
            ("  Role: cleanup\n", f"5: {MEMCACHED}: role: is also given in another spelling"),
            ("  blacklist: [{kind: Secret}]\n", f"5: {MEMCACHED}: blacklist[0]: matches nothing"),
            ("---\n- more\n", "6: a second document begins here; only the first is read"),
        ],
    )
    def test_what_is_odd_but_works_is_a_warning(self, load: Load, text: str, said: str) -> None:
        loaded = load(f"{HEAD}  role: memcached\n{text}")
        assert len(loaded.watches) == 1
        assert [line[: len("watches.yaml:") + len(said)] for line in loaded.warnings] == [f"watches.yaml:{said}"]

    def test_of_two_values_for_a_field_the_last_counts(self, load: Load) -> None:
        assert load(f"{HEAD}  role: nowhere\n  role: memcached\n").watches[0].content.path.name == "memcached"

    def test_a_group_no_api_can_have_is_a_warning(self, load: Load) -> None:
        loaded = load("- {group: example.com/v1, version: v1, kind: K, role: memcached}\n")
        assert "no API has the group 'example.com/v1'" in loaded.warnings[0]


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
    source = yamltree.expand("f", json.dumps(value), {})
    problems = yamltree.Problems()
    (root,) = yamltree.documents(source, problems)
    assert problems.errors == []
    assert yamltree.plain(root) == value


@given(JSON)
def test_what_is_frozen_thaws_to_what_it_was(value: Any) -> None:
    assert thaw(freeze(value)) == value


@given(st.text(), st.dictionaries(st.sampled_from(["A", "B"]), st.text()))
def test_expansion_keeps_a_line_of_the_file_for_each_line_of_the_result(text: str, environ: dict[str, str]) -> None:
    source = yamltree.expand("f", f"{text}$A\n${{B}}", environ)
    assert len(source.origins) >= len(source.text.splitlines())
    assert list(source.origins) == sorted(source.origins)


FIELD = st.sampled_from(
    (*watches._WATCH_FIELDS, "matchLabels", "matchExpressions", "key", "operator", "values", "name", "<<")
)
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(alphabet="ab1-./$: \n", max_size=6)
    | st.sampled_from(["In", "v1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELD, inner, max_size=6),
)


@given(st.lists(st.dictionaries(FIELD, ANYTHING, max_size=8), max_size=3), st.text(max_size=4))
def test_any_file_is_read_or_refused_with_a_line_for_each_error(entries: list[dict[str, Any]], noise: str) -> None:
    with TemporaryDirectory() as folder:
        (Path(folder) / "w.yaml").write_text(yaml.safe_dump(entries) + noise, encoding="utf-8")
        try:
            watches.load(Path("w.yaml"), environ={"a": "b"}, cwd=Path(folder), roles_path="", collections_path="")
        except ConfigError as error:
            wrong = [line for line in str(error).splitlines() if not line.startswith("w.yaml:")]
        else:
            wrong = []
    assert wrong == []
