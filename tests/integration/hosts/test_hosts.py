"""Runs that reach the hosts of a resource."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.integration.hosts.lending import Lend
from tests.kit.ssh_hosts import USER

if TYPE_CHECKING:
    from tests.kit.objects import Things
    from tests.kit.operator import Project
    from tests.kit.ssh_hosts import Network

MARK = """
- name: Mark the host
  ansible.builtin.copy:
    content: "{{ ansible_operator_meta.name }} on {{ inventory_hostname }}, {{ colour | default('none') }}"
    dest: /tmp/mark
    mode: "0600"
"""


def _watch(project: Project, **fields: object) -> None:
    inventory = {"hosts": "spec.hosts", "credentials": "spec.credentials", "allow": ["10.213.0.0/16"], **fields}
    project.grant([""], ["secrets"])
    project.watch("thing", inventory=inventory)


def test_a_role_runs_on_the_hosts_of_the_spec_with_a_lent_key(
    project: Project, things: Things, network: Network, lend: Lend
) -> None:
    one, two = network.host("web1"), network.host("web2")
    lend(
        ssh_privatekey=network.user_key.read_text(),
        username=USER,
        known_hosts=one.known_hosts() + two.known_hosts(),
    )
    project.role("thing", MARK)
    _watch(project)
    operator = project.start()
    hosts = [one.address, {"name": "second", "address": two.address, "vars": {"colour": "{{ 1 + 1 }}"}}]
    things.create("fleet", {"credentials": "login", "hosts": hosts})
    line = operator.await_line("Run ended", name="fleet")
    assert line["outcome"] == "succeeded", operator.log[-6000:]
    assert one.run("cat /tmp/mark") == f"fleet on {one.address}, none"
    assert two.run("cat /tmp/mark") == "fleet on second, {{ 1 + 1 }}"
