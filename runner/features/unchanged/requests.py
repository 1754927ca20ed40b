"""Requests of runs: records the read set of a run, for watches with `skipUnchanged`.

The read set contains digests of objects and lists that the run reads, and of responses to its writes. Watches, logs and
other subresources are not recorded. If a response cannot be parsed, the read set is marked incomplete, so that the next
run is not skipped.
"""

from __future__ import annotations

from http import HTTPStatus
from urllib.parse import quote

from runner.core.proxy.calls import Answer, Call, Observer
from runner.core.proxy.request import RequestInfo
from runner.features.unchanged.last_run import READ_SET, ReadEntry, ReadSet
from runner.values.digests import digest_of_answer
from runner.values.objects import Object, ObjectKey, key_of

_RECORDED = frozenset({"get", "list", "create", "update", "patch", "delete"})


async def answered(call: Call, answer: Answer) -> None:
    """Record a response."""
    run, info = call.run.run, call.info
    read_set = run.more.get(READ_SET) if run.view is None else None
    if read_set is None or not info.is_resource or info.subresource or info.is_dry_run or call.head.upgrade:
        return
    if info.verb in _RECORDED:
        await _note(read_set, info, answer)
    elif info.verb == "deletecollection":
        read_set.misses(f"the run deleted a collection of {info.qualified}")


OBSERVER = Observer(answered=answered)


async def _note(read_set: ReadSet, info: RequestInfo, answer: Answer) -> None:
    path = quote(info.path)
    if answer.status == HTTPStatus.NOT_FOUND and info.verb == "get":
        read_set.saw(_with_query(path, info), _seen(info, info.name, None))
    if not answer.is_success:
        return
    if info.verb == "delete":
        read_set.saw(path, _seen(info, info.name, None))
        return
    obj = await answer.object()
    kind = str(obj.get("kind", "")) if obj is not None else ""
    if obj is None or kind == "Table" or kind.startswith("PartialObjectMetadata"):
        read_set.misses(f"the run read {info.qualified} in a format that cannot be compared")
    elif info.verb in {"get", "list"}:
        read_set.saw(_with_query(path, info), _seen(info, info.name, obj))
    else:
        name = info.name or key_of(obj).name
        read_set.saw(path if info.name else f"{path}/{quote(name, safe='')}", _seen(info, name, obj))


def _with_query(path: str, info: RequestInfo) -> str:
    return f"{path}?{info.query}" if info.query else path


def _seen(info: RequestInfo, name: str, obj: Object | None) -> ReadEntry:
    return ReadEntry((info.group, info.resource), ObjectKey(info.namespace, name), digest_of_answer(obj))
