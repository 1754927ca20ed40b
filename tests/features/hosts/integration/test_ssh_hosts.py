"""The hosts that tests make leave nothing; what clients see of them is shown by the tests that use them."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.ssh_hosts import hindrance, running
from tests.kit.wait import wait_until

pytestmark = pytest.mark.skipif(bool(why := hindrance()), reason=why)


@pytest.mark.nightly
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
