"""Content negotiation: requests JSON, which other handlers can parse, if the client accepts it.

Typed Go clients prefer protobuf and also accept JSON, or any type. Clients that accept only protobuf get it, and
watches are unchanged. Must not import: other handlers.
"""

from __future__ import annotations

from runner.core.proxy.calls import Answer, Call, Proceed
from runner.core.proxy.http import messages
from runner.core.proxy.http.messages import Headers

_JSON = b"application/json"
_ANY = frozenset({b"application/*", b"*/*"})
_BINARY = frozenset({b"application/vnd.kubernetes.protobuf", b"application/cbor"})


class Negotiate:
    """Handler that removes binary media types from `Accept`."""

    async def handle(self, call: Call, proceed: Proceed) -> Answer:
        """Forward a call, with JSON in `Accept` if possible."""
        if call.info.is_resource and call.info.verb != "watch" and not call.head.upgrade:
            call.headers = without_binary(call.headers)
        return await proceed(call)


def without_binary(headers: Headers) -> Headers:
    """Return headers without binary media types in `Accept`, if it permits JSON (RFC 9110, 12.5.1).

    If only a range such as `*/*` permits JSON, the binary types become JSON with the same parameters, such as `as`.
    """
    ranges = [media_range.strip() for media_range in messages.joined(headers, b"accept").split(b",")]
    types = {_type(media_range) for media_range in ranges}
    if types.isdisjoint(_BINARY) or types.isdisjoint({_JSON, *_ANY}):
        return headers
    if _JSON in types:
        acceptable = [media_range for media_range in ranges if _type(media_range) not in _BINARY]
    else:
        acceptable = [_as_json(media_range) if _type(media_range) in _BINARY else media_range for media_range in ranges]
    return [header for header in headers if header[0].lower() != b"accept"] + [(b"Accept", b", ".join(acceptable))]


def _type(media_range: bytes) -> bytes:
    return media_range.partition(b";")[0].strip().lower()


def _as_json(media_range: bytes) -> bytes:
    _, semicolon, parameters = media_range.partition(b";")
    return _JSON + semicolon + parameters
