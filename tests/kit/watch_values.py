"""A watch with every default and its scope, for tests that ask for something else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from runner.app.features import OWN_STATUS
from runner.base.events.bodies import ApiEvent
from runner.core.kube.informer import Informer
from runner.core.reconcile.attempt import AnnotationBounds, WatchScope
from runner.core.reconcile.feature import Kind
from runner.core.reconcile.metrics import Metrics
from runner.core.watches import policy
from runner.core.watches.watch import Role, Watch
from runner.values.lease_guard import Leadership
from runner.values.objects import GVK

_PLAIN = Watch(
    gvk=GVK("cache.example.com", "v1alpha1", "Memcached"),
    content=Role("memcached", Path("/roles/memcached")),
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


def watch_value(**different: Any) -> Watch:
    """Make a watch of the sample kind with every default, but for what is given."""
    return replace(_PLAIN, **different)


class RecordedEvents(list[ApiEvent]):
    """A queue of Events that keeps them."""

    def record(self, what: ApiEvent) -> None:
        self.append(what)


class NoObjects:
    """The informer of a kind without objects."""

    def excess(self, _key: object) -> str:
        return ""


def scope_value(watch: Watch | None = None, informer: Any = None, **different: Any) -> WatchScope:
    """Make the scope of a watch whose only replica this is, but for what is given."""
    bounds = AnnotationBounds(period=36000.0, shortest_period=5.0, longest_run=0.0, highest_verbosity=7)
    fields = {"metrics": Metrics(), "events": RecordedEvents(), "bounds": bounds, "own": OWN_STATUS, **different}
    return WatchScope(
        watch or watch_value(), cast("Informer", NoObjects() if informer is None else informer), Leadership(), **fields
    )


def kind_value(scope: WatchScope, **given: Any) -> Kind:
    """Make a kind of the parts that a test needs."""
    others: dict[str, Any] = dict.fromkeys(("operator", "queue", "status", "refusals", "owners", "runs", "executed"))
    return Kind(scope=scope, **{**others, **given})
