"""Settings of a service: where it keeps its state, where it listens, and how much it takes.

A setting that cannot work is refused before anything is opened. Without TLS tokens would be readable on a network, so a
host other than this machine needs a certificate; a proxy with its own certificate serves a loopback address.
"""

from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import quote

from blindsight.data.images import MAX_PIXELS
from blindsight.errors import InputError
from blindsight.files import as_path

PICTURE_PIXELS = 50_000_000  # of a sent picture, as phones take them; the decoder takes `MAX_PIXELS`

_ABOVE_ZERO = (
    *("body_bytes", "pictures_bytes", "picture_pixels", "requests_per_minute", "job_seconds", "verdict_seconds"),
    *("head_seconds", "stream_seconds", "connections", "connections_per_address"),
)
KINDS = ("sqlite", "postgresql", "postgresql+psycopg")


@dataclass(frozen=True)
class ServiceSettings:
    """The settings of one service. `database` is a URL, whose password no representation shows."""

    folder: Path
    database: str | None = field(default=None, repr=False)
    host: str = "127.0.0.1"
    port: int = 8420
    certificate: Path | None = None
    key: Path | None = None
    body_bytes: int = 8_000_000
    pictures_bytes: int = 32_000_000  # of a request with people's pictures: one, or a batch
    stream_seconds: float = 1.0  # between two releases of a stream, at least
    picture_pixels: int = PICTURE_PIXELS
    requests_per_minute: int = 600
    job_seconds: float = 900
    verdict_seconds: float = 60
    """An app is told a verdict after a whole number of these, whatever it is: an accept takes longer than a reject."""
    head_seconds: float = 10  # until a request's head is whole; its body has as long, plus 1 s per 25 kB
    connections: int = 2000
    connections_per_address: int = 250
    key_folder: Path | None = None
    """Where keys lie while grants are live (`keys`), best on a tmpfs; by default next to the folder."""
    processes: int = 1  # each with all of the service but the page, which only one has
    proxy: str | None = None  # whose X-Forwarded-For and X-Forwarded-Proto are believed; nobody else's are
    without_tls: bool = False  # serve a network where tokens travel readable; only if something else encrypts it
    witnesses: tuple[str, ...] = ()  # remember the log's newest head (`witnesses`): files, services by URL
    witness_new: bool = False  # whether a service among them may know nothing of this log yet

    def __post_init__(self) -> None:
        """Refuse what cannot work; paths may come as text and begin with ~."""
        for name in ("folder", "certificate", "key", "key_folder"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, as_path(getattr(self, name)))
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"the folder must be a folder; got {self.folder}, a file.")
        if self.key_folder is None:
            object.__setattr__(self, "key_folder", Path(f"{self.folder.absolute()}-keys"))
        if self.open_keys.absolute().is_relative_to(self.folder.absolute()):
            raise InputError(
                f"keys must not lie in the folder, of which there are copies; got {self.key_folder}. Name another."
            )
        if self.database is not None:
            check_database(self.database)
        if not 0 <= self.port <= 65_535:
            raise InputError(f"port must be in [0, 65535], where 0 takes a free one; got {self.port}.")
        if self.proxy is not None and not _is_address(self.proxy):
            raise InputError(f"the proxy must be an IP address such as 127.0.0.1; got {self.proxy!r}.")
        self._check_encryption()
        for name in _ABOVE_ZERO:
            if not 0 < getattr(self, name) < float("inf"):
                raise InputError(f"{name} must be finite and above 0; got {getattr(self, name)}.")
        if self.picture_pixels > MAX_PIXELS:
            raise InputError(f"picture_pixels must be at most {MAX_PIXELS}; got {self.picture_pixels}.")

    @property
    def database_url(self) -> str:
        return self.database or f"sqlite:///{quote(str(self.folder.absolute() / 'service.db'))}"

    @property
    def open_keys(self) -> Path:
        assert self.key_folder is not None
        return self.key_folder

    @property
    def encrypted(self) -> bool:
        return self.certificate is not None

    def _check_encryption(self) -> None:
        if (self.certificate is None) != (self.key is None):
            given, missing = ("certificate", "key") if self.key is None else ("key", "certificate")
            raise InputError(f"TLS needs a certificate and its key; got a {given} without a {missing}. Give both.")
        for name, path in (("certificate", self.certificate), ("key", self.key)):
            if path is not None and not path.is_file():
                raise InputError(f"the {name} must be a file; there is none at {path}.")
        if not self.encrypted and not self.without_tls and not _is_loopback(self.host):
            raise InputError(
                f"without TLS the host must be this machine itself, for tokens would travel readable; got "
                f"{self.host!r}. Give a certificate and its key, or listen on 127.0.0.1 behind a proxy with TLS."
            )


def check_database(url: str) -> None:
    """Refuse a URL of a kind of database that is not supported; the sentence does not repeat the URL."""
    kind, separator, _ = url.partition("://")
    if not separator or kind not in KINDS:
        raise InputError(
            "the database must be a URL such as 'sqlite:////path/service.db' or 'postgresql://user@host/name'."
        )


def _is_loopback(host: str) -> bool:
    return host == "localhost" or (_is_address(host.strip("[]")) and ip_address(host.strip("[]")).is_loopback)


def _is_address(host: str) -> bool:
    try:
        return bool(ip_address(host))
    except ValueError:
        return False
