"""Objects that are selected by labels, in several namespaces."""

from __future__ import annotations

from typing import Any

import pytest

from runner.core.kube.discovery import Discovery
from runner.core.kube.watch_events import Restarted, Synced
from runner.features.references.by_label import LabelledReferences, LabelSelection
from runner.values.errors import ForbiddenError
from runner.values.objects import GVK

SELECTED = LabelSelection(GVK("", "v1", "Secret"), "for=things", "")


@pytest.fixture
def labelled() -> LabelledReferences:
    """References in the namespaces `a` and `b`, which no client watches."""
    client: Any = None
    return LabelledReferences(client, Discovery(client), ["a", "b"], SELECTED, lambda *_: None, lambda _: None)


async def test_a_refused_namespace_is_unknown_and_its_neighbour_is_known(labelled: LabelledReferences) -> None:
    refused, listed = labelled._watches
    refused.health.failing(ForbiddenError("may not list", status=403), {})
    for happened in (Restarted("b"), Synced()):
        listed._take(happened)
    assert (labelled.is_seen("a"), labelled.is_known("a"), labelled.trouble("a")) == (False, False, "may not list")
    assert (labelled.is_seen("b"), labelled.is_known("b"), labelled.trouble("b")) == (True, True, "")
    assert not labelled.is_known("")


async def test_the_first_watch_covers_all_namespaces_of_a_cluster_scoped_kind(labelled: LabelledReferences) -> None:
    first, second = labelled._watches
    second.health.is_redundant = True
    for happened in (Restarted("b"), Synced()):
        second._take(happened)
    assert not labelled.is_known("b")
    for happened in (Restarted("a"), Synced()):
        first._take(happened)
    assert labelled.is_known("b")
