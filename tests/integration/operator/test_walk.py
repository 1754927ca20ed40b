"""An administrator's walk: from "something does not work" to the line that failed, by what an operator shows alone."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import urllib3

from tests.integration.operator.pods import show_in_a_pod
from tests.kit.cluster import Kubectl, kubectl_of
from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from runner.sdk.devcluster import DevCluster
    from tests.kit.browser import Reader
    from tests.kit.objects import Api, Things
    from tests.kit.operator import Project

pytestmark = pytest.mark.xdist_group("browser")


TASK = "Roll the image out"
WHY = "no such image: memcached:9.9; the registry knows 1.5 and 1.6"
ATTEMPTS = 3
HOW_OFTEN = f"{ATTEMPTS} runs failed in a row"

_FAILS = """
- name: Look around
  ansible.builtin.debug: {msg: all is well}
- name: Tolerated
  ansible.builtin.fail: {msg: never mind}
  ignore_errors: true
- name: Roll the image out
  ansible.builtin.fail: {msg: "no such image: memcached:{{ version }}; the registry knows 1.5 and 1.6"}
  when: version == "9.9"
"""
_LINE = 7
"""Of the task that fails."""

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


@pytest.fixture
def kubectl(devcluster: DevCluster, namespace: str) -> Kubectl:
    return kubectl_of(devcluster, f"--namespace={namespace}")


def _logs_of_the_last_run(project: Project) -> str:
    command = [str(Path(sys.executable).with_name("ansible-operator")), "logs", "memcached/sample"]
    command.append(f"--runner-dir={project.folder / 'runs'}")
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def _by_get(kubectl: Kubectl, place: str) -> dict[str, Any]:
    """That it fails, and in the conditions all of it; return these."""
    assert re.search(r"sample\s+1\s+False", kubectl("get", "memcacheds"))
    obj = json.loads(kubectl("get", "memcached", "sample", "-o=json"))
    conditions = {each["type"]: each for each in obj["status"]["conditions"]}
    for fact in (WHY, f"task {TASK!r}", place, HOW_OFTEN):
        assert fact in conditions["Failure"]["message"]
    assert [conditions[each]["status"] for each in ("Failure", "Stalled", "Ready")] == ["True", "True", "False"]
    return conditions


def _by_describe(kubectl: Kubectl, place: str, since: str) -> None:
    """The same, and the story in Events."""

    def story() -> str:
        told = kubectl("describe", "memcached", "sample").partition("\nEvents:\n")[2]
        return told if "GivenUp" in told and re.search(r"RunFailed.*\(x[0-9]+ over ", told) else ""

    events = wait_until(story, "failures, counted, and the end in the story")
    (failed,) = [line for line in events.splitlines() if "RunFailed" in line]
    assert f"{WHY} (task {TASK!r}, {place})" in failed
    assert re.search(r"RunStarted .*Run started, created", events)
    assert HOW_OFTEN in next(line for line in events.splitlines() if "GivenUp" in line)
    described = kubectl("describe", "memcached", "sample")
    for fact in (WHY, place, since):
        assert fact in described


def _by_logs(log: str, project: Project, place: str) -> list[float]:
    """Each failure in the operator's log, and the last run's whole output; return when each was."""
    lines = [json.loads(line) for line in log.splitlines() if line.startswith('{"')]
    mine = [line for line in lines if line.get("name") == "sample"]
    told = [line for line in mine if line["msg"] == "Task failed"]
    assert [(line["task"], line["path"], line["error"]) for line in told] == [(TASK, place, WHY)] * ATTEMPTS
    assert [line["failures"] for line in mine if line["msg"] == "Run started"] == list(range(ATTEMPTS))
    assert HOW_OFTEN in next(line["why"] for line in mine if line["msg"] == "No further run")
    said = _logs_of_the_last_run(project)
    for fact in (f"TASK [memcached : {TASK}]", f"task path: {place}", WHY):
        assert fact in said
    return [_seconds(line["ts"]) for line in told]


def _by_the_page(reader: Reader, url: str, place: str, given_up: str) -> list[float]:
    """From the front door to the line that failed; return which moments it names on the way."""
    reader.open(url)
    reader.await_text("1 stalled", TASK, WHY)
    reader.script("document.querySelector('a.tag.bad').click()")
    reader.await_heading("Objects")
    reader.await_text("/sample", WHY, f"task {TASK!r}")
    reader.script("document.querySelector('tbody th a').click()")
    reader.await_heading("Memcached ")
    shown = reader.await_text(f"{TASK} {place}", HOW_OFTEN)
    assert re.search(rf"Consecutive failures\s+{ATTEMPTS}, the first ", shown)
    times = reader.script("return [...document.querySelectorAll('dl time')].map((each) => each.dateTime)")
    assert given_up in times
    rows = {row[0]: row for row in reader.rows()}
    assert rows["Failure"][1] == "True"
    assert WHY in rows["Failure"][4]
    assert any(name.startswith("failed, ") for name in rows)
    reader.script("document.querySelector('a[href*=\"#/run/\"]').click()")
    reader.await_heading("Run of Memcached")
    reader.await_text(place, "retry", "3 tasks", "API calls")
    assert [(row[0], row[1], row[2]) for row in reader.rows()] == [
        ("Look around", "roles/memcached/tasks/main.yml:2", "ok"),
        ("Tolerated\nnever mind", "roles/memcached/tasks/main.yml:4", "ignored"),
        (f"{TASK}\n{WHY}", f"roles/memcached/tasks/main.yml:{_LINE}", "failed"),
    ]
    return [_seconds(each) for each in times]


def test_a_failing_role_is_diagnosed_by_get_describe_logs_and_the_page_alone(
    project: Project,
    api: Api,
    devcluster: DevCluster,
    kubectl: Kubectl,
    reader: Reader,
    tmp_path: Path,
) -> None:
    project.role("memcached", _FAILS)
    watch = {"group": "cache.example.com", "version": "v1alpha1", "kind": "Memcached", "role": "memcached"}
    project.watches.append({**watch, "vars": {"version": "9.9"}, "retry": {"attempts": ATTEMPTS}})
    operator = project.start()
    path = f"/apis/cache.example.com/v1alpha1/namespaces/{project.namespace}/memcacheds"
    body = {"apiVersion": "cache.example.com/v1alpha1", "kind": "Memcached", "metadata": {"name": "sample"}}
    api.call("POST", path, {**body, "spec": {"size": 1}})
    operator.await_line("No further run", name="sample")
    place = f"{project.folder}/roles/memcached/tasks/main.yml:{_LINE}"

    conditions = _by_get(kubectl, place)
    since = conditions["Failure"]["lastTransitionTime"]
    _by_describe(kubectl, place, since)
    kubectl_logs = show_in_a_pod(devcluster, operator.log, project.namespace, tmp_path / "pod.log")
    wait_until(lambda: "No further run" in kubectl_logs(), "kwok to know the log")
    first, *_, last = _by_logs(kubectl_logs(), project, place)
    assert int(first) <= _seconds(since) <= last, "since when, in conditions and log alike"
    given_up = conditions["Stalled"]["lastTransitionTime"]
    moments = _by_the_page(reader, operator.await_line("Serving the status page")["url"], place, given_up)
    started = _seconds(operator.lines(msg="Run started", name="sample")[0]["ts"])
    assert int(started) in {int(moment) + late for moment in moments for late in (-1, 0, 1)}, "and on the page"


def _all_that_is_told(url: str, found: dict[str, Any]) -> str:
    """Every answer of the page about an object and its runs."""
    one = {"kind": found["kind_id"], "namespace": found["namespace"], "name": found["name"]}
    asked = [("overview", {}), ("objects", {}), ("queue", {}), ("object", one)]
    asked += [("run", {**one, "ident": run["ident"]}) for run in found["runs"]]
    return "".join(_ask(url, view, **query).decode() for view, query in asked)


def _ask(url: str, view: str, **query: str) -> bytes:
    return urllib3.request("GET", f"{url}api/{view}", fields=query, retries=False, timeout=30).data


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
    reader.script("[...document.querySelectorAll('a')].find((each) => each.innerText === 'running').click()")
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
