"""The exhibits of the page's tabs Search, Learn, Sift and Audit, made of drawn faces and handwritten digits alone.

*Search*: what a query finds by exact features, by open codes and by private ones, and mAP against epsilon. *Learn*:
five owners learn together, round by round, with what every role holds in each. The views come from real messages of the
real protocol; one of them is an owner's plain update, which between real parties nobody else may ever hold. *Sift*: one
policy, the faces, what an app receives of them, and what attackers infer before and after. *Audit*: original, recovered
from a plain update, from what the aggregator holds, and from a sift.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from blindsight.audit import papers
from blindsight.audit.finding import Finding
from blindsight.audit.inversion.pictures import VIEWS, PictureRow
from blindsight.audit.portraits import portraits
from blindsight.data import Dataset, PixelFeatures, Thumbnails, extract, load
from blindsight.data.faces import ATTRIBUTES
from blindsight.errors import InputError, UnknownNameError
from blindsight.learn.classifier import FederatedClassifier
from blindsight.learn.comparison import ComparisonRow, ContestRow, compare, contest, installed_schemes, round_costs
from blindsight.learn.recording import RoleView
from blindsight.learn.rounds import RoundReport
from blindsight.learn.study import Study, divide
from blindsight.progress import Progress
from blindsight.report.learning import view_picture
from blindsight.search import compare as searching
from blindsight.sift.analysis import PolicyMatrix
from blindsight.sift.study import Guess, SiftResult, best_guess, guesses, sift_demo, words
from blindsight.sift.trial import Sifted, TradeOff, divide_rows
from blindsight.statement import PrivacyStatement
from blindsight.sums import SPARSE_SCHEMES


@dataclass(frozen=True)
class Exhibit:
    """What a tab shows. `data` is plain (no NaN, no infinity); it names `pictures`, which are PNG files."""

    data: dict[str, Any]
    pictures: Mapping[str, bytes] = field(default_factory=dict, repr=False)


def plain(value: Any) -> Any:
    """Return nested data as JSON can hold them: numbers that are not finite become None.

    >>> plain({"a": [1.0, math.nan]})
    {'a': [1.0, None]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


OWNERS = 5
LEARNED = ("smiling", "male", "eyeglasses", "outdoors")
"""What five owners learn to tell."""


@dataclass(frozen=True)
class Size:
    """How large the exhibits are. The defaults take about half a minute of one core; tests take less of everything."""

    pictures: int = 3000
    components: int = 200
    queries: int = 200
    rounds: int = 5
    key_bits: int = 3072
    seed: int = 0


class Stock:
    """Faces with features and a study of learning, each made once; nothing in it shows anybody who exists."""

    def __init__(self, size: Size) -> None:
        self.size = size

    @cached_property
    def faces(self) -> Dataset:
        """Drawn faces, five pictures of each person."""
        return load("faces", count=self.size.pictures, random_state=self.size.seed, pictures_per_person=5)

    @property
    def images(self) -> NDArray[np.uint8]:
        """Their pixels."""
        assert self.faces.images is not None
        return self.faces.images

    @cached_property
    def pipeline(self) -> PixelFeatures:
        """Features that learned from the developer's part of the faces alone."""
        developer, _ = divide_rows(len(self.faces), self.faces.persons, self.size.seed)
        return PixelFeatures(max_components=self.size.components, random_state=self.size.seed).fit(
            self.images[developer]
        )

    @cached_property
    def features(self) -> NDArray[np.float32]:
        """Of all faces."""
        return extract(self.faces, self.pipeline)

    @cached_property
    def study(self) -> Study:
        """The faces shared out among five owners, each person with one of them."""
        division = divide(self.faces, owners=OWNERS, attributes=LEARNED, random_state=self.size.seed)
        pipeline = PixelFeatures(max_components=self.size.components // 2, random_state=self.size.seed)
        return Study.prepare(self.faces, division, pipeline)


def png(pixels: NDArray[np.uint8]) -> bytes:
    """Return a picture (height, width, 3) as the bytes of a PNG file."""
    buffer = BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()


EPSILONS = (1.0, 2.0, 4.0, 8.0)
PRIVATE = ("codebook", "labelled codebook", "central", "Hamming ball", "flipped bits")
"""Methods with a proof, the best first."""

_EXACT, _CODES, _PAPER = "features", "ITQ", "PHashing (ITQ)"
_DELTA = 1e-6
_SHOWN = 6  # answers of every search
_PER_CLASS = 2  # queries of every digit


def search_exhibit(stock: Stock, progress: Progress) -> Exhibit:
    """Search handwritten digits by every method at four budgets."""
    digits, seed = load("digits"), stock.size.seed
    study = searching.SearchStudy.prepare(
        digits, searching.divide(digits, queries=stock.size.queries, random_state=seed), Thumbnails()
    )
    methods = (_EXACT, _CODES, _PAPER, *PRIVATE)
    rows = searching.contest(
        study, epsilons=EPSILONS, delta=_DELTA, methods=methods, random_state=seed, progress=progress
    )
    places = study.first_queries(_PER_CLASS)
    answers = {id(row): row.searcher.nearest(study.queries.features[places], _SHOWN) for row in rows}
    shown = set(study.queries.rows[places].tolist())
    for found in answers.values():
        shown.update(study.indexed.rows[found].ravel().tolist())
    assert digits.images is not None
    data = {
        "indexed": len(study.indexed),
        "asked": len(study.queries),
        "public": len(study.public),
        "chance": study.chance,
        "epsilons": list(EPSILONS),
        "methods": [_method(rows, name) for name in methods],
        "queries": [
            {"picture": _name(study.queries.rows[place]), "label": digits.label_names[study.queries.labels[place]]}
            | {"answers": [_answers(study, row, answers[id(row)][number], place) for row in rows]}
            for number, place in enumerate(places)
        ],
    }
    return Exhibit(plain(data), {_name(row): png(digits.images[row]) for row in sorted(shown)})


def _method(everything: list[searching.ContestRow], name: str) -> dict[str, Any]:
    rows = [row for row in everything if row.method == name]
    scores = [
        {"epsilon": row.epsilon, "score": row.score, "first": row.ranking.precision_at_10, "proven": row.promise}
        for row in rows
    ]
    statement = rows[-1].statement
    said = None if statement is None else statement.to_dict()
    return {"name": name, "group": rows[0].group, "scores": scores, "statement": said}


def _answers(study: searching.SearchStudy, row: searching.ContestRow, found: Any, place: int) -> dict[str, Any]:
    right = study.indexed.labels[found] == study.queries.labels[place]
    return {
        "method": row.method,
        "epsilon": row.epsilon,
        "found": [
            {"picture": _name(study.indexed.rows[item]), "right": bool(yes)}
            for item, yes in zip(found, right, strict=True)
        ],
    }


def _name(row: int) -> str:
    return f"digit-{int(row)}.png"


SPARSITY = 0.7
"""What owners keep back where they choose themselves what they send."""

DEFAULT = "block-dphe"  # the paper's protocol, with a picture of what each of its roles holds
_BASELINES = {"pooled": "all pictures in one place", "local": "everybody alone"}


@dataclass(frozen=True, eq=False)
class SeenRound:
    """A finished round: the report, what each role held in it, the score before the first round, and what is proven."""

    report: RoundReport
    views: tuple[RoleView, ...]
    first_score: float
    statement: PrivacyStatement

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain data; views are named, and shown by `picture_name`."""
        report = self.report
        views = [{"role": view.role, "holds": view.holds} for view in self.views]
        return {
            "round": report.round,
            "score": report.score,
            "kept_back": report.sparsity,
            "kilobytes": report.sent["members"] / max(1, len(report.contributors)) / 1e3,
            "seconds": dict(report.seconds),
            "views": [view | {"picture": picture_name(report.round, i)} for i, view in enumerate(views)],
        }

    def pictures(self) -> dict[str, bytes]:
        """Return what each role held, drawn."""
        return {
            picture_name(self.report.round, i): png(view_picture(view.picture)) for i, view in enumerate(self.views)
        }


def picture_name(number: int, view: int) -> str:
    """Return the file name of a view in a round."""
    return f"round-{number}-{view}.png"


def seen_rounds(stock: Stock, scheme: str, rounds: int, progress: Progress) -> Iterator[SeenRound]:
    """Play a run round by round; each goes on where the last one stopped, with new keys and a new witness."""
    if scheme not in (known := installed_schemes()):
        raise UnknownNameError("aggregation scheme", scheme, known)
    progress("preparing five owners", 0, rounds)
    study = stock.study
    with TemporaryDirectory(prefix="blindsight-") as folder:
        for number in range(1, rounds + 1):
            learner = _learner(stock.size, scheme, number)
            learner.fit(
                study.owners, public=study.public, validation=study.test, checkpoint=Path(folder), progress=progress
            )
            assert learner.public_score_ is not None
            yield SeenRound(learner.history_[-1], learner.views_, learner.public_score_, learner.statement_)


def _learner(size: Size, scheme: str, rounds: int) -> FederatedClassifier:
    return FederatedClassifier(
        scheme,
        rounds=rounds,
        sparsity=SPARSITY if scheme in SPARSE_SCHEMES else None,
        key_bits=size.key_bits,
        multilabel=True,
        random_state=size.seed,
        record=True,
    )


def learn_exhibit(stock: Stock, progress: Progress) -> Exhibit:
    """Play a run by the paper's protocol, and compare all schemes on the same owners."""
    size = stock.size
    seen = list(seen_rounds(stock, DEFAULT, size.rounds, progress))
    schemes = installed_schemes()
    rows = contest(
        stock.study,
        methods=(*schemes, *_BASELINES),
        epsilon=1.0,
        delta=1e-6,
        rounds=size.rounds,
        sparsity=SPARSITY,
        key_bits=size.key_bits,
        random_state=size.seed,
        progress=progress,
    )
    weights = len(stock.study.answers) * (stock.study.public[0].shape[1] + 1)
    costs = round_costs(weights, OWNERS, sparsity=SPARSITY, key_bits=size.key_bits, progress=progress)
    by_scheme = {row.scheme: row for row in compare(costs)}
    pictures = {name: content for one in seen for name, content in one.pictures().items()}
    data = {
        "attributes": list(stock.study.answers),
        "owners": OWNERS,
        "weights": weights,
        "run": run_data(DEFAULT, size.rounds, seen),
        "schemes": [_scheme(row, by_scheme.get(row.method)) for row in rows],
    }
    return Exhibit(plain(data), pictures)


def run_data(scheme: str, rounds: int, seen: list[SeenRound]) -> dict[str, Any]:
    """Return a run, finished or not, as plain data."""
    return {
        "scheme": scheme,
        "rounds": rounds,
        "first_score": seen[0].first_score if seen else None,
        "seen": [one.to_dict() for one in seen],
        "statement": seen[-1].statement.to_dict() if seen else None,
    }


def _scheme(row: ContestRow, cost: ComparisonRow | None) -> dict[str, Any]:
    return {
        "name": row.method,
        "means": _BASELINES.get(row.method, ""),
        "score": row.score,
        "seconds": row.seconds,
        "megabytes": row.megabytes,
        "encrypt": None if cost is None else cost.encrypt_seconds,
        "aggregate": None if cost is None else cost.aggregate_seconds,
        "decrypt": None if cost is None else cost.decrypt_seconds,
        "who_learns": "" if cost is None else cost.who_learns,
        "drop_out": "" if cost is None else cost.drop_out,
    }


_BESIDE = ("smiling", "male", "youth", "beard", "hat")  # attributes that fill up the matrices
_MATRIX = 5


def check_policy(public: str, private: str) -> None:
    """Refuse a policy that the drawn faces have no labels for, or that hides what it tells."""
    for name in (public, private):
        if name not in ATTRIBUTES:
            raise UnknownNameError("attribute", name, ATTRIBUTES)
    if public == private:
        raise InputError(f"what is told cannot be hidden as well; got {words(public)} twice. Pick two attributes.")


def sift_exhibit(stock: Stock, public: str, private: str, progress: Progress) -> Exhibit:
    """Try a policy on the drawn faces."""
    check_policy(public, private)
    others = [name for name in _BESIDE if name not in (public, private)][: _MATRIX - 2]
    progress("drawing faces", 0, None)
    result = sift_demo(
        stock.faces,
        stock.features,
        public=public,
        private=private,
        others=others,
        random_state=stock.size.seed,
        progress=progress,
    )
    assert result.trade_off is not None
    assert result.matrix is not None
    assert result.faces is not None
    pictures = {f"face-{number}.png": png(face) for number, face in enumerate(result.faces)}
    groups = [("everything: raw features", guesses(result.before))]
    groups += [(f"{one.name}: {one.lets_out}", guesses(one.found)) for one in result.sifted]
    data = {
        "public": public,
        "private": private,
        "threshold": result.threshold,
        "confidence": result.before.setting.confidence,
        "raw": {"public": result.raw[public], "private": result.before.best.balanced_accuracy},
        "ceiling": result.check.pairs[0].ceiling,
        "faces": list(pictures),
        "sifts": [_sift(result, number, one) for number, one in enumerate(result.sifted)],
        "attackers": [{"given": given, "guesses": [_guess(one) for one in found]} for given, found in groups],
        "trade_off": _trade_off(result.trade_off),
        "matrix": _matrix(result.matrix),
    }
    return Exhibit(plain(data), pictures)


def _sift(result: SiftResult, number: int, one: Sifted) -> dict[str, Any]:
    found = one.found
    return {
        "name": one.name,
        "lets_out": one.lets_out,
        "received": [[round(value, 2) for value in row] for row in result.received[number].tolist()],
        "public": one.told,
        "pub_loss": one.pub_loss,
        "guess": best_guess(found),
        "at_most": 0.5 + found.bound,
        "certified": found.certified,
        "verdict": found.verdict,
        "sentence": found.sentence,
        "consent": result.consent(one),
        "statement": found.statement.to_dict(),
    }


def _guess(one: Guess) -> dict[str, Any]:
    return {"who": one.who, "accuracy": one.accuracy, "low": one.interval.low, "high": one.interval.high}


def _trade_off(found: TradeOff) -> dict[str, Any]:
    return {
        "raw": float(np.mean(list(found.raw.values()))),
        "best": None if found.best is None else _point(*found.best),
        "curves": [
            {"name": _lambda(privacy), "points": [_point(privacy, one) for one in curve]}
            for privacy, curve in sorted(found.curves.items())
        ],
    }


def _point(privacy: float, one: Sifted) -> dict[str, Any]:
    return {
        "k": one.numbers,
        "lambda": _lambda(privacy),
        "told": one.told,
        "hidden": 0.5 + one.priv_loss,
        "verdict": one.verdict,
    }


def _lambda(privacy: float) -> str:
    return "∞" if math.isinf(privacy) else f"{privacy:g}"


def _matrix(matrix: PolicyMatrix) -> dict[str, Any]:
    return {
        "names": list(matrix.names),
        "correlation": matrix.entanglement.correlation.tolist(),
        "overlap": matrix.entanglement.overlap.tolist(),
        "pub_loss": matrix.figures("pub_loss").tolist(),
        "priv_loss": matrix.figures("priv_loss").tolist(),
        "accepted": matrix.accepted,
        "policies": len(matrix.cells),
    }


def audit_exhibit(stock: Stock, progress: Progress) -> Exhibit:
    """Draw faces from what each side holds of them, by decoders that learned from other people's faces."""
    progress("drawing faces", 0, None)
    evidence = portraits(
        stock.faces, public=papers.PUBLIC, private=papers.PRIVATE, random_state=stock.size.seed, progress=progress
    )
    pictures: dict[str, bytes] = {}
    rows = []
    for number, row in enumerate(evidence.pictures):
        names = {view: f"row-{number}-{view}.png" for view in ("original", *VIEWS)}
        pictures |= {name: png(pixels) for name, pixels in zip(names.values(), row.pictures, strict=True)}
        rows.append(_row(row, names))
    data = {
        "public": papers.PUBLIC,
        "private": papers.PRIVATE,
        "rows": rows,
        "findings": [_finding(finding) for finding in evidence.findings],
    }
    return Exhibit(plain(data), pictures)


def _row(row: PictureRow, names: dict[str, str]) -> dict[str, Any]:
    return {"pictures": names, "similarity": dict(zip(VIEWS, row.similarity, strict=True)), "blind": row.blind}


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "claim": finding.claim,
        "source": finding.source,
        "proven": finding.proven,
        "measure": finding.measure,
        "measured": str(finding.measured),
        "verdict": finding.verdict,
    }
