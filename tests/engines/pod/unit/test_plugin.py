"""Watches of kinds of which the operator has objects of its own."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace

import pytest

from runner.base.config import sources
from runner.engines.pod.plugin import PLUGIN
from runner.values.objects import GVK
from tests.kit.watch_values import watch_value

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
