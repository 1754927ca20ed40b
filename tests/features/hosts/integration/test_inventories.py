"""Hosts of an inventory plugin, of a run in a pod and without SSH, and what the hosts of tests leave."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runner.app.features import CALLBACKS
from runner.core.watches.watch import Playbook
from runner.engines.pod import payload
from runner.features.hosts.inventory import Credentials, Host, Hosts
from tests.features.hosts.integration.test_hosts import MARK, failure_of, hosts_of, watch
from tests.kit import mariadb, ssh_hosts
from tests.kit.jobs import job_value
from tests.kit.ssh_hosts import USER
from tests.kit.wait import wait_until

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


PLAY = """
- hosts: web
  gather_facts: false
  tasks:
  - name: Mark it
    ansible.builtin.raw: echo {{ of_the_project }} {{ of_the_group }} >/tmp/mark
"""


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a path that is short, as in a pod: ssh makes a socket below it."""
    with tempfile.TemporaryDirectory(prefix="hosts-") as folder:
        yield Path(folder)


@on_hosts
def test_an_order_contains_all_that_a_pod_needs_to_reach_hosts(
    network: Network, tmp_path: Path, short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, work = network.host("web1"), short / "work"
    for name, text in {
        "playbooks/site.yml": PLAY,
        "inventories/base.yml": "web: {vars: {of_the_project: from the inventory}}",
        "inventories/group_vars/web.yml": "of_the_group: and its group",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    credentials = Credentials(network.user_key.read_text(), username=USER, known_hosts=host.known_hosts())
    of_run = Hosts(
        "web",
        (Host("web1", host.address, host.address),),
        tmp_path / "inventories/base.yml",
        credentials,
        first_use=False,
    )
    job = job_value(content=Playbook(tmp_path / "playbooks/site.yml"), inventory=of_run)
    # The folder in the pod is one of this machine here.
    monkeypatch.setattr(payload, "PRIVATE_DATA", str(work))
    monkeypatch.setattr(payload, "_TEMPORARY", str(work / "tmp"))
    order = tmp_path / "order"
    payload.write(job, order, {}, tmp_path, CALLBACKS)
    programs = Path(sys.executable).parent
    runner = [str(programs / "ansible-runner"), "worker", "--private-data-dir", str(work)]
    environ = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    with order.open("rb") as stdin:
        done = subprocess.run(runner, check=False, stdin=stdin, capture_output=True, cwd=tmp_path, env=environ)
    assert b'"status": "successful"' in done.stdout, done.stdout[-6000:].decode() + done.stderr.decode()
    assert host.run("cat /tmp/mark") == "from the inventory and its group\n"
    assert credentials.private_key.splitlines()[2].encode() not in done.stdout + done.stderr


@on_hosts
@pytest.mark.nightly
def test_nothing_of_a_network_is_left_even_if_its_process_is_killed(tmp_path: Path) -> None:
    with ssh_hosts.running(tmp_path / "first") as network:
        ours = f"ssh{network.host('web1').address.split('.')[2]}-"
        assert any(name.startswith(ours) for _, name in socket.if_nameindex())
    wait_until(lambda: not any(name.startswith(ours) for _, name in socket.if_nameindex()), "the interfaces to go")

    script = (
        "import sys, time, pathlib; from tests.kit import ssh_hosts\n"
        "with ssh_hosts.running(pathlib.Path(sys.argv[1])) as network:\n"
        "    print(network.host('web1').address, flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "killed")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address.startswith("10.213.")
        process.send_signal(signal.SIGKILL)
    theirs = f"ssh{address.split('.')[2]}-"
    wait_until(lambda: not any(name.startswith(theirs) for _, name in socket.if_nameindex()), "the interfaces to go")
