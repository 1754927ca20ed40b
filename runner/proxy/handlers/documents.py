"""Answers about the API itself, as they are kept: whole, and no more of them than a bound.

Owns: which calls and answers can be kept at all, what belongs to an answer and what only to the call that it was given
to, and which go first when there is no room. When one still holds is `catalog`'s to say. Pure; must not import:
handlers.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TypeAlias

from runner.proxy.calls import Answer, Call, Whole
from runner.proxy.http import messages
from runner.proxy.http.messages import Headers

LARGEST = 4 << 20
"""Bytes of an answer that may be kept; the OpenAPI of a cluster with hundreds of CRDs is larger, and passes."""
_MOST = 16 << 20
_HEADERS = 1 << 10
"""What an answer weighs beside its content, about."""

_NAME = "[A-Za-z0-9][A-Za-z0-9.-]*"
_ABOUT_THE_API = re.compile(f"/version/?|/api(/{_NAME})?/?|/apis(/{_NAME}){{0,2}}/?|/openapi/v2|/openapi/v3(/{_NAME})*")
_OF_ONE_CALL = frozenset({b"audit-id", b"content-length", b"age"})
_OF_CONTENT = frozenset({b"content-type", b"content-encoding", b"content-range"})
_NEEDS_THE_SERVER = frozenset(
    {
        b"range",
        b"if-range",
        b"if-match",
        b"if-modified-since",
        b"if-unmodified-since",
        b"cache-control",
        b"pragma",
        b"origin",
    }
)
_NEGOTIATED = frozenset({b"accept", b"accept-encoding", b"origin"})
_OK = 200
_NOT_MODIFIED = 304

Key: TypeAlias = tuple[str, bytes, bytes]
"""Target, `Accept` and `Accept-Encoding`: the same of each gets the same answer."""


@dataclass(slots=True)
class Document:
    """An answer of the API server."""

    headers: Headers = field(repr=False)
    body: bytes = field(repr=False)
    asked: float
    """When the API server was last asked for it, and gave it or said that it is as it was."""
    edition: int
    """Which of the catalog's editions it is from."""
    etag: bytes = field(init=False)
    is_immutable: bool = field(init=False)
    """Whether its address holds a digest of it."""

    def __post_init__(self) -> None:
        self.etag = messages.get(self.headers, b"etag")
        self.is_immutable = b"immutable" in messages.get(self.headers, b"cache-control")


class Documents:
    """As many as there is room for; those that were not asked for the longest go first."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._size = 0
        self._found: OrderedDict[Key, Document] = OrderedDict()

    def get(self, key: Key) -> Document | None:
        """Return a document and note that it was asked for."""
        if key in self._found:
            self._found.move_to_end(key)
        return self._found.get(key)

    def put(self, key: Key, document: Document) -> None:
        """Keep a document, unless a newer one is there."""
        current = self._found.get(key)
        if current is not None and current.asked > document.asked:
            return
        self.drop(key)
        self._found[key] = document
        self._size += _size(key, document)
        while self._size > self._most:
            self.drop(next(iter(self._found)))

    def drop(self, key: Key) -> None:
        """Forget a document."""
        document = self._found.pop(key, None)
        if document is not None:
            self._size -= _size(key, document)

    def drop_groups(self) -> None:
        """Forget what tells of groups, versions and kinds."""
        for key in [key for key in self._found if is_of_groups(key)]:
            self.drop(key)


def key_of(call: Call) -> Key | None:
    """Say under what the answer to a call is kept; None for a call that only the API server can answer."""
    head = call.head
    if head.method != "GET" or head.length or head.upgrade:
        return None
    if not _ABOUT_THE_API.fullmatch(head.target.partition("?")[0]):
        return None
    names = {name.lower() for name, _ in call.headers}
    if b"if-none-match" in names:
        # Then it does not count (RFC 9110, 13.1.3). client-go sends both.
        names.discard(b"if-modified-since")
    if names & _NEEDS_THE_SERVER or any(name.startswith(b"impersonate-") for name in names):
        return None
    return head.target, _all(call.headers, b"accept"), _all(call.headers, b"accept-encoding")


def is_of_groups(key: Key) -> bool:
    """Whether it tells of groups, versions and kinds; OpenAPI documents are made from these later."""
    return not key[0].startswith("/openapi/")


def can_be_kept(answer: Answer) -> bool:
    """Whether an answer may be given to others too."""
    if answer.status != _OK or answer.length > LARGEST:
        return False
    if b"no-store" in _all(answer.headers, b"cache-control"):
        return False
    varies = {name.strip().lower() for name in _all(answer.headers, b"vary").split(b",")} - {b""}
    return varies <= _NEGOTIATED


def make(answer: Answer, body: bytes, asked: float, edition: int) -> Document:
    """Make a document of an answer and its whole content."""
    return Document([each for each in answer.headers if each[0].lower() not in _OF_ONE_CALL], body, asked, edition)


def give(document: Document, call: Call, cache: bytes, now: float) -> Answer:
    """Answer a call with a document. RFC 9110, 13.1.2 (`If-None-Match`), RFC 9111, 5.1 (`Age`)."""
    more = [(b"Age", b"%d" % max(0, now - document.asked)), (b"X-Cache", cache)]
    if document.etag and _names(call.head.get(b"if-none-match"), document.etag):
        kept = [each for each in document.headers if each[0].lower() not in _OF_CONTENT]
        return Answer(_NOT_MODIFIED, b"", kept + more, 0, Whole(b""))
    length = len(document.body)
    return Answer(
        _OK, b"", [*document.headers, (b"Content-Length", b"%d" % length), *more], length, Whole(document.body)
    )


def _size(key: Key, document: Document) -> int:
    """Bytes, about."""
    return sum(map(len, key)) + len(document.body) + _HEADERS


def _names(condition: bytes, etag: bytes) -> bool:
    """Whether a list of entity tags names this one; weak ones count as strong."""
    names = {name.strip().removeprefix(b"W/") for name in condition.split(b",")}
    return b"*" in names or etag.removeprefix(b"W/") in names


def _all(headers: Headers, name: bytes) -> bytes:
    return b",".join(value for key, value in headers if key.lower() == name)
