"""Secret values in the content of requests and responses: Secrets, JSON Patches of them, and tokens. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson

from runner.core.masking import public
from runner.values.objects import LAST_APPLIED, mapping

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
