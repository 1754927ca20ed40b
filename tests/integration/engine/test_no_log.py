"""Runs report arguments with `no_log` to the proxy, which masks them elsewhere, with any ansible-core and engine."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from runner.base.credentials import auth
from runner.base.credentials.auth import HostEnvironment
from runner.core.engine.job import Outcome
from runner.core.engine.run_secrets import NOT_REPORTED, RunSecrets
from runner.core.masking.masker import MASK
from runner.core.proxy.identity import Identities, RunIdentity
from runner.core.proxy.server import Proxy
from runner.features.masking import requests as masked
from runner.values.objects import GVK, ObjectKey, ObjectRef, Owner
from tests.integration.engine.runs import ANSIBLE_MASK

if TYPE_CHECKING:
    from tests.integration.engine.runs import Runs

pytestmark = pytest.mark.asyncio(loop_scope="session")

OWNER = Owner(
    ObjectRef(GVK("cache.example.com", "v1alpha1", "Memcached"), ObjectKey("default", "sample"), "u"), namespaced=True
)
TASKS = """
- name: An option that the module declares as no_log
  uri:
    url: http://127.0.0.1:1/
    url_password: 0ption-of-the-module
  failed_when: false
- name: An option that only the source tells of
  own:
    pin: s0urce-only
- name: An item that shows it before anybody can tell
  own:
    password: "{{ item.password }}"
  loop:
    - {user: a, password: shown-1n-the-item}
- name: All arguments of a task
  set_fact:
    made_up: {state: an-ordinary-state, deep: [all-0f-the-task]}
  no_log: true
- name: They are masked elsewhere
  debug:
    msg: "{{ ['0ption-of-the-module', 's0urce-only', 'shown-1n-the-item', 'all-0f-the-task', 'an-ordinary-state'] }}"
- name: Fail in secret
  fail:
    msg: all-0f-the-message
  no_log: true
"""
MODULE = """
from ansible.module_utils.basic import AnsibleModule

module = AnsibleModule(argument_spec={"pin": {"type": "str", "no_log": True}, "password": {"no_log": True}})
module.exit_json(changed=False)
"""
HIDDEN = ("0ption-of-the-module", "s0urce-only", "shown-1n-the-item", "all-0f-the-task", "all-0f-the-message")


@dataclass
class Known:
    """A run's way to the proxy, and what the operator knows of it."""

    kubeconfig: str
    secrets: RunSecrets


@pytest_asyncio.fixture(loop_scope="session")
async def known(tmp_path: Path) -> AsyncIterator[Known]:
    path = tmp_path / "operator.kubeconfig"
    path.write_text(
        json.dumps(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "k", "user": ""}}],
                "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:1"}}],
            }
        )
    )
    identities = Identities()
    credentials = await auth.load(str(path), None, HostEnvironment({}, tmp_path))
    proxy = Proxy(credentials, identities, [], [masked.OBSERVER], {masked.NO_LOG_PATH: masked.receive})
    await proxy.start("127.0.0.1", 0)
    run = RunIdentity("job", OWNER, True, True, "")  # noqa: FBT003 - by the dataclass's order
    yield Known(proxy.kubeconfig_for(identities.issue(run)), run.secrets)
    await proxy.close(0.0)


async def test_arguments_that_ansible_does_not_log_are_masked_wherever_else_they_show(runs: Runs, known: Known) -> None:
    playbook = runs.tasks(TASKS)
    library = playbook.path.parent / "library"
    library.mkdir()
    (library / "own.py").write_text(MODULE)

    ran = await runs.run(playbook, kubeconfig=known.kubeconfig, secrets=known.secrets, max_artifacts=20)

    assert ran.result.outcome is Outcome.FAILED
    assert ran.said("They are masked elsewhere") == [
        # Options that modules declare are secrets for ansible-core itself since 2.22.
        ANSIBLE_MASK or MASK,
        ANSIBLE_MASK or MASK,
        ANSIBLE_MASK or MASK,
        MASK,
        "an-ordinary-state",
    ]
    shown = json.dumps(ran.events)
    kept = "".join(path.read_text() for path in (runs.run_dir / "artifacts").rglob("*") if path.is_file())
    assert [value for value in HIDDEN if value in shown or value in kept] == []
    (failure,) = ran.result.failures
    assert "Fail in secret" in failure.message
    assert f"({playbook.path}:" in failure.message
    assert known.secrets.masker.text("an-ordinary-state") == "an-ordinary-state"


async def test_output_is_withheld_if_a_run_cannot_report_its_arguments(runs: Runs) -> None:
    user = {"users": [{"name": "u", "user": {"token": "t"}}]}
    kubeconfig = json.dumps({"clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:1"}}], **user})
    tasks = """
- {name: Log in, set_fact: {made_up: hunter2hunter2}, no_log: true}
- {name: Print it, debug: {msg: "it is {{ made_up }}"}}
"""
    ran = await runs.run(runs.tasks(tasks), kubeconfig=kubeconfig, secrets=RunSecrets(), max_artifacts=20)

    assert ran.result.outcome is Outcome.SUCCEEDED
    assert ran.said("Print it") == NOT_REPORTED
    kept = "".join(path.read_text() for path in (runs.run_dir / "artifacts").rglob("*") if path.is_file())
    assert "hunter2" not in json.dumps(ran.events) + kept


async def test_a_run_without_a_proxy_for_secret_arguments_continues(runs: Runs) -> None:
    ran = await runs.run(runs.tasks("- {name: Log in, set_fact: {password: hunter2hunter2}, no_log: true}"))

    assert ran.result.outcome is Outcome.SUCCEEDED
    assert ran.of("warning") == []
