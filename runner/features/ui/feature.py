"""The status page as part of an operator; in a cluster only if the settings have an address for it."""

from __future__ import annotations

from runner.core.reconcile.feature import Feature, Part, PartBase

_FLAG = "ui-bind-address"
_FREE = "127.0.0.1:0"


def _part(base: PartBase) -> Part | None:
    from runner.base.credentials import auth  # noqa: PLC0415 - see Feature
    from runner.base.monitoring.endpoints import Address  # noqa: PLC0415 - see Feature

    usual = "0" if auth.pod_namespace(auth.HostEnvironment.of_process()) else _FREE
    address = Address.parse(base.settings.ui_bind_address or usual, _FLAG)
    if address is None:
        return None
    from runner.features.ui.server import OperatorPage  # noqa: PLC0415 - see Feature

    return OperatorPage(address)


FEATURE = Feature(part=_part)
