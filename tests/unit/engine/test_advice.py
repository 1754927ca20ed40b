from __future__ import annotations

from dataclasses import replace

import pytest

from runner.core.engine import advice, causes
from runner.core.engine.job import HostRecap, Outcome, RunResult, TaskFailure
from runner.features.hosts.inventory import UNRESOLVED, Credentials, Host, Hosts


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
    lost = hosts.explain(advice.explain(replace(lost, hosts=(HostRecap("db", 0, 0, 0, 1),))))
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
