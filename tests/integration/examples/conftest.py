"""Operators of `examples/`, deployed as their README says, on the real control plane.

`install("mysql")` copies the example and does `make deploy`. `start()` runs the operator as its pod would, with the
pod's flags, variables and token, so exactly with the rights of `config/rbac`. `remove()` does `make undeploy` and holds
that nothing is left. Objects are read and written by the administrator, straight at the API server.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.sdk import devcluster as clusters
from tests.integration.examples.deployed import Example, Install, copy
from tests.kit import mariadb as databases
from tests.kit.go_programs import get_helm
from tests.kit.objects import Api
from tests.kit.shell import shell


@pytest.fixture
def checkout(devcluster: clusters.DevCluster, tmp_path: Path) -> Iterator[Install]:
    """Return what copies an example by its folder's name; `memcached` is the sample at the top level."""
    helm = get_helm(os.environ, sys.stderr)
    with contextlib.ExitStack() as stack:
        api = stack.enter_context(contextlib.closing(Api(Path(devcluster.kubeconfig))))

        def made(name: str) -> Example:
            folder = copy(name, tmp_path)
            sh = shell(folder, devcluster, {}, helm)
            example = Example(folder, sh, devcluster, api, tmp_path / "scratch")
            (tmp_path / "scratch").mkdir()
            stack.callback(example.close)
            return example

        yield made


@pytest.fixture
def install(checkout: Install) -> Install:
    """Return what deploys an example by its folder's name; see `checkout`."""

    def deploy(name: str) -> Example:
        example = checkout(name)
        example.sh("make", "deploy")
        return example

    return deploy


@pytest.fixture
def mariadb(tmp_path: Path) -> Iterator[databases.Server]:
    """A real, empty MariaDB server on a free port; see `tests/kit/mariadb.py`."""
    (tmp_path / "mariadb").mkdir()
    with databases.running(tmp_path / "mariadb") as server:
        yield server
