"""Reads the field `rollout` of a watch, and computes its steps and windows. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as attribute
from datetime import datetime, time, timedelta
from itertools import pairwise
from types import MappingProxyType
from zoneinfo import ZoneInfo

import yaml

from runner.base.yamlfile.fields import Fields
from runner.core.watches import field, policy
from runner.core.watches.field import Entry, FeatureFields, Field
from runner.values.slots import Slot, Slots

_STEP = re.compile(r"([0-9]{1,9})(%?)")
_TIME = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])|24:00")
_ALL = 100
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
"""Days of the windows of a rollout."""
_HOUR, _DAY = 60, 24 * 60


@dataclass(frozen=True, slots=True)
class Step:
    """Number of objects that may have run the new content after a step."""

    number: int
    is_percent: bool = False

    def limit(self, total: int) -> int:
        """Return the number of objects of `total`; a part of an object counts as one."""
        return min(-(-total * self.number // _ALL) if self.is_percent else self.number, total)


@dataclass(frozen=True, slots=True)
class Window:
    """Time at which outdated objects begin."""

    days: frozenset[int]
    """Days on which it opens; Monday is 0."""
    start: int
    """Minutes after midnight."""
    end: int
    """Minutes after midnight, of the next day if it is before `start`."""
    zone: str

    def opens(self, now: float) -> float:
        """Return when the window is open next, `now` if it is open. Times are in seconds since the epoch.

        The times are converted to moments before they are compared. So a change of daylight saving time neither skips
        a window nor opens it twice.
        """
        zone = ZoneInfo(self.zone)
        today = datetime.combine(datetime.fromtimestamp(now, zone), time())
        for offset in range(-1, 15):
            day = today + timedelta(days=offset)
            if day.weekday() not in self.days:
                continue
            begin = (day + timedelta(minutes=self.start)).replace(tzinfo=zone).timestamp()
            length = self.end if self.end > self.start else self.end + _DAY
            end = (day + timedelta(minutes=length)).replace(tzinfo=zone).timestamp()
            if begin < end and now < end:
                return max(begin, now)
        return math.inf


@dataclass(frozen=True, slots=True)
class RolloutPolicy:
    """Steps by which changed content reaches the objects of a watch."""

    steps: tuple[Step, ...]
    first: int = 0
    """Number of objects of the first step; 0: there is no such step, or `labels` selects its objects."""
    labels: Mapping[str, str] = attribute(default_factory=dict)
    """Labels of the objects of the first step."""
    pause: float = 0.0
    """Seconds between the end of a step and the next one."""
    ready: float = 0.0
    """Seconds for which each object of a step must be Ready; 0: success is enough."""
    max_failures: int = 0
    windows: tuple[Window, ...] = ()

    def limits(self, total: int, labelled: int) -> tuple[int, ...]:
        """Return the number of objects after each step, of `total` objects of which `labelled` have the labels."""
        limits = [min(labelled if self.labels else self.first, total)] if self.labels or self.first else []
        limits += [step.limit(total) for step in self.steps]
        if limits[-1] < total:
            limits.append(total)
        return tuple(max(limits[: number + 1]) for number in range(len(limits)))

    def opens(self, now: float) -> float:
        """Return when outdated objects may begin next, `now` if they may begin now."""
        return min((window.opens(now) for window in self.windows), default=now)


ROLLOUT_POLICY: Slot[RolloutPolicy | None] = Slot("rollout", None)
"""Slot of a watch; None: all objects run changed content at once."""
_ENTRY = field.section(
    "",
    "%s",
    field.mapping(
        "rollout",
        "steps by which changed content reaches the objects, see below ([Upgrade a role over a fleet](rollout.md))",
        "{steps: [1, 10%, 100%]}",
    ),
)
_ROLLOUT = field.section(
    "rollout",
    "rollout: {steps: [1, 100%%], %s}",
    Field(
        "whole number",
        "first",
        "objects of a step before all `steps`: their number, or a mapping with their labels",
        "2",
    ),
    field.listing(
        "steps",
        "objects that may have run the new content after each step: numbers, or percentages, which are rounded up. "
        "After the last one, all remaining objects follow",
        "[1, 10%, 100%]",
        required=True,
        frame="rollout: {%s}",
    ),
    field.duration("pause", "time between the end of a step and the next one; default: none", "10m"),
    field.duration("ready", "time for which each object of a step must be `Ready`; default: success is enough", "5m"),
    field.whole("maxFailures", "number of failed objects beyond which the rollout pauses; default: 0", "1"),
    field.listing(
        "windows",
        "times at which outdated objects begin; default: always",
        '[{days: [Sat], from: "22:00", to: "04:00"}]',
    ),
)
_ROLLOUT_FIRST = field.section(
    "rollout.first",
    "rollout: {first: {%s}, steps: [100%%]}",
    field.mapping("matchLabels", "labels of the objects and their values", "{tier: test}", required=True),
)
_WINDOWS = field.section(
    "rollout.windows[]",
    'rollout: {steps: [100%%], windows: [{from: "22:00", to: "04:00", %s}]}',
    field.listing("days", "days on which the window opens; default: each", "[Mon, Tue]", values=DAYS),
    field.text(
        "from",
        "time at which it opens",
        '"22:00"',
        required=True,
        frame='rollout: {steps: [100%%], windows: [{%s, to: "04:00"}]}',
    ),
    field.text(
        "to",
        "time at which it closes, up to `24:00`; a time before `from` is on the next day",
        '"04:00"',
        required=True,
        frame='rollout: {steps: [100%%], windows: [{from: "22:00", %s}]}',
    ),
    field.text("timeZone", "time zone of these times, as in the tz database; default: `UTC`", "Europe/Berlin"),
)


def _read(entry: Entry, values: Slots) -> Slots:
    policy = _policy(entry.fields)
    return values if policy is None else values.having(ROLLOUT_POLICY, policy)


def _policy(fields: Fields) -> RolloutPolicy | None:
    """Return the policy of a watch; None if it has none."""
    rollout = fields.fields("rollout", field.names(_ROLLOUT))
    if rollout is None:
        return None
    if not fields.boolean("manageStatus", default=True):
        fields.error("rollout", "needs the status, which contains the content of the last run: remove manageStatus")
    first, labels = _first(rollout)
    failures = rollout.integer("maxFailures", default=0)
    if failures < 0:
        rollout.error("maxFailures", f"invalid number {failures}: use the number of objects that may fail, or 0")
    return RolloutPolicy(
        _steps(rollout),
        first,
        labels,
        policy.span(rollout, "pause", off=False) or 0.0,
        policy.span(rollout, "ready", off=False) or 0.0,
        failures,
        tuple(_windows(rollout)),
    )


def _first(rollout: Fields) -> tuple[int, Mapping[str, str]]:
    """Return number and labels of the objects of the first step."""
    if not isinstance(rollout.node("first"), yaml.MappingNode):
        first = rollout.integer("first", default=0)
        if rollout.node("first") is not None and first < 1:
            rollout.error(
                "first", "invalid number: use the number of objects that run first, at least 1, or matchLabels"
            )
        return first, {}
    inner = rollout.fields("first", field.names(_ROLLOUT_FIRST))
    labels = {key: value for key, value, _ in inner.pairs("matchLabels")} if inner is not None else {}
    if not labels:
        rollout.error("first", "selects nothing: set matchLabels, or the number of objects that run first")
    return 0, MappingProxyType(labels)


def _steps(rollout: Fields) -> tuple[Step, ...]:
    advice = "use numbers of objects and percentages that grow, such as [1, 5, 25%, 100%]"
    steps = []
    for text in rollout.texts("steps"):
        match = _STEP.fullmatch(text)
        if match is None or not int(match[1]) or (match[2] and int(match[1]) > _ALL):
            rollout.error("steps", f"invalid step {text!r}: {advice}")
        else:
            steps.append(Step(int(match[1]), bool(match[2])))
    if not steps and not rollout.texts("steps"):
        rollout.error("steps", f"missing or empty: {advice}")
    for is_percent in (False, True):
        alike = [step.number for step in steps if step.is_percent is is_percent]
        if any(before >= after for before, after in pairwise(alike)):
            rollout.error("steps", f"steps do not grow: {advice}")
    return tuple(steps) or (Step(_ALL, is_percent=True),)


def _windows(rollout: Fields) -> Iterator[Window]:
    for item in rollout.items("windows", field.names(_WINDOWS)):
        days = item.texts("days")
        for day in days:
            if day not in DAYS:
                item.error("days", f"invalid day {day!r}: use {', '.join(DAYS)}")
        start, end, zone = _minutes(item, "from"), _minutes(item, "to"), item.text("timeZone") or "UTC"
        try:
            ZoneInfo(zone)
        except (KeyError, ValueError, OSError):  # also a path, or a folder of the database
            item.error("timeZone", f"unknown time zone {zone!r}: use a name of the tz database, such as Europe/Berlin")
            continue
        if start is None or end is None:
            continue
        if start % _DAY == end:
            item.error("to", "the window has no length: use another time than from, or 24:00 for the end of the day")
        yield Window(frozenset(map(DAYS.index, filter(DAYS.__contains__, days or DAYS))), start, end, zone)


def _minutes(item: Fields, name: str) -> int | None:
    text = item.text(name)
    if _TIME.fullmatch(text) and (text != "24:00" or name == "to"):
        hours, minutes = text.split(":")
        return int(hours) * _HOUR + int(minutes)
    item.error(name, f'invalid time {text!r}: use hours and minutes in quotes, such as "22:00"')
    return None


FIELDS = FeatureFields((_ENTRY, _ROLLOUT, _ROLLOUT_FIRST, _WINDOWS), _read)
