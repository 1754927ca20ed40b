"""The hosts that tests make: OpenSSH's client sees of them what it sees of others."""

from __future__ import annotations

import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.kit.ssh_hosts import BECOME_PASSWORD, PASSWORD, USER, Host, Network, hindrance, new_key, running, sign
from tests.kit.wait import wait_until

pytestmark = pytest.mark.skipif(bool(why := hindrance()), reason=why)

PATIENCE = 60


def ssh(
    host: Host, known: str, *options: str, command: str = "hostname", password: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a command by OpenSSH's client, which trusts these lines of known_hosts."""
    trusted = host.log.with_name("known_hosts")
    trusted.write_text(known)
    methods = "password" if password else "publickey"
    given = (f"UserKnownHostsFile={trusted}", "StrictHostKeyChecking=yes", f"PreferredAuthentications={methods}")
    wrapper = ("sshpass", "-p", password) if password else ()
    client = ("ssh", "-F", "/dev/null", *(each for option in given for each in ("-o", option)), *options)
    target = f"{USER}@{host.address}"
    return subprocess.run(
        [*wrapper, *client, target, command],
        check=False,
        text=True,
        timeout=PATIENCE,
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )


def identity(key: Path) -> tuple[str, ...]:
    return ("-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none", "-i", str(key))


def test_a_host_admits_its_users_key_password_and_certificate_and_no_other(network: Network, tmp_path: Path) -> None:
    host = network.host("web1")
    known = host.known_hosts()
    assert ssh(host, known, *identity(network.user_key)).stdout == "web1\n"
    assert ssh(host, known, password=PASSWORD).stdout == "web1\n"
    assert "Permission denied" in ssh(host, known, password="another").stderr

    stranger = new_key(tmp_path / "stranger")
    assert "Permission denied" in ssh(host, known, *identity(stranger)).stderr
    certificate = sign(network.authority, stranger)
    certified = ssh(host, known, *identity(stranger), "-o", f"CertificateFile={certificate}")
    assert certified.stdout == "web1\n", certified.stderr

    root, own = map(shlex.quote, (BECOME_PASSWORD, PASSWORD))
    become = f"echo {root} | sudo -S -p '' id -un; echo {own} | sudo -k -S -p '' id -un || echo no"
    assert ssh(host, known, *identity(network.user_key), command=become).stdout == "root\nno\n"


def test_hosts_share_no_files_processes_or_addresses(network: Network) -> None:
    first, second = network.host("web1"), network.host("db1", passwords=False)
    first.run("echo only here > /etc/motd; echo $$ > /tmp/pid; (sleep 600 > /dev/null 2>&1 &)")
    assert second.run("cat /etc/motd; ls /tmp; pgrep -c sleep || true") == Path("/etc/motd").read_text() + "0\n"
    assert first.run("cat /etc/motd; pgrep -c sleep") == "only here\n1\n"
    assert first.address != second.address
    refused = ssh(second, second.known_hosts(), password=PASSWORD)
    assert "Permission denied" in refused.stderr


def test_a_host_that_answers_for_another_has_the_wrong_host_key(network: Network) -> None:
    web, impostor = network.host("web1"), network.host("web2")
    impostor.takes_over(web)
    refused = ssh(web, web.known_hosts(), *identity(network.user_key))
    assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in refused.stderr
    trusting = ssh(web, impostor.known_hosts(web.address), *identity(network.user_key))
    assert trusting.stdout == "web2\n", trusting.stderr


@pytest.mark.full
def test_a_cut_connection_hangs_until_the_cable_is_mended_and_a_reset_one_ends(network: Network) -> None:
    host = network.host("web1")
    key = identity(network.user_key)
    address = f"{USER}@{host.address}"
    trust = ("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null")

    def connected() -> subprocess.Popen[bytes]:
        echo = ["ssh", "-F", "/dev/null", *trust, *key, address, "cat"]
        client = subprocess.Popen(echo, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdin.write(b"one\n")
        client.stdin.flush()
        assert client.stdout.readline() == b"one\n"
        return client

    with connected() as client:
        assert client.stdin is not None
        assert client.stdout is not None
        host.cut()
        client.stdin.write(b"two\n")
        client.stdin.flush()
        refused = ssh(host, host.known_hosts(), "-o", "ConnectTimeout=1", *key)
        assert "Connection timed out" in refused.stderr
        assert client.poll() is None
        host.mend()
        assert client.stdout.readline() == b"two\n"
        host.reset()
        assert client.wait(PATIENCE) != 0
    assert ssh(host, host.known_hosts(), *key).stdout == "web1\n"


@pytest.mark.full
def test_an_address_without_a_host_is_silent_and_a_slow_host_is_slow(network: Network) -> None:
    silent = network.black_hole()
    with pytest.raises(TimeoutError):
        socket.create_connection((silent, 22), timeout=0.5)
    slow = network.host("slow", delay=0.1)
    began = time.monotonic()
    assert ssh(slow, slow.known_hosts(), *identity(network.user_key)).stdout == "slow\n"
    assert time.monotonic() - began > 1  # at least five exchanges


@pytest.mark.full
def test_nothing_of_a_network_is_left_even_if_its_process_is_killed(tmp_path: Path) -> None:
    with running(tmp_path / "first") as network:
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
