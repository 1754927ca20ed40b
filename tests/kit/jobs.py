"""A job with every default, for tests that need another one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from runner.core.engine.job import Job
from runner.core.watches.watch import Playbook
from runner.values.objects import GVK, ObjectKey

MEMCACHED = GVK("cache.example.com", "v1alpha1", "Memcached")


def job_value(**different: Any) -> Job:
    """Make a job of the sample kind with every default, but for what is given."""
    fields: dict[str, Any] = {
        "ident": "run-1",
        "gvk": MEMCACHED,
        "key": ObjectKey("default", "sample"),
        "content": Playbook(Path("/opt/ansible/playbook.yml")),
        "run_dir": Path("/nowhere"),
        "extra_vars": {},
        "unsafe_keys": frozenset(),
        "ignored_variables": (),
        "verbosity": 0,
        "ansible_args": "",
        "max_artifacts": 20,
        "environment": {},
        "kubeconfig": "apiVersion: v1\nkind: Config\n",
        "deadline": None,
    }
    return Job(**{**fields, **different})
