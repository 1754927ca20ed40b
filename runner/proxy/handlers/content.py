"""Objects in the content of requests and responses.

Owns: the supported media types and the size limits. Larger content, or content of another type, is streamed unchanged.
YAML is parsed like in the API server, and written as JSON, which is valid YAML. Protobuf is parsed only in requests,
and only the fields about ownership.
"""

from __future__ import annotations

import re
import zlib

import orjson
import yaml

from runner.errors import ConfigError
from runner.kube import decode
from runner.objects import Object
from runner.proxy.calls import Answer, Call, Whole
from runner.proxy.http.connection import Body
from runner.proxy.protobuf import owners
from runner.yamlfile import tree

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"

LARGEST_REQUEST = 4 << 20
"""Bytes; the API server itself accepts 3 MiB."""
LARGEST_ANSWER = 8 << 20

_OF_JSON = frozenset({JSON, MERGE, STRATEGIC})
_OF_YAML = frozenset({YAML, APPLY})
_NOT_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
"""Characters that are valid in JSON strings, but line breaks or invalid in YAML."""


def media_type(value: bytes) -> str:
    """Return the media type without parameters; JSON if it is empty, as in the API server."""
    return value.partition(b";")[0].strip().lower().decode("latin-1") or JSON


def is_readable(media: str) -> bool:
    """Return whether objects of this media type can be parsed and written."""
    return media in _OF_JSON or media in _OF_YAML or media == PROTOBUF


async def hold(call: Call) -> bytes | None:
    """Read the complete content of a request; None if it is too large, and it is still streamed."""
    if isinstance(call.content, bytes):
        return call.content
    if call.head.length > LARGEST_REQUEST:
        return None
    if call.head.get(b"expect").lower() == b"100-continue":
        call.client.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    data = await call.content.read_all(LARGEST_REQUEST)
    if data is not None:
        call.content = data
    return data


def parse(media: str, data: bytes) -> Object | None:
    """Parse an object; None if it is invalid, because the API server's error is more precise.

    Raises:
        TooDeepError: the object nests too deeply to be changed and written.
    """
    if media == PROTOBUF:
        return owners.read(data)
    try:
        found = decode.loads_whole(data)
    except orjson.JSONDecodeError:
        found = _parse_yaml(data) if media in _OF_YAML else None
    return found if isinstance(found, dict) else None


def dump(media: str, obj: Object, before: bytes) -> bytes:
    """Serialize an object that was parsed from `before`, in the same media type."""
    if media == PROTOBUF:
        return owners.add(before, obj)
    data = orjson.dumps(obj)
    if media in _OF_JSON:
        return data
    return _NOT_IN_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", data.decode()).encode()


async def observe(answer: Answer) -> Object | None:
    """Return the object in a response, which is still sent to the client; None if it cannot be parsed whole."""
    return parse_whole(JSON, await json_in(answer))


def parse_whole(media: str, data: bytes) -> Object | None:
    """Parse an object; None if it is invalid or nests too deeply."""
    try:
        return parse(media, data)
    except decode.TooDeepError:
        return None


async def json_in(answer: Answer) -> bytes:
    """Return the uncompressed JSON in a response, which is still sent to the client; empty if there is none."""
    return (await whole(answer) or b"") if media_of(answer) == JSON else b""


async def whole(answer: Answer) -> bytes | None:
    """Return the uncompressed content of a response, which is still sent to the client; None if it is too large."""
    content = answer.content
    if isinstance(content, Body):
        data = await content.read_all(LARGEST_ANSWER)
        if data is None:
            return None
    else:
        data = await content.read()
    answer.content = Whole(data)
    return _unpacked(_header(answer, b"content-encoding"), data)


def media_of(answer: Answer) -> str:
    """Return the media type of a response."""
    return media_type(_header(answer, b"content-type"))


def _unpacked(encoding: bytes, data: bytes) -> bytes:
    if encoding.lower() != b"gzip":
        return data
    try:
        return zlib.decompressobj(wbits=31).decompress(data, 4 * LARGEST_ANSWER)
    except zlib.error:
        return b""


def _header(answer: Answer, name: bytes) -> bytes:
    return next((value for key, value in answer.headers if key.lower() == name), b"")


def _parse_yaml(data: bytes) -> object:
    try:
        text = data.decode()
        _check_depth(text)
        node = yaml.compose(text, Loader=yaml.CSafeLoader)
        return None if node is None else tree.plain(node)
    except decode.TooDeepError:
        raise
    except (yaml.YAMLError, ConfigError, ValueError):
        return None


def _check_depth(text: str) -> None:
    """Raise TooDeepError before libyaml, which is recursive, could exhaust the stack and end the process."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > decode.MAX_DEPTH:
                raise decode.TooDeepError(f"deeper than {decode.MAX_DEPTH} levels")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
