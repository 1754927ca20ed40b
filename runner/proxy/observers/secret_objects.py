"""Secret values in requests and responses. Pure.

Input: Secrets, lists of them, rows of a table, events of a watch, and patches of every type; complete or partial.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson

from runner.objects import LAST_APPLIED

_DATA, _STRING_DATA = "data", "stringData"


class SecretValues(NamedTuple):
    """Values of one Secret; `names` are its name and namespace, which some Secrets also contain as values."""

    values: list[str | bytes]
    names: tuple[str, ...]


def of_secrets(found: Any) -> Iterator[SecretValues]:
    """Yield the values of all Secrets in the content of a request or response for Secrets."""
    waiting = [found]
    while waiting:
        each = waiting.pop()
        if isinstance(each, list):
            waiting.extend(each)
        elif isinstance(each, dict):
            waiting += [each.get(name) for name in ("items", "rows", "object")]
            metadata = each.get("metadata")
            metadata = metadata if isinstance(metadata, dict) else {}
            waiting.append(_last_applied(metadata.get("annotations")))
            values = [*_data(each.get(_DATA)), *_strings(each.get(_STRING_DATA))]
            if values:
                names = (metadata.get("name"), metadata.get("namespace"))
                yield SecretValues(values, tuple(name for name in names if isinstance(name, str)))


def of_json_patch(found: Any) -> Iterator[SecretValues]:
    """Yield the values in a JSON Patch (RFC 6902) of a Secret."""
    for operation in found if isinstance(found, list) else ():
        if not isinstance(operation, dict):
            continue
        _, member, *inner = [*str(operation.get("path", "")).split("/", 2), ""][:3]
        value = operation.get("value")
        if not member:
            yield from of_secrets(value)
        elif member in {_DATA, _STRING_DATA}:
            yield from of_secrets({member: {"": value} if inner and inner[0] else value})
        elif member == "metadata":
            yield from of_secrets({"metadata": {"annotations": {LAST_APPLIED: value}}})


def of_token_request(found: Any) -> Iterator[SecretValues]:
    """Yield the token in the response to a TokenRequest."""
    status = found.get("status") if isinstance(found, dict) else None
    token = status.get("token") if isinstance(status, dict) else None
    if isinstance(token, str):
        yield SecretValues([token], ())


def _last_applied(annotations: Any) -> Any:
    text = annotations.get(LAST_APPLIED) if isinstance(annotations, dict) else None
    if not isinstance(text, str):
        return None
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _data(found: Any) -> Iterator[str | bytes]:
    for value in found.values() if isinstance(found, dict) else ():
        if isinstance(value, bytes):
            yield value
        elif isinstance(value, str):
            try:
                yield base64.b64decode(value)
            except (binascii.Error, ValueError):
                yield value


def _strings(found: Any) -> Iterator[str | bytes]:
    for value in found.values() if isinstance(found, dict) else ():
        if isinstance(value, str | bytes):
            yield value
