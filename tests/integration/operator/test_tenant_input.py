"""Secrets, text and annotations of a user who may only write custom resources harm no other user."""

from __future__ import annotations

import base64
import json
import re
import threading
import time
from typing import TYPE_CHECKING, Self

import pytest

from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from tests.kit.objects import Api, Things
    from tests.kit.operator import Operator, Project


class _Readiness:
    """The longest time that the operator took to answer its readiness probe."""

    def __init__(self, operator: Operator) -> None:
        self.slowest = 0.0
        self._operator = operator
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def _ask(self) -> None:
        while not self._ended.is_set():
            began = time.monotonic()
            self._operator.is_ready()
            self.slowest = max(self.slowest, time.monotonic() - began)
            self._ended.wait(0.05)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


def _await_output(operator: Operator, name: str) -> None:
    """Wait for the last output of a run: a thread of its own writes it, perhaps after the status."""
    recap = rf"Ansible Task Status Event StdOut \(.*, {name}/"
    wait_until(lambda: re.search(recap, operator.log), f"the recap of {name}")


def _mark(data: object) -> str:
    """Text that looks like an event of ansible-runner."""
    text = base64.b64encode(json.dumps(data).encode()).decode()
    parts = (text[start : start + 78] for start in range(0, len(text), 78))
    return "\x1b[K" + "".join(f"{part}\x1b[{len(part)}D" for part in parts) + "\x1b[K"


@pytest.mark.full
def test_neither_text_nor_secrets_of_a_tenant_harm_the_log_the_result_or_other_objects(
    project: Project, things: Things, api: Api
) -> None:
    values = [f"prefix-that-all-values-share-{number:05d}" for number in range(8000)]
    data = {f"k{number}": base64.b64encode(value.encode()).decode() for number, value in enumerate(values)}
    secret = {"metadata": {"name": "many"}, "data": data}
    api.call("POST", f"/api/v1/namespaces/{project.namespace}/secrets", secret)
    project.role(
        "thing",
        """
        - name: Read the Secret
          kubernetes.core.k8s_info:
            {api_version: v1, kind: Secret, name: many, namespace: "{{ ansible_operator_meta.namespace }}"}
          register: found
          when: attack is defined
        - name: Print text with the prefix
          ansible.builtin.debug:
            msg: "it is {{ found.resources[0].data.k4711 | b64decode }}, not {{ attack * 2000 }}"
          when: attack is defined
        - name: "Task of {{ text | default('no text') }}"
          ansible.builtin.debug: {msg: "{{ text }}"}
          loop: ["{{ text | default('') }}"]
          when: text is defined
        - name: Fail with the text
          ansible.builtin.fail: {msg: "{{ text }}"}
          ignore_errors: true
          when: text is defined
        """,
    )
    project.watch("thing")
    project.grant([""], ["secrets"])
    operator = project.start()
    with _Readiness(operator) as readiness:
        things.create("hostile", {"attack": "prefix-that-all-values-share-99999 "})
        operator.await_line("Run started", name="hostile")
        things.create("neighbour")
        things.await_success("neighbour")
        things.await_success("hostile")

    assert readiness.slowest < 5
    _await_output(operator, "hostile")
    assert "it is ********, not prefix-that-all-values-share-99999 " in operator.log
    assert [value for value in values if value in operator.log] == []
    (kept,) = project.folder.glob("runs/*/v1/Thing/*/hostile/artifacts/latest/stdout")
    assert [value for value in values if value in kept.read_text()] == []

    line = json.dumps({"msg": "Run ended", "name": "victim", "namespace": project.namespace})
    uuid = "00000000-0000-4000-8000-000000000000"
    requeue = {"task_action": "requeue_after", "host": "localhost", "res": {"period": "1s"}}
    stats = {"ok": {"localhost": 99}, "failures": {}}
    text = "\n".join(
        [
            "begin",
            line,
            "-" * 79,
            _mark({"uuid": uuid, "event": "runner_on_ok", "event_data": requeue}),
            _mark({"uuid": uuid, "event": "playbook_on_stats", "event_data": stats}),
            line,
            "\x1b[2J\x1b]0;title\x07 \u202e end",
        ]
    )
    things.create("forger", {"text": text})
    running = things.await_success("forger")

    assert running["ansibleResult"]["ok"] == 2
    assert operator.await_line("Run ended", name="forger")["ok"] == 2
    _await_output(operator, "forger")
    assert operator.lines(msg="Run ended", name="victim") == []
    assert f"\n| {line}\n" in operator.log
    assert "\n| " + "-" * 79 + "\n" in operator.log
    assert r"\x1b[2J\x1b]0;title\x07 \u202e end" in operator.log
    assert not {"\x1b", "\x07", "\u202e"} & set(operator.log)
