"""Kubeconfig files: which entry counts, and which HTTP proxy."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from runner.base.credentials import kubeconfig
from runner.base.credentials.auth import choose_proxy
from runner.values.errors import ConfigError


def write(path: Path, **content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


def named(section: str, **entries: Any) -> dict[str, Any]:
    return {section + "s": [{"name": name, section: value} for name, value in entries.items()]}


def whole(tmp_path: Path, **changes: Any) -> Path:
    content = {
        "current-context": "c",
        **named("context", c={"cluster": "k", "user": "u", "namespace": "space"}, other={"cluster": "k2", "user": "u"}),
        **named("cluster", k={"server": "https://one"}, k2={"server": "https://two"}),
        **named("user", u={"token": "t"}),
    }
    return write(tmp_path / "config", **{**content, **changes})


def test_the_current_context_is_taken(tmp_path: Path) -> None:
    found = kubeconfig.read([whole(tmp_path)], None)
    assert (found.cluster, found.user, found.namespace) == ({"server": "https://one"}, {"token": "t"}, "space")


def test_a_context_can_be_named(tmp_path: Path) -> None:
    found = kubeconfig.read([whole(tmp_path)], "other")
    assert (found.cluster["server"], found.namespace, found.context) == ("https://two", "default", "other")


def test_the_first_of_several_files_that_defines_an_entry_wins(tmp_path: Path) -> None:
    first = write(tmp_path / "1", **named("user", u={"token": "first"}))
    second = write(tmp_path / "2", **{"current-context": "c"}, **named("context", c={"cluster": "k", "user": "u"}))
    third = write(
        tmp_path / "3",
        **{"current-context": "nonsense"},
        **named("user", u={"token": "third"}),
        **named("cluster", k={"server": "https://three"}),
    )
    empty = write(tmp_path / "4")
    found = kubeconfig.read([first, second, third, empty], None)
    assert (found.user["token"], found.cluster["server"]) == ("first", "https://three")


def test_paths_are_relative_to_their_file_and_their_content_is_taken_in(tmp_path: Path) -> None:
    (tmp_path / "pki").mkdir()
    for name in ("ca", "crt", "key"):
        (tmp_path / "pki" / name).write_text(name)
    write(
        tmp_path / "sub" / "config",
        **{"current-context": "c"},
        **named("context", c={"cluster": "k", "user": "u"}),
        **named("cluster", k={"server": "https://one", "certificate-authority": "../pki/ca"}),
        **named(
            "user",
            u={
                "client-certificate": "../pki/crt",
                "client-key": "../pki/key",
                "tokenFile": "../token",
                "exec": {"command": "./plugin"},
            },
        ),
    )
    found = kubeconfig.read([tmp_path / "sub" / "config"], None)
    assert base64.b64decode(found.cluster["certificate-authority-data"]) == b"ca"
    assert base64.b64decode(found.user["client-certificate-data"]) == b"crt"
    assert base64.b64decode(found.user["client-key-data"]) == b"key"
    assert "client-key" not in found.user
    assert Path(found.user["tokenFile"]).resolve() == tmp_path / "token"
    assert found.user["exec"]["command"] == str(tmp_path / "sub" / "plugin")


def test_a_command_without_a_slash_is_not_made_absolute(tmp_path: Path) -> None:
    path = whole(tmp_path, **named("user", u={"exec": {"command": "aws"}}))
    assert kubeconfig.read([path], None).user["exec"]["command"] == "aws"


@pytest.mark.parametrize(
    ("changes", "context", "message"),
    [
        ({"current-context": ""}, None, "no current context; name one with --context"),
        ({}, "nope", r"no context 'nope' \(known: c, other\)"),
        ({"clusters": []}, None, "no cluster 'k'"),
        ({"users": None}, None, "no user 'u'"),
        ({"clusters": "text"}, None, "clusters should be a list"),
        ({"users": [{"user": {}}]}, None, "an entry of users has no name"),
        (named("cluster", k={}), None, "server is nothing; write server: https"),
        (named("cluster", k={"server": "host:6443"}), None, "server is host:6443"),
        (named("cluster", k={"server": "https://host:port"}), None, "server is https://host:port"),
        (named("cluster", k={"server": "https://[::1"}), None, r"server is https://\[::1"),
        (named("cluster", k={"server": "https://"}), None, "server is https://;"),
        (named("cluster", k={"server": "https://x", "certificate-authority": "nope"}), None, "nope: cannot be read"),
    ],
)
def test_an_invalid_kubeconfig_is_an_error_that_names_the_problem(
    tmp_path: Path, changes: dict[str, Any], context: str | None, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        kubeconfig.read([whole(tmp_path, **changes)], context)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing: cannot be read.*--kubeconfig"):
        kubeconfig.read([tmp_path / "missing"], None)
    (tmp_path / "bad").write_text("a: [")
    with pytest.raises(ConfigError, match="not valid YAML"):
        kubeconfig.read([tmp_path / "bad"], None)
    (tmp_path / "list").write_text("- a")
    with pytest.raises(ConfigError, match="is not a kubeconfig"):
        kubeconfig.read([tmp_path / "list"], None)


PROXY = {"HTTPS_PROXY": "http://proxy:3128", "HTTP_PROXY": "http://other:3128"}


@pytest.mark.parametrize(
    ("server", "no_proxy", "expected"),
    [
        ("https://api.example.com:6443", "", "http://proxy:3128"),
        ("http://api.example.com", "", "http://other:3128"),
        ("https://api.example.com", "example.com", None),
        ("https://api.example.com", ".example.com", None),
        ("https://api.example.com", "*.example.com", None),
        ("https://example.com", ".example.com", "http://proxy:3128"),
        ("https://badexample.com", "example.com", "http://proxy:3128"),
        ("https://api.example.com", "other.org, API.example.com", None),
        ("https://api.example.com:6443", "api.example.com:6443", None),
        ("https://api.example.com:6443", "api.example.com:443", "http://proxy:3128"),
        ("https://api.example.com", "*", None),
        ("https://10.96.0.1", "10.96.0.0/12", None),
        ("https://10.96.0.1", "10.0.0.0/16,nonsense/99", "http://proxy:3128"),
        ("https://10.96.0.1", "10.96.0.1", None),
        ("https://[fd00::1]:443", "fd00::/8", None),
        ("https://[fd00::1]:443", "[fd00::1]", None),
        ("https://127.0.0.1:6443", "", None),
        ("https://localhost:6443", "", None),
    ],
)
def test_no_proxy_means_what_it_means_to_kubectl(server: str, no_proxy: str, expected: str | None) -> None:
    assert choose_proxy({"server": server}, {**PROXY, "NO_PROXY": no_proxy}) == expected


def test_the_kubeconfigs_proxy_wins() -> None:
    cluster = {"server": "https://127.0.0.1", "proxy-url": "http://mine:1"}
    assert choose_proxy(cluster, {**PROXY, "no_proxy": "*"}) == "http://mine:1"


def test_small_letters_and_a_missing_scheme_do() -> None:
    assert choose_proxy({"server": "https://api.example.com"}, {"https_proxy": "proxy:3128"}) == "http://proxy:3128"


def test_a_proxy_of_another_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="socks5"):
        choose_proxy({"server": "https://api.example.com", "proxy-url": "socks5://p:1"}, {})
