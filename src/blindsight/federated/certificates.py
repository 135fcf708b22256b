"""Certificates and node keys of a federation: made once, readable by their owner alone, never overwritten.

Two things are proven on the way between a node and the server. The *server* shows a certificate that the federation's
own authority signed, so that no node talks to an impostor; every node holds the authority's certificate and trusts no
other. A *node* signs the time with a key of its own (ECDSA P-384 in OpenSSH's format, which is what a Flower SuperNode
reads), and the server knows its public half. TLS ends at the server: neither protects what members and key generator
tell each other through it; sealed messages do (`blindsight.federated.identity`).

    certificates/authority.crt   every party (public)
    certificates/authority.key   whoever will renew the server's certificate; best kept off the server
    certificates/server.crt      the server (public)
    certificates/server.key      the server alone
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from blindsight.errors import InputError, StorageError
from blindsight.files import AnyPath, as_path, storage_errors

LOOPBACK = ("localhost", "127.0.0.1")
_SLOW_CLOCKS = timedelta(hours=1)


@dataclass(frozen=True)
class Certificates:
    """Where the authority's and the server's certificates and keys are kept."""

    folder: Path

    @property
    def authority(self) -> Path:
        """The certificate every node and operator verifies the server with."""
        return self.folder / "authority.crt"

    @property
    def authority_key(self) -> Path:
        """The key that signs the server's certificate."""
        return self.folder / "authority.key"

    @property
    def server(self) -> Path:
        """The certificate the server shows."""
        return self.folder / "server.crt"

    @property
    def server_key(self) -> Path:
        """The key behind the server's certificate."""
        return self.folder / "server.key"

    def check(self) -> None:
        """Refuse to go on when one of the files a server needs is missing."""
        for path in (self.authority, self.server, self.server_key):
            if not path.is_file():
                raise StorageError(
                    f"the certificate file {path} does not exist."
                    " Make the files with: blindsight federation certificates"
                )


def make_certificates(folder: AnyPath, hosts: Sequence[str] = LOOPBACK, *, days: int = 365) -> Certificates:
    """Make an authority and, signed by it, a certificate for a server that is reached as one of `hosts`."""
    folder = as_path(folder)
    if not 1 <= days <= 3650:
        raise InputError(f"a certificate is valid for 1 to 3650 days; got {days}.")
    names = [_alternative_name(host) for host in hosts]
    if not names:
        raise InputError("a server's certificate needs at least one host name or address; got none.")
    certificates = Certificates(folder)
    paths = (certificates.authority, certificates.authority_key, certificates.server, certificates.server_key)
    _refuse_existing(*paths)
    authority_key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = _authority(authority_key, days)
    server = _server(server_key, authority, authority_key, names, days)
    _create(certificates.authority_key, _private_pem(authority_key))
    _create(certificates.server_key, _private_pem(server_key))
    _create(certificates.authority, authority.public_bytes(serialization.Encoding.PEM), mode=0o644)
    _create(certificates.server, server.public_bytes(serialization.Encoding.PEM), mode=0o644)
    return certificates


def make_node_key(path: AnyPath) -> Path:
    """Make a node's authentication key at `path` and return the path of its public half, `path` with .pub appended."""
    path = as_path(path)
    public = path.with_name(f"{path.name}.pub")
    _refuse_existing(path, public)
    key = ec.generate_private_key(ec.SECP384R1())
    _create(path, _private_pem(key, serialization.PrivateFormat.OpenSSH))
    line = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    _create(public, line + b"\n", mode=0o644)
    return public


def _authority(key: ec.EllipticCurvePrivateKey, days: int) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Blindsight federation authority")])
    return (
        _certificate(name, name, key.public_key(), key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def _server(
    key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    names: list[x509.GeneralName],
    days: int,
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Blindsight federation server")])
    return (
        _certificate(subject, authority.subject, key.public_key(), authority_key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(authority_key, hashes.SHA256())
    )


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    issuer_key: ec.EllipticCurvePublicKey,
    days: int,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SLOW_CLOCKS)  # a node whose clock is behind accepts the certificate all the same
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        pass
    if not host or not host.isascii() or any(not (c.isalnum() or c in "-.") for c in host):
        raise InputError(f"a host is a name such as server.example.org or an IP address, without a port; got {host!r}.")
    return x509.DNSName(host)


def _private_pem(
    key: ec.EllipticCurvePrivateKey, layout: serialization.PrivateFormat = serialization.PrivateFormat.PKCS8
) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, layout, serialization.NoEncryption())


def _refuse_existing(*paths: Path) -> None:
    for path in paths:
        if path.exists():
            raise StorageError(f"{path} exists and is never overwritten. Name another place, or remove it first.")


def _create(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Write a file that was not there before; nobody else can read a private one, not even for a moment."""
    with storage_errors("write", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            os.fsync(stream.fileno())
