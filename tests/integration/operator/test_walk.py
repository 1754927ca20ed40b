"""Runs on the status page of a real operator: while they are active, and after a restart of the operator."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import urllib3

from tests.kit.wait import patience

if TYPE_CHECKING:
    from tests.kit.browser import Reader
    from tests.kit.objects import Things
    from tests.kit.operator import Project

pytestmark = pytest.mark.xdist_group("browser")


_WAITS = """
- name: Log in
  ansible.builtin.command: {argv: [test, "{{ password }}", "=", ""]}
  no_log: true
  ignore_errors: true
- name: Wait at the gate
  ansible.builtin.wait_for: {path: "{{ gate }}", timeout: 200, sleep: 1}
- name: After the gate
  ansible.builtin.debug: {msg: through}
"""
PASSWORD = "hunter2-and-more"


def _all_that_is_told(url: str, found: dict[str, Any]) -> str:
    """Every answer of the page about an object and its runs."""
    one = {"kind": found["kind_id"], "namespace": found["namespace"], "name": found["name"]}
    asked = [("overview", {}), ("objects", {}), ("queue", {}), ("object", one)]
    asked += [("run", {**one, "ident": run["ident"]}) for run in found["runs"]]
    return "".join(_ask(url, view, **query).decode() for view, query in asked)


def _ask(url: str, view: str, **query: str) -> bytes:
    return urllib3.request("GET", f"{url}api/{view}", fields=query, retries=False, timeout=patience()).data


@pytest.mark.full
def test_a_run_is_shown_while_it_is_active_and_after_a_restart_of_the_operator(
    project: Project, things: Things, reader: Reader, tmp_path: Path
) -> None:
    project.role("thing", _WAITS)
    project.watch("thing")
    gate = tmp_path / "gate"
    operator = project.start()
    url = operator.await_line("Serving the status page")["url"]
    assert re.fullmatch(r"http://127\.0\.0\.1:[0-9]+/", url)
    things.create("one", {"password": PASSWORD, "gate": str(gate)})
    reader.open(url)
    reader.await_text("1 of ", "Wait at the gate", "created")
    reader.script("document.querySelector('a[href*=\"#/run/\"]').click()")
    reader.await_heading("Run of Thing")
    reader.await_text("Wait at the gate", "running", "so far")
    gate.touch()
    reader.await_text("After the gate", "succeeded", "3 tasks")
    things.await_success("one")
    whose = {"kind": "Thing.v1.test.example.com", "namespace": things.namespace, "name": "one"}
    found = json.loads(_ask(url, "object", **whose))
    assert PASSWORD not in _all_that_is_told(url, found)
    (run,) = found["runs"]
    reader.leave()
    assert operator.stop() == 0

    things.merge("one", {"metadata": {"annotations": {"ansible.sdk.operatorframework.io/paused": "true"}}})
    later = project.start("--ui-bind-address=localhost:0")
    url = later.await_line("Serving the status page")["url"]
    reader.open(f"{url}#/object/{whose['kind']}/{things.namespace}/one")
    reader.await_text("paused", "succeeded")
    reader.script("document.querySelector('a[href*=\"#/run/\"]').click()")
    reader.await_heading("Run of Thing")
    reader.await_text(run["ident"], "Wait at the gate", "After the gate", "3 tasks", "ignored")
    found = json.loads(_ask(url, "object", **whose))
    assert [each["ident"] for each in found["runs"]] == [run["ident"]]
    assert PASSWORD not in _all_that_is_told(url, found)
