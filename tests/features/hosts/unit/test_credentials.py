"""Secrets that are lent."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from runner.features.hosts import credentials
from runner.values.errors import TerminalError
from runner.values.objects import GVK

WEB = GVK("infra.example.com", "v1", "WebServer")
Keygen = Callable[..., Path]


def secret(labels: Mapping[str, str] | None = None, /, **values: str | bytes) -> dict[str, Any]:
    data = {
        name.replace("__", "-"): base64.b64encode(value if isinstance(value, bytes) else value.encode()).decode()
        for name, value in values.items()
    }
    return {"metadata": {"name": "login", "namespace": "shop", "labels": labels}, "data": data}


@pytest.fixture
def keygen(tmp_path: Path) -> Keygen:
    def make(name: str = "key", *options: str) -> Path:
        file = tmp_path / name
        command = ["ssh-keygen", "-q", "-N", "", "-f", str(file), *options]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True)
        return file

    return make


def problem(call: Callable[[], object]) -> str:
    with pytest.raises(TerminalError) as error:
        call()
    return str(error.value)


@pytest.mark.parametrize(
    "labels",
    [None, {}, {"infra.example.com/lend-to-webserver": "false"}, {"infra.example.com/lend-to-other": "true"}],
)
def test_a_secret_without_the_label_is_refused_with_the_command_that_lends_it(labels: Mapping[str, str] | None) -> None:
    assert problem(lambda: credentials.check_lent(secret(labels), WEB)) == (
        "Secret shop/login is not lent to WebServer: its owner can lend it with `kubectl label secret login -n shop "
        "infra.example.com/lend-to-webserver=true`. The object is not run until it or the Secret changes"
    )
    credentials.check_lent(secret({"infra.example.com/lend-to-webserver": "true"}), WEB)


@pytest.mark.lengthy
@pytest.mark.parametrize("options", [(), ("-t", "rsa", "-b", "2048", "-m", "PEM"), ("-t", "ecdsa", "-m", "PKCS8")])
def test_a_key_of_each_format_is_one_that_openssh_reads(
    keygen: Keygen, tmp_path: Path, options: tuple[str, ...]
) -> None:
    file = keygen("key", *options)
    damaged = file.read_text().strip().replace("\n", "\r\n")
    found = credentials.of(secret(ssh__privatekey=damaged, username="ops\n", known_hosts="h ssh-rsa AA\n"))
    written = tmp_path / "written"
    written.write_text(found.private_key)
    written.chmod(0o600)
    read = subprocess.run(["ssh-keygen", "-y", "-f", str(written)], check=True, capture_output=True, text=True).stdout
    assert read.split()[:2] == Path(f"{file}.pub").read_text().split()[:2]
    assert (found.username, found.known_hosts, found.secrets) == ("ops", "h ssh-rsa AA", (found.private_key,))
    assert found.private_key not in repr(found)


def test_passwords_are_read_and_not_shown() -> None:
    found = credentials.of(secret(username="ops", password="pass word \n", become__password="root's"))
    assert (found.password, found.become_password) == ("pass word ", "root's")
    assert found.secrets == ("pass word ", "root's")
    assert "pass word" not in repr(found)
    assert "root's" not in repr(found)


def test_other_data_of_a_secret_is_not_read() -> None:
    assert credentials.of(secret(username="ops", keystore=b"\xff\xfe")).username == "ops"


@pytest.mark.lengthy
def test_a_secret_that_cannot_be_used_is_refused_with_a_remedy(keygen: Keygen) -> None:
    locked = keygen("locked", "-N", "with a passphrase")
    key, other = keygen("one"), keygen("other")
    for each in (key, other):
        sign = ["ssh-keygen", "-q", "-s", str(other), "-I", "x", "-V", "-2h:-1h", f"{each}.pub"]
        subprocess.run(sign, check=True, capture_output=True)
    plain = key.read_text()
    expired, foreign = (Path(f"{each}-cert.pub").read_text() for each in (key, other))
    begin = "Secret shop/login"
    cases: list[tuple[dict[str, str | bytes], str]] = [
        ({}, f"{begin}: it has no credentials; set one of ssh-privatekey, "),
        ({"known_hosts": "h k v"}, f"{begin}: it has no credentials"),
        ({"ssh__privatekey": locked.read_text()}, f"{begin}, ssh-privatekey: the key has a passphrase; store the key"),
        ({"ssh__privatekey": "hello"}, f"{begin}, ssh-privatekey: it is no private key that OpenSSH reads; store"),
        ({"ssh__privatekey": plain[:200]}, f"{begin}, ssh-privatekey: it is no private key"),
        ({"password": b"\xff\xfe"}, f"{begin}, password: it is no text; store text in UTF-8"),
        ({"ssh__privatekey": plain, "ssh__publickey__cert": "x"}, f"{begin}, ssh-publickey-cert: it is no certificate"),
        ({"ssh__privatekey": plain, "ssh__publickey__cert": foreign}, "it is not for the key in ssh-privatekey"),
        ({"ssh__privatekey": plain, "ssh__publickey__cert": expired}, "it has expired, or is not valid yet"),
    ]
    for values, message in cases:
        found = problem(lambda values=values: credentials.of(secret(None, **values)))  # type: ignore[misc]
        assert message in found
        assert plain[100:140] not in found
