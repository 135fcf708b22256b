"""Demonstrations on bundled pictures for the page's tabs Search, Learn and Sift, and one live run of learning.

*The guarantee.* Nothing here comes from the people or apps of this service: it is made from public collections alone,
so anybody may look at it. A demo is there whole or not at all: `demo.json` is written after its pictures. One thread
computes one demo at a time; closing ends it at its next report of progress, and it is computed again after the next
start.

| demo | shows |
| --- | --- |
| search | what a query finds by exact features, by open codes and by private ones; mAP against epsilon |
| learn | five owners learn together; what every role holds in each round, from real messages of the protocol |
| sift-PUBLIC-PRIVATE | one policy: the faces, what an app receives of them, what attackers infer before and after |

A live run is in memory, one at a time. Watchers read its events from any place on, so latecomers miss nothing.
"""

import json
import logging
import math
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from blindsight.data import Dataset, FeaturePipeline, PixelFeatures, extract, load, pipeline
from blindsight.data.faces import ATTRIBUTES
from blindsight.data.sites import Study, divide
from blindsight.errors import BlindsightError, InputError, MissingExtraError, UnknownNameError
from blindsight.files import AnyPath, as_path, atomic_writer, cache_folder, storage_errors
from blindsight.learn.classifier import FederatedClassifier
from blindsight.learn.comparison import ComparisonRow, ContestRow, compare, contest, round_costs
from blindsight.learn.recording import RoleView
from blindsight.progress import Progress
from blindsight.report.learning import view_picture
from blindsight.rounds import RoundReport, Sums
from blindsight.search import compare as searching
from blindsight.service.errors import told
from blindsight.sift.analysis import PolicyMatrix
from blindsight.sift.study import SiftResult, best_guess, guesses, sift_demo, words
from blindsight.sift.trial import Sifted, TradeOff, divide_rows
from blindsight.statement import PrivacyStatement
from blindsight.sums import SPARSE_SCHEMES
from blindsight.sums.scheme import installed_schemes

logger = logging.getLogger(__name__)

MOST_ROUNDS = 12


@dataclass(frozen=True)
class Demo:
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


def _of(one: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(one, name) for name in names}


OWNERS = 5
LEARNED = ("smiling", "male", "eyeglasses", "outdoors")  # what five owners learn to tell


@dataclass(frozen=True)
class Size:
    """How large the demos are. The defaults take about half a minute of one core; tests take less of everything."""

    pictures: int = 4000  # with fewer the first policy that a visitor sees could not be decided
    components: int = 200
    queries: int = 200
    rounds: int = 5
    key_bits: int = 3072
    photos: int = 1000  # of a fetched collection, to search in; 0 leaves them out
    seed: int = 0


class DemoData:
    """Faces with features and a study of learning, each made once; nothing in it shows anybody who exists."""

    def __init__(self, size: Size) -> None:
        self.size = size

    @cached_property
    def faces(self) -> Dataset:
        return load("faces", count=self.size.pictures, random_state=self.size.seed, pictures_per_person=5)

    @property
    def images(self) -> NDArray[np.uint8]:
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
        return extract(self.faces, self.pipeline)

    @cached_property
    def study(self) -> Study:
        """The faces shared out among five owners, each person with one of them."""
        division = divide(self.faces, owners=OWNERS, attributes=LEARNED, random_state=self.size.seed)
        pipeline = PixelFeatures(max_components=self.size.components // 2, random_state=self.size.seed)
        return Study.prepare(self.faces, division, pipeline)


PHOTOS = ("caltech101", "cifar10")  # to search in, the first that was fetched; without one drawn faces
_KINDS = ("woman indoors", "man indoors", "woman outdoors", "man outdoors")


def searched(source: DemoData) -> tuple[searching.SearchStudy, Dataset, str]:
    """Return what is searched, divided and with features, its pictures, and what they are in words."""
    size = source.size
    found = next((name for name in PHOTOS if size.photos and (cache_folder() / name).is_dir()), None)
    if found is None:
        kinds = source.faces.attribute("male").astype(np.int64) + 2 * source.faces.attribute("outdoors")
        faces = replace(source.faces, labels=kinds, label_names=_KINDS, persons=None)
        parts = searching.divide(faces, queries=size.queries, random_state=size.seed)
        return searching.SearchStudy.of(faces, source.features, parts), faces, "drawn faces"
    photos = load(found, count=size.photos, random_state=size.seed)
    parts = searching.divide(photos, queries=size.queries, random_state=size.seed)
    try:
        made_by: FeaturePipeline = pipeline("embedding")
    except MissingExtraError:
        made_by = PixelFeatures(max_components=size.components, random_state=size.seed)
    return searching.SearchStudy.prepare(photos, parts, made_by), photos, f"photos of {found}"


def png(pixels: NDArray[np.uint8]) -> bytes:
    buffer = BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()


EPSILONS = (1.0, 2.0, 4.0, 8.0)
PRIVATE = ("codebook", "labelled codebook", "central", "Hamming ball", "flipped bits")  # with a proof, best first

_EXACT, _CODES, _PAPER = "features", "ITQ", "PHashing (ITQ)"
_DELTA = 1e-6
_SHOWN = 6  # answers of every search
_PER_CLASS, _QUERIES = 3, 24  # queries of every class, and in all


def show_search(source: DemoData, progress: Progress) -> Demo:
    progress("making features", 0, None)
    study, pictures, what = searched(source)
    seed = source.size.seed
    methods = (_EXACT, _CODES, _PAPER, *PRIVATE)
    rows = searching.contest(
        study, epsilons=EPSILONS, delta=_DELTA, methods=methods, random_state=seed, progress=progress
    )
    places = study.first_queries(_PER_CLASS)[:_QUERIES]
    answers = {id(row): row.searcher.nearest(study.queries.features[places], _SHOWN) for row in rows}
    shown = set(study.queries.rows[places].tolist())
    for found in answers.values():
        shown.update(study.indexed.rows[found].ravel().tolist())
    assert pictures.images is not None
    data = {
        "what": what,
        "indexed": len(study.indexed),
        "asked": len(study.queries),
        "public": len(study.public),
        "chance": study.chance,
        "epsilons": list(EPSILONS),
        "methods": [_method([row for row in rows if row.method == name]) for name in methods],
        "queries": [
            {"picture": _name(study.queries.rows[place]), "label": pictures.label_names[study.queries.labels[place]]}
            | {"answers": [_answers(study, row, answers[id(row)][number], place) for row in rows]}
            for number, place in enumerate(places)
        ],
    }
    return Demo(plain(data), {_name(row): png(pictures.images[row]) for row in sorted(shown)})


def _method(rows: list[searching.ContestRow]) -> dict[str, Any]:
    scores = [
        _of(row, "epsilon", "score") | {"first": row.ranking.precision_at_10, "proven": row.promise} for row in rows
    ]
    statement = rows[-1].statement
    said = None if statement is None else statement.to_dict()
    return {"name": rows[0].method, "group": rows[0].group, "scores": scores, "statement": said}


def _answers(study: searching.SearchStudy, row: searching.ContestRow, found: Any, place: int) -> dict[str, Any]:
    right = (study.indexed.labels[found] == study.queries.labels[place]).tolist()
    shown = zip(map(_name, study.indexed.rows[found]), right, strict=True)
    return _of(row, "method", "epsilon") | {"found": [{"picture": name, "right": yes} for name, yes in shown]}


def _name(row: int) -> str:
    return f"photo-{int(row)}.png"


SPARSITY = 0.6  # what owners keep back where they choose themselves what they send

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
        """Views are named here, and shown by `picture_name`."""
        report = self.report
        return {
            "round": report.round,
            "score": report.score,
            "kept_back": report.sparsity,
            "kilobytes": report.sent["members"] / max(1, len(report.contributors)) / 1e3,
            "seconds": dict(report.seconds),
            "views": [
                _of(view, "role", "holds") | {"picture": picture_name(report.round, number)}
                for number, view in enumerate(self.views)
            ],
        }

    def pictures(self) -> dict[str, bytes]:
        return {
            picture_name(self.report.round, i): png(view_picture(view.picture)) for i, view in enumerate(self.views)
        }


def picture_name(number: int, view: int) -> str:
    return f"round-{number}-{view}.png"


def seen_rounds(source: DemoData, scheme: str, rounds: int, progress: Progress) -> Iterator[SeenRound]:
    """Play a run round by round; each goes on where the last one stopped, with new keys and a new witness."""
    if scheme not in (known := installed_schemes()):
        raise UnknownNameError("aggregation scheme", scheme, known)
    progress("preparing five owners", 0, rounds)
    study = source.study
    with TemporaryDirectory(prefix="blindsight-") as folder:
        for number in range(1, rounds + 1):
            sparsity = SPARSITY if scheme in SPARSE_SCHEMES else None
            sums = Sums.sending(scheme, sparsity=sparsity, key_bits=source.size.key_bits)
            learner = FederatedClassifier(sums, rounds=number, multilabel=True, random_state=source.size.seed)
            learner.fit(
                study.owners,
                public=study.public,
                validation=study.test,
                checkpoint=Path(folder),
                record=True,
                progress=progress,
            )
            assert learner.public_score_ is not None
            yield SeenRound(learner.history_[-1], learner.views_, learner.public_score_, learner.statement_)


def show_learn(source: DemoData, progress: Progress) -> Demo:
    """Play a run by the paper's protocol, and compare all schemes on the same owners."""
    size = source.size
    seen = list(seen_rounds(source, DEFAULT, size.rounds, progress))
    schemes = installed_schemes()
    rows = contest(
        source.study,
        methods=(*schemes, *_BASELINES),
        epsilon=1.0,
        delta=1e-6,
        rounds=size.rounds,
        sparsity=SPARSITY,
        key_bits=size.key_bits,
        random_state=size.seed,
        progress=progress,
    )
    weights = len(source.study.answers) * (source.study.public[0].shape[1] + 1)
    costs = round_costs(weights, OWNERS, sparsity=SPARSITY, key_bits=size.key_bits, progress=progress)
    by_scheme = {row.scheme: row for row in compare(costs)}
    pictures = {name: content for one in seen for name, content in one.pictures().items()}
    data = {
        "attributes": list(source.study.answers),
        "owners": OWNERS,
        "weights": weights,
        "run": run_data(DEFAULT, size.rounds, seen),
        "schemes": [_scheme(row, by_scheme.get(row.method)) for row in rows],
    }
    return Demo(plain(data), pictures)


def run_data(scheme: str, rounds: int, seen: list[SeenRound]) -> dict[str, Any]:
    return {
        "scheme": scheme,
        "rounds": rounds,
        "first_score": seen[0].first_score if seen else None,
        "seen": [one.to_dict() for one in seen],
        "statement": seen[-1].statement.to_dict() if seen else None,
    }


def _scheme(row: ContestRow, cost: ComparisonRow | None) -> dict[str, Any]:
    steps = ("encrypt", "aggregate", "decrypt")
    known = {step: None if cost is None else getattr(cost, f"{step}_seconds") for step in steps}
    told = {name: "" if cost is None else getattr(cost, name) for name in ("who_learns", "drop_out")}
    means = {"name": row.method, "means": _BASELINES.get(row.method, "")}
    return means | _of(row, "score", "seconds", "megabytes") | known | told


_BESIDE = ("smiling", "male", "youth", "beard", "hat")  # attributes that fill up the matrices
_MATRIX = 5


def check_policy(public: str, private: str) -> None:
    """Refuse a policy that the drawn faces have no labels for, or that hides what it tells."""
    for name in (public, private):
        if name not in ATTRIBUTES:
            raise UnknownNameError("attribute", name, ATTRIBUTES)
    if public == private:
        raise InputError(f"what is told cannot be hidden as well; got {words(public)} twice. Pick two attributes.")


def show_sift(source: DemoData, public: str, private: str, progress: Progress) -> Demo:
    check_policy(public, private)
    others = [name for name in _BESIDE if name not in (public, private)][: _MATRIX - 2]
    progress("drawing faces", 0, None)
    result = sift_demo(
        source.faces,
        source.features,
        public=public,
        private=private,
        others=others,
        random_state=source.size.seed,
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
        "attackers": [
            {
                "given": given,
                "guesses": [_of(one, "who", "accuracy") | _of(one.interval, "low", "high") for one in found],
            }
            for given, found in groups
        ],
        "trade_off": _trade_off(result.trade_off),
        "matrix": _matrix(result.matrix),
    }
    return Demo(plain(data), pictures)


def _sift(result: SiftResult, number: int, one: Sifted) -> dict[str, Any]:
    found = one.found
    return {
        **_of(one, "name", "lets_out", "pub_loss"),
        **_of(found, "certified", "verdict", "sentence"),
        "received": [[round(value, 2) for value in row] for row in result.received[number].tolist()],
        "public": one.told,
        "guess": best_guess(found),
        "at_most": 0.5 + found.bound,
        "consent": result.consent(one),
        "statement": found.statement.to_dict(),
    }


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
    figures = {"k": one.numbers, "lambda": _lambda(privacy), "hidden": 0.5 + one.priv_loss}
    return figures | _of(one, "told", "verdict")


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


class Stopped(BaseException):
    """Somebody stopped the work, or the demos are being closed; nothing in between catches it."""


def _ending(error: Exception, what: str) -> str:
    """Return what to tell about work that failed."""
    if isinstance(error, BlindsightError):
        return told(error)
    logger.error("%s failed", what, exc_info=error)
    return "something went wrong here; it was noted."


@dataclass(frozen=True)
class Event:
    """Something that happened: progress of work, a finished round, or the end."""

    kind: Literal["progress", "round", "end"]
    data: dict[str, Any]


@dataclass(eq=False)
class LiveRun:
    """One run; only its own thread changes it, by appending."""

    number: int
    scheme: str
    rounds: int
    events: list[Event] = field(default_factory=list)
    seen: list[SeenRound] = field(default_factory=list)
    pictures: dict[str, bytes] = field(default_factory=dict)
    stop: bool = False

    @property
    def ended(self) -> bool:
        return bool(self.events) and self.events[-1].kind == "end"

    def since(self, place: int) -> Sequence[Event]:
        return tuple(self.events[max(place, 0) :])

    def to_dict(self) -> dict[str, Any]:
        events = len(self.events)  # before the rounds are read: what comes in between is told again, not lost
        last = self.events[-1].data if events else {"what": "beginning", "done": 0, "total": None}
        run = run_data(self.scheme, self.rounds, list(self.seen))
        so_far: dict[str, Any] = plain(run | {"number": self.number, "ended": self.ended, "last": last})
        return so_far | {"events": events}


class LiveRuns:
    """The latest run, and the way to start another."""

    def __init__(self, source: DemoData) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.latest: LiveRun | None = None

    def start(self, scheme: str, rounds: int) -> LiveRun:
        """Start a run; refused while another one is going on."""
        if scheme not in installed_schemes():
            raise InputError(f"the scheme must be one of {', '.join(installed_schemes())}.")
        if not 1 <= rounds <= MOST_ROUNDS:
            raise InputError(f"rounds must be in [1, {MOST_ROUNDS}]; got {rounds}.")
        with self._lock:
            if self.latest is not None and not self.latest.ended:
                raise InputError("a run is going on. Watch it, or stop it first.")
            number = 1 if self.latest is None else self.latest.number + 1
            run = self.latest = LiveRun(number, scheme, rounds)
            self._thread = threading.Thread(target=self._play, args=(run,), name="live run", daemon=True)
            self._thread.start()
        return run

    def stop(self) -> None:
        if self.latest is not None:
            self.latest.stop = True

    def close(self) -> None:
        self.stop()
        if self._thread is not None:
            self._thread.join()

    def _play(self, run: LiveRun) -> None:
        def progress(what: str, done: int, total: int | None) -> None:
            if run.stop:
                raise Stopped
            run.events.append(Event("progress", {"what": what, "done": done, "total": total}))

        try:
            for seen in seen_rounds(self._source, run.scheme, run.rounds, progress):
                run.pictures |= seen.pictures()
                run.seen.append(seen)
                run.events.append(Event("round", plain(seen.to_dict() | {"first_score": seen.first_score})))
            ending = "finished"
        except Stopped:
            ending = "stopped"
        except Exception as error:
            ending = _ending(error, "a live run")
        run.events.append(Event("end", {"what": ending, "done": len(run.seen), "total": run.rounds}))


FORMAT = 2  # rises whenever earlier demos can no longer be shown

_FIXED: dict[str, Callable[[DemoData, Progress], Demo]] = {
    "search": show_search,
    "learn": show_learn,
}

Stage = Literal["missing", "waiting", "running", "ready", "failed"]


@dataclass(frozen=True)
class State:
    """How far a demo is. While it runs, `what` is being done, `done` of `total` (None: not known) steps."""

    stage: Stage
    what: str = ""
    done: int = 0
    total: int | None = None


def sift_name(public: str, private: str) -> str:
    check_policy(public, private)
    return f"sift-{public}-{private}"


class Demos:
    """All demos of one `folder`; `start` begins with those that every visitor looks at."""

    FIRST = ("smiling", "male")  # public, private: tried without being asked for

    def __init__(self, folder: AnyPath, size: Size | None = None) -> None:
        self.folder = as_path(folder)
        self._source = DemoData(Size() if size is None else size)
        self.runs = LiveRuns(self._source)
        self._waiting: deque[str] = deque()
        self._states: dict[str, State] = {}
        self._changed = threading.Condition()
        self._closing = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Compute what is not there yet, in the background."""
        for name in (sift_name(*self.FIRST), *_FIXED):
            self.ask(name)

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self.runs.close()
        if self._thread is not None:
            self._thread.join()

    def ask(self, name: str) -> State:
        """Have a demo computed, unless it is there or on its way; one that failed is tried again."""
        _maker(name)
        with self._changed:
            state = self.state(name)
            if state.stage in ("missing", "failed") and not self._closing:
                self._states[name] = state = State("waiting", "waiting for its turn")
                self._waiting.append(name)
                self._changed.notify_all()
                if self._thread is None:
                    self._thread = threading.Thread(target=self._work, name="demos", daemon=True)
                    self._thread.start()
        return state

    def wait(self, name: str, timeout: float | None = None) -> State:
        """Return a demo's state once nobody works at it any more, or when the seconds are over."""
        with self._changed:
            self._changed.wait_for(lambda: self.state(name).stage not in ("waiting", "running"), timeout)
            return self.state(name)

    def state(self, name: str) -> State:
        with self._changed:
            known = self._states.get(name)
        if known is not None:
            return known
        return State("missing") if self.get(name) is None else State("ready")

    def get(self, name: str) -> dict[str, Any] | None:
        """Return the data of a finished demo of this size, or None."""
        _maker(name)
        try:
            document = json.loads((self.folder / name / "demo.json").read_bytes())
        except (OSError, ValueError):
            return None
        if not isinstance(document, dict) or document.get("made") != self._made:
            return None
        data: dict[str, Any] = document["data"]
        return data

    def picture(self, name: str, file: str) -> bytes | None:
        """Return a picture that belongs to a demo, or None; no other file is ever read."""
        _maker(name)
        folder = self.folder / name
        try:
            return (folder / file).read_bytes() if file in {path.name for path in folder.glob("*.png")} else None
        except OSError:
            return None

    @property
    def _made(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self._source.size)}

    def _work(self) -> None:
        # the faster library of attackers warns in every thread but the main one that it takes all cores
        warnings.filterwarnings("ignore", message="'Threading' parallel backend", category=UserWarning)
        while (name := self._next()) is not None:
            try:
                self._keep(name, _maker(name)(self._source, lambda *told, name=name: self._report(name, *told)))
                state = None
            except Stopped:
                return
            except Exception as error:
                state = State("failed", _ending(error, f"the demo {name}"))
            with self._changed:
                if state is None:
                    del self._states[name]
                else:
                    self._states[name] = state
                self._changed.notify_all()

    def _next(self) -> str | None:
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._waiting)
            if self._closing:
                return None
            name = self._waiting.popleft()
            self._states[name] = State("running", "beginning")
            return name

    def _report(self, name: str, what: str, done: int, total: int | None) -> None:
        with self._changed:
            if self._closing:
                raise Stopped
            self._states[name] = State("running", what, done, total)
            self._changed.notify_all()

    def _keep(self, name: str, demo: Demo) -> None:
        folder = self.folder / name
        with storage_errors("write into", folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (folder / "demo.json").unlink(missing_ok=True)
            for stale in folder.glob("*.png"):
                stale.unlink()
            for file, content in demo.pictures.items():
                (folder / file).write_bytes(content)
        with atomic_writer(folder / "demo.json", private=True) as stream:
            stream.write(json.dumps({"made": self._made, "data": demo.data}, allow_nan=False).encode())


def _maker(name: str) -> Callable[[DemoData, Progress], Demo]:
    """Return what computes a demo; other names are refused, since names become folders."""
    if name in _FIXED:
        return _FIXED[name]
    kind, *policy = name.split("-")
    if kind != "sift" or len(policy) != 2:
        raise UnknownNameError("demo", name, [*_FIXED, "sift-PUBLIC-PRIVATE"])
    public, private = policy
    check_policy(public, private)
    return lambda source, progress: show_sift(source, public, private, progress)
