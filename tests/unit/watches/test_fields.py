from __future__ import annotations

from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from runner.app.features import FEATURE_FIELDS
from runner.core.watches import declared, policy
from runner.core.watches import watch as watches
from runner.core.watches.policy import FinalizerLimit, RetryPolicy, RunPolicy
from runner.core.watches.spec_paths import SpecPath, Wildcard
from runner.core.watches.watch import INPUTS, Playbook, Role, Watch
from runner.engines.warm.plugin import ENGINE
from runner.features.prune.fields import PRUNE_POLICY, PrunePolicy
from runner.features.references.fields import WatchReference, referring
from runner.features.unchanged.fields import SKIPS
from runner.values.backoff import Backoff
from runner.values.objects import GVK
from runner.values.slots import EMPTY
from tests.unit.watches.sample import HEAD, MEMCACHED, Errors, Load, One


class TestDefaults:
    def test_a_watch_needs_little_and_has_the_rest_by_default(self, one: One, project: Path) -> None:
        assert one() == Watch(
            gvk=GVK("cache.example.com", "v1alpha1", "Memcached"),
            content=Role("memcached", project / "roles/memcached"),
            vars={},
            finalizer=None,
            reconcile_period=None,
            min_reconcile_period=5.0,
            max_verbosity=7,
            manage_status=True,
            health_conditions=True,
            watch_dependent_resources=True,
            watch_cluster_scoped_resources=False,
            watch_dependent_status="auto",
            watch_annotations_changes=False,
            max_runner_artifacts=20,
            snake_case_parameters=True,
            snake_case_except=(),
            mark_unsafe=True,
            allow_ansible_variables=frozenset(),
            selector="",
            field_selector="",
            blacklist=frozenset(),
            own_namespace_only=False,
            owner_annotations=True,
            service_account="",
            policy=policy.DEFAULT,
            mode="apply",
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
  minReconcilePeriod: 1m
  maxVerbosity: 3
  manageStatus: false
  healthConditions: false
  watchDependentResources: false
  watchClusterScopedResources: true
  watchDependentStatus: true
  watchAnnotationsChanges: true
  maxRunnerArtifacts: 5
  snakeCaseParameters: true
  snakeCaseExcept: [spec.labels, "spec.a[*].env"]
  markUnsafe: false
  allowAnsibleVariables: [ansible_user]
  selector: {matchLabels: {app: cache}}
  fieldSelector: metadata.namespace=shop
  name: main
  blacklist:
    - {group: apps, version: v1, kind: Deployment}
    - {version: v1, kind: Secret}
  ownerAnnotations: false
  references:
    - {version: v1, kind: Secret, path: spec.password}
    - {group: apps, version: v1, kind: Deployment, name: web, namespace: shop}
    - {version: v1, kind: ConfigMap, selector: {matchLabels: {app: cache}}}
  serviceAccount: tools/narrow
  ownNamespaceOnly: true
  runTimeout: 20m
  onChange: cancel
  onDelete: cancel
  retry: {delay: 5s, factor: 1.5, maxDelay: 5m, attempts: 4}
  mode: apply
  skipUnchanged: true
  prune: {then: delete, kinds: [Secret]}
  engine: exec
  finalizer:
    name: cache.example.com/cleanup
    role: cleanup
    vars: {state: absent}
    limit: {attempts: 3, time: 1h, then: release}
"""
        loaded = load(text)
        assert loaded.warnings == ()
        assert loaded.watches == (
            Watch(
                gvk=GVK("", "v1", "ConfigMap"),
                content=Playbook(project / "playbooks/site.yml"),
                vars={"size": 3},
                finalizer=watches.Finalizer(
                    "cache.example.com/cleanup",
                    Role("cleanup", project / "roles/cleanup"),
                    {"state": "absent"},
                    FinalizerLimit(attempts=3, time=3600, release=True),
                ),
                reconcile_period=3723.5,
                min_reconcile_period=60,
                max_verbosity=3,
                manage_status=False,
                health_conditions=False,
                watch_dependent_resources=False,
                watch_cluster_scoped_resources=True,
                watch_dependent_status="all",
                watch_annotations_changes=True,
                max_runner_artifacts=5,
                snake_case_parameters=True,
                snake_case_except=(
                    SpecPath("spec.labels", ("labels",)),
                    SpecPath("spec.a[*].env", ("a", Wildcard.ITEM, "env")),
                ),
                mark_unsafe=False,
                allow_ansible_variables=frozenset({"ansible_user"}),
                selector="app=cache",
                field_selector="metadata.name=main,metadata.namespace=shop",
                blacklist=frozenset({GVK("apps", "v1", "Deployment"), GVK("", "v1", "Secret")}),
                own_namespace_only=True,
                owner_annotations=False,
                service_account="tools/narrow",
                policy=RunPolicy(
                    timeout=1200,
                    change_cancels=True,
                    deletion_cancels=True,
                    retry=RetryPolicy(Backoff(5, 1.5, 300), attempts=4),
                ),
                mode="apply",
                line=3,
                more=referring(
                    (
                        WatchReference(GVK("", "v1", "Secret"), SpecPath("spec.password", ("password",)), "", "", ""),
                        WatchReference(GVK("apps", "v1", "Deployment"), None, "web", "", "shop"),
                        WatchReference(GVK("", "v1", "ConfigMap"), None, "", "app=cache", ""),
                    ),
                    EMPTY.having(INPUTS, {"skip_unchanged": True})
                    .having(SKIPS, value=True)
                    .having(ENGINE, "exec")
                    .having(PRUNE_POLICY, PrunePolicy("delete", frozenset({"Secret"}))),
                ),
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
        assert watch.vars == {"list": (1, {"a": "b"})}


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

    @pytest.mark.parametrize("text", ["narrow", "tools/narrow", "a.b-c"])
    def test_a_service_account_is_a_name_perhaps_with_its_namespace(self, one: One, text: str) -> None:
        assert one(f"  serviceAccount: {text}\n").service_account == text

    def test_a_negative_period_is_off_with_a_warning(self, load: Load) -> None:
        loaded = load(f"{HEAD}  reconcilePeriod: -1m\n")
        assert loaded.watches[0].reconcile_period == 0
        assert "negative" in loaded.warnings[0]

    @pytest.mark.parametrize(
        ("text", "value"), [("true", True), ("yes", True), ("y", True), ("off", False), ("N", False)]
    )
    def test_booleans_are_those_of_yaml_1_1(self, one: One, text: str, *, value: bool) -> None:
        assert one(f"  watchAnnotationsChanges: {text}\n").watch_annotations_changes is value

    @pytest.mark.parametrize(("text", "kept"), [("0", 20), ("-1", -1), ("1", 1), ("0x10", 16)])
    def test_run_folders_are_counted_and_zero_means_the_default(self, one: One, text: str, kept: int) -> None:
        assert one(f"  maxRunnerArtifacts: {text}\n").max_runner_artifacts == kept

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
        assert one(rest).vars == {
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
            "deep": ({"a": (1, None)}, ()),
            "block": "two\nlines\n",
            "bytes": "hello",
        }

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


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("off", PrunePolicy("off")),
        ("false", PrunePolicy("off")),
        ("", PrunePolicy("off")),
        ("report", PrunePolicy("report")),
        ("Delete", PrunePolicy("delete")),
        ("{}", PrunePolicy("report")),
        ("{kinds: [Secret, Namespace]}", PrunePolicy("report", frozenset({"Secret", "Namespace"}))),
    ],
)
def test_prune_is_a_word_or_a_mapping(one: One, text: str, policy: PrunePolicy) -> None:
    assert one(f"  prune: {text}\n").more.get(PRUNE_POLICY) == policy


def test_prune_of_config_maps_needs_a_selector(errors: Errors, load: Load) -> None:
    text = "- version: v1\n  kind: ConfigMap\n  role: memcached\n  prune: report\n"
    (line,) = errors(text)
    assert "prune: the operator's own records are ConfigMaps too: set a selector" in line
    assert load(f"{text}  selector: {{matchLabels: {{a: b}}}}\n").watches[0].more.get(PRUNE_POLICY) == PrunePolicy(
        "report"
    )


def nested(path: str) -> str:
    """Return a watch's field as YAML in flow style: `rollout: {windows: [{days: x}]}` of `rollout.windows[].days`."""
    first, dot, rest = path.partition(".")
    name = first.removesuffix("[]")
    if not dot:
        return f"{name}: x"
    return f"{name}: [{{{nested(rest)}}}]" if name != first else f"{name}: {{{nested(rest)}}}"


@pytest.mark.parametrize("path", ["oldWay", "finalizer.oldWay", "references[].oldWay"])
def test_a_removed_field_is_one_error_with_advice(errors: Errors, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setitem(declared.REMOVED, path.lower(), "use newWay")
    found = errors(f"{HEAD}  {nested(path)}\n")
    named = path.replace("[]", "[0]")
    assert [each for each in found if "oldWay" in each] == [
        f"watches.yaml:5: {MEMCACHED}: {named}: was removed: use newWay"
    ]


@pytest.mark.parametrize("path", declared.REMOVED)
def test_each_removed_field_is_refused_in_any_case(errors: Errors, path: str) -> None:
    assert path not in {
        field.path.lower() for section in declared.with_features(FEATURE_FIELDS).values() for field in section
    }
    found = errors(f"{HEAD}  {nested(path)}\n")
    assert len([each for each in found if f"was removed: {declared.REMOVED[path]}" in each]) == 1
