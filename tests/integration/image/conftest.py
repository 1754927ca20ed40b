"""The images, built once: the one that operators are built from, and those of two projects."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.sdk import devcluster as clusters
from tests.integration.image.pods import EE, PodProject, pod_project
from tests.integration.image.projects import COLLECTIONS, CRATE, GO, GO_DOCKERFILE, ROLE
from tests.kit import galaxy
from tests.kit.galaxy import installed
from tests.kit.images import BASE, Image, Store, base_archive
from tests.kit.processes import captured
from tests.kit.shell import generate


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = Store(tmp_path_factory.mktemp("images"))
    try:
        store.load(base_archive(sys.stderr))
        yield store
    finally:
        store.remove()


@pytest.fixture(scope="session")
def node_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[clusters.DevCluster]:
    """A cluster whose only node is real."""
    with clusters.start(name="image", nodes="real", logs=tmp_path_factory.mktemp("node-logs")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def ee_cluster(
    store: Store, node_cluster: clusters.DevCluster, tmp_path_factory: pytest.TempPathFactory
) -> clusters.DevCluster:
    """The cluster with the image EE."""
    folder = tmp_path_factory.mktemp("ee")
    shutil.copytree(installed("kubernetes.core"), folder / "core")
    target = "/usr/share/ansible/collections/ansible_collections/kubernetes/core"
    (folder / "Dockerfile").write_text(f"FROM {BASE}\nCOPY core {target}\n")
    store.build(folder, EE)
    store.save(EE, folder / "ee.tar")
    assert EE in node_cluster.load(folder / "ee.tar")
    return node_cluster


@pytest.fixture
def pods(ee_cluster: clusters.DevCluster, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[PodProject]:
    """A project whose runs are in pods."""
    name = re.sub("[^a-z0-9]+", "-", request.node.name)[-50:].strip("-")
    with pod_project(ee_cluster, tmp_path, name) as project:
        yield project


@pytest.fixture(scope="session")
def base(store: Store) -> Image:
    return store.unpack(BASE)


@pytest.fixture(scope="session")
def crate(store: Store, project: Path) -> Image:
    return store.unpack(CRATE)


@pytest.fixture(scope="session")
def of_go(store: Store, project: Path, galaxy_config: Path) -> Image:
    """The project's image, built as projects of the Go operator build theirs."""
    store.build(project, GO, f"--file={project}/Dockerfile.go", mounts={"/etc/ansible/ansible.cfg": galaxy_config})
    return store.unpack(GO)


@pytest.fixture(scope="session")
def galaxy_config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An ansible.cfg that names a Galaxy server on loopback, which has the collections of the projects here."""
    parts = tmp_path_factory.mktemp("galaxy")
    with galaxy.serve(*(galaxy.pack(installed(name), parts) for name in COLLECTIONS)) as address:
        config = parts / "ansible.cfg"
        config.write_text(f"[defaults]\nroles_path = /opt/ansible/roles\n[galaxy]\nserver = {address}\n")
        yield config


@pytest.fixture(scope="session")
def project(store: Store, galaxy_config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new project and its image, built by `make docker-build`."""
    folder = tmp_path_factory.mktemp("project") / "crate-operator"
    generate(folder, "init --domain example.net", "create api --group store --kind Crate")
    (folder / "roles/crate/tasks/main.yml").write_text(ROLE)
    (folder / "Dockerfile.go").write_text(GO_DOCKERFILE)
    environ = {**os.environ, **store.environ({"/etc/ansible/ansible.cfg": galaxy_config})}
    make = ["make", "docker-build", "CONTAINER_TOOL=buildah", f"BASE_IMAGE={BASE}", f"IMG={CRATE}"]
    made = captured(*make, cwd=folder, env=environ)
    assert made.returncode == 0, made.stdout[-4000:] + made.stderr[-4000:]
    return folder
