"""The status page of one operator: the recorder of its runs, and the server."""

from __future__ import annotations

import time
from collections.abc import Mapping

from runner.base import log
from runner.base.config.settings import Settings
from runner.base.credentials import auth
from runner.base.monitoring.background import Work
from runner.base.monitoring.endpoints import Address
from runner.core.reconcile.parts import Part, Started
from runner.features.ui.journal import Journal
from runner.features.ui.server import FLAG, StatusPage, StreamTimings
from runner.features.ui.views import OperatorInfo, Views

_FREE = "127.0.0.1:0"
_log = log.get(__name__)


class OperatorPage(Part):
    """The page; in a cluster only if the settings have an address for it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        usual = "0" if auth.pod_namespace(auth.HostEnvironment.of_process()) else _FREE
        self._address = Address.parse(settings.ui_bind_address or usual, FLAG)
        self._journal = Journal(time.time)
        self.recorders = (self._journal,) if self._address is not None else ()

    async def start(self, started: Started) -> Mapping[str, Work]:
        """Serve the page."""
        if self._address is None:
            return {}
        settings, cluster = self._settings, started.client.credentials.base_url
        name = settings.watches_file.resolve().parent.name
        place = OperatorInfo(name, cluster, settings.namespaces, settings.runner_dir, time.time())
        page = StatusPage(Views(place, started.kinds, self._journal, started.sections), StreamTimings())
        url = await page.start(self._address)
        started.stack.push_async_callback(page.close)
        _log.info("Serving the status page", url=url)
        return {}
