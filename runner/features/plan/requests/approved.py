"""Writes of runs that execute an approved plan (`APPROVED`).

Each write is sent as a dry run first. If the plan contains its effect, it is sent again, bound to the version of the
object that the dry run was computed on. If the object changed meanwhile, both are repeated. The first other write is
refused and ends the run, as are requests that a plan run refuses.
"""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus

import orjson

from runner.core.proxy import content
from runner.core.proxy.calls import Answer
from runner.features.plan.approved import ApprovedPlan
from runner.features.plan.requests import calls
from runner.features.plan.requests.calls import Params, PlanCall, RefusedError
from runner.features.plan.requests.deletions import delete_options
from runner.features.plan.requests.writes import PlanWrites
from runner.features.plan.trial.overlay import PlannedChange
from runner.values.objects import Object, metadata, uid_of

_ATTEMPTS = 5
"""Attempts to write an object that other clients change all the time."""
_JSON_PATCH = "application/json-patch+json"


async def answer(writes: PlanWrites, plan: PlanCall, approval: ApprovedPlan) -> Answer:
    """Answer a write of an approved run. Raises RefusedError or StatusError."""
    if approval.refused:
        raise RefusedError(f"the run is ending: {approval.refused}")
    if plan.info.subresource == "eviction":
        raise RefusedError("the proxy cannot bind an eviction to the plan")
    for _ in range(_ATTEMPTS):
        if (answer := await _attempt(writes, plan, approval)) is not None:
            return answer
    raise RefusedError("other clients change the object all the time")


async def _attempt(planning: PlanWrites, plan: PlanCall, approval: ApprovedPlan) -> Answer | None:
    """Send a write as a dry run, and then bound to its version. Return None if the object changed meanwhile."""
    trial = replace(plan, overlay=approval.trial())
    answer = await planning.answer(trial)
    writes = trial.overlay.writes
    if not answer.is_success or not writes or "All" in plan.values("dryRun"):
        return answer
    if any(map(_is_mixed, writes)):
        return None
    if why := next(filter(None, map(approval.refusal, writes)), ""):
        raise RefusedError(why)
    if plan.info.verb.startswith("delete"):
        replies = [await _delete(plan, write) for write in writes]
        if any(map(_is_conflict, replies)):
            return None
        failed = (reply for reply in replies if not (reply.is_success or reply.status == HTTPStatus.NOT_FOUND))
        return replies[0] if plan.info.verb == "delete" else next(failed, answer)
    (write,) = writes
    reply = await _send(plan, write)
    if _is_conflict(reply) or await _has_failed_test(plan, write, reply):
        return None
    if reply.is_success and not plan.info.subresource:
        approval.sent(write, reply.obj)
    return reply


async def _send(plan: PlanCall, write: PlannedChange) -> Answer:
    """Send a creation, an update or a patch."""
    media, data = await plan.body()
    params = plan.without("dryRun")
    if plan.info.verb == "create":
        return await plan.write_for_real("POST", plan.path(name="", subresource=""), data, params, media)
    if write.verb != "create":
        media, data = await _bound(plan, media, _version(write))
    return await plan.write_for_real(plan.call.head.method, plan.path(), data, params, media)


async def _delete(plan: PlanCall, write: PlannedChange) -> Answer:
    media, data = await plan.body()
    options = delete_options(plan, media, data)
    if options is None:
        options = _options_of(plan.params)
    preconditions = {"uid": uid_of(write.before or {}), "resourceVersion": _version(write)}
    body = {**options, "preconditions": {**preconditions, **(options.get("preconditions") or {})}}
    path = calls.path_of(plan.info, write.key.namespace, write.key.name, "")
    return await plan.write_for_real("DELETE", path, orjson.dumps(body), [], content.JSON)


async def _bound(plan: PlanCall, media: str, version: str) -> tuple[str, bytes]:
    """Return the content of an update or a patch that fails if the object has another version."""
    if media == _JSON_PATCH:
        test = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
        return media, orjson.dumps([test, *plan.operations()])
    obj = await plan.object() if plan.info.verb == "update" else plan.parsed()
    bound = {**obj, "metadata": {**metadata(obj), "resourceVersion": version}}
    is_patch = plan.info.verb == "patch"
    return (media if is_patch else content.JSON), orjson.dumps(bound)


def _version(write: PlannedChange) -> str:
    version = str(metadata(write.before or {}).get("resourceVersion") or "")
    if not version:
        raise RefusedError("the run may not read the object, so that the write cannot be bound to its version")
    return version


def _options_of(params: Params) -> Object:
    """Return the options in the query of a deletion."""
    query = dict(params)
    options: Object = {"kind": "DeleteOptions", "apiVersion": "v1"}
    if query.get("propagationPolicy"):
        options["propagationPolicy"] = query["propagationPolicy"]
    if query.get("gracePeriodSeconds"):
        try:
            options["gracePeriodSeconds"] = int(query["gracePeriodSeconds"])
        except ValueError as error:
            raise RefusedError("invalid gracePeriodSeconds", HTTPStatus.BAD_REQUEST) from error
    if query.get("orphanDependents"):
        options["orphanDependents"] = query["orphanDependents"] == "true"
    return options


def _is_mixed(write: PlannedChange) -> bool:
    """Return whether another client changed the object between its read and the dry run: it then has both changes."""
    if write.before is None or write.after is None:
        return False
    return metadata(write.before).get("resourceVersion") != metadata(write.after).get("resourceVersion")


def _is_conflict(reply: Answer) -> bool:
    """Return whether another client changed the object after the dry run."""
    return reply.status == HTTPStatus.CONFLICT and reply.obj.get("reason") != "AlreadyExists"


async def _has_failed_test(plan: PlanCall, write: PlannedChange, reply: Answer) -> bool:
    """Return whether the test of the version failed in a JSON patch: its error does not name the test."""
    if write.verb == "create" or reply.status != HTTPStatus.UNPROCESSABLE_ENTITY:
        return False
    current = await plan.get(plan.path(subresource=""))
    return current.is_success and metadata(current.obj).get("resourceVersion") != _version(write)
