"""One write of a plan run: the kind of its object, and what all kinds of writes need."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

from runner.core.kube.discovery import ApiResource
from runner.core.proxy.calls import Answer
from runner.features.plan.requests.calls import PlanCall, StatusError, is_temporary
from runner.features.plan.trial import stored
from runner.features.plan.trial.overlay import ONLY_PLANNED, Action, PlannedObject, Step, step
from runner.features.plan.trial.schemas import ApiDocument
from runner.features.plan.trial.stored import scalars
from runner.values.objects import Object, ObjectKey, metadata, uid_of

_IDENTITY = ("name", "namespace", "uid", "creationTimestamp")


@dataclass(slots=True)
class PlanWrite(PlanCall):
    """A write, and the kind of its object."""

    resource: ApiResource
    document: ApiDocument

    def step(self, action: Action, key: ObjectKey) -> Step:
        """Return how a write of an object is answered."""
        overlay = self.overlay
        return step(action, overlay.state(self.kind, key), in_planned_namespace=overlay.only_planned(key.namespace))

    @property
    def unvalidated(self) -> str:
        """Why the API server cannot validate objects in the namespace of the request; empty if it can."""
        namespace = self.key.namespace
        return f"the namespace {namespace} exists in the plan only" if self.overlay.only_planned(namespace) else ""

    async def before(self) -> tuple[Object | None, bool]:
        """Return the object before the first write of the plan, and whether it exists at the API server."""
        if (planned := self.planned) is not None:
            return planned.before, planned.existed
        reply = await self.get(self.path(subresource=""))
        if reply.is_success:
            return reply.obj, True
        if reply.status == HTTPStatus.NOT_FOUND:
            return None, False
        if is_temporary(reply):
            raise StatusError(reply)
        why = reply.obj.get("message") or f"status {reply.status}"
        self.overlay.incomplete(f"cannot read {self.info.qualified} {self.key} before its change: {why}")
        return None, True

    def kept(self, planned: PlannedObject, obj: Object) -> Object:
        """Return a written object with the identity of the planned one, and its status if that is a subresource."""
        now = planned.after or {}
        if not planned.existed and uid_of(now):
            obj = stored.with_uid(obj, uid_of(now))
        identity = {name: metadata(now)[name] for name in _IDENTITY if name in metadata(now)}
        merged = {**obj, "metadata": {**metadata(obj), **identity}}
        if planned.state in ONLY_PLANNED:
            merged["metadata"].pop("resourceVersion", None)
        if "status" in self.resource.subresources:
            merged.pop("status", None)
            merged |= {"status": now["status"]} if "status" in now else {}
        return merged

    def with_unknown(self, key: ObjectKey, obj: Object, before: Object | None, sent: object) -> Object:
        """Replace the values that the API server chose by placeholders; `sent` is the content of the request."""
        requested = frozenset(scalars(sent))
        return self.overlay.unknown.with_placeholders(self.resource.gvk, key, obj, before, requested)

    def without_unknown(self, key: ObjectKey, obj: Object) -> Object:
        """Remove the object's own placeholders, which the API server does not accept."""
        return self.overlay.unknown.without(self.resource.gvk, key, obj)

    def record(
        self,
        key: ObjectKey,
        before: Object | None,
        after: Object | None,
        *,
        existed: bool,
        reason: str = "",
        requested: Object | None = None,
    ) -> None:
        """Record the result."""
        if not self.is_trial:
            self.overlay.record(self.resource, key, before, after, existed=existed, reason=reason, requested=requested)


def succeeded(reply: Answer) -> Object:
    """Return the object in a response. Raises StatusError if it is an error."""
    if not reply.is_success:
        raise StatusError(reply)
    return reply.obj
