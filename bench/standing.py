"""An operator with a run that goes on, and that run's way through the proxy, handed to the benchmark.

The run is an ordinary one: its role copies its kubeconfig to where the benchmark finds it, and waits to be let go. So
what is measured is the proxy of the installed command, in the operator's own process, with all that it does there.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson

from bench import lean, objects, process_stats
from bench.operator_process import DEADLINE, OperatorProcess, Project, running
from runner.base.credentials.auth import Credentials
from runner.core.kube.client import Client
from runner.features.rolemetrics.endpoint import ADDRESS_VARIABLE

_OWNER = "standing"
_LOOK = 0.1
_CALM_FOR = 1.0
_CALM_BELOW = 0.03


def tasks(folder: Path) -> list[dict[str, Any]]:
    """The role: hand out the kubeconfig, wait to be let go."""
    name = f"{folder}/{{{{ ansible_operator_meta.namespace }}}}"
    return [
        {
            "name": "Hand out the way through the proxy",
            "ansible.builtin.copy": {
                "src": "{{ lookup('ansible.builtin.env', 'KUBECONFIG') }}",
                "dest": f"{name}.kubeconfig",
                "mode": "0600",
            },
        },
        {
            "name": "Hand out where metrics are posted to",
            "ansible.builtin.copy": {
                "content": f"{{{{ lookup('ansible.builtin.env', '{ADDRESS_VARIABLE}') }}}}",
                "dest": f"{name}.url",
                "mode": "0600",
            },
        },
        {"name": "Go on", "ansible.builtin.wait_for": {"path": f"{name}.done", "timeout": 86400}},
    ]


@dataclass(frozen=True, slots=True)
class Standing:
    """A run that goes on."""

    operator: OperatorProcess
    proxy: lean.Endpoint
    namespace: str

    @property
    def pid(self) -> int:
        """The process that the proxy is in: the operator's own."""
        return self.operator.pid

    async def own(self, resource: str, body: dict[str, Any]) -> bytes:
        """Create an object in the namespace as the run does; return the GET of it once it is answered from memory."""
        base = f"/api/v1/namespaces/{self.namespace}/{resource}"
        get = self.proxy.get(f"{base}/{body['metadata']['name']}")
        await asyncio.to_thread(self._create, base, orjson.dumps(body))
        async with asyncio.timeout(DEADLINE):
            for _ in itertools.count():
                if await asyncio.to_thread(self._is_hit, get):
                    break
                await asyncio.sleep(_LOOK)
        return get

    def _create(self, path: str, body: bytes) -> None:
        with lean.Connection(self.proxy) as connection:
            answer = connection.ask(self.proxy.post(path, body))
        if answer.status != 201:
            raise RuntimeError(f"{path}: {answer}")

    def _is_hit(self, get: bytes) -> bool:
        with lean.Connection(self.proxy) as connection:
            return connection.ask(get).is_hit

    async def calm(self) -> None:
        """Wait until the process has nothing to do."""
        async with asyncio.timeout(DEADLINE):
            for _ in itertools.count():
                before = process_stats.cpu_seconds(self.pid)
                await asyncio.sleep(_CALM_FOR)
                if process_stats.cpu_seconds(self.pid) - before < _CALM_BELOW * _CALM_FOR:
                    return


@asynccontextmanager
async def standing(client: Client, project: Project, namespace: str) -> AsyncIterator[Standing]:
    """Run the operator on a namespace, with a run in it that goes on as long as the block."""
    *handed, done = (project.folder / f"{namespace}.{what}" for what in ("kubeconfig", "url", "done"))
    async with running(project, namespace, "--log-level=info") as operator:
        await operator.await_ready()
        await client.request("POST", objects.path(namespace), body=objects.body(_OWNER))
        await operator.await_line("Run started", name=_OWNER)
        async with asyncio.timeout(DEADLINE):
            for _ in itertools.count():
                if all(file.exists() for file in handed):
                    break
                await asyncio.sleep(_LOOK)
        made = Standing(operator, _through(handed[0]), namespace)
        await made.calm()
        try:
            yield made
        finally:
            done.touch()


def _through(kubeconfig: Path) -> lean.Endpoint:
    """The proxy, as a run's kubeconfig names it."""
    content = orjson.loads(kubeconfig.read_bytes())
    url, user = urlsplit(content["clusters"][0]["cluster"]["server"]), content["users"][0]["user"]
    return lean.Endpoint(url.hostname or "", url.port or 0, None, (("Authorization", f"Bearer {user['token']}"),))


async def direct(credentials: Credentials) -> lean.Endpoint:
    """The API server, with the operator's credentials."""
    url, headers = urlsplit(credentials.base_url), await credentials.headers()
    return lean.Endpoint(url.hostname or "", url.port or 443, credentials.ssl, tuple(headers.items()))
