"""How the benchmark `where` divides a run by its samples."""

from __future__ import annotations

import pytest

from bench import where

_SERVER = "_serve (runner/engines/warm/server/server.py:94)"
_PLAYBOOK = f"{_SERVER};_be_playbook (runner/engines/warm/server/run.py:115)"
_RUN = f"{_PLAYBOOK};exit_code (runner/agent/interpreter.py:93);main (ansible/cli/playbook.py:229)"
# Forked before the playbook begins.
_ZYGOTE = f"{_PLAYBOOK};Zygote.start (runner/engines/warm/modules/zygote.py:70)"
_MODULE = f"{_ZYGOTE};_Server._be_module (runner/engines/warm/modules/zygote.py:278)"


def test_a_run_is_divided_by_the_innermost_frame_that_is_known_and_by_what_its_modules_do() -> None:
    lines = [
        f"{_SERVER};recv_fds (socket.py:566) 900",  # the server waits for the next run
        f"{_RUN};run (ansible/executor/task_executor.py:95);parse (jinja2/parser.py:53);get (dict.py:1) 20",
        f"{_RUN};load (ansible/playbook/role/__init__.py:10);loads (json/__init__.py:1) 10",
        f"{_RUN};run (ansible/executor/task_queue_manager.py:333) 10",
        f"{_RUN};get (runner/zygote.py:90);select (selectors.py:435) 60",
        f"{_ZYGOTE};select (selectors.py:435) 100",  # it waits for a module
        f"{_MODULE};recv_fds (socket.py:566) 100",  # so does this one
        f"{_MODULE};run_module (runpy:201);main (k8s.py:524) 15",
        f"{_MODULE};run_module (runpy:201);urlopen (urllib3/pool.py:3) 25",
    ]
    assert where.shares(lines) == pytest.approx(
        {"templates": 0.2, "files": 0.1, "rest of Ansible": 0.1, "waiting": 0.2, "module": 0.15, "API": 0.25}
    )
