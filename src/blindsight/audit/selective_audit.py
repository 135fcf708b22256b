"""The audit of selective sharing: what a parameter server reads in uploads, and what if it chooses the weights.

The server knows the weights it handed out, the uploads, how participants train, and the public photos of day 0.

*Classes.* A step of class c is imitated with public photos of c (`Server.steps`). An upload is a mixture of such steps,
and its shares, found by least squares without negative ones, are the shares of the classes in the batch (labels from
gradients: Zhao et al., iDLG, 2020; Yin et al. 2021). The figure is the correlation, over participants and classes, of
estimated and true shares, both less the mean of the class: it is 0 if nothing tells who has what. Its p-value is that
of exchanging participants, which is exact: (1 + permutations with as large a correlation) / (1 + permutations). Fewer
than five cannot be told from luck; there, as of sums, it is uploads of the same participants that are exchanged: a coin
has put their photos in order.

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
what is added to their divisor: then steps are gradients again (`audit.gradients`). No encrypted sum is in the way of
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
from blindsight.audit.gradients import linear_layers, parameter_places, undo_division
from blindsight.audit.recovery import RECOVERED
from blindsight.crypto.wire import decode
from blindsight.data import load
from blindsight.data.dataset import Dataset
from blindsight.data.sites import Sites, divide
from blindsight.errors import CorruptFileError, DataError, InputError
from blindsight.extras import to_batch
from blindsight.files import AnyPath, cache_folder, read_arrays, write_arrays
from blindsight.progress import Progress, silent
from blindsight.rng import science
from blindsight.selective.codec import ParameterLayout, SparseUpdate, Vector, decode_sparse
from blindsight.selective.estimator import SelectiveClassifier
from blindsight.selective.methods import MeteredServer, SelectiveMethod
from blindsight.selective.networks import module_from
from blindsight.selective.protection import Sharing
from blindsight.selective.study import BATCH, STATED_DELTA, PhotoStudy, SharingOptions, Training, backbone
from blindsight.selective.terms import Answer, Receipt, Request, Total, Upload
from blindsight.selective.timeline import MakeTrainer, Photos, PreparedRun, Setting
from blindsight.selective.trainers import SoftmaxTrainer, Trainer
from blindsight.statement import PrivacyStatement

ABOUT_SELECTIVE, VIEW = "selective.json", "server-view.npz"
SCHEMA, VERSION = "blindsight/selective-run", 1
HOW_TO_RECORD = (
    "what the server saw was not recorded, so its uploads cannot be attacked: learn again with `blindsight learn {} "
    "--record`."
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

    `batch` are the photos that were trained on for it, in all its local steps; what earlier uploads held back may be
    in it, too. `later` are those that the same participants trained on next. It is None where there are none, and
    where any of both was trained on before (several passes): they would differ in more than their order.
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
    def _trainer(self) -> Trainer:
        return self.make_trainer(record_noise=None)

    @cached_property
    def descent(self) -> tuple[str, float, int]:
        """How participants descend: the name of the optimiser, its first learning rate, and how many local steps."""
        made, steps = getattr(self._trainer, "_optimiser", None), self._trainer.epochs
        return ("sgd", 1.0, steps) if made is None else (type(made).__name__.lower(), made.param_groups[0]["lr"], steps)

    @property
    def layout(self) -> ParameterLayout:
        """The parameters by name."""
        return self._trainer.layout

    def flat(self, photos: Photos) -> NDArray[np.float64]:
        """Return photos as rows of the numbers that the model takes."""
        if isinstance(self._trainer, SoftmaxTrainer):
            return self._trainer.standardiser.apply(photos.inputs).astype(np.float64)
        rows: NDArray[np.float64] = to_batch(photos.inputs, "cpu").flatten(1).double().numpy()
        return rows

    def step(self, base: Vector, photos: Photos) -> NDArray[np.float64]:
        """Return what training on these photos, as one batch, would change."""
        after = self.make_trainer(record_noise=None).train(base, photos.inputs, photos.labels, 0)
        return np.asarray(after, dtype=np.float64) - base

    def steps(self, base: Vector) -> NDArray[np.float64]:
        """Return the step of every class, (classes, parameters); zero for one without public photos."""
        steps = np.zeros((self.classes, base.size))
        for label in np.unique(self.public.labels):
            steps[label] = self.step(base, self.public.take(np.flatnonzero(self.public.labels == label)[:BATCH]))
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
    flat = server.flat(server.public)
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
    """Return how well the classes of every participant are read; of few, or of sums, those of every upload."""
    pairs = np.array(
        [(server.shares(seen, server.steps(seen.base)), true_shares(seen.batch, server.classes)) for seen in uploads]
    )  # (uploads, 2, classes)
    sizes = np.array([len(seen.batch.labels) for seen in uploads])[:, None]
    exact = (np.rint(pairs[:, 0] * sizes) == np.rint(pairs[:, 1] * sizes)).all(axis=1).mean()
    names = [seen.participants for seen in uploads]
    found, owner = np.unique(["\n".join(name) for name in names], return_inverse=True)
    if by_participant := len(found) >= _LEAST_GROUPS and {len(name) for name in names} == {1}:
        pairs = np.array([pairs[owner == place].mean(axis=0) for place in range(len(found))])
        owner = np.zeros(len(found), dtype=np.int64)
    else:
        new = [seen.later is not None for seen in uploads]
        pairs, owner = pairs[new], owner[new]
    value, p_value = _correlation(pairs[:, 0], pairs[:, 1], owner)
    verdict: Verdict = "leaks" if p_value <= (1 - _CONFIDENCE) else "at chance"
    if len(pairs) - len(np.unique(owner)) < _LEAST_GROUPS - 1 or not np.ptp(pairs[:, 1], axis=0).any():
        verdict = "undecided"
    who = "participant" if by_participant else "upload"
    return _judged(
        Finding(
            claim=f"{weights}: uploads do not show which classes are in them",
            source="nobody",
            proven="nothing",
            measure=f"correlation of read and true class shares by {who} (chance: 0; p = {p_value:.2g} by exchange)",
            measured=Interval(value, value, value, 1.0),
            verdict=verdict,
            attack=f"least squares with public steps of every class, {len(uploads)} uploads",
            details={"p-value": p_value, "groups": len(pairs), "batches counted exactly": float(exact)},
        ),
        statement,
    )


def _correlation(
    estimated: NDArray[np.float64], truth: NDArray[np.float64], owner: NDArray[np.int64]
) -> tuple[float, float]:
    """Return the correlation, less every owner's mean of each class, and its p-value by exchanging an owner's rows."""
    means = np.equal.outer(owner, owner) / np.maximum(np.bincount(owner)[owner, None], 1)
    left, right = (rows - means @ rows for rows in (estimated, truth))
    length = np.linalg.norm(left) * np.linalg.norm(right)
    if not length:
        return 0.0, 1.0
    products = left @ right.T
    rng, order = science(0), np.argsort(owner, kind="stable")
    value = float(np.trace(products))
    chance = [products[order, np.lexsort((rng.random(len(owner)), owner))].sum() for _ in range(_PERMUTATIONS)]
    reached = np.count_nonzero(np.array(chance) >= value - 1e-9 * abs(value))
    return value / float(length), (1 + int(reached)) / (1 + _PERMUTATIONS)


def member_findings(
    server: Server, uploads: Sequence[SeenUpload], *, weights: str, statement: PrivacyStatement
) -> tuple[Finding, ...]:
    """Return how well photos of a batch are told from photos of the next; every photo is looked at once."""
    used: Counter[str] = Counter()
    members, others = [], []
    for seen in uploads:
        used.update(seen.participants)
        if seen.later is None or any(used[name] % 2 == 0 for name in seen.participants):
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
    own = (server.step(base, photos.take(slice(row, row + 1))) - steps[photos.labels[row]])[places]
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
    found = np.zeros(len(photos.labels), dtype=np.bool_)
    flat, scales = server.flat(photos), server.flat(server.public)
    truths = flat, (flat - scales.mean(axis=0)) / (scales.std(axis=0) + 1e-6)
    sent, layers = seen.update.dense().astype(np.float64), linear_layers(server.layout)
    undone = [] if server.descent[0] == "sgd" else [undo_division(sent, *server.descent, weights=seen.base)]
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


class ChoosingServer(MeteredServer):
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
    messages: list[bytes] = []
    scheme = "masks" if encrypted else None
    method = SelectiveMethod("audit", sharing, encrypted=scheme, record=messages.append, server=ChoosingServer)
    setting = Setting(tuple(photos), weights, server.make_trainer, batch, STATED_DELTA, random_state)
    each = slice(batch * math.ceil(uploads / len(photos)))
    method.begin(setting).day({name: own.take(each) for name, own in photos.items()})
    orders = {name: np.arange(len(own.labels)) for name, own in photos.items()}
    ready = PreparedRun(setting, sharing, server.classes, server.public, photos, [orders])
    return seen_in(messages, ready, learns=False)


def seen_in(
    messages: Iterable[bytes], ready: PreparedRun, *, learns: bool = True, most: int | None = None
) -> tuple[SeenUpload, ...]:
    """Return the uploads in a server's messages (the first, if there is a `most`), with the weights before them."""
    initial = ready.setting.initial
    received = [decode(message, Upload, Total, Request, Answer, Receipt) for message in messages]
    uploads = [message for message in received if isinstance(message, Upload | Total)]
    needed = {message.base for message in uploads[:most] if isinstance(message, Upload)}
    parameters, version, kept = initial.copy(), 0, {0: initial}
    seen, made = [], Counter[str]()
    for message in uploads[:most]:
        update = decode_sparse(message.body, initial.size, max_values=initial.size)
        names = (message.participant,) if isinstance(message, Upload) else message.participants
        base = kept[message.base] if isinstance(message, Upload) else parameters.copy()
        batch, later = (_joined([ready.behind(name, made[name] + ahead) for name in names]) for ahead in (0, 1))
        compared = all(ready.all_new(name, made[name] + 2) for name in names)
        seen.append(SeenUpload(names, base, update, batch, later if compared else None))
        made.update(names)
        if not np.isfinite(update.values).all():
            continue  # which the server refused
        version += 1
        if learns:
            parameters[update.indices] += update.values
        if version in needed:
            kept[version] = parameters.copy() if learns else initial
    return tuple(seen)


def _joined(parts: Sequence[Photos]) -> Photos:
    return Photos(np.concatenate([part.inputs for part in parts]), np.concatenate([part.labels for part in parts]))


# --- a run that lies in a folder ---


@dataclass(frozen=True, eq=False)
class SelectiveRun:
    """What `learn selective` or `learn network` wrote: how it was asked, its statement and what was recorded."""

    about: dict[str, Any]
    statement: PrivacyStatement
    recorded: "Recording | None"
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
        if data is not None and "sites" in about:
            raise InputError(
                "this run's owners had collections of their own. It is audited where these lie: no --data."
            )
        _check(folder / ABOUT_SELECTIVE, about)
        statement = read_statement(folder / "statement.json")
        return cls(about, statement, Recording.load(view) if view.exists() else None, data, progress)

    @property
    def name(self) -> str:
        """The run in a few words."""
        count = self.about["owners"] if self.command == "network" else self.about["plan"]["participants"]
        return f"selective sharing of {count} participants of {self.about['data']}"

    @property
    def command(self) -> str:
        """What of `blindsight learn` wrote it."""
        return "network" if "network" in self.about else "selective"

    @cached_property
    def ready(self) -> PreparedRun:
        """The run before its first upload, checked to be of the same pictures."""
        ready = self._of_network() if self.command == "network" else self._of_study()
        size, length = ready.setting.initial.size, length_of(ready.setting.initial)
        module = f"the module of {self.about['model']}" if self.command == "network" else "the model"
        if size != self.about["parameters"]:
            raise DataError(
                f"{module} is not what this run learned: it has {size:,} parameters, and then it had "
                f"{self.about['parameters']:,}."
            )
        if not math.isclose(length, self.about["initial"], rel_tol=1e-3):
            raise DataError(
                f"{self.about['data']} is not what this run was learned from: it, or {module}, has changed."
            )
        return ready

    def _of_study(self) -> PreparedRun:
        about = self.about
        study = PhotoStudy.prepare(
            self._dataset(),
            backbone(about["features"], components=about["components"], random_state=about["seed"]),
            Training(**about["training"]),
            **about["plan"],
            random_state=about["seed"],
            cache=cache_folder(),
            progress=self.progress,
        )
        return study.prepared(SharingOptions(**{**about["sharing"], "epsilons": ()}))

    def _of_network(self) -> PreparedRun:
        about, seed = self.about, self.about["seed"]
        module = module_from(about["model"], len(about["network"]["classes"]), random_state=seed)
        if "sites" in about:
            sites = Sites(**about["sites"])
            dataset, division = sites.read((), side=about["side"], random_state=seed, progress=self.progress)
        else:
            dataset = self._dataset()
            division = divide(dataset, owners=about["owners"], random_state=seed)
        owners = {name: dataset[rows] for name, rows in division.by_owner.items()}
        return SelectiveClassifier(module, **about["network"]).prepare(owners, public=dataset[division.public])

    def _dataset(self) -> Dataset:
        if self.given is not None:
            return self.given
        about = self.about
        path = None if about["path"] is None else Path(about["path"])
        asked = {"path": path, "count": about["count"], "random_state": about["seed"], "progress": self.progress}
        with moved_pictures():
            return load(str(about["data"]), **asked)

    @cached_property
    def server(self) -> Server:
        """What its server knew."""
        assert self.ready.public is not None
        return Server(self.ready.setting.make_trainer, self.ready.public, self.ready.classes)

    def seen(self, effort: float) -> tuple[SeenUpload, ...]:
        """Return the first of the recorded uploads."""
        if self.recorded is None:
            raise InputError(HOW_TO_RECORD.format(self.command))
        self.recorded.check(self.ready.photos)
        return seen_in(self.recorded.messages, self.ready, most=self._attacked(effort))

    def chosen(self, effort: float) -> tuple[SeenUpload, ...]:
        """Return what the server would have seen had it chosen the weights, of all who have a batch."""
        ready, (orders, *_) = self.ready, self.ready.passes
        return play(
            self.server,
            {name: own.take(orders[name]) for name, own in ready.photos.items() if ready.all_new(name, 1)},
            ready.sharing,
            chosen_weights(self.server, ready.setting.initial),
            batch=ready.setting.batch,
            encrypted=self.about[{"network": "network", "selective": "sharing"}[self.command]]["scheme"] is not None,
            uploads=self._attacked(effort),
            random_state=self.about["seed"],
        )

    def _attacked(self, effort: float) -> int:
        """Return how many uploads are attacked: fewer, if each has many photos."""
        return max(8, round(_UPLOADS * effort * min(1.0, BATCH / self.ready.setting.batch)))


def _check(path: Path, about: Mapping[str, Any]) -> None:
    """Refuse a description that lacks something."""
    check_fields(path, about, data=str, seed=int, parameters=int, initial=float)
    if "network" in about:
        check_fields(path, about, network=dict, model=str, owners=int)
        check_fields(path, about["network"], classes=list, scheme=str | None)
    else:
        check_fields(path, about, **dict.fromkeys(("training", "plan", "sharing"), dict), components=int, features=str)
        check_fields(path, about["plan"], participants=int, days=int, initial=float, classes=list)
    if "sites" in about:
        check_fields(path, about, sites=dict, side=int)
    else:
        check_fields(path, about, path=str | None, count=int | None)


def about_run(initial: Vector, **asked: Any) -> dict[str, Any]:
    """Return how a run was asked, as plain data for `ABOUT_SELECTIVE`; its public first model tells its data later."""
    return {"schema": SCHEMA, "version": VERSION, "parameters": initial.size, "initial": length_of(initial)} | asked


def length_of(vector: Vector) -> float:
    return float(np.linalg.norm(vector.astype(np.float64)))


@dataclass(frozen=True, eq=False)
class Recording:
    """What a server received, and a mark of every photo by participant, by which to know them again."""

    messages: tuple[bytes, ...]
    marks: dict[str, NDArray[np.float64]]

    @classmethod
    def of(cls, messages: Iterable[bytes], photos: Mapping[str, Photos]) -> Self:
        return cls(tuple(messages), {name: _marks(own) for name, own in photos.items()})

    def check(self, photos: Mapping[str, Photos]) -> None:
        """Refuse other photos than those of the recording."""
        if self.marks and self.marks.keys() != photos.keys():
            raise DataError(
                f"what was recorded is another run's: of {', '.join(self.marks)}. Learn again with --record."
            )
        for name, marks in self.marks.items():
            now = _marks(photos[name])
            if now.shape != marks.shape or not np.allclose(now, marks, rtol=1e-3):
                raise DataError(f"the pictures of {name} are not those of the recording: they have changed.")

    def save(self, path: AnyPath) -> None:
        """Write it for its owner alone."""
        whole = np.frombuffer(b"".join(self.messages), dtype=np.uint8)
        lengths = np.array([len(message) for message in self.messages], dtype=np.int64)
        marks = {f"marks {place}": marks for place, marks in enumerate(self.marks.values())}
        arrays: dict[str, NDArray[Any]] = {"messages": whole, "lengths": lengths, **marks}
        write_arrays(path, _VIEW_KIND, {"participants": list(self.marks)}, arrays, private=True)

    @classmethod
    def load(cls, path: AnyPath) -> Self:
        document, arrays = read_arrays(path, _VIEW_KIND)
        whole, ends = arrays["messages"].tobytes(), np.cumsum(arrays["lengths"]).tolist()
        messages = tuple(whole[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True))
        return cls(messages, {name: arrays[f"marks {i}"] for i, name in enumerate(document.get("participants", ()))})


def _marks(photos: Photos) -> NDArray[np.float64]:
    """Return the class and the length of every photo, which rounding and the signs of components leave as they are."""
    flat = photos.inputs.reshape(len(photos.inputs), -1)
    return np.column_stack([photos.labels, np.sqrt(np.einsum("ij,ij->i", flat, flat, dtype=np.float64))])


def plan_selective(
    folder: Path, *, random_state: int, data: Dataset | None = None, progress: Progress = silent
) -> Plan:
    """Return the checks of a run; those of uploads that were not recorded say how to get them."""
    run = SelectiveRun.load(folder, data=data, progress=progress)
    attacks: dict[str, Callable[..., Any]] = {
        "classes": class_finding,
        "members": member_findings,
        "photos": photo_finding,
    }
    handed_out = {"the weights as learned": run.seen, "weights that the server chose": run.chosen}

    def check(kind: str, weights: str) -> Check:
        def tried(effort: float) -> Evidence:
            seen = handed_out[weights](effort)
            found = attacks[kind](run.server, seen, weights=weights, statement=run.statement)
            return Evidence(found if isinstance(found, tuple) else (found,))

        return Check(f"{kind} from uploads, {weights}", 5, tried)

    checks = tuple(check(kind, weights) for weights in handed_out for kind in attacks)
    return Plan(run.name, checks, statement=run.statement)
