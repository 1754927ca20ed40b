"""Observers that record the objects that a run uses, for watches with `prune`.

Each request with the name of an object uses it, whatever its response is. A list uses the objects in its response.
Watches, deletions of collections and unknown requests use all objects of a kind.
"""

from __future__ import annotations

from runner.objects import ObjectKey
from runner.proxy.calls import Answer, Call
from runner.proxy.request import RequestInfo

_REDIRECT = 300


async def requested(call: Call) -> None:
    """Record what a request uses."""
    objects, info = call.run.run.objects, call.info
    if objects is None or not info.is_resource:
        return
    if info.name:
        objects.used.name(info.resource, ObjectKey(_namespace(info), info.name))
    elif info.verb not in {"create", "list"}:
        objects.used.all_of(info.resource, _namespace(info))


async def answered(call: Call, answer: Answer) -> None:
    """Record the objects in the response to a list."""
    objects, info = call.run.run.objects, call.info
    if objects is None or not info.is_resource or info.name or info.verb != "list":
        return
    found = await answer.object() if answer.status < _REDIRECT else None
    objects.used.listed(info.resource, _namespace(info), found)


def _namespace(info: RequestInfo) -> str:
    return "" if info.resource == "namespaces" and not info.group else info.namespace
