from __future__ import annotations

import base64
import os
import stat
from pathlib import Path

import pytest
import yaml

from runner.devcluster import kubeconfig
from runner.devcluster.pki import KeyPair
from runner.errors import ClusterError

_TEXT = kubeconfig.text("mine", "https://127.0.0.1:20001", b"authority", KeyPair(b"certificate", b"key"))


def test_a_kubeconfig_stands_on_its_own() -> None:
    document = yaml.safe_load(_TEXT)
    (cluster,), (user,), (context,) = document["clusters"], document["users"], document["contexts"]
    assert document["current-context"] == context["name"] == "ansible-operator-mine"
    assert context["context"] == {"cluster": cluster["name"], "user": user["name"]}
    assert cluster["cluster"]["server"] == "https://127.0.0.1:20001"
    assert base64.b64decode(cluster["cluster"]["certificate-authority-data"]) == b"authority"
    assert base64.b64decode(user["user"]["client-certificate-data"]) == b"certificate"
    assert base64.b64decode(user["user"]["client-key-data"]) == b"key"


def test_a_file_of_secrets_belongs_to_its_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        kubeconfig.write(tmp_path / "kubeconfig", _TEXT)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "kubeconfig").stat().st_mode) == 0o600


def test_a_file_that_was_readable_becomes_private(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text("old")
    path.chmod(0o644)
    kubeconfig.write(path, "new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    target = tmp_path / "kubeconfig"
    target.mkdir()
    (target / "file").touch()
    with pytest.raises(OSError, match="kubeconfig"):
        kubeconfig.write(target, "text")
    assert list(tmp_path.iterdir()) == [target]


def test_the_current_server_is_read(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    kubeconfig.write(path, _TEXT)
    assert kubeconfig.current_server(path) == "https://127.0.0.1:20001"


@pytest.mark.parametrize("text", ["", "a: [", "current-context: x", "{current-context: x, contexts: []}"])
def test_a_file_that_is_no_kubeconfig_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(ClusterError, match=str(path)):
        kubeconfig.current_server(path)


def test_our_own_files_are_told_from_others(tmp_path: Path) -> None:
    ours, other, missing = tmp_path / "ours", tmp_path / "other", tmp_path / "missing"
    kubeconfig.write(ours, _TEXT)
    other.write_text(_TEXT.replace("ansible-operator-", "production-"))
    assert kubeconfig.is_ours(ours)
    assert not kubeconfig.is_ours(other)
    assert not kubeconfig.is_ours(missing)
