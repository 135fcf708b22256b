"""The privacy statement: what is proven about a result, in words a person can check and numbers a program can read.

Every result that claims privacy carries one. It tells whom it protects, by which mechanism, epsilon and delta *as
proven*, what a paper claims instead and why that fails, who sees what, what is assumed and what is not protected. A
statement that contradicts itself cannot be made, and one about noise that somebody could repeat says that it is void.

Sentences of `not_protected` and `assumptions` may be `Line`s. A line is a text with an id: what compares or drops
sentences goes by ids, so that any wording can be changed. Files hold the texts, and the ids beside them (`line_ids`);
those without ids, of earlier versions, are read as plain texts.
"""

import json
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from decimal import ROUND_CEILING, Context, Decimal
from html import escape
from typing import Any, Literal, Self, get_args

from blindsight.errors import InputError
from blindsight.rng import ByteSource, system_bytes

Unit = Literal["bit", "record", "person"]
"""What one step between neighbouring inputs changes: a single bit of a code, one picture's record, all of a person."""

Neighbours = Literal["add/remove", "replace"]
"""How neighbouring inputs differ: one unit is there or not, or one unit is exchanged for another."""

Guarantee = Literal["differential privacy", "cryptographic", "certified", "measured", "none"]
"""How the protection is known: by proof, by proof under assumptions of hardness, by a bound on all attackers that holds
with a stated confidence, by attacking it, or not at all."""

Randomness = Literal["operating system", "injected", "none"]
"""Where noise and keys came from; injected randomness can be repeated and voids every guarantee."""

Status = Literal["proven", "measured", "unproven", "void"]
"""The one word of a statement that a reader should remember."""

SCHEMA, VERSION = "blindsight/privacy-statement", 1

_CHOICES: dict[str, tuple[Any, ...]] = {
    "guarantee": get_args(Guarantee),
    "unit": (*get_args(Unit), None),
    "neighbours": (*get_args(Neighbours), None),
    "randomness": get_args(Randomness),
}
_NEEDS: dict[Guarantee, tuple[str, ...]] = {
    "differential privacy": ("unit", "delta", "neighbours", "accountant"),
    "cryptographic": ("assumptions",),
    "certified": ("evidence", "assumptions"),
    "measured": ("evidence",),
    "none": (),
}


def randomness_of(source: ByteSource) -> Randomness:
    """Name a source of bytes for the statement: only the operating system's keeps a guarantee."""
    return "operating system" if source is system_bytes else "injected"


class Line(str):
    """A sentence of a statement, with the `id` by which programs know what it is about, whatever its words.

    >>> line = Line("took-part", "that a member took part")
    >>> line, line.id, find_line([line], "took-part") is line
    ('that a member took part', 'took-part', True)
    """

    id: str

    def __new__(cls, id: str, text: str) -> Self:
        """Make a sentence that is equal to its text."""
        if not isinstance(id, str) or not isinstance(text, str):
            raise TypeError(f"a line is a text with a text as its id; got {text!r} and {id!r}")
        made = super().__new__(cls, text)
        made.id = id
        return made

    def __reduce__(self) -> tuple[type[Self], tuple[str, str]]:
        """Return what a copy is made of."""
        return type(self), (self.id, str(self))


def line_id(line: str) -> str:
    """Return the id of a sentence; empty if it has none."""
    return line.id if isinstance(line, Line) else ""


def find_line(lines: Iterable[str], *ids: str) -> str | None:
    """Return the first sentence that has one of these ids; None if there is none."""
    return next((line for line in lines if line_id(line) in ids), None)


@dataclass(frozen=True)
class Claim:
    """What a paper claims of its method, and why that fails; None for a claim that holds."""

    source: str
    claimed: str
    why_it_fails: str | None

    def __post_init__(self) -> None:
        """Refuse a claim without its words, or one said to fail without a reason."""
        _check_text("a claim's source", self.source)
        _check_text("what is claimed", self.claimed)
        if self.why_it_fails is not None:
            _check_text("the reason why a claim fails", self.why_it_fails)


@dataclass(frozen=True, kw_only=True)
class PrivacyStatement:
    """What is proven about one result. Numbers are upper bounds; nothing is said that is not meant.

    `epsilon` is None where the guarantee is not differential privacy, and infinite (with `guarantee` "none") where
    nothing is proven. `evidence` tells what was measured, by which attack, where that is all there is. `summary` says
    in a few words what is protected, for the headline of a statement without an epsilon.
    """

    guarantee: Guarantee
    mechanism: str
    unit: Unit | None
    epsilon: float | None
    delta: float | None
    randomness: Randomness
    who_sees: Mapping[str, str]
    not_protected: tuple[str, ...]
    assumptions: tuple[str, ...] = ()
    neighbours: Neighbours | None = None
    accountant: str | None = None
    evidence: str | None = None
    claim: Claim | None = None
    summary: str | None = None

    def __post_init__(self) -> None:
        """Refuse a statement that contradicts itself or leaves out what an honest one must say."""
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise InputError(f"{name} must be one of {', '.join(map(repr, choices))}; got {getattr(self, name)!r}.")
        _check_text("mechanism", self.mechanism)
        for name in _LISTS:
            object.__setattr__(self, name, _texts(name, getattr(self, name)))
        object.__setattr__(self, "who_sees", dict(self.who_sees))
        for role, sees in self.who_sees.items():
            _check_text("a role", role)
            _check_text(f"what the {role} sees", sees)
        if not self.who_sees or not self.not_protected:
            raise InputError("a statement must tell who sees what and what is not protected; got nothing for one.")
        self._check_numbers()
        self._check_guarantee()

    def _check_numbers(self) -> None:
        if self.epsilon is not None and not self.epsilon >= 0:
            raise InputError(f"epsilon must be at least 0; got {self.epsilon}.")
        if self.delta is not None and not 0 <= self.delta < 1:
            raise InputError(f"delta must be in [0, 1); got {self.delta}.")
        proven = self.epsilon is not None and self.epsilon < math.inf
        if proven != (self.guarantee == "differential privacy") or (self.epsilon == math.inf) > (
            self.guarantee == "none"
        ):
            raise InputError(
                f"epsilon {self.epsilon} does not go with the guarantee {self.guarantee!r}: differential privacy has a "
                "finite epsilon, 'none' has infinity or None, the others have None."
            )
        if not proven and self.delta is not None:
            raise InputError(f"delta means nothing without a finite epsilon; got {self.delta}. Leave it None.")

    def _check_guarantee(self) -> None:
        missing = [name for name in _NEEDS[self.guarantee] if getattr(self, name) in (None, "", ())]
        if missing:
            raise InputError(f"a statement with the guarantee {self.guarantee!r} needs {' and '.join(missing)}.")
        if self.guarantee == "none" and self.claim is not None and self.claim.why_it_fails is None:
            raise InputError("a claim cannot hold where nothing is proven. Say why it fails.")

    @property
    def void(self) -> bool:
        """Whether the guarantee is lost because the randomness can be repeated (as in a test)."""
        return self.randomness == "injected"

    @property
    def status(self) -> Status:
        """Whether the statement is proven, measured, unproven or void."""
        if self.void:
            return "void"
        if self.guarantee == "none":
            return "unproven"
        return "measured" if self.guarantee == "measured" else "proven"

    def headline(self) -> str:
        """Return the statement in one line about this result; what a paper claims stands below it.

        >>> statement = PrivacyStatement(
        ...     guarantee="differential privacy", mechanism="randomised response on 48 bits", unit="record",
        ...     epsilon=25.99, delta=0.0, randomness="operating system", neighbours="replace", accountant="basic",
        ...     who_sees={"server": "the noisy code"}, not_protected=("that the record exists",),
        ...     claim=Claim("the paper", "epsilon = 1", "its epsilon is per bit, and a record has 48"))
        >>> statement.headline()
        'Proven: epsilon = 25.99 per record'
        """
        if self.guarantee == "differential privacy":
            delta = f" (delta = {rounded_up(self.delta)})" if self.delta else ""
            line = f"Proven: epsilon = {rounded_up(self.epsilon or 0.0)}{delta} per {self.unit}"
        elif self.guarantee == "cryptographic":
            line = f"Proven, under assumptions: {self.summary or self.mechanism}"
        elif self.guarantee == "certified":
            line = f"Certified: {self.summary or self.evidence}"
        elif self.guarantee == "measured":
            line = f"Measured, not proven: {self.summary or self.evidence}"
        else:
            line = f"Nothing is proven per {self.unit}" if self.unit else "Nothing is proven"
        return f"Void, made with repeatable randomness (otherwise: {line})" if self.void else line

    def to_text(self, width: int = 88) -> str:
        """Return the whole statement for a terminal of `width` columns."""
        rows = [("Statement", [self.headline()])]
        rows += self._rows()
        rows.append(("Who sees what", [f"{role}: {sees}" for role, sees in self.who_sees.items()]))
        if self.claim is not None:
            holds = "It holds." if self.claim.why_it_fails is None else f"It fails: {self.claim.why_it_fails}."
            rows.append(("Claimed", [f"{self.claim.source}: {self.claim.claimed}. {holds}"]))
        lines = []
        for label, paragraphs in rows:
            for i, paragraph in enumerate(paragraphs):
                head = f"{'' if i else label:<15}" + ("- " if len(paragraphs) > 1 else "")
                lines.append(textwrap.fill(paragraph, width, initial_indent=head, subsequent_indent=" " * len(head)))
        return "\n".join(lines)

    __str__ = to_text

    def to_html(self) -> str:
        """Return the statement as a fragment of a page; its classes let a style sheet colour what holds and what fails.

        ``section.statement`` is also of the class of its status (proven, measured, unproven, void), and ``p.claim`` of
        the class holds or fails.
        """
        parts = [f'<section class="statement {self.status}" aria-label="Privacy statement">']
        parts.append(f'<p class="headline">{escape(self.headline())}</p>')
        parts.append("<dl>")
        for label, paragraphs in self._rows():
            parts.append(f"<dt>{label}</dt>" + "".join(f"<dd>{escape(text)}</dd>" for text in paragraphs))
        parts += ["</dl>", "<table>", "<caption>Who sees what</caption>"]
        parts.append('<thead><tr><th scope="col">Role</th><th scope="col">Sees</th></tr></thead>')
        for role, sees in self.who_sees.items():
            parts.append(f'<tr><th scope="row">{escape(role)}</th><td>{escape(sees)}</td></tr>')
        parts.append("</table>")
        if self.claim is not None:
            fails = self.claim.why_it_fails
            cited = f"<cite>{escape(self.claim.source)}</cite> claims <q>{escape(self.claim.claimed)}</q>."
            reason = f' It fails: <span class="reason">{escape(fails)}</span>' if fails else " It holds."
            parts.append(f'<p class="claim {"fails" if fails else "holds"}">{cited}{reason}</p>')
        return "\n".join([*parts, "</section>"])

    _repr_html_ = to_html

    def _rows(self) -> list[tuple[str, list[str]]]:
        """Return what terminal and page both show: a label and its paragraphs, in order, nothing empty."""
        related = None
        if self.neighbours is not None:
            how = {"add/remove": "is added or removed", "replace": "is exchanged for another"}[self.neighbours]
            related = f"one {self.unit or 'unit'} {how} ({self.neighbours})"
        rows: list[tuple[str, list[str | None]]] = [
            ("Guarantee", [self.guarantee]),
            ("Mechanism", [self.mechanism]),
            ("Neighbours", [related]),
            ("Accountant", [self.accountant]),
            ("Evidence", [self.evidence]),
            ("Randomness", [self.randomness + (": it can be repeated, so no guarantee holds" if self.void else "")]),
            ("Assumptions", list(self.assumptions)),
            ("Not protected", list(self.not_protected)),
        ]
        said = [(label, [text for text in paragraphs if text]) for label, paragraphs in rows]
        return [(label, paragraphs) for label, paragraphs in said if paragraphs]

    def to_dict(self) -> dict[str, Any]:
        """Return the statement as plain data for strict JSON: an infinite epsilon is the string "infinity"."""
        data = {"schema": SCHEMA, "version": VERSION, "headline": self.headline(), "status": self.status}
        data |= {field.name: getattr(self, field.name) for field in fields(self)}
        data["epsilon"] = "infinity" if self.epsilon == math.inf else self.epsilon
        data |= {name: list(map(str, getattr(self, name))) for name in _LISTS}
        ids = {name: list(map(line_id, getattr(self, name))) for name in _LISTS}
        if any(map(any, ids.values())):
            data["line_ids"] = ids
        data |= {"who_sees": dict(self.who_sees), "claim": None if self.claim is None else asdict(self.claim)}
        return data

    def to_json(self) -> str:
        """Return the statement as one JSON document; `from_json` gives it back."""
        return json.dumps(self.to_dict(), allow_nan=False, ensure_ascii=False, indent=2)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the statement that `to_dict` described, checked anew; headline and status are derived again."""
        if data.get("schema") != SCHEMA or data.get("version") != VERSION:
            raise InputError(
                f"not a privacy statement of version {VERSION}; got {data.get('schema')!r} {data.get('version')!r}."
            )
        known = {name: value for name, value in data.items() if name not in _DERIVED}
        try:
            if known.get("epsilon") == "infinity":
                known["epsilon"] = math.inf
            if known.get("claim") is not None:
                known["claim"] = Claim(**known["claim"])
            for name in _LISTS:
                if ids := data.get("line_ids", {}).get(name):
                    known[name] = _identified(known[name], ids)
            return cls(**known)
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"a privacy statement has missing, unknown or ill-typed fields: {error}.") from None

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the statement that `to_json` wrote, checked anew."""
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise InputError(f"a privacy statement must be JSON: {error}.") from None
        if not isinstance(data, dict):
            raise InputError(f"a privacy statement must be a JSON object; got {type(data).__name__}.")
        return cls.from_dict(data)


def facts_table(title: str, facts: Mapping[str, object]) -> str:
    """Return facts as a small table for a notebook; what is None or empty is left out.

    >>> facts_table("Round 1", {"score": 0.5, "absent": ""})
    '<table><caption>Round 1</caption><tr><th scope="row">score</th><td>0.5</td></tr></table>'
    """
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(str(fact))}</td></tr>'
        for name, fact in facts.items()
        if fact not in (None, "")
    )
    return f"<table><caption>{escape(title)}</caption>{rows}</table>"


_DERIVED = ("schema", "version", "headline", "status", "line_ids")
_LISTS = ("assumptions", "not_protected")


def _check_text(what: str, text: str) -> None:
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"{what} must be said in words; got {text!r}.")


def _texts(what: str, texts: Iterable[str]) -> tuple[str, ...]:
    if isinstance(texts, str):
        raise InputError(f"{what} must be a list of sentences; got one string. Put it in a list.")
    listed = tuple(texts)
    for text in listed:
        _check_text(f"each of {what}", text)
    return listed


def _identified(texts: Sequence[str], ids: Sequence[str]) -> list[str]:
    if len(texts) != len(ids):
        raise TypeError(f"{len(ids)} ids for {len(texts)} lines")
    return [Line(id, text) if id else text for id, text in zip(ids, texts, strict=True)]


def rounded_up(value: float) -> str:
    """Return two decimals, none from 100 on, or three digits of a small number; never less than the number itself.

    >>> rounded_up(1.0), rounded_up(7.3293), rounded_up(0.0), rounded_up(0.01234), rounded_up(1e-6), rounded_up(1234.5)
    ('1.00', '7.33', '0.00', '0.0124', '1e-06', '1,235')
    >>> rounded_up(math.inf)
    'infinite'
    """
    if math.isinf(value):
        return "infinite"
    exact = Decimal(repr(float(value)))
    places = 0 if value >= 100 else max(2, 2 - exact.adjusted()) if exact else 2
    rounded = exact.quantize(Decimal(1).scaleb(-places), ROUND_CEILING, Context(prec=400))
    return f"{float(rounded):.3g}" if 0 < value < 1e-3 else f"{rounded:,f}"
