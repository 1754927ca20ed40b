"""Where the `Authorization` header comes from when it is no more than text: nowhere, the kubeconfig, or a file.

The other two sources have rooms of their own: `exec_plugin` and `oidc`.
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
    """Yields the value of the `Authorization` header."""

    async def authorization(self) -> str:
        """The header's value, renewed where it is due; empty for none.

        Raises ApiUnavailableError when a token is not to be had now, ConfigError when it never will be.
        """
        ...

    def forget(self) -> None:
        """Get a new one next time: the API server refused the last."""
        ...


class FixedAuthorization:
    """The same for ever: a token or password of the kubeconfig, or none."""

    def __init__(self, user: Mapping[str, Any]) -> None:
        self._value = ""
        if user.get("token"):
            self._value = f"Bearer {str(user['token']).strip()}"
        elif user.get("username"):
            pair = f"{user['username']}:{user.get('password') or ''}"
            self._value = "Basic " + base64.b64encode(pair.encode()).decode()

    async def authorization(self) -> str:
        """The header's value."""
        return self._value

    def forget(self) -> None:
        """There is no other."""


class TokenFile:
    """A file that somebody renews, as the kubelet does for a service account."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._value = ""
        self._read_at = float("-inf")

    async def authorization(self) -> str:
        """The file's content, at most a minute old. A file that vanished leaves the last content in use."""
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
