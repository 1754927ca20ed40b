"""Where `ansible-operator dev` shows its board, and what it says where it cannot begin."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from runner.cli.main import BAD_INPUT, main
from runner.sdk.dev.board import LiveView, Screen

LINE = '{"msg": "Watching", "level": "info", "gvk": "example.com/v1, Kind=Thing"}'


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_without_a_terminal_each_line_is_printed_once() -> None:
    shown = io.StringIO()
    screen = Screen(LiveView(), shown)
    screen.take(LINE)
    screen.take("----- a block -----")
    screen.refresh()
    screen.close()
    assert shown.getvalue() == "watching example.com/v1, Kind=Thing\n"


def test_a_terminal_shows_the_picture_and_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "5")
    shown = Terminal()
    screen = Screen(LiveView(), shown)
    screen.take(LINE)
    screen.close()
    before, empty, picture = shown.getvalue().split("\x1b[H\x1b[J")
    assert before == "\x1b[?1049h\x1b[?25l"
    assert "example.com/v1," not in empty
    assert picture.endswith("\x1b[?25h\x1b[?1049l")
    assert [line.split(" ")[0] for line in picture.splitlines()[:3]] == ["KIND", "example.com/v1,", "LATEST"]


def test_an_error_of_the_operator_before_its_log_is_the_last_line() -> None:
    screen = Screen(LiveView(), io.StringIO())
    screen.take("error: watches.yaml: there is no such file\n")
    assert screen.last == "error: watches.yaml: there is no such file"


def test_outside_of_a_project_the_error_names_the_missing_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["dev"]) == BAD_INPUT
    assert f"no watches.yaml in this folder ({tmp_path}); run the command in a project's" in capsys.readouterr().err


def test_a_cluster_without_kubectl_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("watches.yaml", "kubeconfig"):
        (tmp_path / name).write_text("[]")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    assert main(["dev", "--kubeconfig=kubeconfig"]) == BAD_INPUT
    assert "kubectl is not in PATH" in capsys.readouterr().err


def test_a_kubeconfig_that_does_not_exist_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "watches.yaml").write_text("[]")
    monkeypatch.chdir(tmp_path)
    kubectl = tmp_path / "kubectl"
    kubectl.write_text("#!/bin/sh\n")
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert main(["dev", "--kubeconfig=gone"]) == BAD_INPUT
    assert "--kubeconfig gone: no such file" in capsys.readouterr().err
