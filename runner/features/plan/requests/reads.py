"""Reads of plan runs: responses of the API server, with planned objects merged into them.

Owns: which reads the planned writes affect. All other reads are forwarded unchanged. A list is read whole, and planned
objects are sorted into it. A watch gets the planned state at once, and nothing more until it ends. Must not import:
writes of plan runs.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from http import HTTPStatus

import orjson

from runner.core.proxy.calls import Answer
from runner.core.proxy.http.messages import CHUNKED
from runner.features.plan.requests import calls
from runner.features.plan.requests.calls import LARGEST_LIST, PlanCall, RefusedError, StatusError
from runner.features.plan.trial.overlay import PlannedObject, PlannedState
from runner.features.plan.trial.selection import Selector, SelectorError
from runner.values.objects import Object, ObjectKey, key_of, metadata

_SELECTORS = ("labelSelector", "fieldSelector")
_OF_PAGES = ("limit", "watch", "timeoutSeconds", "allowWatchBookmarks", "sendInitialEvents")
_NO = frozenset({"", "false", "0"})
_FROM_NOW = frozenset({"", "0"})
_INITIAL_EVENTS_END = "k8s.io/initial-events-end"
_SCALE = "scale"


async def answer(plan: PlanCall, longest_watch: float) -> Answer:
    """Answer a read; a watch of planned objects lasts `longest_watch` seconds. Raises RefusedError or StatusError."""
    if plan.info.verb == "get":
        return await _get(plan)
    if not plan.overlay.affects(plan.kind, plan.key.namespace):
        return await plan.forward()
    if plan.info.verb == "watch":
        return await _watch(plan, longest_watch)
    merged = await merged_list(plan, plan.without(*_OF_PAGES))
    return _as_list(plan, merged)


async def _get(plan: PlanCall) -> Answer:
    planned, info = plan.planned, plan.info
    if planned is None:
        if plan.overlay.hides(plan.kind, plan.key):
            return calls.not_found(plan.kind, info.name)
        return await plan.forward()
    obj = current(planned, plan)
    if info.subresource == _SCALE:
        obj = scale_of(obj)
    elif info.subresource not in {"", "status"}:
        if planned.state is PlannedState.CHANGED:
            return await plan.forward()
        return calls.not_found(plan.kind, info.name)
    elif calls.accepts_partial(plan.call):
        obj = calls.partial(obj)
    return calls.respond(obj, to_head=plan.call.head.method == "HEAD")


def _as_list(plan: PlanCall, merged: Object) -> Answer:
    if calls.accepts_partial(plan.call):
        items = [calls.partial(item) for item in merged["items"]]
        kind = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"}
        merged = {**kind, "metadata": merged.get("metadata") or {}, "items": items}
    return calls.respond(merged, to_head=plan.call.head.method == "HEAD")


async def _watch(plan: PlanCall, longest: float) -> Answer:
    is_partial = calls.accepts_partial(plan.call)
    selectors = [pair for pair in plan.params if pair[0] in _SELECTORS]
    if plan.info.name and not plan.values("fieldSelector"):
        # A deprecated path, such as /api/v1/watch/namespaces/ns/pods/name.
        selectors.append(("fieldSelector", f"metadata.name={plan.info.name}"))
    version = next(iter(plan.values("resourceVersion")), "")
    is_initial = next(iter(plan.values("sendInitialEvents")), "") not in _NO
    if version in _FROM_NOW or is_initial:
        listed = await merged_list(plan, selectors)
        version = str(metadata(listed).get("resourceVersion") or version)
        events = [("ADDED", obj) for obj in listed["items"]]
    else:
        events = list(_planned_events(plan, _selector(plan)))
    lines = [
        orjson.dumps({"type": kind, "object": calls.partial(obj) if is_partial else obj}) + b"\n"
        for kind, obj in events
    ]
    if is_initial:
        mark = {"resourceVersion": version, "annotations": {_INITIAL_EVENTS_END: "true"}}
        lines.append(orjson.dumps({"type": "BOOKMARK", "object": _type_of(plan, events) | {"metadata": mark}}) + b"\n")
    waits = _PlannedEvents(b"".join(lines), min(_seconds(plan), longest))
    return Answer(HTTPStatus.OK, b"", [(b"Content-Type", calls.JSON)], CHUNKED, waits)


class _PlannedEvents:
    """Content of a watch: events, then nothing until the watch ends."""

    def __init__(self, events: bytes, seconds: float) -> None:
        self._events = events
        self._seconds = seconds
        self.ended = False

    def take(self) -> bytes:
        """Return the events once, then nothing."""
        events, self._events = self._events, b""
        return events

    async def read(self) -> bytes:
        """Wait for the end."""
        if events := self.take():
            return events
        await asyncio.sleep(self._seconds)
        self.ended = True
        return b""


async def merged_list(plan: PlanCall, params: calls.Params) -> Object:
    """Return the list at the request's path, with planned objects.

    Raises:
        RefusedError: the list is too large, or it needs planned objects in another version.
        StatusError: the API server's error.
    """
    selector = _selector(plan)
    added = {
        planned.key: current(planned, plan) for planned in _present(plan) if selector.matches(current(planned, plan))
    }
    reply = await plan.get(plan.path(name="", subresource=""), params, most=LARGEST_LIST)
    items = _items(reply)
    unplanned = [item for item in items if _is_unplanned(plan, key_of(item))]
    if any(name == "continue" and value for name, value in params):
        # Earlier pages contain the objects before these.
        page = {key_of(item) for item in items}
        created = {planned.key for planned in _present(plan) if not planned.existed}
        added = {key: obj for key, obj in added.items() if key in page | created}
    merged = sorted([*unplanned, *added.values()], key=lambda obj: "/".join(key_of(obj)))
    return {**reply.obj, "items": merged}


def current(planned: PlannedObject, plan: PlanCall) -> Object:
    """Return a planned object in the version of the request.

    Raises:
        StatusError: it is deleted.
        RefusedError: it is planned in another version.
    """
    if planned.after is None:
        raise StatusError(calls.not_found(plan.kind, planned.key.name))
    if planned.resource.gvk.version != plan.info.version:
        raise RefusedError(
            f"the plan changes {planned.resource.gvk.kind} {planned.key} in version {planned.resource.gvk.version}: it "
            f"cannot be converted to {plan.info.version}",
            HTTPStatus.NOT_ACCEPTABLE,
        )
    return planned.after


def scale_of(obj: Object) -> Object:
    """Return the `Scale` of an object with `spec.replicas`."""
    status = obj.get("status") or {}
    named = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata(obj)[name] for name in named if name in metadata(obj)},
        "spec": {"replicas": (obj.get("spec") or {}).get("replicas", 0)},
        "status": {"replicas": status.get("replicas", 0)},
    }


def _items(reply: Answer) -> list[Object]:
    if not reply.is_success:
        raise StatusError(reply)
    items = reply.obj.get("items")
    if not isinstance(items, list) and reply.obj.get("kind", "").endswith("List"):
        return []
    if not isinstance(items, list):
        raise RefusedError("the API server's response is no list in JSON", HTTPStatus.BAD_GATEWAY)
    return [item for item in items if isinstance(item, dict)]


def _present(plan: PlanCall) -> Iterator[PlannedObject]:
    return (planned for planned in plan.overlay.of_kind(plan.kind, plan.key.namespace) if planned.after is not None)


def _is_unplanned(plan: PlanCall, key: ObjectKey) -> bool:
    return plan.overlay.state(plan.kind, key) is PlannedState.UNCHANGED


def _planned_events(plan: PlanCall, selector: Selector) -> Iterator[tuple[str, Object]]:
    for planned in plan.overlay.of_kind(plan.kind, plan.key.namespace):
        if planned.after is None:
            if planned.before is not None and selector.matches(planned.before):
                yield "DELETED", planned.before
        elif selector.matches(current(planned, plan)):
            yield ("MODIFIED" if planned.existed else "ADDED"), current(planned, plan)
        elif planned.before is not None and selector.matches(planned.before):
            yield "DELETED", current(planned, plan)


def _selector(plan: PlanCall) -> Selector:
    fields = plan.values("fieldSelector")
    if plan.info.name:
        fields = [*fields, f"metadata.name={plan.info.name}"]
    try:
        return Selector.parse(plan.values("labelSelector"), fields)
    except SelectorError as error:
        raise StatusError(calls.failure(HTTPStatus.BAD_REQUEST, "BadRequest", str(error))) from error


def _type_of(plan: PlanCall, events: list[tuple[str, Object]]) -> Object:
    """Return the type of a bookmark's object: that of the planned objects."""
    planned = next(iter(plan.overlay.of_kind(plan.kind)), None)
    if planned is not None:
        return {"apiVersion": planned.resource.gvk.api_version, "kind": planned.resource.gvk.kind}
    return {name: events[0][1].get(name, "") for name in ("apiVersion", "kind")} if events else {}


def _seconds(plan: PlanCall) -> float:
    values = plan.values("timeoutSeconds")
    try:
        return max(int(values[0]), 0) if values else math.inf
    except ValueError:
        return 0.0
