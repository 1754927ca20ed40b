"""Fields of a watch about runs in pods, and watches of kinds of which the operator has objects of its own."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace

import pytest

from runner.base.config import sources
from runner.engines.pod.fields import POD_POLICY, PodPolicy
from runner.engines.pod.plugin import PLUGIN
from runner.values.objects import GVK
from tests.kit.watch_values import watch_value
from tests.unit.watches.sample import HEAD, Errors, Load


def test_runs_are_processes_by_default(load: Load) -> None:
    for text in (HEAD, f"{HEAD}  isolation: process\n"):
        assert load(text).watches[0].more.get(POD_POLICY) is None


def test_a_template_has_the_fields_of_a_pod_and_of_its_container(load: Load) -> None:
    loaded = load(
        f"""{HEAD}  isolation: pod
  maxPods: 3
  warmPods: 2
  podTemplate:
    image: example.com/ee:1
    imagePullSecrets: [mirror, {{name: other}}]
    resources: {{limits: {{memory: 512Mi}}}}
    nodeSelector: {{pool: ansible}}
    tolerations: [{{key: ansible, operator: Exists}}]
    env: [{{name: HTTP_PROXY, value: "http://proxy.example.com"}}]
    serviceAccountName: runs
    ttlSecondsAfterFinished: 120
"""
    )
    assert loaded.warnings == ()
    assert loaded.watches[0].more.get(POD_POLICY) == PodPolicy(
        most=3,
        pod={
            "imagePullSecrets": [{"name": "mirror"}, {"name": "other"}],
            "serviceAccountName": "runs",
            "nodeSelector": {"pool": "ansible"},
            "tolerations": [{"key": "ansible", "operator": "Exists"}],
        },
        container={
            "image": "example.com/ee:1",
            "resources": {"limits": {"memory": "512Mi"}},
            "env": [{"name": "HTTP_PROXY", "value": "http://proxy.example.com"}],
        },
        ttl=120,
        warm=2,
    )


def test_fields_without_effect_are_errors(errors: Errors) -> None:
    (error,) = errors(f"{HEAD}  podTemplate: {{image: example.com/ee:1}}\n")
    assert "podTemplate: no effect without isolation: pod" in error


def test_an_image_is_required(errors: Errors) -> None:
    (missing,) = errors(f"{HEAD}  isolation: pod\n")
    assert "podTemplate: missing: set podTemplate.image" in missing
    (empty,) = errors(f"{HEAD}  isolation: pod\n  podTemplate: {{}}\n")
    assert "podTemplate.image: missing or empty" in empty


def test_wrong_values_name_the_field_and_what_is_expected(errors: Errors) -> None:
    found = errors(
        f"{HEAD}  isolation: container\n"
        "- {version: v1, kind: Other, role: cleanup, isolation: pod, maxPods: 0, "
        "warmPods: -1, podTemplate: {image: a, env: [NAME], tolerations: {a: b}}}\n"
    )
    assert len(found) == 5
    for part in (
        "isolation: invalid value 'container'",
        "maxPods: invalid number 0",
        "warmPods: invalid",
        "env: fo",
        "tolerations: fo",
    ):
        assert any(part in each for each in found), (part, found)


def test_an_ended_pod_remains_for_at_least_a_minute(errors: Errors, load: Load) -> None:
    head = f"{HEAD}  isolation: pod\n  podTemplate: {{image: example.com/ee:1"
    (error,) = errors(f"{head}, ttlSecondsAfterFinished: 5}}\n")
    assert "podTemplate.ttlSecondsAfterFinished: invalid number 5: use at least 60 seconds" in error
    pods = load(f"{head}}}\n").watches[0].more.get(POD_POLICY)
    assert pods is not None
    assert pods.ttl == 3600


NOT_OF_RUNS = "!ansible.sdk.operatorframework.io/run-of,!ansible.sdk.operatorframework.io/warm-pod-of"
SETTINGS = replace(sources.load(Namespace(), {}).settings, leader_election_id="shop")


@pytest.mark.parametrize("kind", [("", "Secret"), ("batch", "Job"), ("", "Pod")])
def test_the_operator_does_not_run_its_own_objects(kind: tuple[str, str]) -> None:
    watch = watch_value(gvk=GVK(kind[0], "v1", kind[1]))
    found = PLUGIN.without_own_objects(watch, SETTINGS)
    assert found.selector == NOT_OF_RUNS
    assert found.field_selector == ("metadata.name!=shop-pods-ca" if kind[1] == "Secret" else "")


def test_selectors_of_the_watch_and_other_kinds_stay() -> None:
    watch = watch_value(gvk=GVK("", "v1", "Secret"), selector="app=a", field_selector="type=Opaque")
    found = PLUGIN.without_own_objects(watch, SETTINGS)
    assert found.selector == f"app=a,{NOT_OF_RUNS}"
    assert found.field_selector == "type=Opaque,metadata.name!=shop-pods-ca"
    other = watch_value(gvk=GVK("example.com", "v1", "Secret"))
    assert PLUGIN.without_own_objects(other, SETTINGS) == other
