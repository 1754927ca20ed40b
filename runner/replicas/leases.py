"""Leases of one namespace, read and written as values.

Promises: a write fails if another client wrote the Lease since it was read. It preserves labels, annotations and
foreign fields. Missing or invalid fields of a Lease get defaults. Source:
https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/lease-v1/
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from runner.errors import NotFoundError
from runner.kube.client import Client
from runner.objects import Object, metadata
from runner.replicas.election import LeaseRecord

_API = "coordination.k8s.io/v1"
_DEFAULT_SECONDS = 15


class LeaseClient:
    """The Leases of a namespace."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._path = f"/apis/{_API}/namespaces/{namespace}/leases"
        self._objects: dict[str, Object] = {}

    async def read(self, names: Collection[str]) -> dict[str, tuple[LeaseRecord, str]]:
        """Return the existing Leases of these names, each with its resourceVersion.

        A single Lease is read by name, which the usual Role allows; several are read by one list.
        """
        found = [await self._get(name) for name in names] if len(names) == 1 else await self._list()
        self._objects = {metadata(obj)["name"]: obj for obj in found if obj and metadata(obj).get("name") in names}
        return {name: _read(obj) for name, obj in self._objects.items()}

    async def write(self, name: str, record: LeaseRecord) -> tuple[LeaseRecord, str]:
        """Write a Lease as it was last read, or create it. Raises ConflictError or NotFoundError after a race."""
        known = self._objects.get(name)
        spec = {**((known or {}).get("spec") or {}), **_spec(record)}
        obj = {
            "apiVersion": _API,
            "kind": "Lease",
            **(known or {"metadata": {"name": name, "namespace": self._namespace}}),
            "spec": spec,
        }
        if known is None:
            written = await self._client.request("POST", self._path, body=obj)
        else:
            written = await self._client.request("PUT", f"{self._path}/{name}", body=obj)
        self._objects[name] = written
        return _read(written)

    async def _get(self, name: str) -> Object | None:
        try:
            return await self._client.request("GET", f"{self._path}/{name}")
        except NotFoundError:
            return None

    async def _list(self) -> list[Object]:
        answer = await self._client.request("GET", self._path)
        items: list[Object] = answer.get("items") or []
        return items


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
    return record, str(metadata(obj).get("resourceVersion") or "")
