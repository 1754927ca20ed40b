"""Requests of runs: records the read set of a run, for watches with `skipUnchanged`.

The read set contains digests of objects and lists that the run reads, and of responses to its writes. The events of the
run show which kinds it did not find. Watches, logs and other subresources are not recorded. If a response cannot be
parsed, the read set is marked incomplete, so that the next run is not skipped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import quote

from runner.core.engine.job import Event
from runner.core.proxy.calls import Answer, Call, Observer
from runner.core.proxy.request import RequestInfo
from runner.values.digests import digest_of_answer
from runner.values.objects import Object, ObjectKey, key_of, mapping
from runner.values.slots import Slot

_MOST_PATHS = 1000
"""Limit during the run, when it is not known yet which objects are owned."""
UNSERVED = "unserved"
"""Digest of the path of an API version that the API server does not serve."""
_API_VERSION = re.compile(r'apiVersion "((?:[a-z0-9][a-z0-9.-]*/)?v[a-z0-9]+)"')
"""API version in the message of `k8s_info`."""
_RECORDED = frozenset({"get", "list", "create", "update", "patch", "delete"})


@dataclass(slots=True)
class ReadSet:
    """Objects and lists that a run read, without owned objects."""

    owned: str = ""
    """Digest of the owned objects at the end of the run; empty if not known, or if another client changed one."""
    unseen: str = ""
    """Why the reads of the run are not fully recorded."""
    reads: dict[str, ReadEntry] = field(default_factory=dict)

    def saw(self, path: str, seen: ReadEntry) -> None:
        """Record a read; the latest of a path counts."""
        if len(self.reads) < _MOST_PATHS or path in self.reads:
            self.reads[path] = seen
        else:
            self.misses("the run read too many objects")

    def ended(self, owned: str) -> None:
        """Note the digest of the owned objects at the end of the run."""
        self.owned = owned

    def event(self, event: Event) -> None:
        """Note that `k8s_info` read a kind that the API server does not serve: no request contains its name."""
        result = mapping(mapping(event.get("event_data")).get("res"))
        if result.get("api_found") is not False:
            return
        if named := _API_VERSION.search(str(result.get("msg"))):
            path = f"/apis/{named[1]}" if "/" in named[1] else f"/api/{named[1]}"
            self.saw(path, ReadEntry(("", ""), ObjectKey("", ""), UNSERVED))
        else:
            self.misses("the run read a kind that the API server does not serve")

    def misses(self, why: str) -> None:
        """Record that the run read something that cannot be compared."""
        self.unseen = self.unseen or why


READ_SET: Slot[ReadSet | None] = Slot("read set", None)
"""Read set of a run; None if it is not recorded."""


@dataclass(frozen=True, slots=True)
class ReadEntry:
    """An object or a list that a run read."""

    kind: tuple[str, str]
    """Group and plural."""
    key: ObjectKey
    """Without a name for a list."""
    digest: str


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
    return ReadEntry((info.group, info.resource), ObjectKey(info.key.namespace, name), digest_of_answer(obj))
