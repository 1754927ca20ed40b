"""Jobs and watches to build tests on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from runner.engine.job import Job
from runner.objects import GVK, ObjectKey
from runner.watches import Playbook, Role, Watch
from tests.watch_values import watch_value

MEMCACHED = GVK("cache.example.com", "v1alpha1", "Memcached")


@pytest.fixture
def make_watch() -> Callable[..., Watch]:
    return partial(watch_value, content=Role("memcached", Path("/opt/ansible/roles/memcached")))


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
