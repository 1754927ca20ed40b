"""Objects in the content of requests and responses.

Owns: the supported media types and the size limits. Larger content, or content of another type, is streamed unchanged.
YAML is parsed like in the API server, and written as JSON, which is valid YAML. Of protobuf, only the fields about
ownership are parsed. Pure.
"""

from __future__ import annotations

import re
import zlib
from typing import Any, NamedTuple

import orjson
import yaml

from runner.agent.bounds import exceeds
from runner.base.yamlfile import tree
from runner.core.kube import decode
from runner.core.proxy import protobuf
from runner.values.errors import ConfigError
from runner.values.objects import Object

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"

LARGEST_REQUEST = 4 << 20
"""Bytes; the API server itself accepts 3 MiB."""
LARGEST_ANSWER = 8 << 20
_MOST_YAML = 20_000
"""Events of YAML, which needs fifty times as much time as JSON."""

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


class Parsed(NamedTuple):
    """Parsed content."""

    value: Any
    """A JSON value; None if the content is invalid."""
    is_complete: bool = True
    """False if parts nest too deeply, which are replaced in JSON. The value is None if the content exceeds a bound."""

    @property
    def object(self) -> Object | None:
        """The object; None if there is none."""
        return self.value if isinstance(self.value, dict) else None


def parse(media: str, data: bytes, most: int = decode.MOST_VALUES) -> Parsed:
    """Parse content with `most` values. YAML media types also permit JSON."""
    if media != PROTOBUF and exceeds(data, most):
        return Parsed(None, is_complete=False)
    if media == PROTOBUF:
        return Parsed(protobuf.read(data))
    try:
        return Parsed(*decode.loads_marked(data))
    except orjson.JSONDecodeError:
        return _parse_yaml(data) if media in _OF_YAML else Parsed(None)


def dump(media: str, obj: Object, before: bytes) -> bytes:
    """Serialize an object that was parsed from `before`, in the same media type."""
    if media == PROTOBUF:
        return protobuf.add(before, obj)
    data = orjson.dumps(obj)
    if media in _OF_JSON:
        return data
    return _NOT_IN_YAML.sub(lambda match: f"\\u{ord(match[0]):04x}", data.decode()).encode()


def unpack(encoding: bytes, data: bytes) -> bytes:
    """Return uncompressed content; empty if it is invalid."""
    if encoding.lower() != b"gzip":
        return data
    try:
        return zlib.decompressobj(wbits=31).decompress(data, 4 * LARGEST_ANSWER)
    except zlib.error:
        return b""


def _parse_yaml(data: bytes) -> Parsed:
    try:
        text = data.decode()
        if _is_beyond_bounds(text):
            return Parsed(None, is_complete=False)
        node = yaml.compose(text, Loader=yaml.CSafeLoader)
        return Parsed(None if node is None else tree.plain(node))
    except (yaml.YAMLError, ConfigError, ValueError):
        return Parsed(None)


def _is_beyond_bounds(text: str) -> bool:
    """Return whether libyaml, which is recursive, could exhaust the stack, or need much time; also for aliases."""
    depth = 0
    for number, event in enumerate(yaml.parse(text, Loader=yaml.CSafeLoader)):
        if number > _MOST_YAML or isinstance(event, yaml.AliasEvent):
            return True
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > decode.MAX_DEPTH:
                return True
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
    return False
