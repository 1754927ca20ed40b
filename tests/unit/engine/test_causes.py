"""Failures that Ansible, its modules and Kubernetes reported, their causes, places and advice."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.core.engine import advice, causes
from runner.core.engine.events import Progress, fold
from runner.core.engine.job import HostRecap, Outcome, RunResult, TaskFailure
from runner.features.hosts.inventory import UNRESOLVED, Credentials, Host, Hosts

OUTPUTS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("failures.json").read_text(encoding="utf-8"))
"""Results of failed tasks, and output outside of tasks, of ansible-core 2.18 to 2.22 on real servers."""


def _readable(output: dict[str, Any]) -> tuple[str, str]:
    """Return what is said about an output, and the place."""
    if "lines" in output:
        cause, place = causes.of_output(output["lines"])
        return str(cause), place
    (suspect,) = fold(Progress(), {"event": "runner_on_failed", **output["failed"]}).suspects
    return suspect.failure.message, suspect.failure.path


@pytest.mark.parametrize("output", OUTPUTS, ids=lambda output: f"{output['case']}, {output['cores'][0]}")
def test_a_failure_is_its_cause_in_a_sentence_with_the_remedy_and_the_place(output: dict[str, Any]) -> None:
    assert _readable(output) == (output["text"], output["path"])


@pytest.mark.parametrize("action", ["debug", "ansible.builtin.assert"])
@pytest.mark.parametrize(
    "message",
    [
        "Conditional result (True) was derived from value of type 'str' at '/roles/a/tasks/main.yml:3:9'",
        "Empty conditional expressions are not allowed.",
        "Conditional expressions must be strings.",
        "One or more items failed: Conditional expressions must be strings.",
    ],
)
def test_the_error_of_a_broken_conditional_names_the_setting_that_helps(message: str, action: str) -> None:
    cause = causes.of_task({"task_action": action}, f"Task failed: {message}", ())

    assert str(cause) == f"{message.rstrip('.')} ({causes.BROKEN})"
    assert "allow_broken_conditionals" in causes.BROKEN


@pytest.mark.parametrize("text", ["no space", "the result must be a boolean", "Conditional result is x"])
def test_other_causes_do_not_name_the_setting_of_conditionals(text: str) -> None:
    assert str(causes.of_task({}, text, ())) == text


def test_a_cause_has_two_hundred_characters_at_most_and_what_an_author_wrote_is_whole() -> None:
    for action, length in (("uri", causes.MOST), ("ansible.builtin.fail", 5000)):
        assert len(causes.of_task({"task_action": action}, "x" * 5000, ()).text) == length


@pytest.mark.parametrize(
    "text",
    [
        '{"kind":"Status"',
        '{"kind":"Status","message":3}',
        '{"kind":"Status","message":"m","details":{"causes":[null]}}',
        "Task failed: ",
        ": " * 200_000,
        "An unhandled exception occurred while " * 20_000,
        "The conditional check 'a' failed. The error was" * 20_000,
        "host='a', port=1" * 50_000,
    ],
)
def test_any_text_has_a_cause_within_its_bounds(text: str) -> None:
    result = {"result": {"metadata": 3, "status": []}, "invocation": [], "cmd": [], "url": 5, "rc": "x"}
    assert len(causes.of_task({"res": result}, text, ()).text) <= causes.MOST


@pytest.mark.parametrize("command", [5, 1.5, True, [5, None], {"a": "b"}])
def test_a_module_can_return_any_command(command: object) -> None:
    cause = causes.of_task({"res": {"cmd": command, "rc": 2}}, "Error executing command.", ())
    assert cause.text.startswith("cannot execute ")


def failed(*messages: str, message: str = "") -> RunResult:
    failures = tuple(TaskFailure("task", each, "main.yml:3") for each in messages)
    return RunResult(Outcome.FAILED, None, failures, message, None, 1.0)


def test_failures_of_a_run_name_the_processes_that_the_kernel_killed_and_the_limits() -> None:
    advised = advice.add_kills(failed("MODULE FAILURE"), 1, 768 << 20, 576 << 20)

    assert advised.failures[0].message == (
        "MODULE FAILURE (during this run, the kernel killed 1 process of the operator's container because memory ran "
        "out: the container may use 768 MiB, and --run-memory-limit allows 576 MiB. Set a lower --run-memory-limit, "
        "fewer concurrent runs, or a higher memory limit of the container)"
    )
    assert advised.message == ""


def test_a_run_that_died_names_killed_processes_in_its_message_and_other_outcomes_do_not() -> None:
    died = replace(failed(message="ansible-playbook was killed by SIGKILL"), outcome=Outcome.DIED)
    message = advice.add_kills(died, 2, 768 << 20, 0).message
    assert message.startswith("ansible-playbook was killed by SIGKILL (during this run, the kernel killed 2 processes")
    assert "--run-memory-limit is 0, so runs are not limited" in message
    assert advice.add_kills(died, 0, 768 << 20, 0) == died
    for outcome in (Outcome.SUCCEEDED, Outcome.TIMED_OUT, Outcome.CANCELED, Outcome.NOT_STARTED):
        other = replace(died, outcome=outcome)
        assert advice.add_kills(other, 1, 768 << 20, 0) == other


SSH = "Failed to connect to the host via ssh: "
CHANGED = (
    f"{SSH}@@@\r\n@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\r\n"
    "The fingerprint for the ED25519 key sent by the remote host is\nSHA256:8Ue3Jyvh+/A.\r\n"
    "Add correct host key in /tmp/run/tmp/hosts/known_hosts to get rid of this message.\r\n"
    "  ssh-keygen -f '/tmp/run/tmp/hosts/known_hosts' -R '[db.example.com]:2222'\r\nHost key verification failed."
)
UNKNOWN = f"{SSH}No ED25519 host key is known for db.example.com and you have requested strict checking.\r\nHost key \
verification failed."


VERIFICATION = "Host key verification failed:"
ANOTHER = "presents another key (SHA256:8Ue3Jyvh+/A) than the known one. If the change was on purpose, "


def explained(message: str, **different: object) -> str:
    host = replace(Host("db", "db.example.com", "10.0.0.1"), **different)  # type: ignore[arg-type]
    hosts = Hosts("hosts", (host, Host("other", "o", "o")), None, Credentials(), first_use=False)
    said = str(causes.of_task({}, message, ()))
    lost = replace(failed(said), failures=(TaskFailure("Ping", said, "", host="db", unreachable=True),))
    lost = hosts.explain(replace(lost, hosts=(HostRecap("db", 0, 0, 0, 1),)))
    assert lost.missed == ("other",)
    return lost.failures[0].message


@pytest.mark.parametrize(
    ("message", "different", "text"),
    [
        (
            f"{SSH}ssh: Could not resolve hostname {UNRESOLVED}: Name or service not known\r\n",
            {},
            (
                "ssh: Could not resolve hostname db.example.com: Name or service not known "
                "(check the name, and the DNS of the operator)"
            ),
        ),
        (
            CHANGED,
            {"port": 2222},
            f"{VERIFICATION} [db.example.com]:2222 {ANOTHER}correct known_hosts of the Secret",
        ),
        (
            CHANGED,
            {"key": "ssh-rsa A"},
            f"{VERIFICATION} db.example.com {ANOTHER}remove the entry of the host from status.hosts",
        ),
        (
            UNKNOWN,
            {},
            f"{VERIFICATION} no key of db.example.com is known. Check its key and add it to known_hosts of the Secret",
        ),
        ("No user exists for uid 54321\r\n", {}, f"No user exists for uid 54321 ({causes.NO_USER})"),
    ],
)
def test_messages_of_ssh_name_what_a_user_of_the_operator_can_do(
    message: str, different: dict[str, object], text: str
) -> None:
    assert explained(message, **different) == text


@pytest.mark.parametrize(
    "path",
    [
        *("/dev/zero", "/proc/self/environ", "{folder}/pipe", "{folder}/tasks/none.yml:3"),
        *("/a\0b", "{folder}/a\0b/tasks/main.yml:3", "/half\ud800", "{folder}/half\ud800/tasks/main.yml:3"),
    ],
)
@pytest.mark.parametrize("message", ["'replicaz' is undefined", "unexpected '}'"])
def test_only_files_with_text_are_read_whatever_path_a_run_reports(tmp_path: Path, path: str, message: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    failure = TaskFailure("write", message, path.format(folder=tmp_path))
    assert advice.placed(failure) == failure


def test_a_word_in_two_templates_leaves_the_place_of_the_task(tmp_path: Path) -> None:
    for name in ("one.j2", "two.j2"):
        (tmp_path / "templates").mkdir(exist_ok=True)
        (tmp_path / "templates" / name).write_text("{{ replicaz }}")
    failure = TaskFailure("write", "'replicaz' is undefined", f"{tmp_path}/tasks/main.yml:3")
    assert advice.placed(failure) == failure
    (tmp_path / "templates" / "two.j2").unlink()
    assert advice.placed(failure).path == f"{tmp_path}/templates/one.j2:1"
