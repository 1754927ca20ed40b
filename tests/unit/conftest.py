"""Virtual time, watches and jobs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import structlog

from runner.base import log
from runner.core.engine.job import Job
from runner.core.watches.watch import Watch
from tests.kit.jobs import job_value
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

    folder = tmp_path / "runner" / "cache.example.com" / "v1alpha1" / "Memcached" / "default" / "sample"
    return partial(job_value, run_dir=folder)


@pytest.fixture
def log_as_it_was() -> Iterator[None]:
    """Give the process' log back the form that it had, after a test that has configured it."""
    form, lines = structlog.get_config(), (log._Lines.level, log._Lines.processors)
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    structlog.configure(**form)
    log._Lines.level, log._Lines.processors = lines
    logging.root.handlers[:], logging.root.level = handlers, level
