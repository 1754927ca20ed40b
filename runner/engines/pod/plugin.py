"""Runs in pods as an engine of the operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.core.kube.rights import Places, RequiredRights, Right, granting
from runner.engines.plugin import EnginePlugin, OpenEngine, OperatorParts, unprepared
from runner.engines.pod.fields import FIELDS, POD_POLICY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from runner.base.config.settings import Settings
    from runner.base.credentials.auth import OwnNamespaces
    from runner.core.kube.discovery import ApiResource
    from runner.core.proxy.calls import Handler
    from runner.core.watches.watch import Watch


_DEFAULT_ID = "ansible-operator"
_SECRETS, _JOBS = ("", "secrets"), ("batch", "jobs")
_OWN_KINDS = {("", "Secret"), ("batch", "Job"), ("", "Pod")}


def _claims(_settings: Settings) -> Callable[[Watch], bool]:
    return lambda watch: watch.more.get(POD_POLICY) is not None


async def _open(parts: OperatorParts, watches: Sequence[Watch]) -> OpenEngine | None:
    if not watches:
        return None
    from runner.engines.pod import setup  # noqa: PLC0415 - see EnginePlugin

    return await setup.open_engine(parts, watches)


def _guards(settings: Settings) -> Sequence[Handler]:
    from runner.engines.pod import setup  # noqa: PLC0415 - see EnginePlugin

    return (setup.own_secrets(settings),)


def _without_own_objects(watch: Watch, settings: Settings) -> Watch:
    if (watch.gvk.group, watch.gvk.kind) not in _OWN_KINDS:
        return watch
    from runner.engines.pod import setup  # noqa: PLC0415 - see EnginePlugin

    return setup.without_own_objects(watch, settings)


def authority_name(settings: Settings) -> str:
    """Return the name of the Secret or file with the certificate authority."""
    return f"{settings.leader_election_id or _DEFAULT_ID}-pods-ca"


def _of_watch(watch: Watch, resource: ApiResource, places: Places) -> set[Right]:
    """Return the rights for the runs of a kind.

    A finalizer runs in the operator's own namespace if that of its object is being deleted.
    """
    if watch.more.get(POD_POLICY) is None:
        return set()
    own, spaces = places.own.others, [*places.watched] or [""]
    homes = {*(spaces if resource.namespaced else [own])}
    if places.watched and watch.finalizer is not None and own:
        homes.add(own)
    needed = granting([*homes], "", "events", "list")
    for kind in (_SECRETS, _JOBS):
        needed |= granting([*homes], *kind, "create", "delete", "list")
    watched = [*spaces, own] if places.watched and own else spaces
    return needed | granting(watched, "", "pods", "list", "watch")


def _of_operator(settings: Settings, watches: Sequence[Watch], own: OwnNamespaces) -> set[Right]:
    """Return the rights for the authority of the certificates that agents trust, and for warm pods."""
    policies = [policy for watch in watches if (policy := watch.more.get(POD_POLICY)) is not None]
    spaces = [own.others]
    if not policies or not own.others:
        return set()
    needed = granting(spaces, *_SECRETS, "create")
    needed |= granting(spaces, *_SECRETS, "get", name=authority_name(settings))
    if any(policy.warm for policy in policies):
        needed |= granting(spaces, *_JOBS, "create", "delete") | granting(spaces, "", "pods", "get", "patch")
    return needed


PLUGIN = EnginePlugin(
    fields=(FIELDS,),
    rights=RequiredRights(_of_watch, _of_operator),
    claims=_claims,
    prepare=unprepared(_open),
    guards=_guards,
    without_own_objects=_without_own_objects,
)
