"""What integration tests of several parts share: one browser, and an API server that runs whatever tests do to it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from runner.devcluster import ClusterError, DevCluster
from runner.devcluster.layout import APISERVER

if TYPE_CHECKING:
    from tests.browser import Reader


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


@pytest.fixture(scope="session")
def _browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    from tests import browser  # noqa: PLC0415 - only these tests need it

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
