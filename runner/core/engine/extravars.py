"""Extra vars as a YAML file that every supported ansible-core reads in the same way.

Pure. Promises:

- No string or key below an unsafe top-level key, or within `Foreign`, is ever templated, in any part of a run.
- All other strings are as trusted as in a vars file that a user wrote.
- A string stays a string, also `"yes"` and `"12"`.

`docs/decisions/0003-unsafe-strings.md` explains why it is YAML and not JSON, and why each scalar has its own tag.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import yaml

from runner.values.errors import EngineError

_Anchors: TypeAlias = dict[tuple[int, bool], str]
"""Anchor by identity and trust of a value. The values live as long as the extra vars."""

_WORTH_AN_ALIAS = 16
_RESOLVER: Any = yaml.resolver.Resolver()
# JSON does not escape these; YAML forbids them or reads them as line breaks (https://yaml.org/spec/1.1/#id868524).
_NOT_BARE = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


@dataclass(frozen=True, slots=True)
class Foreign:
    """A value of an outsider: never a template, whatever the watch sets."""

    value: Any


def dump(extra_vars: Mapping[str, Any], unsafe_keys: frozenset[str]) -> str:
    """Return the extra vars as YAML.

    Raises:
        EngineError: a value cannot be written; the message names it.
    """
    lines = ["---\n"]
    anchors: _Anchors = {}
    for key, value in extra_vars.items():
        unsafe = key in unsafe_keys
        try:
            text = io.StringIO()
            text.writelines(_flow(value, anchors, unsafe=unsafe))
        except RecursionError as error:
            raise EngineError(f"the extra var {key!r} nests too deep for Ansible; flatten the object's spec") from error
        lines.append(f"? {_scalar(key, unsafe=unsafe)}\n: {text.getvalue()}\n")
    if not extra_vars:
        lines.append("{}\n")
    return "".join(lines)


def _flow(value: Any, anchors: _Anchors, *, unsafe: bool) -> Iterator[str]:
    """Yield a value in flow style. A value that was written before becomes an alias.

    The object, its spec as written and its spec in snake_case hold the same values: with aliases Ansible builds them
    once. Keys are explicit (`? `), because implicit keys have at most 1024 characters.
    """
    if isinstance(value, Foreign):
        value, unsafe = value.value, True
    if value and isinstance(value, Mapping | list | tuple | str) and _is_worth_an_alias(value):
        identity = (id(value), unsafe)
        if identity in anchors:
            yield f"*{anchors[identity]} "
            return
        anchors[identity] = f"a{len(anchors)}"
        yield f"&{anchors[identity]} "
    if isinstance(value, Mapping):
        yield "{"
        for key, item in value.items():
            yield f"? {_scalar(str(key), unsafe=unsafe)} : "
            yield from _flow(item, anchors, unsafe=unsafe)
            yield ", "
        yield "}"
    elif isinstance(value, list | tuple):
        yield "["
        for item in value:
            yield from _flow(item, anchors, unsafe=unsafe)
            yield ", "
        yield "]"
    else:
        yield _scalar(value, unsafe=unsafe)


def _is_worth_an_alias(value: Mapping[Any, Any] | list[Any] | tuple[Any, ...] | str) -> bool:
    return not isinstance(value, str) or len(value) >= _WORTH_AN_ALIAS


def _scalar(value: Any, *, unsafe: bool) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, dt.date):
        return _quoted(value.isoformat())  # in the vars of a watch: YAML reads an unquoted date as a date
    if not isinstance(value, str):
        raise EngineError(f"a {type(value).__name__} cannot be an extra var; write a string, number, list or map")
    return f"!unsafe {_quoted(value)}" if unsafe and not _looks_like_another_type(value) else _quoted(value)


def _looks_like_another_type(text: str) -> bool:
    """Return True if YAML would read the text without quotes as a boolean, number, date or null.

    ansible-core 2.19 and later resolve a scalar with the tag `!unsafe` as if it had no quotes. Such a text contains no
    brace, so it needs no tag to stay untemplated.
    """
    tag: str = _RESOLVER.resolve(yaml.ScalarNode, text, (True, False))
    return tag != "tag:yaml.org,2002:str"


def _float(value: float) -> str:
    """Return the number with a tag: YAML 1.1 reads `1e+22` as a string."""
    if math.isfinite(value):
        return f'!!float "{value!r}"'
    return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"


def _quoted(text: str) -> str:
    """Return the text with JSON quotes and escapes, which YAML also reads."""
    return _NOT_BARE.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(text, ensure_ascii=False))
