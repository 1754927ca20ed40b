"""Certificate authorities, and the certificates and keys that they issue.

Promises: keys are P-256. Clients that check strictly by RFC 5280 accept the certificates. Issued certificates expire
after a year.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

YEAR = dt.timedelta(days=365)
_BACKDATED = dt.timedelta(minutes=5)  # clocks of containers that share this machine may lag a little


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority in memory."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def create(cls, name: str, valid: dt.timedelta = YEAR) -> Self:
        """Create an authority."""
        return cls._of_key(ec.generate_private_key(ec.SECP256R1()), name, valid)

    @classmethod
    def _of_key(cls, key: ec.EllipticCurvePrivateKey, name: str, valid: dt.timedelta) -> Self:
        subject = _name(name)
        certificate = (
            _builder(subject, subject, key.public_key(), valid)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(authority=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(certificate, key)

    @classmethod
    def load(cls, pair: KeyPair) -> Self:
        """Load an authority from its `pair`. Raises ValueError."""
        key = serialization.load_pem_private_key(pair.key, password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("the key of the authority must be an EC key")  # noqa: TRY004 - the value is wrong
        return cls(x509.load_pem_x509_certificate(pair.certificate), key)

    @property
    def pair(self) -> KeyPair:
        """Certificate and key of the authority, for the controller that signs certificate requests."""
        return KeyPair(_pem(self.certificate), private_pem(self.key))

    def renewed(self, valid: dt.timedelta) -> Self:
        """Return this authority with a new certificate of the same key and name.

        Both certificates verify what the authority issues. So clients with the old one need no other until it expires.
        """
        (name,) = self.certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        return self._of_key(self.key, str(name.value), valid)

    def issue(self, name: str, *, organization: str = "", hosts: Sequence[str] = ()) -> KeyPair:
        """Issue a certificate: for a server if it has hosts, else for a client.

        In Kubernetes the name is the user and the organization is the group, see "X509 client certificates" in its
        documentation.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        purpose = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = (
            _builder(_name(name, organization), self.certificate.subject, key.public_key(), YEAR)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()),
                critical=False,
            )
        )
        if hosts:
            builder = builder.add_extension(_alternatives(hosts), critical=False)
        return KeyPair(_pem(builder.sign(self.key, hashes.SHA256())), private_pem(key))


def self_signed(name: str, hosts: Sequence[str], valid: dt.timedelta) -> KeyPair:
    """Return a certificate of a server without an authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(_name(name), _name(name), key.public_key(), valid)
        .add_extension(_alternatives(hosts), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return KeyPair(_pem(certificate), private_pem(key))


def expiry(certificate: bytes) -> dt.datetime:
    """Return when a PEM certificate expires."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def signing_key() -> tuple[bytes, bytes]:
    """Return a new key for service account tokens: private and public PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM,
        serialization.PublicFormat.SubjectPublicKeyInfo,
    )
    return private_pem(key), public


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a private key in the format that Go's and Python's TLS both read."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _name(name: str, organization: str = "") -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    if organization:
        parts.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(parts)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, valid: dt.timedelta
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + valid)
    )


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _alternatives(hosts: Sequence[str]) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([_general_name(host) for host in hosts])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
