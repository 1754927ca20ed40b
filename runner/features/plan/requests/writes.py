"""Writes of plan runs: dry runs at the API server, whose results are recorded in the overlay.

The first write of an object is sent as it is, as a dry run. Each later one is computed on the planned object. The API
server then validates the result by a dry-run update, or by a dry-run creation if the object exists in the plan only.
If it cannot validate a write, the change is recorded with the reason.

Promises: every write that reaches the API server is a dry run, whatever the client sends.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from typing import Any

import orjson

from runner.core.kube import rights
from runner.core.kube.discovery import ServedResources
from runner.core.proxy import content
from runner.core.proxy.calls import Answer
from runner.core.proxy.handlers import owners
from runner.features.plan.requests import calls, deletions
from runner.features.plan.requests.calls import SET_FOR_NEW, Params, PlanCall, RefusedError, StatusError
from runner.features.plan.requests.reads import current, scale_of
from runner.features.plan.requests.write import PlanWrite, succeeded
from runner.features.plan.trial import patches, stored
from runner.features.plan.trial.overlay import NAMESPACES, ONLY_PLANNED, Action, PlannedObject, Step, comparable
from runner.features.plan.trial.patches import PatchError
from runner.features.plan.trial.schemas import ApiDocument
from runner.features.plan.trial.stored import has_choices
from runner.values.errors import ApiError
from runner.values.objects import Object, ObjectKey, metadata

_WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
_CHANGES = frozenset({"update", "patch"})
_SUBRESOURCES = {
    "": _WRITES,
    "status": _CHANGES,
    "scale": _CHANGES,
    "resize": _CHANGES,
    "ephemeralcontainers": _CHANGES,
    "approval": _CHANGES,
    "eviction": frozenset({"create"}),
}
"""Verbs that the API server dry-runs, by subresource. Others are actions, such as `exec`, `binding` and `token`."""
_REVIEW_GROUPS = frozenset({"authorization.k8s.io", "authentication.k8s.io"})
_READS = 3
"""Attempts to read an object in the version that its dry run was computed on."""
_TIME_TO_LIVE = 60.0
_MOST_DOCUMENTS = 16
_LARGEST_DOCUMENT = 64 << 20
_ATTEMPTS, _INTERVAL = 5, 0.5
"""Requests for a document in which a path is missing, and seconds between them."""
_OF_WRITES = frozenset({"fieldManager", "fieldValidation"})
_MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


class PlanWrites:
    """Answers writes of plan runs."""

    def __init__(self, served: ServedResources, clock: Callable[[], float]) -> None:
        self._served = served
        self._documents = ApiDocuments(clock)

    async def answer(self, plan: PlanCall) -> Answer:
        """Answer a write. Raises RefusedError or StatusError."""
        info = plan.info
        if info.verb not in _SUBRESOURCES.get(info.subresource, ()):
            raise RefusedError("the API server cannot dry-run it")
        if info.group in _REVIEW_GROUPS and info.verb == "create" and not info.name:
            media, data = await plan.body()
            return await plan.write("POST", plan.path(), data, media=media.encode())
        try:
            resource = await self._served.find(info.group, info.version, info.resource)
        except ApiError as error:
            raise RefusedError(f"cannot look up its kind: {error}", error.status) from error
        if resource is None:
            raise RefusedError("the API server does not serve this kind", HTTPStatus.NOT_FOUND)
        if owners.is_virtual(resource):
            raise RefusedError("objects of this kind are not stored, so a write is an action")
        async with plan.overlay.writing:
            document = await self._documents.check(plan)
            write = PlanWrite(plan.call, plan.proceed, plan.run, plan.overlay, plan.params, resource, document)
            match info.verb:
                case "create" if info.subresource:
                    return await deletions.evict(write)
                case "create":
                    return await _create(write, await write.object())
                case "update" | "patch":
                    return await _change(write)
                case "delete":
                    return await deletions.delete(write)
                case _:
                    return await deletions.delete_collection(write)


async def _create(plan: PlanWrite, obj: Object) -> Answer:
    overlay = plan.overlay
    meta = metadata(obj)
    name = meta.get("name") or ""
    namespace = plan.key.namespace
    if not name and isinstance(meta.get("generateName"), str):
        name = overlay.generated_name(plan.kind, namespace, meta["generateName"])
        obj = {**obj, "metadata": {**meta, "name": name}}
    if not isinstance(name, str) or (plan.unvalidated and not name):
        raise StatusError(calls.failure(HTTPStatus.BAD_REQUEST, "BadRequest", "metadata.name is no text, or empty"))
    key = ObjectKey(namespace, name)
    chosen = plan.step(Action.CREATE, key)
    if chosen is Step.EXISTS:
        raise StatusError(calls.already_exists(plan.kind, name))
    if namespace and overlay.has_namespace(namespace) is False:
        raise StatusError(calls.not_found(NAMESPACES, namespace))
    planned, reason = overlay.find(plan.kind, key), ""
    if chosen is Step.LOCAL:
        after, reason = stored.as_new(plan.resource, key, obj), plan.unvalidated
    elif chosen is Step.REPLACE and planned is not None:
        planned = replace(planned, after=stored.as_new(plan.resource, key, obj))
        after, reason = await _replace(plan, planned, obj)
    else:
        reply = await plan.write("POST", plan.path(name="", subresource=""), obj)
        after = plan.with_unknown(key, stored.as_new(plan.resource, key, succeeded(reply)), None, obj)
    plan.record(key, None, after, existed=False, reason=reason, requested=obj)
    return calls.respond(after, HTTPStatus.CREATED)


async def _change(plan: PlanWrite) -> Answer:
    media, data = await plan.body()
    creates = plan.info.verb == "patch" and media == content.APPLY and not plan.info.subresource
    planned, chosen = plan.planned, plan.step(Action.CHANGE, plan.key)
    if chosen is Step.COMPUTE and planned is not None:
        return await _change_planned(plan, planned, media)
    if chosen is Step.SEND:
        return await _change_first(plan, media, data)
    if not creates:
        raise StatusError(calls.not_found(plan.kind, plan.info.name))
    return await _create(plan, stored.named(plan.parsed(), plan.info.name))


async def _change_first(plan: PlanWrite, media: str, data: bytes) -> Answer:
    """Send the first write of an object as it is."""
    key = plan.key
    if plan.info.verb == "update" and media != content.PROTOBUF:
        plan.parsed()
    reads = 0
    while True:
        before, existed = await plan.before()
        reply = await plan.write(plan.call.head.method, plan.path(), data, media=media.encode())
        obj = succeeded(reply)
        reads += 1
        if not existed or before is None or _version_of(obj) == _version_of(before):
            break  # otherwise another client changed the object between both requests
        if reads == _READS:
            plan.overlay.incomplete(f"other clients change {plan.info.qualified} {key} all the time")
            break
    if not plan.info.subresource:
        obj = obj if existed else stored.as_new(plan.resource, key, obj)
        obj = plan.with_unknown(key, obj, before, await _sent(plan))
    after = obj
    if plan.info.subresource == "scale":
        after = stored.scaled(before or {}, obj)
        if "replicas" not in ((before or {}).get("spec") or {}):
            plan.overlay.incomplete(f"cannot determine the field that scales {plan.info.qualified} {key}")
    plan.record(key, before, after, existed=existed)
    return calls.respond(obj, reply.status)


async def _change_planned(plan: PlanWrite, planned: PlannedObject, media: str) -> Answer:
    """Compute a write on the planned object, and validate the result."""
    subresource = plan.info.subresource
    now = current(planned, plan)
    if subresource not in {"", "status", "scale"}:
        raise RefusedError("the plan already changes this object, so it cannot plan a write of this subresource")
    seen = scale_of(now) if subresource == "scale" else now
    is_update = plan.info.verb == "update"
    requested = await plan.object() if is_update else _patched(plan, seen, media)
    _check_identity(plan, seen, requested)
    if subresource == "status":
        after, reason = await _validate_status(plan, planned, requested)
    else:
        desired = stored.scaled(now, requested) if subresource == "scale" else requested
        after, reason = await _validate(plan, planned, desired)
    if comparable(after) == comparable(now):
        # Like at the API server, a write without a change leaves `managedFields` as they are.
        after = now
    plan.record(plan.key, planned.before, after, existed=planned.existed, reason=reason)
    return calls.respond(scale_of(after) if subresource == "scale" else after)


def _patched(plan: PlanWrite, seen: Object, media: str) -> Object:
    """Return the object that a patch results in."""
    schema = plan.document.schema(plan.resource.gvk)
    try:
        match media:
            case "application/json-patch+json":
                return patches.json_patch(seen, plan.operations())
            case content.MERGE:
                return _dict(patches.merge_patch(seen, plan.parsed()))
            case content.STRATEGIC if plan.document.takes_strategic(plan.template):
                return patches.strategic_patch(seen, plan.parsed(), schema)
            case content.APPLY:
                manager = next(iter(plan.values("fieldManager")), "")
                return patches.server_side_apply(seen, plan.parsed(), manager, schema)
            case _:
                message = f"the body of the request was in an unknown format: {media}"
                code = HTTPStatus.UNSUPPORTED_MEDIA_TYPE
                raise StatusError(calls.failure(code, "UnsupportedMediaType", message))
    except PatchError as error:
        code = HTTPStatus.UNPROCESSABLE_ENTITY
        raise StatusError(calls.failure(code, "Invalid", f"invalid patch: {error}")) from error


async def _validate(plan: PlanWrite, planned: PlannedObject, desired: Object) -> tuple[Object, str]:
    """Return the object as the API server would store it, and why it is not validated."""
    local = plan.kept(planned, desired)
    if reason := plan.unvalidated:
        return local, reason
    if planned.recreated:
        return await _replace(plan, planned, desired)
    body = plan.without_unknown(planned.key, desired)
    if planned.existed:
        reply = await _put(plan, plan.path(subresource=""), body)
    else:
        collection = plan.path(name="", subresource="")
        reply = await plan.write("POST", collection, stored.without(body, SET_FOR_NEW), _params(plan))
    if not reply.is_success:
        return local, _denied(plan, reply)
    return plan.with_unknown(planned.key, plan.kept(planned, reply.obj), planned.before, body), ""


async def _validate_status(plan: PlanWrite, planned: PlannedObject, requested: Object) -> tuple[Object, str]:
    now = planned.after or {}
    local = {**now, "status": requested.get("status") or {}}
    if planned.state in ONLY_PLANNED:
        return local, planned.reason or "its status cannot be validated, because the object exists in the plan only"
    reply = await _put(plan, plan.path(), local)
    if not reply.is_success:
        return local, _denied(plan, reply)
    return {**now, "status": reply.obj.get("status") or {}}, planned.reason


async def _replace(plan: PlanWrite, planned: PlannedObject, desired: Object) -> tuple[Object, str]:
    """Validate an object that the plan deletes and creates again, by an update of the existing one."""
    key = planned.key
    old = metadata(planned.before or {})
    sent = plan.without_unknown(key, desired)
    body = stored.without(sent, SET_FOR_NEW)
    body = {**body, "metadata": {**metadata(body), "resourceVersion": old.get("resourceVersion")}}
    reply = await _put(plan, plan.path(name=key.name, subresource=""), body)
    if not reply.is_success:
        message = reply.obj.get("message") or f"status {reply.status}"
        return plan.kept(planned, desired), (
            f"the API server cannot dry-run a creation while the old object exists; it rejects an update: {message}"
        )
    return plan.with_unknown(key, plan.kept(planned, reply.obj), None, sent), ""


async def _sent(plan: PlanWrite) -> object:
    """Return the content of an update or a patch, if the API server can choose values of the object."""
    if not has_choices(plan.resource.gvk):
        return None
    is_json_patch = plan.call.media == "application/json-patch+json"
    return plan.operations() if is_json_patch else await plan.object()


def _version_of(obj: Object) -> object:
    return metadata(obj).get("resourceVersion")


async def _put(plan: PlanCall, path: str, body: Object) -> Answer:
    """Send a dry-run update. If the object changed meanwhile, update its current version."""
    reply = await plan.write("PUT", path, body, _params(plan))
    if reply.status != HTTPStatus.CONFLICT:
        return reply
    live = await plan.get(path)
    version = metadata(live.obj).get("resourceVersion")
    if not live.is_success or not version:
        return reply
    return await plan.write(
        "PUT", path, {**body, "metadata": {**metadata(body), "resourceVersion": version}}, _params(plan)
    )


def _denied(plan: PlanCall, reply: Answer) -> str:
    """Return why a write is not validated, if only the validation needs the missing right. Raises StatusError."""
    message = str(reply.obj.get("message") or "")
    missing = rights.read(message) if reply.status == HTTPStatus.FORBIDDEN else None
    if missing is None or missing.verb == plan.info.verb:
        raise StatusError(reply)
    return f"the validation is forbidden: {message}"


def _check_identity(plan: PlanCall, now: Object, requested: Object) -> None:
    """Raise StatusError if a write changes the identity of the planned object, or expects another version of it."""
    old, new = metadata(now), metadata(requested)
    kind, name = plan.kind, plan.info.name
    for field in ("name", "namespace"):
        if new.get(field) and new[field] != old.get(field):
            message = f"the {field} of the object ({new[field]}) does not match the {field} of the request"
            raise StatusError(calls.failure(HTTPStatus.BAD_REQUEST, "BadRequest", message))
    if new.get("uid") and new["uid"] != old.get("uid"):
        why = f"Precondition failed: UID in precondition: {new['uid']}, UID in object meta: {old.get('uid')}"
        raise StatusError(calls.conflict(kind, name, why))
    version = new.get("resourceVersion")
    if version and old.get("resourceVersion") and version != old["resourceVersion"]:
        raise StatusError(calls.conflict(kind, name, _MODIFIED))


def _params(plan: PlanCall) -> Params:
    return [pair for pair in plan.params if pair[0] in _OF_WRITES]


def _dict(value: Any) -> Object:
    if not isinstance(value, dict):
        raise PatchError("the result is not an object")
    return value


class ApiDocuments:
    """OpenAPI documents of groups and versions, as the API server publishes them, cached for a minute.

    A CRD's document appears some time after its discovery, so that a missing path is requested again for two seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._documents: OrderedDict[tuple[str, str], tuple[float, ApiDocument]] = OrderedDict()

    async def check(self, plan: PlanCall) -> ApiDocument:
        """Return the document of a write. Raises RefusedError if the API server cannot dry-run it."""
        info, method = plan.info, plan.call.head.method
        document = await self._get(plan, newer=False)
        for _ in range(_ATTEMPTS):
            if document.can_dry_run(plan.template, method):
                return document
            if any(document.can_dry_run(plan.template, other) for other in ("post", "put", "patch", "delete")):
                break
            await asyncio.sleep(_INTERVAL)
            document = await self._get(plan, newer=True)
        raise RefusedError(f"its API does not document dry runs for {info.verb} (OpenAPI parameter dryRun)")

    async def _get(self, plan: PlanCall, *, newer: bool) -> ApiDocument:
        info = plan.info
        place, now = (info.group, info.version), self._clock()
        cached = self._documents.get(place)
        if cached is not None and not newer and now - cached[0] < _TIME_TO_LIVE:
            return cached[1]
        path = f"apis/{info.group}/{info.version}" if info.group else f"api/{info.version}"
        reply = await plan.get(f"/openapi/v3/{path}", most=_LARGEST_DOCUMENT)
        if calls.is_temporary(reply):
            raise StatusError(reply)
        if not reply.is_success and reply.status != HTTPStatus.NOT_FOUND:
            raise RefusedError(f"cannot read its OpenAPI document: status {reply.status}")
        document = await asyncio.to_thread(_parse, (await reply.data() or b"") if reply.is_success else b"{}")
        self._documents[place] = now, document
        self._documents.move_to_end(place)
        while len(self._documents) > _MOST_DOCUMENTS:
            self._documents.popitem(last=False)
        return document


def _parse(data: bytes) -> ApiDocument:
    try:
        return ApiDocument(orjson.loads(data))
    except (orjson.JSONDecodeError, AttributeError, TypeError) as error:
        raise RefusedError(f"its OpenAPI document is invalid: {error}") from error
