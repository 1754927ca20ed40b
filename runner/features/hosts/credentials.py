"""Secrets with credentials of hosts that their owner lends to a kind. Pure.

A user who may create custom resources but not read Secrets must not use one that was not lent. The owner of a Secret
lends it with a label.
"""

from __future__ import annotations

import base64
import binascii
import time
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat, ssh

from runner.features.hosts.inventory import Credentials
from runner.values.errors import TerminalError
from runner.values.objects import GVK, Object, ObjectKey, key_of, labels_of

_KEYS = ("ssh-privatekey", "ssh-publickey-cert", "username", "password", "become-password", "known_hosts")
_UNTIL = "The object is not run until it or the Secret changes"


def label(gvk: GVK) -> str:
    """Return the label that lends a Secret to a kind."""
    return f"{gvk.group or 'core'}/lend-to-{gvk.kind.lower()}"


def check_lent(secret: Object, gvk: GVK) -> None:
    """Check the label of a Secret.

    Raises:
        TerminalError: its owner does not lend it to this kind.
    """
    if labels_of(secret).get(label(gvk)) == "true":
        return
    key = key_of(secret)
    raise TerminalError(
        f"Secret {key} is not lent to {gvk.kind}: its owner can lend it with "
        f"`kubectl label secret {key.name} -n {key.namespace} {label(gvk)}=true`. {_UNTIL}"
    )


def missing(key: ObjectKey, path: str) -> TerminalError:
    """Return the error about a Secret that does not exist."""
    return TerminalError(f"{path}: Secret {key} not found; create it, or correct its name. {_UNTIL}")


def of(secret: Object) -> Credentials:
    """Return the credentials in a Secret.

    Raises:
        TerminalError: it has none, or a key that cannot be used.
    """
    key, texts = key_of(secret), _texts(secret)
    if not any(texts.get(name) for name in _KEYS if name != "known_hosts"):
        raise _unusable(key, "", "it has no credentials", f"set one of {', '.join(_KEYS[:4])}")
    private, certificate = texts.get("ssh-privatekey", ""), texts.get("ssh-publickey-cert", "").strip()
    public = b""
    if private:
        private, public = _private_key(private, key)
    if certificate:
        certificate = _certificate(certificate, public, key)
    username, password, become = (
        texts.get(name, "").removesuffix("\n") for name in ("username", "password", "become-password")
    )
    return Credentials(private, certificate, username, password, become, texts.get("known_hosts", "").strip())


def _texts(secret: Object) -> dict[str, str]:
    texts = {}
    data = secret.get("data")
    for name, value in (data if isinstance(data, dict) else {}).items():
        if name not in _KEYS:
            continue  # an application can keep other data there, such as a binary keystore
        try:
            texts[name] = base64.b64decode(value or "").decode()
        except (binascii.Error, ValueError, TypeError):
            raise _unusable(key_of(secret), name, "it is no text", "store text in UTF-8") from None
    return texts


def _private_key(text: str, key: ObjectKey) -> tuple[str, bytes]:
    """Return a private key as OpenSSH reads it, and its public key."""
    data = f"{text.strip()}\n".replace("\r\n", "\n").encode()
    is_openssh = b"BEGIN OPENSSH PRIVATE KEY" in data
    load: Any = serialization.load_ssh_private_key if is_openssh else serialization.load_pem_private_key
    try:
        loaded = load(data, None)
        public: bytes = loaded.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        if not is_openssh:  # not each ssh reads each other format
            data = loaded.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    except TypeError:
        advice = "store the key without it (`ssh-keygen -p -N '' -f KEY`)"
        raise _unusable(key, "ssh-privatekey", "the key has a passphrase", advice) from None
    except (ValueError, UnsupportedAlgorithm):
        advice = "store the whole file that `ssh-keygen` wrote, with its first and last line"
        raise _unusable(key, "ssh-privatekey", "it is no private key that OpenSSH reads", advice) from None
    return data.decode(), public


def _certificate(text: str, public: bytes, key: ObjectKey) -> str:
    name = "ssh-publickey-cert"
    try:
        identity = ssh.load_ssh_public_identity(text.encode())
    except (ValueError, UnsupportedAlgorithm):
        identity = None
    if not isinstance(identity, ssh.SSHCertificate):
        raise _unusable(key, name, "it is no certificate", "store the file KEY-cert.pub that `ssh-keygen -s` wrote")
    if identity.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) != public:
        raise _unusable(key, name, "it is not for the key in ssh-privatekey", "store both parts of one pair")
    if not identity.valid_after <= time.time() < identity.valid_before:
        raise _unusable(key, name, "it has expired, or is not valid yet", "sign the key again")
    return f"{text}\n"


def _unusable(key: ObjectKey, name: str, what: str, advice: str) -> TerminalError:
    place = f", {name}" if name else ""
    return TerminalError(f"Secret {key}{place}: {what}; {advice}. {_UNTIL}")
