"""The example `fleet`: a web server on hosts with SSH, from the creation of the keys to the last removal."""

from __future__ import annotations

import contextlib
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit import ssh_hosts
from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from tests.integration.examples.deployed import Example, Install, Resources
    from tests.kit.ssh_hosts import Host, Network

# Many runs of Ansible a test: on a machine with much to do they take their time.
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.xdist_group("examples-fleet"),
    pytest.mark.skipif(bool(why := ssh_hosts.hindrance()), reason=why),
]

LABEL = "infra.example.com/lend-to-webserver"


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    with ssh_hosts.running(tmp_path / "network") as network:
        yield network


@pytest.fixture
def example(checkout: Install, network: Network) -> Example:
    """The operator, with the network of the hosts in watches.yaml as its page describes."""
    example = checkout("fleet")
    watches = example.folder / "watches.yaml"
    watches.write_text(watches.read_text().replace("192.0.2.0/24", network.addresses))
    example.sh("make", "deploy")
    example.start()
    return example


def named(*hosts: Host) -> list[dict[str, Any]]:
    return [{"name": host.name, "address": host.address, "user": ssh_hosts.USER} for host in hosts]


def page(host: Host) -> str:
    """Return the page that a host sends; empty if no server runs."""
    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{host.address}:8080/", timeout=5) as answer:
        return str(answer.read().decode().strip())
    return ""


def leftovers(host: Host) -> str:
    return host.run(
        "ls -d /srv/webserver /etc/webserver.port /run/webserver.pid 2>/dev/null; pgrep -af '[h]ttp.server'; true"
    )


def reported(servers: Resources, name: str) -> dict[str, dict[str, Any]]:
    """Return the results of the hosts by name."""
    return {each["name"]: each for each in servers.get(name).get("status", {}).get("hosts", [])}


def test_a_fleet_from_the_creation_of_its_keys_to_the_removal_of_its_last_host(
    example: Example, network: Network, namespace: str
) -> None:
    web1, web2, web3 = (network.host(f"web{number}", passwords=False) for number in (1, 2, 3))
    known = example.scratch / "known_hosts"
    known.write_text("".join(host.known_hosts() for host in (web1, web2, web3)))
    key = ssh_hosts.new_key(example.scratch / "id_ed25519")
    for host in (web1, web2, web3):
        host.run(f"echo '{key.with_suffix('.pub').read_text().strip()}' > /home/{ssh_hosts.USER}/.ssh/authorized_keys")
    secret = ("kubectl", "create", "secret", "generic", "shop-keys", f"--namespace={namespace}")
    values = (f"ssh-privatekey={key}", f"known_hosts={known}")
    become = f"--from-literal=become-password={ssh_hosts.BECOME_PASSWORD}"
    example.sh(*secret, "--type=kubernetes.io/ssh-auth", *(f"--from-file={each}" for each in values), become)

    servers = example.resources("WebServer", namespace)
    servers.create("shop", {"credentials": "shop-keys", "hosts": named(web1, web2, web3), "page": "Welcome"})
    refused = servers.await_condition("shop", "Failure", saying=f"{LABEL}=true")
    assert "kubectl label secret" in refused["message"]
    assert [page(host) for host in (web1, web2, web3)] == [""] * 3
    example.sh("kubectl", "label", "secret", "shop-keys", f"--namespace={namespace}", f"{LABEL}=true")
    servers.await_success("shop")
    assert [page(host) for host in (web1, web2, web3)] == ["Welcome"] * 3
    assert {name: each["failures"] for name, each in reported(servers, "shop").items()} == {
        "web1": 0,
        "web2": 0,
        "web3": 0,
    }
    example.settles(servers, "shop")

    # The first batch fails, so the other hosts keep the page.
    web1.cut()
    servers.change("shop", page="Sale")
    servers.await_condition("shop", "Failure", saying="web1")
    assert reported(servers, "shop")["web1"]["unreachable"]
    assert [page(host) for host in (web2, web3)] == ["Welcome"] * 2
    web1.mend()
    servers.await_success("shop")
    assert [page(host) for host in (web1, web2, web3)] == ["Sale"] * 3

    servers.change("shop", hosts=named(web1, web2))
    servers.await_success("shop")
    assert (page(web3), leftovers(web3)) == ("", "")
    wait_until(lambda: reported(servers, "shop").keys() == {"web1", "web2"}, "the removed host to leave the status")

    # Runs omit a host that a user removes while it is unreachable. The first run of the finalizer tries it again.
    web2.cut()
    servers.change("shop", hosts=named(web1))
    entry = {"removed": True, "unreachable": 1}
    wait_until(lambda: entry.items() <= reported(servers, "shop").get("web2", {}).items(), "web2 to be removed")
    web2.mend()
    servers.delete("shop")
    servers.await_gone("shop")
    assert page(web1) == ""
    assert [leftovers(host) for host in (web1, web2, web3)] == [""] * 3
    assert example.operator is not None
    assert ssh_hosts.BECOME_PASSWORD not in example.operator.log
    example.remove()
