"""What integration tests of several parts share: one browser, and an API server that runs whatever tests do to it."""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from runner.sdk.devcluster import ClusterError, DevCluster
from runner.sdk.devcluster.api import Api
from runner.sdk.devcluster.layout import APISERVER

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


def _remove_finalizers(api: Api, namespace: str) -> None:
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
