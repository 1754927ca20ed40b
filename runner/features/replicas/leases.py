"""A Lease, read and written as a value.

Promises: a write fails if another client wrote the Lease since it was read. It preserves labels, annotations and
foreign fields. Missing or invalid fields get defaults. Source:
https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/lease-v1/
"""

from __future__ import annotations

from typing import Any

from runner.core.kube.client import Client
from runner.features.replicas.election import LeaseRecord
from runner.values.errors import NotFoundError
from runner.values.objects import Object, version_of

_API = "coordination.k8s.io/v1"
_DEFAULT_SECONDS = 15


class LeaseClient:
    """One Lease."""

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self._client = client
        self._metadata = {"name": name, "namespace": namespace}
        self._leases = f"/apis/{_API}/namespaces/{namespace}/leases"
        self._path = f"{self._leases}/{name}"
        self._last: Object | None = None

    async def read(self) -> tuple[LeaseRecord, str] | None:
        """Return the Lease with its resourceVersion; None if it does not exist."""
        try:
            self._last = await self._client.request("GET", self._path)
        except NotFoundError:
            self._last = None
        return _read(self._last) if self._last is not None else None

    async def write(self, record: LeaseRecord) -> tuple[LeaseRecord, str]:
        """Write the Lease as it was last read, or create it. Raises ConflictError or NotFoundError after a race."""
        last = self._last or {"metadata": self._metadata}
        spec = {**(last.get("spec") or {}), **_spec(record)}
        obj = {"apiVersion": _API, "kind": "Lease", **last, "spec": spec}
        method, path = ("POST", self._leases) if self._last is None else ("PUT", self._path)
        self._last = await self._client.request(method, path, body=obj)
        return _read(self._last)


def _spec(record: LeaseRecord) -> dict[str, Any]:
    return {
        "holderIdentity": record.holder,
        "leaseDurationSeconds": record.seconds,
        "acquireTime": record.acquired or None,
        "renewTime": record.renewed,
        "leaseTransitions": record.transitions,
    }


def _read(obj: Object) -> tuple[LeaseRecord, str]:
    spec = obj.get("spec") or {}
    record = LeaseRecord(
        holder=str(spec.get("holderIdentity") or ""),
        seconds=int(spec.get("leaseDurationSeconds") or _DEFAULT_SECONDS),
        acquired=str(spec.get("acquireTime") or ""),
        renewed=str(spec.get("renewTime") or ""),
        transitions=int(spec.get("leaseTransitions") or 0),
    )
    return record, version_of(obj)
