"""The data models of the API: what callers send and what they get, each with an example, and who is told how much.

*Sent.* Every text, list and number has a bound; unknown fields are refused. The many numbers of a sift are plain JSON
here and checked only once, by the code that uses them (`proposals`).

*Told.* Records that a client reads are defined once, in `blindsight.client`. An app is told accept or denied, answers
and what it may get: whether something was rejected, undecided or could not be verified is more than the one bit that
`sift.adaptive` counts. Sentences, reasons and evidence are for the person and the operator: figures would teach an app
how to write its next sift, and reasons tell what a person hides and who else has a grant. The progress of a
verification would tell it as well.
"""

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from types import GenericAlias
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    create_model,
    model_validator,
)

from blindsight import client
from blindsight.crypto.merkle import TreeHead
from blindsight.errors import InputError
from blindsight.service.cameras import MOST_DAYS
from blindsight.service.frames import MOST_FRAMES as MOST_KEPT
from blindsight.service.jobs import Job
from blindsight.service.log import Entry, LogCheck
from blindsight.service.principals import CODE_HOURS, NAME_LENGTH, Principal
from blindsight.service.proposals import ASKING
from blindsight.sift.consent import Proposal, readings
from blindsight.sift.register import Grant
from blindsight.sift.stream import Then

MOST_FRAMES = 1000  # in one release
MOST_TOGETHER = 100  # releases in one request


def _printable(text: str) -> str:
    if not text.isprintable() or text != text.strip():
        raise ValueError("one line of printable text is needed, without spaces around it")
    return unicodedata.normalize("NFC", text)


def addressable(name: str) -> str:
    """Return the name of a new principal, or refuse one that no address could hold."""
    if name in (".", "..") or "/" in name or "\\" in name:
        raise InputError("a name must fit into an address: no slashes, and more than dots.")
    return name


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

    name: Annotated[Name, AfterValidator(addressable)]
    role: Literal["owner", "app", "operator"]
    days: Annotated[int, Field(ge=1, le=MOST_DAYS)] | None = None
    hours: Hours = CODE_HOURS

    model_config = example(name="ann", role="owner", days=90)


class NewCode(Request):
    """How long another code may be redeemed, and the token last; without days as long as the one before."""

    days: Annotated[int, Field(ge=1, le=MOST_DAYS)] | None = None
    hours: Hours = CODE_HOURS

    model_config = example(hours=72)


class Enrolment(Request):
    """A code, and of an owner the X25519 public key for which pictures shall be sealed, in hexadecimal."""

    code: Annotated[str, StringConstraints(min_length=1, max_length=100)]
    public_key: Hex | None = None

    model_config = example(code="ABCDEF-GHIJKL-MNOPQR-STUVWX", public_key="0f" * 32)


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

    @classmethod
    def of(cls, person: str, frames: Sequence[str] | None, latest: int | None) -> Self:
        """Return the same for a caller in this process."""
        try:
            return cls(person=person, frames=None if frames is None else list(frames), latest=latest)
        except ValidationError as error:
            raise InputError(f"a release names 1 to {MOST_FRAMES} frames, or how many of the latest: {error}") from None

    @property
    def count(self) -> int:
        return (self.latest or 0) if self.frames is None else len(self.frames)


class NewReleases(Request):
    """Several releases in one request, each of which counts as a request and is given or refused by itself."""

    releases: Annotated[list[NewRelease], Field(min_length=1, max_length=MOST_TOGETHER)]

    model_config = example(releases=[{"person": "ann", "latest": 1}, {"person": "ben", "latest": 1}])


class NewAttacker(Request):
    """An attacker that shall judge from now on, by its name."""

    name: Name

    model_config = example(name="forest")


def in_days(days: int | None) -> datetime | None:
    """Return the moment so many days from now, or None for none."""
    if days is not None and not 1 <= days <= MOST_DAYS:
        raise InputError(f"days must be in [1, {MOST_DAYS}]; got {days}.")
    return None if days is None else datetime.now(UTC) + timedelta(days=days)


R = TypeVar("R")


def record(kind: type[R], source: Any, **more: Any) -> R:
    """Return what the API tells of something: of its fields those that the API's record has, moments as text."""
    known = [part.name for part in fields(kind) if part.name not in more]  # type: ignore[arg-type]
    return kind(**{name: _plain(getattr(source, name)) for name in known}, **more)


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


AttributeView = client.Attribute
PlatformView = client.Platform
PersonView = client.Person
RetentionView = client.Retention
FrameResult = client.FrameResult
JobView = client.Job
ProposalView = client.Proposal
GrantView = client.Grant

_PRINCIPAL = {"id": "owner-1f6a", "name": "ann", "role": "owner", "created": "2026-03-01T12:00:00+00:00"}
_DEVICE = {"id": "device-51d0", "name": "front door", "created": "2026-03-01T12:00:00+00:00"}
_HEAD = {"size": 7, "root": "9f2c", "time": "2026-03-01T12:00:00+00:00", "key": "51d0", "signature": "77ab"}
_RECEIPT = {"position": 7, "record": '[7, "2026-03-01T12:00:00+00:00", ...]', "proof": ["20c3"], "head": _HEAD}
_ASKED = {"person": "ann", "app": "weather", "mode": "included", "frames": 1, "then": "refuse"}
_REFUSED = {"status": 403, "error": "app weather has no grant about this person."}

EXAMPLES: dict[type, dict[str, Any]] = {
    client.Principal: _PRINCIPAL,
    client.Attribute: {"name": "male", "unchanging": True},
    client.Platform: {
        "pipeline": "pixels 9f2c",
        "dimension": 100,
        "side": 64,
        "attributes": [{"name": "male", "unchanging": True}],
        "frames": 2,
        "pictures": 3000,
        "persons": 1500,
        "threshold": 0.1,
        "confidence": 0.95,
        "notes": [],
    },
    client.Retention: {"frames": 100, "days": 7},
    client.Person: {"person": "ann", "private": ["smiling"], "frames": 3, "retention": {"frames": 100}},
    client.Device: _DEVICE,
    client.FrameResult: {"name": "IMG_0001.HEIC", "frame": "20c3"},
    client.Epoch: {"id": "20c3", "public_key": "0f", "owner_key": "1e", "sealed": "2d", "began": _DEVICE["created"]},
    client.Job: {"id": "51d0", "kind": "verify", "state": "running", "done": 0.3, "doing": "attacks"},
    client.Proposal: {"job": "51d0", "state": "done", **_ASKED, "doing": "", "done": 1.0, "verdict": "accept"},
    client.Cost: {"attribute": "smiling", "guess": 0.53, "at_most": 0.57, "certified": True, "together": False},
    client.Grant: {
        **_ASKED,
        "number": 1,
        "public": ["male"],
        "standing": "live",
        "released": 0,
        "time": "2026-03-01T12:00:00+00:00",
    },
    client.Index: {
        "name": "holiday",
        "mode": "local",
        "pictures": 900,
        "headline": "Proven: epsilon = 4.00 per record",
    },
    client.Hit: {"number": 17, "nearness": 3.5},
    client.Run: {
        "name": "digits",
        "data": "digits",
        "owners": 5,
        "features": "pixels",
        "finished": False,
        "rounds": 0,
        "history": [],
    },
    TreeHead: _HEAD,
    Entry: {
        "position": 7,
        "time": "2026-03-01T12:00:00+00:00",
        "actor": "app-0f3a51",
        "action": "release",
        "details": {"grant": 1, "frames": 1, "dimensions": 5},
        "hash": "9f2c",
    },
    LogCheck: {"ok": True, "entries": 12, "head": "9f2c"},
}
for _kind, _values in EXAMPLES.items():
    _kind.__pydantic_config__ = example(**_values)  # type: ignore[attr-defined]


class Health(BaseModel):
    """The service answers."""

    status: Literal["ok"]
    version: str

    model_config = example(status="ok", version="0.1.0")


def answer(name: str, said: str, shown: dict[str, Any], **parts: Any) -> Any:
    """Return the model of an answer with these parts; one that has a default is given with it."""
    described: dict[str, Any] = {name: kind if isinstance(kind, tuple) else (kind, ...) for name, kind in parts.items()}
    return create_model(name, __doc__=said, __config__=example(**shown), __module__=__name__, **described)


def listing(name: str, said: str, **parts: Any) -> Any:
    """Return the model of an answer that lists records of one kind, whose example it shows."""
    ((part, kind),) = parts.items()
    shown = EXAMPLES[kind] if kind in EXAMPLES else kind.model_config["json_schema_extra"]["examples"][0]
    return answer(name, said, {part: [shown]}, **{part: GenericAlias(list, (kind,))})


Problem = answer("Problem", "Why something was not done, in one sentence.", {"error": _REFUSED["error"]}, error=str)

PrincipalList = listing("PrincipalList", "Everybody, also the revoked.", principals=client.Principal)
WithCode = answer(
    "WithCode",
    "A code, shown this once: who redeems it makes the token, which nobody else sees.",
    {"principal": _PRINCIPAL, "code": "ABCDEF-GHIJKL-MNOPQR-STUVWX"},
    principal=client.Principal,
    code=str,
)
WithToken = answer(
    "WithToken",
    "A token, shown this once: only its hash is kept.",
    {"principal": _PRINCIPAL, "token": "blindsight_..."},
    principal=client.Principal,
    token=str,
)
Attributes = answer(
    "Attributes",
    "What the platform has labels for: only these can be kept private or asked for.",
    {"attributes": ["male", "smiling"]},
    attributes=list[str],
)
AppView = answer(
    "AppView", "An app and what it asks for.", {"app": "weather", "public": ["male"]}, app=str, public=list[str]
)
DeviceList = listing("DeviceList", "A person's cameras, also the revoked.", devices=client.Device)
DeviceWithToken = answer(
    "DeviceWithToken",
    "A camera's token, shown this once: only its hash is kept.",
    {"device": _DEVICE, "token": "blindsight_..."},
    device=client.Device,
    token=str,
)
FrameResults = listing(
    "FrameResults", "What became of each picture of a batch, in its order.", results=client.FrameResult
)
FrameView = answer("FrameView", "A picture that was taken in, or deleted.", {"frame": "20c3"}, frame=str)
FrameList = answer(
    "FrameList",
    "Pictures of a person, oldest first; apps do not get stale ones, made by other features, until they come again.",
    {"frames": ["20c3", "77ab"], "stale": []},
    frames=list[str],
    stale=list[str],
)
EpochList = answer(
    "EpochList",
    "The epochs for whose keys a person's features are sealed; new frames belong to the last.",
    {"epochs": [EXAMPLES[client.Epoch]]},
    epochs=list[client.Epoch],
)
Erased = answer(
    "Erased",
    "How many frames of a person were removed, with all else.",
    {"person": "ann", "frames": 3},
    person=str,
    frames=int,
)
JobList = listing("JobList", "Jobs that were started together.", jobs=client.Job)
ProposalList = listing("ProposalList", "Proposals, newest first, without evidence.", proposals=client.Proposal)
GrantList = listing(
    "GrantList", "Grants that concern the caller, oldest first, revoked ones included.", grants=client.Grant
)
ConsistencyView = answer(
    "ConsistencyView",
    "The proof that the log of one size is the beginning of that of another, and the newest head.",
    {"first": 3, "second": 7, "proof": ["20c3"], "head": _HEAD},
    first=int,
    second=int,
    proof=list[str],
    head=TreeHead,
)
ReceiptView = answer(
    "ReceiptView",
    "A record of the log, as the text that is hashed, and the proof that it stands at its place under a head.",
    _RECEIPT,
    position=int,
    record=str,
    proof=list[str],
    head=TreeHead,
)
Released = answer(
    "Released",
    str(client.Release.__doc__),
    {"grant": 1, "rows": [[1]], "labels": ["male"], "receipt": _RECEIPT},
    grant=int,
    rows=list[list[float]],
    labels=(list[str] | None, None),
    receipt=ReceiptView,
)
Outcome = answer(
    "Outcome",
    "What became of one of several: a release, or the status and sentence of a refusal.",
    _REFUSED,
    release=(Released | None, None),
    status=int,
    error=(str | None, None),
)
ReleasedList = listing(
    "ReleasedList", "What became of each release, in the order in which they were asked for.", results=Outcome
)
AttackerList = answer(
    "AttackerList",
    "Who judges sifts now, and who could be added.",
    {"judging": ["logistic"], "available": ["forest"]},
    judging=list[str],
    available=list[str],
)
EntryList = listing("EntryList", "Some lines of the log; ask again after the last position.", entries=Entry)
_SCOPE = {"scope": "photos", "unit": "person", "neighbours": "add/remove", "releases": 1}
ScopeView = answer(
    "ScopeView",
    "What was spent on one scope.",
    {**_SCOPE, "epsilon": 0.25, "epsilon_basic": 0.25, "budget": 1.0},
    scope=str,
    unit=str,
    neighbours=str,
    releases=int,
    epsilon=float | Literal["infinity"],
    epsilon_basic=float | Literal["infinity"],
    budget=float | None,
)
LedgerView = listing("LedgerView", "Budgets, and what is spent of them.", scopes=ScopeView)
IndexList = listing("IndexList", "All indexes.", indexes=client.Index)
Hits = listing("Hits", "The nearest pictures, by numbers that mean nothing to others.", hits=client.Hit)
RunList = answer("RunList", "All runs, by name.", {"runs": ["digits"]}, runs=list[str])
StatementView = answer(
    "StatementView",
    "A privacy statement, and what it is about.",
    {"subject": "index holiday", "statement": {}},
    subject=str,
    statement=dict[str, Any],
)
StatementList = listing("StatementList", "Everything the service has to say about privacy.", statements=StatementView)


# --- who is told what ---


def proposal_view(principal: Principal, job: Job, proposal: Proposal | None = None) -> ProposalView:
    about = {name: job.payload[name] for name in ("person", "app", "mode", "frames", "then")}
    told: dict[str, Any] = {name: (job.result or {}).get(name) for name in ("verdict", "answer", "grant", "next")}
    said: dict[str, Any] = {"sentence": (job.result or {}).get("sentence", job.error)}
    if proposal is not None:
        told["verdict"] = proposal.verdict  # the files know, whatever the database says
        said = {"sentence": proposal.sentence, "evidence": proposal.to_dict(), "cost": _costs(proposal)}
    progress: dict[str, Any] = {"doing": job.doing, "done": job.done}
    if principal.role == "app":
        told["verdict"], said, progress = _one_bit(told["verdict"]), {}, _ended(job)
    return ProposalView(job=job.id, state=job.state, **about, **told, **said, **progress)


def _up(share: float) -> float:
    """Return a limit rounded up to a tenth of a percent: what is shown promises no more than was found."""
    return math.ceil(1e3 * share - 1e-9) / 1e3


def _costs(proposal: Proposal) -> tuple[client.Cost, ...]:
    found = proposal.examination
    parts = [(False, found.alone)] + ([] if found.together is None else [(True, found.together)])
    return tuple(
        record(client.Cost, one, at_most=_up(one.at_most), together=together)
        for together, verification in parts
        for one in readings(verification)
    )


def grant_view(principal: Principal, grant: Grant, *, holds: bool, released: int) -> GrantView:
    told: dict[str, Any] = {}
    if principal.role != "app":
        told["evidence"] = {"report": grant.report, "together": grant.together}
        told["reason"] = None if grant.revoked is None else grant.revoked.reason
    standing = "revoked" if not grant.live else "live" if holds else "suspended"
    budget = {"frames": grant.budget.frames, "then": grant.budget.then}
    return record(
        GrantView, grant, standing=standing, released=released, **budget, **{"reason": None, "evidence": None} | told
    )


def job_view(principal: Principal, job: Job) -> JobView:
    view = record(JobView, job)
    if principal.role != "app" or job.kind not in ASKING:
        return view
    result = {key: value for key, value in (job.result or {}).items() if key != "sentence"}
    if "verdict" in result:
        result["verdict"] = _one_bit(result["verdict"])
    error = None if job.error is None else "this could not be verified."
    return replace(view, result=result or None, error=error, **_ended(job))


def _one_bit(verdict: Any) -> Any:
    return verdict if verdict in (None, "accept") else "denied"


def _ended(job: Job) -> dict[str, Any]:
    return {"doing": "", "done": 1.0 if job.state == "done" else 0.0}
