"""Requests of plan runs: their parts, further requests for the same client, and responses.

Owns: the request that the API server gets. Path and query are built from the parsed ones, so that both sides see the
same request. Must not import: other handlers of plan runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, TypeAlias
from urllib.parse import quote, urlencode

import orjson

from runner.core.proxy import calls as proxy_calls
from runner.core.proxy import content, protobuf, request
from runner.core.proxy.calls import Answer, Call, Proceed, Whole, complete
from runner.core.proxy.http import messages
from runner.core.proxy.http.messages import Headers
from runner.core.proxy.identity import RunIdentity
from runner.core.proxy.request import RequestInfo
from runner.features.plan.trial.overlay import KindId, Overlay, PlannedObject, Refusal
from runner.values.digests import digest
from runner.values.objects import RECORD_OF, Object, ObjectKey, annotations_of, metadata, uid_of

JSON = b"application/json"
SET_FOR_NEW = frozenset({"resourceVersion", "uid", "creationTimestamp", "managedFields", "generation", "selfLink"})
"""Metadata that the API server sets for a new object."""
LARGEST_LIST = 64 << 20
"""Bytes of a list into which planned objects can be merged."""
_OBJECTS = ("/api/", "/apis/")
_LARGE = 1 << 18
"""Bytes of a response from which it is parsed in a thread."""
_DECODED = "plan-decoded"
"""Name of an object that the API server decodes."""
_PASSED = frozenset({b"user-agent"})
_OF_CODING = frozenset({b"content-length", b"transfer-encoding", b"content-encoding"})
_IMPERSONATE = b"impersonate-"
_TOOLS = (b"kubectl", b"oc/", b"helm", b"Helm")
_UNSTABLE = frozenset({("", "events"), ("events.k8s.io", "events"), ("coordination.k8s.io", "leases")})
"""Kinds that change all the time, so that their reads are not compared."""
ABSENT = "absent"
_SECRETS = KindId("", "secrets")
_MAINTAINED = frozenset({"creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink"})
_PARTIAL = "as=partialobjectmetadata"

Params: TypeAlias = request.Params


class RefusedError(Exception):
    """A request that a plan run cannot send or answer. The proxy records it and responds with its status."""

    def __init__(self, reason: str, status: int = HTTPStatus.FORBIDDEN) -> None:
        super().__init__(reason)
        self.status = status


class StatusError(Exception):
    """An error response, as the API server would send it in a real run."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


@dataclass(slots=True)
class PlanCall:
    """One request of a plan run."""

    call: Call
    proceed: Proceed
    run: RunIdentity
    overlay: Overlay
    params: Params
    """Query parameters, as Go parses them."""

    @property
    def info(self) -> RequestInfo:
        """Attributes of the request."""
        return self.call.info

    @property
    def kind(self) -> KindId:
        """The kind in the path."""
        return KindId(self.info.group, self.info.resource)

    @property
    def key(self) -> ObjectKey:
        """Namespace and name in the path."""
        return self.info.key

    @property
    def planned(self) -> PlannedObject | None:
        """The planned object at the path."""
        return self.overlay.find(self.kind, self.key)

    @property
    def is_trial(self) -> bool:
        """True if a command-line tool requests a dry run itself: a real run would not write either.

        Modules in check mode request dry runs too, so the client's name decides.
        """
        return "All" in self.values("dryRun") and self.call.head.get(b"user-agent").startswith(_TOOLS)

    def values(self, name: str) -> list[str]:
        """Return the values of a query parameter."""
        return [value for key, value in self.params if key == name]

    def without(self, *names: str) -> Params:
        """Return the query parameters without some."""
        return [(name, value) for name, value in self.params if name not in names]

    def path(self, *, name: str | None = None, subresource: str | None = None) -> str:
        """Return the path of the request, or of another name or subresource; an empty name means the collection."""
        info = self.info
        return path_of(
            info,
            self.key.namespace,
            info.name if name is None else name,
            info.subresource if subresource is None else subresource,
        )

    @property
    def template(self) -> str:
        """The path as in the OpenAPI document, with placeholders."""
        info = self.info
        has_name = bool(info.name) and info.verb != "deletecollection"
        return path_of(
            info, "{namespace}" if self.key.namespace else "", "{name}" if has_name else "", info.subresource
        )

    async def forward(self) -> Answer:
        """Forward the request unchanged."""
        answer = await self.proceed(self.call)
        info = self.info
        if info.is_resource and not info.subresource and info.verb in {"get", "list"} and self._is_noted:
            await self._note_answer(answer)
        return answer

    @property
    def _is_noted(self) -> bool:
        return (self.info.group, self.info.resource) not in _UNSTABLE

    async def _note_answer(self, answer: Answer) -> None:
        """Record the digest of a response that is forwarded."""
        if answer.status == HTTPStatus.NOT_FOUND:
            self._note(self.path(), self.params, {})
        elif answer.is_success and self.call.head.method == "GET":
            obj = await answer.object()
            if obj is None or obj.get("kind") == "Table":
                # A table, protobuf, or a large response.
                await self.get(self.path(), self.without("resourceVersion", "resourceVersionMatch"), LARGEST_LIST)
            else:
                self._note(self.path(), self.params, obj)

    def _note(self, path: str, params: Params, obj: Object) -> None:
        """Record the digest of what the API server has at a path; empty: nothing."""
        if seen := read_digest(obj, self.kind, self.run.owner.ref.uid):
            self.overlay.saw(path, params, seen)

    async def write(
        self, method: str, path: str, body: Object | bytes | None, params: Params | None = None, media: bytes = JSON
    ) -> Answer:
        """Send a dry-run write. `params` default to those of the request.

        The API server ignores the query of a deletion with content, so both contain `dryRun`.
        """
        if method == "DELETE" and body is not None:
            if isinstance(body, bytes):
                raise TypeError("DeleteOptions must be an object")
            body = {**body, "dryRun": ["All"]}
        query: Params = [*(self.without("dryRun") if params is None else params), ("dryRun", "All")]
        data = body if isinstance(body, bytes) else b"" if body is None else orjson.dumps(body)
        return await self._send(method, path, query, data, [(b"Content-Type", media)] if data else [])

    async def write_for_real(self, method: str, path: str, data: bytes, params: Params, media: str) -> Answer:
        """Send a write that is not a dry run: one that a user approved."""
        return await self._send(method, path, params, data, [(b"Content-Type", media.encode())] if data else [])

    async def get(
        self, path: str, params: Iterable[tuple[str, str]] = (), most: int = content.LARGEST_ANSWER
    ) -> Answer:
        """Send a GET request."""
        query = list(params)
        reply = await self._send("GET", path, query, b"", [], most)
        if path.startswith(_OBJECTS) and self._is_noted and (reply.is_success or reply.status == HTTPStatus.NOT_FOUND):
            self._note(path, query, reply.obj if reply.is_success else {})
        return reply

    async def _send(
        self, method: str, path: str, params: Params, data: bytes, headers: Headers, most: int = content.LARGEST_ANSWER
    ) -> Answer:
        target = f"{path}?{urlencode(params)}" if params else path
        passed = [header for header in self.call.headers if _is_passed(header[0].lower())]
        sent: Headers = [*passed, (b"Accept", JSON), *headers]
        head = replace(self.call.head, method=method, target=target, headers=sent, length=len(data), upgrade=b"")
        info = request.parse(method, target)
        answer = await self.proceed(replace(self.call, head=head, info=info, headers=sent, content=data))
        return await _whole(answer, most)

    async def body(self) -> tuple[str, bytes]:
        """Read the content of the request; return its media type too."""
        data = await self.call.data()
        if data is None:
            raise RefusedError("the request is larger than 4 MiB", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        return self.call.media, data

    def parsed(self) -> Object:
        """Return the object in the request, which was read. Raises RefusedError, or StatusError if it is invalid."""
        media = self.call.media
        if media == content.PROTOBUF or not content.is_readable(media):
            raise RefusedError(
                f"a plan run cannot read {media}: send the object as JSON or YAML", HTTPStatus.UNSUPPORTED_MEDIA_TYPE
            )
        parsed = self.call.parsed()
        if not parsed.is_complete:
            raise RefusedError("the object nests too deeply", HTTPStatus.UNPROCESSABLE_ENTITY)
        if parsed.object is None:
            raise StatusError(failure(HTTPStatus.BAD_REQUEST, "BadRequest", "the content of the request is no object"))
        return parsed.object

    def operations(self) -> list[Any]:
        """Return the JSON Patch in the request, which was read. Raises RefusedError or StatusError."""
        operations, is_complete = self.call.parsed()
        if not is_complete:
            raise RefusedError("the patch nests too deeply", HTTPStatus.UNPROCESSABLE_ENTITY)
        if not isinstance(operations, list):
            raise StatusError(
                failure(HTTPStatus.BAD_REQUEST, "BadRequest", "the content of the request is no JSON Patch")
            )
        return operations

    async def object(self) -> Object:
        """Read the object in the request. The API server decodes protobuf: it gets a dry-run creation by another name.

        Raises RefusedError, or StatusError if it is invalid.
        """
        media, data = await self.body()
        obj = self.call.parsed().object if media == content.PROTOBUF and not self.info.subresource else None
        if obj is None:
            return self.parsed()
        namespace = self.key.namespace
        place = namespace
        if self.overlay.only_planned(namespace):
            place = self.run.owner.ref.key.namespace or "default"
        body = protobuf.renamed(data, _DECODED, place)
        reply = await self.write("POST", path_of(self.info, place, "", ""), body, [], content.PROTOBUF.encode())
        if not reply.is_success:
            raise StatusError(reply)
        names = {name: value for name, value in metadata(obj).items() if name in {"name", "generateName"}}
        meta = {name: value for name, value in metadata(reply.obj).items() if name not in {*SET_FOR_NEW, "name"}}
        space = {"namespace": namespace} if namespace else {}
        return {**reply.obj, "metadata": {**meta, **names, **space}}


def path_of(info: RequestInfo, namespace: str, name: str, subresource: str) -> str:
    """Return the path of a request's kind; placeholders in braces are not quoted."""
    segments = segments_of(info, namespace, name, subresource)
    return "/" + "/".join(quote(part, safe="{}:") for part in segments)


def segments_of(info: RequestInfo, namespace: str, name: str, subresource: str) -> list[str]:
    """Return the segments of the path of a request's kind."""
    segments = ["apis", info.group, info.version] if info.group else ["api", info.version]
    if namespace:
        segments += ["namespaces", namespace]
    segments.append(info.resource)
    if name:
        segments += [name, subresource] if subresource else [name]
    return segments


async def _whole(answer: Answer, most: int) -> Answer:
    """Read a response, and release its connection."""
    data = await answer.data(most)
    if data is None:
        raise RefusedError(
            f"the response is larger than {most >> 20} MiB, so planned changes cannot be merged into it",
            HTTPStatus.INSUFFICIENT_STORAGE,
        )
    if len(data) > _LARGE:
        await asyncio.to_thread(answer.parsed)
    headers = [header for header in answer.headers if header[0].lower() not in _OF_CODING]
    answer.headers, answer.length = [*headers, (b"Content-Length", b"%d" % len(data))], len(data)
    answer.content = Whole(data)
    return answer


def is_temporary(answer: Answer) -> bool:
    """Return whether the API server is busy, unavailable, or gets a new token: nothing follows about the object."""
    return answer.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.TOO_MANY_REQUESTS, *range(500, 600)}


def respond(obj: Mapping[str, Any], status: int = HTTPStatus.OK, *, to_head: bool = False) -> Answer:
    """Return a response with a JSON object."""
    answer = complete(int(status), orjson.dumps(obj), (b"Cache-Control", b"no-cache, private"))
    if to_head:
        answer.length, answer.content = 0, Whole(b"")
    return answer


def failure(code: int, reason: str, message: str, details: Mapping[str, Any] | None = None) -> Answer:
    """Return an error like the API server's."""
    status = proxy_calls.failure(int(code), reason, message)
    return respond(status | ({"details": dict(details)} if details else {}), code)


def not_found(kind: KindId, name: str) -> Answer:
    """Return the API server's error for a missing object."""
    return failure(HTTPStatus.NOT_FOUND, "NotFound", f'{kind.qualified} "{name}" not found', details(kind, name))


def already_exists(kind: KindId, name: str) -> Answer:
    """Return the API server's error for an object that exists."""
    message = f'{kind.qualified} "{name}" already exists'
    return failure(HTTPStatus.CONFLICT, "AlreadyExists", message, details(kind, name))


def conflict(kind: KindId, name: str, why: str) -> Answer:
    """Return the API server's error for an outdated or unexpected object."""
    message = f'Operation cannot be fulfilled on {kind.qualified} "{name}": {why}'
    return failure(HTTPStatus.CONFLICT, "Conflict", message, details(kind, name))


def details(kind: KindId, name: str) -> Object:
    """Return the details of a status about an object."""
    return {"name": name, **({"group": kind.group} if kind.group else {}), "kind": kind.plural}


def refused(plan: PlanCall, error: RefusedError, what: str = "plan run") -> Answer:
    """Record a refusal, and return the response."""
    info = plan.info
    key = plan.key if info.is_resource else ObjectKey("", "")
    plan.overlay.refuse(Refusal(info.verb, info.qualified, key, str(error)))
    reason = "MethodNotAllowed" if error.status == HTTPStatus.METHOD_NOT_ALLOWED else "Forbidden"
    return failure(error.status, reason, f"{what}: refused {info.verb} {info.qualified} {key}: {error}")


def accepts_partial(call: Call) -> bool:
    """Return whether the client accepts metadata only, such as `application/json;as=PartialObjectMetadata`.

    Raises:
        RefusedError: the client accepts no JSON.
    """
    ranges = [part.strip().lower() for part in messages.joined(call.headers, b"accept").decode("latin-1").split(",")]
    for media_range in ranges:
        media = media_range.partition(";")[0].strip()
        if media in {"", "*/*", "application/*"}:
            return False
        if media == content.JSON:
            return _PARTIAL in media_range.replace(" ", "")
    raise RefusedError("objects that the plan changes are available as JSON only", HTTPStatus.NOT_ACCEPTABLE)


def partial(obj: Object) -> Object:
    """Return the metadata of an object, as `PartialObjectMetadata`."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata(obj)}


def _is_passed(name: bytes) -> bool:
    return name in _PASSED or name.startswith(_IMPERSONATE)


def read_digest(obj: Object, kind: KindId, owner: str) -> str:
    """Return the digest of an object or a list that a plan run reads, so that a later plan can detect a change.

    The object with the UID `owner` does not count, nor does the ConfigMap of its plan. The result is empty if it is
    the only one.

    The status and the metadata that the API server maintains do not count, because they change by themselves. The
    content of Secrets does not count either, so that no published digest allows to guess it: their versions do.
    """
    if not obj:
        return ABSENT
    if isinstance(items := obj.get("items"), list):
        counted = [item for item in items if isinstance(item, dict) and not _is_own(item, owner)]
        return digest([_lasting(item, kind) for item in counted])
    return "" if _is_own(obj, owner) else digest(_lasting(obj, kind))


def _is_own(obj: Object, owner: str) -> bool:
    return uid_of(obj) == owner or annotations_of(obj).get(RECORD_OF) == owner


def _lasting(obj: Object, kind: KindId) -> object:
    meta = metadata(obj)
    if kind == _SECRETS:
        return [meta.get("name"), meta.get("namespace"), meta.get("uid"), meta.get("resourceVersion")]
    rest = {name: value for name, value in meta.items() if name not in _MAINTAINED}
    return {**{name: obj[name] for name in obj.keys() - {"apiVersion", "kind", "metadata", "status"}}, "metadata": rest}
