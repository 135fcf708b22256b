"""What goes over the wire: every field has a bound, every body an example, and nothing unknown is let in.

Numbers that come in masses (a sift's matrix, released vectors) are plain JSON here and checked by the code that uses
them, so no time is spent on looking at each of them twice.
"""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from blindsight.service.principals import NAME_LENGTH, Role


def _printable(text: str) -> str:
    if not text.isprintable() or text != text.strip():
        raise ValueError("one line of printable text is needed, without spaces around it")
    return text


Name = Annotated[str, StringConstraints(min_length=1, max_length=NAME_LENGTH), AfterValidator(_printable)]
"""Of a person, an app, an attribute, an attacker."""
Sentence = Annotated[str, StringConstraints(min_length=1, max_length=300), AfterValidator(_printable)]
Identifier = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern="^[A-Za-z0-9][A-Za-z0-9._-]*$")]
"""Of something the service named itself, or of a folder."""
Names = Annotated[list[Name], Field(min_length=1, max_length=32)]
State = Literal["queued", "running", "done", "failed", "cancelled", "timed out"]


class Request(BaseModel):
    """What a caller sends: nothing is guessed, nothing unknown is taken."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Response(BaseModel):
    """What a caller gets."""

    model_config = ConfigDict(extra="forbid")


def _example(**values: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [values]})


class Problem(Response):
    """Why something was not done, in one sentence."""

    error: str

    model_config = _example(error="app weather has no grant about this person.")


class Health(Response):
    """The service answers."""

    status: Literal["ok"]
    version: str

    model_config = _example(status="ok", version="0.1.0")


# --- who ---


class NewPrincipal(Request):
    """Somebody who shall get a token."""

    name: Name
    role: Role
    days: Annotated[int, Field(ge=1, le=3650)] | None = None

    model_config = _example(name="ann", role="owner", days=90)


class PrincipalView(Response):
    """Somebody who may ask; never with a token."""

    id: str
    name: str
    role: Role
    created: str | None = None
    expires: str | None = None
    revoked: str | None = None

    model_config = _example(id="p-1f6a", name="ann", role="owner", created="2026-03-01T12:00:00+00:00")


class WithToken(Response):
    """A token, shown this once: only its hash is kept."""

    principal: PrincipalView
    token: str

    model_config = _example(principal={"id": "p-1f6a", "name": "ann", "role": "owner"}, token="bs_...")


# --- people and what is about them ---


class Attributes(Response):
    """What the platform has labels for: only these can be kept private or asked for."""

    attributes: list[str]

    model_config = _example(attributes=["male", "smiling"])


class Private(Request):
    """What a person hides from now on."""

    attributes: Names

    model_config = _example(attributes=["smiling"])


class Public(Request):
    """What an app wants to know."""

    attributes: Names

    model_config = _example(attributes=["male"])


class AppView(Response):
    """An app and what it asks for."""

    app: str
    public: list[str]

    model_config = _example(app="weather", public=["male"])


class PersonView(Response):
    """A person and what they hide."""

    person: str
    private: list[str]
    frames: int

    model_config = _example(person="ann", private=["smiling"], frames=3)


class ReadingView(Response):
    """How well one hidden attribute is guessed from all that is out: 1/2 is blind."""

    attribute: str
    guess: float
    at_most: float
    certified: bool


class OdometerView(Response):
    """What is out about a person."""

    person: str
    grants: list[int]
    readings: list[ReadingView]
    confidence: float

    model_config = _example(
        person="ann",
        grants=[1],
        readings=[{"attribute": "smiling", "guess": 0.52, "at_most": 0.57, "certified": True}],
        confidence=0.95,
    )


class FrameView(Response):
    """A picture that was taken in."""

    frame: str

    model_config = _example(frame="f-20c3")


class FrameList(Response):
    """Pictures of a person, oldest first."""

    frames: list[str]

    model_config = _example(frames=["f-20c3", "f-77ab"])


# --- asking and answering ---


class NewProposal(Request):
    """What an app would like to get about a person: its own sift's numbers, or (without one) the platform's label."""

    person: Name
    sift: dict[str, Any] | None = None
    frames: Annotated[int, Field(ge=1, le=10_000)] = 1
    then: Literal["refuse", "repeat"] = "refuse"

    model_config = _example(person="ann", sift=None, frames=1, then="refuse")


class JobView(Response):
    """Work in the background: ask again until its state is final."""

    id: str
    kind: str
    state: State
    what: str = ""
    done: int = 0
    total: int | None = None
    error: str | None = None

    model_config = _example(id="j-51d0", kind="verify", state="running", what="attacks", done=3, total=9)


class ProposalView(Response):
    """A proposal. `evidence` is for the person and the operator: an app is told the verdict and no more."""

    job: str
    state: State
    person: str
    app: str
    mode: Literal["included", "unincluded"]
    frames: int
    verdict: str | None = None
    answer: str | None = None
    sentence: str | None = None
    evidence: dict[str, Any] | None = None

    model_config = _example(
        job="j-51d0", state="done", person="ann", app="weather", mode="included", frames=1, verdict="accept"
    )


class ProposalList(Response):
    """Proposals, newest first, without evidence."""

    proposals: list[ProposalView]


class Answer(Request):
    """What the person says to a proposal; fewer: verify a coarser version of it."""

    answer: Literal["allow", "fewer", "refuse"]

    model_config = _example(answer="allow")


class GrantView(Response):
    """Who may get what about whom. `evidence` is for the person and the operator."""

    number: int
    person: str
    app: str
    public: list[str]
    mode: Literal["included", "unincluded"]
    frames: int
    then: Literal["refuse", "repeat"]
    time: str
    live: bool
    revoked: str | None = None
    evidence: dict[str, Any] | None = None

    model_config = _example(
        number=1,
        person="ann",
        app="weather",
        public=["male"],
        mode="included",
        frames=1,
        then="refuse",
        time="2026-03-01T12:00:00+00:00",
        live=True,
    )


class GrantList(Response):
    """Grants that concern the caller, oldest first, revoked ones included."""

    grants: list[GrantView]


class Answered(Response):
    """What came of an answer: a grant, or a job that verifies a coarser version, or (refused) neither."""

    grant: GrantView | None = None
    job: JobView | None = None

    model_config = _example(grant=None, job=None)


class NewRelease(Request):
    """Which frames of a person: by their ids, or the latest few."""

    person: Name
    frames: Annotated[list[Identifier], Field(min_length=1, max_length=1000)] | None = None
    latest: Annotated[int, Field(ge=1, le=1000)] | None = None

    model_config = _example(person="ann", latest=1)


class Released(Response):
    """What an app gets: a row per frame, and in included mode what the numbers are called."""

    grant: int
    rows: list[list[float]]
    labels: list[str] | None = None

    model_config = _example(grant=1, rows=[[1]], labels=["male"])


class NewAttacker(Request):
    """An attacker that shall judge from now on, by its name."""

    name: Name

    model_config = _example(name="forest")


# --- the books ---


class EntryView(Response):
    """One line of the log, chained to the one before."""

    position: int
    time: str
    actor: str
    action: str
    details: dict[str, Any]
    hash: str

    model_config = _example(
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


class LogCheckView(Response):
    """Whether the chain holds, and where it breaks."""

    ok: bool
    entries: int
    head: str
    broken_at: int | None = None
    reason: str = ""

    model_config = _example(ok=True, entries=12, head="9f2c")


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

    model_config = _example(scopes=[])


# --- search and learn ---


class IndexView(Response):
    """An index that can be asked."""

    name: str
    mode: Literal["local", "central", "open"]
    pictures: int
    headline: str

    model_config = _example(name="holiday", mode="local", pictures=900, headline="Proven: epsilon = 4.00 per record")


class IndexList(Response):
    """All indexes."""

    indexes: list[IndexView]


class Hit(Response):
    """A picture's number and how near it is: a score in local mode, else a distance."""

    number: int
    nearness: float


class Hits(Response):
    """The nearest pictures, by numbers that mean nothing to others."""

    hits: list[Hit]

    model_config = _example(hits=[{"number": 17, "nearness": 3.5}])


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

    model_config = _example(
        name="digits", data="digits", owners=5, features="pixels", finished=True, rounds=0, history=[]
    )


class RunList(Response):
    """All runs, by name."""

    runs: list[str]

    model_config = _example(runs=["digits"])


class StatementView(Response):
    """A privacy statement, and what it is about."""

    subject: str
    statement: dict[str, Any]


class StatementList(Response):
    """Everything the service has to say about privacy."""

    statements: list[StatementView]
