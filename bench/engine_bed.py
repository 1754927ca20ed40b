"""Content of the control plane for the engine's benchmark: kinds and objects of the corpus, and the jobs of their runs.

Runs reach the API server through the proxy of the installed command, in an operator's process of its own (see
`bench.standing`), whose costs are in no figure.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import itertools
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.corpus import Case
from runner.base.config import paths
from runner.core.engine import params
from runner.core.engine.job import Job
from runner.core.kube.client import Client, PatchType
from runner.features.rolemetrics.endpoint import ADDRESS_VARIABLE
from runner.values.errors import ApiError
from runner.values.objects import key_of

NAMESPACE = "bench-engine"
_VERBOSITY = 2
_KEPT_RUNS = 20
_WITHIN = 120.0
_NUMBERS = itertools.count(1)
_EXAMPLE = "http://127.0.0.1:8000"
"""URL of the external service in objects of the corpus."""


@dataclass(frozen=True, slots=True)
class Access:
    """How runs reach the operator's proxy and its metrics."""

    kubeconfig: str
    metrics: str

    def through(self, port: int) -> Access:
        """Return the way that leads to another port of this machine instead of the proxy's."""
        content = json.loads(self.kubeconfig)
        cluster = content["clusters"][0]["cluster"]
        cluster["server"] = re.sub(r":\d+$", f":{port}", cluster["server"])
        return Access(json.dumps(content), self.metrics)


@dataclass(frozen=True, slots=True)
class Bed:
    """Where runs take place."""

    client: Client
    runs: Path
    way: Access
    service: str
    """URL of the external service that roles call."""
    exec_container: str
    """Name of containers in which roles run commands."""
    namespace: str = NAMESPACE

    async def install(self, case: Case) -> None:
        """Create a case's kind, and wait until the API server serves it."""
        crd = case.crd
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd['metadata']['name']}"
        apply = PatchType.APPLY.value
        await self.client.request("PATCH", path, params={"fieldManager": "bench"}, body=crd, content_type=apply)
        async with asyncio.timeout(_WITHIN):
            for _ in itertools.count():
                with contextlib.suppress(ApiError):
                    await self.client.request("GET", case.path(self.namespace))
                    return
                await asyncio.sleep(0.1)

    async def job(self, case: Case, way: Access | None = None) -> Job:
        """Describe the next run of a case, as the operator does; its object is created if there is none."""
        number, way = next(_NUMBERS), way or self.way
        obj = await self.apply(case, f"new-{number}" if case.creates else "sample")
        watch = case.watch
        made = params.build(obj, watch, cause={"reason": "Period", "details": [], "failures": 0}, finalizing=False)
        return Job(
            ident=f"run-{number}",
            gvk=watch.gvk,
            key=key_of(obj),
            content=watch.content,
            run_dir=paths.run_dir(self.runs, watch.gvk, key_of(obj)),
            extra_vars=made.extra_vars,
            unsafe_keys=made.unsafe_keys,
            ignored_variables=made.reserved,
            verbosity=_VERBOSITY,
            ansible_args="",
            max_artifacts=_KEPT_RUNS,
            environment=self.environment(way),
            kubeconfig=way.kubeconfig,
            deadline=None,
        )

    def environment(self, way: Access | None = None) -> dict[str, str]:
        """Return what the operator adds to the environment of runs."""
        return {"ANSIBLE_GATHERING": "explicit", ADDRESS_VARIABLE: (way or self.way).metrics}

    async def apply(self, case: Case, name: str, **spec: Any) -> dict[str, Any]:
        """Create an object of a case, or change it to have these fields in its specification."""
        body = case.sample(name, **spec)
        body["spec"] |= {name: self.service for name, value in body["spec"].items() if value == _EXAMPLE}
        if "database" in body["spec"]:
            body["spec"]["database"]["container"] = self.exec_container
        path = case.path(self.namespace, name)
        apply = PatchType.APPLY.value
        return await self.client.request("PATCH", path, params={"fieldManager": "bench"}, body=body, content_type=apply)

    async def delete(self, path: str) -> None:
        """Delete an object that may be gone."""
        try:
            await self.client.request("DELETE", path)
        except ApiError as error:
            if error.status != http.HTTPStatus.NOT_FOUND:
                raise


class _Service(http.server.BaseHTTPRequestHandler):
    """An external service that has nothing and accepts everything."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path.startswith("/director/"):  # the API of Icinga Director has a document for each object
            self._answer(http.HTTPStatus.NOT_FOUND, b'{"error": "there is none"}')
        else:
            self._answer(http.HTTPStatus.OK, b"[]")

    def do_POST(self) -> None:
        self.do_PUT()

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer(http.HTTPStatus.CREATED, b"{}")

    def _answer(self, status: http.HTTPStatus, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Standard error is the benchmark's own."""


@contextlib.contextmanager
def service() -> Iterator[str]:
    """Serve the external service on the loopback interface; return its URL."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Service) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
