"""Recorder of the objects that a run uses, for watches with `prune`.

Each request with the name of an object uses it, whatever its response is. A list uses the objects in its response.
Watches, deletions of collections and unknown requests use all objects of a kind. Must run before every handler that
answers calls.
"""

from __future__ import annotations

from runner.objects import ObjectKey
from runner.proxy.calls import Answer, Call, Proceed
from runner.proxy.handlers import content
from runner.prune.uses import UsedObjects

_REDIRECT = 300


class UseRecorder:
    """Handler that records used objects."""

    async def handle(self, call: Call, proceed: Proceed) -> Answer:
        """Forward the call, and record what it uses."""
        objects, info = call.run.run.objects, call.info
        if objects is None or not info.is_resource:
            return await proceed(call)
        namespace = "" if info.resource == "namespaces" and not info.group else info.namespace
        if info.name:
            objects.used.name(info.resource, ObjectKey(namespace, info.name))
        elif info.verb == "list":
            return await _list(objects.used, namespace, call, proceed)
        elif info.verb != "create":
            objects.used.all_of(info.resource, namespace)
        return await proceed(call)


async def _list(used: UsedObjects, namespace: str, call: Call, proceed: Proceed) -> Answer:
    answer = await proceed(call)
    if answer.status >= _REDIRECT:
        used.all_of(call.info.resource, namespace)
        return answer
    try:
        used.listed(call.info.resource, namespace, await content.observe(answer))
    except BaseException:
        answer.finish()
        raise
    return answer
