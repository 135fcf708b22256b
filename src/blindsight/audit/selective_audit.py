"""The audit of selective sharing: what a parameter server reads in uploads, and what if it chooses the weights.

The server knows the weights it handed out, the uploads, how participants train, and the public photos of day 0.

*Classes.* A step of class c is imitated with public photos of c (`Server.steps`). An upload is a mixture of such steps,
and its shares, found by least squares without negative ones, are the shares of the classes in the batch (labels from
gradients: Zhao et al., iDLG, 2020; Yin et al. 2021). The figure is the correlation, over participants and classes, of
estimated and true shares, both less the mean of the class: it is 0 if nothing tells who has what. Its p-value is that
of exchanging participants, which is exact: (1 + permutations with as large a correlation) / (1 + permutations).

*Members.* A photo of the batch pulls the upload its own way: the score of a photo is the inner product of its step,
less that of its class, with what the classes leave unexplained of the upload (gradient alignment: Nasr, Shokri and
Houmansadr, S&P 2019). Photos that a participant trained on next are the others: their order is a coin's, so members and
others differ in nothing else. Scores are standardised upload by upload.

*Photos.* Rows of a linear layer's change and their differences are compared with the photos of the batch, and with
those of the next batch for chance; whether more of the batch are shown than of the next is decided by a sign test. Of
Adam and RMSProp the division by the gradient's own size is undone first, as far as a first step lets one.

*Chosen weights* (`chosen_weights`). A last layer of zeros whose bias is sure of one class: then the row of every other
class is the sum of its photos' inputs and the bias counts them (the class attack of Wen et al., "Fishing for user
data", 2022). In a network that begins with a linear layer and ReLU, equal rows with biases at the quantiles of their
sum switch each photo on from one row on, so that differences of rows are single photos (Fowl et al., "Robbing the Fed",
2022). Where participants descend by Adam or RMSProp the last layer is made so small that gradients hardly count beside
what is added to their divisor: then steps are gradients again (`leakage.networks`). No encrypted sum is in the way of
either: the sum of all uploads has the same rows. Noise with a proof is: epsilon holds whatever the weights are.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls
from scipy.stats import binomtest

from blindsight.audit import membership
from blindsight.audit.checks import Check, Evidence, Plan, check_fields, moved_pictures, read_json, read_statement
from blindsight.audit.finding import Finding, Interval, Verdict, rate
from blindsight.audit.leakage.networks import linear_layers, parameter_places, undo_division
from blindsight.audit.leakage.recovery import RECOVERED
from blindsight.crypto.wire import decode
from blindsight.data import load
from blindsight.data.dataset import Dataset
from blindsight.errors import CorruptFileError, DataError, InputError
from blindsight.files import AnyPath, cache_folder, read_arrays, write_arrays
from blindsight.progress import Progress, silent
from blindsight.rng import science
from blindsight.selective.codec import ParameterLayout, SparseUpdate, Vector, decode_sparse
from blindsight.selective.methods import LEAST_TOGETHER
from blindsight.selective.participant import Participant
from blindsight.selective.protection import RecordGaussian, Sharing
from blindsight.selective.server import ParameterServer
from blindsight.selective.simulation import EncryptedTurns, TooFewError, simulate
from blindsight.selective.study import BATCH, PhotoStudy, SharingOptions, Training, backbone
from blindsight.selective.terms import Answer, Receipt, Request, SelectiveTerms, Total, Upload
from blindsight.selective.timeline import MakeTrainer, Photos
from blindsight.selective.trainers import SoftmaxTrainer
from blindsight.statement import PrivacyStatement
from blindsight.sums import open_session

ABOUT_SELECTIVE, VIEW = "selective.json", "server-view.npz"
SCHEMA, VERSION = "blindsight/selective-run", 1
HOW_TO_RECORD = (
    "what the server saw was not recorded, so its uploads cannot be attacked: learn again with `blindsight learn "
    "selective --record`."
)
_VIEW_KIND = "blindsight/server-view.1"
_UPLOADS = 120  # that are attacked at effort 1
_PERMUTATIONS = 9999
_LEAST_GROUPS = 5  # fewer cannot be exchanged often enough to tell luck
_CONFIDENCE = 0.999
_SURE = 1024.0  # logit of a class that a server wants to be sure of
_TINY = 1e-7


# --- what the server knows ---


@dataclass(frozen=True, eq=False)
class SeenUpload:
    """One upload, or the sum of several: the weights it began from, and in an audit the photos behind it.

    `later` are as many photos that the same participants trained on afterwards; None where there are none.
    """

    participants: tuple[str, ...]
    base: Vector
    update: SparseUpdate
    batch: Photos
    later: Photos | None


@dataclass(frozen=True, eq=False)
class Server:
    """What a server knows beforehand: how participants train, and public photos with their classes."""

    make_trainer: MakeTrainer
    public: Photos
    classes: int

    @cached_property
    def descent(self) -> tuple[str, float]:
        """How participants descend: the name of the optimiser, and its first learning rate."""
        made = getattr(self.make_trainer(record_noise=None), "_optimiser", None)
        return ("sgd", 1.0) if made is None else (type(made).__name__.lower(), float(made.param_groups[0]["lr"]))

    @cached_property
    def layout(self) -> ParameterLayout:
        """The parameters by name."""
        return self.make_trainer(record_noise=None).layout

    def step(self, base: Vector, photos: Photos) -> NDArray[np.float64]:
        """Return what training on these photos, as one batch, would change."""
        after = self.make_trainer(record_noise=None).train(base, photos.inputs, photos.labels, 0)
        return np.asarray(after, dtype=np.float64) - base

    def steps(self, base: Vector) -> NDArray[np.float64]:
        """Return the step of every class, (classes, parameters); zero for one without public photos."""
        steps = np.zeros((self.classes, base.size))
        for label in np.unique(self.public.labels):
            rows = np.flatnonzero(self.public.labels == label)[:BATCH]
            steps[label] = self.step(base, Photos(self.public.inputs[rows], self.public.labels[rows]))
        return steps

    def shares(self, seen: SeenUpload, steps: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the estimated shares of the classes in a batch; a class without a step gets what is left.

        Where the last layer is zero its bias counts the classes, and the bias alone is looked at.
        """
        if layers := linear_layers(self.layout):
            last, bias = _layer(self.layout, layers[-1])
            if not seen.base[last].any() and np.isin(bias, seen.update.indices).all():
                steps = np.where(np.isin(np.arange(seen.base.size), bias), steps, 0.0)
        places = seen.update.indices
        lengths = np.linalg.norm(steps, axis=1)
        telling = lengths > 1e-6 * max(lengths.max(), 1e-30)
        shares = np.zeros(self.classes)
        if places.size and telling.any():
            columns = steps[telling][:, places] / lengths.max()
            used = columns.any(axis=0)
            values = seen.update.values[used] / lengths.max()
            shares[telling] = nnls(columns[:, used].T, values)[0] / len(seen.participants)
        total = shares.sum()
        if telling.all() or total > 1:
            return shares / total if total else np.full(self.classes, 1 / self.classes)
        shares[~telling] = (1 - total) / np.count_nonzero(~telling)
        return shares


def true_shares(photos: Photos, classes: int) -> NDArray[np.float64]:
    """Return the shares of the classes in a batch."""
    return np.bincount(photos.labels, minlength=classes) / len(photos.labels)


def chosen_weights(server: Server, initial: Vector) -> Vector:
    """Return weights by which uploads tell most: a sure last layer, and thresholds if the first is linear too."""
    layers = linear_layers(server.layout)
    if not layers:
        raise InputError("weights are chosen for a linear last layer with a bias; this network has none.")
    (last, bias), (first, thresholds) = (_layer(server.layout, layer) for layer in (layers[-1], layers[0]))
    chosen = initial.copy()
    chosen[last], chosen[bias] = 0.0, 0.0
    flat = server.public.inputs.reshape(len(server.public.inputs), -1)
    if len(layers) != 2 or first[0, 0] != 0 or first.shape[1] != flat.shape[1]:
        chosen[bias[0]] = _SURE
        return chosen
    sums = np.quantile(flat.mean(axis=1), np.linspace(0, 1, len(first), endpoint=False))
    chosen[first], chosen[thresholds] = 1 / first.shape[1], -sums
    chosen[last] = np.linspace(-1, 1, len(last))[:, None] / last.shape[1]  # all hidden units count alike
    if server.descent[0] != "sgd":
        chosen[last] *= _TINY  # gradients far below what Adam and RMSProp add to their divisor
    return chosen


def _layer(layout: ParameterLayout, layer: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where the weights and the bias of a linear layer stand."""
    prefix = f"{layer}." if layer else ""
    return parameter_places(layout, f"{prefix}weight"), parameter_places(layout, f"{prefix}bias")


# --- what the server reads ---


def class_finding(
    server: Server, uploads: Sequence[SeenUpload], *, weights: str, statement: PrivacyStatement
) -> Finding:
    """Return how well the classes of every participant (of every sum, if there are only sums) are read."""
    groups: dict[Any, list[tuple[NDArray[np.float64], NDArray[np.float64]]]] = {}
    exact = 0
    for number, seen in enumerate(uploads):
        estimated, truth = server.shares(seen, server.steps(seen.base)), true_shares(seen.batch, server.classes)
        exact += bool((np.rint(estimated * len(seen.batch.labels)) == np.rint(truth * len(seen.batch.labels))).all())
        key = seen.participants if len(seen.participants) == 1 else number
        groups.setdefault(key, []).append((estimated, truth))
    pairs = np.array([np.mean(group, axis=0) for group in groups.values()])  # (groups, 2, classes)
    value, p_value = _correlation(pairs[:, 0], pairs[:, 1])
    verdict: Verdict = "leaks" if p_value <= (1 - _CONFIDENCE) else "at chance"
    if len(pairs) < _LEAST_GROUPS or not np.ptp(pairs[:, 1], axis=0).any():
        verdict = "undecided"
    who = "participant" if len(uploads[0].participants) == 1 else "sum"
    return _judged(
        Finding(
            claim=f"{weights}: uploads do not show which classes are in them",
            source="nobody",
            proven="nothing",
            measure=f"correlation of read and true class shares by {who} (chance: 0; p = {p_value:.2g} by exchange)",
            measured=Interval(value, value, value, 1.0),
            verdict=verdict,
            attack=f"least squares with public steps of every class, {len(uploads)} uploads",
            details={"p-value": p_value, "groups": len(pairs), "batches counted exactly": exact / len(uploads)},
        ),
        statement,
    )


def _correlation(estimated: NDArray[np.float64], truth: NDArray[np.float64]) -> tuple[float, float]:
    """Return the correlation after every class's mean was taken off, and its p-value by exchanging rows."""
    left, right = (rows - rows.mean(axis=0) for rows in (estimated, truth))
    length = np.linalg.norm(left) * np.linalg.norm(right)
    if not length:
        return 0.0, 1.0
    products = left @ right.T
    rng, order = science(0), np.arange(len(left))
    value = float(np.trace(products))
    chance = [products[order, rng.permutation(len(left))].sum() for _ in range(_PERMUTATIONS)]
    reached = np.count_nonzero(np.array(chance) >= value - 1e-9 * abs(value))
    return value / float(length), (1 + int(reached)) / (1 + _PERMUTATIONS)


def member_findings(
    server: Server, uploads: Sequence[SeenUpload], *, weights: str, statement: PrivacyStatement
) -> tuple[Finding, ...]:
    """Return how well photos of a batch are told from photos of the next; every photo is looked at once."""
    used: Counter[tuple[str, ...]] = Counter()
    members, others = [], []
    for seen in uploads:
        used[seen.participants] += 1
        if seen.later is None or used[seen.participants] % 2 == 0:
            continue
        steps = server.steps(seen.base)
        places = seen.update.indices
        if not places.size:
            continue
        left = seen.update.values - server.shares(seen, steps) @ steps[:, places] * len(seen.participants)
        scores = [
            np.array([_pull(server, seen.base, places, left, steps, photos, row) for row in range(len(photos.labels))])
            for photos in (seen.batch, seen.later)
        ]
        both = np.concatenate(scores)
        spread = both.std() or 1.0
        members.append((scores[0] - both.mean()) / spread)
        others.append((scores[1] - both.mean()) / spread)
    if not members:
        raise InputError("no participant made two uploads, so there is nobody to compare members with.")
    inside, outside = np.concatenate(members), np.concatenate(others)
    fprs = tuple(fpr for fpr in membership.LOW_FPRS if len(outside) >= membership.fewest_others(fpr))
    roc = membership.measure(inside, outside, fprs=fprs, confidence=_CONFIDENCE)
    result = membership.MembershipResult(f"alignment of photo and upload, {len(members)} uploads", roc)
    epsilon, delta = membership.of_exchange(statement)
    source = "nobody" if epsilon is None else "the run's statement"
    return membership.findings(result, f"{weights}: the batch", source=source, epsilon=epsilon, delta=delta)


def _pull(
    server: Server,
    base: Vector,
    places: NDArray[np.int64],
    left: NDArray[np.float64],
    steps: NDArray[np.float64],
    photos: Photos,
    row: int,
) -> float:
    one = slice(row, row + 1)
    own = (server.step(base, Photos(photos.inputs[one], photos.labels[one])) - steps[photos.labels[row]])[places]
    return float(own @ left / max(float(np.linalg.norm(own)), 1e-30))


def photo_finding(
    server: Server, uploads: Sequence[SeenUpload], *, weights: str, statement: PrivacyStatement
) -> Finding:
    """Return how many photos stand in the rows of a linear layer."""
    compared = [seen for seen in uploads if seen.later is not None]
    if not compared or not linear_layers(server.layout):
        raise InputError("photos are looked for in a linear layer with a bias, of participants with two uploads.")
    found = [[_shown(server, seen, photos) for photos in (seen.batch, seen.later)] for seen in compared if seen.later]
    own, other = (int(np.concatenate([pair[side] for pair in found]).sum()) for side in (0, 1))
    trials = sum(len(pair[0]) for pair in found)
    luck = float(binomtest(own, own + other, alternative="greater").pvalue) if own else 1.0
    return _judged(
        Finding(
            claim=f"{weights}: uploads do not show the photos behind them",
            source="nobody",
            proven="nothing",
            measure=f"photos recovered (|cosine| >= {RECOVERED}; chance: {other / trials:.2g}, p = {luck:.2g})",
            measured=rate(own, trials),
            verdict="leaks" if luck <= 1 - _CONFIDENCE else "not refuted",
            attack=f"rows of a linear layer and their differences, {len(compared)} uploads",
            details={"p-value": luck, "of the next batch": other},
        ),
        statement,
    )


def _shown(server: Server, seen: SeenUpload, photos: Photos) -> NDArray[np.bool_]:
    """Return which photos some row, or difference of rows, of the first or last linear layer points at."""
    trainer, found = server.make_trainer(record_noise=None), np.zeros(len(photos.labels), dtype=np.bool_)
    flat = photos.inputs.reshape(len(photos.inputs), -1).astype(np.float64)
    truths = [trainer.standardiser.apply(photos.inputs)] if isinstance(trainer, SoftmaxTrainer) else [flat]
    scales = server.public.inputs.reshape(len(server.public.inputs), -1)
    truths.append((flat - scales.mean(axis=0)) / (scales.std(axis=0) + 1e-6))
    sent, layers = seen.update.dense().astype(np.float64), linear_layers(server.layout)
    undone = [] if server.descent[0] == "sgd" else [undo_division(sent, *server.descent)]
    for update, layer in product((sent, *undone), {layers[0], layers[-1]}):
        rows = update[_layer(server.layout, layer)[0]]
        guesses = np.concatenate([rows, np.diff(rows, axis=0)])
        guesses = guesses[np.linalg.norm(guesses, axis=1) > 0]
        for truth in truths:
            if len(guesses) and truth.shape[1] == guesses.shape[1]:
                found |= np.abs(_unit(truth) @ _unit(guesses).T).max(axis=1) >= RECOVERED
    return found


def _unit(rows: NDArray[Any]) -> NDArray[np.float64]:
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30), dtype=np.float64)


def _judged(finding: Finding, statement: PrivacyStatement) -> Finding:
    """Say what the run's statement says: an epsilon allows some of it, and the rest is nobody's promise."""
    if statement.guarantee != "differential privacy":
        return finding
    allowed = f"epsilon = {statement.epsilon:.3g} per {statement.unit}, which allows some"
    verdict: Verdict = "as stated" if finding.verdict == "leaks" else finding.verdict
    return replace(finding, source="the run's statement", proven=allowed, verdict=verdict)


# --- a server that chooses the weights ---


class ChoosingServer(ParameterServer):
    """Hands out the same weights to everyone, whatever is uploaded."""

    def _add(self, addition: Any) -> None:
        nothing = SparseUpdate(self.terms.dimension, np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32))
        super()._add(replace(addition, update=nothing, sums=nothing.values))


def play(
    server: Server,
    photos: Mapping[str, Photos],
    sharing: Sharing,
    weights: Vector,
    *,
    batch: int = BATCH,
    encrypted: bool = False,
    uploads: int = _UPLOADS,
    random_state: int = 0,
) -> tuple[SeenUpload, ...]:
    """Let participants train on chosen weights and share as they always do; return what the server saw.

    With `encrypted` it sees sums of all, added up by masks: sums are the same in every scheme.
    """
    noise = sharing.noise if isinstance(sharing.noise, RecordGaussian) else None
    messages: list[bytes] = []
    terms = SelectiveTerms.of(
        server.layout, run="audit", participants=tuple(photos), batch=batch, together=LEAST_TOGETHER if encrypted else 1
    )
    choosing = ChoosingServer(terms, weights, record=messages.append)
    joined = []
    for place, (name, own) in enumerate(photos.items()):
        rng = np.random.default_rng([random_state, place])
        joined.append(Participant(name, terms, server.make_trainer(record_noise=noise), sharing, random_state=rng))
        joined[-1].gather(own.inputs, own.labels)
    if encrypted:
        session = open_session("masks", members=tuple(photos), dimension=terms.dimension, minimum=terms.together)
        turns = EncryptedTurns(choosing, joined, session)
        for _ in range(max(1, uploads // len(joined))):
            try:
                turns.turn()
            except TooFewError:
                break
    else:
        for number, _ in enumerate(simulate(choosing, joined), start=1):
            if number >= uploads:
                break
    return seen_in(messages, weights, {name: (own, batch) for name, own in photos.items()}, learns=False)


def seen_in(
    messages: Iterable[bytes],
    initial: Vector,
    photos: Mapping[str, tuple[Photos, int]],
    *,
    learns: bool = True,
    most: int | None = None,
) -> tuple[SeenUpload, ...]:
    """Return the uploads in a server's messages, with the weights before them and the photos behind them.

    `photos` are everybody's in the order of training, and how many make a batch. With `most`, only so many of the
    uploads, spread evenly, are returned.
    """
    received = [decode(message, Upload, Total, Request, Answer, Receipt) for message in messages]
    uploads = [message for message in received if isinstance(message, Upload | Total)]
    wanted = {*range(len(uploads) if most is None else min(most, len(uploads)))}
    bases, made = [message.base if isinstance(message, Upload) else None for message in uploads], Counter[str]()
    needed = {bases[number] for number in wanted} - {None}
    parameters, version, kept = initial.copy(), 0, {0: initial}
    seen = []
    for number, message in enumerate(uploads):
        update = decode_sparse(message.body, initial.size, max_values=initial.size)
        names = (message.participant,) if isinstance(message, Upload) else message.participants
        if number in wanted:
            base = kept[message.base] if isinstance(message, Upload) else parameters.copy()
            batches = [_batch(*photos[name], made[name]) for name in names]
            later = [_batch(*photos[name], made[name] + 1) for name in names]
            whole = all(len(part.labels) == photos[name][1] for part, name in zip(later, names, strict=True))
            seen.append(SeenUpload(names, base, update, _joined(batches), _joined(later) if whole else None))
        made.update(names)
        if not np.isfinite(update.values).all():
            continue  # which the server refused
        version += 1
        if learns:
            parameters[update.indices] += update.values
        if version in needed:
            kept[version] = parameters.copy()
    return tuple(seen)


def _batch(photos: Photos, size: int, number: int) -> Photos:
    rows = slice(number * size, (number + 1) * size)
    return Photos(photos.inputs[rows], photos.labels[rows])


def _joined(parts: Sequence[Photos]) -> Photos:
    return Photos(np.concatenate([part.inputs for part in parts]), np.concatenate([part.labels for part in parts]))


# --- a run that lies in a folder ---


@dataclass(frozen=True, eq=False)
class SelectiveRun:
    """What `learn selective` wrote: how it was asked, its statement and, if recorded, what its server received."""

    about: dict[str, Any]
    statement: PrivacyStatement
    messages: tuple[bytes, ...] | None
    given: Dataset | None = None
    progress: Progress = field(default=silent, repr=False)

    @classmethod
    def load(cls, folder: Path, *, data: Dataset | None = None, progress: Progress = silent) -> Self:
        """Read a run; `data` stand for its collection where that cannot be read from where it was."""
        about, view = read_json(folder / ABOUT_SELECTIVE, "Learn again."), folder / VIEW
        if about.get("schema") != SCHEMA or about.get("version") != VERSION:
            raise CorruptFileError(
                f"{folder / ABOUT_SELECTIVE} is of {about.get('schema')!r}, version {about.get('version')}; this "
                f"Blindsight reads {SCHEMA!r}, version {VERSION}. Learn again, or audit it by the one that wrote it."
            )
        check_fields(
            folder / ABOUT_SELECTIVE,
            about,
            **dict.fromkeys(("training", "plan", "sharing"), dict),
            **dict.fromkeys(("parameters", "seed", "components"), int),
            data=str,
            features=str,
            path=str | None,
            count=int | None,
            initial=float,
        )
        check_fields(folder / ABOUT_SELECTIVE, about["plan"], participants=int, days=int, initial=float, classes=list)
        statement = read_statement(folder / "statement.json")
        return cls(about, statement, load_view(view) if view.exists() else None, data, progress)

    @cached_property
    def options(self) -> SharingOptions:
        """How was shared."""
        return SharingOptions(**{**self.about["sharing"], "epsilons": ()})

    @cached_property
    def study(self) -> PhotoStudy:
        """The photos of everybody, checked to be those of the run."""
        about, dataset = self.about, self.given
        if dataset is None:
            path = None if about["path"] is None else Path(about["path"])
            asked = {"path": path, "count": about["count"], "random_state": about["seed"], "progress": self.progress}
            with moved_pictures():
                dataset = load(about["data"], **asked)
        study = PhotoStudy.prepare(
            dataset,
            backbone(about["features"], components=about["components"], random_state=about["seed"]),
            Training(**about["training"]),
            **about["plan"],
            random_state=about["seed"],
            cache=cache_folder(),
            progress=self.progress,
        )
        if study.dimension != about["parameters"] or not math.isclose(_length(study), about["initial"], rel_tol=1e-3):
            raise DataError(f"{dataset.name} is not what this run was learned from: it has changed.")
        return study

    @cached_property
    def photos(self) -> dict[str, Photos]:
        """Everybody's photos, in the order in which they were trained on."""
        study = self.study
        taken = {name: study.schedule.taken_by(name) for name in study.schedule.participants}
        return {name: Photos(study.inputs[rows], study.labels[rows]) for name, rows in taken.items()}

    @cached_property
    def server(self) -> Server:
        """What its server knew."""
        study, public = self.study, self.study.schedule.initial
        return Server(study.make_trainer, Photos(study.inputs[public], study.labels[public]), len(study.answers))

    def seen(self, effort: float) -> tuple[SeenUpload, ...]:
        """Return some of the recorded uploads, in pairs of neighbours."""
        assert self.messages is not None
        batches = {name: (own, BATCH) for name, own in self.photos.items()}
        return seen_in(self.messages, self.study.initial, batches, most=max(8, round(_UPLOADS * effort)))

    def chosen(self, effort: float) -> tuple[SeenUpload, ...]:
        """Return what the server would have seen had it chosen the weights."""
        sharing = self.options.sharing(self.study.schedule, steps=self.study.steps)
        return play(
            self.server,
            {name: own for name, own in self.photos.items() if len(own.labels) >= BATCH},
            sharing,
            chosen_weights(self.server, self.study.initial),
            encrypted=self.options.scheme is not None,
            uploads=max(8, round(_UPLOADS * effort)),
            random_state=self.about["seed"],
        )


def about_run(study: PhotoStudy, **asked: Any) -> dict[str, Any]:
    """Return how a run was asked, as plain data for `ABOUT_SELECTIVE`; its public first model tells its data later."""
    return {"schema": SCHEMA, "version": VERSION, "parameters": study.dimension, "initial": _length(study)} | asked


def _length(study: PhotoStudy) -> float:
    return float(np.linalg.norm(study.initial.astype(np.float64)))


def save_view(path: AnyPath, messages: Sequence[bytes]) -> None:
    """Write what a server received, for its owner alone."""
    whole = np.frombuffer(b"".join(messages), dtype=np.uint8)
    lengths = np.array([len(message) for message in messages], dtype=np.int64)
    write_arrays(path, _VIEW_KIND, {}, {"messages": whole, "lengths": lengths}, private=True)


def load_view(path: AnyPath) -> tuple[bytes, ...]:
    """Read what `save_view` wrote."""
    _, arrays = read_arrays(path, _VIEW_KIND)
    whole, ends = arrays["messages"].tobytes(), np.cumsum(arrays["lengths"]).tolist()
    return tuple(whole[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True))


def plan_selective(
    folder: Path, *, random_state: int, data: Dataset | None = None, progress: Progress = silent
) -> Plan:
    """Return the checks of a selective run; one without recorded views is told how to get them."""
    run = SelectiveRun.load(folder, data=data, progress=progress)
    name = f"selective sharing of {run.about['plan']['participants']} participants of {run.about['data']}"
    recorded, chosen = "the weights as learned", "weights that the server chose"
    attacks: tuple[tuple[str, Callable[..., Any]], ...] = (
        ("classes", class_finding),
        ("members", member_findings),
        ("photos", photo_finding),
    )

    def check(kind: str, attack: Callable[..., Any], weights: str) -> Check:
        def tried(effort: float) -> Evidence:
            seen = run.seen(effort) if weights == recorded else run.chosen(effort)
            found = attack(run.server, seen, weights=weights, statement=run.statement)
            return Evidence(found if isinstance(found, tuple) else (found,))

        return Check(f"{kind} from uploads, {weights}", 5, tried)

    checks = [check(*attack, weights) for weights in (recorded, chosen) for attack in attacks]
    if run.messages is None:
        checks = [Check(f"uploads, {recorded}", 0, _unrecorded), *checks[len(attacks) :]]
    return Plan(name, tuple(checks), statement=run.statement)


def _unrecorded(effort: float) -> Evidence:
    raise InputError(HOW_TO_RECORD)
