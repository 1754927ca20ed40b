"""Metrics of roles that run in pods, with real Ansible."""

from __future__ import annotations

import asyncio
import os
import sys
from functools import partial
from pathlib import Path

import pytest

from runner.core.engine.job import Outcome
from runner.engines.pod.states import PodState
from runner.features.rolemetrics import endpoint as role_metrics
from runner.features.rolemetrics.endpoint import UserMetrics
from tests.engines.pod.integration.bed import Bed, conclude
from tests.kit.agents import agent_application, free_port

PLAY = """
- hosts: localhost
  gather_facts: false
  tasks:
    - name: Count
      operator_sdk.util.osdk_metric:
        name: backups_total
        description: Backups made
        counter: {increment: true}
    - name: Make it something else
      operator_sdk.util.osdk_metric:
        name: backups_total
        description: Backups made
        gauge: {set: 1}
      ignore_errors: true
      register: bad
    - ansible.builtin.assert:
        that: "'backups_total is already a counter, not a gauge: use another name' in bad.msg"
    - name: Send more than the limit
      operator_sdk.util.osdk_metric:
        name: backups_total
        description: "{{ 'x' * 70000 }}"
        counter: {increment: true}
      ignore_errors: true
      register: large
    - ansible.builtin.assert:
        that: large.status_code == 413
"""


async def test_metrics_of_a_role_reach_the_operator_with_its_limits(
    bed: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, relay, port = tmp_path / "work", free_port(), free_port()
    work.mkdir()
    monkeypatch.setattr("runner.engines.pod.payload.PRIVATE_DATA", f"{work}/run")
    monkeypatch.setattr("runner.engines.pod.payload._TEMPORARY", f"{work}/run/tmp")
    monkeypatch.setattr("runner.engines.pod.payload.RELAY_PORT", relay)
    metrics = UserMetrics(lambda: 0.0)
    server, _ = await role_metrics.serve(metrics, "127.0.0.1", 0)
    bed.metrics = partial(role_metrics.connection, server)
    engine, job = await bed.engine(), bed.job(play=PLAY)
    printed: list[str] = []
    running = asyncio.create_task(engine.run(job, lambda event: printed.append(str(event.get("stdout")))))
    settings = tmp_path / "settings"
    settings.mkdir()
    record = await bed.record()
    bed.pods.states[record["run"]] = PodState("pod", "n1")
    for name, text in record.items():
        (settings / name).write_text(text)
    (settings / "agent.py").write_bytes(agent_application(RELAY_PORT=relay, METRICS_PORT=port))
    agent = await asyncio.create_subprocess_exec(
        *(sys.executable, str(settings / "agent.py"), str(settings), str(work)),
        env={
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(tmp_path),
            "LC_ALL": "C.UTF-8",
            "OSDK_METRICS_ADDRESS": f"http://localhost:{port}/metrics",  # that of a pod is the default
        },
    )
    try:
        result = await conclude(engine, job, running)
        assert result.outcome is Outcome.SUCCEEDED, printed
        assert await agent.wait() == 0
        assert "backups_total 1.0" in metrics.text().decode().splitlines()
    finally:
        if agent.returncode is None:
            agent.kill()
        await server.cleanup()
