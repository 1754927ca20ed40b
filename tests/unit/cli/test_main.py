from __future__ import annotations

from pathlib import Path

import pytest

from runner.base.config import options
from runner.base.config.settings import OPTIONS
from runner.cli import main


def test_no_arguments_print_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main([]) == 0
    printed = capsys.readouterr().out
    for command in ("run", "validate", "version", "cluster"):
        assert f"\n  {command} " in printed


@pytest.mark.parametrize("arguments", [["run", "--help"], ["help", "run"], ["run", "-h"]], ids=" ".join)
def test_the_help_of_run_names_every_flag_its_default_and_its_variable(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(arguments) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for option in OPTIONS:
        assert f"--{option.flag} " in printed
        assert f"${option.other_variable}" in printed or not option.other_variable
        assert f"[{option.default}]" in printed or not option.default
    assert "ANSIBLE_OPERATOR_<FLAG>" in printed


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["rum"], "unknown command rum; did you mean run?; see `ansible-operator --help`"),
        (
            ["run", "--watch-file=x"],
            "unknown flag --watch-file; did you mean --watches-file?; see `ansible-operator run",
        ),
        (["run", "--zzz"], "unknown flag --zzz; see `ansible-operator run --help`"),
        (["run", "more"], "unexpected argument 'more' of `run`; see `ansible-operator run --help`"),
        (
            ["validate", "--stric"],
            "unknown flag --stric; did you mean --strict?; see `ansible-operator validate --help`",
        ),
        (["run", "--namespace"], "argument --namespace: expected one argument; see `ansible-operator run --help`"),
        (["run", "--reconcile-period=soon"], "--reconcile-period: invalid duration 'soon'"),
        (["run", "--leader-elect"], "--leader-elect requires --leader-election-id"),
        (["--zzz"], "unknown flag --zzz"),
    ],
)
def test_invalid_arguments_print_one_line_and_have_exit_code_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"error: {said}")
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no object is given: write KIND/NAME"),
        (["Memcached/a", "--al"], "unknown flag --al; did you mean --all?; see `ansible-operator plan --help`"),
        (["Memcached/a", "--output", "yaml"], "argument --output: invalid choice: 'yaml'"),
        (["Memcached/a", "--engine=fast"], "--engine: "),
        (["Memcached/a", "--watches-file=missing.yaml"], "missing.yaml: "),
    ],
)
def test_what_plan_cannot_use_is_exit_code_1_because_2_means_changes(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["plan", *arguments]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"error: {said}")


@pytest.mark.parametrize(
    ("arguments", "today"),
    [
        ("new memcached-operator --type=ansible", "`ansible-operator init`"),
        ("add api --api-version=a/v1 --kind=K", "`ansible-operator create api`"),
        ("up local --namespace=default", "`ansible-operator run`"),
        ("exec-entrypoint ansible --watches-file=watches.yaml", "`ansible-operator run`"),
        ("run ansible --watches-file=watches.yaml", "`ansible-operator run`"),
        ("run --local", "`ansible-operator run`"),
    ],
)
def test_commands_of_older_sdks_are_answered_with_todays(
    arguments: str, today: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(arguments.split()) == 2
    assert today in capsys.readouterr().err


@pytest.fixture
def a_removed_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(options.REMOVED, "old-way", "use --new-way")


@pytest.mark.usefixtures("a_removed_flag")
@pytest.mark.parametrize("form", [["--old-way=3"], ["--old-way", "3"], ["--old-way"]], ids=" ".join)
@pytest.mark.parametrize("command", ["run", "validate"])
def test_a_removed_flag_is_one_error_with_advice(
    command: str, form: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main([command, *form]) == 2
    assert capsys.readouterr().err == "error: --old-way was removed: use --new-way\n"


@pytest.mark.usefixtures("a_removed_flag")
@pytest.mark.parametrize("command", ["run", "validate"])
def test_the_variable_of_a_removed_flag_is_one_error_with_advice(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ANSIBLE_OPERATOR_OLD_WAY", "3")
    assert main.main([command]) == 2
    said = "environment variable ANSIBLE_OPERATOR_OLD_WAY: --old-way was removed: use --new-way"
    assert capsys.readouterr().err == f"error: {said}\n"


@pytest.mark.parametrize(
    "flags",
    [
        ["--watches-file=none.yaml"],
        ["--watches-file", "none.yaml"],
        ["--watches-file", "none.yaml", "--leader-elect", "false"],
        ["--leader-elect=false", "--zap-devel", "--watches-file=none.yaml"],
        ["--ansible-args", "--diff", "--watches-file", "none.yaml", "--zap-log-level", "info"],
    ],
    ids=" ".join,
)
def test_a_flag_may_be_given_in_each_of_its_forms(
    flags: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.main(["run", *flags]) == 2
    assert capsys.readouterr().err == f"error: none.yaml: file not found ({tmp_path}/none.yaml)\n"


@pytest.mark.parametrize("command", ["validate", "run", "dev", "generate crds", "plan --all"])
@pytest.mark.parametrize("is_below", [True, False])
def test_outside_of_a_project_the_error_says_where_to_run_the_command(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, is_below: bool
) -> None:
    project, folder = tmp_path / "shop", tmp_path / "shop/roles/shop"
    folder.mkdir(parents=True)
    if is_below:
        (project / "watches.yaml").write_text("[]\n")
    monkeypatch.chdir(folder)
    assert main.main(command.split()) != 0
    advice = f"the project's folder {project}" if is_below else "a project's folder, or create a project with `init`"
    said = f"error: no watches.yaml in this folder ({folder}); run the command in {advice}\n"
    assert capsys.readouterr().err == said
