"""What the help of each command shows, at each width of the terminal, and in the image of an operator."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.cli import main, text
from tests.kit.places import ROOT


def _parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for sub in action.choices.values():
                yield from _parsers(sub)


PARSERS = {parser.prog: parser for parser in _parsers(main._parser()[0])}


@pytest.mark.parametrize("command", PARSERS)
def test_the_help_of_a_command_has_one_form_of_usage_a_description_and_an_example(command: str) -> None:
    printed = PARSERS[command].format_help()
    for line in printed.split("\n\n")[0].removeprefix("usage: ").splitlines():
        form = line.strip().removeprefix(command)
        assert re.fullmatch(r" COMMAND( \[flags\])?|( --?\w+| \[?[A-Z/]+\]?| \[--delete\])*( \[.*\])", form), form
    assert re.match(r"[A-Z].*\.", PARSERS[command].description or "", re.DOTALL)
    assert re.search(rf"^  {command}( |$)", PARSERS[command].epilog or "", re.MULTILINE)


@pytest.mark.parametrize("columns", [60, 80, 200])
@pytest.mark.parametrize("command", PARSERS)
def test_the_help_of_a_command_fits_the_terminal_and_breaks_no_word(
    command: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    parser = PARSERS[command]
    printed = parser.format_help()
    assert [line for line in printed.splitlines() if len(line) > columns and " " in line.strip()] == []
    texts = [parser.description, parser.epilog, *(action.help for action in parser._actions)]
    words = {word for given in texts if given and given != argparse.SUPPRESS for word in given.split()}
    assert words <= set(printed.split())


@pytest.mark.parametrize("command", PARSERS)
def test_the_examples_of_a_command_are_not_wrapped_in_a_terminal_of_80_columns(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = PARSERS[command].format_help().splitlines()
    for example in re.findall(r"^  ansible-operator .*?(?=    |$)", PARSERS[command].epilog or "", re.MULTILINE):
        assert any(line.startswith(example) for line in lines)


def test_the_commands_are_listed_once_in_the_order_of_their_use() -> None:
    parser, helps = main._parser()
    listed = re.findall(r"^(\w+:)$|^  (\w+)  ", parser.format_help().partition("\n\nexamples:")[0], re.MULTILINE)
    names = [name for _, name in listed if name]
    assert sorted(names) == sorted(helps)
    assert [heading for heading, _ in listed if heading] == ["options:", "start:", "develop:", "look:", "ship:"]
    assert names[:4] == ["init", "create", "migrate", "dev"]


def test_a_heading_without_commands_is_not_shown() -> None:
    shown = text.overview({"run": "run the operator", "logs": "show the output"})
    assert "start:" not in shown
    assert "look:\n  logs      show the output\n\nship:\n  run       run the operator\n" in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            "cluster up --node=fak",
            "argument --node: invalid choice: 'fak' (choose from real, fake, both); did you mean fake?; see `ansible",
        ),
        ("plan --all --output=jsn", "argument --output: invalid choice: 'jsn' (choose from text, json); did you mean"),
        (
            "rollout paus Shop",
            "argument VERB: invalid choice: 'paus' (choose from status, pause, resume, restart); did",
        ),
        ("create apis", "argument COMMAND: invalid choice: 'apis' (choose from api); did you mean api?; see `ansible"),
        ("cluster up --nod=fake", "unknown flag --nod; did you mean --node?; see `ansible-operator cluster up --help`"),
        ("cluster up more", "unexpected argument 'more' of `cluster up`; see `ansible-operator cluster up --help`"),
        ("dev --nam=x", "unknown flag --nam; did you mean --name?; see `ansible-operator dev --help`"),
    ],
)
def test_a_wrong_word_is_answered_with_the_words_that_are_possible(
    arguments: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(arguments.split()) in {1, 2}
    assert capsys.readouterr().err.startswith(f"error: {said}")


@pytest.mark.lengthy
def test_an_operator_without_the_packages_for_authors_has_only_its_own_commands(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "runner", tmp_path / "runner", ignore=shutil.ignore_patterns("sdk", "__pycache__"))

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "runner", *arguments]
        return subprocess.run(command, cwd=tmp_path, text=True, capture_output=True, check=False)

    listed = re.findall(r"^  (\w+)  ", call("--help").stdout, re.MULTILINE)
    assert listed == ["logs", "rollout", "run", "version"]
    refused = call("init")
    assert refused.returncode == 2
    assert "unknown command init (the image of an operator has no commands for authors)" in refused.stderr
    assert "no run is kept below none" in call("logs", "Memcached/sample", "--runner-dir=none").stderr
    assert "watches.yaml" in call("run").stderr
