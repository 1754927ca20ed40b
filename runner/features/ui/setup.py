"""The status page of one operator: the recorder of its runs, and the server."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from runner.base import log
from runner.base.config.settings import Settings
from runner.base.credentials import auth
from runner.base.monitoring.background import Work
from runner.base.monitoring.endpoints import Address
from runner.core.reconcile.controller import Controller
from runner.core.reconcile.feature import Operator, Part
from runner.features.ui.journal import Journal
from runner.features.ui.server import StatusPage, StreamTimings
from runner.features.ui.views import OperatorInfo, Views

_log = log.get(__name__)


class OperatorPage(Part):
    """The page."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._journal = Journal(time.time)
        self.recorders = (self._journal,)

    async def start(self, operator: Operator, kinds: Sequence[Controller]) -> Mapping[str, Work]:
        """Serve the page."""
        settings, cluster = operator.settings, operator.client.credentials.base_url
        name = name_of(settings, auth.pod_namespace(auth.HostEnvironment.of_process()))
        place = OperatorInfo(name, cluster, settings.namespaces, settings.runner_dir, time.time())
        sections = [added for part in operator.parts if (added := part.sections()) is not None]
        views = Views(place, kinds, self._journal, sections, operator.dependents.owned_by)
        page = StatusPage(views, StreamTimings())
        url = await page.start(self._address)
        operator.stack.push_async_callback(page.close)
        _log.info("Serving the status page", url=url)
        return {}


def name_of(settings: Settings, pod_namespace: str | None) -> str:
    """Return the name of the operator: in pods, the folders of all projects have the same one."""
    return settings.leader_election_id or pod_namespace or settings.watches_file.resolve().parent.name
