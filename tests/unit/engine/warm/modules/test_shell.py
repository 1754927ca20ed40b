from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from runner.engine.warm.modules import shell
from runner.engine.warm.modules.shell import Commands, Output, Shells

PROGRAM = sys.executable
SH = Shells("/bin/sh", "/bin/sh", "")
TAILS = ("", " && sleep 0")
SHOW = "import json, os; print(json.dumps({k: v for k, v in os.environ.items()}))"


def through_real_shells(shells: Shells, folder: Path, given: Mapping[bytes, bytes]) -> dict[str, str]:
    line = shells.line(f"{PROGRAM} -c '{SHOW}'")
    done = subprocess.run(
        [shells.outer, "-c", line], env={**given}, cwd=folder, stdout=subprocess.PIPE, check=True, text=True
    )
    seen: dict[str, str] = json.loads(done.stdout)
    return seen


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("outer", ["/bin/sh", "/bin/bash"])
@pytest.mark.parametrize("inner", ["/bin/sh", "/bin/bash"])
def test_a_program_gets_the_environment_that_real_shells_give_it(
    outer: str, inner: str, tail: str, tmp_path: Path
) -> None:
    shells = Shells(outer, inner, tail)
    for extra in ({}, {b"PWD": b"/", b"OLDPWD": b"/nowhere", b"SHLVL": b"4", b"not-a-name": b"1"}):
        given = {b"PATH": os.environb[b"PATH"], b"LC_ALL": b"C.UTF-8", b"A": b"\xc3\xa4 b", **extra}

        expected = through_real_shells(shells, tmp_path, given)

        found = shell.environment(shells, PROGRAM, str(tmp_path), given)
        assert {os.fsdecode(name): os.fsdecode(value) for name, value in found.items()} == expected


def test_the_name_of_the_folder_that_leads_there_is_kept(tmp_path: Path) -> None:
    folder, link = tmp_path / "folder", tmp_path / "link"
    folder.mkdir()
    link.symlink_to(folder)

    found = shell.environment(SH, PROGRAM, str(folder), {b"PWD": os.fsencode(link)})

    assert found[b"PWD"] == os.fsencode(link)


def test_what_a_shell_would_make_of_its_own_variables_is_not_guessed(tmp_path: Path) -> None:
    with pytest.raises(shell.Unlike):
        shell.environment(Shells("dash", "dash", ""), PROGRAM, str(tmp_path), {b"IFS": b":"})


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_program_that_a_signal_ends_is_seen_as_through_real_shells(number: int, tail: str) -> None:
    shells = Shells("/bin/sh", "/bin/sh", tail)
    line = shells.line(
        f"{PROGRAM} -c 'import os, signal; signal.signal({int(number)}, signal.SIG_DFL) "
        f"if {int(number)} != 9 else 0; os.kill(os.getpid(), {int(number)})'"
    )
    expected = subprocess.run(["/bin/sh", "-c", line], capture_output=True, check=False)

    found = shell.ending(shells, Output(-number, b"", b""))

    assert (found.code, found.stderr) == (expected.returncode, expected.stderr)


def test_an_exit_code_stays_what_it_is() -> None:
    output = Output(3, b"out", b"err")

    assert shell.ending(SH, output) is output


def test_a_folder_and_its_missing_parents_are_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o277)
    try:
        plan = shell.make_folder(str(tmp_path / "a" / "b"), "name", 0o700)
        assert plan is not None
        printed = plan()
    finally:
        os.umask(before)

    path = tmp_path / "a" / "b" / "name"
    assert printed == f"name={path}\n"
    assert {stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent, path.parent.parent)} == {0o700}


def test_a_folder_that_is_there_is_left_to_the_shell_to_complain_about(tmp_path: Path) -> None:
    plan = shell.make_folder(str(tmp_path.parent), tmp_path.name, 0o700)

    assert plan is not None
    assert plan() is None


@pytest.mark.parametrize("base", ["$HOME/tmp", "/tmp/a b", "/tmp/`id`", "relative"])
def test_paths_that_a_shell_would_read_are_left_to_it(base: str) -> None:
    assert shell.make_folder(base, "name", 0o700) is None


def test_permissions_are_added_to_those_that_are_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    path.chmod(0o044)

    plan = shell.change_mode([str(path)], "u+rx")

    assert plan is not None
    assert plan() == ""
    assert stat.S_IMODE(path.stat().st_mode) == 0o544
    assert shell.change_mode([str(path)], "A+user:x:rx:allow") is None


def test_only_the_very_line_that_was_made_up_has_a_plan() -> None:
    commands = Commands()
    commands.note("echo ~", lambda: "home\n")

    assert commands.find(SH.line("echo ~"), SH) is not None
    assert commands.find(SH.line("echo ~root"), SH) is None
    assert commands.find("echo ~", SH) is None
