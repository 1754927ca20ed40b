"""Code of a role in a pod: writes ConfigMaps with the token of its run, until it sees the gate. Errors do not end it.

It connects to the operator itself, so that the agent cannot keep it from writing.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
import sys
import time
from pathlib import Path

SECRET = Path("/operator/agent")
sys.path.insert(0, str(SECRET / "agent.py"))
# The agent of this pod, whose protocol the role can use. Only a pod has it.
from ansible_operator_agent import frames as agent  # type: ignore[import-not-found]  # noqa: E402

INTERVAL = 0.5


async def call(method: str, path: str, body: object = None) -> int:
    """Send a request; return the status of the response."""
    contact = agent.Contact.read(SECRET)
    reader, writer = await asyncio.wait_for(agent.connect(contact, contact.host, agent.ALPN_HTTP), 5)
    text = json.dumps(body).encode() if body is not None else b""
    head = f"{method} {path} HTTP/1.1\r\nHost: operator\r\nAuthorization: Bearer {contact.token}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode() + text)
    first = await asyncio.wait_for(reader.readline(), 20)
    writer.close()
    return int(first.split()[1])


def main(namespace: str, gate: str) -> None:
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    pod = socket.gethostname()
    for number in itertools.count():
        with contextlib.suppress(OSError, ValueError, IndexError, asyncio.TimeoutError):
            if asyncio.run(call("GET", f"{maps}/{gate}")) == 200:
                return
            meta = {"name": f"{pod}-{number}", "labels": {"by": pod}}
            asyncio.run(call("POST", maps, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}))
        time.sleep(INTERVAL)


if __name__ == "__main__":
    main(*sys.argv[1:])
