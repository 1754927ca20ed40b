"""Commands of modules: how they start, and what they start with."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from ansible.module_utils import basic

from runner.engines.warm.modules import libraries

Started = list[dict[str, Any]]
SHOWS_UMASK = ["sh", "-c", "umask; trap"]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    """Return the options with which commands start, after the preparation."""
    begin, options_of_all = subprocess.Popen.__init__, []

    def record(self: Any, *args: Any, **options: Any) -> None:
        options_of_all.append(options)
        begin(self, *args, **options)

    monkeypatch.setattr(subprocess.Popen, "__init__", record)
    libraries.prepare_commands()
    return options_of_all


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> basic.AnsibleModule:
    monkeypatch.setattr(basic, "_ANSIBLE_ARGS", b'{"ANSIBLE_MODULE_ARGS": {}}')
    monkeypatch.setattr(basic, "_ANSIBLE_PROFILE", "legacy", raising=False)  # since ansible-core 2.19
    return basic.AnsibleModule(argument_spec={})


@pytest.mark.parametrize("umask", [None, 0, 0o27, 0o77])
def test_a_command_of_a_module_starts_without_a_fork_and_has_its_umask(
    umask: int | None, started: Started, module: basic.AnsibleModule
) -> None:
    own = os.umask(0o22)
    try:
        code, output, _ = module.run_command(SHOWS_UMASK, umask=umask)
        assert os.umask(0o22) == 0o22
    finally:
        os.umask(own)
    assert (code, int(output, 8)) == (0, umask or 0o22)
    assert [options["preexec_fn"] for options in started] == [None]


def test_a_command_of_a_module_has_the_same_signals_as_without_the_preparation(
    module: basic.AnsibleModule, request: pytest.FixtureRequest
) -> None:
    shows_signals = ["/bin/grep", "Sig", "/proc/self/status"]
    cold = module.run_command(shows_signals)
    request.getfixturevalue("started")
    assert module.run_command(shows_signals) == cold


def test_a_command_that_does_not_exist_fails_as_before(started: Started, module: basic.AnsibleModule) -> None:
    with pytest.raises(FileNotFoundError):
        module.run_command(["/does/not/exist"], handle_exceptions=False)
    assert len(started) == 1


def _of_ansible(function: Callable[[], object]) -> Callable[[], object]:
    function.__module__ = basic.__name__
    return function


def test_every_other_function_is_called_in_a_fork(started: Started) -> None:
    umask: Any = 0o27
    for function in (
        lambda: os.umask(umask),
        _of_ansible(lambda: [os.umask(umask), os.getpid()]),
        _of_ansible(lambda: os.nice(umask)),
        os.setsid,
    ):
        subprocess.run(["true"], preexec_fn=function, check=True)
        assert started[-1]["preexec_fn"] is function
        assert "umask" not in started[-1]
    umask = "odd"
    with pytest.raises(subprocess.SubprocessError, match="Exception occurred in preexec_fn"):
        subprocess.run(["true"], preexec_fn=_of_ansible(lambda: os.umask(umask)), check=True)
