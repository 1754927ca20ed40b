"""A page in a thread of its own, that looks at a real cache, whose objects are put in where an informer would."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from tests.features.ui.integration.crowd import FEW, Crowd
from tests.kit.wait import patience


@pytest.fixture
def count() -> int:
    """Number of objects."""
    return FEW


@pytest.fixture
def crowd(tmp_path: Path, count: int) -> Iterator[Crowd]:
    made, ready = Crowd(tmp_path, count), Future[None]()
    thread = threading.Thread(target=made.serve, args=(ready,))
    thread.start()
    ready.result(60)
    yield made
    made.stop()
    thread.join(patience())
    assert not thread.is_alive()
