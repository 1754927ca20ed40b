"""Where `ansible-operator dev` shows its board, and what it says where it cannot begin."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from runner.cli.main import BAD_INPUT, main
from runner.sdk.dev import screen as screens
from runner.sdk.dev.board import LiveView
from runner.sdk.dev.screen import Screen

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
    monkeypatch.setenv("NO_COLOR", "1")
    shown = Terminal()
    screen = Screen(LiveView(), shown)
    screen.take(LINE)
    screen.take("no event")
    screen.stop(2.0)
    screen.close()
    before, empty, picture, stopping = shown.getvalue().split("\x1b[H\x1b[J")
    assert before == "\x1b[?1049h\x1b[?25l"
    assert empty == "The operator starts …\nLATEST\n"
    assert picture == "The operator starts …\nLATEST\nwatching example.com/v1, Kind=Thing\n"
    assert stopping.startswith("Stopping\nLATEST\n")
    assert stopping.endswith("\x1b[?25h\x1b[?1049l")


def test_colours_are_shown_on_a_terminal_that_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    shown = Terminal()
    Screen(LiveView(), shown).take('{"msg": "Odd \\u001b[2J", "level": "error"}')
    assert "\x1b[31merror: Odd \\x1b[2J\x1b[0m" in shown.getvalue()


def test_a_terminal_that_was_closed_does_not_prevent_the_stop() -> None:
    class Closed(Terminal):
        def write(self, _: str) -> int:
            raise OSError(5, "Input/output error")

    screen = Screen(LiveView(), Closed())
    screen.stop(2.0)
    screen.close()


def test_the_objects_are_those_of_the_status_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    shown, view = Terminal(), LiveView()
    screen = Screen(view, shown)
    thing = {"kind": "Thing", "namespace": "a", "name": "one", "state": "ready"}
    answers = {"overview": {"kinds": []}, "objects": {"objects": [thing], "total": 1}}
    monkeypatch.setattr(screens, "_read", lambda url: answers[url.removeprefix("http://127.0.0.1:1/api/")])
    screen.refresh()
    assert "Thing a/one" not in shown.getvalue()
    view.page = "http://127.0.0.1:1/"
    screen.refresh()
    assert "Thing a/one  ready\n" in shown.getvalue()
    monkeypatch.setattr(screens, "_read", lambda _: json.loads("{"))
    screen.refresh()


def test_an_error_of_the_operator_before_its_log_is_the_last_line() -> None:
    screen = Screen(LiveView(), io.StringIO())
    screen.take("error: watches.yaml: there is no such file\n")
    assert screen.last == "error: watches.yaml: there is no such file"


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
