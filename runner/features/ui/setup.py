"""The status page of one operator: the recorder of its runs, and the server."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from runner.base import log
from runner.base.monitoring.background import Work
from runner.base.monitoring.endpoints import Address
from runner.core.reconcile.controller import Controller
from runner.core.reconcile.feature import Part
from runner.core.reconcile.kind import Operator
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
        name = settings.watches_file.resolve().parent.name
        place = OperatorInfo(name, cluster, settings.namespaces, settings.runner_dir, time.time())
        sections = [added for part in operator.parts if (added := part.sections()) is not None]
        page = StatusPage(Views(place, kinds, self._journal, sections), StreamTimings())
        url = await page.start(self._address)
        operator.stack.push_async_callback(page.close)
        _log.info("Serving the status page", url=url)
        return {}
