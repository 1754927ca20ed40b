"""Contention of a role and another client is slowed down and reported with the field."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.tasks import keep
from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from typing import Self

    from tests.kit.objects import Api, Things
    from tests.kit.operator import Project

WRITES = keep("the mode", "ConfigMap", fields={"data": {"mode": "wanted", "other": "same"}})
SLOWING = "An object is triggered repeatedly; slowing down. Check if the role and another client write the same"


class Fighter:
    """Somebody who puts a ConfigMap back, whenever it is as the role wants it."""

    def __init__(self, api: Api, path: str) -> None:
        self._api, self._path = api, path
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._fight)
        self.rounds = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _fight(self) -> None:
        while not self._stop.wait(0.05):
            found = self._api.call("GET", self._path)
            if found and found["data"]["mode"] == "wanted":
                body = {"data": {"mode": "mine"}}
                self._api.call("PATCH", f"{self._path}?fieldManager=fighter", body, "application/merge-patch+json")
                self.rounds += 1


@pytest.mark.full
def test_a_contention_over_a_field_is_slowed_down_and_reported_with_object_and_field(
    project: Project, things: Things, api: Api
) -> None:
    project.role("writes", WRITES)
    project.watch("writes")
    operator = project.start("--engine=warm")
    things.create("one", {})
    things.await_success("one")
    core = f"/api/v1/namespaces/{project.namespace}"
    with Fighter(api, f"{core}/configmaps/one") as fighter:
        line = operator.await_line(SLOWING)
        assert line["fields"] == ["data.mode"]
        assert fighter.rounds >= 5
        condition = things.await_condition("one", "Contended")
    expected = f"ConfigMap {project.namespace}/one: data.mode changes repeatedly"
    assert condition["reason"] == "DependentChangedAgain"
    assert expected in condition["message"]

    def events() -> list[dict[str, Any]]:
        found = api.call("GET", f"{core}/events")["items"]
        return [each for each in found if each["reason"] == "DependentChangedAgain"]

    (event,) = wait_until(events, "an Event")
    assert expected in event["message"]
    assert event["involvedObject"]["name"] == "one"
    assert event["related"]["kind"] == "ConfigMap"
    # The fight is over; the role has the last word, and other conditions are as they always are.
    wait_until(lambda: api.call("GET", f"{core}/configmaps/one")["data"]["mode"] == "wanted", "the role's last word")
    assert things.await_success("one")["message"] == "Awaiting next reconciliation"
    # The next operator starts without this state; it would report a contention that continues again.
    assert operator.stop() == 0
    project.start("--engine=warm")
    over = things.await_condition("one", "Contended", "False")
    assert over["reason"] == "Quiet"
