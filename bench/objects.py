"""The kind that is watched, and its objects."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import orjson

from runner.core.kube.client import Client, PatchType
from runner.values.objects import Object
from tests.kit.objects import definition, is_established
from tests.kit.wait import until

GROUP = "bench.example.com"
VERSION = "v1"
KIND = "Load"
_HOLDER = f"{GROUP}/somebody-else"
_AT_ONCE = 16


def path(namespace: str, name: str = "") -> str:
    """Return where the objects of a namespace stand, or one of them."""
    return f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/loads" + (f"/{name}" if name else "")


def body(name: str, text: str = "") -> Object:
    """Return an ordinary object; `text` makes it larger."""
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "metadata": {"name": name},
        "spec": {"size": 3, "text": text},
    }


async def install(client: Client, namespaces: tuple[str, ...]) -> None:
    """Make the kind and the namespaces, and wait until the kind is served."""
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    apply = {"fieldManager": "bench"}
    where = f"{crds}/loads.{GROUP}"
    await client.request("PATCH", where, params=apply, body=definition(GROUP, KIND), content_type=PatchType.APPLY.value)

    async def is_served() -> bool:
        return is_established(await client.request("GET", where))

    await until(is_served, "the kind to be served")
    for name in namespaces:
        await client.request("POST", "/api/v1/namespaces", body={"metadata": {"name": name}})


async def create_held(client: Client, namespace: str, count: int, size: int) -> None:
    """Create objects of `size` bytes that are being deleted, and are held by a finalizer of somebody else."""
    sample = await _create_held(client, namespace, "held-00000", "")
    text = "x" * max(size - _stored(sample), 0)
    await concurrently(range(1, count), lambda number: _create_held(client, namespace, f"held-{number:05}", text))


async def create(client: Client, namespace: str, count: int, size: int) -> None:
    """Create ordinary objects of `size` bytes."""
    sample = await client.request("POST", path(namespace), body=body("object-00000"))
    text = "x" * max(size - _stored(sample), 0)
    await concurrently(
        range(1, count),
        lambda number: client.request("POST", path(namespace), body=body(f"object-{number:05}", text)),
    )


async def _create_held(client: Client, namespace: str, name: str, text: str) -> Object:
    obj = body(name, text)
    obj["metadata"]["finalizers"] = [_HOLDER]
    await client.request("POST", path(namespace), body=obj)
    return await client.request("DELETE", path(namespace, name))


def _stored(obj: Object) -> int:
    """Return the bytes of an object's JSON, `managedFields` left out."""
    return len(orjson.dumps({**obj, "metadata": {k: v for k, v in obj["metadata"].items() if k != "managedFields"}}))


async def concurrently(numbers: Iterable[int], make: Callable[[int], Coroutine[Any, Any, Object]]) -> None:
    """Make something of each number, some of them at a time."""
    left = iter(numbers)

    async def worker() -> None:
        for number in left:
            await make(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(_AT_ONCE):
            group.create_task(worker())


async def count_by_pages(client: Client, namespace: str, page: int) -> int:
    """Read and parse a whole list, as a client does that does nothing else; return how many objects it held."""
    params = {"limit": str(page)}
    count = 0
    for _ in itertools.count():
        found = await client.request("GET", path(namespace), params=params)
        count += len(found["items"])
        if not found["metadata"].get("continue"):
            break
        params["continue"] = found["metadata"]["continue"]
    return count
