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

from runner.engines.warm.modules import shell
from runner.engines.warm.modules.shell import Commands, Output, Shells

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


def test_the_name_of_the_folder_that_leads_there_is_kept(tmp_path: Path) -> None:
    folder, link = tmp_path / "folder", tmp_path / "link"
    folder.mkdir()
    link.symlink_to(folder)

    found = shell.environment(SH, PROGRAM, str(folder), {b"PWD": os.fsencode(link)})

    assert found[b"PWD"] == os.fsencode(link)


VENV = {
    "VIRTUAL_ENV": "/venv",
    "VIRTUAL_ENV_PROMPT": "(venv) ",
    "PS1": r"(venv) \u@\h:\w\$ ",
    "_OLD_VIRTUAL_PATH": "/usr/bin:/bin",
}
TMUX = {"TMUX": "/tmp/tmux-0/default,7,0", "TMUX_PANE": "%0", "TERM": "screen", "SHLVL": "3", "_": "/usr/bin/tmux"}
LOGIN = {
    "BASH_FUNC_which%%": "() {  ( alias; eval ${which_declare} ) | /usr/bin/which $@\n}",
    "HISTSIZE": "1000",
    "HISTCONTROL": "ignoredups",
    "IFS": ":",
    "LESSOPEN": "||/usr/bin/lesspipe %s",
    "LOGNAME": "root",
    "MAIL": "/var/spool/mail/root",
    "OPTIND": "3",
    "PS2": "more> ",
    "PS4": "+ $LINENO ",
    "SHELL": "/bin/bash",
    "SHLVL": "not a number",
}
EXPORTED = {
    "nothing": {},
    "other": {"PWD": "/", "OLDPWD": "/nowhere", "SHLVL": "4", "not-a-name": "1"},
    "tmux": TMUX,
    "all": VENV | TMUX | LOGIN,
}


@pytest.fixture(params=["dash", "bash", "bash as sh"])
def a_shell(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param != "bash as sh":
        return f"/bin/{request.param}"
    (tmp_path / "bin").mkdir()
    link = tmp_path / "bin" / "sh"
    link.symlink_to("/bin/bash")
    return str(link)


@pytest.mark.lengthy
@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("exported", EXPORTED.values(), ids=EXPORTED)
@pytest.mark.parametrize("outer", ["/bin/sh", "/bin/bash", ""])
def test_variables_of_interactive_shells_reach_a_program_as_through_real_shells(
    outer: str, exported: Mapping[str, str], tail: str, a_shell: str, tmp_path: Path
) -> None:
    shells = Shells(outer or a_shell, a_shell, tail)
    given = {os.fsencode(name): os.fsencode(value) for name, value in exported.items()}
    given |= {b"PATH": os.environb[b"PATH"], b"LC_ALL": b"C.UTF-8", b"A": b"\xc3\xa4 b"}

    found = shell.environment(shells, PROGRAM, str(tmp_path), given)

    expected = through_real_shells(shells, tmp_path, given)
    assert {os.fsdecode(name): os.fsdecode(value) for name, value in found.items()} == expected


def test_a_parent_that_is_exported_becomes_the_process_that_runs_the_task(tmp_path: Path) -> None:
    found = shell.environment(Shells("/bin/dash", "/bin/dash", ""), PROGRAM, str(tmp_path), {b"PPID": b"1"})

    assert found[b"PPID"] == b"%d" % os.getpid()


@pytest.mark.parametrize("name", [b"BASH_ENV", b"SHELLOPTS", b"BASHOPTS"])
def test_variables_that_change_how_bash_executes_commands_need_the_real_shell(name: bytes, tmp_path: Path) -> None:
    with pytest.raises(shell.Unlike):
        shell.environment(Shells("/bin/bash", "/bin/bash", ""), PROGRAM, str(tmp_path), {name: b""})


@pytest.mark.lengthy
@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_program_ended_by_a_signal_has_the_exit_code_of_real_shells(number: int, tail: str) -> None:
    shells = Shells("/bin/sh", "/bin/sh", tail)
    line = shells.line(
        f"{PROGRAM} -c 'import os, signal; signal.signal({int(number)}, signal.SIG_DFL) "
        f"if {int(number)} != 9 else 0; os.kill(os.getpid(), {int(number)})'"
    )
    expected = subprocess.run(["/bin/sh", "-c", line], capture_output=True, check=False)

    found = shell.ending(shells, Output(-number, b"", b""))

    assert (found.code, found.stderr) == (expected.returncode, expected.stderr)


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


def test_the_shell_reports_the_error_for_an_existing_folder(tmp_path: Path) -> None:
    plan = shell.make_folder(str(tmp_path.parent), tmp_path.name, 0o700)

    assert plan is not None
    assert plan() is None


@pytest.mark.parametrize("base", ["$HOME/tmp", "/tmp/a b", "/tmp/`id`", "relative"])
def test_paths_with_shell_syntax_are_left_to_the_shell(base: str) -> None:
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


def test_only_the_exact_command_line_has_a_shortcut() -> None:
    commands = Commands()
    commands.note("echo ~", lambda: "home\n")

    assert commands.find(SH.line("echo ~"), SH) is not None
    assert commands.find(SH.line("echo ~root"), SH) is None
    assert commands.find("echo ~", SH) is None
