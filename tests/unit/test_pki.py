from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization

from runner.base.pki import Authority, KeyPair, signing_key


@pytest.fixture
def authority() -> Authority:
    return Authority.create("test")


def _files(folder: Path, name: str, pair: KeyPair) -> tuple[Path, Path]:
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    certificate.write_bytes(pair.certificate)
    key.write_bytes(pair.key)
    return certificate, key


def test_a_server_and_a_client_of_one_authority_trust_each_other(authority: Authority, tmp_path: Path) -> None:
    trusted = authority.pair.certificate.decode()
    accepting = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=trusted)
    accepting.load_cert_chain(*_files(tmp_path, "server", authority.issue("server", hosts=["127.0.0.1", "localhost"])))
    accepting.verify_mode = ssl.CERT_REQUIRED
    asking = ssl.create_default_context(cadata=trusted)
    asking.load_cert_chain(*_files(tmp_path, "client", authority.issue("admin", organization="system:masters")))
    peers: list[object] = []

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with accepting.wrap_socket(connection, server_side=True) as secured:
            certificate = secured.getpeercert()
            assert certificate is not None
            peers.append(certificate["subject"])
            secured.sendall(b"welcome")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve, args=(listener,))
        server.start()
        address = listener.getsockname()
        with socket.create_connection(address) as raw, asking.wrap_socket(raw, server_hostname="127.0.0.1") as secured:
            assert secured.recv(100) == b"welcome"
        server.join()
    assert peers == [((("organizationName", "system:masters"),), (("commonName", "admin"),))]


def test_two_clusters_share_no_authority() -> None:
    first, second = Authority.create("a"), Authority.create("a")
    assert first.pair.certificate != second.pair.certificate
    certificate = x509.load_pem_x509_certificate(first.issue("x").certificate)
    certificate.verify_directly_issued_by(first.certificate)
    with pytest.raises(InvalidSignature):
        certificate.verify_directly_issued_by(second.certificate)


def test_the_signing_keys_belong_together() -> None:
    private, public = signing_key()
    derived = serialization.load_pem_private_key(private, password=None).public_key()
    assert derived == serialization.load_pem_public_key(public)
