"""What a run's job takes from its object, its watch and the operator's settings."""

from __future__ import annotations

import asyncio
import threading
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from runner.agent import proxies
from runner.base.config import sources
from runner.base.config.settings import Settings
from runner.core.engine import params
from runner.core.engine.job import Job
from runner.core.engine.run_secrets import RunSecrets
from runner.core.proxy.identity import RunStats
from runner.core.reconcile import run_access
from runner.core.reconcile.attempt import (
    MAX_RUNNER_ARTIFACTS,
    RECONCILE_PERIOD,
    RUN_TIMEOUT,
    VERBOSITY,
    AnnotationOverrides,
    overrides_of,
)
from runner.core.reconcile.decisions import run_content
from runner.core.reconcile.run_access import Grant
from runner.core.reconcile.runs import JobFactory, bounds_of
from runner.core.status import report
from runner.core.watches import policy
from runner.core.watches.policy import RunMode
from runner.core.watches.watch import Watch
from runner.values.errors import TerminalError
from runner.values.objects import MODE, Object
from tests.kit.watch_values import scope_value, watch_value
from tests.unit.controller.attempts import attempt_value

SETTINGS = replace(sources.load(Namespace(), {}).settings, runner_dir=Path("/runner"))


@pytest.mark.parametrize(
    ("annotation", "watch", "flag", "seconds"),
    [
        (None, None, 0.0, None),
        (None, None, 60.0, 60.0),
        (None, 30.0, 60.0, 30.0),
        (None, 0.0, 60.0, None),
        ("15s", 30.0, 60.0, 15.0),
        ("0s", 30.0, 60.0, 30.0),
        ("off", None, 60.0, 60.0),
        ("1h", None, 60.0, 60.0),
        ("1h", 0.0, 60.0, 3600.0),
        ("off", 0.0, 60.0, None),
    ],
)
def test_an_object_can_only_shorten_the_time_that_its_watch_or_the_flag_allows(
    annotation: str | None, watch: float | None, flag: float, seconds: float | None
) -> None:
    annotations = {} if annotation is None else {RUN_TIMEOUT: annotation}
    obj: Object = {"metadata": {"name": "one", "namespace": "default", "uid": "u", "annotations": annotations}}
    its_watch = watch_value(policy=replace(policy.DEFAULT, timeout=watch))
    assert _job(its_watch, obj, timeout=flag).deadline == seconds


@pytest.mark.parametrize(
    ("annotation", "by_environment", "verbosity", "raised"),
    [
        (None, False, 2, False),
        (None, True, 2, True),
        ("0", False, 0, False),
        ("0", True, 0, True),
        ("1", False, 1, True),
        ("4", True, 4, True),
    ],
)
def test_contract_the_annotation_or_the_environment_raises_the_verbosity(
    annotation: str | None, *, by_environment: bool, verbosity: int, raised: bool
) -> None:
    annotations = {} if annotation is None else {VERBOSITY: annotation}
    obj: Object = {"metadata": {"name": "one", "namespace": "default", "uid": "u", "annotations": annotations}}
    job = _job(watch_value(), obj, raised=by_environment)
    assert (job.verbosity, job.raised) == (verbosity, raised)


def _job(its_watch: Watch, obj: Object, *, timeout: float = 0.0, raised: bool = False) -> Job:
    settings = replace(SETTINGS, run_timeout=timeout, raised_verbosity=raised)
    grant = Grant("", "", RunStats(), RunSecrets())
    scope = scope_value(its_watch, bounds=bounds_of(its_watch, settings))
    attempt = attempt_value(obj, executes=run_content(its_watch, obj), overrides=overrides_of(obj, scope.bounds))
    return asyncio.run(JobFactory(scope, settings, {}).make(attempt, grant))


def _overrides(watch: Watch, settings: Settings, obj: Object) -> AnnotationOverrides:
    return overrides_of(obj, bounds_of(watch, settings))


@pytest.mark.parametrize(
    ("annotation", "watch", "period", "seconds"),
    [
        ("1ns", {}, 3600.0, 5.0),
        ("1ns", {"min_reconcile_period": 60.0}, 3600.0, 60.0),
        ("1ns", {"min_reconcile_period": 0.0}, 3600.0, 1e-9),
        ("1ns", {"reconcile_period": 2.0}, 3600.0, 2.0),
        ("1ns", {}, 0.0, 5.0),
        ("10s", {}, 3600.0, 10.0),
        ("20h", {}, 3600.0, 72000.0),
        ("off", {}, 3600.0, 0.0),
        ("0s", {"min_reconcile_period": 60.0}, 3600.0, 0.0),
    ],
)
def test_a_period_of_an_object_has_a_lower_limit(
    annotation: str, watch: dict[str, float], period: float, seconds: float
) -> None:
    obj = {"metadata": {"annotations": {RECONCILE_PERIOD: annotation}}}
    overrides = _overrides(watch_value(**watch), replace(SETTINGS, reconcile_period=period), obj)
    assert overrides.reconcile_period == seconds
    is_limited = annotation == "1ns" and seconds >= 1
    assert [RECONCILE_PERIOD in each for each in overrides.limited] == [True] * is_limited


@pytest.mark.parametrize(
    ("annotation", "most", "of_kind", "verbosity"),
    [("7", 7, 2, 7), ("7", 3, 2, 3), ("7", 3, 5, 5), ("3", 3, 2, 3), ("0", 3, 2, 0)],
)
def test_the_verbosity_of_an_object_has_an_upper_limit(
    annotation: str, most: int, of_kind: int, verbosity: int
) -> None:
    settings = replace(SETTINGS, ansible_verbosity=of_kind)
    obj = {"metadata": {"annotations": {VERBOSITY: annotation}}}
    overrides = _overrides(watch_value(max_verbosity=most), settings, obj)
    assert overrides.verbosity == verbosity
    sentence = f"annotation {VERBOSITY}: '7' is beyond the limit; {verbosity} is used"
    assert overrides.limited == (() if int(annotation) == verbosity else (sentence,))


@pytest.mark.parametrize(
    ("annotation", "watch", "mode", "is_limited"),
    [
        (None, "approve", "approve", False),
        ("plan", "apply", "plan", False),
        ("Approve", "apply", "approve", False),
        ("plan", "approve", "plan", False),
        ("apply", "approve", "approve", True),
        ("approve", "plan", "plan", True),
        ("plan", "plan", "plan", False),
    ],
)
def test_the_annotation_can_only_tighten_the_mode(
    annotation: str | None, watch: RunMode, mode: str, *, is_limited: bool
) -> None:
    annotations = {} if annotation is None else {MODE: annotation}
    obj: Object = {"metadata": {"name": "one", "namespace": "default", "uid": "u", "annotations": annotations}}
    overrides = _overrides(watch_value(mode=watch), SETTINGS, obj)
    assert overrides.mode == mode
    assert [f"{mode} is used" in each for each in overrides.limited] == [True] * is_limited


def test_an_object_with_an_invalid_mode_does_not_run() -> None:
    obj: Object = {"metadata": {"name": "one", "namespace": "default", "annotations": {MODE: "aprove"}}}
    with pytest.raises(TerminalError, match="'aprove' is invalid; write plan, approve or apply"):
        _overrides(watch_value(), SETTINGS, obj)


def test_a_message_about_an_annotation_contains_only_the_beginning_of_its_value() -> None:
    def annotated(name: str) -> Object:
        return {"metadata": {"annotations": {name: "x" * 200_000}}}

    for name in (RECONCILE_PERIOD, RUN_TIMEOUT, MODE):
        with pytest.raises(TerminalError) as raised:
            _overrides(watch_value(), SETTINGS, annotated(name))
        assert len(str(raised.value)) < 500
    for name in (VERBOSITY, MAX_RUNNER_ARTIFACTS):
        (warning,) = _overrides(watch_value(), SETTINGS, annotated(name)).warnings
        assert len(warning) < 500


def test_the_condition_names_limited_annotations_until_they_are_changed() -> None:
    (condition,) = report.limited({}, ["annotation a: 'x' is beyond the limit; 1 is used"])
    assert (condition["type"], condition["status"]) == ("LimitedAnnotations", "True")
    assert condition["message"].startswith("annotation a: 'x' is beyond the limit; 1 is used. ")
    (ended,) = report.limited({"status": {"conditions": [condition]}}, [])
    assert (ended["type"], ended["status"]) == ("LimitedAnnotations", "False")
    assert report.limited({}, []) == ()


def test_the_event_loop_converts_no_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    def noted(call: Callable[..., Any]) -> Callable[..., Any]:
        def do(*arguments: Any, **named: Any) -> Any:
            threads.append(threading.current_thread())
            return call(*arguments, **named)

        return do

    monkeypatch.setattr(params, "build", noted(params.build))
    monkeypatch.setattr(params, "has_template", noted(params.has_template))
    job = _job(watch_value(), {"metadata": {"name": "one", "namespace": "default", "uid": "u"}, "spec": {"fooBar": 1}})
    assert job.extra_vars["foo_bar"] == 1
    assert len(threads) == 2
    assert threading.main_thread() not in threads


@pytest.mark.lengthy
def test_the_log_names_some_of_thousands_of_ignored_variables(capsys: pytest.CaptureFixture[str]) -> None:
    spec = {f"ansible_{number}" + "x" * 1000: 1 for number in range(5_000)}
    job = _job(watch_value(), {"metadata": {"name": "one", "namespace": "default", "uid": "u"}, "spec": spec})
    assert len(job.ignored_variables) == 5_000
    (line,) = (each for each in capsys.readouterr().out.splitlines() if "ansible_0" in each)
    assert len(line) < 20_000
    assert "4900" in line


@pytest.mark.parametrize(("spec", "kind"), [("words", "str"), (["a"], "list"), (7, "int"), (None, ""), ({}, "")])
def test_a_spec_that_is_not_a_map_is_named_in_the_log(spec: Any, kind: str) -> None:
    with capture_logs() as logs:
        job = _job(watch_value(), {"metadata": {"name": "one", "namespace": "default", "uid": "u"}, "spec": spec})
    assert job.extra_vars["_cache_example_com_memcached_spec"] == {}
    assert [line["type"] for line in logs if "not a map" in line["event"]] == ([kind] if kind else [])


def test_runs_do_not_use_the_operators_http_proxy_for_the_api_proxy() -> None:
    found = proxies.variables({"HTTPS_PROXY": "http://proxy.example.com:3128", "NO_PROXY": ".svc,10.0.0.0/8"})
    assert found == {"NO_PROXY": ".svc,10.0.0.0/8,127.0.0.1", "no_proxy": ".svc,10.0.0.0/8,127.0.0.1"}


def test_without_an_http_proxy_nothing_is_added() -> None:
    assert proxies.variables({"NO_PROXY": ".svc", "HTTP_PROXY": ""}) == {}


def test_secret_values_of_the_environment_are_found_by_their_names() -> None:
    environ = {"DB_PASSWORD": "a", "API_TOKEN": "b", "PASSWORD_FILE": "c", "TOKEN_URL": "d", "HOME": "e", "PWD": "f"}
    assert run_access.secrets_in(environ) == ["a", "b"]
