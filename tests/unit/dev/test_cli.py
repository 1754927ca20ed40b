"""`ansible-operator dev` in a project's folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from runner.cli import main
from runner.sdk.devcluster import chosen, named
from runner.values.errors import ClusterError
from tests.kit.wait import patience


def write_kubectl(folder: Path) -> None:
    """Write a kubeconfig `given`, and a kubectl that prints the selected file."""
    config = {
        "current-context": "prod",
        "contexts": [{"name": "prod", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://prod.example.com:6443"}}],
    }
    (folder / "given").write_text(yaml.safe_dump(config))
    kubectl = folder / "kubectl"
    kubectl.write_text('#!/bin/sh\n[ "$1" = config ] && exec cat "$KUBECONFIG"\necho "$@" >>writes\n')
    kubectl.chmod(0o755)


@pytest.mark.lengthy
def test_a_module_of_the_project_shadows_none_of_the_operator(tmp_path: Path) -> None:
    (tmp_path / "yaml.py").write_text("raise SystemExit('shadowed')\n")
    (tmp_path / "watches.yaml").write_text("- {kind: Shop}\n")
    done = subprocess.run(
        [Path(sys.executable).with_name("ansible-operator"), "dev", "--kubeconfig=given"],
        cwd=tmp_path,
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(),
    )
    assert done.returncode == 2
    assert "shadowed" not in done.stdout + done.stderr
    assert "watches.yaml:1" in done.stderr


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a CRD, beside the kubeconfig of another cluster."""
    write_kubectl(tmp_path)
    (tmp_path / "watches.yaml").write_text("- {group: example.com, version: v1, kind: Shop, playbook: shop.yml}\n")
    (tmp_path / "shop.yml").write_text("- {hosts: localhost, tasks: []}\n")
    (tmp_path / "config/crd/bases").mkdir(parents=True)
    (tmp_path / "config/crd/bases/shops.yaml").write_text("kind: CustomResourceDefinition\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path


def test_dev_ignores_the_kubeconfig_of_the_environment(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(project / "given"))

    def start(*_: object) -> None:
        raise ClusterError("the separate control plane")

    monkeypatch.setattr(named, "foreground", start)
    assert main.main(["dev", "--node=fake"]) != 0
    printed = capsys.readouterr()
    assert printed.out.startswith(f"KUBECONFIG={project / 'given'} is ignored: a separate control plane starts.")
    assert "the separate control plane" in printed.err
    assert not (project / "writes").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_during_the_start_ends_dev_also_that_of_a_closed_terminal(
    project: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.setattr(named, "foreground", lambda *_: signal.raise_signal(number))
    assert main.main(["dev", "--node=fake"]) == 128 + number
    assert not (project / "writes").exists()


def test_a_wrong_role_is_reported_before_a_control_plane_starts(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(named, "foreground", lambda *_: pytest.fail("the control plane starts"))
    (project / "watches.yaml").write_text("- {group: example.com, version: v1, kind: Shop, role: shp}\n")
    assert main.main(["dev", "--node=fake"]) == main.BAD_INPUT
    printed = capsys.readouterr()
    assert printed.err.startswith("error: watches.yaml:1: example.com/v1, Kind=Shop: role: 'shp' not found")
    assert not printed.out


def test_dev_asks_before_it_changes_a_selected_cluster(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def answer(question: str) -> str:
        asked.append(question)
        return ""

    monkeypatch.setattr("builtins.input", answer)
    monkeypatch.setattr(chosen, "is_terminal", lambda: True)
    assert main.main(["dev", "--kubeconfig=given"]) != 0
    assert asked == ["Apply the CRDs of config/crd/bases and run the operator in this cluster? [y/N] "]
    printed = capsys.readouterr()
    assert "Cluster:     context prod, https://prod.example.com:6443\n" in printed.out
    assert "nothing was changed" in printed.err
    assert not (project / "writes").exists()


@pytest.mark.parametrize("selection", ["--kubeconfig=given", "--context=prod"])
@pytest.mark.parametrize("ends_input", [False, True])
def test_dev_changes_no_selected_cluster_without_an_answer(
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    selection: str,
    *,
    ends_input: bool,
) -> None:
    def end(_: str) -> str:
        raise EOFError

    monkeypatch.setattr("builtins.input", end)
    monkeypatch.setattr(chosen, "is_terminal", lambda: ends_input)
    monkeypatch.setenv("KUBECONFIG", str(project / "given"))
    assert main.main(["dev", selection]) != 0
    printed = capsys.readouterr().err
    assert "nothing was changed" in printed
    assert ends_input or "--yes is required to change the context prod" in printed
    assert not (project / "writes").exists()


def test_flags_of_run_select_no_other_cluster(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["dev", "--", "--kubeconfig=given"]) != 0
    assert "set --kubeconfig and --context before `--`" in capsys.readouterr().err
    assert not (project / "writes").exists()


@pytest.mark.parametrize(
    ("project_file", "folder", "name"),
    [
        ("projectName: shop-operator\n", "any", "dev-shop-operator"),
        (None, "Shop_Operator.2", "dev-shop-operator-2"),
        ("no project", "shop", "dev-shop"),
        ("projectName: " + "a" * 35 + "-bcdef\n", "any", "dev-" + "a" * 35),
    ],
)
def test_the_control_plane_has_the_name_of_the_project_so_that_each_project_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, project_file: str | None, folder: str, name: str
) -> None:
    names: list[str] = []

    def start(_environ: object, name: str, *_: object) -> None:
        names.append(name)
        raise ClusterError("started")

    monkeypatch.setattr(named, "foreground", start)
    place = tmp_path / folder
    place.mkdir()
    monkeypatch.chdir(place)
    (place / "watches.yaml").write_text("[]\n")
    if project_file is not None:
        (place / "PROJECT").write_text(
            f"domain: example.com\nlayout: [ansible.sdk.operatorframework.io/v1]\n{project_file}"
        )
    assert main.main(["dev", "--node=fake"]) != 0
    assert main.main(["dev", "--node=fake", "--name=mine"]) != 0
    assert names == [name, "mine"]
