"""What integration tests share: projects, objects, one browser, and an API server that runs whatever tests do to it."""

from __future__ import annotations

import contextlib
import http.client
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from runner.core.kube.discovery import Discovery
from runner.engines.warm.server.pool import DEFECT
from runner.sdk.devcluster import ClusterError, DevCluster
from runner.sdk.devcluster import api as control
from runner.sdk.devcluster.layout import APISERVER
from tests.kit.cluster import connect
from tests.kit.objects import THING_CRD, Api, Hand, Things
from tests.kit.operator import Project, account_kubeconfig
from tests.kit.places import SAMPLE_CRD

if TYPE_CHECKING:
    from tests.kit.browser import Reader


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Function) -> Iterator[None]:
    """Start the API server again after a test that failed while it was stopped or paused.

    Without that, every later test of the same worker would fail.
    """
    try:
        yield
    except BaseException:
        cluster = item.funcargs.get("devcluster")
        if isinstance(cluster, DevCluster):
            with contextlib.suppress(ClusterError):  # a cluster that KUBECONFIG names: no test can stop it
                cluster.resume(APISERVER)
                cluster.start_apiserver()
        raise


@pytest.fixture
def namespace(namespace: str, devcluster: DevCluster) -> Iterator[str]:
    """A new namespace, whose custom resources have no finalizers at the end.

    The operator of the test has ended by then. Without that, the namespace would never go, and the namespace controller
    would delete what is in it every few seconds until the end of the session. Hundreds would take most of a processor.
    """
    yield namespace
    with contextlib.suppress(ClusterError):  # the cluster that KUBECONFIG names: its administrator decides
        _remove_finalizers(devcluster.control.api(), namespace)


def _remove_finalizers(api: control.Api, namespace: str) -> None:
    definitions = api.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions") or {"items": []}
    for spec in (each["spec"] for each in definitions["items"]):
        served = next((each["name"] for each in spec["versions"] if each["served"]), None)
        if served is None or spec["scope"] != "Namespaced" or spec["group"] == "kwok.x-k8s.io":
            continue
        path = f"/apis/{spec['group']}/{served}/namespaces/{namespace}/{spec['names']['plural']}"
        for obj in (api.get(path) or {"items": []})["items"]:  # the definition may be gone by now
            if obj["metadata"].pop("finalizers", None):
                status, answer = api.call("PUT", f"{path}/{obj['metadata']['name']}", obj)
                is_gone = status in {http.client.NOT_FOUND, http.client.CONFLICT}  # or changed by an operator
                assert status == http.client.OK or is_gone, answer


@pytest.fixture(scope="session")
def _browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    from tests.kit import browser  # noqa: PLC0415 - only these tests need it

    driver = browser.start(tmp_path_factory.mktemp("chromium"))
    yield browser.Reader(driver)
    driver.quit()


@pytest.fixture
def reader(_browser: Reader) -> Iterator[Reader]:
    """Somebody who reads pages, in a wide and light window; nothing that they open may make the browser complain.

    Ask for it after what serves the pages, so that they are left before that ends.
    """
    _browser.resize(1280)
    _browser.prefer("light")
    _browser.complaints()
    yield _browser
    _browser.leave()
    complaints = _browser.complaints()
    assert complaints == []


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder for the operator's temporary files. Its path is short, because programs put sockets there."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def api(devcluster: DevCluster) -> Iterator[Api]:
    """The API server, which serves Memcached of config/crd, and Thing, whose spec and status hold anything."""
    with contextlib.closing(Api(Path(devcluster.kubeconfig))) as api:
        api.install(THING_CRD, *yaml.safe_load_all(SAMPLE_CRD.read_text(encoding="utf-8")))
        yield api


@pytest.fixture
def things(api: Api, namespace: str) -> Things:
    return Things(api, namespace)


@pytest.fixture
def project(api: Api, devcluster: DevCluster, namespace: str, tmp_path: Path) -> Iterator[Project]:
    """A folder as a user makes it; `project.start()` starts `ansible-operator run` in it, with a service account."""
    kubeconfig = account_kubeconfig(api, Path(devcluster.kubeconfig), namespace, tmp_path)
    project = Project(tmp_path / "project", namespace, kubeconfig, api)
    project.folder.mkdir()
    yield project
    project.close()
    defects = [line for operator in project.operators for line in operator.lines(msg=DEFECT)]
    assert defects == [], defects


@pytest.fixture
async def hand(kubeconfig: Path, namespace: str) -> AsyncIterator[Hand]:
    """The administrator's hand, in a namespace of its own."""
    async with await connect(kubeconfig) as client:
        yield Hand(client, Discovery(client), namespace)
