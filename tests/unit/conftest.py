"""Virtual time, watches and jobs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from runner import log
from runner.engine.job import Job
from runner.objects import GVK, ObjectKey
from runner.watches.watch import Playbook, Watch
from tests.kit.virtual_time import VirtualTimeLoop
from tests.kit.watch_values import watch_value


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

    def make(**changes: Any) -> Job:
        fields: dict[str, Any] = {
            "ident": "run-1",
            "gvk": GVK("cache.example.com", "v1alpha1", "Memcached"),
            "key": ObjectKey("default", "sample"),
            "content": Playbook(Path("/opt/ansible/playbook.yml")),
            "run_dir": tmp_path / "runner" / "cache.example.com" / "v1alpha1" / "Memcached" / "default" / "sample",
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
        return Job(**{**fields, **changes})

    return make


@pytest.fixture
def log_as_it_was() -> Iterator[None]:
    """Give the process' log back the form that it had, after a test that has configured it."""
    form, lines = structlog.get_config(), (log._Lines.level, log._Lines.processors)
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    structlog.configure(**form)
    log._Lines.level, log._Lines.processors = lines
    logging.root.handlers[:], logging.root.level = handlers, level
