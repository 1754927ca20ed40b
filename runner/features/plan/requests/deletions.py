"""Deletions and evictions of plan runs. See `writes`."""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus

from runner.core.proxy import content, protobuf
from runner.core.proxy.calls import Answer
from runner.features.plan.requests import calls
from runner.features.plan.requests.calls import PlanCall, RefusedError, StatusError
from runner.features.plan.requests.reads import merged_list
from runner.features.plan.requests.write import PlanWrite, succeeded
from runner.features.plan.trial.overlay import Action, Step
from runner.values.objects import Object, ObjectKey, metadata, uid_of

_GRACE, _PRECONDITIONS, _ORPHAN, _PROPAGATION, _DRY_RUN = 1, 2, 3, 4, 5
_PRECONDITION_TEXTS = {1: "uid", 2: "resourceVersion"}
_KNOWN = frozenset({_GRACE, _PRECONDITIONS, _ORPHAN, _PROPAGATION, _DRY_RUN})


async def delete(plan: PlanWrite) -> Answer:
    """Delete one object."""
    key = plan.key
    media, data = await plan.body()
    options = delete_options(plan, media, data)
    planned, chosen = plan.planned, plan.step(Action.DELETE, key)
    if chosen is Step.MISSING:
        raise StatusError(calls.not_found(plan.kind, key.name))
    now = None if planned is None else planned.after
    if now is not None:
        _check_preconditions(plan, now, (options or {}).get("preconditions") or {})
    before, existed = await plan.before()
    answer = _deleted(plan, now)
    if chosen is Step.SEND:
        params = plan.without("dryRun") if options is None else []
        reply = await plan.write("DELETE", plan.path(), options, params)
        succeeded(reply)
        answer = reply
    if not _is_trial(plan, options):
        plan.record(key, before, None, existed=existed)
    return answer


async def delete_collection(plan: PlanWrite) -> Answer:
    """Delete all objects that match the selectors."""
    media, data = await plan.body()
    options = delete_options(plan, media, data)
    selectors = [pair for pair in plan.params if pair[0] in {"labelSelector", "fieldSelector"}]
    merged = await merged_list(plan, selectors)
    if not plan.unvalidated:
        params = plan.without("dryRun") if options is None else selectors
        succeeded(await plan.write("DELETE", plan.path(name=""), options, params))
    if not _is_trial(plan, options):
        gvk = plan.resource.gvk
        for item in merged["items"]:
            obj = {"apiVersion": gvk.api_version, "kind": gvk.kind, **item}
            key = ObjectKey(metadata(obj).get("namespace") or "", metadata(obj).get("name") or "")
            plan.record(key, obj, None, existed=True)
    return calls.respond(merged)


async def evict(plan: PlanWrite) -> Answer:
    """Evict a pod, which deletes it."""
    eviction = await plan.object()
    chosen = plan.step(Action.EVICT, plan.key)
    if chosen is Step.MISSING:
        raise StatusError(calls.not_found(plan.kind, plan.key.name))
    if chosen is Step.REFUSE:
        raise RefusedError("the pod exists in the plan only")
    if isinstance(eviction.get("deleteOptions"), dict):
        eviction = {**eviction, "deleteOptions": {**eviction["deleteOptions"], "dryRun": ["All"]}}
    before, existed = await plan.before()
    reply = await plan.write("POST", plan.path(), eviction)
    succeeded(reply)
    plan.record(plan.key, before, None, existed=existed)
    return reply


def _check_preconditions(plan: PlanCall, now: Object, preconditions: Object) -> None:
    for field in ("uid", "resourceVersion"):
        expected, actual = preconditions.get(field), metadata(now).get(field)
        if expected and actual and expected != actual:
            why = f"the {field} in the precondition ({expected}) does not match the {field} in record ({actual})"
            raise StatusError(calls.conflict(plan.kind, plan.info.name, why))


def delete_options(plan: PlanCall, media: str, data: bytes) -> Object | None:
    """Return the options in the content of a deletion; None without content."""
    if not data:
        return None
    if media != content.PROTOBUF:
        return plan.parsed()
    try:
        return _options(data)
    except ValueError as error:
        raise RefusedError(f"cannot read the DeleteOptions: {error}", HTTPStatus.UNSUPPORTED_MEDIA_TYPE) from error


def _options(data: bytes) -> Object:
    """Parse the options in protobuf as in JSON. Raises ValueError, also for unknown fields."""
    raw = protobuf.unknown(data).get(protobuf.RAW, b"")
    options: Object = {"kind": "DeleteOptions", "apiVersion": "v1"}
    for number, value in protobuf.fields(raw):
        if number not in _KNOWN:
            raise ValueError(f"unknown field {number} of DeleteOptions")
        if number == _GRACE:
            options["gracePeriodSeconds"] = value
        elif number == _PRECONDITIONS:
            conditions = dict(protobuf.fields(protobuf.octets(value)))
            options["preconditions"] = {
                name: protobuf.string(conditions[field])
                for field, name in _PRECONDITION_TEXTS.items()
                if field in conditions
            }
        elif number == _ORPHAN:
            options["orphanDependents"] = bool(value)
        elif number == _PROPAGATION:
            options["propagationPolicy"] = protobuf.string(value)
        else:
            options.setdefault("dryRun", []).append(protobuf.string(value))
    return options


def _is_trial(plan: PlanCall, options: Object | None) -> bool:
    """Return whether a command-line tool requests a dry run of a deletion itself."""
    if options is None or "All" not in (options.get("dryRun") or ()):
        return plan.is_trial
    return replace(plan, params=[("dryRun", "All")]).is_trial


def _deleted(plan: PlanCall, now: Object | None) -> Answer:
    """Return the API server's response to a deletion."""
    details = {**calls.details(plan.kind, plan.info.name), "uid": uid_of(now or {})}
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    return calls.respond(status)
