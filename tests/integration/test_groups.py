"""Tests of a group share a worker: what they share, an image or a browser, is made once."""

from __future__ import annotations

import pytest


@pytest.mark.xdist_group("of two")
@pytest.mark.parametrize("which", ["one", "the other"])
def test_the_scheduler_gets_the_group_of_a_test(which: str, request: pytest.FixtureRequest) -> None:
    grouped = vars(request.config.option).get("loadgroup", False)  # only a worker has it
    assert request.node.nodeid.endswith(f"[{which}]@of two" if grouped else f"[{which}]")
