"""Jobs and watches to build tests on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.engine.job import Job
from runner.objects import GVK, ObjectKey
from runner.watches import Playbook, Role, Watch

MEMCACHED = GVK("cache.example.com", "v1alpha1", "Memcached")


@pytest.fixture
def make_watch() -> Callable[..., Watch]:
    def make(**changes: Any) -> Watch:
        fields: dict[str, Any] = {
            "gvk": MEMCACHED,
            "content": Role("memcached", Path("/opt/ansible/roles/memcached")),
            "vars": {},
            "finalizer": None,
            "reconcile_period": None,
            "manage_status": True,
            "watch_dependent_resources": True,
            "watch_cluster_scoped_resources": False,
            "watch_dependent_status": False,
            "watch_annotations_changes": False,
            "max_runner_artifacts": 20,
            "snake_case_parameters": True,
            "mark_unsafe": True,
            "selector": "",
            "blacklist": frozenset(),
            "service_account": "",
            "line": 1,
        }
        return Watch(**{**fields, **changes})

    return make


@pytest.fixture
def make_job(tmp_path: Path) -> Callable[..., Job]:
    def make(**changes: Any) -> Job:
        fields: dict[str, Any] = {
            "ident": "run-1",
            "gvk": MEMCACHED,
            "key": ObjectKey("default", "sample"),
            "content": Playbook(Path("/opt/ansible/playbook.yml")),
            "run_dir": tmp_path / "runner" / "cache.example.com" / "v1alpha1" / "Memcached" / "default" / "sample",
            "extra_vars": {},
            "unsafe_keys": frozenset(),
            "verbosity": 0,
            "ansible_args": "",
            "max_artifacts": 20,
            "environment": {},
            "kubeconfig": "apiVersion: v1\nkind: Config\n",
            "deadline": None,
        }
        return Job(**{**fields, **changes})

    return make
