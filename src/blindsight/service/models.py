"""What callers get, each with an example; made of the gateway's own records, which leave out what is not theirs."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from blindsight.service.jobs import State
from blindsight.service.principals import Role
from blindsight.service.requests import example
from blindsight.service.views import Standing
from blindsight.sift.register import Mode
from blindsight.sift.stream import Then


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

    model_config = example(id="owner-1f6a", name="ann", role="owner", created="2026-03-01T12:00:00Z")


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


class AppView(Response):
    """An app and what it asks for."""

    app: str
    public: list[str]

    model_config = example(app="weather", public=["male"])


class PersonView(Response):
    """A person and what they hide."""

    person: str
    private: list[str]
    frames: int

    model_config = example(person="ann", private=["smiling"], frames=3)


class FrameView(Response):
    """A picture that was taken in."""

    frame: str

    model_config = example(frame="20c3")


class FrameList(Response):
    """Pictures of a person, oldest first."""

    frames: list[str]

    model_config = example(frames=["20c3", "77ab"])


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


class Released(Response):
    """What an app gets: a row of numbers per frame, and in included mode which attribute each stands for."""

    grant: int
    rows: list[list[float]]
    labels: list[str] | None = None

    model_config = example(grant=1, rows=[[1]], labels=["male"])


class AttackerList(Response):
    """Who judges sifts now, and who could be added."""

    judging: list[str]
    available: list[str]

    model_config = example(judging=["logistic"], available=["forest"])


# --- the books ---


class EntryView(Response):
    """One line of the log, chained to the one before."""

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
    """Whether the chain holds, and where it breaks."""

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
