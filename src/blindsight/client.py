"""Python client of a service: one method per endpoint, refusals as the library's own errors, and the records that a
service answers with, which it takes from here.

    with Client("http://127.0.0.1:8420", token) as app:
        app.register_app(["male"])
        job = app.propose("ann")
        app.wait(job.id)
        app.release("ann", latest=1).rows

A wrong argument raises `InputError`, a broken privacy rule (or a token that opens nothing) `PrivacyError`, a service
that is away or too busy `ServiceError`. A token is only sent to the address it was given for: redirects are not
followed, proxies that the environment names are not used, and unless the service is on this very machine the connection
must be encrypted. Needs the extra `service`.

*Keys.* An owner's pictures are sealed for a key that is made here, at enrolment, and never leaves: `enrol` redeems the
code that an operator gave out and returns the `Identity`, to be saved in a file for its owner alone. Pictures are
opened here; to allow a proposal opens the keys of one's epochs here and hands them over. Keep copies of the file: who
loses the key loses the pictures, and nobody can help.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, cast
from urllib.parse import quote, urlsplit

from blindsight.crypto.merkle import EMPTY, TreeHead, check_receipt, consistent
from blindsight.crypto.sealedbox import ExchangeKey
from blindsight.errors import CorruptFileError, InputError, MessageError, PrivacyError, ServiceError
from blindsight.extras import require
from blindsight.files import AnyPath, as_path, atomic_writer, storage_errors

if TYPE_CHECKING:
    import ssl

    from blindsight.sift.sift import Sift

R = TypeVar("R")
Then = Literal["refuse", "repeat", "permanent"]
State = Literal["queued", "running", "done", "failed", "cancelled", "timed out"]
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Principal:
    """Somebody who may ask, never with a token; moments are ISO 8601."""

    id: str
    name: str
    role: Literal["owner", "app", "operator", "device"]
    created: str | None = None
    expires: str | None = None
    revoked: str | None = None
    public_key: str | None = None


@dataclass(frozen=True)
class Attribute:
    """An attribute; of one that never changes people may have a permanent symbol."""

    name: str
    unchanging: bool


@dataclass(frozen=True)
class Platform:
    """What an app needs to know before it fits a sift: features of `pipeline` with `dimension` numbers, made of
    pictures of `side` x `side` pixels. At most `frames` frames of a person can be verified together, all apps counted;
    permanent symbols go on for ever. A hidden attribute may be guessed `threshold` better than blindly, shown with
    `confidence`. `notes` say for what the verification data are too few.
    """

    pipeline: str
    dimension: int
    side: int
    attributes: tuple[Attribute, ...]
    frames: int
    pictures: int
    persons: int | None
    threshold: float
    confidence: float
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Retention:
    """How long frames are kept: the newest `frames`, and those of the last `days`; None is no limit of this kind."""

    frames: int | None = None
    days: int | None = None


@dataclass(frozen=True)
class Person:
    """A person, what they hide, how many frames of them are kept, and how long."""

    person: str
    private: tuple[str, ...]
    frames: int
    retention: Retention


@dataclass(frozen=True)
class Device:
    """A camera of a person; never with its token."""

    id: str
    name: str
    created: str
    expires: str | None = None
    revoked: str | None = None


@dataclass(frozen=True)
class FrameResult:
    """What became of one picture of a batch: the id of its frame, or why it was not taken."""

    name: str
    frame: str | None = None
    error: str | None = None


@dataclass(frozen=True)
class Epoch:
    """An epoch: its secret is sealed for the owner's key (HPKE, RFC 9180), all in hexadecimal."""

    id: str
    public_key: str
    owner_key: str
    sealed: str
    began: str
    ended: str | None = None


@dataclass(frozen=True)
class Job:
    """Work in the background: ask again until its state is final."""

    id: str
    kind: str
    state: State
    done: float
    doing: str
    error: str | None = None
    result: Mapping[str, Any] | None = None

    @property
    def ended(self) -> bool:
        return self.state not in ("queued", "running")


@dataclass(frozen=True)
class Cost:
    """How well a hidden attribute can be guessed from what would go out, as a balanced accuracy: 1/2 is blind.
    `at_most` holds for everybody where `certified`, else for the attackers that were tried; `together` is with all that
    other apps get.
    """

    attribute: str
    guess: float
    at_most: float
    certified: bool
    together: bool


@dataclass(frozen=True)
class Proposal:
    """What an app would like to get, and what became of it. Sentence, cost and evidence are for the person and the
    operator: an app is told the verdict and no more.
    """

    job: str
    state: State
    person: str
    app: str
    mode: Literal["included", "unincluded"]
    frames: int
    then: Then
    doing: str
    done: float
    verdict: Literal["accept", "reject", "inconclusive", "denied"] | None = None
    answer: Literal["allow", "fewer", "refuse"] | None = None
    grant: int | None = None
    next: str | None = None
    sentence: str | None = None
    cost: tuple[Cost, ...] | None = None
    evidence: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Grant:
    """Who may get what about whom, and how much of it went out; a suspended one releases nothing until it was verified
    again. The evidence is for the person and the operator.
    """

    number: int
    person: str
    app: str
    public: tuple[str, ...]
    mode: Literal["included", "unincluded"]
    standing: Literal["live", "suspended", "revoked"]
    frames: int
    released: int
    then: Then
    time: str
    reason: str | None = None
    evidence: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Release:
    """What an app gets: a row of numbers per frame, and in included mode which attribute each stands for. The receipt
    proves that the release is in the log: keep it; `blindsight verify-log --head` takes it as a file.
    """

    grant: int
    rows: tuple[tuple[float, ...], ...]
    labels: tuple[str, ...] | None
    receipt: Mapping[str, Any]


@dataclass(frozen=True)
class Entry:
    """One entry of the log; the hash is what its Merkle tree keeps with it."""

    position: int
    time: str
    actor: str
    action: str
    details: Mapping[str, Any]
    hash: str


@dataclass(frozen=True)
class LogCheck:
    """Whether the log holds, and where it breaks; the head is its root."""

    ok: bool
    entries: int
    head: str
    broken_at: int | None = None
    reason: str = ""


@dataclass(frozen=True)
class Index:
    """An index that can be asked."""

    name: str
    mode: Literal["local", "central", "open"]
    pictures: int
    headline: str


@dataclass(frozen=True)
class Hit:
    """A picture's number and how near it is: a score in local mode, else a distance."""

    number: int
    nearness: float


@dataclass(frozen=True)
class Run:
    """A learning run: what it is about, how far it is, and what is proven about it."""

    name: str
    data: str
    owners: int
    features: str
    finished: bool
    rounds: int
    history: tuple[Mapping[str, Any], ...]
    score: float | None = None
    statement: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Identity:
    """What somebody needs to speak to a service: keep it secret. `key` is an owner's private key, in hexadecimal."""

    url: str
    name: str
    role: str
    token: str = field(repr=False)
    key: str | None = field(default=None, repr=False)
    head: Mapping[str, Any] | None = field(default=None, repr=False)
    """The newest head of the service's log that this principal has seen (`Client.seen`)."""

    @property
    def public_key(self) -> str | None:
        """The public key that belongs to an owner's private one, in hexadecimal: no secret."""
        return None if self.key is None else ExchangeKey(_bytes(self.key)).public.hex()

    def save(self, path: AnyPath, *, update: bool = False) -> None:
        """Write it to a file that only its owner can read; one that is there is overwritten only to `update` it."""
        path = as_path(path)
        if path.exists() and not (update and replace(Identity.load(path), head=self.head) == self):
            raise InputError(f"{path} is there already, and may hold a key. Name another file.")
        with atomic_writer(path, private=True) as stream:
            stream.write(json.dumps(asdict(self), indent=1).encode())

    @classmethod
    def load(cls, path: AnyPath) -> Self:
        """Read it from a file."""
        path = as_path(path)
        with storage_errors("read", path):
            text = path.read_text()
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError):
            raise CorruptFileError(f"{path} is no identity that `blindsight enrol` wrote.") from None


def enrol(url: str, code: str, *, verify: "ssl.SSLContext | bool" = True, timeout: float = 30.0) -> Identity:
    """Redeem a code: make a key here (of use to an owner), and the token that nobody else has seen."""
    key = ExchangeKey.generate()
    secret, named = key.secret_bytes().hex(), {"code": code, "public_key": key.public.hex()}
    with Client(url, "", verify=verify, timeout=timeout) as client:
        made, token = _with_token(client._send("POST", "/enrolment", named))
    return Identity(url, made.name, made.role, token, secret if made.role == "owner" else None)


class Client:
    """One principal's view of a service. `verify` is a TLS context for certificates of your own. An owner's `key` (of
    their `Identity`, in hexadecimal) opens their pictures and the keys of their epochs. A camera does not have it, but
    may be given the public `owner_key` (`Identity.public_key`): its pictures are sealed for that or refused.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        key: str | None = None,
        owner_key: str | None = None,
        verify: "ssl.SSLContext | bool" = True,
        timeout: float = 30.0,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError("the address of a service looks like https://example.org:8420.")
        if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
            raise InputError("a token would travel readable over http. Use https, or a service on this machine.")
        self._httpx = require("httpx", extra="service", purpose="speaking to a service")
        self._http = self._httpx.Client(
            base_url=url.rstrip("/"),
            headers={"Authorization": f"Bearer {token}"} if token else {},
            verify=verify,
            timeout=timeout,
            trust_env=False,  # a proxy that the environment names would get the token
        )
        self._me: Principal | None = None
        self._head: TreeHead | None = None
        self._continued = False  # whether the log was shown to continue the head
        self._own_key = None if key is None else ExchangeKey(_bytes(key))
        self._owner_key = None if owner_key is None else _bytes(owner_key).hex()

    @classmethod
    def of(cls, identity: Identity, *, verify: "ssl.SSLContext | bool" = True, timeout: float = 30.0) -> Self:
        """Return the client of an identity; the service's log must continue the head that it holds."""
        client = cls(identity.url, identity.token, key=identity.key, verify=verify, timeout=timeout)
        client._head = None if identity.head is None else TreeHead.from_dict(dict(identity.head))
        return client

    def seen(self, identity: Identity) -> Identity:
        """Return an identity with the newest head that this client has seen, to be saved with `update`."""
        return replace(identity, head=None if self._head is None else asdict(self._head))

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
        return _each(Principal, self._pages("/principals", "principals", lambda one: one["id"]))

    def create_principal(
        self, name: str, role: str, *, days: int | None = None, hours: int = 72
    ) -> tuple[Principal, str]:
        """Add somebody; return the code with which they `enrol`, this once."""
        return _with_code(self._send("POST", "/principals", {"name": name, "role": role, "days": days, "hours": hours}))

    def issue_code(self, id: str, *, days: int | None = None, hours: int = 72) -> tuple[Principal, str]:
        """Issue another code for who lost a token or a key; the token and grants about an owner end."""
        return _with_code(self._send("POST", f"/principals/{_part(id)}/enrolment", {"days": days, "hours": hours}))

    def rotate_token(self) -> str:
        """Replace one's own token; this client uses the new one from now on."""
        token = _with_token(self._send("POST", "/me/token"))[1]
        self._http.headers["Authorization"] = f"Bearer {token}"
        return token

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
        """Hide these attributes; the job verifies all grants again."""
        return _read(Job, self._send("PUT", f"{self._person()}/private", {"attributes": list(attributes)}))

    def odometer(self, name: str | None = None) -> Job:
        """Measure how much is out about a person; the job's result has the readings."""
        return _read(Job, self._send("POST", f"{self._person(name)}/odometer"))

    def add_frame(self, picture: bytes) -> str:
        """Send a picture's file, to be sealed for this owner's key; return its id."""
        return str(self._send("POST", f"{self._person()}/frames{self._expected()}", picture)["frame"])

    def add_frames(self, pictures: Mapping[str, bytes]) -> tuple[FrameResult, ...]:
        """Send several pictures, by their file names, sealed as `add_frame` does; each has its own result."""
        files = [("pictures", (name, content)) for name, content in pictures.items()]
        sent = self._ask("POST", f"{self._person()}/frames/batch{self._expected()}", files=files).json()
        return _each(FrameResult, sent["results"])

    def _expected(self) -> str:
        """Return the keys for which the service must seal a picture, or refuse it. They are asked for and checked each
        time, since who writes to its database could exchange them.
        """
        if self._own_key is None:
            return "" if self._owner_key is None else f"?owner_key={self._owner_key}"
        present = [epoch for epoch in _each(Epoch, self._get(f"{self._person()}/keys")["epochs"]) if not epoch.ended]
        if [epoch.owner_key for epoch in present] != [self._own_key.public.hex()]:
            raise MessageError("the service would seal this picture for another key than yours. Nothing was sent.")
        self._opened(present[0])
        return f"?owner_key={present[0].owner_key}&epoch_key={present[0].public_key}"

    def add_device(self, name: str, *, days: int | None = None) -> tuple[Device, str]:
        """Add a camera, which can bring frames and do nothing else; its token is shown this once."""
        made = self._send("POST", f"{self._person()}/devices", {"name": name, "days": days})
        return _read(Device, made["device"]), str(made["token"])

    def devices(self) -> tuple[Device, ...]:
        """Return this person's cameras, also the revoked."""
        return _each(Device, self._get(f"{self._person()}/devices")["devices"])

    def revoke_device(self, id: str) -> Device:
        """Make a camera's token worthless for ever."""
        return _read(Device, self._send("DELETE", f"{self._person()}/devices/{_part(id)}"))

    def set_retention(self, *, frames: int | None = None, days: int | None = None) -> Person:
        """Keep the newest `frames`, those of the last `days`, or (without either) all."""
        return _read(Person, self._send("PUT", f"{self._person()}/retention", {"frames": frames, "days": days}))

    def frames(self) -> tuple[str, ...]:
        """Return the ids of this person's pictures, oldest first."""
        return tuple(self._pages(f"{self._person()}/frames", "frames", lambda one: one))

    def renew_frames(self) -> int:
        """Send those pictures again whose features are of another pipeline than the service's; return how many."""
        stale = self._get(f"{self._person()}/frames")["stale"]
        for frame in stale:
            self.add_frame(self.picture(frame))
            self.delete_frame(frame)
        return len(stale)

    def picture(self, frame: str) -> bytes:
        """Return one of this person's pictures as a PNG file, opened here."""
        answer = self._ask("GET", f"{self._person()}/frames/{_part(frame)}")
        return self._secret.open(bytes(answer.content), context=b"blindsight/picture.1 " + frame.encode())

    def delete_frame(self, frame: str) -> None:
        """Delete a picture."""
        self._send("DELETE", f"{self._person()}/frames/{_part(frame)}")

    def answer(self, job: str, said: Literal["allow", "fewer", "refuse"]) -> Proposal:
        """Answer a proposal; to allow it hands over the keys of this person's epochs."""
        keys = self.epoch_keys() if said == "allow" else None
        return _read(Proposal, self._send("POST", f"/proposals/{_part(job)}/answer", {"answer": said, "keys": keys}))

    def epoch_keys(self) -> dict[str, str]:
        """Return the keys of this person's epochs, opened here; not those sealed for an earlier key."""
        keys = {}
        for epoch in _each(Epoch, self._get(f"{self._person()}/keys")["epochs"]):
            if epoch.owner_key != self._secret.public.hex():
                continue
            keys[epoch.id] = self._opened(epoch).hex()
        return keys

    def _opened(self, epoch: Epoch) -> bytes:
        """Return the secret of an epoch of this owner, which must be that of the key that features are sealed for."""
        opened = self._secret.open(_bytes(epoch.sealed), context=b"blindsight/epoch.1 " + epoch.id.encode())
        if ExchangeKey(opened).public.hex() != epoch.public_key:
            raise MessageError("the service seals features for another key than it says. Nothing was sent.")
        return opened

    def hand_over_keys(self) -> None:
        """Hand over the keys of this person's epochs again, after the service's machine lost them."""
        self._send("PUT", f"{self._person()}/keys", {"keys": self.epoch_keys()})

    def erase(self, name: str | None = None) -> int:
        """Remove a person (without a name: this one) for ever; return how many frames there were."""
        return int(self._send("DELETE", self._person(name))["frames"])

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
        then: Then = "refuse",
        personal: float | None = None,
    ) -> Job:
        """Ask for what a sift of this app lets out about a person, or without one for the platform's own label. With
        `then="permanent"` it is one symbol, made once from `frames` frames, for ever.
        """
        numbers = None if sift is None else sift_document(sift)
        wanted = {"person": person, "sift": numbers, "frames": frames, "then": then, "personal": personal}
        return _read(Job, self._send("POST", "/proposals", wanted))

    def platform(self) -> Platform:
        """Return what a sift must be fitted to, and how much can be verified here."""
        return _read(Platform, self._get("/platform"))

    def stream(self, person: str, *, every: float = 1.0, after: int | None = None) -> Iterator[Release]:
        """Yield what this app's grant lets out of a person's newest frame, every `every` seconds, until it ends. To
        come back without being charged again, give the receipt's position of the last release as `after`.
        """
        headers = {} if after is None else {"Last-Event-ID": str(int(after))}
        before, newest = self._size() if after is None else int(after), -1
        path, patience = f"/v1/streams/{_part(person)}?every={float(every)!r}", self._httpx.Timeout(30.0, read=60.0)
        try:
            with self._http.stream("GET", path, headers=headers, timeout=patience) as response:
                if not response.is_success:
                    response.read()
                    raise _refused(response.status_code, _sentence(response))
                kind = ""
                for line in response.iter_lines():
                    name, _, text = line.partition(": ")
                    if name == "event":
                        kind = text
                    elif name == "data" and kind == "end":
                        return
                    elif name == "data":
                        given = self._checked(json.loads(text), person, max(before, newest - 1))
                        newest = int(given.receipt["position"])  # the same event again repeats the last release
                        yield given
        except self._httpx.HTTPError as error:
            raise ServiceError(f"the stream broke off ({type(error).__name__}). Come back with `after`.") from None

    def release(self, person: str, *, frames: Sequence[str] | None = None, latest: int | None = None) -> Release:
        """Get what this app's grant lets out of some frames of a person."""
        named, before = None if frames is None else list(frames), self._size()
        asked = {"person": person, "frames": named, "latest": latest}
        return self._checked(self._send("POST", "/releases", asked), person, before)

    def release_each(
        self, latest: Iterable[tuple[str, int]]
    ) -> "list[Release | InputError | PrivacyError | ServiceError]":
        """Get what this app's grants let out of the latest few frames of several people, or why not, in one request."""
        asked = [{"person": person, "latest": count} for person, count in latest]
        before = self._size()
        results = self._send("POST", "/releases/batch", {"releases": asked})["results"]
        if len(results) != len(asked):
            raise MessageError(f"the service answers {len(results)} of {len(asked)} releases.")
        return [
            self._checked(one["release"], str(about["person"]), before)
            if one["status"] == 200
            else _refused(one["status"], str(one["error"]))
            for about, one in zip(asked, results, strict=True)
        ]

    def _size(self) -> int:
        """Return the size of the log as it was seen last; the first time, the service proves that it goes on."""
        if self._head is None or not self._continued:
            self._head, self._continued = self.head(self._head), True
        return self._head.size

    def _checked(self, answer: Mapping[str, Any], person: str, before: int) -> Release:
        """Return a release whose receipt is of this app, person and grant, and later than `before` entries."""
        given = _read(Release, answer)
        (position, _, actor, action, details), head = check_receipt(given.receipt)
        try:
            about = json.loads(details)
            named = (about["app"], about["person"], about["grant"])
        except (ValueError, TypeError, KeyError):
            named = None
        if (actor, action, named) != (self.me.id, "release", (self.me.name, person, given.grant)):
            raise MessageError("this receipt is about another release.")
        known = self._head
        if position <= before or (known is not None and known.key != head.key):
            raise MessageError("this receipt is about an earlier release, or signed with another key than before.")
        if known is None or known.size < head.size:
            self._head = head
        return given

    # --- for all ---

    def proposals(self) -> tuple[Proposal, ...]:
        """Return the proposals that concern this principal, newest first."""
        return _each(Proposal, self._pages("/proposals", "proposals", lambda one: one["job"]))

    def proposal(self, job: str) -> Proposal:
        return _read(Proposal, self._get(f"/proposals/{_part(job)}"))

    def grants(self) -> tuple[Grant, ...]:
        """Return the grants that concern this principal, oldest first."""
        return _each(Grant, self._pages("/grants", "grants", lambda one: one["number"]))

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
        """Return a job once it has ended, or raise when it takes longer than `seconds`."""
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
        """Return the newest head of the service's log that this principal may see, which must be proven to continue an
        earlier one, by default the newest that this client has seen.
        """
        since = self._head if since is None else since
        data = self._get(f"/log/consistency?first={0 if since is None else since.size}")
        head, proof = TreeHead.from_dict(data["head"]), [bytes.fromhex(part) for part in data["proof"]]
        before = (0, EMPTY) if since is None else (since.size, bytes.fromhex(since.root))
        continued = since is None or since.key == head.key
        if not continued or not consistent(*before, head.size, bytes.fromhex(head.root), proof):
            raise MessageError(f"the service's log does not continue {since}: it was cut or rewritten.")
        if self._head is None or self._head.size <= head.size:
            self._head = head
        return head

    def witness_head(self, head: Mapping[str, Any], proof: Sequence[str]) -> Mapping[str, Any]:
        """Have this service remember the head of another one's log; return the newest that it remembers."""
        return dict(self._send("POST", "/witness", {"head": dict(head), "proof": list(proof)}))

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
        """Yield the log's entries after a position, oldest first, page by page; to an owner those about them."""
        path = f"{self._person()}/log" if self.me.role == "owner" else "/log"
        while entries := _each(Entry, self._get(f"{path}?after={int(after)}&limit=1000")["entries"]):
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

    @property
    def _secret(self) -> ExchangeKey:
        if self._own_key is None:
            raise InputError("this needs the owner's key: make the client of the identity that was enrolled.")
        return self._own_key

    def _person(self, name: str | None = None) -> str:
        return f"/people/{_part(self.me.name if name is None else name)}"

    def _pages(self, path: str, name: str, last: Callable[[Any], Any]) -> list[Any]:
        """Return all of a listing, page by page."""
        found: list[Any] = []
        while page := self._get(f"{path}?limit=1000" + (f"&after={last(found[-1])}" if found else ""))[name]:
            found += page
            if len(page) < 1000:
                break
        return found

    def _get(self, path: str) -> Any:
        return self._ask("GET", path).json()

    def _send(self, method: str, path: str, body: Mapping[str, Any] | bytes | None = None) -> Any:
        if isinstance(body, bytes):
            sent: dict[str, Any] = {"content": body, "headers": {"Content-Type": "application/octet-stream"}}
        else:
            sent = {} if body is None else {"json": body}
        return self._ask(method, path, **sent).json()

    def _ask(self, method: str, path: str, **sent: Any) -> Any:
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


def _read(kind: type[R], data: Any) -> R:
    """Return a record made of the fields it knows."""
    try:
        return cast(R, _reader(cast(Any, kind)).validate_python(data))
    except ValueError:
        raise ServiceError("the service is of another version: its answer cannot be read.") from None


@cache
def _reader(kind: Any) -> Any:
    return require("pydantic", extra="service", purpose="speaking to a service").TypeAdapter(kind)


def _each(kind: type[R], data: Sequence[Mapping[str, Any]]) -> tuple[R, ...]:
    return tuple(_read(kind, one) for one in data)


def _with_code(data: Mapping[str, Any]) -> tuple[Principal, str]:
    return _read(Principal, data["principal"]), str(data["code"])


def _bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise InputError("a key is 32 bytes in hexadecimal.") from None


def _with_token(data: Mapping[str, Any]) -> tuple[Principal, str]:
    return _read(Principal, data["principal"]), str(data["token"])


def _part(text: str) -> str:
    """Return a name as one part of a path, whatever is in it."""
    return quote(text, safe="")
