"""What comes out of a run: events, blocks, artifacts."""

from __future__ import annotations

import base64
import json
import time
from typing import TYPE_CHECKING

import pytest

from runner.core.engine import blocks
from runner.core.engine.job import Event, Outcome
from runner.values.objects import GVK, ObjectKey

if TYPE_CHECKING:
    from tests.integration.engine.runs import Runs

pytestmark = pytest.mark.asyncio(loop_scope="session")

GVK_ = GVK("cache.example.com", "v1alpha1", "Memcached")
KEY = ObjectKey("default", "sample")


async def test_a_run_prints_the_blocks_of_the_go_operator(runs: Runs) -> None:
    playbook = runs.tasks("""
- {name: quiet fact, set_fact: {a: 1}}
- {name: told, debug: {msg: hello}}
- {name: ran, command: echo ran}
- name: items
  debug: {msg: "item {{ item }}"}
  loop: [one, two]
- {name: failing, fail: {msg: no more}}
""")

    ran = await runs.run(playbook)

    text = [block for event in ran.events if (block := blocks.block(event, "tasks"))]
    assert all(block.startswith("\n--------------------------- Ansible Task StdOut ----------") for block in text)
    assert all(block.endswith("-------------\n") for block in text)
    starts = [block for block in text if "\nTASK [ran] ***" in block]
    assert len(starts) == 1
    joined = "".join(text)
    assert "quiet fact" not in joined
    assert '"msg": "hello"' in joined
    assert '"msg": "item one"' in joined
    assert '"msg": "item two"' in joined
    assert f"task path: {playbook.path}:10" in text[-1]
    assert "no more" in text[-1]
    recaps = [block for event in ran.events if (block := blocks.recap_block(event, GVK_, KEY))]
    assert len(recaps) == 1
    assert "Ansible Task Status Event StdOut (cache.example.com/v1alpha1, Kind=Memcached, sample/default)" in recaps[0]
    assert "failed=1" in recaps[0]
    assert "\x1b" not in joined + recaps[0]


def _mark(data: object) -> str:
    text = base64.b64encode(json.dumps(data).encode()).decode()
    parts = (text[start : start + 78] for start in range(0, len(text), 78))
    return "\x1b[K" + "".join(f"{part}\x1b[{len(part)}D" for part in parts) + "\x1b[K"


async def test_text_that_looks_like_events_is_text(runs: Runs) -> None:
    uuid = "0" * 8 + "-0000-4000-8000-" + "0" * 12
    requeue = {"task_action": "operator_sdk.util.requeue_after", "res": {"period": "1s"}, "host": "localhost"}
    stats = {"ok": {"localhost": 99}, "changed": {}, "failures": {}, "skipped": {}}
    forged = [
        _mark({"uuid": uuid, "event": "runner_on_ok", "event_data": requeue}),
        _mark({"uuid": uuid, "event": "playbook_on_stats", "event_data": stats}),
        _mark({"uuid": uuid}),
    ]
    playbook = runs.tasks("""
- name: "Print {{ forged | join('forged') }} forged"
  command: "echo {{ forged | join('forged') | quote }}"
  register: printed
- {name: Print it, debug: {msg: "{{ printed.stdout }}"}}
- {name: "Items", debug: {msg: item}, loop: "{{ forged }}"}
- {name: Fail with it, fail: {msg: "{{ forged | join('forged') }}"}, ignore_errors: true}
- {name: Write it to the terminal, shell: "printf %s {{ forged | join('forged') | quote }} > /dev/tty || true"}
""")

    ran = await runs.run(playbook, extra_vars={"forged": [*forged, _mark({})]})

    assert ran.result.outcome is Outcome.SUCCEEDED, ran.result
    assert ran.result.requeue_after is None
    assert ran.result.recap is not None
    assert ran.result.recap.ok == 5
    assert len(ran.of("playbook_on_stats")) == 1
    assert uuid not in {event["uuid"] for event in ran.events}
    assert any(event["stdout"].count("\x1b[K") > 2 for event in ran.events)


async def test_events_come_in_order_and_huge_output_is_whole(runs: Runs) -> None:
    size = 5 << 20
    playbook = runs.tasks(f"""
- name: huge
  command: >-
    {{{{ ansible_playbook_python }}}} -c 'import sys; sys.stdout.write(("x" * 99 + chr(10)) * {size // 200});
    sys.stdout.write("y" * {size // 2}); sys.exit(3)'
""")
    ran = await runs.run(playbook, verbosity=1)

    assert ran.result.outcome is Outcome.FAILED
    assert ran.result.failures[0].message == "exit code 3, without a message on stderr"
    (huge,) = ran.of("runner_on_failed")
    assert len(huge["event_data"]["res"]["stdout"]) >= size - 200
    assert len(huge["stdout"]) > 2 * size
    counters = [event["counter"] for event in ran.events]
    assert counters == sorted(counters)


async def test_a_slow_reader_slows_the_run_and_loses_nothing(runs: Runs) -> None:
    playbook = runs.tasks('- {debug: {msg: "{{ item }}"}, loop: "{{ range(200) | list }}"}')

    def slow(_: Event) -> None:
        time.sleep(0.002)

    ran = await runs.run(playbook, slow)

    assert len(ran.of("runner_item_on_ok")) == 200


async def test_the_configured_number_of_run_folders_is_kept(runs: Runs) -> None:
    playbook = runs.tasks("- {debug: {msg: 1}}")
    artifacts = runs.run_dir / "artifacts"

    first = await runs.run(playbook, ident="1", max_artifacts=1)
    (runs.run_dir / "env" / "passwords").write_text("stale")
    (runs.run_dir / "args").write_text("stale")
    second = await runs.run(playbook, ident="2", max_artifacts=1)
    after_two = {path.name for path in artifacts.iterdir()}
    latest = (artifacts / "latest").readlink()
    stale = (runs.run_dir / "env" / "passwords").exists()
    await runs.run(playbook, ident="3", max_artifacts=-1)

    assert first.result.outcome is second.result.outcome is Outcome.SUCCEEDED
    assert after_two == {"2", "latest"}
    assert str(latest) == "2"
    assert not stale
    assert not runs.run_dir.exists()
