"""One write of a plan run: the kind of its object, and what all kinds of writes need."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

from runner.core.kube.discovery import ApiResource
from runner.core.proxy.calls import Answer
from runner.features.plan.requests.calls import PlanCall, StatusError
from runner.features.plan.trial import stored
from runner.features.plan.trial.overlay import Action, PlannedObject, Step, step
from runner.features.plan.trial.schemas import ApiDocument
from runner.features.plan.trial.unknown import scalars
from runner.values.objects import Object, ObjectKey


@dataclass(frozen=True, slots=True)
class PlanWrite:
    """A write, and the kind of its object."""

    plan: PlanCall
    resource: ApiResource
    document: ApiDocument

    def kept(self, planned: PlannedObject, obj: Object) -> Object:
        """Return a written object as it is stored in place of the planned one."""
        return stored.kept(planned, obj, has_status="status" in self.resource.subresources)

    def with_unknown(self, key: ObjectKey, obj: Object, before: Object | None, sent: object) -> Object:
        """Replace the values that the API server chose by placeholders; `sent` is the content of the request."""
        return self.plan.overlay.unknown.with_placeholders(
            self.resource.gvk, key, obj, before, frozenset(scalars(sent))
        )

    def without_unknown(self, key: ObjectKey, obj: Object) -> Object:
        """Remove the object's own placeholders, which the API server does not accept."""
        return self.plan.overlay.unknown.without(self.resource.gvk, key, obj)

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
        if not self.plan.is_trial:
            overlay = self.plan.overlay
            overlay.record(self.resource, key, before, after, existed=existed, reason=reason, requested=requested)


async def read_before(plan: PlanCall) -> tuple[Object | None, bool]:
    """Return the object at the API server, and whether it exists."""
    reply = await plan.get(plan.path(subresource=""))
    if reply.is_success:
        return reply.obj, True
    if reply.status == HTTPStatus.NOT_FOUND:
        return None, False
    why = reply.obj.get("message") or f"status {reply.status}"
    plan.overlay.incomplete(f"cannot read {plan.info.qualified} {plan.key} before its change: {why}")
    return None, True


def succeeded(reply: Answer) -> Object:
    """Return the object in a response. Raises StatusError if it is an error."""
    if not reply.is_success:
        raise StatusError(reply)
    return reply.obj


def step_of(plan: PlanCall, action: Action, key: ObjectKey) -> Step:
    """Return how a write of an object is answered."""
    overlay = plan.overlay
    return step(action, overlay.state(plan.kind, key), in_planned_namespace=overlay.only_planned(key.namespace))


def unvalidated(plan: PlanCall) -> str:
    """Return why the API server cannot validate objects in the namespace of the request; empty if it can."""
    namespace = plan.key.namespace
    return f"the namespace {namespace} exists in the plan only" if plan.overlay.only_planned(namespace) else ""
