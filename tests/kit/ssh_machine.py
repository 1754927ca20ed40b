"""One Linux host of `ssh_hosts.py`: its own network, files, processes and name, in which OpenSSH's server runs.

Run as a script: it makes the namespaces and writes a line. It then reads a line, the `Machine` as JSON, when its parent
has added the network interface. When it ends, the kernel ends all processes of the host, and removes the interface and
everything that they wrote.

Must import only the standard library and two neighbours of the local control plane: it runs with `python -I -S`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runner.sdk.devcluster import leash, namespaces
else:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "runner/sdk/devcluster"))  # `-I` leaves it out
    import leash
    import namespaces

_NEW_MOUNTS, _NEW_NETWORK, _NEW_PROCESSES, _NEW_NAME = 0x20000, 0x40000000, 0x20000000, 0x04000000  # unshare(2)
_RECURSIVE_PRIVATE = 0x4000 | 1 << 18  # mount(2)
_OWN = ("/etc", "/var", "/root", "/srv", "/opt")
"""The machine's folders, whose changes the host keeps in memory."""
_EMPTY = {"/run": "0755", "/home": "0755", "/tmp": "1777"}
_SSHD = """\
HostKey /etc/ssh/host_key
TrustedUserCAKeys /etc/ssh/user_ca.pub
PermitRootLogin no
KbdInteractiveAuthentication no
UseDNS no
PrintMotd no
PrintLastLog no
PidFile none
MaxStartups 200
Subsystem sftp internal-sftp
"""


def main() -> int:
    """Make the namespaces, wait for the network interface, and run the host until its first process ends."""
    leash.call("unshare", _NEW_MOUNTS | _NEW_NETWORK | _NEW_PROCESSES | _NEW_NAME)
    sys.stdout.write("made\n")
    sys.stdout.flush()
    machine = json.loads(sys.stdin.readline())
    return leash.in_child(lambda: first_process(machine))


def first_process(machine: dict[str, Any]) -> None:
    """Prepare the host, start the server, and reap orphans until it ends."""
    try:
        prepare(machine)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"cannot prepare the host: {error}\n")
        os._exit(1)
    server = subprocess.Popen(["/usr/sbin/sshd", "-D", "-e"])
    while True:
        if os.wait()[0] == server.pid:
            os._exit(1)


def prepare(machine: dict[str, Any]) -> None:
    """Make the files, users and addresses of a host."""
    namespaces.mount("none", "/", flags=_RECURSIVE_PRIVATE)
    namespaces.mount("proc", "/proc", kind="proc")
    namespaces.mount("tmpfs", "/mnt", kind="tmpfs", data="mode=0755")
    for folder in _OWN:
        namespaces.shield(Path("/mnt"), folder)
    for folder, mode in _EMPTY.items():
        namespaces.mount("tmpfs", folder, kind="tmpfs", data=f"mode={mode}")
    name = machine["name"].encode()
    leash.call("sethostname", name, len(name))
    Path("/etc/hosts").write_text(f"127.0.0.1 localhost {machine['name']}\n")
    Path("/run/sshd").mkdir(mode=0o755)
    _users(machine)
    _server(machine)
    for command in (
        "ip link set lo up",
        f"ip address add {machine['address']} peer {machine['gateway']}/32 dev eth0",
        "ip link set eth0 up",
        f"ip neighbour replace {machine['gateway']} lladdr {machine['gateway_mac']} dev eth0 nud permanent",
    ):
        subprocess.run(command.split(), check=True)


def _users(machine: dict[str, Any]) -> None:
    """Make the user, who may become root with root's password."""
    user = machine["user"]
    subprocess.run(["/usr/sbin/useradd", "--create-home", "--shell=/bin/sh", user], check=True)
    passwords = f"{user}:{machine['password']}\nroot:{machine['become_password']}\n"
    # Hashed here: PAM may ask for a daemon that this host does not run.
    subprocess.run(["/usr/sbin/chpasswd", "--crypt-method=SHA512"], input=passwords, text=True, check=True)
    folder = Path("/home", user, ".ssh")
    folder.mkdir(mode=0o700)
    (folder / "authorized_keys").write_text(machine["authorized_keys"])
    subprocess.run(["chown", "-R", f"{user}:", str(folder)], check=True)
    defaults = "Defaults rootpw\nDefaults secure_path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
    Path("/etc/sudoers").write_text(f"{defaults}{user} ALL=(ALL:ALL) ALL\nroot ALL=(ALL:ALL) ALL\n")


def _server(machine: dict[str, Any]) -> None:
    """Write the configuration of OpenSSH's server."""
    folder = Path("/etc/ssh")
    for name in ("host_key", "user_ca.pub"):
        file = folder / name
        file.touch(mode=0o600)
        file.write_text(machine[name])
    own = {"ListenAddress": machine["listen"], "PasswordAuthentication": machine["password_login"]}
    lines = "".join(f"{name} {value}\n" for name, value in own.items())
    (folder / "sshd_config").write_text(_SSHD + lines)


if __name__ == "__main__":
    sys.exit(main())
