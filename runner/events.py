"""Events about the objects that we watch, for people who look with `kubectl describe` and `kubectl events`.

Best effort: an Event that cannot be written is no reason to stop or to wait, and a right that is missing is told once,
with the rule to add. Events are of events.k8s.io/v1, and of the core group where only that is granted. The same is told
of an object once in ten minutes, and all objects together have a budget, so that trouble with many does not become
trouble for the API server.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, Protocol
from urllib.parse import quote

from runner import log
from runner.errors import ApiError, ApiUnavailableError, ForbiddenError, NotFoundError
from runner.objects import GVK, Object, ObjectKey, key_of, uid_of

_AGAIN = 600.0
"""Seconds before the same is told of an object once more."""
_BUDGET = 50.0
_REFILL = 1.0
"""Events a second that all objects have together, once the budget is used up."""
_MOST = 4096
_LONGEST_NOTE = 1000
_LONGEST_NAME = 200
_REPORTER = "ansible-operator"
_DEFAULT_NAMESPACE = "default"
"""Where events about cluster-scoped objects are."""

_log = log.get(__name__)


class Requests(Protocol):
    """What events need of a client."""

    async def request(self, method: str, path: str, *, body: object) -> Object:
        """Send one request and return what comes back."""
        ...


@dataclass(frozen=True, slots=True)
class Reference:
    """An object that an event is about."""

    gvk: GVK
    key: ObjectKey
    uid: str

    @classmethod
    def to(cls, gvk: GVK, obj: Object) -> Reference:
        """Refer to an object of a kind."""
        return cls(gvk, key_of(obj), uid_of(obj))

    def written(self) -> dict[str, str]:
        """As the API has it."""
        fields = {
            "apiVersion": self.gvk.api_version,
            "kind": self.gvk.kind,
            "name": self.key.name,
            "namespace": self.key.namespace,
            "uid": self.uid,
        }
        return {name: value for name, value in fields.items() if value}


@dataclass(frozen=True, slots=True)
class Occurrence:
    """What is to be told."""

    regarding: Reference
    related: Reference | None
    type: Literal["Normal", "Warning"]
    reason: str
    """In CamelCase, for programs."""
    action: str
    """What was done about it, in CamelCase."""
    note: str
    """For people."""


class Events:
    """Writes events."""

    def __init__(self, client: Requests, instance: str, clock: Callable[[], float]) -> None:
        """`instance` names this process among replicas; `clock` counts seconds."""
        self._client = client
        self._instance = instance or _REPORTER
        self._clock = clock
        self._told: OrderedDict[tuple[str, str, str], float] = OrderedDict()
        self._budget, self._filled = _BUDGET, clock()
        self._core = False
        self._refused = False

    async def record(self, what: Occurrence) -> None:
        """Write an event, unless the same was written a moment ago."""
        if not self._admits(what):
            return
        try:
            await self._write(what)
        except ForbiddenError as error:
            if not self._refused:
                self._refused = True
                rule = "{apiGroups: ['', events.k8s.io], resources: [events], verbs: [create]}"
                _log.warning("Events are not written; what they say stands in the log", error=str(error), rule=rule)
        except (ApiError, ApiUnavailableError) as error:
            _log.debug("An event was not written", error=str(error), reason=what.reason)

    async def _write(self, what: Occurrence) -> None:
        namespace = what.regarding.key.namespace or _DEFAULT_NAMESPACE
        tail = f"namespaces/{quote(namespace, safe='')}/events"
        if not self._core:
            try:
                body = _of_events_group(what, namespace, self._instance)
                await self._client.request("POST", f"/apis/events.k8s.io/v1/{tail}", body=body)
            except (ForbiddenError, NotFoundError):
                await self._client.request("POST", f"/api/v1/{tail}", body=_of_core(what, namespace, self._instance))
                self._core = True
            return
        await self._client.request("POST", f"/api/v1/{tail}", body=_of_core(what, namespace, self._instance))

    def _admits(self, what: Occurrence) -> bool:
        now = self._clock()
        name = (what.regarding.uid, what.reason, what.note)
        if now - self._told.get(name, -_AGAIN) < _AGAIN:
            return False
        self._budget = min(self._budget + (now - self._filled) * _REFILL, _BUDGET)
        self._filled = now
        if self._budget < 1:
            return False
        self._budget -= 1
        self._told.pop(name, None)
        self._told[name] = now
        if len(self._told) > _MOST:
            self._told.popitem(last=False)
        return True


def _metadata(what: Occurrence, namespace: str) -> dict[str, str]:
    return {"name": f"{what.regarding.key.name[:_LONGEST_NAME]}.{secrets.token_hex(8)}", "namespace": namespace}


def _of_events_group(what: Occurrence, namespace: str, instance: str) -> dict[str, Any]:
    """https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/."""
    related = {"related": what.related.written()} if what.related is not None else {}
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": _metadata(what, namespace),
        "eventTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "type": what.type,
        "reason": what.reason,
        "action": what.action,
        "note": what.note[:_LONGEST_NOTE],
        "regarding": what.regarding.written(),
        "reportingController": _REPORTER,
        "reportingInstance": instance,
        **related,
    }


def _of_core(what: Occurrence, namespace: str, instance: str) -> dict[str, Any]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    related = {"related": what.related.written()} if what.related is not None else {}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": _metadata(what, namespace),
        "type": what.type,
        "reason": what.reason,
        "message": what.note[:_LONGEST_NOTE],
        "involvedObject": what.regarding.written(),
        "source": {"component": _REPORTER, "host": instance},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
        **related,
    }
