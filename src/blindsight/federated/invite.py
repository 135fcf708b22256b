"""Joining a federation: one invitation for each party, one short code for all to compare.

The operator writes an `Invitation` for every owner and for the key generator: the address and the authority of the
SuperLink, the app that will run (Blindsight's own, or the digest of another), who is known so far, and a code that
admits one party once. The party makes its keys, sends their public halves with a proof that it has the invitation, and
gets the list of all parties.

*The guarantee.* `short_code` is a hash of everybody's name and keys, the authority and the app. Parties who see the
same code have the same list: a server that shows one party other keys than another, its own in place of the key
generator's for instance, gives them different codes. So the code is compared in a way that the server does not carry, a
call or a meeting, once for all instead of a fingerprint for each. It has 100 bits, and every guess costs an evaluation
of scrypt (Percival 2009; N = 2^14, r = 8): two lists with one code take 2^50 of them. The invitation's own code keeps
strangers out; a thief who uses the file first joins in its owner's name, and the short code shows it.

*Joining again* accepts no other keys of a party than before, also of one that was gone in between (HOME/accepted.toml
remembers everybody), unless the caller names that party; nor another app or authority. So it is enough that the key
generator and a newcomer compare the code: the others cannot have changed. `Admission` lists who is new and who is gone.
The address may change: TLS knows the authority.

*Another authority* (its key was lost, or its certificates expire) needs no new invitations: the aggregator, whose keys
everybody compared, signs the hand-over from the old one to the new, and a party follows it from the one it has.

*Three members at least.* Of two, each would subtract its own update from the sum and hold the other's.

*TLS.* The SuperLink shows a certificate that the federation's own authority signed, so that no node talks to an
impostor; nodes trust no other. A node signs the time with its own key (ECDSA P-384 in OpenSSH's format, which a Flower
SuperNode reads), and the SuperLink knows its public half. TLS ends at the SuperLink: what members and key generator
tell each other through it, sealed messages protect (`identity`). All files are made once and never overwritten::

    certificates/authority.crt   every party (public)
    certificates/authority.key   for renewing the server's certificate; best kept off the server
    certificates/server.crt      the server (public)
    certificates/server.key      the server alone
"""

import hashlib
import hmac
import json
import os
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from itertools import count
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from blindsight.errors import CorruptFileError, InputError, MessageError, PrivacyError, StorageError, UnknownNameError
from blindsight.federated.identity import (
    IDENTITY_FILE,
    Identity,
    KeyStore,
    Members,
    PublicIdentity,
    check_name,
    quoted,
    verify_signed,
)
from blindsight.files import AnyPath, as_path, atomic_writer, exclusive_lock, sha256_of, storage_errors
from blindsight.rng import ByteSource, system_bytes
from blindsight.rounds import MIN_MEMBERS
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR

ADMISSION = "/blindsight/join"
"""Where a party that has an invitation joins: a path of the SuperLink."""

LOOPBACK = ("localhost", "127.0.0.1")
LARGEST_REQUEST = 1 << 14
_SLOW_CLOCKS = timedelta(hours=1)
_USES = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
         "key_cert_sign", "crl_sign", "encipher_only", "decipher_only")  # fmt: skip
_HAND_OVER = "authority hand-over"
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's base 32: no letter looks like another
_LETTERS, _GROUP = 20, 4


# Certificates and node keys


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


# Invitations


def letters(number: bytes) -> str:
    """Return the first 100 bits of a number in groups of four letters, to be read aloud.

    >>> letters(bytes(13))
    '0000-0000-0000-0000-0000'
    """
    value = int.from_bytes(number[:13], "big") >> 4
    text = "".join(_ALPHABET[value >> 5 * place & 31] for place in reversed(range(_LETTERS)))
    return "-".join(text[start : start + _GROUP] for start in range(0, _LETTERS, _GROUP))


def short_code(members: Members, authority: str, app: str) -> str:
    """Return what all parties of a federation compare: the same letters mean the same list, authority and app."""
    listed = json.dumps([sorted(members.fingerprints.items()), authority, app])
    salt = b"blindsight federation 1"
    return letters(hashlib.scrypt(listed.encode(), salt=salt, n=1 << 14, r=8, p=1, maxmem=1 << 26, dklen=13))


def _proof(code: str, name: str, identity: str, node_key: str) -> str:
    return hmac.digest(code.encode(), json.dumps(["join", name, identity, node_key]).encode(), "sha256").hex()


@dataclass(frozen=True)
class Invitation:
    """What the operator gives one party; `code` admits it once, so the file is for that party alone."""

    name: str
    address: str
    authority: str
    app: str
    code: str = field(repr=False)
    members: Mapping[str, str] = field(default_factory=dict)

    def to_toml(self) -> str:
        fields = ("name", "address", "app", "code", "authority")
        lines = [f"{key} = {json.dumps(getattr(self, key), ensure_ascii=False)}" for key in fields]
        known = [f"{quoted(name)} = {quoted(fingerprint)}" for name, fingerprint in self.members.items()]
        return "\n".join([*lines, "", "[members]", *known, ""])

    @classmethod
    def read(cls, path: AnyPath) -> "Invitation":
        """Read the file; the short code is still to be compared, whatever its origin."""
        path = as_path(path)
        with storage_errors("read", path):
            text = path.read_text("utf-8")
        try:
            found = cls(**tomllib.loads(text))
            if not all(isinstance(getattr(found, key), str) for key in ("name", "address", "app", "code", "authority")):
                raise InputError("a field is no text.")
            check_name(found.name)
            Members(found.members)
            return found
        except (TypeError, ValueError) as error:
            raise CorruptFileError(f"{path} is no invitation: {error}") from None

    def renewed(self, home: Path) -> "Invitation":
        """Return it with the authority that the party in this home believes by now (`follow_handover`)."""
        path = home / "authority.crt"
        return replace(self, authority=path.read_text()) if path.exists() else self

    def request(self, home: Path) -> bytes:
        """Make the party's keys in its key store, unless it has some, and return what joins with them."""
        if not (home / IDENTITY_FILE).exists():
            Identity.create(home / IDENTITY_FILE, self.name)
        identity = KeyStore(home).identity
        if identity.name != self.name:
            raise InputError(f"{home} is the home of {identity.name!r}; the invitation is for {self.name!r}.")
        if not (home / "node.key").exists():
            make_node_key(home / "node.key")
        public, node_key = identity.public.to_bytes().hex(), (home / "node.key.pub").read_text().strip()
        proof = _proof(self.code, self.name, public, node_key)
        return json.dumps({"name": self.name, "identity": public, "node-key": node_key, "proof": proof}).encode()

    def answered(self, home: Path, answer: bytes, changed: Collection[str] = ()) -> "Admission":
        """Read what the operator's SuperLink answered; it must know this party by the keys it made.

        Other keys than this home has accepted, or the invitation names, are refused, except of parties in `changed`.
        """
        try:
            document = json.loads(answer)
            members, awaited = Members(document["members"]), tuple(map(str, document["awaited"]))
            registered = bool(document["registered"])
        except (KeyError, TypeError, ValueError) as error:
            raise MessageError(f"the SuperLink answered something that is no list of members: {error}") from None
        members.check(KeyStore(home).identity.public)
        self._check_accepted(home)
        listed, known = members.fingerprints, {**self.members, **_accepted(home)}
        others = listed.keys() & known.keys() - {self.name}
        before = {name: known[name] for name in sorted(others) if listed[name] != known[name]}
        if unnamed := [f"{name!r} has {listed[name]}, and had {before[name]}" for name in before.keys() - {*changed}]:
            raise PrivacyError(
                "the SuperLink shows other keys than this home has accepted or its invitation names: "
                f"{'; '.join(sorted(unnamed))}. Compare the new fingerprints with the parties themselves, by telephone "
                "or in person; name those that are right as changed."
            )
        there = _listed(home / "members.toml")
        added = {name: listed[name] for name in listed if there and name not in {*there, *before}}
        gone = tuple(name for name in there if name not in listed)
        code = short_code(members, self.authority, self.app)
        return Admission(members, awaited, registered, code, added, gone, before)

    def _check_accepted(self, home: Path) -> None:
        """Refuse an invitation that is not to what this home has joined before."""
        app = home / "app"
        if app.exists() and (accepted := app.read_text()) != self.app:
            raise PrivacyError(
                f"the invitation is to the app {self.app}; this home has joined with the app {accepted}. Ask the "
                "operator why; if it is to be another app, join with another home."
            )
        if self.renewed(home) != self:
            raise PrivacyError("the invitation names another authority than this home believes; use it `renewed`.")


@dataclass(frozen=True)
class Admission:
    """What a party that has joined knows: all members so far, who is awaited, and the code for all to compare.

    Where a list was accepted before: the fingerprints of parties that are `added`, who is `gone`, and the former
    fingerprints of parties whose keys have `changed`.
    """

    members: Members
    awaited: tuple[str, ...]
    registered: bool
    code: str
    added: Mapping[str, str] = field(default_factory=dict)
    gone: tuple[str, ...] = ()
    changed: Mapping[str, str] = field(default_factory=dict)

    def accept(self, home: Path, invitation: Invitation) -> None:
        """Believe the list, once the code was compared: keep it, the app and the authority's certificate."""
        if self.awaited:
            raise InputError(f"not everybody is there yet: {', '.join(self.awaited)}.")
        if KEY_GENERATOR not in self.members.fingerprints:
            raise InputError("nobody was invited as the key generator.")
        if len(self.members.names) < MIN_MEMBERS:
            raise PrivacyError(f"{len(self.members.names)} members take part; {MIN_MEMBERS} is the least. {WHY_THREE}")
        files = {
            "accepted.toml": Members({**_accepted(home), **self.members.fingerprints}).to_toml(),
            "app": invitation.app,
            "members.toml": self.members.to_toml(),
            "authority.crt": invitation.authority,
        }
        for name, text in files.items():
            with atomic_writer(home / name) as stream:
                stream.write(text.encode())

    def node_config(self, home: Path, data: Path | None) -> dict[str, str]:
        config = {"role": "member", "home": str(home)}
        if KeyStore(home).identity.name == KEY_GENERATOR:
            return config | {"role": "key-generator", "members-file": str(home / "members.toml")}
        config["key-generator"] = self.members.fingerprints[KEY_GENERATOR]
        return config | ({} if data is None else {"data": str(data)})


def _listed(path: Path) -> Mapping[str, str]:
    return Members.read(path).fingerprints if path.exists() else {}


def _accepted(home: Path) -> dict[str, str]:
    """Return the last fingerprint that a home has accepted of everybody, also of those who are gone."""
    return {**_listed(home / "accepted.toml"), **_listed(home / "members.toml")}


WHY_THREE = "Of two members, each would subtract its own update from the sum and hold the other's."


@dataclass(eq=False)
class Federation:
    """The operator's folder: the aggregator's key store, certificates, a secret, and who was invited and has joined."""

    home: Path
    address: str
    app: str
    codes: dict[str, str] = field(repr=False)
    joined: dict[str, dict[str, Any]]

    @classmethod
    def begin(cls, home: AnyPath, address: str, app: str) -> "Federation":
        """Make the folder of a new federation whose SuperLink is reached at `address` (host:port)."""
        home = as_path(home)
        _, colon, port = address.rpartition(":")
        if not colon or not port.isdigit():
            raise InputError(f"an address is HOST:PORT; got {address!r}.")
        if (home / "federation.json").exists():
            raise StorageError(f"{home} is the folder of a federation already.")
        if not (home / IDENTITY_FILE).exists():
            Identity.create(home / IDENTITY_FILE, AGGREGATOR)
        store = KeyStore(home)
        if store.identity.name != AGGREGATOR:
            raise InputError(f"{home} is the home of {store.identity.name!r}; the operator's is {AGGREGATOR!r}'s.")
        make_certificates(home / "certificates", _hosts(address))
        with atomic_writer(home / "secret", private=True) as stream:
            stream.write(system_bytes(32))
        made = cls(home, address, app, {}, {AGGREGATOR: {"identity": store.identity.public.to_bytes().hex()}})
        made._save()
        return made

    @classmethod
    def load(cls, home: AnyPath) -> "Federation":
        home = as_path(home)
        path = home / "federation.json"
        if not path.exists():
            raise StorageError(f"{home} is no federation's folder. Begin with: blindsight federation invite --address")
        with storage_errors("read", path):
            blob = path.read_bytes()
        try:
            return cls(home, **json.loads(blob))
        except (TypeError, ValueError) as error:
            raise CorruptFileError(f"{path} is damaged: {error}") from None

    @classmethod
    @contextmanager
    def editing(cls, home: AnyPath) -> "Iterator[Federation]":
        with exclusive_lock(as_path(home) / "federation.lock"):
            yield cls.load(home)

    @property
    def certificates(self) -> Certificates:
        return Certificates(self.home / "certificates")

    @property
    def members(self) -> Members:
        known = {name: PublicIdentity.from_bytes(bytes.fromhex(one["identity"])) for name, one in self.joined.items()}
        return Members({name: identity.fingerprint for name, identity in known.items()})

    @property
    def awaited(self) -> tuple[str, ...]:
        return tuple(sorted(set(self.codes) - set(self.joined)))

    @property
    def code(self) -> str:
        return short_code(self.members, self.certificates.authority.read_text(), self.app)

    def invite(self, name: str, source: ByteSource = system_bytes) -> Invitation:
        """Return the invitation of a party; another one for the same party makes the earlier one worthless."""
        check_name(name)
        if name in self.joined:
            raise InputError(f"{name!r} has joined. For new keys: blindsight federation remove, then invite it again.")
        self.codes[name] = letters(source(13))
        self._save()
        authority, known = self.certificates.authority.read_text(), dict(self.members.fingerprints)
        return Invitation(name, self.address, authority, self.app, self.codes[name], known)

    def remove(self, name: str) -> int | None:
        """Strike a party from the list, with its invitation; return its number at the SuperLink, if it has one."""
        if name == AGGREGATOR or name not in {*self.codes, *self.joined}:
            raise UnknownNameError("party", name, {*self.codes, *self.joined} - {AGGREGATOR})
        self.codes.pop(name, None)
        node: int | None = self.joined.pop(name, {}).get("node")
        self._save()
        return node

    def rotate(self) -> bytes:
        """Make another authority and SuperLink's certificate, and return the hand-over to it, for all parties.

        The SuperLink has to be started again. The old certificates stay in a folder next to the new ones.
        """
        old = self.certificates
        aside = next(path for number in count(1) if not (path := self.home / f"certificates.{number}").exists())
        new = make_certificates(self.home / "certificates.new", _hosts(self.address))
        body = json.dumps({"before": sha256_of(old.authority), "authority": new.authority.read_text()})
        old.folder.rename(aside)
        new.folder.rename(old.folder)
        identity = KeyStore(self.home).identity
        signed = identity.sign(body.encode(), purpose=_HAND_OVER)
        return json.dumps({"identity": identity.public.to_bytes().hex(), "signed": signed.hex()}).encode()

    def registered(self, name: str, node: int) -> None:
        self.joined[name]["node"] = node
        self._save()

    def admit(self, request: bytes) -> bytes:
        """Take in a party that shows its invitation; return the list of members. The same keys may come again."""
        try:
            asked = {key: str(value) for key, value in json.loads(request).items()}
            name, identity, node_key, proof = (asked[key] for key in ("name", "identity", "node-key", "proof"))
            public = PublicIdentity.from_bytes(bytes.fromhex(identity))
        except (AttributeError, KeyError, ValueError) as error:
            raise MessageError(f"this is no request to join: {type(error).__name__}") from None
        if not hmac.compare_digest(_proof(self.codes.get(name, ""), name, identity, node_key), proof) or not (
            name in self.codes and public.name == name
        ):
            raise PrivacyError("nobody was invited by this name and code.")
        kept = self.joined.setdefault(name, {"identity": identity, "node-key": node_key})
        if (kept["identity"], kept["node-key"]) != (identity, node_key):
            raise PrivacyError(f"the invitation of {name!r} was used with other keys. Ask the operator for another.")
        self._save()
        document = {"members": dict(self.members.fingerprints), "awaited": self.awaited, "registered": "node" in kept}
        return json.dumps(document).encode()

    def _save(self) -> None:
        document = {"address": self.address, "app": self.app, "codes": self.codes, "joined": self.joined}
        with atomic_writer(self.home / "federation.json", private=True) as stream:
            stream.write(json.dumps(document, indent=1).encode())
        with atomic_writer(self.home / "members.toml") as stream:
            stream.write(self.members.to_toml().encode())


def registered_names(home: Path) -> dict[int, str]:
    """Return the parties by the numbers of their nodes, if this is a federation's folder."""
    joined = Federation.load(home).joined if (home / "federation.json").exists() else {}
    return {int(one["node"]): name for name, one in joined.items() if "node" in one}


def _hosts(address: str) -> list[str]:
    return sorted({address.rpartition(":")[0].strip("[]"), *LOOPBACK})


def follow_handover(home: Path, hand_over: bytes) -> None:
    """Believe another authority, if the aggregator among the party's members has signed that it follows the present."""
    try:
        document = json.loads(hand_over)
        identity = PublicIdentity.from_bytes(bytes.fromhex(document["identity"]))
        envelope = bytes.fromhex(document["signed"])
    except (KeyError, TypeError, ValueError) as error:
        raise MessageError(f"this is no hand-over: {type(error).__name__}") from None
    Members.read(home / "members.toml").check(identity)
    if identity.name != AGGREGATOR:
        raise PrivacyError(f"the aggregator signs a hand-over; this one is of {identity.name!r}.")
    news = json.loads(verify_signed(envelope, identity, purpose=_HAND_OVER))
    if news["before"] != sha256_of(home / "authority.crt"):
        raise PrivacyError("the hand-over is from another authority than the one of this home, or was used before.")
    with atomic_writer(home / "authority.crt") as stream:
        stream.write(news["authority"].encode())


def admitted(home: Path, request: bytes) -> tuple[int, bytes]:
    """Answer a request at the door: an HTTP status, and the list of members or why not."""
    try:
        if len(request) > LARGEST_REQUEST:
            raise MessageError("the request is too long.")
        with Federation.editing(home) as federation:
            return 200, federation.admit(request)
    except (MessageError, PrivacyError, InputError) as error:
        return 403, str(error).encode()
