"""An editor of one namespace who has the token of its own run in a pod attacks the operator.

Each attack may neither end nor stall the operator, and it may not need much memory. A run of another tenant starts
about as fast as without the attack.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
import ssl
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from runner.agent.frames import ALPN_HTTP, ALPN_LINK, HEADER, Kind
from tests.integration.operator.test_tenants_in_pods import RULES
from tests.kit.objects import GROUP, MEMCACHED, Things, memcacheds
from tests.kit.wait import patience, wait_until

if TYPE_CHECKING:
    from tests.kit.objects import Api
    from tests.kit.operator import Operator, Project

MOST_MEMORY = 400.0
"""MiB of the operator at any time."""
SLOWER = 2.0
"""Seconds by which a run of another tenant may be slower, on a machine without other load."""
DURATION = 4.0
"""Seconds of an attack at least."""
_NAME = "ansible-operator-pods"


@dataclass(frozen=True)
class Run:
    """A run of the attacker, as its Secret describes it."""

    name: str
    token: str
    ca: str
    port: int
    namespace: str
    opened: list[asyncio.StreamWriter] = field(default_factory=list)

    async def connect(self, protocol: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = ssl.create_default_context(cadata=self.ca)
        context.set_alpn_protocols([protocol])
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=context, server_hostname=_NAME)
        self.opened.append(writer)
        return reader, writer

    async def suffer(self, attack: Attack) -> None:
        """Attack, and close all connections."""
        try:
            await attack(self)
        finally:
            for each in self.opened:
                each.transport.abort()
            await asyncio.sleep(0.1)

    async def link(self, agent: str = "a") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect as the agent of the run."""
        reader, writer = await self.connect(ALPN_LINK)
        hello = {"protocol": 1, "run": self.name, "token": self.token, "agent": agent, "has_order": True, "last": 0}
        writer.write(_frame(Kind.HELLO, 0, json.dumps({**hello, "acknowledged": 0}).encode()))
        return reader, writer

    def request(self, start: str, body: bytes = b"", media: str = "application/json") -> bytes:
        lines = [f"{start} HTTP/1.1", "Host: a", f"Authorization: Bearer {self.token}", f"Content-Type: {media}"]
        return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


Attack = Callable[[Run], Awaitable[None]]


def _frame(kind: int, number: int, payload: bytes) -> bytes:
    return HEADER.pack(kind, number, len(payload)) + payload


async def _frames(run: Run, *pieces: bytes) -> None:
    """Send bytes after HELLO until the operator closes the connection or some seconds are over."""
    with contextlib.suppress(OSError, asyncio.TimeoutError):
        async with asyncio.timeout(DURATION):
            reader, writer = await run.link()
            for piece in pieces:
                if writer.is_closing():
                    return
                writer.write(piece)
                await writer.drain()
            await reader.read()


async def a_frame_of_empty_lists(run: Run) -> None:
    event = b'{"event":"verbose","uuid":"x","counter":1,"stdout":"","zz":[' + b"[]," * 10_000_000 + b"[]]}"
    await _frames(run, _frame(Kind.DATA, 1, event))


async def many_small_frames(run: Run) -> None:
    await _frames(run, b"".join(_frame(Kind.DATA, number, b"") for number in range(1, 100_000)))


async def events_as_fast_as_possible(run: Run) -> None:
    event = b'{"event":"verbose","uuid":"x","counter":1,"stdout":"%s"}' % (b"x" * 1000)
    await _frames(run, *(_frame(Kind.DATA, number, event) for number in range(1, 20_000)))


async def answers_without_questions(run: Run) -> None:
    await _frames(run, *([_frame(Kind.PONG, 0, b"") * 10_000] * 100))


async def a_large_frame_that_does_not_end(run: Run) -> None:
    await _frames(run, HEADER.pack(Kind.DATA, 1, 30 << 20) + b"x" * (29 << 20))


async def idle_connections(run: Run) -> None:
    """Some without TLS, some without a token."""
    held = [socket.create_connection(("127.0.0.1", run.port)) for _ in range(300)]
    for protocol in (ALPN_HTTP, ALPN_LINK):
        for _ in range(150):
            with contextlib.suppress(OSError):
                await run.connect(protocol)
    await asyncio.sleep(DURATION)
    for each in held:
        each.close()


async def idle_connections_with_the_token(run: Run) -> None:
    for _ in range(200):
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await run.connect(ALPN_HTTP)
            writer.write(run.request("GET /version"))
            await reader.readuntil(b"\r\n\r\n")
    await asyncio.sleep(DURATION)


def _content(*bodies: tuple[str, bytes]) -> Attack:
    """Return an attack with writes of this content, several at once and again and again."""

    async def act(run: Run) -> None:
        end = time.monotonic() + DURATION

        async def send() -> None:
            while time.monotonic() < end:
                for media, body in bodies:
                    with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.TimeoutError):
                        async with asyncio.timeout(2 * DURATION):
                            reader, writer = await run.connect(ALPN_HTTP)
                            path = f"/api/v1/namespaces/{run.namespace}/configmaps/a?fieldManager=a"
                            writer.write(run.request(f"PATCH {path}", body, media))
                            await reader.readuntil(b"\r\n\r\n")
                            writer.close()

        await asyncio.gather(*(send() for _ in range(4)))

    return act


ALIASES = b"a0: &a0 [x, x]\n" + b"".join(b"a%d: &a%d [*a%d, *a%d]\n" % (n, n, n - 1, n - 1) for n in range(1, 40))
APPLY, STRATEGIC = "application/apply-patch+yaml", "application/strategic-merge-patch+json"
ATTACKS: dict[str, Attack] = {
    "a frame of empty lists": a_frame_of_empty_lists,
    "many small frames": many_small_frames,
    "events as fast as possible": events_as_fast_as_possible,
    "answers without questions": answers_without_questions,
    "a large frame that does not end": a_large_frame_that_does_not_end,
    "idle connections": idle_connections,
    "idle connections with the token": idle_connections_with_the_token,
    "many values": _content(
        (APPLY, b'{"a": [' + b"[]," * 1_300_000 + b"[]]}"),
        (APPLY, b"a:\n" + b"- \n" * 1_300_000),
        (APPLY, ALIASES),
    ),
    "invalid JSON": _content(
        (STRATEGIC, b'"' + b'\\"' * 2_000_000),
        (STRATEGIC, b'"' + b"a" * 4_000_000 + b'"x'),
        (STRATEGIC, b'["' * 1_500_000),
    ),
}


class Memory:
    """The most memory that the operator needs, in MiB."""

    def __init__(self, operator: Operator) -> None:
        self._file = f"/proc/{operator.process.pid}"
        self.reset()

    def reset(self) -> None:
        with open(f"{self._file}/clear_refs", "w") as file:  # noqa: PTH123 - no path to resolve
            file.write("5")

    @property
    def peak(self) -> float:
        with open(f"{self._file}/status") as file:  # noqa: PTH123 - as above
            return int(next(line for line in file if line.startswith("VmHWM")).split()[1]) / 1024


@pytest.fixture
def tenant(neighbour: Things) -> Things:
    """The attacker's namespace."""
    return neighbour


def run(neighbours: Things, name: str) -> float:
    """Return the seconds until a new resource of another tenant is reconciled."""
    began = time.monotonic()
    neighbours.create(name, {"size": 1})
    wait_until(lambda: neighbours.conditions(name).get("Successful", {}).get("status") == "True", f"{name} to succeed")
    return time.monotonic() - began


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _start(project: Project, tenant: Things, things: Things) -> tuple[Operator, int]:
    """Start an operator of both namespaces; return it, and the port where it listens for pods."""
    project.permit(*RULES)
    project.bind_everywhere()
    project.role("thing", "    - ansible.builtin.debug: {msg: hello}\n")
    project.watch("thing", isolation="pod", ownNamespaceOnly=True, podTemplate={"image": "example.com/ee:1"})
    port = _free_port()
    operator = project.start(
        f"--namespace={tenant.namespace},{things.namespace}",
        *(f"--pods-address=127.0.0.1:{port}", f"--pods-bind-address=127.0.0.1:{port}"),
        f"--leader-election-namespace={project.namespace}",
    )
    return operator, port


def _run_of(api: Api, tenant: Things, name: str, port: int) -> Run:
    """Create a resource, and return its run as the tenant sees it."""
    uid = tenant.create(name)["metadata"]["uid"]
    path = f"/api/v1/namespaces/{tenant.namespace}/secrets"
    label = f"ansible.sdk.operatorframework.io/run-of={uid}"
    (secret,) = wait_until(lambda: api.call("GET", f"{path}?labelSelector={label}")["items"], "its Secret")
    data = {key: base64.b64decode(value).decode(errors="replace") for key, value in secret["data"].items()}
    return Run(data["run"], data["token"], data["ca.crt"], port, tenant.namespace)


@pytest.mark.nightly  # it measures how long neighbours wait, so it needs a machine without other load
@pytest.mark.timeout(900)
def test_a_tenant_with_the_token_of_its_own_run_harms_no_other(
    project: Project, api: Api, things: Things, tenant: Things
) -> None:
    project.permit({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]})
    project.role("memcached", "    - ansible.builtin.debug: {msg: hello}\n")
    project.watch("memcached", **MEMCACHED)
    operator, port = _start(project, tenant, things)
    neighbours, memory = memcacheds(api, things.namespace), Memory(operator)
    run(neighbours, "first")
    alone = max(run(neighbours, f"alone-{number}") for number in range(3))

    async def large_resources(_: Run) -> None:
        for number in range(12):
            await asyncio.to_thread(tenant.create, f"large-{number}", {"a": [[]] * 450_000})

    found: dict[str, tuple[float, float]] = {}
    for number, (name, attack) in enumerate({**ATTACKS, "large resources": large_resources}.items()):
        attacker = _run_of(api, tenant, f"attack-{number}", port)
        memory.reset()
        attacking = threading.Thread(target=lambda attack=attack, own=attacker: asyncio.run(own.suffer(attack)))
        attacking.start()
        slowest = run(neighbours, f"neighbour-{number}")
        while attacking.is_alive():
            slowest = max(slowest, run(neighbours, f"neighbour-{time.monotonic_ns()}"))
        attacking.join()
        found[name] = slowest, memory.peak
        assert operator.process.poll() is None, f"the operator ended after {name}"
        wait_until(operator.is_ready, f"the operator to be ready after {name}")
        tenant.delete(f"attack-{number}")
    sys.stdout.write(f"alone {alone:.1f} s; {found}\n")
    assert {name: value for name, value in found.items() if value[1] > MOST_MEMORY} == {}
    assert {name: value for name, value in found.items() if value[0] > alone + patience(SLOWER)} == {}
    assert operator.lines(level="error", msg="Reconcile failed unexpectedly") == []
    assert operator.lines(msg="Proxy request failed") == []


@pytest.mark.full
def test_a_confined_run_reads_nothing_of_another_tenant(
    project: Project, api: Api, things: Things, tenant: Things
) -> None:
    _, port = _start(project, tenant, things)
    run = _run_of(api, tenant, "spy", port)

    async def ask(target: str) -> int:
        reader, writer = await run.connect(ALPN_HTTP)
        writer.write(run.request(f"GET {target}"))
        status = int((await reader.readline()).split()[1])
        writer.transport.abort()
        await asyncio.sleep(0)
        return status

    own, other = (f"/api/v1/namespaces/{each.namespace}/secrets" for each in (tenant, things))
    assert asyncio.run(ask(own)) == 200
    assert [asyncio.run(ask(each)) for each in (other, "/api/v1/secrets", f"{own}/{run.name}")] == [403, 403, 403]
    assert asyncio.run(ask(f"/apis/{GROUP}/v1/namespaces/{things.namespace}/things")) == 403
