"""Minimal client of a cluster's API server, for its start and for pod logs, with the standard library only.

Synchronous, with one connection per request. Raises `ClusterError` for invalid responses.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from runner.sdk.devcluster.ports import LOOPBACK
from runner.values.errors import ClusterError

_TIMEOUT = 10.0


@dataclass(frozen=True, slots=True)
class Api:
    """The API server on a loopback port, with the administrator's certificate."""

    port: int
    tls: ssl.SSLContext

    @classmethod
    def from_run_folder(cls, run: Path, port: int) -> Self:
        """Create a client with the certificates that the supervisor wrote."""
        tls = ssl.create_default_context(cafile=str(run / "ca.crt"))
        tls.load_cert_chain(run / "admin.crt", run / "admin.key")
        return cls(port, tls)

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, Any]:
        """Return the status and the content (parsed if JSON). Raises OSError if the server is unreachable."""
        content_type = "application/json"
        if method == "PATCH":
            content_type = "application/apply-patch+yaml"
        connection = http.client.HTTPSConnection(LOOPBACK, self.port, context=self.tls, timeout=_TIMEOUT)
        try:
            connection.request(
                method,
                path,
                body=None if body is None else json.dumps(body),
                headers={"Content-Type": content_type, "Accept": "application/json"},
            )
            answer = connection.getresponse()
            data = answer.read()
        except http.client.HTTPException as error:
            raise ConnectionError(f"{method} {path}: invalid response: {error!r}") from error
        finally:
            connection.close()
        is_json = answer.headers.get_content_type() == "application/json"
        return answer.status, json.loads(data) if is_json else data.decode(errors="replace")

    def ready(self, path: str = "/readyz") -> bool:
        """Return whether the server is ready."""
        try:
            status, _ = self.call("GET", path)
        except OSError:
            return False
        return status == http.client.OK

    def apply(self, path: str, body: Mapping[str, Any]) -> None:
        """Create or update an object by server-side apply (see "Server-Side Apply" in the Kubernetes reference)."""
        query = "?fieldManager=ansible-operator-devcluster&force=true"
        status, answer = self.call("PATCH", path + query, body)
        if status not in {http.client.OK, http.client.CREATED}:
            raise ClusterError(f"the API server rejected {path} with status {status}: {answer}")

    def get(self, path: str) -> Any:
        """Return an object, None if it does not exist or the server is unreachable."""
        try:
            status, answer = self.call("GET", path)
        except OSError:
            return None
        return answer if status == http.client.OK else None

    def exists(self, path: str) -> bool:
        """Return whether an object or kind exists."""
        return self.get(path) is not None
