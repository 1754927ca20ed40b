"""Requests to the API server, on plain dicts.

Owns: discovery of a kind's path, and the conversion of errors to `ApiFailure`. It reads only one group and version.
It has no cache on disk, because a role calls these modules in every run, and a cache for each run would fill the disk.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

try:
    from kubernetes.dynamic import DynamicClient
    from kubernetes.dynamic.exceptions import DynamicApiError
    from urllib3.exceptions import HTTPError
except ImportError:
    # The modules ask `auth.connect` for a client first, which says what is missing.
    DynamicClient = None

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"

_TIMEOUT = (10, 60)
"""Seconds to connect, and to wait for the answer."""

_NOT_FOUND = 404
_CONFLICT = 409
_INVALID = 422


class ApiFailure(Exception):  # noqa: N818 - Kubernetes' own ApiError is a different thing, with other fields
    """The API server refused, or gave no answer: then `status` is 0."""

    def __init__(self, message: str, *, status: int, reason: str, body: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.body = body

    @property
    def outdated(self) -> bool:
        """True if the object changed before the request: a conflict, or a patch whose test failed.

        A violation of the schema has status 422, too, but its response names the fields.
        """
        return self.status == _CONFLICT or (self.status == _INVALID and not self._causes())

    def _causes(self) -> list[Any]:
        try:
            return list(json.loads(self.body)["details"]["causes"])
        except (ValueError, KeyError, TypeError):
            return []

    def as_result(self) -> dict[str, Any]:
        """Return the `error` of a module's result."""
        return {"status": self.status, "reason": self.reason, "body": self.body}


@dataclass(frozen=True)
class ApiResource:
    """A kind that the API server serves."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool
    subresources: frozenset[str]

    def path(self, namespace: str | None, name: str = "", subresource: str = "") -> str:
        """Return the URL path of an object, or without a name that of all of them."""
        root = f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"
        scope = f"namespaces/{namespace}" if self.namespaced and namespace else ""
        return "/".join(part for part in (root, scope, self.plural, name, subresource) if part)


class KubernetesApi:
    """The API server, reached through an `ApiClient` of the `kubernetes` library."""

    def __init__(self, api_client: Any) -> None:
        self._client = DynamicClient(api_client, discoverer=lambda _client, _cache_file: None)

    def get(self, path: str) -> dict[str, Any]:
        """Read."""
        return self._request("get", path)

    def create(self, path: str, body: dict[str, Any], *, dry_run: bool) -> dict[str, Any]:
        """Create; with `dry_run` the server answers as if it had."""
        return self._request("post", path, body=body, **_dry(dry_run))

    def json_patch(self, path: str, operations: list[dict[str, Any]], *, dry_run: bool) -> dict[str, Any]:
        """Send a JSON Patch (RFC 6902)."""
        return self._request("patch", path, body=operations, content_type=JSON_PATCH, **_dry(dry_run))

    def merge_patch(self, path: str, body: dict[str, Any], *, dry_run: bool) -> dict[str, Any]:
        """Send a JSON merge patch (RFC 7386)."""
        return self._request("patch", path, body=body, content_type=MERGE_PATCH, **_dry(dry_run))

    def delete(self, path: str, *, dry_run: bool) -> dict[str, Any]:
        """Delete."""
        return self._request("delete", path, **_dry(dry_run))

    def find(self, api_version: str, kind: str) -> ApiResource | None:
        """Find a kind by its name, plural, singular or short name; None when the server has none such."""
        try:
            answer = self.get(f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}")
        except ApiFailure as failure:
            if failure.status == _NOT_FOUND:
                return None
            raise
        listed = [entry for entry in answer.get("resources") or () if entry.get("name") and entry.get("kind")]
        entries = [entry for entry in listed if "/" not in entry["name"]]
        for known_as in (_kind, _names, _short_names):
            match = next((entry for entry in entries if kind in known_as(entry)), None)
            if match:
                return _resource(api_version, match, listed)
        return None

    def _request(self, method: str, path: str, **params: Any) -> dict[str, Any]:
        try:
            answer = self._client.request(method, path, serialize=False, _request_timeout=_TIMEOUT, **params)
        except DynamicApiError as error:
            raise _refused(error) from error
        except HTTPError as error:
            raise ApiFailure(f"no answer: {error}", status=0, reason="", body="") from error
        try:
            found = json.loads(answer.data)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ApiFailure(f"the answer to {method} {path} is no JSON object", status=0, reason="", body="")
        return found


def _dry(dry_run: bool) -> dict[str, str]:  # noqa: FBT001 - turns the flag itself into what the client wants
    return {"dry_run": "All"} if dry_run else {}


def _kind(entry: dict[str, Any]) -> tuple[str, ...]:
    return (entry["kind"],)


def _names(entry: dict[str, Any]) -> tuple[str, ...]:
    return (entry["name"], entry.get("singularName", ""))


def _short_names(entry: dict[str, Any]) -> tuple[str, ...]:
    return tuple(entry.get("shortNames") or ())


def _resource(api_version: str, entry: dict[str, Any], listed: list[dict[str, Any]]) -> ApiResource:
    plural = entry["name"]
    below = (other["name"].partition("/") for other in listed)
    subresources = frozenset(name for parent, _, name in below if parent == plural and name)
    return ApiResource(api_version, entry["kind"], plural, bool(entry.get("namespaced")), subresources)


def _refused(error: Any) -> ApiFailure:
    body = error.body.decode(errors="replace") if isinstance(error.body, bytes) else str(error.body or "")
    try:
        message = json.loads(body)["message"]
    except (ValueError, KeyError, TypeError):
        message = body or str(error.reason)
    return ApiFailure(str(message), status=error.status or 0, reason=str(error.reason or ""), body=body)
