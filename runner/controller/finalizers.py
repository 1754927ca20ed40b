"""Our finalizer on an object: the patches that add and remove it, and its removal after the finalizer's run.

Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/finalizers/
"""

from __future__ import annotations

import asyncio
import itertools

from runner import log
from runner.errors import PASSING, ConflictError, InvalidError
from runner.kube.client import Client, PatchType
from runner.kube.discovery import ApiResource
from runner.objects import JSONPatch, Object, ObjectKey, finalizers_of, key_of, uid_of
from runner.replicas.lease_guard import LeaseGuard
from runner.watches.policy import Backoff

CONFLICT_BACKOFF = Backoff(0.005, cap=1.0)
"""Before the next attempt of a write that conflicted with another writer's."""

_log = log.get(__name__)


def addition(name: str, obj: Object) -> JSONPatch | None:
    """Build the patch that adds `name` to `obj`; None if it is there."""
    names = finalizers_of(obj)
    return _replacing(obj, [*names, name]) if name not in names else None


def removal(name: str, obj: Object) -> JSONPatch | None:
    """Build the patch that removes `name` from `obj`; None if it is not there."""
    names = finalizers_of(obj)
    return _replacing(obj, [other for other in names if other != name]) if name in names else None


def _replacing(obj: Object, names: list[str]) -> JSONPatch:
    """Replace the list only if the list and the object are still the same: other controllers write finalizers too."""
    return [
        {"op": "test", "path": "/metadata/uid", "value": uid_of(obj)},
        {"op": "test", "path": "/metadata/finalizers", "value": finalizers_of(obj) or None},
        {"op": "add", "path": "/metadata/finalizers", "value": names},
    ]


class FinalizerRemoval:
    """Removes the finalizer of one watch, and remembers from which objects: the cache may still show it there."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._name = name
        self._removed: dict[ObjectKey, str] = {}
        """Uids."""

    def is_done(self, obj: Object) -> bool:
        """Return whether this operator has removed the finalizer from this very object."""
        return self._removed.get(key_of(obj)) == uid_of(obj)

    def forget(self, key: ObjectKey) -> None:
        """Drop the state of an object."""
        self._removed.pop(key, None)

    async def remove(self, resource: ApiResource, obj: Object, guard: LeaseGuard) -> None:
        """Remove the finalizer. Retries conflicts and outages: a finalizer that has run is not run again."""
        key, uid = key_of(obj), uid_of(obj)
        current: Object | None = obj
        for attempts in itertools.count():
            guard.check()
            try:
                current = current or await self._client.get(resource, key)
                patch = removal(self._name, current)
                if patch is not None and uid_of(current) == uid:
                    await self._client.patch(resource, key, patch, content_type=PatchType.JSON)
            except (ConflictError, InvalidError):
                current = None  # another writer changed the object first
            except PASSING as error:
                _log.warning(
                    "Cannot remove the finalizer; retrying",
                    error=str(error),
                    gvk=str(resource.gvk),
                    **key._asdict(),
                )
            else:
                self._removed[key] = uid
                return
            await asyncio.sleep(CONFLICT_BACKOFF.after(attempts))
