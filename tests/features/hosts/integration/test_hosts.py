"""Runs that reach the hosts of a resource."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.features.hosts.integration.lending import LABEL, Lend
from tests.kit import ssh_hosts
from tests.kit.ssh_hosts import BECOME_PASSWORD, PASSWORD, USER
from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from tests.kit.objects import Api, Things
    from tests.kit.operator import Project
    from tests.kit.ssh_hosts import Network

pytestmark = pytest.mark.skipif(bool(ssh_hosts.hindrance()), reason=ssh_hosts.hindrance())
MARK = """
- name: Mark the host
  ansible.builtin.copy:
    content: "{{ ansible_operator_meta.name }} on {{ inventory_hostname }}, {{ colour | default('none') }}"
    dest: /tmp/mark
    mode: "0600"
"""


def watch(project: Project, **different: Any) -> None:
    inventory = {"hosts": "spec.hosts", "credentials": "spec.credentials", "allow": ["10.213.0.0/16"]}
    own = ("file", "group", "groups", "vars", "hostKeys", "factCache")
    fields = {name: different.pop(name) for name in own if name in different}
    project.grant([""], ["secrets"])
    project.watch("thing", inventory=inventory | fields, **different)


def failure_of(things: Things, name: str, reason: str) -> str:
    """Wait until the object has failed for this reason; return the message."""

    def find() -> dict[str, Any] | None:
        found = things.conditions(name).get("Failure", {})
        return found if (found.get("status"), found.get("reason")) == ("True", reason) else None

    return str(wait_until(find, lambda: f"{reason} of {name}: {things.get(name)}")["message"])


def hosts_of(things: Things, name: str) -> list[dict[str, Any]]:
    """Wait for the results of hosts; return them. Before the first run, the entries have no counts."""

    def results() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (things.get(name).get("status") or {}).get("hosts", [])
        return found if any("ok" in each for each in found) else []

    return wait_until(results, f"hosts of {name}")


def files_below(folder: Path) -> str:
    """Return the content of all files; what is removed meanwhile has none."""
    found = []
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                found.append(Path(parent, name).read_text(errors="replace"))
    return "\n".join(found)


ENGINES = ["warm", pytest.param("exec", marks=pytest.mark.nightly)]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_role_runs_on_the_hosts_of_the_spec_even_distant_ones_with_a_lent_key(
    project: Project, things: Things, network: Network, lend: Lend, engine: str
) -> None:
    one, two = network.host("web1"), network.host("web2", delay=0.1)  # seconds, in each direction
    key = network.user_key.read_text()
    lend(ssh_privatekey=key, username=USER, known_hosts=one.known_hosts() + two.known_hosts())
    project.role("thing", MARK)
    watch(project, engine=engine, vars=["colour"])
    operator = project.start()
    hosts = [one.address, {"name": "second", "address": two.address, "vars": {"colour": "{{ 1 + 1 }}"}}]
    things.create("fleet", {"credentials": "login", "hosts": hosts})
    line = operator.await_line("Run ended", name="fleet")
    assert line["outcome"] == "succeeded", operator.log[-6000:]
    assert one.run("cat /tmp/mark") == f"fleet on {one.address}, none"
    assert two.run("cat /tmp/mark") == "fleet on second, {{ 1 + 1 }}"
    counts = {"ok": 1, "changed": 1, "failures": 0, "unreachable": 0}
    assert hosts_of(things, "fleet") == [
        {"name": one.address, "address": one.address, **counts},
        {"name": "second", "address": two.address, **counts},
    ]
    assert operator.stop() == 0
    left = operator.log + files_below(project.folder / "runs")
    assert key.splitlines()[2] not in left
    assert not list((project.folder / "runs").rglob("ssh_key"))


PROJECT = """
all:
  hosts: {db01: {ansible_host: 10.213.0.1, api_token: token-of-db01}}
  children: {infra: {hosts: {bastion: {}}, vars: {password: of-infra}}}
"""
CLEAN = """
- hosts: machines
  gather_facts: false
  tasks:
  - name: Write as root
    become: true
    ansible.builtin.copy: {content: "{{ of_the_project }}", dest: /root/mark, mode: "0600"}
- hosts: removed
  gather_facts: false
  tasks:
  - name: Clean what was removed
    become: true
    ansible.builtin.copy: {content: "removed {{ ansible_operator_meta.removed_hosts }}", dest: /root/mark, mode: "0600"}
"""
FINALIZE = """
- hosts: machines
  gather_facts: false
  tasks:
  - name: Clean all
    become: true
    ansible.builtin.file: {path: /root/mark, state: absent}
"""


@pytest.mark.full
def test_passwords_and_become_work_and_removed_hosts_are_cleaned(
    project: Project, things: Things, network: Network, lend: Lend
) -> None:
    one, two, three = (network.host(f"web{number}", keys=False) for number in (1, 2, 3))
    known = "".join(each.known_hosts() for each in (one, two, three))
    lend(username=USER, password=PASSWORD, become_password=BECOME_PASSWORD, known_hosts=known)
    project.write("playbooks/site.yml", CLEAN)
    project.write("playbooks/finalize.yml", FINALIZE)
    project.write("playbooks/group_vars/machines.yml", "of_the_project: from the project")
    finalizer = {"name": "test.example.com/hosts", "playbook": "playbooks/finalize.yml"}
    watch(project, playbook="playbooks/site.yml", group="machines", finalizer=finalizer)
    operator = project.start()
    spec = {"credentials": "login", "hosts": [each.address for each in (one, two, three)]}
    things.create("fleet", spec)
    assert operator.await_line("Run ended", name="fleet")["outcome"] == "succeeded", operator.log[-6000:]
    assert {each.run("cat /root/mark") for each in (one, two, three)} == {"from the project"}
    things.merge("fleet", {"spec": {"hosts": [one.address, two.address]}})
    operator.await_line("Run ended", name="fleet", reason="changed")
    things.await_success("fleet")
    assert [each["name"] for each in hosts_of(things, "fleet")] == [one.address, two.address]
    assert three.run("cat /root/mark") == f"removed ['{three.address}']"
    three.run("rm /root/mark")
    two.cut()
    project.write("playbooks/site.yml", "- {hosts: machines, gather_facts: false, tasks: []}")
    things.merge("fleet", {"spec": {"hosts": [one.address]}})
    wait_until(lambda: hosts_of(things, "fleet")[-1].get("removed"), "the host to be removed, and not cleaned")
    two.mend()
    things.delete("fleet")
    things.await_gone("fleet")
    for each in (one, two):
        each.run("test ! -e /root/mark")
    for value in (PASSWORD, BECOME_PASSWORD):
        assert value not in operator.log + files_below(project.folder / "runs")


@pytest.mark.full
def test_each_refusal_names_the_host_or_secret_and_the_remedy(
    project: Project, things: Things, network: Network, lend: Lend, api: Api, namespace: str
) -> None:
    host = network.host("web1")
    project.role("thing", MARK)
    project.write("inventories/project.yml", PROJECT)
    project.write("inventories/host_vars/web9.yml", "ansible_host: 10.213.0.1")
    watch(project, file="inventories/project.yml", groups=["north", "bastion"])
    operator = project.start()
    key = network.user_key.read_text()
    lend(lent=False, ssh_privatekey=key, username=USER, known_hosts=host.known_hosts())
    lend("unknown", ssh_privatekey=key, username=USER)
    hosts = [host.address]
    things.create("unlabelled", {"credentials": "login", "hosts": hosts})
    things.create("missing", {"credentials": "none", "hosts": hosts})
    things.create("no-known-hosts", {"credentials": "unknown", "hosts": hosts})
    things.create("elsewhere", {"credentials": "login", "hosts": ["10.99.0.1"]})
    for name, message in (
        ("unlabelled", f"kubectl label secret login -n {namespace} {LABEL}=true"),
        ("missing", f"spec.credentials: Secret {namespace}/none not found; create it"),
        ("no-known-hosts", f"Secret {namespace}/unknown has no known_hosts"),
        ("elsewhere", ""),
    ):
        assert message in failure_of(things, name, "Unusable"), name
    assert operator.lines("Run started") == []
    api.call(
        "PATCH",
        f"/api/v1/namespaces/{namespace}/secrets/login",
        {"metadata": {"labels": {LABEL: "true"}}},
        "application/merge-patch+json",
    )
    operator.await_line("Run ended", name="unlabelled", reason="reference changed", outcome="succeeded")
    for name, different, message in (
        ("host", {"name": "db01"}, "host 'db01' of the resource: the project uses this name in its inventory"),
        ("group", {"name": "infra"}, "host 'infra' of the resource: the project uses this name in its inventory"),
        ("file", {"name": "web9"}, "host 'web9' of the resource: the project uses this name in /"),
        (
            "its-host",
            {"groups": ["bastion"]},
            "group 'bastion' of the resource: the project's inventory uses this name",
        ),
        ("forbidden", {"groups": ["infra"]}, "spec.hosts[0].groups: group 'infra' is not permitted"),
    ):
        things.create(name, {"credentials": "login", "hosts": [{"address": host.address, **different}]})
        assert message in failure_of(things, name, "Unusable")
        assert "hosts" not in things.get(name)["status"]
    assert "token-of-db01" not in operator.log
    lend("none", ssh_privatekey=key, username=USER, known_hosts=host.known_hosts())
    operator.await_line("Run ended", name="missing", reason="reference changed", outcome="succeeded")
    wait_until(
        lambda: "host 10.99.0.1: it is not in inventory.allow" in things.conditions("elsewhere")["Failure"]["message"],
        lambda: f"{things.conditions('elsewhere')}",
    )


@pytest.mark.full
def test_unreachable_hosts_have_a_reason_of_their_own_and_do_not_undo_the_rest(
    project: Project, things: Things, network: Network, lend: Lend
) -> None:
    host, imposter, victim = (network.host(f"web{number}") for number in (1, 2, 3))
    imposter.takes_over(victim)
    known = host.known_hosts() + victim.known_hosts()
    lend(ssh_privatekey=network.user_key.read_text(), username=USER, known_hosts=known)
    project.role("thing", MARK)
    watch(project, retry={"delay": "1s", "attempts": 1})
    operator = project.start(environment={"ANSIBLE_TIMEOUT": "2"})
    nobody = network.black_hole()
    things.create("fleet", {"credentials": "login", "hosts": [victim.address, nobody, host.address, "none.invalid"]})
    # A name that no entry allows is refused only after it was resolved, and this one is never.
    states = {victim.address: (0, 1), nobody: (0, 1), "none.invalid": (0, 1), host.address: (1, 0)}

    def told() -> str:
        """On a busy machine, a host may need more than the 2 seconds of an attempt; then it is another one's turn."""
        found = {each["name"]: (each["ok"], each["unreachable"]) for each in hosts_of(things, "fleet")}
        message = failure_of(things, "fleet", "Unreachable")
        return message if found == states and "Host key verification failed" in message else ""

    message = wait_until(told, lambda: f"{states} in {things.get('fleet')}")
    assert message.startswith("Unreachable: ")
    assert f"{victim.address}: " in message
    assert "Could not resolve hostname none.invalid" in message
    assert "no key of" not in message
    assert f"{victim.address} presents another key (SHA256:" in message
    assert host.run("cat /tmp/mark")
    # `attempts` is for runs that failed: one that reached nobody is repeated.
    wait_until(lambda: len(operator.runs("fleet")) > 2, "further attempts")
    things.create("nobody", {"credentials": "login", "hosts": []})
    things.await_success("nobody")


def test_the_first_key_of_a_host_is_trusted_and_another_one_later_is_not(
    project: Project, things: Things, network: Network, lend: Lend
) -> None:
    host, imposter = network.host("web1", keys=False), network.host("web2", keys=False)
    certificate = ssh_hosts.sign(network.authority, network.user_key)
    lend(ssh_privatekey=network.user_key.read_text(), ssh_publickey_cert=certificate.read_text(), username=USER)
    project.role("thing", MARK)
    watch(project, hostKeys="first")
    operator = project.start()
    things.create("fleet", {"credentials": "login", "hosts": [{"name": "web", "address": host.address}]})
    assert operator.await_line("Run ended", name="fleet")["outcome"] == "succeeded", operator.log[-6000:]
    (entry,) = hosts_of(things, "fleet")
    assert host.known_hosts() == f"{host.address} {entry['hostKey']}\n"
    imposter.takes_over(host)
    things.merge("fleet", {"spec": {"size": 2}})
    assert "Host key verification failed" in failure_of(things, "fleet", "Unreachable")
    assert hosts_of(things, "fleet")[0]["hostKey"] == entry["hostKey"]
    assert imposter.run("ls /tmp") == ""


MOVE = """
- hosts: machines
  gather_facts: false
  tasks:
  - ansible.builtin.raw: echo mine >/tmp/mark
- hosts: removed
  gather_facts: false
  tasks:
  - ansible.builtin.raw: echo "{{ ansible_operator_meta.removed_hosts }}" >/tmp/mark
- hosts: localhost
  gather_facts: false
  tasks:
  - ansible.builtin.debug: {msg: the last play}
"""


@pytest.mark.nightly
def test_the_former_machine_of_a_name_is_cleaned_and_a_dead_removed_host_holds_nothing(
    project: Project, things: Things, network: Network, lend: Lend
) -> None:
    old, new = network.host("web1"), network.host("web2")
    known = old.known_hosts() + new.known_hosts()
    lend(ssh_privatekey=network.user_key.read_text(), username=USER, known_hosts=known)
    project.write("playbooks/site.yml", MOVE)
    finalizer = {"name": "test.example.com/hosts", "playbook": "playbooks/site.yml"}
    watch(project, playbook="playbooks/site.yml", group="machines", finalizer=finalizer, retry={"delay": "1s"})
    operator = project.start(environment={"ANSIBLE_TIMEOUT": "3"})
    things.create("fleet", {"credentials": "login", "hosts": [{"name": "db", "address": old.address}]})
    things.await_success("fleet")
    things.merge("fleet", {"spec": {"hosts": [{"name": "db", "address": new.address}]}})
    wait_until(lambda: old.run("cat /tmp/mark") == f"['db-{old.address}']\n", "the old machine to be cleaned")
    assert new.run("cat /tmp/mark") == "mine\n"
    wait_until(lambda: [each["address"] for each in hosts_of(things, "fleet")] == [new.address], "one host")

    new.cut()
    things.merge("fleet", {"spec": {"hosts": []}})
    message = failure_of(things, "fleet", "Unreachable")
    assert message.startswith("Unreachable: db. The operator tries again.\n")
    things.await_success("fleet")
    entry = {"name": "db", "address": new.address, "removed": True, "unreachable": 1}
    assert hosts_of(things, "fleet")[0].items() >= entry.items()
    operator.await_line("This run omits removed hosts that the last one could not reach", name="fleet")
    assert "the last play" in operator.log
    things.delete("fleet")
    things.await_gone("fleet")


def test_an_object_and_a_host_cannot_choose_how_ansible_connects(
    project: Project, things: Things, network: Network, lend: Lend, tmp_path: Path
) -> None:
    """The host's interpreter answers each module with facts that would let Ansible run commands as the operator."""
    host, other = network.host("web1"), network.host("web2")
    evil = tmp_path / "executed"
    template = "{{ lookup('pipe', 'touch PATH') }}".replace("PATH", str(evil))
    facts = {
        "ansible_connection": "local",
        "ansible_host": other.address,
        "ansible_ssh_common_args": f"-o ProxyCommand='touch {evil}'",
        "ansible_ssh_args": f"-o ProxyCommand='touch {evil}'",
        "ansible_ssh_executable": str(evil),
        "ansible_python_interpreter": f"touch {evil};",
        "ansible_shell_executable": str(evil),
        "harmless": template,
    }
    answer = json.dumps({"changed": False, "ansible_facts": facts})
    host.run(
        f"cat > /opt/answer <<'END'\n{answer}\nEND\nprintf '#!/bin/sh\ncat /opt/answer' > /opt/python; chmod 755 /opt/*"
    )
    project.role(
        "thing",
        """
- ansible.builtin.setup:
- ansible.builtin.debug: {msg: "{{ harmless | default('') }}"}
- ansible.builtin.raw: hostname > /tmp/mark
- ansible.builtin.debug: {var: colour}
""",
    )
    lend(ssh_privatekey=network.user_key.read_text(), username=USER, known_hosts=host.known_hosts())
    # The administrator's own inventory: an interpreter that the host controls.
    project.write("inventory.yml", "all: {vars: {ansible_python_interpreter: /opt/python}}")
    watch(project, file="inventory.yml", vars=["colour"])
    operator = project.start()
    variables = {name: f"touch {evil}" for name in facts if name != "harmless"}
    variables["colour"] = template
    things.create("fleet", {"credentials": "login", "hosts": [{"address": host.address, "vars": variables}]})
    operator.await_line("Run ended", name="fleet")
    assert host.run("cat /tmp/mark") == "web1\n", operator.log[-6000:]
    assert operator.log.count(f'"{template}"') > 1, "the host's fact and the object's variable as they are"
    assert not evil.exists()
    assert "ansible_ssh_common_args of host" in things.await_condition("fleet", "IgnoredVariables")["message"]


def processes_of(project: Project) -> tuple[str, str]:
    """Return environments and arguments of the processes that use the run folders of a project."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            arguments = (each / "cmdline").read_bytes().decode(errors="replace")
            if f"{project.folder}/runs/test.example.com" in arguments:
                found.append(((each / "environ").read_bytes().decode(errors="replace"), arguments))
    return "\n".join(each[0] for each in found), "\n".join(each[1] for each in found)


@pytest.mark.full
def test_a_plan_and_a_drift_check_name_the_changes_of_hosts_and_make_none(
    project: Project, things: Things, network: Network, lend: Lend
) -> None:
    host = network.host("web1")
    lend(ssh_privatekey=network.user_key.read_text(), username=USER, known_hosts=host.known_hosts())
    project.role("thing", MARK)
    project.allow_rollouts()
    watch(project, drift={"period": "1s"})
    operator = project.start()
    annotation = {"ansible.sdk.operatorframework.io/mode": "plan"}
    things.create("fleet", {"credentials": "login", "hosts": [host.address]}, annotations=annotation)
    things.await_condition("fleet", "Planned")
    (change,) = things.get("fleet")["status"]["plan"]["changes"]
    named = {"verb": "change", "kind": "Host", "name": host.address, "fields": ["task 'Mark the host'"]}
    assert change.items() >= named.items()
    assert host.run("ls /tmp") == ""
    shown = project.plan("thing/fleet", "--namespace", things.namespace)
    assert f"change Host {host.address}" in shown.stdout, shown.stdout + shown.stderr
    things.merge("fleet", {"metadata": {"annotations": {"ansible.sdk.operatorframework.io/mode": None}}})
    operator.await_line("Run ended", name="fleet", outcome="succeeded")
    host.run("echo another >/tmp/mark")
    message = things.await_condition("fleet", "Drifted")["message"]
    assert message == f"change Host {host.address}: task 'Mark the host'"
    assert host.run("cat /tmp/mark") == "another\n"


@pytest.mark.parametrize("engine", ENGINES)
def test_facts_of_a_host_are_kept_between_runs(
    project: Project, things: Things, network: Network, lend: Lend, engine: str
) -> None:
    host, other = network.host("web1"), network.host("web2")
    known = host.known_hosts() + other.known_hosts()
    lend(ssh_privatekey=network.user_key.read_text(), username=USER, known_hosts=known)
    project.role("thing", "- ansible.builtin.debug: {msg: 'the host is {{ ansible_facts.hostname }}'}")
    watch(project, factCache="10m", engine=engine)
    operator = project.start()
    things.create("fleet", {"credentials": "login", "hosts": [{"name": "db", "address": host.address}]})
    operator.await_line("Run ended", name="fleet", outcome="succeeded", reason="created")
    assert hosts_of(things, "fleet")[0]["ok"] == 2
    things.merge("fleet", {"spec": {"size": 2}})
    operator.await_line("Run ended", name="fleet", outcome="succeeded", reason="changed")
    wait_until(lambda: hosts_of(things, "fleet")[0]["ok"] == 1, "a run that gathers no facts")
    assert operator.log.count("the host is web1") >= 2
    things.merge("fleet", {"spec": {"hosts": [{"name": "db", "address": other.address}]}})
    wait_until(lambda: "the host is web2" in operator.log, "facts of the other machine")


@pytest.mark.parametrize("harm", ["reset", pytest.param("cut", marks=pytest.mark.nightly)])
def test_a_broken_connection_makes_the_host_unreachable_and_a_killed_operator_leaves_no_key_and_no_process(
    project: Project, things: Things, network: Network, lend: Lend, harm: str
) -> None:
    host = network.host("web1")
    key = network.user_key.read_text()
    lend(ssh_privatekey=key, username=USER, known_hosts=host.known_hosts())
    project.role("thing", "- ansible.builtin.raw: touch /tmp/began; while test ! -e /tmp/end; do sleep 0.1; done")
    watch(project, retry={"delay": "1s"})
    operator = project.start()
    things.create("fleet", {"credentials": "login", "hosts": [host.address]})
    wait_until(lambda: "began" in host.run("ls /tmp"), "the run to reach the host")
    host.reset() if harm == "reset" else host.cut()
    assert f"Unreachable: {host.address}." in failure_of(things, "fleet", "Unreachable")
    host.run("touch /tmp/end")
    host.mend()
    things.await_success("fleet")
    assert hosts_of(things, "fleet")[0]["unreachable"] == 0

    host.run("rm /tmp/began /tmp/end")
    things.merge("fleet", {"spec": {"size": 2}})
    wait_until(lambda: "began" in host.run("ls /tmp"), "the second run to reach the host")
    environment, arguments = processes_of(project)
    assert key.splitlines()[2] not in environment + arguments
    operator.kill()
    runs = project.folder / "runs"
    wait_until(lambda: not list(runs.rglob("ssh_key")), "the key to be removed")
    assert key.splitlines()[2] not in files_below(runs)
    wait_until(lambda: not processes_of(project)[1], "its processes to end")
