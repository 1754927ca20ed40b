"""Requests of runs: records the objects that a run uses, if any watch has `prune`, and those that it creates.

Each request with the name of an object uses it, whatever its response is. A list uses the objects in its response, and
a creation the object that exists already. Until their response is there, they use all objects of the kind, as do
watches, deletions of collections and unknown requests.
"""

from __future__ import annotations

from http import HTTPStatus

from runner.core.proxy.calls import Answer, Call, Observer
from runner.core.proxy.request import RequestInfo
from runner.features.prune.run_objects import USES
from runner.values.objects import ObjectKey

_BY_RESPONSE = frozenset({"list", "create"})
"""Verbs of requests of which the response names the objects."""


async def requested(call: Call) -> None:
    """Record what a request uses. Wait while the operator deletes such an object."""
    uses, info = call.run.run.more.get(USES), call.info
    if uses is None or not info.is_resource:
        return
    key = ObjectKey(_namespace(info), info.name)
    if info.name:
        uses.used.name(info.resource, key)
    elif info.verb in _BY_RESPONSE:
        uses.used.requested(info.resource, key.namespace)
    else:
        uses.used.all_of(info.resource, key.namespace)
    await uses.gate.wait(info.resource, key)


async def answered(call: Call, answer: Answer) -> None:
    """Record the objects in the response to a list, or the object because of which a creation was refused."""
    uses, info = call.run.run.more.get(USES), call.info
    if uses is None or not info.is_resource or info.name or info.verb not in _BY_RESPONSE:
        return
    namespace = _namespace(info)
    if info.verb == "list":
        objects = await answer.object() if answer.is_success else None
        uses.used.listed(info.resource, namespace, objects)
    elif answer.status == HTTPStatus.CONFLICT:
        name = ((await answer.object() or {}).get("details") or {}).get("name")
        objects = {"items": [{"metadata": {"namespace": namespace, "name": name}}]} if name else None
        uses.used.listed(info.resource, namespace, objects)
    uses.used.answered(info.resource, namespace)


OBSERVER = Observer(requested, answered)


def _namespace(info: RequestInfo) -> str:
    return "" if info.resource == "namespaces" and not info.group else info.namespace
