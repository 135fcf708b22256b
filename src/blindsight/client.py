"""Speak to a service from Python: one method per endpoint, records that can be read, errors that are the library's own.

    with Client("http://127.0.0.1:8420", token) as app:
        app.register_app(["male"])
        job = app.propose("ann")
        app.wait(job.id)
        app.release("ann", latest=1).rows

What a service refuses is raised as it would be by the library: a wrong argument is an `InputError`, a broken privacy
rule (or a token that opens nothing) a `PrivacyError`, a service that is away or too busy a `ServiceError`. A token is
only ever sent to the address it was given for: redirects are not followed, proxies that the environment names are not
used, and unless the service is on this very machine the connection must be encrypted. Needs the extra `service`.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar
from urllib.parse import quote, urlsplit

from blindsight.crypto.merkle import EMPTY, TreeHead, check_receipt, consistent
from blindsight.errors import InputError, MessageError, PrivacyError, ServiceError
from blindsight.extras import require

if TYPE_CHECKING:
    import ssl

    from blindsight.sift.sift import Sift

R = TypeVar("R")
State = Literal["queued", "running", "done", "failed", "cancelled", "timed out"]
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Principal:
    """Somebody who may ask; moments are ISO 8601."""

    id: str
    name: str
    role: Literal["owner", "app", "operator"]
    created: str | None = None
    expires: str | None = None
    revoked: str | None = None


@dataclass(frozen=True)
class Person:
    """What a person hides, and how many pictures of them the service has."""

    person: str
    private: tuple[str, ...]
    frames: int


@dataclass(frozen=True)
class Job:
    """Work in the background."""

    id: str
    kind: str
    state: State
    done: float
    doing: str
    error: str | None = None
    result: Mapping[str, Any] | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing more will come of it."""
        return self.state not in ("queued", "running")


@dataclass(frozen=True)
class Proposal:
    """What an app would like to get, and what became of it; an app is told the verdict without evidence."""

    job: str
    state: State
    person: str
    app: str
    mode: Literal["included", "unincluded"]
    frames: int
    then: Literal["refuse", "repeat"]
    verdict: Literal["accept", "reject", "inconclusive", "denied"] | None
    answer: Literal["allow", "fewer", "refuse"] | None
    grant: int | None
    next: str | None
    sentence: str | None
    evidence: Mapping[str, Any] | None


@dataclass(frozen=True)
class Grant:
    """Who may get what about whom, and how much of it went out."""

    number: int
    person: str
    app: str
    public: tuple[str, ...]
    mode: Literal["included", "unincluded"]
    standing: Literal["live", "suspended", "revoked"]
    frames: int
    released: int
    then: Literal["refuse", "repeat"]
    time: str
    reason: str | None
    evidence: Mapping[str, Any] | None


@dataclass(frozen=True)
class Release:
    """A row of numbers per frame; in included mode each stands for the attribute of its label."""

    grant: int
    rows: tuple[tuple[float, ...], ...]
    labels: tuple[str, ...] | None
    receipt: Mapping[str, Any]
    """Proves that the release is in the service's log; `blindsight verify-log --head` takes it as a file."""


@dataclass(frozen=True)
class Entry:
    """One entry of the audit log."""

    position: int
    time: str
    actor: str
    action: str
    details: Mapping[str, Any]
    hash: str


@dataclass(frozen=True)
class LogCheck:
    """Whether the log's chain holds."""

    ok: bool
    entries: int
    head: str
    broken_at: int | None
    reason: str


@dataclass(frozen=True)
class Index:
    """An index that can be asked."""

    name: str
    mode: Literal["local", "central", "open"]
    pictures: int
    headline: str


@dataclass(frozen=True)
class Hit:
    """A picture's number, and how near it is to the query."""

    number: int
    nearness: float


@dataclass(frozen=True)
class Run:
    """A learning run and its rounds so far."""

    name: str
    data: str
    owners: int
    features: str
    finished: bool
    rounds: int
    score: float | None
    history: tuple[Mapping[str, Any], ...]
    statement: Mapping[str, Any] | None


class Client:
    """One principal's view of a service. `verify` is a TLS context for certificates of your own."""

    def __init__(self, url: str, token: str, *, verify: "ssl.SSLContext | bool" = True, timeout: float = 30.0) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError("the address of a service looks like https://example.org:8420.")
        if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
            raise InputError("a token would travel readable over http. Use https, or a service on this machine.")
        self._httpx = require("httpx", extra="service", purpose="speaking to a service")
        self._http = self._httpx.Client(
            base_url=url.rstrip("/"),
            headers={"Authorization": f"Bearer {token}"},
            verify=verify,
            timeout=timeout,
            trust_env=False,  # a proxy that the environment names would get the token
        )
        self._me: Principal | None = None
        self._key: str | None = None

    def __repr__(self) -> str:
        return f"Client({str(self._http.base_url)!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    # --- who ---

    @property
    def me(self) -> Principal:
        """Whose token this is."""
        if self._me is None:
            self._me = _read(Principal, self._get("/me"))
        return self._me

    def principals(self) -> tuple[Principal, ...]:
        """Return everybody."""
        return _each(Principal, self._get("/principals")["principals"])

    def create_principal(self, name: str, role: str, *, days: int | None = None) -> tuple[Principal, str]:
        """Add somebody; their token is shown this once."""
        return _with_token(self._send("POST", "/principals", {"name": name, "role": role, "days": days}))

    def rotate_token(self, id: str) -> tuple[Principal, str]:
        """Replace a token."""
        return _with_token(self._send("POST", f"/principals/{_part(id)}/token"))

    def revoke_principal(self, id: str) -> Principal:
        """Make a token worthless for ever."""
        return _read(Principal, self._send("DELETE", f"/principals/{_part(id)}"))

    # --- for owners ---

    def attributes(self) -> tuple[str, ...]:
        """Return what the platform has labels for."""
        return tuple(self._get("/attributes")["attributes"])

    def person(self, name: str | None = None) -> Person:
        """Return what a person (without a name: this one) hides."""
        return _read(Person, self._get(self._person(name)))

    def set_private(self, attributes: Sequence[str]) -> Job:
        """Hide these attributes; the job verifies all grants anew."""
        return _read(Job, self._send("PUT", f"{self._person()}/private", {"attributes": list(attributes)}))

    def odometer(self, name: str | None = None) -> Job:
        """Have it measured how much is out about a person; the job's result has the readings."""
        return _read(Job, self._send("POST", f"{self._person(name)}/odometer"))

    def add_frame(self, picture: bytes) -> str:
        """Send a picture's file; return its id."""
        return str(self._send("POST", f"{self._person()}/frames", picture)["frame"])

    def frames(self) -> tuple[str, ...]:
        """Return the ids of this person's pictures, oldest first."""
        return tuple(self._get(f"{self._person()}/frames")["frames"])

    def picture(self, frame: str) -> bytes:
        """Return one of this person's pictures as a PNG file."""
        return bytes(self._ask("GET", f"{self._person()}/frames/{_part(frame)}").content)

    def delete_frame(self, frame: str) -> None:
        """Have a picture forgotten."""
        self._send("DELETE", f"{self._person()}/frames/{_part(frame)}")

    def answer(self, job: str, said: Literal["allow", "fewer", "refuse"]) -> Proposal:
        """Answer a proposal."""
        return _read(Proposal, self._send("POST", f"/proposals/{_part(job)}/answer", {"answer": said}))

    # --- for apps ---

    def register_app(self, public: Sequence[str]) -> tuple[str, ...]:
        """Say what this app wants to know."""
        path = f"/apps/{_part(self.me.name)}/public"
        return tuple(self._send("PUT", path, {"attributes": list(public)})["public"])

    def propose(
        self,
        person: str,
        sift: "Sift | None" = None,
        *,
        frames: int = 1,
        then: Literal["refuse", "repeat"] = "refuse",
    ) -> Job:
        """Ask for what a sift of this app lets out about a person, or without one for the platform's own label."""
        numbers = None if sift is None else sift_document(sift)
        wanted = {"person": person, "sift": numbers, "frames": frames, "then": then}
        return _read(Job, self._send("POST", "/proposals", wanted))

    def release(self, person: str, *, frames: Sequence[str] | None = None, latest: int | None = None) -> Release:
        """Get what this app's grant lets out of some frames of a person."""
        named = None if frames is None else list(frames)
        given = _read(Release, self._send("POST", "/releases", {"person": person, "frames": named, "latest": latest}))
        (_, _, actor, action, _), head = check_receipt(given.receipt)
        if (actor, action, head.key) != (self.me.id, "release", self._key or head.key):
            raise MessageError("this receipt is about another release, or signed with another key than before.")
        self._key = head.key
        return given

    # --- for all ---

    def proposals(self) -> tuple[Proposal, ...]:
        """Return the proposals that concern this principal, newest first."""
        return _each(Proposal, self._get("/proposals")["proposals"])

    def proposal(self, job: str) -> Proposal:
        return _read(Proposal, self._get(f"/proposals/{_part(job)}"))

    def grants(self) -> tuple[Grant, ...]:
        """Return the grants that concern this principal, oldest first."""
        return _each(Grant, self._get("/grants")["grants"])

    def revoke_grant(self, number: int, reason: str) -> Grant:
        """End a grant."""
        return _read(Grant, self._send("POST", f"/grants/{int(number)}/revocation", {"reason": reason}))

    def job(self, id: str) -> Job:
        """Return how far a job is."""
        return _read(Job, self._get(f"/jobs/{_part(id)}"))

    def cancel(self, id: str) -> Job:
        """Stop a job."""
        return _read(Job, self._send("DELETE", f"/jobs/{_part(id)}"))

    def wait(self, id: str, *, seconds: float = 900.0, pause: float = 0.5) -> Job:
        """Return a job once it has ended, or raise when it takes longer than so many seconds."""
        end = time.monotonic() + seconds
        while not (job := self.job(id)).ended:
            if time.monotonic() + pause > end:
                raise ServiceError(f"job {id} is not finished after {seconds:g} seconds: it is {job.state}.")
            time.sleep(pause)
        return job

    def indexes(self) -> tuple[Index, ...]:
        """Return all indexes."""
        return _each(Index, self._get("/indexes")["indexes"])

    def search(self, index: str, picture: bytes, *, k: int = 10) -> tuple[Hit, ...]:
        """Ask an index with a picture's file."""
        return _each(Hit, self._send("POST", f"/indexes/{_part(index)}/query?k={int(k)}", picture)["hits"])

    def take_index(self, index: str, *, numbers: bool = True) -> bytes:
        """Return the whole of an index in local mode, so that no query ever leaves (`blindsight search pull`)."""
        return bytes(self._ask("GET", f"/indexes/{_part(index)}/file?numbers={str(numbers).lower()}").content)

    def query_setup(self, index: str) -> bytes:
        """Return what is needed before an encrypted query (`search.encrypted_query.QuerySetup`)."""
        return bytes(self._ask("GET", f"/indexes/{_part(index)}/encrypted").content)

    def ask_encrypted(self, index: str, query: bytes) -> bytes:
        """Return the encrypted answer to an encrypted query; one that was answered costs of the index's budget."""
        sent = {"content": query, "headers": {"Content-Type": "application/octet-stream"}}
        return bytes(self._ask("POST", f"/indexes/{_part(index)}/encrypted", **sent).content)

    def statements(self) -> dict[str, Mapping[str, Any]]:
        """Return every privacy statement, by what it is about."""
        return {one["subject"]: one["statement"] for one in self._get("/statements")["statements"]}

    def runs(self) -> tuple[str, ...]:
        """Return the names of all learning runs."""
        return tuple(self._get("/runs")["runs"])

    def run(self, name: str) -> Run:
        """Return how far a learning run is."""
        return _read(Run, self._get(f"/runs/{_part(name)}"))

    def head(self, since: TreeHead | None = None) -> TreeHead:
        """Return the newest head of the service's log, which must be proven to continue an earlier one, if given."""
        data = self._get(f"/log/consistency?first={0 if since is None else since.size}")
        head, proof = TreeHead.from_dict(data["head"]), [bytes.fromhex(part) for part in data["proof"]]
        before = (0, EMPTY) if since is None else (since.size, bytes.fromhex(since.root))
        continued = since is None or since.key == head.key
        if not continued or not consistent(*before, head.size, bytes.fromhex(head.root), proof):
            raise MessageError(f"the service's log does not continue {since}: it was cut or rewritten.")
        return head

    def witness_head(self, head: Mapping[str, Any], proof: Sequence[str]) -> None:
        """Have this service remember the head of another one's log."""
        self._send("POST", "/witness", {"head": dict(head), "proof": list(proof)})

    def witnessed_head(self, key: str) -> Mapping[str, Any] | None:
        """Return the newest head that this service remembers of the log with this key."""
        try:
            return dict(self._get(f"/witness/{_part(key)}"))
        except InputError:
            return None

    # --- for operators ---

    def add_attacker(self, name: str) -> tuple[Job, ...]:
        """Let one more attacker judge; the jobs review what was granted."""
        return _each(Job, self._send("POST", "/attackers", {"name": name})["jobs"])

    def log(self, *, after: int = 0) -> Iterator[Entry]:
        """Yield the log's entries behind a position, oldest first, page by page."""
        while entries := _each(Entry, self._get(f"/log?after={int(after)}&limit=1000")["entries"]):
            yield from entries
            after = entries[-1].position

    def check_log(self) -> LogCheck:
        """Have the log checked by the service; an export can be checked without trusting it."""
        return _read(LogCheck, self._get("/log/check"))

    def export_log(self) -> str:
        """Return the log as JSON lines, for `blindsight verify-log`."""
        return str(self._ask("GET", "/log/export").text)

    def ledger(self, *, delta: float = 1e-6) -> tuple[Mapping[str, Any], ...]:
        """Return what was spent on every scope, and its budget."""
        return tuple(self._get(f"/ledger?delta={float(delta)!r}")["scopes"])

    # --- how ---

    def _person(self, name: str | None = None) -> str:
        return f"/people/{_part(self.me.name if name is None else name)}"

    def _get(self, path: str) -> Any:
        return self._ask("GET", path).json()

    def _send(self, method: str, path: str, body: Mapping[str, Any] | bytes | None = None) -> Any:
        if isinstance(body, bytes):
            sent: dict[str, Any] = {"content": body, "headers": {"Content-Type": "application/octet-stream"}}
        else:
            sent = {} if body is None else {"json": body}
        return self._ask(method, path, **sent).json()

    def _ask(self, method: str, path: str, **sent: Any) -> Any:
        """Return a successful answer, or raise what the refusal means."""
        try:
            response = self._http.request(method, f"/v1{path}", **sent)
        except self._httpx.HTTPError as error:
            raise ServiceError(f"the service does not answer ({type(error).__name__}).") from None
        if response.is_success:
            return response
        raise _refused(response.status_code, _sentence(response))


def sift_document(sift: "Sift") -> dict[str, Any]:
    """Return a sift as the service takes it: settings and numbers, nothing else."""
    arrays = {name: numbers.tolist() for name, numbers in sift.arrays().items()}
    return {"kind": sift.kind, "settings": sift.document(), "arrays": arrays}


def _refused(status: int, sentence: str) -> InputError | PrivacyError | ServiceError:
    if status in (401, 403):
        return PrivacyError(sentence)
    return ServiceError(sentence) if status == 429 or status >= 500 or status < 400 else InputError(sentence)


def _sentence(response: Any) -> str:
    try:
        return str(response.json()["error"])
    except (ValueError, KeyError, TypeError):
        return f"the service answered {response.status_code}, and not as a Blindsight service does."


def _read(kind: type[R], data: Mapping[str, Any]) -> R:
    """Return a record made of the fields it knows; lists become tuples."""
    try:
        return kind(**{part.name: _frozen(data[part.name]) for part in fields(kind) if part.name in data})  # type: ignore[arg-type]
    except (TypeError, KeyError):
        raise ServiceError("the service is of another version: its answer cannot be read.") from None


def _each(kind: type[R], data: Sequence[Mapping[str, Any]]) -> tuple[R, ...]:
    return tuple(_read(kind, one) for one in data)


def _with_token(data: Mapping[str, Any]) -> tuple[Principal, str]:
    return _read(Principal, data["principal"]), str(data["token"])


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _part(text: str) -> str:
    """Return a name as one part of a path, whatever is in it."""
    return quote(text, safe="")
