"""An object's life: created, changed, left alone, deleted."""

from __future__ import annotations

import signal
import subprocess
import textwrap
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from tests.kit.objects import Things
    from tests.kit.operator import Project

FINALIZER = "test.example.com/finalizer"

# Runs at once append their lines, so that none is lost.
NOTE = """
    - name: Note what was asked for
      ansible.builtin.shell: grep -qsxF "$LINE" "$NOTES" || echo "$LINE" >> "$NOTES"
      environment: {LINE: "{{ ansible_operator_meta.name }} {{ size | default('none') }}"}
"""

CLEANUP = """
    - name: Note the deletion
      ansible.builtin.shell: grep -qsxF "$LINE" "$NOTES" || echo "$LINE" >> "$NOTES"
      environment: {LINE: "{{ ansible_operator_meta.name }} {{ farewell | default('deleted') }}"}
"""

GROW = """
    - name: Note the run
      ansible.builtin.shell: >-
        echo '{{ size }} {{ ansible_operator_run.reason }} {{ ansible_operator_run.details | join(" ") }}' >> "$NOTES"

    - name: Change the resource's own metadata, and its own spec until it is big enough
      kubernetes.core.k8s:
        definition:
          apiVersion: test.example.com/v1
          kind: Thing
          metadata:
            name: "{{ ansible_operator_meta.name }}"
            namespace: "{{ ansible_operator_meta.namespace }}"
            labels:
              size: "is-{{ size }}"
            annotations:
              seen: "{{ now(utc=true) }}"
          spec:
            size: "{{ [size | int + 1, 3] | min }}"
"""


def _notes(project: Project) -> list[str]:
    path = project.folder / "notes"
    return path.read_text().splitlines() if path.exists() else []


def _environment(project: Project) -> dict[str, str]:
    return {"NOTES": str(project.folder / "notes")}


def test_a_change_of_an_objects_spec_runs_it_and_a_deletion_without_a_finalizer_removes_its_run_folder(
    project: Project, things: Things
) -> None:
    project.role("thing", NOTE)
    project.watch("thing")
    operator = project.start(environment=_environment(project))
    things.create("one", {"size": 3})
    running = things.await_success("one")
    assert running["reason"] == "Successful"
    assert running["message"] == "Awaiting next reconciliation"
    assert running["ansibleResult"]["ok"] == 1
    assert running["ansibleResult"]["changed"] == 1
    assert things.conditions("one")["Failure"]["status"] == "False"
    assert _notes(project) == ["one 3"]

    things.merge("one", {"status": {"seen": True}}, "status")
    things.merge("one", {"metadata": {"labels": {"colour": "blue"}, "annotations": {"note": "x"}}})
    things.merge("one", {"spec": {"size": 4}})
    things.await_success("one")
    assert _notes(project) == ["one 3", "one 4"]
    assert [run["reason"] for run in operator.runs("one")] == ["created", "changed"]
    assert things.get("one")["status"]["seen"] is True

    folder = project.folder / "runs/test.example.com/v1/Thing" / things.namespace / "one"
    assert (folder / "artifacts/latest/stdout").exists()
    assert folder.stat().st_mode & 0o777 == 0o700
    things.delete("one")
    things.await_gone("one")
    wait_until(lambda: not folder.exists(), "the run folder to go")
    assert len(operator.runs("one")) == 2

    # As the Go operator: it compares generations, whichever client wrote.
    (project.folder / "notes").unlink()
    project.role("thing", GROW)
    things.create("grows", {"size": 1})
    wait_until(lambda: len(_notes(project)) == 3, "two runs that the role's own changes of the spec start")
    things.await_success("grows")
    assert things.get("grows")["metadata"]["labels"] == {"size": "is-3"}
    things.merge("grows", {"spec": {"more": True}})
    wait_until(lambda: len(_notes(project)) == 4, "the run of a change by a user")
    things.await_success("grows")
    assert _notes(project) == ["1 created ", "2 changed spec.size", "3 changed spec.size", "3 changed spec.more"]

    # Signals that come until the last moment make no failure of a clean end.
    while operator.process.poll() is None:
        operator.process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            operator.process.wait(0.002)
    assert operator.process.returncode == 0


def test_a_finalizer_runs_until_it_succeeds_and_is_then_removed_and_finalizers_of_others_remain(
    project: Project, things: Things
) -> None:
    waits = """
- name: Wait to be let on
  ansible.builtin.wait_for: {path: "{{ lookup('env', 'NOTES') }}.go", timeout: 60}
  when: waits | default(false)
"""
    fails = "- ansible.builtin.fail: {msg: server is away}\n  when: away | default(false)\n"
    project.role("thing", waits + textwrap.dedent(NOTE))
    project.role("cleanup", fails + textwrap.dedent(CLEANUP))
    project.watch("thing", finalizer={"name": FINALIZER, "role": "cleanup", "vars": {"farewell": "adieu"}})
    operator = project.start(environment=_environment(project))
    theirs = ["other.example.com/hold"]
    things.create("plain", {"size": 1})
    things.create("held", {"size": 1}, finalizers=theirs)
    for name in ("failing", "by-hand"):
        things.create(name, {"size": 1, "away": True})
    for name in ("plain", "held", "failing", "by-hand"):
        things.await_success(name)
        assert FINALIZER in things.get(name)["metadata"]["finalizers"]
        things.delete(name)
    things.await_gone("plain")
    wait_until(lambda: things.get("held")["metadata"]["finalizers"] == theirs, "our finalizer to go")
    things.merge("held", {"metadata": {"finalizers": None}})
    things.await_gone("held")

    for name in ("failing", "by-hand"):
        assert things.await_condition(name, "Failure")["message"].splitlines()[0] == "server is away"
        assert things.get(name)["metadata"]["finalizers"] == [FINALIZER]
    things.merge("failing", {"spec": {"away": False}})
    things.await_gone("failing")
    things.merge("by-hand", {"metadata": {"finalizers": None}})
    things.await_gone("by-hand")
    things.create("by-hand", {"size": 2})
    things.await_success("by-hand")
    ended = [f"{name} adieu" for name in ("failing", "held", "plain")]
    begun = [f"{name} 1" for name in ("by-hand", "failing", "held", "plain")]
    assert sorted(_notes(project)) == sorted([*begun, *ended, "by-hand 2"])

    # A deletion in the middle of a run is finalized right after it.
    things.create("active", {"size": 1, "waits": True})
    operator.await_line("Run started", name="active")
    things.delete("active")
    wait_until(lambda: "deletionTimestamp" in things.get("active")["metadata"], "the deletion mark")
    (project.folder / "notes.go").touch()
    things.await_gone("active")
    assert _notes(project)[-2:] == ["active 1", "active adieu"]
    assert [run["reason"] for run in operator.runs("active")] == ["created", "deleted"]
    assert operator.stop() == 0


@pytest.mark.full
def test_after_sigterm_a_run_ends_in_time_or_runs_again_at_the_next_start_which_removes_folders_of_missing_objects(
    project: Project, things: Things
) -> None:
    project.role(
        "thing",
        """
        - name: Wait to be let on
          ansible.builtin.wait_for:
            path: "{{ lookup('env', 'NOTES') }}"
            timeout: 300
        - name: Take a moment
          ansible.builtin.wait_for:
            timeout: 3
          when: slow | default(false)
        """,
    )
    project.watch("thing")
    operator = project.start("--graceful-shutdown-timeout=1s", environment=_environment(project))
    things.create("one", {})
    operator.await_line("Run started", name="one")
    assert operator.stop() == 0
    (waiting,) = operator.lines("Waiting for runs to end; a second signal cancels them")
    assert (waiting["detail"], waiting["grace_seconds"]) == (f"Thing {things.namespace}/one", 1.0)
    assert things.conditions("one")["Running"]["status"] == "False"
    (project.folder / "notes").touch()
    of_kind = project.folder / "runs/test.example.com/v1/Thing"
    gone = of_kind / things.namespace / "gone"
    others = [of_kind / "elsewhere" / "theirs", of_kind.parent / "Other" / things.namespace / "one"]
    for folder in (gone, *others):
        (folder / "env").mkdir(parents=True)
        (folder / "env" / "envvars").write_text("{}")
    operator = project.start(environment=_environment(project))
    things.await_success("one")
    wait_until(lambda: not gone.exists(), "the folder of an object that was removed meanwhile to go")
    assert all(other.is_dir() for other in others)
    things.create("two", {"slow": True})
    operator.await_line("Run started", name="two")
    assert operator.stop() == 0
    assert things.conditions("two")["Successful"]["status"] == "True"
