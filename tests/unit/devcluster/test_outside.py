"""Clusters that cannot be used: the error is one line that names the reason."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path

import pytest

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
