"""The status page of one operator: the recorder of its runs, and the server."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AsyncExitStack

from runner import log
from runner.config.settings import Settings
from runner.features.ui.journal import Journal
from runner.features.ui.object_states import WatchedKind
from runner.features.ui.server import FLAG, StatusPage, StreamTimings
from runner.features.ui.views import OperatorInfo, Views
from runner.kube.credentials import auth
from runner.monitoring.endpoints import Address
from runner.page import PageSections

_FREE = "127.0.0.1:0"
_log = log.get(__name__)


class OperatorPage:
    """The page; in a cluster only if the settings have an address for it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        usual = "0" if auth.pod_namespace(auth.HostEnvironment.of_process()) else _FREE
        self._address = Address.parse(settings.ui_bind_address or usual, FLAG)
        self._journal = Journal(time.time)
        self.is_served = self._address is not None
        self.recorders = (self._journal,) if self.is_served else ()
        """Recorders of runs for the page."""

    async def open(
        self, stack: AsyncExitStack, cluster: str, kinds: Sequence[WatchedKind], sections: Sequence[PageSections]
    ) -> None:
        """Serve the page until `stack` is closed. `cluster` is the URL of the API server."""
        if self._address is None:
            return
        settings, name = self._settings, self._settings.watches_file.resolve().parent.name
        place = OperatorInfo(name, cluster, settings.namespaces, settings.runner_dir, time.time())
        page = StatusPage(Views(place, kinds, self._journal, sections), StreamTimings())
        url = await page.start(self._address)
        stack.push_async_callback(page.close)
        _log.info("Serving the status page", url=url)
