"""The ways to objects: `Api` asks the API server, `Things` are those of a kind, and `Hand` works in an event loop."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
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
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


ANYTHING: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
MEMCACHED = {"group": "cache.example.com", "version": "v1alpha1", "kind": "Memcached"}
"""The fields of a watch that select the kind of the sample."""


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


def _of_thing() -> Object:
    return {"type": "object", "properties": {"spec": {**ANYTHING}, "status": {**ANYTHING}}}


THING_CRD = definition(GROUP, "Thing", schema=_of_thing())


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

    def allows(self, user: str, attributes: Mapping[str, Any]) -> bool:
        """Return whether the authorizer lets a user do something, such as `{"resourceAttributes": …}`."""
        review = {"spec": {"user": user, **attributes}}
        answer = self.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        return bool(answer["status"]["allowed"])

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
            path = f"{CRDS}/{crd['metadata']['name']}"
            self.apply(path, crd)
            wait_until(lambda path=path: is_established(self.call("GET", path)), f"{path} to be served")  # type: ignore[misc]


def conditions_of(obj: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {str(entry.get("type")): entry for entry in objects.conditions_of(obj)}


def is_established(crd: Object | None) -> bool:
    conditions = ((crd or {}).get("status") or {}).get("conditions") or []
    return any(entry["type"] == "Established" and entry["status"] == "True" for entry in conditions)


@dataclass
class Objects:
    """The objects at one path of the API: those of a kind, in a namespace or of the cluster."""

    api: Api
    path: str

    def get(self, name: str) -> Object:
        """Return the object; {} if it does not exist."""
        found: Object = self.api.call("GET", f"{self.path}/{name}") or {}
        return found

    def all(self, selector: str = "") -> list[Object]:
        found: list[Object] = self.api.call("GET", f"{self.path}?labelSelector={selector}")["items"]
        return found

    def post(self, body: Mapping[str, Any]) -> Object:
        created: Object = self.api.call("POST", self.path, body)
        return created

    def merge(self, name: str, body: Mapping[str, Any], subresource: str = "") -> Object:
        path = f"{self.path}/{name}" + (f"/{subresource}" if subresource else "")
        found: Object = self.api.call("PATCH", path, body, "application/merge-patch+json")
        return found

    def delete(self, name: str) -> None:
        """Request its deletion."""
        self.api.call("DELETE", f"{self.path}/{name}")

    def await_gone(self, name: str) -> None:
        wait_until(lambda: self.get(name) == {}, lambda: f"{name} to go; it is {self.get(name)}")


class Things(Objects):
    """The custom resources of a kind, by default Thing, in one namespace; of the cluster if it is empty."""

    def __init__(
        self, api: Api, namespace: str, plural: str = "things", kind: str = "Thing", version: str = f"{GROUP}/v1"
    ) -> None:
        super().__init__(api, f"/apis/{version}/{f'namespaces/{namespace}/' if namespace else ''}{plural}")
        self.namespace, self.plural, self.kind, self.version = namespace, plural, kind, version

    def create(self, name: str, spec: Any = None, **metadata: Any) -> Object:
        body: Object = {"apiVersion": self.version, "kind": self.kind, "metadata": {"name": name, **metadata}}
        if spec is not None:
            body["spec"] = spec
        return self.post(body)

    def conditions(self, name: str) -> dict[str, dict[str, Any]]:
        return conditions_of(self.get(name))

    def await_condition(
        self, name: str, kind: str, status: str = "True", saying: str = "", *, current: bool = True
    ) -> dict[str, Any]:
        """Wait for a condition about the object's present generation whose message contains a text."""

        def holds(found: dict[str, dict[str, Any]]) -> dict[str, Any]:
            condition = found.get(kind, {})
            return condition if condition.get("status") == status and saying in condition.get("message", "") else {}

        return self._await(name, holds, f"{kind}={status} {saying!r}", current=current)

    def await_reason(self, name: str, kind: str, reason: str) -> dict[str, Any]:
        """Wait for a condition with a reason, about any generation."""

        def holds(found: dict[str, dict[str, Any]]) -> dict[str, Any]:
            return found.get(kind, {}) if found.get(kind, {}).get("reason") == reason else {}

        return self._await(name, holds, f"{kind} with the reason {reason}", current=False)

    def await_success(self, name: str) -> dict[str, Any]:
        """Wait until a run of the present generation has succeeded, and none follows; return the condition Running."""

        def holds(found: dict[str, dict[str, Any]]) -> dict[str, Any]:
            states = {found.get(kind, {}).get("status") for kind in ("Successful", "Running")}
            return found["Running"] if states == {"True"} else {}

        return self._await(name, holds, "a successful run")

    def _await(
        self,
        name: str,
        holds: Callable[[dict[str, dict[str, Any]]], dict[str, Any]],
        what: str,
        *,
        current: bool = True,
    ) -> dict[str, Any]:
        """Wait for what is found in one reading of the object: between two, another run may begin."""

        def found() -> dict[str, Any]:
            obj = self.get(name)
            generation = obj.get("metadata", {}).get("generation")
            conditions = conditions_of(obj).items()
            return holds(
                {k: each for k, each in conditions if not current or each.get("observedGeneration") == generation}
            )

        return wait_until(found, lambda: f"{what} of {name}; it is {self.get(name)}")

    def events(self, name: str, reason: str) -> list[dict[str, Any]]:
        """Return the Events about an object with this reason."""
        found = self.api.call("GET", f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")["items"]
        return [each for each in found if (each["regarding"]["name"], each["reason"]) == (name, reason)]


def memcacheds(api: Api, namespace: str) -> Things:
    """Return those of the sample's kind."""
    return Things(api, namespace, "memcacheds", "Memcached", "cache.example.com/v1alpha1")


class OwnKind(Things):
    """A kind of a test's own, like Thing but for what is changed before it is installed."""

    def __init__(self, api: Api, namespace: str, prefix: str) -> None:
        # The namespace's name is unique; a kind's must be too, since tests run side by side.
        kind = (prefix + "".join(filter(str.isalnum, namespace))).capitalize()
        super().__init__(api, namespace, f"{kind.lower()}s", kind)
        self.crd = definition(GROUP, kind, schema=_of_thing())
        self.served: Object = self.crd["spec"]["versions"][0]
        """Its only version."""
        self.schema: Object = self.served["schema"]["openAPIV3Schema"]["properties"]

    def install(self) -> None:
        """Install it, and wait until it is served."""
        self.api.install(self.crd)
        wait_until(self.is_served, f"{self.kind} to be served")

    def is_served(self) -> bool:
        return self.api.call("GET", f"/apis/{GROUP}/v1/{self.plural}") is not None

    def remove(self) -> None:
        self.api.call("DELETE", f"{CRDS}/{self.crd['metadata']['name']}")


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
