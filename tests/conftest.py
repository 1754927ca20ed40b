"""What all tests have in common: unit tests, which are those in a folder `unit`, and those on a real control plane."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import http.client
import logging
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import structlog
import yaml
from hypothesis import HealthCheck, settings

from runner.base import log
from runner.core.engine.job import Job
from runner.core.kube.discovery import Discovery
from runner.core.watches.watch import Watch
from runner.engines.warm.server.pool import DEFECT
from runner.sdk.devcluster import ClusterError, DevCluster
from runner.sdk.devcluster import api as control
from runner.sdk.devcluster.layout import APISERVER
from tests.kit import leftovers, once_more
from tests.kit.cluster import connect
from tests.kit.commands import Type, typing
from tests.kit.jobs import job_value
from tests.kit.objects import THING_CRD, Api, Hand, Things
from tests.kit.operator import Project, account_kubeconfig
from tests.kit.places import SAMPLE_CRD
from tests.kit.virtual_time import VirtualTimeLoop
from tests.kit.watch_values import watch_value

if TYPE_CHECKING:
    from tests.kit.browser import Reader

_TESTS = Path(__file__).parent

# The same examples each time, and no limit of time: a slow machine is no failure. `test-nightly` asks for many more.
for name, examples in (("repeatable", 30), ("full", 500)):
    settings.register_profile(
        name,
        deadline=None,
        derandomize=True,
        database=None,
        max_examples=examples,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile("repeatable")

# What pytest makes of a test's file is kept for the next process also where PYTHONDONTWRITEBYTECODE is set: to make it
# costs seconds in each worker. Only while tests are collected: what they import and start themselves is their own.
_no_bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, False

# Collection only allocates: the garbage collector would traverse all modules and tests many times and free nothing.
gc.disable()


def pytest_configure(config: pytest.Config) -> None:
    once_more.register(config)
    leftovers.register(config)


def pytest_collection_finish() -> None:
    sys.dont_write_bytecode = _no_bytecode
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Mark quick unit tests, and keep tests of a group in one worker, so that what they share is made once.

    pytest-xdist 3.8 tells the scheduler of groups by the field that held a test's name before pytest 9.2
    (https://github.com/pytest-dev/pytest-xdist/issues/1386).
    """
    for item in items:
        is_unit = item.path.is_relative_to(_TESTS) and "unit" in item.path.relative_to(_TESTS).parts
        if is_unit and not any(map(item.get_closest_marker, ("lengthy", "full", "nightly"))):
            item.add_marker("quick")
    yield
    for item in items:
        if named := vars(item).get("_nodeid"):
            item._id = type(item.id).parse(named)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures that tests recorded as properties."""
    figures = [figure for report in terminalreporter.getreports("passed") for figure in report.user_properties]
    if figures:
        terminalreporter.section("figures")
    for name, value in figures:
        terminalreporter.write_line(f"{name}: {value}")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is released, as `make build` makes it."""
    from tests.kit.newcomer import build_wheel  # noqa: PLC0415 - few tests need it

    return build_wheel(tmp_path_factory.mktemp("dist"))


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run tests with the marker `virtual_time` in virtual time."""
    return {"loop": VirtualTimeLoop if item.get_closest_marker("virtual_time") else asyncio.new_event_loop}


@pytest.fixture
def make_watch() -> Callable[..., Watch]:
    """A watch of the sample kind with every default, but for what is given."""
    return watch_value


@pytest.fixture
def make_job(tmp_path: Path) -> Callable[..., Job]:
    """A job of the sample kind, but for what is given."""

    folder = tmp_path / "runner" / "cache.example.com" / "v1alpha1" / "Memcached" / "default" / "sample"
    return partial(job_value, run_dir=folder)


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str]) -> Type:
    """Type commands of `ansible-operator`."""
    return typing(capsys)


@pytest.fixture
def log_as_it_was() -> Iterator[None]:
    """Give the process' log back the form that it had, after a test that has configured it."""
    form, lines = structlog.get_config(), (log._Lines.level, log._Lines.processors)
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    structlog.configure(**form)
    log._Lines.level, log._Lines.processors = lines
    logging.root.handlers[:], logging.root.level = handlers, level


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


@contextlib.contextmanager
def _project(api: Api, devcluster: DevCluster, namespace: str, folder: Path) -> Iterator[Project]:
    kubeconfig = account_kubeconfig(api, Path(devcluster.kubeconfig), namespace, folder)
    project = Project(folder / "project", namespace, kubeconfig, api)
    project.folder.mkdir()
    yield project
    project.close()
    defects = [line for operator in project.operators for line in operator.lines(msg=DEFECT)]
    assert defects == [], defects


@pytest.fixture
def project(api: Api, devcluster: DevCluster, namespace: str, tmp_path: Path) -> Iterator[Project]:
    """A folder as a user makes it; `project.start()` starts `ansible-operator run` in it, with a service account."""
    with _project(api, devcluster, namespace, tmp_path) as project:
        yield project


@pytest.fixture(scope="module")
def shared_project(api: Api, devcluster: DevCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """The same for all tests of a module, which are a group of xdist and give their objects different names."""
    name = f"test-{uuid.uuid4().hex[:10]}"
    api.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    with _project(api, devcluster, name, tmp_path_factory.mktemp("shared")) as project:
        yield project
    _remove_finalizers(devcluster.control.api(), name)
    api.call("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture
def neighbour(api: Api, namespace: str) -> Iterator[Things]:
    """The Things of a namespace beside that of the operator."""
    name = f"{namespace}-neighbour"
    api.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    yield Things(api, name)
    api.call("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture
async def hand(kubeconfig: Path, namespace: str) -> AsyncIterator[Hand]:
    """The administrator's hand, in a namespace of its own."""
    async with await connect(kubeconfig) as client:
        yield Hand(client, Discovery(client), namespace)
