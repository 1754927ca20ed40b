"""Writes of plan runs: dry runs at the API server, whose results are recorded in the overlay.

The first write of an object is sent as it is, as a dry run. Each later one is computed on the planned object. The API
server then validates the result by a dry-run update, or by a dry-run creation if the object exists in the plan only.
If it cannot validate a write, the change is recorded with the reason.

Promises: every write that reaches the API server is a dry run, whatever the client sends.
"""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from typing import Any

from runner.core.kube import rights
from runner.core.kube.discovery import ServedResources
from runner.core.proxy import content
from runner.core.proxy.calls import Answer
from runner.core.proxy.handlers import owners
from runner.features.plan.requests import calls, deletions
from runner.features.plan.requests.calls import SET_FOR_NEW, Params, PlanCall, RefusedError, StatusError
from runner.features.plan.requests.reads import current, scale_of
from runner.features.plan.requests.schemas import ApiDocuments
from runner.features.plan.requests.write import PlanWrite, read_before, step_of, succeeded, unvalidated
from runner.features.plan.trial import apply, patches, stored
from runner.features.plan.trial.overlay import NAMESPACES, ONLY_PLANNED, Action, PlannedObject, Step, comparable
from runner.features.plan.trial.patches import PatchError
from runner.features.plan.trial.unknown import has_choices
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
_OF_WRITES = frozenset({"fieldManager", "fieldValidation"})
_MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


class PlanWrites:
    """Answers writes of plan runs."""

    def __init__(self, served: ServedResources, documents: ApiDocuments) -> None:
        self._served = served
        self._documents = documents

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
            return await self._write(PlanWrite(plan, resource, await self._documents.check(plan)))

    async def _write(self, write: PlanWrite) -> Answer:
        match write.plan.info.verb:
            case "create" if write.plan.info.subresource:
                return await deletions.evict(write)
            case "create":
                return await self._create(write, await write.plan.object())
            case "update" | "patch":
                return await self._change(write)
            case "delete":
                return await deletions.delete(write)
            case _:
                return await deletions.delete_collection(write)

    # Creation.

    async def _create(self, write: PlanWrite, obj: Object) -> Answer:
        plan, overlay = write.plan, write.plan.overlay
        meta = metadata(obj)
        name = meta.get("name") or ""
        namespace = plan.key.namespace
        if not name and isinstance(meta.get("generateName"), str):
            name = overlay.generated_name(plan.kind, namespace, meta["generateName"])
            obj = {**obj, "metadata": {**meta, "name": name}}
        key = ObjectKey(namespace, name)
        chosen = step_of(plan, Action.CREATE, key)
        if chosen is Step.EXISTS:
            raise StatusError(calls.already_exists(plan.kind, name))
        if namespace and overlay.has_namespace(namespace) is False:
            raise StatusError(calls.not_found(NAMESPACES, namespace))
        planned, reason = overlay.find(plan.kind, key), ""
        if chosen is Step.LOCAL:
            after, reason = stored.as_new(write.resource, key, obj), unvalidated(plan)
        elif chosen is Step.REPLACE and planned is not None:
            planned = replace(planned, after=stored.as_new(write.resource, key, obj))
            after, reason = await self._replace(write, planned, obj)
        else:
            reply = await plan.write("POST", plan.path(name="", subresource=""), obj)
            after = write.with_unknown(key, stored.as_new(write.resource, key, succeeded(reply)), None, obj)
        write.record(key, None, after, existed=False, reason=reason, requested=obj)
        return calls.respond(after, HTTPStatus.CREATED)

    # Update and patch.

    async def _change(self, write: PlanWrite) -> Answer:
        plan = write.plan
        media, data = await plan.body()
        creates = plan.info.verb == "patch" and media == content.APPLY and not plan.info.subresource
        planned, chosen = plan.planned, step_of(plan, Action.CHANGE, plan.key)
        if chosen is Step.COMPUTE and planned is not None:
            return await self._change_planned(write, planned, media)
        if chosen is Step.SEND:
            return await self._change_first(write, media, data)
        if not creates:
            raise StatusError(calls.not_found(plan.kind, plan.info.name))
        return await self._create(write, stored.named(plan.parsed(), plan.info.name))

    async def _change_first(self, write: PlanWrite, media: str, data: bytes) -> Answer:
        """Send the first write of an object as it is."""
        plan, key = write.plan, write.plan.key
        if plan.info.verb == "update" and media != content.PROTOBUF:
            plan.parsed()
        reads = 0
        while True:
            before, existed = await read_before(plan)
            reply = await plan.write(plan.call.head.method, plan.path(), data, media=media.encode())
            obj = succeeded(reply)
            reads += 1
            if not existed or before is None or _version_of(obj) == _version_of(before):
                break  # otherwise another client changed the object between both requests
            if reads == _READS:
                plan.overlay.incomplete(f"other clients change {plan.info.qualified} {key} all the time")
                break
        if not plan.info.subresource:
            obj = obj if existed else stored.as_new(write.resource, key, obj)
            obj = write.with_unknown(key, obj, before, await _sent(write))
        after = obj
        if plan.info.subresource == "scale":
            after = stored.scaled(before or {}, obj)
            if "replicas" not in ((before or {}).get("spec") or {}):
                plan.overlay.incomplete(f"cannot determine the field that scales {plan.info.qualified} {key}")
        write.record(key, before, after, existed=existed)
        return calls.respond(obj, reply.status)

    async def _change_planned(self, write: PlanWrite, planned: PlannedObject, media: str) -> Answer:
        """Compute a write on the planned object, and validate the result."""
        plan, subresource = write.plan, write.plan.info.subresource
        now = current(planned, plan)
        if subresource not in {"", "status", "scale"}:
            raise RefusedError("the plan already changes this object, so it cannot plan a write of this subresource")
        seen = scale_of(now) if subresource == "scale" else now
        is_update = plan.info.verb == "update"
        requested = await plan.object() if is_update else self._patched(write, seen, media)
        _check_identity(plan, seen, requested)
        if subresource == "status":
            after, reason = await self._validate_status(write, planned, requested)
        else:
            desired = stored.scaled(now, requested) if subresource == "scale" else requested
            after, reason = await self._validate(write, planned, desired)
        if comparable(after) == comparable(now):
            # Like at the API server, a write without a change leaves `managedFields` as they are.
            after = now
        write.record(plan.key, planned.before, after, existed=planned.existed, reason=reason)
        return calls.respond(scale_of(after) if subresource == "scale" else after)

    def _patched(self, write: PlanWrite, seen: Object, media: str) -> Object:
        """Return the object that a patch results in."""
        plan = write.plan
        schema = write.document.schema(write.resource.gvk)
        try:
            match media:
                case "application/json-patch+json":
                    return patches.json_patch(seen, plan.operations())
                case content.MERGE:
                    return _dict(patches.merge_patch(seen, plan.parsed()))
                case content.STRATEGIC if write.document.takes_strategic(plan.template):
                    return patches.strategic_patch(seen, plan.parsed(), schema)
                case content.APPLY:
                    manager = next(iter(plan.values("fieldManager")), "")
                    return apply.apply(seen, plan.parsed(), manager, schema)
                case _:
                    message = f"the body of the request was in an unknown format: {media}"
                    code = HTTPStatus.UNSUPPORTED_MEDIA_TYPE
                    raise StatusError(calls.failure(code, "UnsupportedMediaType", message))
        except PatchError as error:
            code = HTTPStatus.UNPROCESSABLE_ENTITY
            raise StatusError(calls.failure(code, "Invalid", f"invalid patch: {error}")) from error

    async def _validate(self, write: PlanWrite, planned: PlannedObject, desired: Object) -> tuple[Object, str]:
        """Return the object as the API server would store it, and why it is not validated."""
        plan = write.plan
        local = write.kept(planned, desired)
        if reason := unvalidated(plan):
            return local, reason
        if planned.recreated:
            return await self._replace(write, planned, desired)
        body = write.without_unknown(planned.key, desired)
        if planned.existed:
            reply = await _put(plan, plan.path(subresource=""), body)
        else:
            collection = plan.path(name="", subresource="")
            reply = await plan.write("POST", collection, stored.without(body, SET_FOR_NEW), _params(plan))
        if not reply.is_success:
            return local, _denied(plan, reply)
        return write.with_unknown(planned.key, write.kept(planned, reply.obj), planned.before, body), ""

    async def _validate_status(self, write: PlanWrite, planned: PlannedObject, requested: Object) -> tuple[Object, str]:
        plan, now = write.plan, planned.after or {}
        local = {**now, "status": requested.get("status") or {}}
        if planned.state in ONLY_PLANNED:
            return local, planned.reason or "its status cannot be validated, because the object exists in the plan only"
        reply = await _put(plan, plan.path(), local)
        if not reply.is_success:
            return local, _denied(plan, reply)
        return {**now, "status": reply.obj.get("status") or {}}, planned.reason

    async def _replace(self, write: PlanWrite, planned: PlannedObject, desired: Object) -> tuple[Object, str]:
        """Validate an object that the plan deletes and creates again, by an update of the existing one."""
        plan, key = write.plan, planned.key
        old = metadata(planned.before or {})
        sent = write.without_unknown(key, desired)
        body = stored.without(sent, SET_FOR_NEW)
        body = {**body, "metadata": {**metadata(body), "resourceVersion": old.get("resourceVersion")}}
        reply = await _put(plan, plan.path(name=key.name, subresource=""), body)
        if not reply.is_success:
            message = reply.obj.get("message") or f"status {reply.status}"
            return write.kept(planned, desired), (
                f"the API server cannot dry-run a creation while the old object exists; it rejects an update: {message}"
            )
        return write.with_unknown(key, write.kept(planned, reply.obj), None, sent), ""


async def _sent(write: PlanWrite) -> object:
    """Return the content of an update or a patch, if the API server can choose values of the object."""
    if not has_choices(write.resource.gvk):
        return None
    is_json_patch = write.plan.call.media == "application/json-patch+json"
    return write.plan.operations() if is_json_patch else await write.plan.object()


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
