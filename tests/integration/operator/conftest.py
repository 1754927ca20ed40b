"""The installed command on a real control plane, under a service account with the rights of config/rbac.

`project` makes a folder as a user would (watches.yaml, roles), `project.start()` starts `ansible-operator run` in it
as a process of its own. Two kinds are there: Memcached from config/crd, and Thing, whose spec and status hold anything.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from runner.engine.execution_log import DEFECT
from runner.sdk.devcluster import DevCluster
from tests.kit.objects import GROUP, THING_CRD, Api, Things
from tests.kit.operator import Project, account_kubeconfig
from tests.kit.places import ROOT
from tests.kit.wait import wait_until


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder for the operator's temporary files. Its path is short, because programs put sockets there."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def api(devcluster: DevCluster) -> Iterator[Api]:
    api = Api(Path(devcluster.kubeconfig))
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    api.apply(f"{crds}/things.{GROUP}", THING_CRD)
    for manifest in yaml.safe_load_all(
        (ROOT / "config/crd/bases/cache.example.com_memcacheds.yaml").read_text(encoding="utf-8")
    ):
        api.apply(f"{crds}/{manifest['metadata']['name']}", manifest)
    for name in ("things.test.example.com", "memcacheds.cache.example.com"):
        wait_until(lambda name=name: _established(api, f"{crds}/{name}"), f"{name} to be served")  # type: ignore[misc]
    yield api
    api.close()


def _established(api: Api, path: str) -> bool:
    found = api.call("GET", path) or {}
    conditions = found.get("status", {}).get("conditions") or []
    return any(entry["type"] == "Established" and entry["status"] == "True" for entry in conditions)


@pytest.fixture
def things(api: Api, namespace: str) -> Things:
    return Things(api, namespace)


@pytest.fixture
def project(api: Api, devcluster: DevCluster, namespace: str, tmp_path: Path) -> Iterator[Project]:
    kubeconfig = account_kubeconfig(api, Path(devcluster.kubeconfig), namespace, tmp_path)
    project = Project(tmp_path / "project", namespace, kubeconfig, api)
    project.folder.mkdir()
    yield project
    for operator in project.operators:
        if operator.process.poll() is None:
            operator.kill()
    defects = [line for operator in project.operators for line in operator.lines(msg=DEFECT)]
    assert defects == [], defects
