"""Seal of records: the operator reads the paths in a record with its own rights, so that no other client may name them.

The key is beside the kinds of dependents, so that each replica and the next process have it, without another right.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

from runner.base import log
from runner.core.dependents.store import ENTRY
from runner.core.kube.state import StateError, StateStore

_KEY = "last-run-key"
_log = log.get(__name__)


class Seal:
    """Makes seals. Without a stored key, they are valid in this process only."""

    def __init__(self, state: StateStore) -> None:
        """`state` is `store.storage` of the operator."""
        self._state = state
        self._key = ""

    async def of(self, uid: str, text: str) -> str:
        """Return the seal of a record of an object. Raises ApiError and ApiUnavailableError for the moment."""
        if not self._key:
            fresh = secrets.token_hex(32)
            try:
                if not (stored := await self._stored()):
                    await self._state.put(ENTRY, _KEY, fresh)
                    stored = await self._stored()  # another replica can have been faster
            except StateError as error:
                stored = ""
                _log.warning("After a restart, each object whose role reads unowned objects runs", error=str(error))
            self._key = stored or fresh
        return hmac.new(self._key.encode(), f"{uid} {text}".encode(), hashlib.sha256).hexdigest()

    async def _stored(self) -> str:
        entry = await self._state.read(ENTRY)
        return entry.data.get(_KEY, "") if entry is not None else ""
