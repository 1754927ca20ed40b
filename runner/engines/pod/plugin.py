"""Runs in pods as an engine of the operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.engines.plugin import EnginePlugin, OpenEngine, OperatorParts
from runner.engines.pod.fields import FIELDS, POD_POLICY
from runner.engines.pod.rights import RIGHTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from runner.base.config.settings import Settings
    from runner.core.proxy.calls import Handler
    from runner.core.watches.watch import Watch

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


PLUGIN = EnginePlugin(
    fields=(FIELDS,),
    rights=RIGHTS,
    claims=_claims,
    open=_open,
    guards=_guards,
    without_own_objects=_without_own_objects,
)
