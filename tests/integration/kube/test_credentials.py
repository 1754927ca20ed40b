"""Credentials on a real API server, ours and those that child processes get."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
import yaml

from runner.base.credentials import auth
from runner.base.credentials.auth import Credentials, HostEnvironment
from runner.core.kube.client import Client, PatchType
from runner.core.kube.discovery import Discovery
from runner.sdk.devcluster import DevCluster
from runner.values.errors import ConflictError, ForbiddenError, NotFoundError, PatchTestError, UnauthorizedError
from runner.values.objects import GVK, ObjectKey
from tests.kit.wait import until

if TYPE_CHECKING:
    from tests.integration.kube.widgets import Connect

CONFIG_MAP = GVK("", "v1", "ConfigMap")
REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


async def name_of(client: Client) -> str:
    """Ask the API server who we are."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    found = await client.request("POST", REVIEW, body=review)
    return str(found["status"]["userInfo"]["username"])


async def output(*command: str) -> str:
    """What a command prints; it must succeed."""
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode()


@pytest.fixture
async def pod(devcluster: DevCluster, client: Client, namespace: str, tmp_path: Path) -> Credentials:
    """Credentials as a pod of this cluster has them: a folder with token, authority and namespace."""
    account = GVK("", "v1", "ServiceAccount")
    await client.create(await Discovery(client).find(account), namespace, {"metadata": {"name": "operator"}})
    token = await client.request(
        "POST",
        f"/api/v1/namespaces/{namespace}/serviceaccounts/operator/token",
        body={"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}},
    )
    authority = await client.get(await Discovery(client).find(CONFIG_MAP), ObjectKey("default", "kube-root-ca.crt"))
    contents = {"token": token["status"]["token"], "ca.crt": authority["data"]["ca.crt"], "namespace": namespace}
    for name, content in contents.items():
        tmp_path.joinpath(name).write_text(content)
    server = urlsplit(devcluster.url)
    environ = {"KUBERNETES_SERVICE_HOST": str(server.hostname), "KUBERNETES_SERVICE_PORT": str(server.port)}
    return await auth.load(None, None, HostEnvironment(environ, tmp_path / "home", tmp_path))


def with_token(kubeconfig: Path, token: str) -> str:
    """Return a kubeconfig for the same server with another user: the bearer of a token."""
    document = yaml.safe_load(kubeconfig.read_text())
    document["users"][0]["user"] = {"token": token}
    return yaml.safe_dump(document)


async def test_a_pod_is_its_service_account(pod: Credentials, namespace: str) -> None:
    assert pod.namespace == namespace
    async with Client(pod) as client:
        assert await name_of(client) == f"system:serviceaccount:{namespace}:operator"
        resource = await Discovery(client).find(CONFIG_MAP)
        with pytest.raises(ForbiddenError, match=r"cannot get resource.*Role"):
            await client.get(resource, ObjectKey(namespace, "kube-root-ca.crt"))


async def test_a_token_that_was_renewed_comes_into_use_when_the_last_one_ends(
    pod: Credentials, client: Client, kubeconfig: Path, namespace: str, tmp_path: Path
) -> None:
    """Tokens of a pod end with what they are bound to; here that is a Secret."""
    secrets = await Discovery(client).find(GVK("", "v1", "Secret"))
    bound = await client.create(secrets, namespace, {"metadata": {"name": "bound"}})
    reference = {"kind": "Secret", "apiVersion": "v1", "name": "bound", "uid": bound["metadata"]["uid"]}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/operator/token"
    first = await client.request("POST", path, body={"spec": {"boundObjectRef": reference}})
    second = await client.request("POST", path, body={"spec": {}})
    file = tmp_path / "token"
    file.write_text(first["status"]["token"])
    pod._token.forget()
    async with Client(pod) as ours:
        assert (await name_of(ours)).endswith(":operator")
        await client.delete(secrets, ObjectKey(namespace, "bound"))
        fixed = tmp_path / "first"
        fixed.write_text(with_token(kubeconfig, first["status"]["token"]))
        host = HostEnvironment({}, tmp_path)
        async with Client(await auth.load(str(fixed), None, host)) as old:
            await until(lambda: is_unknown(old), "the end of the token")
        file.write_text(second["status"]["token"])
        assert (await name_of(ours)).endswith(":operator")


async def is_unknown(client: Client) -> bool:
    """True if the API server refuses the credentials; it caches a token for some seconds after its expiry."""
    try:
        await name_of(client)
    except UnauthorizedError:
        return True
    return False


async def test_impersonation_reaches_the_server(connected: Connect) -> None:
    async with await connected(**{"as": "jane", "as-groups": ["system:masters"]}) as client:
        assert await name_of(client) == "jane"
        assert (await client.request("GET", "/api/v1/namespaces/default"))["kind"] == "Namespace"


@pytest.mark.usefixtures("pod")
async def test_a_token_needs_no_client_certificate(kubeconfig: Path, tmp_path: Path) -> None:
    path = tmp_path / "with-token"
    path.write_text(with_token(kubeconfig, tmp_path.joinpath("token").read_text()))
    async with Client(await auth.load(str(path), None, auth.HostEnvironment.of_process())) as client:
        assert (await name_of(client)).startswith("system:serviceaccount:")


async def test_objects_are_created_read_patched_and_deleted(client: Client, namespace: str) -> None:
    resource = await Discovery(client).find(CONFIG_MAP)
    key = ObjectKey(namespace, "a")
    made = await client.create(resource, namespace, {"metadata": {"name": "a"}, "data": {"x": "1"}})
    with pytest.raises(ConflictError):
        await client.create(resource, namespace, {"metadata": {"name": "a"}})
    await client.patch(resource, key, {"data": {"x": "2"}}, content_type=PatchType.MERGE)
    await client.patch(resource, key, {"data": {"y": "3"}}, content_type=PatchType.STRATEGIC)
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"z": "4"}}
    await client.patch(resource, key, applied, content_type=PatchType.APPLY, params={"fieldManager": "test"})
    tested = [{"op": "test", "path": "/data/x", "value": "1"}, {"op": "remove", "path": "/data/x"}]
    with pytest.raises(PatchTestError):
        await client.patch(resource, key, tested, content_type=PatchType.JSON)
    assert (await client.get(resource, key))["data"] == {"x": "2", "y": "3", "z": "4"}
    with pytest.raises(ConflictError):
        await client.delete(resource, key, uid="another")
    await client.delete(resource, key, uid=made["metadata"]["uid"])
    with pytest.raises(NotFoundError):
        await client.get(resource, key)
