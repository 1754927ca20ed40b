"""The build of missing programs ends with the command that started it. A script replaces Go."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.kit.wait import patience, wait_until

# Builds for ever: Go itself, and a compiler below it. Both are found by their argument, the file to build.
_GO = """#!/bin/sh
[ "$1" = version ] && { echo go version go1.25.1 linux/amd64; exit; }
while [ "$1" != -o ]; do shift; done
sh -c 'sleep 1000; :' "compiler of $2" &
wait
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """No program is installed, no release can be downloaded, and Go builds for ever."""
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text(_GO)
    go.chmod(0o755)
    (tmp_path / "watches.yaml").write_text("[]\n")
    kept = {name: value for name, value in os.environ.items() if name not in {"KUBECONFIG", "KUBEBUILDER_ASSETS"}}
    return {
        **kept,
        "PATH": f"{go.parent}:{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "TMPDIR": str(tmp_path),
        "https_proxy": "http://127.0.0.1:9",
        "no_proxy": "",
    }


@pytest.mark.parametrize(
    ("command", "ending"),
    [
        (("dev", "--name", "building"), signal.SIGINT),
        (("cluster", "build"), signal.SIGTERM),
        (("cluster", "build"), signal.SIGKILL),
    ],
    ids=["dev", "terminated", "killed"],
)
def test_a_signal_during_the_build_ends_the_command_go_and_its_compilers(
    environ: dict[str, str],
    tmp_path: Path,
    processes_in: Callable[[Path], list[str]],
    command: Sequence[str],
    ending: signal.Signals,
) -> None:
    def building() -> list[str]:
        return [each for each in processes_in(tmp_path / "cache") if "compiler of" in each or " build " in each]

    # A job in the background of a shell ignores SIGINT, and so would all that it starts.
    program = ["env", "--default-signal=INT", sys.executable, "-m", "runner", *command]
    with subprocess.Popen(program, cwd=tmp_path, env=environ) as process:
        try:
            wait_until(lambda: any("compiler of" in each for each in building()))
            process.send_signal(ending)
            process.wait(patience())
        finally:
            process.kill()
    wait_until(lambda: building() == [])
    wait_until(lambda: not list(tmp_path.glob("tmp*")))
    if ending is not signal.SIGKILL:
        assert process.returncode in {128 + ending, -ending}
