"""What may differ between two runs of the same role, and how anything else that differs is shown.

`MAY_DIFFER` is the one list. A field on it must still have its shape on both sides, and what is only a name (a uuid, a
process id) is given a number by its first appearance: the same name in the same places stays the same. Pure.
"""

from __future__ import annotations

import difflib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

_NUMBER = r"-?[0-9.]+(e-?[0-9]+)?"
_SPAN = r"[0-9]+:[0-9]{2}:[0-9]{2}(\.[0-9]+)?"
_TIME = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:?[0-9]{2})?"
_SHARED_LINES = ("TASK [", "RUNNING HANDLER [", "included: ")
_NUMBERING = frozenset({"counter", "start_line", "end_line", "uuid", "parent_uuid"})
_SHOWN_AROUND = 60
_SHOWN_DIFFERENCES = 40
_SHOWN_LINES = 30
_OTHERS_NETWORK = r"(ansible_)?ssh[0-9]+_[0-9]+"
"""Facts about interfaces of SSH hosts."""
_FOLLOWS = re.compile(r"\.(start_line|end_line)$|^files\.run/artifacts/[^/]+/(job_events/|stdout)")
"""Where lines stand, and what events say again."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field that may differ wherever it stands, as long as all of its value, as JSON, has this shape.

    With `numbered`, equal values stay equal.
    """

    name: str
    shape: str
    why: str
    numbered: bool = False


@dataclass(frozen=True, slots=True)
class Text:
    """Text that may differ wherever it stands in a string or a name. With `numbered`, equal ones stay equal."""

    pattern: str
    shown: str
    why: str
    numbered: bool = False


@dataclass(frozen=True, slots=True)
class Unordered:
    """A list that holds the same in any order."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Extra:
    """Items of a list that may be there or not."""

    name: str
    pattern: str
    why: str


@dataclass(frozen=True, slots=True)
class Ends:
    """Lines of a file (`path` is the end of its path) that may have a carriage return at their ends or not."""

    path: str
    why: str


MAY_DIFFER: tuple[Field | Text | Unordered | Extra | Ends, ...] = (
    # Times
    Field("duration", _NUMBER, "seconds"),
    Field("delta", f'"{_SPAN}"', "time that a command took"),
    Field("elapsed", "[0-9]+", "seconds that wait_for and uri took"),
    Field("(mtime|ctime|atime|birthtime)", _NUMBER, "times of a file that the role made"),
    Field("inode", "[0-9]+", "a file that the role made"),
    Field("version", '"[0-9]{5,}"', "a file that the role made, as stat counts its generations"),
    Field("epoch(_int)?|(hour|minute|second)", '"[0-9]+"', "fact date_time"),
    Field("time|iso8601_basic(_short)?", '"[0-9T:]+"', "fact date_time"),
    Text(_TIME, "time", "moments: created, start, end, completion, and those in messages"),
    Text(r"\b[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} GMT", "time", "HTTP's moments"),
    Text(r"(?<=Playbook run took )[0-9 a-z,]+ seconds", "span", "what the callback timer says"),
    Text(r"(?<=Paused for )[0-9.]+(?= seconds)", "span", "time that pause took"),
    Text(rf"(?<=[\"' ]){_SPAN}(?=[\"' ])", "span", "time that a command took, as -v shows it"),
    # Facts
    Field("(1|5|15)m", _NUMBER, "load of the machine"),
    Field("ansible_(memfree|swapfree)_mb|free|used|cached", "[0-9]+", "memory of the machine"),
    Field("(block|inode)_(available|used)|size_available", "[0-9]+", "space of a file system"),
    Field("ansible_uptime_seconds", "[0-9]+", "seconds since the machine started"),
    Field("ansible_mounts", r"\[.*\]", "file systems that other tests mount meanwhile"),
    Extra("ansible_interfaces", "ssh[0-9]+-[0-9]+", "networks of SSH hosts that other tests make meanwhile"),
    *(Extra(name, r"10\.213\.[0-9]+\.254", "as above") for name in ("ansible_all_ipv4_addresses", "ipv4")),
    *(Extra(name, "fe80::ff:fe00:1", "as above") for name in ("ansible_all_ipv6_addresses", "ipv6")),
    Unordered("ansible_interfaces|ansible_virtualization_tech_(guest|host)", "facts that setup collects as sets"),
    # What a module's interpreter holds of libraries that are loaded ahead
    Extra("warnings", ".*<class '(urllib3|requests)\\..*", "filters that a library adds for warnings of its own"),
    Extra("finders", "Finder", "what a library adds to find its own modules"),
    Extra("deprecations", ".*_collections_compat.*", "what the lookup k8s imports; only the first import reports it"),
    # Names
    Text(
        r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(?![0-9a-f])",
        "uuid",
        "names of events, plays and tasks",
        numbered=True,
    ),
    Field("p?pid", "[0-9]+", "process ids", numbered=True),
    Field("resourceVersion", '"[0-9]+"', "an object of the API server"),
    Text(r'(?<="resourceVersion": ")[0-9]+', "version", "the same, in a diff"),
    Text(
        r"(?<=tmp-)[0-9]+\.[0-9]+-[0-9]+-[0-9]+",
        "temporary",
        "folder of a module, by time and process; ansible-core 2.18 breaks the line within",
    ),
    Text(r"(?<=ansible-local-)[0-9]+[0-9a-z_]{8}", "temporary", "folder of a playbook, by process"),
    Text(
        r"(?<=Traceback \(most recent call last\):)((\n|\\n) [^\n]*?(?=\n|\\n))+",
        "frames",
        "a module's traceback has files of the payload and frames of its wrapper, or installed files",
    ),
    Text(r"(?<=_payload_)[0-9a-z_]{8}(?=/)", "temporary", "folder that a module runs from"),
    Text(r"(?<=/)tmp[0-9a-z_]{8}\b", "temporary", "name that tempfile chose"),
    Text(r"(?<=<temporary>/)\.[0-9a-z_]{8}(?= TO )", "temporary", "the same, as -vvv shows it"),
    Field("_original_basename", r'"\.[0-9a-z_]{8}"', "the same, as copy and template pass it on"),
    Text(r"(?<=<frame at )0x[0-9a-f]+", "address", "a frame, as 2.18 shows it after the timeout of a task"),
    Field("stream_name", '"[0-9]+"', "number of an open file, by which Python names a stream that it opened by number"),
    # Line ends
    Ends(
        "/stdout",
        "what stands between two events ansible-runner writes with the terminal's ends of lines where it has read it "
        "alone, and without where it has read it with the next event",
    ),
    # Depth
    Text(
        r"(?<=Previous line repeated )[0-9]+", "depth", "what is left of the stack for a module that recurses for ever"
    ),
    Text(
        r"(An unhandled exception occurred while templating '\{\{ recursive \}\}'\. "
        r"Error was a <class 'ansible\.errors\.AnsibleError'>, original message: )+"
        r"recursive loop detected in template string: \{\{ recursive \}\}\. "
        r"maximum recursion depth exceeded( while calling a Python object)?",
        "depth",
        "the same for a template, in ansible-core 2.18",
    ),
    Text(r"(?<=j)[0-9]+\.[0-9]+(?=\b)", "async", "job of an async task"),
)


class _Same:
    """Turns what one run showed into what both must show."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, str], str] = {}
        self._counts: Counter[str] = Counter()
        self._known: dict[str, str] = {}

    def of(self, value: Any, name: str = "") -> Any:
        text = None
        for rule in _fields(name):
            text = text if text is not None else json.dumps(value, default=str)
            if re.fullmatch(rule.shape, text):
                return f"<{rule.name}{self._number(rule.name, text) if rule.numbered else ''}>"
        if isinstance(value, Mapping):
            kept = (key for key in sorted(value, key=_natural) if not _is_extra_item(key, value[key]))
            return {self._text(key): self.of(value[key], key) for key in kept}
        if isinstance(value, list | tuple):
            items = [self.of(item, name) for item in value if not _is_extra(name, item)]
            return sorted(items, key=str) if re.fullmatch(_UNORDERED, name) else items
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str) -> str:
        if not _MAYBE.search(text):
            return text
        if text not in self._known:
            same = text
            for each in _TEXTS:
                same = each.compiled.sub(partial(self._shown, each.rule), same)
            self._known[text] = same
        return self._known[text]

    def _shown(self, rule: Text, found: re.Match[str]) -> str:
        return f"<{rule.shown}{self._number(rule.shown, found[0]) if rule.numbered else ''}>"

    def _number(self, kind: str, text: str) -> str:
        if (kind, text) not in self._names:
            self._counts[kind] += 1
            self._names[kind, text] = f" {self._counts[kind]}"
        return self._names[kind, text]


@dataclass(frozen=True, slots=True)
class _Compiled:
    rule: Text
    compiled: re.Pattern[str]


_TEXTS = tuple(_Compiled(rule, re.compile(rule.pattern)) for rule in MAY_DIFFER if isinstance(rule, Text))


_MAYBE = re.compile("[0-9]|tmp|_payload_|<temporary>|Traceback|recursive")
"""What each text that may differ contains: most texts contain none of it, and are compared as they are."""


_UNORDERED = "|".join(rule.name for rule in MAY_DIFFER if isinstance(rule, Unordered))


_ENDS = tuple(rule.path for rule in MAY_DIFFER if isinstance(rule, Ends))


_EXTRAS = tuple(rule for rule in MAY_DIFFER if isinstance(rule, Extra))


def _is_extra(name: str, item: Any) -> bool:
    return any(rule.name == name and re.fullmatch(rule.pattern, str(item)) for rule in _EXTRAS)


def _is_extra_item(name: str, value: Any) -> bool:
    """Return True if an item of a mapping may be there or not."""
    if re.fullmatch(_OTHERS_NETWORK, name):
        return True
    return isinstance(value, list) and bool(value) and all(_is_extra(name, item) for item in value)


@cache
def _fields(name: str) -> tuple[Field, ...]:
    return tuple(rule for rule in MAY_DIFFER if isinstance(rule, Field) and re.fullmatch(rule.name, name))


@cache
def _natural(text: str) -> tuple[tuple[int, str], ...]:
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", text))


def differences(cold: Mapping[str, Any], other: Mapping[str, Any], *, any_order: bool) -> str:
    """Compare two observations; return what must not differ and does, readably, empty when nothing does.

    With `any_order` the tasks of several hosts may interleave in any way: each host's own events keep their order.
    """
    bare = (_without_ends(value) for value in (cold, other))
    sides = [_Same().of(_by_host(value) if any_order else value) for value in bare]
    first, second = sides
    streams = [[_label(event) for event in side["events"]] for side in sides]
    if streams[0] != streams[1]:
        stream = difflib.unified_diff(streams[0], streams[1], "cold", "other", lineterm="", n=2)
        ends = _differing(first["result"], second["result"], "result")
        return "\n".join(["The event streams differ:", *stream, *ends])
    return "\n".join(_limited(list(_differing(first, second, ""))))


def _without_ends(value: Mapping[str, Any]) -> dict[str, Any]:
    files = {path: dict(look) for path, look in value["files"].items()}
    for path, look in files.items():
        if path.endswith(_ENDS) and isinstance(look.get("content"), list):
            look["content"] = [str(line).removesuffix("\r") for line in look["content"]]
    return {**value, "files": files}


def _by_host(value: Mapping[str, Any]) -> dict[str, Any]:
    """Group events by host; take out what numbers them across hosts, and what says which task was begun last.

    Hosts that include the same file share an event where they come to it at once, which is chance.
    """
    events = [_of_host(event) for event in value["events"] if event["event"] != "playbook_on_include"]
    hostless = [event for event in events if "host" not in event["event_data"]]
    of_hosts = [event for event in events if "host" in event["event_data"]]
    ordered = sorted(hostless, key=lambda event: (_label(event), event["stdout"])) + sorted(
        of_hosts, key=lambda event: str(event["event_data"]["host"])
    )
    kept = {path: dict(look) for path, look in value["files"].items() if "/job_events/" not in path}
    for path, look in kept.items():
        if path.endswith("/stdout"):
            look["content"] = sorted(_without_banners(look["content"]))
    return {**value, "events": ordered, "files": kept}


def _of_host(event: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: item for key, item in event.items() if key not in _NUMBERING}
    kept["stdout"] = "\n".join(_without_banners((event.get("stdout") or "").splitlines()))
    data = {key: item for key, item in (event.get("event_data") or {}).items() if key not in {"uuid", "task_uuid"}}
    if event["event"] == "playbook_on_notify":
        data = {key: item for key, item in data.items() if key in {"host", "handler"}}
    return {**kept, "event_data": data}


def _without_banners(lines: list[str]) -> list[str]:
    return [line for line in lines if line.strip() and not line.startswith(_SHARED_LINES)]


def _label(event: Mapping[str, Any]) -> str:
    data = event.get("event_data") or {}
    res = data.get("res") or {}
    parts = [str(data[key]) for key in ("play", "task", "host") if data.get(key)]
    if "item" in res and event["event"].startswith("runner_item"):
        parts.append(json.dumps(res["item"], default=str)[:_SHOWN_AROUND])
    if not parts:
        parts.append((event.get("stdout") or "")[:_SHOWN_AROUND])
    return f"{event['event']} {' / '.join(parts)}"


def _differing(first: Any, second: Any, path: str) -> Iterator[str]:
    if isinstance(first, dict) and isinstance(second, dict):
        for key in [*first, *(key for key in second if key not in first)]:
            yield from _differing(first.get(key, _ABSENT), second.get(key, _ABSENT), f"{path}.{key}" if path else key)
    elif isinstance(first, list) and isinstance(second, list) and _are_lines(first) and _are_lines(second):
        if first != second:
            lines = list(difflib.unified_diff(first, second, "cold", "other", lineterm="", n=1))
            yield "\n".join([path, *lines[:_SHOWN_LINES], *(["…"] if len(lines) > _SHOWN_LINES else [])])
    elif isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        for number, (one, two) in enumerate(zip(first, second, strict=True)):
            yield from _differing(one, two, f"{path}[{number}]")
    elif first != second or type(first) is not type(second):
        yield f"{path}\n  cold:  {_shown(first, second)}\n  other: {_shown(second, first)}"


class _Absent:
    def __repr__(self) -> str:
        return "(absent)"


_ABSENT = _Absent()


def _are_lines(value: Sequence[Any]) -> bool:
    return len(value) > 1 and all(isinstance(item, str) for item in value)


def _shown(value: Any, against: Any) -> str:
    """Return a value, or where it is long what stands around its first difference."""
    text, other = (
        item if isinstance(item, str) else repr(item) if item is _ABSENT else json.dumps(item, default=str)
        for item in (value, against)
    )
    if len(text) <= 4 * _SHOWN_AROUND:
        return text
    at = next((i for i, (one, two) in enumerate(zip(text, other, strict=False)) if one != two), len(other))
    return f"[{len(text)} characters, from {at}:] …{text[max(at - _SHOWN_AROUND, 0) : at + 3 * _SHOWN_AROUND]}…"


def _limited(found: list[str]) -> list[str]:
    """Show the first differences; those that only follow from others come last."""
    found.sort(key=lambda text: bool(_FOLLOWS.search(text.partition("\n")[0])))
    if len(found) > _SHOWN_DIFFERENCES:
        return [*found[:_SHOWN_DIFFERENCES], f"… and {len(found) - _SHOWN_DIFFERENCES} more"]
    return found
