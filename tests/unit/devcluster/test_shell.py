"""What a shell reads to be led to a control plane."""

from __future__ import annotations

import subprocess
from pathlib import Path

from runner.sdk.devcluster.kubeconfig import leading_to


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
