"""The order of a run in a pod, executed as its agent does, on real hosts."""

from __future__ import annotations

import os
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
from tests.kit import ssh_hosts
from tests.kit.jobs import job_value
from tests.kit.ssh_hosts import USER

if TYPE_CHECKING:
    from tests.kit.ssh_hosts import Network

pytestmark = pytest.mark.skipif(bool(ssh_hosts.hindrance()), reason=ssh_hosts.hindrance())
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
