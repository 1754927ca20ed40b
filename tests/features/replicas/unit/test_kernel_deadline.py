"""The kernel's timer that ends a process which cannot end itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.kit.wait import patience

pytestmark = [pytest.mark.lengthy, pytest.mark.skipif(sys.platform != "linux", reason="only Linux has the timer")]

_STOPPED = """
import os, signal
from runner.features.replicas import kernel_deadline
switch = kernel_deadline.make()
switch.arm(kernel_deadline.clock() + 60)
switch.arm(kernel_deadline.clock() + {seconds})
{then}
"""


def run(seconds: float, then: str) -> int:
    command = [sys.executable, "-c", _STOPPED.format(seconds=seconds, then=then)]
    return subprocess.run(command, check=False, timeout=patience(), env={**os.environ}).returncode


def test_a_stopped_process_is_ended() -> None:
    assert run(0.1, "os.kill(os.getpid(), signal.SIGSTOP)") == -signal.SIGKILL


def test_a_time_that_is_past_ends_the_process_before_its_next_step() -> None:
    assert run(-5, "os._exit(7)") == -signal.SIGKILL


def test_a_disarmed_deadline_does_not_end_the_process() -> None:
    assert run(0.1, "switch.arm(None); import time; time.sleep(0.3); os._exit(7)") == 7
