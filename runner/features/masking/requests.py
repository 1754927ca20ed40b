"""Requests of runs: records secret values of a run for masking.

Sources are Secrets that the run reads or writes, and tokens that are created for it. The run also posts the arguments
of tasks with `no_log` to the proxy (`receive`).

Promises: a value is recorded before the client gets the response that contains it, and before the API server gets the
request. If a response cannot be parsed completely, or the run has too many values, its output is withheld. No value is
logged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import orjson

from runner.agent.bounds import exceeds
from runner.base import log
from runner.core.engine.run_secrets import SecretValues, of_json_patch, of_secrets, of_token_request
from runner.core.kube import decode
from runner.core.proxy import content
from runner.core.proxy.calls import Answer, Call, Content, Observer, complete, refusal
from runner.core.proxy.identity import RunIdentity
from runner.core.proxy.protobuf import RAW, TYPE_META, fields, octets, read_object, string, unknown
from runner.core.proxy.request import RequestInfo

NO_LOG_PATH = "/ansible-operator/no-log"
"""Path to which a run posts the arguments of a task with `no_log`: `{"task": UUID, "values": [...]}`."""

_JSON_PATCH = "application/json-patch+json"
_KIND = 2
_WITH_ANNOTATIONS = frozenset({"Secret", "PartialObjectMetadata"})
"""Kinds whose annotations can contain what was last applied."""
_DATA, _STRING_DATA, _ITEMS = 2, 4, 2
_EVENT_OBJECT, _EVENT_RAW = 2, 1
"""Numbers of fields in protobuf."""
_LENGTH = 4
"""Bytes of the length prefix of each watch event in protobuf."""
_LARGE = 1 << 12
"""Size in bytes from which content is parsed in a thread: each value costs up to a millisecond."""
_log = log.get(__name__)

Read: TypeAlias = Callable[[Any], Iterator[SecretValues]]
"""Extracts secret values from parsed content."""


async def requested(call: Call) -> None:
    """Record the values in a request for Secrets."""
    run = call.run.run
    if call.info.is_resource and call.info.name:
        run.secrets.publish(call.info.name)
    if not _is_of_secrets(call.info) or call.head.upgrade or not (data := await call.data()):
        return  # without content, or with more of it than the API server accepts
    read = of_json_patch if call.media == _JSON_PATCH else of_secrets
    is_known = content.is_readable(call.media) or call.media == _JSON_PATCH
    if not await _learn(run, call, data, read) and not is_known:
        run.secrets.exhaust()  # the API server rejects invalid content of known formats
    _warn_if_exhausted(run)


async def answered(call: Call, answer: Answer) -> None:
    """Record the values in a response that contains Secrets or a token."""
    run, is_token = call.run.run, _makes_token(call.info)
    if not (is_token or _is_of_secrets(call.info)) or call.head.upgrade or not answer.is_success:
        return
    if call.info.verb == "watch":
        answer.content = _Watched(answer.content, run, answer.media)
        return
    read = of_token_request if is_token else of_secrets
    data = await answer.data()
    if data is None or (data and not await _learn(run, answer, data, read)):
        run.secrets.exhaust()
    _warn_if_exhausted(run)


def _is_of_secrets(info: RequestInfo) -> bool:
    return info.is_resource and info.resource == "secrets" and not info.group


def _makes_token(info: RequestInfo) -> bool:
    return info.is_resource and info.resource == "serviceaccounts" and info.subresource == "token" and not info.group


async def receive(call: Call) -> Answer:
    """Record values that a run posts. The request is neither counted nor logged, because it does not use the API."""
    run = call.run.run
    data = await call.data()
    if exceeds(data or b"", decode.MOST_VALUES):
        run.secrets.exhaust()
        return refusal(413, "too many values")
    try:
        posted = orjson.loads(data or b"")
        values = [value for value in posted["values"] if isinstance(value, str)]
        task = str(posted["task"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return refusal(400, "the content must be a JSON object with `task` and `values`")
    if len(data or b"") > _LARGE:
        await asyncio.to_thread(run.secrets.learn, values)
    else:
        run.secrets.learn(values)
    run.secrets.clear(task)
    _warn_if_exhausted(run)
    call.active = None
    return complete(200, b"{}")


async def _learn(run: RunIdentity, message: Call | Answer, data: bytes, read: Read) -> bool:
    """Record values in content; return False if it cannot be parsed."""

    def learn() -> bool:
        try:
            value, is_complete = (_read_protobuf(data), True) if message.media == content.PROTOBUF else message.parsed()
            for values, names in read(value):
                run.secrets.learn_secret(values, names)
        except ValueError:
            return False
        if value is None and not is_complete:
            run.secrets.exhaust()
        return value is not None

    return await asyncio.to_thread(learn) if len(data) > _LARGE else learn()


def _warn_if_exhausted(run: RunIdentity) -> None:
    if run.secrets.is_exhausted_first():
        _log.warning(
            "Output of the run is withheld",
            reason=run.secrets.withheld.removeprefix("withheld: "),
            job=run.ident,
            gvk=str(run.owner.ref.gvk),
            **run.owner.ref.key._asdict(),
        )


OBSERVER = Observer(requested, answered)


class _Watched:
    """Content of a watch, whose values are recorded while it is streamed."""

    def __init__(self, inner: Content, run: RunIdentity, media: str) -> None:
        self._inner = inner
        self._run = run
        self._is_binary = media == content.PROTOBUF
        self._rest = b""
        self._held = b""
        """Received content whose values are not recorded yet."""

    @property
    def ended(self) -> bool:
        """True if all content was received."""
        return self._inner.ended and not self._held

    def take(self) -> bytes:
        """Return the buffered content, which can be empty. `read` returns content that is large."""
        self._held += self._inner.take()
        return b"" if self._is_large else self._learned(self._release())

    async def read(self) -> bytes:
        """Wait for content and return it."""
        self._held = self._held or await self._inner.read()
        if self._is_large:
            return await asyncio.to_thread(self._learned, self._release())
        return self._learned(self._release())

    @property
    def _is_large(self) -> bool:
        return len(self._rest) + len(self._held) > _LARGE

    def _release(self) -> bytes:
        data, self._held = self._held, b""
        return data

    def _learned(self, data: bytes) -> bytes:
        if self._run.secrets.is_exhausted:
            self._rest = b""
            return data
        try:
            for event in self._events(self._rest + data):
                self._run.secrets.learn_object(event)
        except ValueError:
            self._run.secrets.exhaust()
        if len(self._rest) > content.LARGEST_ANSWER:
            self._run.secrets.exhaust()
        _warn_if_exhausted(self._run)
        return data

    def _events(self, stream: bytes) -> list[Any]:
        if self._is_binary:
            objects, self._rest = _split_events(stream)
            return objects
        *lines, self._rest = stream.split(b"\n")
        return [decode.loads(line) for line in lines if line.strip()]


def _read_protobuf(data: bytes) -> Any:
    """Return the fields of Secrets with values as in JSON, with `data` as bytes. Raises ValueError.

    Sources: `generated.proto` of k8s.io/api in core/v1, and of k8s.io/apimachinery in pkg/runtime and pkg/apis/meta/v1.
    """
    parts = unknown(data)
    kind, raw = string(dict(fields(parts.get(TYPE_META, b""))).get(_KIND)), parts.get(RAW, b"")
    if kind in _WITH_ANNOTATIONS:
        return _secret(raw)
    if kind.endswith("List"):
        items = [octets(value) for number, value in fields(raw) if number == _ITEMS]
        return {"items": [_secret(item) for item in items]}
    return {}


def _split_events(stream: bytes) -> tuple[list[Any], bytes]:
    """Split the complete events from a watch's content; return their objects and the remaining bytes."""
    objects = []
    while len(stream) >= _LENGTH:
        end = _LENGTH + int.from_bytes(stream[:_LENGTH], "big")
        if len(stream) < end:
            break
        event = dict(fields(stream[_LENGTH:end]))
        extension = dict(fields(octets(event.get(_EVENT_OBJECT, b""))))
        objects.append(_read_protobuf(octets(extension.get(_EVENT_RAW, b""))))
        stream = stream[end:]
    return objects, stream


def _secret(raw: bytes) -> dict[str, Any]:
    secret: dict[str, Any] = {**read_object(raw), "data": {}, "stringData": {}}
    for number, value in fields(raw):
        if number in {_DATA, _STRING_DATA}:
            entry = dict(fields(octets(value)))
            of_map = secret["data" if number == _DATA else "stringData"]
            of_map[string(entry.get(1))] = octets(entry.get(2, b""))
    return secret
