"""`skipUnchanged` as part of an operator: omits runs of objects whose inputs are those of the last run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.core.kube.rights import Places, RequiredRights, Right, granting
from runner.core.reconcile.feature import Feature, Kind, ProxyBase, ProxyParts
from runner.features.unchanged.fields import FIELDS, SKIPS

if TYPE_CHECKING:
    from runner.core.kube.discovery import ApiResource
    from runner.core.reconcile.hooks import Hooks
    from runner.core.watches.watch import Watch


def hooks(kind: Kind) -> Hooks | None:
    """Return what skips runs, and records their inputs."""
    if not kind.scope.watch.more.get(SKIPS):
        return None
    from runner.base.credentials import auth  # noqa: PLC0415 - see Feature
    from runner.core.dependents.store import storage  # noqa: PLC0415 - see Feature
    from runner.features.unchanged.hooks import RunSkipper, Seal  # noqa: PLC0415 - see Feature

    operator, space = kind.operator, auth.pod_namespace(auth.HostEnvironment.of_process())
    seal = Seal(storage(operator.client, space, operator.settings.runner_dir))
    return RunSkipper(kind.scope, operator.client, operator.dependents, kind.inputs, kind.executed, seal, kind.must_run)


def _proxy(base: ProxyBase) -> ProxyParts:
    if not any(watch.more.get(SKIPS) for watch in base.watches):
        return ProxyParts()
    from runner.features.unchanged.requests import OBSERVER  # noqa: PLC0415 - see Feature

    return ProxyParts(observers=(OBSERVER,))


def _rights(watch: Watch, resource: ApiResource, places: Places) -> set[Right]:
    """Return the right to record the last run in annotations of its object."""
    if not watch.more.get(SKIPS):
        return set()
    return granting(places.of(resource), resource.gvk.group, resource.plural, "patch")


FEATURE = Feature(fields=(FIELDS,), rights=RequiredRights(_rights), proxy=_proxy)
