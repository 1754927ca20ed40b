"""A kind of dependents whose watch does not work is logged once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from structlog.testing import capture_logs

from runner.dependents.kind import DependentWatchHealth
from runner.objects import GVK


@dataclass
class Kind:
    gvk: GVK = field(default_factory=lambda: GVK("apps", "v1", "Deployment"))
    trouble: list[str] = field(default_factory=list)

    def problems(self) -> list[str]:
        return self.trouble


@pytest.mark.parametrize("moments", [[0, 25], [0, 29]])
def test_a_short_failure_of_a_watch_is_not_logged(moments: list[float]) -> None:
    kind: Any = Kind(trouble=["failing"])
    health = DependentWatchHealth([kind])
    with capture_logs() as logs:
        for moment in moments:
            health.look(moment)
    assert logs == []


def test_a_broken_watch_is_logged_once_and_again_when_it_works() -> None:
    kind: Any = Kind(trouble=["failing: forbidden"])
    health = DependentWatchHealth([kind])
    with capture_logs() as logs:
        for moment in (0, 30, 60, 90):
            health.look(moment)
        kind.trouble = []
        health.look(120)
        health.look(150)
    assert [(entry["log_level"], entry["gvk"]) for entry in logs] == [
        ("warning", "apps/v1, Kind=Deployment"),
        ("info", "apps/v1, Kind=Deployment"),
    ]
    assert logs[0]["why"] == "failing: forbidden"


def test_a_recovery_restarts_the_grace_time_of_a_broken_watch() -> None:
    kind: Any = Kind(trouble=["connecting"])
    health = DependentWatchHealth([kind])
    with capture_logs() as logs:
        health.look(0)
        kind.trouble = []
        health.look(20)
        kind.trouble = ["connecting"]
        health.look(40)
        health.look(60)
    assert logs == []


def test_a_kind_that_is_watched_no_more_is_forgotten() -> None:
    kinds: list[Any] = [Kind(trouble=["failing"])]
    health = DependentWatchHealth(kinds)
    with capture_logs() as logs:
        health.look(0)
        health.look(30)
        kinds.clear()
        health.look(60)
    assert [entry["log_level"] for entry in logs] == ["warning", "info"]
