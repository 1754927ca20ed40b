"""Code of a hostile role in the pod of its run: tries to reach what belongs to others, and prints the answers as JSON.

Its arguments are JSON, see `main`. Texts that must not be in the pod arrive reversed, since the arguments are there.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import socket
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path

SECRET = Path("/operator/agent")
sys.path.insert(0, str(SECRET / "agent.py"))
# The agent of this pod, whose protocol the role can use.
from ansible_operator_agent import frames as agent  # type: ignore[import-not-found]  # noqa: E402

SKIPPED = {"/proc", "/sys", "/usr", "/dev"}
LARGEST = 1 << 20


def readable_files() -> Iterator[Path]:
    for folder, folders, names in os.walk("/"):
        folders[:] = [name for name in folders if str(Path(folder, name)) not in SKIPPED]
        yield from (path for name in names if (path := Path(folder, name)).is_file() and not path.is_symlink())
    yield from Path("/proc").glob("[0-9]*/environ")
    yield from Path("/proc").glob("[0-9]*/cmdline")


def files_with(texts: list[bytes]) -> list[str]:
    found = []
    for path in readable_files():
        with contextlib.suppress(OSError), path.open("rb") as file:
            content = file.read(LARGEST)
            found += [str(path) for text in texts if text in content]
    return found


def commands() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace").strip())
    return found


def connects(host: str, port: int) -> str:
    try:
        with socket.create_connection((host, port), 5):
            return "open"
    except OSError as error:
        return type(error).__name__


def status(path: str, **headers: str) -> int:
    """Send a request through the port of the agent."""
    connection = http.client.HTTPConnection("127.0.0.1", agent.RELAY_PORT, timeout=20)
    connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    return connection.getresponse().status


def direct(path: str) -> int:
    """Send a request to the API server, with no identity: the pod has none."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"])
    connection = http.client.HTTPSConnection(host, port, timeout=20, context=context)
    connection.request("GET", path)
    return connection.getresponse().status


async def hello(run: str, token: str) -> str:
    """Be an agent; return why the operator refuses it."""
    contact = agent.Contact.read(SECRET)
    reader, writer = await agent.connect(contact, contact.host, agent.ALPN_LINK)
    value = {"protocol": agent.PROTOCOL, "run": run, "token": token, "agent": "forged", "has_order": False}
    writer.write(agent.encode_json(agent.Kind.HELLO, {**value, "last": 0, "acknowledged": 0}))
    kind, _, payload = await asyncio.wait_for(agent.read(reader), 20)
    writer.close()
    return str(json.loads(payload)["reason"]) if kind == agent.Kind.REFUSED else agent.Kind(kind).name


def main(namespace: str, victim: str, stolen: str, absent: list[str], ports: list[int]) -> dict[str, object]:
    """`victim` and `stolen`: name and token of another run. `absent`: texts, reversed. `ports`: of the operator."""
    own = agent.Contact.read(SECRET)
    secret, maps = (f"/api/v1/namespaces/{namespace}/{path}" for path in (f"secrets/{victim}", "configmaps"))
    bearer = f"Bearer {own.token}"
    return {
        "files": files_with([text[::-1].encode() for text in absent]),
        "foreign commands": [each for each in commands() if "ansible-operator run" in each],
        "own commands": any("agent.py" in each for each in commands()),
        "ports": {port: connects(own.host, port) for port in ports},
        "port of agents": connects(own.host, own.port),
        "API server without identity": direct(secret),
        "proxy with own token": status(maps, Authorization=bearer),
        "proxy without token": status(maps),
        "proxy with another word": status(maps, Authorization="Bearer made-up"),
        "proxy, Secret of another run": status(secret, Authorization=bearer),
        "proxy, as an administrator": status(secret, Authorization=bearer, Impersonate_User="system:admin"),
        "proxy with the stolen token": status(maps, Authorization=f"Bearer {stolen}"),
        "proxy with the stolen token, Secret": status(secret, Authorization=f"Bearer {stolen}"),
        "order of another run": asyncio.run(hello(victim, own.token)),
        "order with the stolen token": asyncio.run(hello(victim, stolen)),
        "own order, again": asyncio.run(hello(own.run, own.token)),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(**json.loads(sys.argv[1]))))
