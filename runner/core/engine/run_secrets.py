"""Secret values of one run, and those in the content of requests and responses: Secrets, JSON Patches, and tokens.

Owns the values from the run's start until its files are masked. Credentials are added
before the run. Other values are added during the run, before its clients receive them, so that output with them comes
later. Nothing here is logged. Must not import modules that write output.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

import orjson

from runner.core.masking import public
from runner.core.masking.masker import Masker
from runner.values.objects import LAST_APPLIED, mapping

WITHHELD = "withheld: this run read more Secrets than can be masked in its output, or some in an unreadable format"
NOT_REPORTED = "withheld: the run could not report the arguments of a task with no_log, so they cannot be masked"
_MOST_PUBLIC = 20_000


class RunSecrets:
    """Secrets of one run.

    `spared` are words that are never masked, even if they equal a secret: the object's names. Values of Secrets that
    are `public` are not masked either.
    """

    __slots__ = ("_cleared", "_is_reported", "has_learned", "masker", "public", "withheld")

    def __init__(self, spared: Iterable[str] = (), public_words: Iterable[str] = ()) -> None:
        self.masker = Masker(spared)
        self.public = set(public_words)
        self.has_learned = False
        """True if a value was added during the run, so that earlier output may contain it."""
        self.withheld = WITHHELD
        """Replaces the output if values are missing (`is_exhausted`)."""
        self._is_reported = False
        self._cleared: set[str] = set()

    def __repr__(self) -> str:
        return f"<RunSecrets: {self.masker!r}>"

    def add_initial(self, values: Iterable[str]) -> None:
        """Add values before the run starts."""
        for value in values:
            self.masker.add(value)

    def learn(self, values: Iterable[str | bytes], spared: Collection[str] = ()) -> None:
        """Add values during the run; `spared` is as above, for these values only."""
        for value in values:
            self.has_learned = True
            self.masker.add(value, spared)

    def learn_secret(self, values: Iterable[str | bytes], names: Iterable[str]) -> None:
        """Add values of a Secret with these names during the run, except public ones."""
        self.learn(values, self.public.union(public.words(names)))

    def learn_object(self, obj: Any) -> None:
        """Add the values of the Secrets in an object, a list or a table during the run, except public ones."""
        for values, names in of_secrets(obj):
            self.learn_secret(values, names)

    def publish(self, name: str) -> None:
        """Add the name of an object that the run uses to the public words."""
        if name not in self.public and len(self.public) < _MOST_PUBLIC:
            self.public.update((name, *public.words([name])))

    def exhaust(self, withheld: str = WITHHELD) -> None:
        """Record that there are values that cannot be stored; `withheld` is the reason that replaces the output."""
        if not self.is_exhausted:
            self.withheld = withheld
        self.masker.exhaust()

    def is_exhausted_first(self) -> bool:
        """Return True if the limit of values is exceeded and this is the first call since: it is reported once."""
        is_first = self.masker.is_exhausted and not self._is_reported
        self._is_reported = self.masker.is_exhausted
        return is_first

    def clear(self, task: str) -> None:
        """Record that the arguments of a task with `no_log` (its uuid) are stored."""
        self._cleared.add(task)

    def is_cleared(self, task: object) -> bool:
        """Return True if the arguments of a task with `no_log` are stored."""
        return task in self._cleared

    @property
    def is_exhausted(self) -> bool:
        """True if there were more values than can be stored: output may contain unknown secrets."""
        return self.masker.is_exhausted


_DATA, _STRING_DATA = "data", "stringData"


class SecretValues(NamedTuple):
    """Values of one Secret; `names` are its name and namespace, which some Secrets also contain as values."""

    values: list[str | bytes]
    names: tuple[str, ...]


def of_secrets(content: Any) -> Iterator[SecretValues]:
    """Yield the values of all Secrets in the content of a request or response for Secrets."""
    waiting = [content]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting.extend(node)
        elif isinstance(node, dict):
            waiting += [node.get(name) for name in ("items", "rows", "object")]
            metadata = mapping(node.get("metadata"))
            waiting.append(_last_applied(metadata.get("annotations")))
            values = [*_data(node.get(_DATA)), *_strings(node.get(_STRING_DATA))]
            if values:
                names = (metadata.get("name"), metadata.get("namespace"))
                yield SecretValues(values, tuple(name for name in names if isinstance(name, str)))


def of_json_patch(patch: Any) -> Iterator[SecretValues]:
    """Yield the values in a JSON Patch (RFC 6902) of a Secret."""
    for operation in patch if isinstance(patch, list) else ():
        if not isinstance(operation, dict):
            continue
        _, member, *inner = [*str(operation.get("path", "")).split("/", 2), ""][:3]
        value = operation.get("value")
        if not member:
            yield from of_secrets(value)
        elif member in {_DATA, _STRING_DATA}:
            yield from of_secrets({member: {inner[0]: value} if inner and inner[0] else value})
        elif member == "metadata":
            yield from of_secrets({"metadata": {"annotations": {LAST_APPLIED: value}}})


def of_token_request(response: Any) -> Iterator[SecretValues]:
    """Yield the token in the response to a TokenRequest."""
    token = mapping(mapping(response).get("status")).get("token")
    if isinstance(token, str):
        yield SecretValues([token], ())


def _last_applied(annotations: Any) -> Any:
    text = mapping(annotations).get(LAST_APPLIED)
    if not isinstance(text, str):
        return None
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _data(entries: Any) -> Iterator[str | bytes]:
    for key, value in mapping(entries).items():
        if isinstance(value, str):
            try:
                decoded: str | bytes = base64.b64decode(value)
            except (binascii.Error, ValueError):
                decoded = value
        else:
            decoded = value
        yield from _strings({key: decoded})


def _strings(entries: Any) -> Iterator[str | bytes]:
    for key, value in mapping(entries).items():
        if isinstance(value, str | bytes) and not public.is_name(key, value):
            yield value
