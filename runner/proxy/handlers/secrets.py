"""Handler that collects secret values of a run for masking.

Sources are Secrets that the run reads or writes, and tokens that are created for it. The run also posts the arguments
of tasks with `no_log` to the proxy. Requests and responses are not changed.

Promises: a value is recorded before the client gets the response that contains it, and before the API server gets the
request. If a response cannot be parsed completely, or the run has too many values, its output is withheld. No value is
logged. Must run before every other handler, because cached responses contain secrets too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import orjson

from runner import log
from runner.engine.run_secrets import RunSecrets
from runner.kube import decode
from runner.kube.decode import TooDeepError
from runner.proxy.calls import Answer, Call, Content, Proceed, Whole, refusal
from runner.proxy.handlers import content, secret_objects
from runner.proxy.handlers.secret_objects import SecretValues
from runner.proxy.identity import RunIdentity
from runner.proxy.protobuf import secrets
from runner.proxy.request import RequestInfo

NO_LOG_PATH = "/ansible-operator/no-log"
"""Path to which a run posts the arguments of a task with `no_log`: `{"task": UUID, "values": [...]}`."""

_JSON_PATCH = "application/json-patch+json"
_YAML = frozenset({content.YAML, content.APPLY})
_KNOWN = _YAML | {content.JSON, content.MERGE, content.STRATEGIC, content.PROTOBUF, _JSON_PATCH}
_LARGE = 1 << 12
"""Size in bytes from which content is parsed in a thread: each value costs up to a millisecond."""
_REDIRECT = 300
_log = log.get(__name__)

Read: TypeAlias = Callable[[Any], Iterator[SecretValues]]
"""Extracts secret values from parsed content."""


class Secrets:
    """Handler that records secret values."""

    async def handle(self, call: Call, proceed: Proceed) -> Answer:
        """Forward a call, and record its secret values."""
        run = call.run.run
        if call.info.path == NO_LOG_PATH:
            with run.secrets.learning():
                return await _learn_values(call, run)
        is_token = _makes_token(call.info)
        if not (is_token or _is_of_secrets(call.info)) or call.head.upgrade:
            return await proceed(call)
        if not is_token:
            await _learn_request(call, run)
        answer = await proceed(call)
        if answer.status >= _REDIRECT:
            return answer
        try:
            read = secret_objects.of_token_request if is_token else secret_objects.of_secrets
            await _learn_answer(call, answer, run, read)
        except BaseException:
            answer.finish()
            raise
        return answer


def learn_object(known: RunSecrets, obj: Any) -> None:
    """Record the values of a Secret that a run gets."""
    for values, names in secret_objects.of_secrets(obj):
        known.learn(values, names)


def _is_of_secrets(info: RequestInfo) -> bool:
    return info.is_resource and info.resource == "secrets" and not info.group


def _makes_token(info: RequestInfo) -> bool:
    return info.is_resource and info.resource == "serviceaccounts" and info.subresource == "token" and not info.group


async def _learn_values(call: Call, run: RunIdentity) -> Answer:
    """Record values that a run posts. The request is neither counted nor logged, because it does not use the API."""
    data = await content.hold(call)
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
    _tell_if_exhausted(run)
    call.run.connections.discard(call.client)
    call.session = None
    body = b"{}"
    headers = [(b"Content-Type", b"application/json"), (b"Content-Length", b"%d" % len(body))]
    return Answer(200, b"", headers, len(body), Whole(body))


async def _learn_request(call: Call, run: RunIdentity) -> None:
    data = await content.hold(call)
    if not data:
        return  # empty, or larger than the API server accepts
    media = content.media_type(call.head.get(b"content-type"))
    read = secret_objects.of_json_patch if media == _JSON_PATCH else secret_objects.of_secrets
    if not await _learn(run, media, data, read) and media not in _KNOWN:
        run.secrets.exhaust()  # the API server rejects invalid content of known formats
    _tell_if_exhausted(run)


async def _learn_answer(call: Call, answer: Answer, run: RunIdentity, read: Read) -> None:
    media = content.media_of(answer)
    if call.info.verb == "watch":
        answer.content = _Watched(answer.content, run, media)
        return
    data = await content.whole(answer)
    if data is None or (data and not await _learn(run, media, data, read)):
        run.secrets.exhaust()
    _tell_if_exhausted(run)


async def _learn(run: RunIdentity, media: str, data: bytes, read: Read) -> bool:
    """Record values in content; return False if it cannot be parsed."""

    def learn() -> bool:
        try:
            for values, names in read(_parse(media, data)):
                run.secrets.learn(values, names)
        except TooDeepError:
            run.secrets.exhaust()
            return False
        except ValueError:
            return False
        return True

    return await asyncio.to_thread(learn) if len(data) > _LARGE else learn()


def _tell_if_exhausted(run: RunIdentity) -> None:
    if run.secrets.is_exhausted_first():
        _log.warning(
            "Output of the run is withheld: it read more Secrets than can be masked, or in an unreadable format",
            job=run.ident,
            gvk=str(run.owner.ref.gvk),
            **run.owner.ref.key._asdict(),
        )


def _parse(media: str, data: bytes) -> Any:
    """Parse content. Raises ValueError."""
    if media == content.PROTOBUF:
        return secrets.read(data)
    try:
        return decode.loads(data)  # a Secret's values are not nested
    except orjson.JSONDecodeError:
        found = content.parse(content.YAML, data) if media in _YAML else None
        if found is None:
            raise
        return found


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
                learn_object(self._run.secrets, event)
        except ValueError:
            self._run.secrets.exhaust()
        if len(self._rest) > content.LARGEST_ANSWER:
            self._run.secrets.exhaust()
        _tell_if_exhausted(self._run)
        return data

    def _events(self, stream: bytes) -> list[Any]:
        if self._is_binary:
            found, self._rest = secrets.split(stream)
            return found
        *lines, self._rest = stream.split(b"\n")
        return [decode.loads(line) for line in lines if line.strip()]
