"""Discovery from memory before the real control plane, and what clients keep of it on disk."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kubernetes
import pytest
import urllib3

from runner.sdk.devcluster import DevCluster
from tests.kit.cluster import Kubectl
from tests.kit.tasks import status
from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from tests.integration.proxy.bed import Standing
    from tests.kit.objects import Things
    from tests.kit.operator import Project


kube: Any = kubernetes
"""The client is typed in part only."""


AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
APISERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
_OF_ONE_CALL = {"Audit-Id", "Date", "Expires", "Content-Length", "Transfer-Encoding", "Age", "X-Cache"}


def crd(group: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget"},
            "versions": [version],
        },
    }


class Server:
    """A server that is asked without a client's help."""

    def __init__(self, api: Any, base: str = "") -> None:
        self._pool = api.rest_client.pool_manager
        self._base = base or api.configuration.host
        self.token = ""

    def ask(self, path: str, method: str = "GET", body: Any = None, **headers: str) -> urllib3.BaseHTTPResponse:
        own = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.token:
            own["Authorization"] = f"Bearer {self.token}"
        data = None if body is None else json.dumps(body)
        found: urllib3.BaseHTTPResponse = self._pool.request(
            method, f"{self._base}{path}", body=data, headers=own, decode_content=False, redirect=False, retries=False
        )
        return found


@pytest.fixture
def admin(devcluster: DevCluster) -> Iterator[Server]:
    """The API server itself, as the administrator."""
    with kube.config.new_client_from_config(str(devcluster.kubeconfig)) as api:
        yield Server(api)


@pytest.fixture
def proxied(standing: Standing) -> Iterator[Server]:
    """The proxy, as the run."""
    with kube.config.new_client_from_config(str(standing.kubeconfig)) as api:
        server = Server(api)
        server.token = standing.token
        yield server


@pytest.fixture
def group(namespace: str, admin: Server) -> Iterator[str]:
    """A group that is served neither before nor after the test."""
    name = f"{namespace}.example.com"
    yield name
    admin.ask(f"{CRDS}/widgets.{name}", "DELETE")
    admin.ask(f"{APISERVICES}/v1.{name}", "DELETE")


@pytest.fixture
def find(standing: Standing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Find the kind Widget of a group as a module does that is the first of its run."""

    def find(group: str) -> Any:
        monkeypatch.setattr(tempfile, "tempdir", tempfile.mkdtemp(dir=tmp_path))
        api = kube.config.new_client_from_config(str(standing.kubeconfig))
        return kube.dynamic.DynamicClient(api).resources.get(api_version=f"{group}/v1", kind="Widget")

    return find


class Fresh(Kubectl):
    """kubectl as the first of its run: nothing of an earlier one on disk."""

    def run(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return super().run(*arguments, KUBECACHEDIR=tempfile.mkdtemp(dir=self.kubeconfig.parent), **options)


@pytest.fixture
def fresh(devcluster: DevCluster, standing: Standing, environ: dict[str, str], namespace: str) -> Kubectl:
    return Fresh(devcluster.kubectl, standing.kubeconfig, f"--namespace={namespace}", environ=environ)


def lasting(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.title() not in _OF_ONE_CALL}


def is_discovered(admin: Server, group: str) -> bool:
    """True if discovery of the API server lists a group's kind: it serves a kind before it lists it."""
    groups = admin.ask("/apis", Accept="application/json").data
    return f'"{group}"'.encode() in groups and b'"widgets"' in admin.ask(f"/apis/{group}/v1").data


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_each_document_is_what_the_api_server_gives(
    standing: Standing, admin: Server, proxied: Server, encoding: str
) -> None:
    hashed = json.loads(admin.ask("/openapi/v3").data)["paths"]["apis/apps/v1"]["serverRelativeURL"]
    plain = ["/version", "/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/openapi/v3", hashed]
    protobuf = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
    asked = [(path, "application/json") for path in [*plain, "/openapi/v2"]]
    asked += [("/api", AGGREGATED), ("/apis?timeout=32s", AGGREGATED), ("/openapi/v2?timeout=32s", protobuf)]
    asked += [("/apis/apps/v1", "application/vnd.kubernetes.protobuf"), ("/api/v1", "application/yaml")]

    def are_the_same(path: str, wish: dict[str, str]) -> bool:
        answers = [admin.ask(path, **wish)]
        for _ in range(2):
            standing.another_run()
            proxied.token = standing.token
            answers.append(proxied.ask(path, **wish))
        # `Last-Modified` of /openapi/v3 is the second of the answer, which can end between two answers.
        direct, first, kept = (lasting(answer.headers) for answer in answers)
        same = direct == first == kept and len({answer.data for answer in answers}) == 1
        return same and answers[2].headers.get("X-Cache") == "HIT"

    for path, accept in asked:
        wish = {"Accept": accept, "Accept_Encoding": encoding}
        # What other tests installed may still be on its way into a document.
        wait_until(partial(are_the_same, path, wish))


def test_a_run_uses_at_once_the_kind_that_it_has_installed(
    standing: Standing,
    admin: Server,
    fresh: Kubectl,
    find: Callable[[str], Any],
    namespace: str,
    group: str,
) -> None:
    with pytest.raises(kube.dynamic.exceptions.ResourceNotFoundError):
        find(group)
    assert "no matches for kind" in fresh.run("apply", "-f-", stdin=widget(group), check=False).stderr
    fresh("apply", "-f-", stdin=json.dumps(crd(group)))
    fresh.wait("crd", f"widgets.{group}", "--for=condition=Established")
    wait_until(lambda: is_discovered(admin, group))
    assert f"widget.{group}/a created" in fresh("apply", "-f-", stdin=widget(group))
    assert find(group).get("a", namespace).spec.size == 1
    wait_until(lambda: "FIELD: size" in fresh.run("explain", f"widgets.{group}.spec.size", check=False).stdout)
    standing.another_run()
    assert f"widget.{group}/a unchanged" in fresh("apply", "-f-", stdin=widget(group))
    assert find(group).get("a", namespace).spec.size == 1
    fresh("delete", "crd", f"widgets.{group}")
    wait_until(lambda: admin.ask(f"/apis/{group}/v1").status == 404)
    with pytest.raises(kube.dynamic.exceptions.ResourceNotFoundError):
        find(group)
    standing.another_run()
    with pytest.raises(kube.dynamic.exceptions.ResourceNotFoundError):
        find(group)


def test_kinds_that_other_clients_install_and_remove_are_discovered_soon(
    standing: Standing, admin: Server, fresh: Kubectl, find: Callable[[str], Any], group: str
) -> None:
    def is_listed() -> bool:
        standing.another_run()
        return fresh.run("get", f"widgets.{group}", check=False).returncode == 0

    assert not is_listed()
    assert admin.ask(CRDS, "POST", crd(group), Content_Type="application/json").status == 201
    wait_until(lambda: admin.ask(f"/apis/{group}/v1/widgets").status == 200)
    wait_until(lambda: is_discovered(admin, group))
    # Who asks again gets it at once, and this client does when it misses a kind.
    assert find(group).namespaced
    wait_until(is_listed)
    admin.ask(f"{CRDS}/widgets.{group}", "DELETE")
    wait_until(lambda: not is_listed())


def test_an_aggregated_api_that_is_down_breaks_nothing_else(
    standing: Standing, admin: Server, proxied: Server, fresh: Kubectl, find: Callable[[str], Any], group: str,
) -> None:  # fmt: skip
    spec = {
        "group": group,
        "version": "v1",
        "service": {"name": "none", "namespace": "default"},
        "insecureSkipTLSVerify": True,
        "groupPriorityMinimum": 100,
        "versionPriority": 10,
    }
    body = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": f"v1.{group}"}}
    assert admin.ask(APISERVICES, "POST", {**body, "spec": spec}, Content_Type="application/json").status == 201
    path = f"/apis/{group}/v1"

    def are_the_same(accept: str) -> bool:
        return proxied.ask("/apis", Accept=accept).data == admin.ask("/apis", Accept=accept).data

    wait_until(lambda: admin.ask(path).status == 503)
    wait_until(lambda: group.encode() in proxied.ask("/apis", Accept=AGGREGATED).data)
    for _ in range(3):
        standing.another_run()
        proxied.token = standing.token
        assert proxied.ask(path).status == 503
        assert proxied.ask("/apis/apps/v1").data == admin.ask("/apis/apps/v1").data
        for accept in (AGGREGATED, "application/json"):
            wait_until(partial(are_the_same, accept))
        assert fresh.run("get", "deployments").returncode == 0
        with pytest.raises(kube.dynamic.exceptions.ResourceNotFoundError):
            find(group)
    admin.ask(f"{APISERVICES}/v1.{group}", "DELETE")
    wait_until(lambda: group.encode() not in proxied.ask("/apis", Accept=AGGREGATED).data)
    assert proxied.ask(path).status == 404


def test_a_run_after_another_sends_no_discovery_requests(
    standing: Standing, find: Callable[[str], Any], admin: Server, group: str
) -> None:
    def reaches_the_server() -> list[str]:
        standing.another_run()
        standing.passed.targets.clear()
        find(group)
        return standing.passed.targets

    assert admin.ask(CRDS, "POST", crd(group), Content_Type="application/json").status == 201
    wait_until(lambda: admin.ask(f"/apis/{group}/v1/widgets").status == 200)
    wait_until(lambda: is_discovered(admin, group))
    assert {"/version", "/apis", f"/apis/{group}/v1"} <= set(reaches_the_server())
    wait_until(lambda: not reaches_the_server())


def widget(group: str) -> str:
    return json.dumps({"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"size": 1}})


ROLE = """
- kubernetes.core.k8s_info: {{api_version: v1, kind: ConfigMap, namespace: "{{{{ ansible_operator_meta.namespace }}}}"}}
- ansible.builtin.command: {kubectl} get --raw /apis
- ansible.builtin.command: {kubectl} get configmaps --namespace "{{{{ ansible_operator_meta.namespace }}}}"
- ansible.builtin.shell: 'find "$TMPDIR" "$KUBECACHEDIR" -name "*rcp-*.json" -o -name servergroups.json'
  register: kept
"""


KEEPS = status(kept="{{ kept.stdout_lines | length }}", generation="{{ generation }}")
KEPT = re.compile(r"rcp-.*\.json|servergroups\.json|pymp-|^kube$")


@pytest.mark.full
def test_discovery_caches_are_removed_after_runs(
    project: Project, things: Things, devcluster: DevCluster, tmp_path: Path, temporary: Path
) -> None:
    project.role("caches", ROLE.format(kubectl=devcluster.kubectl) + KEEPS)
    project.watch("caches", vars={"ansible_python_interpreter": "{{ ansible_playbook_python }}"})
    home = tmp_path / "home"
    home.mkdir()
    operator = project.start(environment={"TMPDIR": "", "TEMP": str(temporary), "HOME": str(home)})
    for generation in (1, 2):
        if generation == 1:
            things.create("a", {"generation": 1})
        else:
            things.merge("a", {"spec": {"generation": generation}})
        things.await_success("a")
        found = things.get("a")
        assert int(found["status"]["generation"]) == generation  # text on ansible-core 2.18
        assert int(found["status"]["kept"]) >= 2, "both clients kept something while the run went on"
    assert len(operator.runs("a")) == 2
    assert [path for path in home.rglob("*") if ".ansible" not in path.parts] == []

    def left() -> list[Path]:
        # `Path.rglob` of Python 3.11 raises an error if a folder is removed meanwhile; `os.walk` does not.
        walks = (each for place in (temporary, project.folder) for each in os.walk(place))
        found = (Path(where, name) for where, folders, files in walks for name in (*folders, *files))
        return [path for path in found if KEPT.search(path.name)]

    wait_until(lambda: not left(), lambda: f"the last run's folders to be cleared of {left()}")
