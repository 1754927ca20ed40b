"""Watches to build tests on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from runner.watches.watch import Role, Watch
from tests.kit.watch_values import watch_value


@pytest.fixture
def make_watch() -> Callable[..., Watch]:
    return partial(watch_value, content=Role("memcached", Path("/opt/ansible/roles/memcached")))
