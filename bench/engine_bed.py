"""What both engines are given: the same project, the same objects, the same way to the API server.

Owns the control plane's content, and the jobs. The proxy is that of the installed command, in an operator's process of
its own (see `bench.standing`), whose costs are in no figure.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from runner.engine.job import Job
from runner.errors import ApiError
from runner.kube.client import Client, PatchType
from runner.objects import GVK, ObjectKey
from runner.watches.watch import Role

NAMESPACE = "bench-engine"
_ROOT = Path(__file__).resolve().parents[1]
_CASES = Path(__file__).with_name("engine_cases")
_MEMCACHED = GVK("cache.example.com", "v1alpha1", "Memcached")
_CRD = _ROOT / "config/crd/bases/cache.example.com_memcacheds.yaml"
_CONFIG_MAPS = "/api/v1/namespaces/{}/configmaps"
_DIRECTORY = "default"
_SIZE = 2
_VERBOSITY = 2
_WITHIN = 120.0


@dataclass(frozen=True, slots=True)
class Bed:
    """What every measurement needs."""

    client: Client
    folder: Path
    kubeconfig: str
    """The way through the proxy."""

    def job(self, ident: str, role: Role, number: int, kubeconfig: str) -> Job:
        """Describe a run of a role for one object, as the operator would; without facts."""
        name = object_name(number)
        return Job(
            ident=ident,
            gvk=_MEMCACHED,
            key=ObjectKey(NAMESPACE, name),
            content=role,
            run_dir=self.folder / "runs" / name,
            extra_vars={
                "size": _SIZE,
                "ansible_operator_meta": {"name": name, "namespace": NAMESPACE},
                "work": str(self.folder),
            },
            unsafe_keys=frozenset(),
            verbosity=_VERBOSITY,
            ansible_args="",
            max_artifacts=20,
            environment={"ANSIBLE_GATHERING": "explicit"},
            kubeconfig=kubeconfig,
            deadline=None,
        )

    async def forget(self, suffix: str) -> None:
        """Remove the ConfigMap that a case makes."""
        await self._delete(_CONFIG_MAPS.format(NAMESPACE), f"{object_name(0)}-{suffix}")

    async def forget_entry(self) -> None:
        """Remove what the sample role wrote last: the object's entry in the directory."""
        await self._delete(_CONFIG_MAPS.format(_DIRECTORY), f"memcached.{NAMESPACE}.{object_name(0)}")

    async def _delete(self, collection: str, name: str) -> None:
        try:
            await self.client.request("DELETE", f"{collection}/{name}")
        except ApiError as error:
            if error.status != 404:
                raise

    async def make_objects(self, count: int) -> None:
        """Make the sample's kind and as many resources of it."""
        crd = yaml.safe_load(_CRD.read_text(encoding="utf-8"))
        await self._apply(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd['metadata']['name']}", crd)
        path = f"/apis/{_MEMCACHED.group}/{_MEMCACHED.version}/namespaces/{NAMESPACE}/memcacheds"
        async with asyncio.timeout(_WITHIN):
            await self._until_served(path)
        for number in range(count):
            name = object_name(number)
            body = {"apiVersion": _MEMCACHED.api_version, "kind": _MEMCACHED.kind, "metadata": {"name": name}}
            await self._apply(f"{path}/{name}", {**body, "spec": {"size": _SIZE}})

    async def _apply(self, path: str, body: dict[str, Any]) -> None:
        params = {"fieldManager": "bench"}
        await self.client.request("PATCH", path, params=params, body=body, content_type=PatchType.APPLY.value)

    async def _until_served(self, path: str) -> None:
        for _ in itertools.count():
            try:
                await self.client.request("GET", path)
            except ApiError:
                await asyncio.sleep(0.1)
            else:
                return


@dataclass(frozen=True, slots=True)
class Case:
    """Something to run."""

    name: str
    title: str
    role: Role
    goal: float
    """How many times cheaper and faster warm is to be."""
    before: Callable[[Bed], Coroutine[Any, Any, None]] | None = None
    """What each run finds undone; None where it finds nothing to do."""


def object_name(number: int) -> str:
    """Name an object."""
    return f"load-{number}"


def _role(name: str) -> Role:
    return Role(name, _CASES / name)


_SAMPLE = Role("memcached", _ROOT / "roles" / "memcached")
CASES = (
    Case("one", "one k8s task", _role("one"), 6, lambda bed: bed.forget("one")),
    Case("sample", "the sample role, entering the directory", _SAMPLE, 10, Bed.forget_entry),
    Case("ten", "ten tasks of mixed modules", _role("ten"), 6, lambda bed: bed.forget("ten")),
    Case("large", "150 tasks", _role("large"), 10),
    Case("unchanged", "the sample role with nothing to do", _SAMPLE, 6),
)
TOGETHER = Case("together", "the sample role for {} objects at once", _SAMPLE, 6)


def through(kubeconfig: str, port: int) -> str:
    """Let a kubeconfig lead to another port of this machine."""
    content = json.loads(kubeconfig)
    cluster = content["clusters"][0]["cluster"]
    cluster["server"] = re.sub(r":\d+$", f":{port}", cluster["server"])
    return json.dumps(content)
