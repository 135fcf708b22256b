"""TLS certificates and node keys of a federation: made once, readable by their owner alone, never overwritten.

The *server* shows a certificate that the federation's own authority signed, so that no node talks to an impostor; nodes
hold the authority's certificate and trust no other. A *node* signs the time with its own key (ECDSA P-384 in OpenSSH's
format, which is what a Flower SuperNode reads), and the server knows its public half. TLS ends at the server: neither
protects what members and key generator tell each other through it; sealed messages do
(`blindsight.federated.identity`).

    certificates/authority.crt   every party (public)
    certificates/authority.key   for renewing the server's certificate; best kept off the server
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
_USES = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
         "key_cert_sign", "crl_sign", "encipher_only", "decipher_only")  # fmt: skip


@dataclass(frozen=True)
class Certificates:
    """Paths of the authority's and the server's certificates and keys."""

    folder: Path

    @property
    def authority(self) -> Path:
        return self.folder / "authority.crt"

    @property
    def authority_key(self) -> Path:
        return self.folder / "authority.key"

    @property
    def server(self) -> Path:
        return self.folder / "server.crt"

    @property
    def server_key(self) -> Path:
        return self.folder / "server.key"

    def check(self) -> None:
        for path in (self.authority, self.server, self.server_key):
            if not path.is_file():
                raise StorageError(
                    f"the certificate file {path} does not exist."
                    " Make the files with: blindsight federation certificates"
                )


def make_certificates(folder: AnyPath, hosts: Sequence[str] = LOOPBACK, *, days: int = 365) -> Certificates:
    """Make an authority and, signed by it, a certificate for a server that is reached as one of `hosts`."""
    made = Certificates(as_path(folder))
    if not 1 <= days <= 3650:
        raise InputError(f"a certificate is valid for 1 to 3650 days; got {days}.")
    names = [_alternative_name(host) for host in hosts]
    if not names:
        raise InputError("a server's certificate needs at least one host name or address; got none.")
    _refuse_existing(made.authority, made.authority_key, made.server, made.server_key)
    authority_key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = _certificate("authority", authority_key, authority_key, days)
    server = _certificate("server", server_key, authority_key, days, names)
    _create(made.authority_key, _private_pem(authority_key))
    _create(made.server_key, _private_pem(server_key))
    _create(made.authority, authority, mode=0o644)
    _create(made.server, server, mode=0o644)
    return made


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


def _certificate(
    whose: str,
    key: ec.EllipticCurvePrivateKey,
    authority_key: ec.EllipticCurvePrivateKey,
    days: int,
    names: Sequence[x509.GeneralName] = (),
) -> bytes:
    """Return the certificate of a server with these names, or without any that of the authority, as PEM."""
    now, signs = datetime.now(UTC), not names
    subject, issuer = (
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Blindsight federation {who}")])
        for who in (whose, "authority")
    )
    uses = ("key_cert_sign", "crl_sign") if signs else ("digital_signature",)
    builder = (
        x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - _SLOW_CLOCKS)  # a node whose clock is behind accepts the certificate all the same
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .add_extension(x509.BasicConstraints(ca=signs, path_length=0 if signs else None), critical=True)
        .add_extension(x509.KeyUsage(**{use: use in uses for use in _USES}), critical=True)
    )
    if names:
        builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(authority_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


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
