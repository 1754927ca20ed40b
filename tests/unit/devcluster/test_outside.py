"""Clusters that cannot be used: the error is one line that names the reason."""

from __future__ import annotations

import io
import os
import re
import signal
from pathlib import Path

import pytest

from hack import demo
from runner.sdk.devcluster.cluster import outside
from runner.values.errors import OperatorError


def test_kubeconfigs_that_cannot_be_merged_are_reported_with_kubectls_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubectl = tmp_path / "kubectl"
    kubectl.write_text("#!/bin/sh\necho 'error: yaml: line 1: did not find expected node content' >&2\nexit 1\n")
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    said = "`kubectl config view --raw --flatten` failed: error: yaml: line 1: did not find expected node content"
    with pytest.raises(OperatorError, match=re.escape(said)):
        outside(f"a{os.pathsep}b", tmp_path, io.StringIO())


def test_the_demo_reports_a_node_that_it_cannot_start_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["demo"])
    monkeypatch.setenv("KUBECONFIG", "another")
    monkeypatch.setenv("NODE", "large")
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert demo.main() == 1
    finally:
        signal.signal(signal.SIGTERM, before)
    out = capsys.readouterr().out.splitlines()
    assert "KUBECONFIG=another is ignored" in out[1]
    assert out[2:] == ["=== The demo failed: invalid DEVCLUSTER_NODE 'large': use real, fake or both"]
