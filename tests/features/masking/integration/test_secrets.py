"""What a role reads from Secrets and writes to them is shown nowhere but where the role itself puts it."""

from __future__ import annotations

import base64
import json
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
import yaml

from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from tests.kit.objects import Api, Things
    from tests.kit.operator import Operator, Project

MASK = "********"
READ = {
    "password": "s3cr3t-P@ss \"w\\rd'/+=%<&>",
    "passphrase": "correct horse battery staple " * 4,
    "key": "\n".join(["-----BEGIN PRIVATE KEY-----", *(f"MIIEvQIBADANBgkqhkiG9w0B{n:02}Bpzx" for n in range(9)), ""]),
}
WRITTEN = "wr1tten-by-the-r0le-ä"
GENERATED = "ge-nerated-and-not-a-Secret-yet"
ARGUMENT = "0nly-an-argument-with-no_log"
HIDDEN = "only in a task with n0_log"

READING = """
    - name: Read the Secret
      kubernetes.core.k8s_info:
        api_version: v1
        kind: Secret
        namespace: "{{ ansible_operator_meta.namespace }}"
        name: credentials
      register: found
    - name: Keep what it says
      ansible.builtin.set_fact:
        password: "{{ found.resources[0].data.password | b64decode }}"
        passphrase: "{{ found.resources[0].data.passphrase | b64decode }}"
        key: "{{ found.resources[0].data.key | b64decode }}"
        looked_up: >-
          {{ lookup('kubernetes.core.k8s', api_version='v1', kind='Secret', resource_name='credentials',
                    namespace=ansible_operator_meta.namespace).data.password | b64decode }}
        cacheable: true
"""


def forms(value: str) -> Iterator[str]:
    """Spell a value as it may show."""
    octets = value.encode()
    for text in (value, repr(value)[1:-1], value.replace("\n", "\n  "), yaml.safe_dump(value), quote(value)):
        yield text.strip()
    dumped = [json.dumps(value), json.dumps(value, ensure_ascii=False)]
    for _ in range(2):
        yield from (text.strip('"') for text in dumped)
        dumped = [json.dumps(text) for text in dumped]
    for encoded in (base64.b64encode(octets), base64.urlsafe_b64encode(octets), base64.b64encode(b"app:" + octets)[8:]):
        yield encoded.decode().rstrip("=")[:-1]
    yield from (line for line in value.splitlines() if len(line) > 12 and "PRIVATE KEY" not in line)


def shown(texts: dict[str, str], *values: str) -> list[str]:
    return [
        f"{place}: ...{text[max(text.find(form) - 60, 0) : text.find(form) + 60]}..."
        for place, text in texts.items()
        for value in values
        for form in forms(value)
        if form in text
    ]


def files_below(folder: Path) -> dict[str, str]:
    found = {}
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # a run that goes on replaces files, and removes some
            if path.is_file():
                found[str(path)] = path.read_text(errors="replace")
    return found


def stdout_of(folder: Path, name: str) -> str:
    """Return the output of the first run of an object."""
    return min(folder.glob(f"*/v1/Thing/*/{name}/artifacts/2*/stdout")).read_text()


def make_secret(api: Api, namespace: str) -> None:
    metadata = {"name": "credentials"}
    api.call("POST", f"/api/v1/namespaces/{namespace}/secrets", {"metadata": metadata, "stringData": READ})


def allow_secrets(project: Project) -> None:
    project.permit(
        {"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": ["*"]},
        {"apiGroups": ["test.example.com"], "resources": ["things/status"], "verbs": ["*"]},
    )


def write_roles(project: Project) -> None:
    project.role(
        "thing",
        """
        - name: Do what this one is for
          ansible.builtin.include_tasks: "{{ do }}.yml"
        """,
    )
    tasks = "roles/thing/tasks"
    project.write(
        f"{tasks}/show.yml",
        READING
        + """
    - name: Say what no Secret holds yet
      ansible.builtin.debug:
        msg: "soon a Secret: {{ generated }}"
    - name: Write a Secret
      kubernetes.core.k8s:
        apply: true
        definition:
          apiVersion: v1
          kind: Secret
          metadata:
            name: written
            namespace: "{{ ansible_operator_meta.namespace }}"
          stringData:
            value: "{{ written }}"
            generated: "{{ generated }}"
    - name: Show it in every way
      ansible.builtin.debug:
        msg:
          - "plain: {{ item }} and on"
          - "encoded: {{ item | b64encode }}, with a user {{ ('app:' ~ item) | b64encode }}"
          - "JSON: {{ {'it': item} | to_json }} and {{ {'it': item} | to_json | to_json }}"
          - "YAML: {{ {'it': item} | to_nice_yaml }}"
          - "a URL: https://app:{{ item | urlencode }}@example.com"
          - "Python: {{ [item] | string }}"
          - "lines: {{ item.splitlines() }}"
      loop: ["{{ password }}", "{{ passphrase }}", "{{ key }}", "{{ looked_up }}", "{{ written }}"]
    - name: Pass it to a module that does not log it
      ansible.builtin.uri:
        url: http://127.0.0.1:1/
        url_username: app
        url_password: "{{ argument }}"
      failed_when: false
    - name: Log it all the same
      ansible.builtin.debug:
        msg: "the argument was {{ argument }}, so there"
    - name: Write what everybody may read
      kubernetes.core.k8s:
        definition:
          apiVersion: v1
          kind: ConfigMap
          metadata:
            name: readable
            namespace: "{{ ansible_operator_meta.namespace }}"
          data:
            password: "{{ password }}"
            argument: "{{ argument }}"
    - name: Say so in the status
      operator_sdk.util.k8s_status:
        api_version: test.example.com/v1
        kind: Thing
        name: "{{ ansible_operator_meta.name }}"
        namespace: "{{ ansible_operator_meta.namespace }}"
        status:
          shown: "{{ password }}"
    """,
    )
    project.write(
        f"{tasks}/fail.yml",
        READING
        + """
    - name: Fail with it
      ansible.builtin.fail:
        msg: "login with {{ password }} ({{ password | b64encode }}, {{ password | to_json }}) to db:5432 refused"
    """,
    )
    project.write(
        f"{tasks}/hide.yml",
        """
        - name: Log in without saying how
          ansible.builtin.fail:
            msg: "{{ hidden }}"
          no_log: true
        """,
    )


@pytest.fixture
def operator(project: Project, api: Api, namespace: str) -> Operator:
    allow_secrets(project)
    make_secret(api, namespace)
    write_roles(project)
    project.watch("thing", vars={"written": WRITTEN, "generated": GENERATED, "argument": ARGUMENT, "hidden": HIDDEN})
    flags = ("--log-level=debug", "--ansible-log-events=everything", "--inject-owner-ref=true")
    return project.start(*flags, environment={"ANSIBLE_DEBUG_LOGS": "true"})


def test_values_of_secrets_are_masked_everywhere_and_other_output_is_readable(
    project: Project, operator: Operator, things: Things, api: Api, namespace: str
) -> None:
    runs = project.folder / "runs"
    things.create("shows", {"do": "show"})
    things.create("fails", {"do": "fail"})
    things.create("hides", {"do": "hide"})

    status = things.await_success("shows")
    failure = things.await_condition("fails", "Failure")["message"]
    hidden = things.await_condition("hides", "Failure")["message"]

    metrics = operator.get("/metrics")
    operator.process.send_signal(signal.SIGTERM)  # the second one ends the runs that go on
    operator.await_line("Stopping")
    assert operator.stop() == 0

    # Nothing that was known of Secrets when it was shown is anywhere, whatever it was written as.
    values = (*READ.values(), WRITTEN, ARGUMENT, HIDDEN)
    events_of_objects = json.dumps(api.call("GET", f"/api/v1/namespaces/{namespace}/events"))
    messages = {
        "events": events_of_objects,
        "failure": failure,
        "hidden": hidden,
        "status": json.dumps(status),
        "metrics": metrics,
    }
    assert shown({"log": operator.log, **messages}, *values) == []
    # What became known only later is masked in what stays.
    # The lines of a run that goes on in a pod are for the next operator.
    passing = ("/env/extravars", "/.received-")
    kept = {path: text for path, text in files_below(runs).items() if not any(each in path for each in passing)}
    assert shown(kept, *values, GENERATED) == []

    # The rest can be read, and job_events are still JSON.
    assert f"login with {MASK} ({MASK}, " in failure
    assert failure.splitlines()[0].endswith("to db:5432 refused")
    assert f"login with {MASK} ({MASK}, " in events_of_objects
    output = stdout_of(runs, "shows")
    assert f"plain: {MASK} and on" in output
    assert f"the argument was {MASK}, so there" in output
    assert f"soon a Secret: {MASK}" in output
    assert f"https://app:{MASK}@example.com" in output
    assert f"plain: {MASK} and on" in operator.log
    events = [json.loads(text) for path, text in kept.items() if "/job_events/" in path]
    assert {event["event"] for event in events} >= {"runner_on_ok", "playbook_on_stats", "runner_on_failed"}

    # no_log does not hide where it was.
    assert "Log in without saying how" in hidden
    assert "hide.yml:2" in hidden
    assert "no_log" in hidden

    # What the role itself writes to the cluster is what it wrote.
    written: dict[str, Any] = api.call("GET", f"/api/v1/namespaces/{namespace}/configmaps/readable")["data"]
    assert written == {"password": READ["password"], "argument": ARGUMENT}
    thing = things.get("shows")
    assert thing["status"]["shown"] == READ["password"]


@pytest.mark.full
def test_files_of_a_run_are_masked_while_it_runs_and_removed_if_its_operator_is_killed(
    project: Project, things: Things, api: Api, namespace: str
) -> None:
    allow_secrets(project)
    make_secret(api, namespace)
    project.role(
        "thing",
        READING
        + """
    - name: Show it
      ansible.builtin.debug:
        msg: "it is {{ password }}"
    - name: Wait for a day
      ansible.builtin.wait_for:
        path: "{{ lookup('env', 'DAY') }}"
    """,
    )
    project.watch("thing")
    day = project.folder / "day"
    operator = project.start(environment={"DAY": str(day)})
    things.create("one", {})
    runs = project.folder / "runs"
    wait_until(lambda: list(runs.glob("*/v1/Thing/*/one/artifacts/2*/stdout")), "the artifacts of the run")
    wait_until(lambda: f"it is {MASK}" in stdout_of(runs, "one"), "the run to show the password")
    # Only Ansible's own temporary files contain it, such as its fact cache. They go with the run.
    kept = {path: text for path, text in files_below(runs).items() if "/tmp/" not in path.removeprefix(str(runs))}
    assert any("/job_events/" in path for path in kept)
    assert shown({"log": operator.log, **kept}, READ["password"]) == []
    (first,) = {path.name for path in runs.glob("*/v1/Thing/*/one/artifacts/2*")}
    operator.kill()

    day.touch()
    operator = project.start(environment={"DAY": str(day)})
    things.await_success("one")
    operator.await_line("Run ended", outcome="succeeded")
    assert not list(runs.glob(f"**/{first}"))
    assert shown(files_below(runs), *READ.values()) == []
