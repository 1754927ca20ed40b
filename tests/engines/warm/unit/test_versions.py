"""Secrets of ansible-core 2.22, which older versions do not have."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible.playbook.task import Task

from runner.engines.warm import versions
from tests.kit.forks import seen

pytestmark = pytest.mark.skipif(versions.CORE < (2, 22), reason="new in ansible-core 2.22")


def registered(*values: str) -> Any:
    from ansible.module_utils import secrets  # noqa: PLC0415 - see above

    secrets.register_secrets(values)
    return secrets._secret_masker


def test_secrets_in_the_arguments_of_a_module_reach_its_process() -> None:
    def act() -> object:
        registered("hunter2", 'quoted "secret"', "unused")
        call = versions.encode({"password": "hunter2", "text": 'a quoted "secret" in a text'}, {}, None)
        return sorted(call.secrets or ())

    assert seen(act) == ["hunter2", 'quoted "secret"']


def test_a_task_in_the_playbooks_process_leaves_no_list_of_new_secrets() -> None:
    def act() -> object:
        sizes = []

        def run() -> None:
            sizes.append(len(registered("hunter2")._new_secret_trackers))

        worker = SimpleNamespace(_task=Task(), _task_vars={}, _host=SimpleNamespace(name="localhost"), _run=run)
        for _ in range(3):
            versions.run_worker(worker)
        return [*sizes, len(registered()._new_secret_trackers)]

    assert seen(act) == [1, 1, 1, 0]
