"""Sources of the `Authorization` header that are plain text: none, the kubeconfig, or a file.

The other two sources are `exec_plugin` and `oidc`.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from runner.errors import ApiUnavailableError

_REREAD_AFTER = 60.0
"""Seconds; a projected service account token is renewed long before it expires, clients are to reread it once a minute
(https://kubernetes.io/docs/tasks/configure-pod-container/configure-service-account/)."""


class AuthorizationSource(Protocol):
    """Source of the `Authorization` header."""

    async def authorization(self) -> str:
        """Return the header's value, renewed if it is due; empty for none.

        Raises ApiUnavailableError if a token is not available now, ConfigError if it never will be.
        """
        ...

    def forget(self) -> None:
        """Renew the token before its next use, because the API server refused it."""
        ...


class FixedAuthorization:
    """A token or password of the kubeconfig, or none."""

    def __init__(self, user: Mapping[str, Any]) -> None:
        self._value = ""
        if user.get("token"):
            self._value = f"Bearer {str(user['token']).strip()}"
        elif user.get("username"):
            pair = f"{user['username']}:{user.get('password') or ''}"
            self._value = "Basic " + base64.b64encode(pair.encode()).decode()

    async def authorization(self) -> str:
        """Return the header's value."""
        return self._value

    def forget(self) -> None:
        """Do nothing: there is no other value."""


class TokenFile:
    """A file that another process renews, such as the kubelet for a service account."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._value = ""
        self._read_at = float("-inf")

    async def authorization(self) -> str:
        """Return the file's content, at most a minute old. If the file is missing, the last content is used."""
        if time.monotonic() - self._read_at < _REREAD_AFTER:
            return self._value
        try:
            token = (await asyncio.to_thread(self._path.read_text, encoding="utf-8")).strip()
        except (OSError, UnicodeDecodeError) as error:
            if self._value:
                return self._value
            raise ApiUnavailableError(f"{self._path}: the token cannot be read: {error}") from error
        if not token and not self._value:
            raise ApiUnavailableError(f"{self._path}: the token file is empty")
        if token:
            self._value = f"Bearer {token}"
            self._read_at = time.monotonic()
        return self._value

    def forget(self) -> None:
        """Read the file again next time."""
        self._read_at = float("-inf")
