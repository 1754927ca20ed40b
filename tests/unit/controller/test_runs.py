"""What a run's job takes from its object, its watch and the operator's settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from runner.controller.annotations import RUN_TIMEOUT, VERBOSITY, overrides_of
from runner.controller.attempt import Attempt, ForgetRegistry
from runner.controller.decisions import plan
from runner.controller.run_access import Grant
from runner.controller.runs import JobFactory, RunDefaults
from runner.engine.job import Job
from runner.engine.run_secrets import RunSecrets
from runner.kube.discovery import ApiResource
from runner.objects import Object, ObjectKey
from runner.proxy.identity import RunStats
from runner.replicas.lease_guard import LeaseGuard
from runner.watches import policy
from runner.watches.watch import Watch
from runner.workqueue.request import ReconcileRequest, RunReason
from tests.watch_values import watch_value


async def _forget(_run_dir: Path) -> None:
    """Nothing was run."""


@pytest.mark.parametrize(
    ("annotation", "watch", "flag", "seconds"),
    [
        (None, None, 0.0, None),
        (None, None, 60.0, 60.0),
        (None, 30.0, 60.0, 30.0),
        (None, 0.0, 60.0, None),
        ("15s", 30.0, 60.0, 15.0),
        ("0s", 30.0, 60.0, None),
        ("off", None, 60.0, None),
    ],
)
def test_how_long_a_run_may_take_says_the_object_else_its_watch_else_the_flag(
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
    annotation: str | None,
    by_environment: bool,  # noqa: FBT001 - a table's column
    verbosity: int,
    raised: bool,  # noqa: FBT001 - as above
) -> None:
    annotations = {} if annotation is None else {VERBOSITY: annotation}
    obj: Object = {"metadata": {"name": "one", "namespace": "default", "uid": "u", "annotations": annotations}}
    job = _job(watch_value(), obj, raised=by_environment)
    assert (job.verbosity, job.raised) == (verbosity, raised)


def _job(its_watch: Watch, obj: Object, *, timeout: float = 0.0, raised: bool = False) -> Job:
    defaults = RunDefaults(
        runner_dir=Path("/runner"),
        ansible_args="",
        environment={},
        timeout=timeout,
        verbosity=lambda _: 2,
        raised=lambda _: raised,
        forget=_forget,
    )
    attempt = Attempt(
        ReconcileRequest(ObjectKey("default", "one"), RunReason.CREATED, (), 0, 0, 0.0),
        obj,
        plan(its_watch, obj) or pytest.fail("nothing is to be run"),
        ApiResource(its_watch.gvk, "things", True, frozenset(), frozenset()),  # noqa: FBT003 - namespaced
        LeaseGuard(lambda: True),
        "ident",
    )
    grant = Grant("", RunStats(), RunSecrets(), None)
    return JobFactory(its_watch, defaults, ForgetRegistry()).make(attempt, overrides_of(obj), grant)
