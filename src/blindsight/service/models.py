"""The data models of the API: what callers send and what they get, each with an example, and who is told how much.

*Sent.* Every text, list and number has a bound; unknown fields are refused. The many numbers of a sift are plain JSON
here and checked only once, by the code that uses them (`proposals`).

*Told.* An app is told accept or denied, answers and what it may get: whether something was rejected, undecided or could
not be verified is more than the one bit that `sift.adaptive` counts. Sentences, reasons and evidence are for the person
and the operator: figures would teach an app how to write its next sift, and reasons tell what a person hides and who
else has a grant. The progress of a verification would tell it as well.
"""

import math
import unicodedata
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from blindsight.service.cameras import MOST_DAYS
from blindsight.service.frames import MOST_FRAMES as MOST_KEPT
from blindsight.service.jobs import Job, State
from blindsight.service.principals import CODE_HOURS, NAME_LENGTH, Principal, Role
from blindsight.service.proposals import ASKING
from blindsight.service.releases import MOST_FRAMES, MOST_TOGETHER
from blindsight.sift.consent import Proposal, readings
from blindsight.sift.register import Grant, Mode
from blindsight.sift.stream import Then

Standing = Literal["live", "suspended", "revoked"]  # a suspended grant releases nothing until verified again


def _printable(text: str) -> str:
    if not text.isprintable() or text != text.strip():
        raise ValueError("one line of printable text is needed, without spaces around it")
    return unicodedata.normalize("NFC", text)


def _addressable(text: str) -> str:
    if text in (".", "..") or "/" in text or "\\" in text:
        raise ValueError("a name must fit into an address: no slashes, and more than dots")
    return text


Name = Annotated[str, StringConstraints(min_length=1, max_length=NAME_LENGTH), AfterValidator(_printable)]
"""Of a person, an app, an attribute, an attacker."""
Sentence = Annotated[str, StringConstraints(min_length=1, max_length=300), AfterValidator(_printable)]
Identifier = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern="^[A-Za-z0-9][A-Za-z0-9._-]*$")]
"""Of something the service named itself, or of a folder."""
Names = Annotated[list[Name], Field(min_length=1, max_length=32)]
Count = Annotated[int, Field(ge=1, le=MOST_FRAMES)]


class Request(BaseModel):
    """What a caller sends: nothing is guessed, nothing unknown is taken."""

    model_config = ConfigDict(extra="forbid", strict=True)


def example(**values: Any) -> ConfigDict:
    """Return the settings that show an example; what a class inherits stays."""
    return ConfigDict(json_schema_extra={"examples": [values]})


Hours = Annotated[int, Field(ge=1, le=24 * 365)]
Hex = Annotated[str, StringConstraints(min_length=64, max_length=64, pattern="^[0-9a-f]*$")]


class NewPrincipal(Request):
    """Somebody who gets a token for `days` days; the code that makes it is good for `hours` hours."""

    name: Annotated[Name, AfterValidator(_addressable)]
    role: Literal["owner", "app", "operator"]
    days: Annotated[int, Field(ge=1, le=3650)] | None = None
    hours: Hours = CODE_HOURS

    model_config = example(name="ann", role="owner", days=90)


class NewCode(Request):
    """How long another code may be redeemed, and the token last; without days as long as the one before."""

    days: Annotated[int, Field(ge=1, le=3650)] | None = None
    hours: Hours = CODE_HOURS

    model_config = example(hours=72)


class Enrolment(Request):
    """A code, and of an owner the X25519 public key for which pictures shall be sealed, in hexadecimal."""

    code: Annotated[str, StringConstraints(min_length=1, max_length=100)]
    public_key: Hex | None = None

    model_config = example(code="ABCDEF-GHIJKL-MNOPQR-STUVWX", public_key="0f" * 32)


class NewKey(Request):
    """The public key of an owner of an earlier version."""

    public_key: Hex

    model_config = example(public_key="0f" * 32)


EpochKeys = Annotated[dict[Identifier, Hex], Field(max_length=1000)]  # secrets by the epoch's id


class HandedOver(Request):
    """The keys that a machine lost at its restart."""

    keys: EpochKeys

    model_config = example(keys={"20c3": "0f" * 32})


class Private(Request):
    """What a person hides from now on."""

    attributes: Names

    model_config = example(attributes=["smiling"])


class NewDevice(Request):
    """A camera of an owner."""

    name: Name
    days: Annotated[int, Field(ge=1, le=MOST_DAYS)] | None = None

    model_config = example(name="front door", days=365)


class NewRetention(Request):
    """How long a person's frames are kept: the newest `frames`, those of the last `days`, both, or (null) all."""

    frames: Annotated[int, Field(ge=1, le=MOST_KEPT)] | None = None
    days: Annotated[int, Field(ge=1, le=MOST_DAYS)] | None = None

    model_config = example(frames=100, days=7)


class Public(Request):
    """What an app wants to know."""

    attributes: Names

    model_config = example(attributes=["male"])


class NewProposal(Request):
    """What an app would like to get about a person: its own sift's numbers, or (without one) the platform's label.

    A sift is data: ``{"mean": [d numbers], "scale": [d], "matrix": [d rows of K]}``, or the parts of a sift file.
    `frames` counts all that the app will ever have got; `then` says what happens after the last one: it is refused, the
    last is repeated, or ("permanent") there is one symbol, made once from `frames` frames, for ever. With `personal`
    every symbol is drawn by randomised response with this epsilon.
    """

    person: Name
    sift: dict[str, Any] | None = None
    frames: Count = 1
    then: Then = "refuse"
    personal: Annotated[float, Field(gt=0, le=20)] | None = None

    model_config = example(person="ann", sift=None, frames=1, then="refuse")


class Answer(Request):
    """What the person says to a proposal; fewer: verify a coarser version of it. To allow needs the epochs' keys."""

    answer: Literal["allow", "fewer", "refuse"]
    keys: EpochKeys | None = None

    model_config = example(answer="allow")


class Revocation(Request):
    """Why a grant shall end."""

    reason: Sentence

    model_config = example(reason="I do not use it any more")


class SignedHead(Request):
    """The head of another service's log."""

    size: Annotated[int, Field(ge=0, lt=2**63)]
    root: Hex
    time: Annotated[str, StringConstraints(min_length=1, max_length=40)]
    key: Hex
    signature: Annotated[str, StringConstraints(min_length=1, max_length=2000, pattern="^[0-9a-f]*$")]

    model_config = example(size=7, root="9f" * 32, time="2026-03-01T12:00:00+00:00", key="51" * 32, signature="77ab")


class NewHead(Request):
    """A head to be remembered, and the proof that it continues the one that is known."""

    head: SignedHead
    proof: Annotated[list[Hex], Field(max_length=128)] = []

    model_config = example(
        head={"size": 7, "root": "9f" * 32, "time": "2026-03-01T12:00:00+00:00", "key": "51" * 32, "signature": "77ab"},
        proof=["20" * 32],
    )


class NewRelease(Request):
    """Which frames of a person: by their ids, or the latest few."""

    person: Name
    frames: Annotated[list[Identifier], Field(min_length=1, max_length=MOST_FRAMES)] | None = None
    latest: Count | None = None

    model_config = example(person="ann", latest=1)

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.frames is None) == (self.latest is None):
            raise ValueError("name the frames, or ask for the latest few; not both")
        return self


class NewReleases(Request):
    """Several releases in one request, each of which counts as a request and is given or refused by itself."""

    releases: Annotated[list[NewRelease], Field(min_length=1, max_length=MOST_TOGETHER)]

    model_config = example(releases=[{"person": "ann", "latest": 1}, {"person": "ben", "latest": 1}])


class NewAttacker(Request):
    """An attacker that shall judge from now on, by its name."""

    name: Name

    model_config = example(name="forest")


class Response(BaseModel):
    """What a caller gets, made of the gateway's own records."""

    model_config = ConfigDict(from_attributes=True)


class Problem(Response):
    """Why something was not done, in one sentence."""

    error: str

    model_config = example(error="app weather has no grant about this person.")


class Health(Response):
    """The service answers."""

    status: Literal["ok"]
    version: str

    model_config = example(status="ok", version="0.1.0")


# --- who ---


class PrincipalView(Response):
    """Somebody who may ask; never with a token."""

    id: str
    name: str
    role: Role
    created: datetime | None = None
    expires: datetime | None = None
    revoked: datetime | None = None
    public_key: str | None = None

    model_config = example(id="owner-1f6a", name="ann", role="owner", created="2026-03-01T12:00:00Z")


class WithCode(Response):
    """A code, shown this once: who redeems it makes the token, which nobody else sees."""

    principal: PrincipalView
    code: str

    model_config = example(
        principal={"id": "owner-1f6a", "name": "ann", "role": "owner"}, code="ABCDEF-GHIJKL-MNOPQR-STUVWX"
    )


class WithToken(Response):
    """A token, shown this once: only its hash is kept."""

    principal: PrincipalView
    token: str

    model_config = example(principal={"id": "owner-1f6a", "name": "ann", "role": "owner"}, token="blindsight_...")  # noqa: S106 - no token


class PrincipalList(Response):
    """Everybody, also the revoked."""

    principals: list[PrincipalView]

    model_config = example(principals=[])


# --- people and what is about them ---


class Attributes(Response):
    """What the platform has labels for: only these can be kept private or asked for."""

    attributes: list[str]

    model_config = example(attributes=["male", "smiling"])


class AttributeView(Response):
    """An attribute; of one that never changes people may have a permanent symbol."""

    name: str
    unchanging: bool

    model_config = example(name="male", unchanging=True)


class PlatformView(Response):
    """What an app needs to know before it fits a sift: features of `pipeline` with `dimension` numbers, made of
    pictures of `side` x `side` pixels. At most `frames` frames of a person can be verified together, all apps counted;
    permanent symbols go on for ever. A hidden attribute may be guessed `threshold` better than blindly, shown with
    `confidence`. `notes` say for what the verification data are too few.
    """

    pipeline: str
    dimension: int
    side: int
    attributes: list[AttributeView]
    frames: int
    pictures: int
    persons: int | None
    threshold: float
    confidence: float
    notes: list[str]

    model_config = example(
        pipeline="pixels 9f2c",
        dimension=100,
        side=64,
        attributes=[{"name": "male", "unchanging": True}],
        frames=2,
        pictures=3000,
        persons=1500,
        threshold=0.1,
        confidence=0.95,
        notes=[],
    )


class AppView(Response):
    """An app and what it asks for."""

    app: str
    public: list[str]

    model_config = example(app="weather", public=["male"])


class RetentionView(Response):
    """How long frames are kept; null is no limit of this kind."""

    frames: int | None = None
    days: int | None = None

    model_config = example(frames=100, days=7)


class PersonView(Response):
    """A person, what they hide, and how long their frames are kept."""

    person: str
    private: list[str]
    frames: int
    retention: RetentionView

    model_config = example(person="ann", private=["smiling"], frames=3, retention={"frames": 100, "days": None})


class DeviceView(Response):
    """A camera of a person; never with its token."""

    id: str
    name: str
    created: datetime
    expires: datetime | None = None
    revoked: datetime | None = None

    model_config = example(id="device-51d0", name="front door", created="2026-03-01T12:00:00Z")


class DeviceList(Response):
    """A person's cameras, also the revoked."""

    devices: list[DeviceView]

    model_config = example(devices=[])


class DeviceWithToken(Response):
    """A camera's token, shown this once: only its hash is kept."""

    device: DeviceView
    token: str

    model_config = example(
        device={"id": "device-51d0", "name": "front door", "created": "2026-03-01T12:00:00Z"},
        token="blindsight_...",  # noqa: S106 - no token
    )


class FrameResult(Response):
    """What became of one picture of a batch: its id, or why it was not taken."""

    name: str
    frame: str | None = None
    error: str | None = None

    model_config = example(name="IMG_0001.HEIC", frame="20c3")


class FrameResults(Response):
    """What became of each picture of a batch, in its order."""

    results: list[FrameResult]

    model_config = example(results=[{"name": "IMG_0001.HEIC", "frame": "20c3"}])


class FrameView(Response):
    """A picture that was taken in."""

    frame: str

    model_config = example(frame="20c3")


class FrameList(Response):
    """Pictures of a person, oldest first; apps do not get stale ones, made by other features, until they come again."""

    frames: list[str]
    stale: list[str]

    model_config = example(frames=["20c3", "77ab"], stale=[])


class EpochView(Response):
    """An epoch: its secret is sealed for the owner's key (HPKE, RFC 9180), all in hexadecimal."""

    id: str
    public_key: str
    owner_key: str
    sealed: str
    began: datetime
    ended: datetime | None = None

    model_config = example(id="20c3", public_key="0f", owner_key="1e", sealed="2d", began="2026-03-01T12:00:00Z")


class EpochList(Response):
    """The epochs for whose keys a person's features are sealed; new frames belong to the last."""

    epochs: list[EpochView]
    plain: int  # frames of an earlier version that are not sealed at all, for lack of a key

    model_config = example(epochs=[], plain=0)


class Erased(Response):
    """How many frames of a person were removed, with all else."""

    person: str
    frames: int

    model_config = example(person="ann", frames=3)


# --- asking and answering ---


class JobView(Response):
    """Work in the background: ask again until its state is final."""

    id: str
    kind: str
    state: State
    done: float
    doing: str
    error: str | None = None
    result: dict[str, Any] | None = None

    model_config = example(id="51d0", kind="verify", state="running", done=0.3, doing="attacks")


class JobList(Response):
    """Jobs that were started together."""

    jobs: list[JobView]

    model_config = example(jobs=[])


class ProposalView(Response):
    """A proposal. Sentence and evidence are for the person and the operator: an app is told the verdict and no more."""

    job: str
    state: State
    person: str
    app: str
    mode: Mode
    frames: int
    then: Then
    doing: str
    done: float
    verdict: Literal["accept", "reject", "inconclusive", "denied"] | None = None
    answer: Literal["allow", "fewer", "refuse"] | None = None
    grant: int | None = None
    next: str | None = None
    sentence: str | None = None
    cost: list["CostView"] | None = None
    evidence: dict[str, Any] | None = None

    model_config = example(
        job="51d0",
        state="done",
        person="ann",
        app="weather",
        mode="included",
        frames=1,
        then="refuse",
        doing="",
        done=1.0,
        verdict="accept",
    )


class CostView(Response):
    """How well a hidden attribute can be guessed from what would go out, as a balanced accuracy: 1/2 is blind.
    `at_most` holds for everybody where `certified`, else for the attackers that were tried; `together` is with all that
    other apps get.
    """

    attribute: str
    guess: float
    at_most: float
    certified: bool
    together: bool

    model_config = example(attribute="smiling", guess=0.53, at_most=0.57, certified=True, together=False)


class ProposalList(Response):
    """Proposals, newest first, without evidence."""

    proposals: list[ProposalView]

    model_config = example(proposals=[])


class GrantView(Response):
    """Who may get what about whom, and how much of it went out. The evidence is for the person and the operator."""

    number: int
    person: str
    app: str
    public: list[str]
    mode: Mode
    standing: Standing
    frames: int
    released: int
    then: Then
    time: str
    reason: str | None = None
    evidence: dict[str, Any] | None = None

    model_config = example(
        number=1,
        person="ann",
        app="weather",
        public=["male"],
        mode="included",
        standing="live",
        frames=1,
        released=0,
        then="refuse",
        time="2026-03-01T12:00:00+00:00",
    )


class GrantList(Response):
    """Grants that concern the caller, oldest first, revoked ones included."""

    grants: list[GrantView]

    model_config = example(grants=[])


_HEAD = {"size": 7, "root": "9f2c", "time": "2026-03-01T12:00:00+00:00", "key": "51d0", "signature": "77ab"}
_RECEIPT = {"position": 7, "record": '[7, "2026-03-01T12:00:00+00:00", ...]', "proof": ["20c3"], "head": _HEAD}


class HeadView(Response):
    """Size and root of the log's Merkle tree (RFC 6962) at a moment, signed with the service's key; all in hex."""

    size: int
    root: str
    time: str
    key: str
    signature: str

    model_config = example(**_HEAD)


class ConsistencyView(Response):
    """The proof that the log of one size is the beginning of that of another, and the newest head."""

    first: int
    second: int
    proof: list[str]
    head: HeadView

    model_config = example(first=3, second=7, proof=["20c3"], head=_HEAD)


class ReceiptView(Response):
    """A record of the log, as the text that is hashed, and the proof that it stands at its place under a head."""

    position: int
    record: str
    proof: list[str]
    head: HeadView

    model_config = example(**_RECEIPT)


class Released(Response):
    """What an app gets: a row of numbers per frame, and in included mode which attribute each stands for. The receipt
    proves that the release is in the log: keep it.
    """

    grant: int
    rows: list[list[float]]
    labels: list[str] | None = None
    receipt: ReceiptView

    model_config = example(grant=1, rows=[[1]], labels=["male"], receipt=_RECEIPT)


class Outcome(Response):
    """What became of one of several: a release, or the status and sentence of a refusal."""

    release: Released | None = None
    status: int
    error: str | None = None

    model_config = example(status=403, error="app weather has no grant about this person.")


class ReleasedList(Response):
    """What became of each release, in the order in which they were asked for."""

    results: list[Outcome]

    model_config = example(results=[{"status": 403, "error": "app weather has no grant about this person."}])


class AttackerList(Response):
    """Who judges sifts now, and who could be added."""

    judging: list[str]
    available: list[str]

    model_config = example(judging=["logistic"], available=["forest"])


# --- the books ---


class EntryView(Response):
    """One line of the log; the hash is what its Merkle tree keeps with it."""

    position: int
    time: str
    actor: str
    action: str
    details: dict[str, Any]
    hash: str

    model_config = example(
        position=7,
        time="2026-03-01T12:00:00+00:00",
        actor="app-0f3a51",
        action="release",
        details={"grant": 1, "frames": 1, "dimensions": 5},
        hash="9f2c",
    )


class EntryList(Response):
    """Some lines of the log; ask again after the last position."""

    entries: list[EntryView]

    model_config = example(entries=[])


class LogCheckView(Response):
    """Whether the log holds, and where it breaks; the head is its root."""

    ok: bool
    entries: int
    head: str
    broken_at: int | None = None
    reason: str = ""

    model_config = example(ok=True, entries=12, head="9f2c")


class ScopeView(Response):
    """What was spent on one scope."""

    scope: str
    unit: str
    neighbours: str
    releases: int
    epsilon: float | Literal["infinity"]
    epsilon_basic: float | Literal["infinity"]
    budget: float | None


class LedgerView(Response):
    """Budgets, and what is spent of them."""

    scopes: list[ScopeView]

    model_config = example(scopes=[])


# --- search and learn ---


class IndexView(Response):
    """An index that can be asked."""

    name: str
    mode: Literal["local", "central", "open"]
    pictures: int
    headline: str

    model_config = example(name="holiday", mode="local", pictures=900, headline="Proven: epsilon = 4.00 per record")


class IndexList(Response):
    """All indexes."""

    indexes: list[IndexView]

    model_config = example(indexes=[])


class Hit(Response):
    """A picture's number and how near it is: a score in local mode, else a distance."""

    number: int
    nearness: float


class Hits(Response):
    """The nearest pictures, by numbers that mean nothing to others."""

    hits: list[Hit]

    model_config = example(hits=[{"number": 17, "nearness": 3.5}])


class RunView(Response):
    """A learning run: what it is about, how far it is, and what is proven about it."""

    name: str
    data: str
    owners: int
    features: str
    finished: bool
    rounds: int
    score: float | None = None
    history: list[dict[str, Any]]
    statement: dict[str, Any] | None = None

    model_config = example(
        name="digits", data="digits", owners=5, features="pixels", finished=True, rounds=0, history=[]
    )


class RunList(Response):
    """All runs, by name."""

    runs: list[str]

    model_config = example(runs=["digits"])


class StatementView(Response):
    """A privacy statement, and what it is about."""

    subject: str
    statement: dict[str, Any]


class StatementList(Response):
    """Everything the service has to say about privacy."""

    statements: list[StatementView]

    model_config = example(statements=[])


# --- who is told what ---


def proposal_view(principal: Principal, job: Job, proposal: Proposal | None = None) -> ProposalView:
    about = {name: job.payload[name] for name in ("person", "app", "mode", "frames", "then")}
    told: dict[str, Any] = {name: (job.result or {}).get(name) for name in ("verdict", "answer", "grant", "next")}
    said: dict[str, Any] = {"sentence": (job.result or {}).get("sentence", job.error)}
    if proposal is not None:
        said |= {"evidence": proposal.to_dict(), "cost": _costs(proposal)}
    progress: dict[str, Any] = {"doing": job.doing, "done": job.done}
    if principal.role == "app":
        told["verdict"], said, progress = _one_bit(told["verdict"]), {}, _ended(job)
    return ProposalView(job=job.id, state=job.state, **about, **told, **said, **progress)


def _up(share: float) -> float:
    """Return a limit rounded up to a tenth of a percent: what is shown promises no more than was found."""
    return math.ceil(1e3 * share - 1e-9) / 1e3


def _costs(proposal: Proposal) -> list[CostView]:
    found = proposal.examination
    parts = [(False, found.alone)] + ([] if found.together is None else [(True, found.together)])
    return [
        CostView(
            attribute=one.attribute,
            guess=one.guess,
            at_most=_up(one.at_most),
            certified=one.certified,
            together=together,
        )
        for together, verification in parts
        for one in readings(verification)
    ]


def grant_view(principal: Principal, grant: Grant, *, holds: bool, released: int) -> GrantView:
    told: dict[str, Any] = {}
    if principal.role != "app":
        told["evidence"] = {"report": grant.report, "together": grant.together}
        told["reason"] = None if grant.revoked is None else grant.revoked.reason
    return GrantView(
        number=grant.number,
        person=grant.person,
        app=grant.app,
        public=list(grant.public),
        mode=grant.mode,
        standing="revoked" if not grant.live else "live" if holds else "suspended",
        frames=grant.budget.frames,
        released=released,
        then=grant.budget.then,
        time=grant.time,
        **told,
    )


def job_view(principal: Principal, job: Job) -> JobView:
    view = JobView.model_validate(job)
    if principal.role != "app" or job.kind not in ASKING:
        return view
    result = {key: value for key, value in (job.result or {}).items() if key != "sentence"}
    if "verdict" in result:
        result["verdict"] = _one_bit(result["verdict"])
    error = None if job.error is None else "this could not be verified."
    return view.model_copy(update={"result": result or None, "error": error, **_ended(job)})


def _one_bit(verdict: Any) -> Any:
    return verdict if verdict in (None, "accept") else "denied"


def _ended(job: Job) -> dict[str, Any]:
    return {"doing": "", "done": 1.0 if job.state == "done" else 0.0}
