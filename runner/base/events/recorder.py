"""Recorder of Kubernetes Events about watched objects.

Best effort: `record` never waits, and a failed write stops nothing. Events are written to events.k8s.io/v1, or to the
core group if only that is granted. Dropped Events are counted. A missing right is logged once for each namespace, with
the rule to add.

Repetitions within ten minutes become one Event with a count. The first repetition is written at once, later ones at
most every 30 seconds. Each object has a token bucket for new Events, and all objects share one, of which a part is
reserved for warnings. Without a token a repetition waits, and a new Event is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol, get_args
from urllib.parse import quote

from runner.base import log
from runner.base.events import bodies
from runner.base.events.bodies import REPORTER, ApiEvent, EventCount
from runner.base.meters import Meters
from runner.values.errors import (
    ApiError,
    ApiUnavailableError,
    ForbiddenError,
    KindNotFoundError,
    NamespaceTerminatingError,
    NotFoundError,
)
from runner.values.objects import Object

_AGAIN = 600.0
"""Seconds after which a repetition becomes a new Event."""
_EVERY = 30.0
"""Seconds between two writes of a repeated Event."""
_MOST = 4096
"""Limit of series, and of objects, in memory."""
_OF_ALL, _OF_OBJECT = (100, 2), (30, 1 / 20)
"""New Events at once and then in a second: of all objects, and of each one."""


@dataclass(slots=True)
class EventSeries:
    """An Event and its repetitions. Times are of the clock that is passed in."""

    what: ApiEvent
    first: float
    last: float
    count: int = 1
    object_name: str = ""
    """Name of the Event in the API; empty until it is written."""
    due: float | None = None
    """Time of the next write; None: all is written."""


class TokenBucket:
    """Token bucket: a burst of `most`, refilled by `refill` tokens a second."""

    def __init__(self, most: float, refill: float, now: float) -> None:
        self._most, self._refill = most, refill
        self._left, self._at = most, now

    def take(self, now: float, reserve: float = 0.0) -> bool:
        """Take a token, unless only `reserve` tokens are left."""
        self._left = min(self._left + (now - self._at) * self._refill, self._most)
        self._at = now
        if self._left < reserve + 1:
            return False
        self._left -= 1
        return True


class EventAggregator:
    """Counts repetitions, and returns the Events to write."""

    def __init__(self, now: float) -> None:
        self._series: OrderedDict[tuple[str, ...], EventSeries] = OrderedDict()
        self._objects: OrderedDict[str, TokenBucket] = OrderedDict()
        self._all = TokenBucket(*_OF_ALL, now)
        self._due: list[tuple[float, int, EventSeries]] = []
        self._number = itertools.count()

    def take(self, what: ApiEvent, now: float) -> bool:
        """Count an Event; return False if it is dropped."""
        series = self._series.get(what.name)
        if series is not None and now - series.last < _AGAIN:
            series.count += 1
            series.last = now
            if series.due is None:
                self._plan(series, now if series.count == 2 else now + _EVERY)  # noqa: PLR2004 - the first repetition
            return True
        if not self._of(what.regarding.uid, now).take(now) or not self._affords(what, now):
            return False
        series = self._series[what.name] = EventSeries(what, now, now)
        self._series.move_to_end(what.name)
        if len(self._series) > _MOST:
            self._series.popitem(last=False)
        self._plan(series, now)
        return True

    def forget(self, series: EventSeries) -> None:
        """Drop a series whose Event is gone from the API, or could not be written."""
        if self._series.get(series.what.name) is series:
            del self._series[series.what.name]

    def next(self) -> float | None:
        """Return the time of the next write; None if there is none."""
        return self._due[0][0] if self._due else None

    def due(self, now: float) -> Iterator[EventSeries]:
        """Yield the series to write by now, in the order of their first Event."""
        while self._due and self._due[0][0] <= now:
            series = heapq.heappop(self._due)[-1]
            if series.object_name and not self._affords(series.what, now):
                self._plan(series, now + _EVERY)
                continue
            series.due = None
            yield series

    def _plan(self, series: EventSeries, when: float) -> None:
        series.due = when
        heapq.heappush(self._due, (when, next(self._number), series))

    def _affords(self, what: ApiEvent, now: float) -> bool:
        return self._all.take(now, reserve=0 if what.type == "Warning" else 25)

    def _of(self, uid: str, now: float) -> TokenBucket:
        budget = self._objects.pop(uid, None) or TokenBucket(*_OF_OBJECT, now)
        self._objects[uid] = budget
        if len(self._objects) > _MOST:
            self._objects.popitem(last=False)
        return budget


DropReason = Literal["too many", "refused", "failed"]

_WAITING = 1000
"""Events that wait while the API server is slow."""
_REFUSED_FOR = 600.0
"""Seconds without writes to a namespace that refused an Event."""
_DEFAULT_NAMESPACE = "default"
"""Namespace of Events about cluster-scoped objects."""
_MERGE = "application/merge-patch+json"
_RULE = "{apiGroups: ['', events.k8s.io], resources: [events], verbs: [create, patch]}"

_log = log.get(__name__)


class EventClient(Protocol):
    """Client methods that the recorder uses."""

    async def request(self, method: str, path: str, *, body: object, content_type: str = ...) -> Object:
        """Send one request and return the answer."""
        ...


class EventQueue(Protocol):
    """Receiver of Events."""

    def record(self, what: ApiEvent) -> None:
        """Queue an Event."""
        ...


class EventRecorder:
    """Queues Events; `follow` writes them."""

    def __init__(self, client: EventClient, instance: str, clock: Callable[[], float], meters: Meters) -> None:
        """`instance` names this process among replicas; `clock` counts seconds."""
        self.dropped: Counter[str] = Counter(dict.fromkeys(get_args(DropReason), 0))
        """Dropped Events by reason."""
        text = "Events that were not written"
        meters.observable_counter("ansible_operator_events_dropped", text, ["reason"], lambda: self.dropped)
        self._client = client
        self._instance = instance or REPORTER
        self._clock = clock
        self._book = EventAggregator(clock())
        self._pending: deque[ApiEvent] = deque()
        self._changed = asyncio.Event()
        self._core: set[str] = set()
        """Namespaces in which the core group is granted."""
        self._refused_until: dict[str, float] = {}
        self._unpatched_until: dict[str, float] = {}
        """The same for namespaces in which repeated Events cannot be counted."""
        self._logged = log.Once()
        self._is_closing = False
        self._last_name = 0

    def record(self, what: ApiEvent) -> None:
        """Queue an Event."""
        if len(self._pending) >= _WAITING:
            self.dropped["too many"] += 1
            return
        self._pending.append(what)
        self._changed.set()

    async def follow(self) -> None:
        """Write queued Events until `close` is called and all due Events are written."""
        while True:
            self._changed.clear()
            await self._write_due()
            if self._is_closing:
                return
            due = self._book.next()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if due is None else max(due - self._clock(), 0)):
                    await self._changed.wait()

    async def close(self, following: asyncio.Task[None], grace: float) -> None:
        """End the task `following` once all Events are written, or after `grace` seconds."""
        self._is_closing = True
        self._changed.set()
        await asyncio.wait([following], timeout=grace)
        following.cancel()
        (ended,) = await asyncio.gather(following, return_exceptions=True)
        if isinstance(ended, Exception):
            _log.error("The event recorder failed", error=repr(ended))
        if self.dropped.total():
            _log.info("Events were dropped", **{why.replace(" ", "_"): count for why, count in self.dropped.items()})

    async def _write_due(self) -> None:
        while self._pending or ((due := self._book.next()) is not None and due <= self._clock()):
            while self._pending:
                if not self._book.take(self._pending.popleft(), self._clock()):
                    self.dropped["too many"] += 1
            for series in self._book.due(self._clock()):
                await self._write(series)

    async def _write(self, series: EventSeries) -> None:
        namespace = series.what.regarding.key.namespace or _DEFAULT_NAMESPACE
        if self._refused_until.get(namespace, 0) > self._clock():
            self.dropped["refused"] += 1
            return
        try:
            if series.object_name:
                await self._repeat(series, namespace)
            else:
                await self._create(series, namespace)
        except NamespaceTerminatingError:  # nothing to report, and one that is created again takes Events
            self.dropped["refused"] += 1
            self._book.forget(series)
        except ForbiddenError as error:
            self.dropped["refused"] += 1
            self._refused_until[namespace] = self._clock() + _REFUSED_FOR
            self._book.forget(series)
            self._warn("Cannot write Events; the log contains the same information", error, namespace)
        except (ApiError, ApiUnavailableError) as error:
            self.dropped["failed"] += 1
            self._book.forget(series)
            _log.debug("Cannot write an Event", error=str(error), reason=series.what.reason)

    async def _create(self, series: EventSeries, namespace: str) -> None:
        core = namespace in self._core
        try:
            await self._post(series, namespace, core=core)
        except NamespaceTerminatingError:
            raise
        except (ForbiddenError, NotFoundError, KindNotFoundError):
            await self._post(series, namespace, core=not core)
            self._core ^= {namespace}

    async def _post(self, series: EventSeries, namespace: str, *, core: bool) -> None:
        self._last_name = max(self._last_name + 1, int(self._seen(series).first * 1e9))
        name = bodies.name_of(series.what, self._last_name)
        metadata = {"name": name, "namespace": namespace}
        body = bodies.created(series.what, metadata, self._instance, self._seen(series), core=core)
        await self._client.request("POST", _path(namespace, core=core), body=body)
        series.object_name = name

    async def _repeat(self, series: EventSeries, namespace: str) -> None:
        if self._unpatched_until.get(namespace, 0) > self._clock():
            return
        core = namespace in self._core
        path = f"{_path(namespace, core=core)}/{quote(series.object_name, safe='')}"
        body = bodies.repeated(self._seen(series), core=core)
        try:
            await self._client.request("PATCH", path, body=body, content_type=_MERGE)
        except ForbiddenError as error:
            self._unpatched_until[namespace] = self._clock() + _REFUSED_FOR
            self._warn("Cannot patch Events, so repeated ones are not counted", error, namespace)
        except NotFoundError:
            self._book.forget(series)  # the API server keeps events for an hour, as a rule

    def _seen(self, series: EventSeries) -> EventCount:
        epoch = time.time() - self._clock()  # each time, because the clock may be corrected
        return EventCount(epoch + series.first, epoch + series.last, series.count)

    def _warn(self, message: str, error: ForbiddenError, namespace: str) -> None:
        if self._logged.is_new(namespace):
            _log.warning(message, error=str(error), rule=_RULE)


def _path(namespace: str, *, core: bool) -> str:
    return f"{'/api/v1' if core else '/apis/events.k8s.io/v1'}/namespaces/{quote(namespace, safe='')}/events"
