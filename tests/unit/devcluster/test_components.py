from __future__ import annotations

import re
from pathlib import Path

from runner.sdk.devcluster.components import Ports, arguments
from runner.sdk.devcluster.layout import APISERVER, COMPONENTS, Layout
from runner.sdk.devcluster.supervisor import write_files

_PORTS = Ports(apiserver=20001, kwok=20002)


def test_nothing_listens_but_on_the_loopback_interface() -> None:
    for flags in arguments(_PORTS, ()).values():
        for flag in flags:
            name, _, value = flag.partition("=")
            if re.search(r"bind|listen|server-address|advertise-address", name):
                assert value.startswith(("127.0.0.1", "unix://")), flag
            if name == "--secure-port":
                assert value in {"0", "20001"}


def test_added_flags_of_the_api_server_come_last_so_that_they_win() -> None:
    flags = arguments(_PORTS, ("--min-request-timeout=5",))
    assert flags[APISERVER][-1] == "--min-request-timeout=5"
    assert not any("--min-request-timeout=5" in flags[name] for name in COMPONENTS if name != APISERVER)


def test_the_node_is_waited_for_longer_than_kwok_lets_it_be_silent() -> None:
    # kwok 0.7's stage `node-heartbeat-with-lease`: 600 s, up to 610 s with its jitter. It is used where no lease is.
    silent = 610
    (grace,) = [flag for flag in arguments(_PORTS, ())["kube-controller-manager"] if "node-monitor-grace" in flag]
    hours = re.fullmatch(r"--node-monitor-grace-period=(\d+)h", grace)
    assert hours is not None
    assert int(hours[1]) * 3600 > 10 * silent


def test_the_name_of_containers_for_commands_cannot_be_guessed_and_is_valid(tmp_path: Path) -> None:
    names = set()
    for number in range(3):
        layout = Layout(tmp_path / str(number))
        layout.run.mkdir(parents=True)
        write_files(layout, "mine", "https://127.0.0.1:20001")
        names.add(layout.exec_container.read_text())
    assert len(names) == 3
    assert all(re.fullmatch(r"exec-[0-9a-f]{32}", name) for name in names)
