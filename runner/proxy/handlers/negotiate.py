"""Has answers come in JSON, which the handlers behind can read, where the client takes it.

Typed clients of Go would rather have protobuf, and say that they take JSON as well. Who takes only protobuf gets it,
and so do watches. Must not import: other handlers.
"""

from __future__ import annotations

from runner.proxy.calls import Answer, Call, Proceed
from runner.proxy.http.messages import Headers

_JSON = b"application/json"
_BINARY = frozenset({b"application/vnd.kubernetes.protobuf", b"application/cbor"})


class Negotiate:
    """The handler."""

    async def handle(self, call: Call, proceed: Proceed) -> Answer:
        """Pass a call on that asks for JSON if it can."""
        if call.info.is_resource and call.info.verb != "watch" and not call.head.upgrade:
            call.headers = without_binary(call.headers)
        return await proceed(call)


def without_binary(headers: Headers) -> Headers:
    """The headers, without media types in `Accept` that we cannot read if it names JSON too (RFC 9110, 12.5.1)."""
    accepted = b",".join(value for name, value in headers if name.lower() == b"accept")
    ranges = [each.strip() for each in accepted.split(b",")]
    kept = [each for each in ranges if _type(each) not in _BINARY]
    if len(kept) == len(ranges) or not any(_type(each) == _JSON for each in kept):
        return headers
    return [header for header in headers if header[0].lower() != b"accept"] + [(b"Accept", b", ".join(kept))]


def _type(media_range: bytes) -> bytes:
    return media_range.partition(b";")[0].strip().lower()
