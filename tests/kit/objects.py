"""The ways to objects: `Api` asks the API server, `Things` are those of a kind, and `Hand` works in an event loop."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes import config as kubernetes_config

from runner.core.kube.client import EVERYTHING, Client, PatchType
from runner.core.kube.discovery import ApiResource, Discovery
from runner.values import objects
from runner.values.errors import ConflictError, KindNotFoundError, NotFoundError
from runner.values.objects import GVK, Object, ObjectKey
from tests.kit import rights
from tests.kit.wait import until, wait_until

GROUP = "test.example.com"
CRD = GVK("apiextensions.k8s.io", "v1", "CustomResourceDefinition")


ANYTHING: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def definition(
    group: str,
    kind: str,
    *,
    scope: str = "Namespaced",
    status: bool = True,
    versions: tuple[str, ...] = ("v1",),
    schema: Object = ANYTHING,
) -> Object:
    """A CRD, whose objects hold anything without a schema; the last of its versions is stored."""
    served = [
        {
            "name": version,
            "served": True,
            "storage": version == versions[-1],
            "subresources": {"status": {}} if status else {},
            "schema": {"openAPIV3Schema": schema},
        }
        for version in versions
    ]
    names = {"kind": kind, "plural": f"{kind.lower()}s", "singular": kind.lower()}
    return {
        "apiVersion": CRD.api_version,
        "kind": CRD.kind,
        "metadata": {"name": f"{names['plural']}.{group}"},
        "spec": {"group": group, "names": names, "scope": scope, "versions": served},
    }


THING_CRD = definition(GROUP, "Thing", schema={"type": "object", "properties": {"spec": ANYTHING, "status": ANYTHING}})


class Api:
    """The API server, asked directly as the administrator."""

    def __init__(self, kubeconfig: Path) -> None:
        self._client = kubernetes_config.new_client_from_config(str(kubeconfig))  # type: ignore[no-untyped-call]
        self._pool = self._client.rest_client.pool_manager

    def call(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
        """Return the parsed answer; None for 404. Any other error fails the test."""
        answer = self._pool.request(
            method,
            self._client.configuration.host + path,
            body=None if body is None else json.dumps(body),
            headers={"Content-Type": content_type, "Accept": "application/json"},
            retries=5,
        )
        if answer.status == 404:
            return None
        assert answer.status < 300, f"{method} {path}: {answer.status} {answer.data!r}"
        return json.loads(answer.data)

    def refusal(self, path: str, patch: Any) -> str:
        """Return the answer to a merge patch that changes nothing if it is accepted; empty then."""
        answer = self._pool.request(
            "PATCH",
            f"{self._client.configuration.host}{path}?dryRun=All",
            body=json.dumps(patch),
            headers={"Content-Type": "application/merge-patch+json"},
        )
        return "" if answer.status < 300 else str(json.loads(answer.data)["message"])

    def close(self) -> None:
        self._client.close()

    def apply(self, path: str, body: Mapping[str, Any]) -> Any:
        query = "?fieldManager=tests&force=true"
        return self.call("PATCH", path + query, body, "application/apply-patch+yaml")

    def grant(self, *given: Object) -> None:
        """Create or change a role and its binding, of `kit/rights.py`."""
        for each in given:
            space = each["metadata"].get("namespace")
            where = f"{rights.PATH}/namespaces/{space}" if space else rights.PATH
            self.apply(f"{where}/{each['kind'].lower()}s/{each['metadata']['name']}", each)

    def install(self, *crds: Object) -> None:
        """Create kinds, and wait until they are served."""
        for crd in crds:
            path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd['metadata']['name']}"
            self.apply(path, crd)
            wait_until(lambda path=path: is_established(self.call("GET", path)), f"{path} to be served")  # type: ignore[misc]


def conditions_of(obj: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {str(entry.get("type")): entry for entry in objects.conditions_of(obj)}


def is_established(crd: Object | None) -> bool:
    conditions = ((crd or {}).get("status") or {}).get("conditions") or []
    return any(entry["type"] == "Established" and entry["status"] == "True" for entry in conditions)


class Things:
    """The Things of one namespace."""

    def __init__(self, api: Api, namespace: str, plural: str = "things") -> None:
        self._api = api
        self.namespace = namespace
        self.plural = plural
        self.kind = "Thing"
        self.path = f"/apis/{GROUP}/v1/namespaces/{namespace}/{plural}"

    def create(self, name: str, spec: Any = None, **metadata: Any) -> dict[str, Any]:
        body: dict[str, Any] = {"apiVersion": f"{GROUP}/v1", "kind": self.kind, "metadata": {"name": name, **metadata}}
        if spec is not None:
            body["spec"] = spec
        created: dict[str, Any] = self._api.call("POST", self.path, body)
        return created

    def get(self, name: str) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self._api.call("GET", f"{self.path}/{name}")
        return found

    def merge(self, name: str, body: Mapping[str, Any], subresource: str = "") -> dict[str, Any]:
        path = f"{self.path}/{name}" + (f"/{subresource}" if subresource else "")
        found: dict[str, Any] = self._api.call("PATCH", path, body, "application/merge-patch+json")
        return found

    def delete(self, name: str) -> None:
        self._api.call("DELETE", f"{self.path}/{name}")

    def conditions(self, name: str) -> dict[str, dict[str, Any]]:
        return conditions_of(self.get(name) or {})

    def await_condition(self, name: str, kind: str, status: str = "True", *, current: bool = True) -> dict[str, Any]:
        """Wait for a condition that is about the object's present generation."""

        def holds() -> dict[str, Any] | None:
            obj = self.get(name)
            if obj is None:
                return None
            found = conditions_of(obj).get(kind, {})
            is_current = found.get("observedGeneration") == obj["metadata"]["generation"]
            return found if found.get("status") == status and (is_current or not current) else None

        found = wait_until(holds, f"{kind}={status} on {name}")
        assert found is not None
        return found

    def await_success(self, name: str) -> dict[str, Any]:
        self.await_condition(name, "Successful")
        return self.await_condition(name, "Running")

    def events(self, name: str, reason: str) -> list[dict[str, Any]]:
        """Return the Events about an object with this reason."""
        found = self._api.call("GET", f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")["items"]
        return [each for each in found if (each["regarding"]["name"], each["reason"]) == (name, reason)]

    def await_gone(self, name: str) -> None:
        wait_until(lambda: self.get(name) is None, f"{name} to go")


@dataclass
class Hand:
    """Requests of another client, which do not pass the proxy."""

    client: Client
    discovery: Discovery
    namespace: str
    manager: str = "ansible-operator"
    """The field manager that the API server takes us for."""

    async def create(self, obj: Object, namespace: str | None = None) -> Object:
        resource = await self.discovery.find(GVK.of(obj))
        space = self.namespace if namespace is None else namespace
        return await self.client.create(resource, space if resource.namespaced else "", obj)

    async def patch(self, gvk: GVK, name: str, patch: Object, subresource: str = "", **params: str) -> Object:
        resource = await self.discovery.find(gvk)
        key = ObjectKey(self.namespace if resource.namespaced else "", name)
        kind = PatchType.APPLY if params else PatchType.MERGE
        return await self.client.patch(
            resource, key, patch, content_type=kind, subresource=subresource, params=params or None
        )

    async def get(self, gvk: GVK, name: str) -> Object:
        resource = await self.discovery.find(gvk)
        return await self.client.get(resource, ObjectKey(self.namespace if resource.namespaced else "", name))

    async def delete(self, gvk: GVK, name: str) -> Object:
        resource = await self.discovery.find(gvk)
        return await self.client.delete(resource, ObjectKey(self.namespace if resource.namespaced else "", name))

    async def install(self, crd: Object) -> ApiResource:
        """Create a CRD; return once objects can be created in its first version."""
        spec = crd["spec"]
        gvk = GVK(spec["group"], spec["versions"][0]["name"], spec["names"]["kind"])
        is_created = False

        async def served() -> ApiResource | None:
            nonlocal is_created
            try:
                if not is_created:
                    await self.create(crd)
                is_created = True
                resource = await self.discovery.find(gvk)
                await self.client.list_page(resource, "", EVERYTHING, 1, "")
            except (ConflictError, KindNotFoundError, NotFoundError):
                return None  # one of this name may still be on its way out, and this one may not be served yet
            return resource

        found: ApiResource = await until(served, f"the API server to serve {gvk}")
        return found
