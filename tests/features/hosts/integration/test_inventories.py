"""Hosts that an inventory plugin of the project adds or groups, and hosts that Ansible does not reach through SSH."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.features.hosts.integration.test_hosts import MARK, failure_of, hosts_of, watch
from tests.kit import mariadb, ssh_hosts
from tests.kit.ssh_hosts import USER

if TYPE_CHECKING:
    from tests.features.hosts.integration.lending import Lend
    from tests.kit.objects import Api, Things
    from tests.kit.operator import Project
    from tests.kit.ssh_hosts import Network

on_hosts = pytest.mark.skipif(bool(why := ssh_hosts.hindrance()), reason=why)

CONSTRUCTED = """
plugin: ansible.builtin.constructed
strict: true
groups:
  blue: colour | default('') == 'blue'
compose:
  tint: colour | default('') | upper
"""
PLUGIN = '''
"""Hosts in a ConfigMap: names and addresses."""

import json
import os
import urllib.request
from pathlib import Path

from ansible.plugins.inventory import BaseInventoryPlugin

DOCUMENTATION = """
name: machines
short_description: Hosts in a ConfigMap
description: Hosts in a ConfigMap
options:
  plugin: {description: Its name., required: true}
  namespace: {description: Of the ConfigMap., required: true}
"""


class InventoryModule(BaseInventoryPlugin):
    NAME = "fleet.hosts.machines"

    def verify_file(self, path):
        return path.endswith("machines.yml")

    def parse(self, inventory, loader, path, cache=True):
        super().parse(inventory, loader, path, cache)
        self._read_config_data(path)
        config = json.loads(Path(os.environ["KUBECONFIG"]).read_text())
        url = config["clusters"][0]["cluster"]["server"]
        request = urllib.request.Request(f"{url}/api/v1/namespaces/{self.get_option('namespace')}/configmaps/machines")
        request.add_header("Authorization", f"Bearer {config['users'][0]['user']['token']}")
        with urllib.request.urlopen(request) as answer:
            machines = json.load(answer)["data"]
        for name, address in machines.items():
            inventory.add_host(name, group="hosts")
            inventory.set_variable(name, "ansible_host", address)
'''


@pytest.fixture
def database(tmp_path: Path) -> Iterator[mariadb.Server]:
    (tmp_path / "mariadb").mkdir()
    with mariadb.running(tmp_path / "mariadb") as server:
        yield server


@on_hosts
def test_constructed_groups_the_hosts_of_the_spec(
    project: Project, things: Things, network: Network, lend: Lend
) -> None:
    one, two = network.host("web1"), network.host("web2")
    lend(ssh_privatekey=network.user_key.read_text(), username=USER, known_hosts=one.known_hosts() + two.known_hosts())
    tasks = "".join(f"    {line}\n" for line in (MARK.strip() + "\n- debug: {msg: '{{ tint }}'}").splitlines())
    project.write("playbooks/blue.yml", f"- hosts: blue\n  gather_facts: false\n  tasks:\n{tasks}")
    project.write("inventories/colours.yml", CONSTRUCTED)
    project.grant([""], ["secrets"])
    inventory = {"hosts": "spec.hosts", "credentials": "spec.credentials", "file": "inventories/colours.yml"}
    more = {"vars": ["colour"], "allow": [network.addresses]}
    project.watch("", playbook="playbooks/blue.yml", inventory={**inventory, **more})
    operator = project.start()
    hosts = [
        {"name": "one", "address": one.address, "vars": {"colour": "blue"}},
        {"name": "two", "address": two.address, "vars": {"colour": "red"}},
    ]
    things.create("fleet", {"credentials": "login", "hosts": hosts})
    line = operator.await_line("Run ended", name="fleet")
    assert line["outcome"] == "succeeded", operator.log[-6000:]
    assert one.run("cat /tmp/mark") == "fleet on one, blue"
    assert two.run("ls /tmp") == ""
    assert [(each["name"], each.get("ok", 0)) for each in hosts_of(things, "fleet")] == [("one", 2), ("two", 0)]


@on_hosts
@pytest.mark.full
def test_an_inventory_plugin_reads_the_cluster_through_the_proxy(
    project: Project, api: Api, things: Things, network: Network, lend: Lend, namespace: str
) -> None:
    named, found = network.host("web1"), network.host("web2")
    lend(
        ssh_privatekey=network.user_key.read_text(),
        username=USER,
        known_hosts=named.known_hosts() + found.known_hosts(),
    )
    machines = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "machines"}, "data": {}}
    machines["data"] = {"found": found.address}
    api.apply(f"/api/v1/namespaces/{namespace}/configmaps/machines", machines)
    project.grant([""], ["configmaps"])
    project.write("collections/ansible_collections/fleet/hosts/plugins/inventory/machines.py", PLUGIN)
    project.write("inventories/machines.yml", f"plugin: fleet.hosts.machines\nnamespace: {namespace}\n")
    project.role("thing", MARK)
    watch(project, file="inventories/machines.yml")
    operator = project.start(f"--ansible-collections-path={project.folder / 'collections'}")
    things.create("fleet", {"credentials": "login", "hosts": [{"name": "named", "address": named.address}]})
    line = operator.await_line("Run ended", name="fleet")
    assert line["outcome"] == "succeeded", operator.log[-6000:]
    assert named.run("cat /tmp/mark") == "fleet on named, none"
    assert found.run("cat /tmp/mark") == "fleet on found, none"


def test_a_database_server_is_a_host_without_ssh(
    project: Project, things: Things, lend: Lend, database: mariadb.Server
) -> None:
    lend(username="root", password=mariadb.ROOT_PASSWORD)
    project.write(
        "playbooks/databases.yml",
        """
- hosts: databases
  connection: local
  gather_facts: false
  vars:
    ansible_python_interpreter: "{{ ansible_playbook_python }}"
  tasks:
    - name: Create the database
      community.mysql.mysql_db:
        name: "{{ name }}"
        login_host: "{{ ansible_host }}"
        login_port: "{{ ansible_port }}"
        login_user: "{{ ansible_user }}"
        login_password: "{{ ansible_password }}"
""",
    )
    project.grant([""], ["secrets"])
    inventory = {"hosts": "spec.servers", "credentials": "spec.login", "group": "databases", "allow": ["127.0.0.1/32"]}
    project.watch("", inventory=inventory, playbook="playbooks/databases.yml", retry={"delay": "1s"})
    operator = project.start()
    servers = [{"name": "main", "address": database.host, "port": database.port}]
    things.create("shop", {"login": "login", "servers": servers, "name": "shop"})
    line = operator.await_line("Run ended", name="shop")
    assert line["outcome"] == "succeeded", operator.log[-6000:]
    assert ["shop"] in database.sql("SHOW DATABASES")
    assert [(each["name"], each["changed"]) for each in hosts_of(things, "shop")] == [("main", 1)]

    database.stop()
    things.create("other", {"login": "login", "servers": servers, "name": "other"})
    assert "main" in failure_of(things, "other", "Failed")
    database.start()
    operator.await_line("Run ended", name="other", outcome="succeeded")
    assert ["other"] in database.sql("SHOW DATABASES")
    assert mariadb.ROOT_PASSWORD not in operator.log
