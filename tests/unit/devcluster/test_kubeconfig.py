"""Kubeconfigs of development clusters, and shells that use them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from runner.base.pki import KeyPair
from runner.sdk.devcluster import kubeconfig
from runner.sdk.devcluster.kubeconfig import leading_to
from runner.values.errors import ClusterError

_TEXT = kubeconfig.text("mine", "https://127.0.0.1:20001", b"authority", KeyPair(b"certificate", b"key"))


def test_the_current_context_and_its_server_are_read(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(_TEXT)
    assert kubeconfig.current(path) == ("ansible-operator-mine", "https://127.0.0.1:20001")


@pytest.mark.parametrize("text", ["", "a: [", "current-context: x", "{current-context: x, contexts: []}"])
def test_an_invalid_kubeconfig_is_an_error_with_its_path(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(ClusterError, match=str(path)):
        kubeconfig.current(path)


def test_kubeconfigs_of_development_clusters_are_recognized(tmp_path: Path) -> None:
    ours, other, missing = tmp_path / "ours", tmp_path / "other", tmp_path / "missing"
    ours.write_text(_TEXT)
    other.write_text(_TEXT.replace("ansible-operator-", "production-"))
    assert kubeconfig.is_ours(ours)
    assert not kubeconfig.is_ours(other)
    assert not kubeconfig.is_ours(missing)


def test_a_shell_gets_kubeconfig_and_kubectl_whatever_the_folders_are_called_and_once_only(tmp_path: Path) -> None:
    folder = tmp_path / "it's a $HOME with spaces"
    folder.mkdir()
    kubectl = folder / "kubectl"
    kubectl.write_text('#!/bin/sh\necho "$KUBECONFIG"\n')
    kubectl.chmod(0o755)
    env = folder / "env"
    env.write_text(leading_to(folder / "kubeconfig", kubectl))
    script = '. "$1"; once=$PATH; . "$1"; [ "$once" = "$PATH" ] && kubectl'
    printed = subprocess.run(
        ["/bin/sh", "-euc", script, "sh", env],
        env={"PATH": "/usr/bin:/bin"},
        check=True,
        capture_output=True,
        text=True,
    )
    assert printed.stdout == f"{folder}/kubeconfig\n"
