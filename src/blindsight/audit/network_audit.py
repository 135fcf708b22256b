"""The audit of a network that several members taught: what the server reads in sums, also if it chooses the weights.

The server knows the shared weights of every round, what the members sent (their sum, or single uploads where nothing
hides them), how members train, and public pictures. The attacks take a `SeenUpload`: the sum of a round, or in
`papers.selective.uploads` one upload of one participant.

*Classes.* A step of class c is imitated with public photos of c (`Server.steps`). An upload is a mixture of such steps,
and its shares, found by least squares without negative ones, are the shares of the classes in the batch (labels from
gradients: Zhao et al., iDLG, 2020; Yin et al. 2021). The figure is the correlation, over participants and classes, of
estimated and true shares, both less the mean of the class: it is 0 if nothing tells who has what. Its p-value is that
of exchanging participants, which is exact: (1 + permutations with as large a correlation) / (1 + permutations). Fewer
than five cannot be told from luck; there it is uploads of the same participants that are exchanged: a coin has put
their photos in order.

*Members.* A photo of the batch pulls the upload its own way: the score of a photo is the inner product of its step,
less that of its class, with what the classes leave unexplained of the upload (gradient alignment: Nasr, Shokri and
Houmansadr, S&P 2019). Others were held out, or trained on next: a coin decided that, so members and others differ in
nothing else. Scores are standardised upload by upload. Of the model itself, members fit better than others
(`membership.loss_threshold`).

*Photos.* Rows of a linear layer's change and their differences are compared with the photos of the batch, and with
the others for chance; whether more of the batch are shown is decided by a sign test. Of Adam and RMSProp division by
the gradient's own size is undone first, as far as a first step lets one.

*Chosen weights* (`chosen_weights`). A last layer of zeros whose bias is sure of one class: then the row of every other
class is the sum of its photos' inputs and the bias counts them (the class attack of Wen et al., "Fishing for user
data", 2022). In a network that begins with a linear layer and ReLU, equal rows with biases at the quantiles of their
sum switch each photo on from one row on, so that differences of rows are single photos (Fowl et al., "Robbing the Fed",
2022). Where members descend by Adam or RMSProp the last layer is made so small that gradients hardly count beside
what is added to their divisor: then steps are gradients again (`audit.gradients`). No sum is in the way of
either: the sum of all uploads has the same rows. Noise with a proof is: epsilon holds whatever the weights are.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
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
from blindsight.audit.subject import RUNS, audit_subjects, planned_noise
from blindsight.data import load
from blindsight.data.dataset import Dataset
from blindsight.data.sites import Sites, divide
from blindsight.errors import CorruptFileError, DataError, InputError
from blindsight.extras import to_batch
from blindsight.files import AnyPath, read_arrays, write_arrays
from blindsight.learn.modules import ParameterLayout, Vector, module_from
from blindsight.learn.network import FederatedNetwork, NetworkLearner, NetworkModel, NetworkTask, SeenRounds
from blindsight.learn.protection import RecordGaussian
from blindsight.learn.training import Batch, NetworkTrainer
from blindsight.progress import Progress, silent
from blindsight.rng import science
from blindsight.rounds import Memory, Privacy, Sums
from blindsight.statement import PrivacyStatement

ABOUT_NETWORK, VIEW = "network.json", "server-view.npz"
SCHEMA, VERSION = "blindsight/network-run", 1
HOW_TO_RECORD = (
    "what the server saw was not recorded, so its sums cannot be attacked: learn again with `blindsight learn network "
    "--record`."
)
_VIEW_KIND = "blindsight/server-view.2"
_BATCH = 32  # public photos by which a step of a class is imitated
_PICTURES = 300  # of members, and of others, that are looked at with effort 1
_PERMUTATIONS = 9999
_LEAST_GROUPS = 5  # fewer cannot be exchanged often enough to tell luck
_CONFIDENCE = 0.999
_SURE = 1024.0  # logit of a class that a server wants to be sure of
_TINY = 1e-7


# --- what the server knows ---


MakeTrainer = Callable[..., Any]
"""Makes a trainer of its own for each participant (`learn.training.NetworkTrainer`, for one), given `record_noise`."""


@dataclass(frozen=True, eq=False)
class SeenUpload:
    """One upload, or the sum of several: the weights it began from, and in an audit the photos behind it.

    `values` stand at `places` of a vector of zeros. `batch` are the photos that were trained on for it, in all its
    local steps. `others` are photos that a coin might have put in their place; None where there are none.
    """

    participants: tuple[str, ...]
    base: Vector
    places: NDArray[np.int64]
    values: NDArray[np.floating[Any]]
    batch: Batch
    others: Batch | None

    def dense(self) -> NDArray[np.float64]:
        """Return the whole vector."""
        vector = np.zeros(self.base.size)
        vector[self.places] = self.values
        return vector


@dataclass(frozen=True, eq=False)
class Server:
    """What a server knows beforehand: how participants train, and public photos with their classes."""

    make_trainer: MakeTrainer
    public: Batch
    classes: int

    @cached_property
    def _trainer(self) -> Any:
        return self.make_trainer(record_noise=None)

    @cached_property
    def descent(self) -> tuple[str, float, int]:
        """How participants descend: the name of the optimiser, its first learning rate, and how many local steps."""
        made, steps = getattr(self._trainer, "_optimiser", None), self._trainer.epochs
        return ("sgd", 1.0, steps) if made is None else (type(made).__name__.lower(), made.param_groups[0]["lr"], steps)

    @property
    def layout(self) -> ParameterLayout:
        """The parameters by name."""
        layout: ParameterLayout = self._trainer.layout
        return layout

    def flat(self, photos: Batch) -> NDArray[np.float64]:
        """Return photos as rows of the numbers that the model takes."""
        if (standardiser := getattr(self._trainer, "standardiser", None)) is not None:
            return np.asarray(standardiser.apply(photos.inputs), dtype=np.float64)
        rows: NDArray[np.float64] = to_batch(photos.inputs, "cpu").flatten(1).double().numpy()
        return rows

    def step(self, base: Vector, photos: Batch) -> NDArray[np.float64]:
        """Return what training on these photos, as one batch, would change."""
        after = self.make_trainer(record_noise=None).train(base, photos.inputs, photos.labels, 0)
        return np.asarray(after, dtype=np.float64) - base

    def steps(self, base: Vector) -> NDArray[np.float64]:
        """Return the step of every class, (classes, parameters); zero for one without public photos."""
        steps = np.zeros((self.classes, base.size))
        for label in np.unique(self.public.labels):
            steps[label] = self.step(base, _taken(self.public, np.flatnonzero(self.public.labels == label)[:_BATCH]))
        return steps

    def shares(self, seen: SeenUpload, steps: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the estimated shares of the classes in a batch; a class without a step gets what is left.

        Where the last layer is zero its bias counts the classes, and the bias alone is looked at.
        """
        if layers := linear_layers(self.layout):
            last, bias = _layer(self.layout, layers[-1])
            if not seen.base[last].any() and np.isin(bias, seen.places).all():
                steps = np.where(np.isin(np.arange(seen.base.size), bias), steps, 0.0)
        places = seen.places
        lengths = np.linalg.norm(steps, axis=1)
        telling = lengths > 1e-6 * max(lengths.max(), 1e-30)
        shares = np.zeros(self.classes)
        if places.size and telling.any():
            columns = steps[telling][:, places] / lengths.max()
            used = columns.any(axis=0)
            values = seen.values[used] / lengths.max()
            shares[telling] = nnls(columns[:, used].T, values)[0] / len(seen.participants)
        total = shares.sum()
        if telling.all() or total > 1:
            return shares / total if total else np.full(self.classes, 1 / self.classes)
        shares[~telling] = (1 - total) / np.count_nonzero(~telling)
        return shares


def _taken(photos: Batch, rows: NDArray[np.int64] | slice) -> Batch:
    return Batch(photos.inputs[rows], photos.labels[rows])


def true_shares(photos: Batch, classes: int) -> NDArray[np.float64]:
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
        new = [seen.others is not None for seen in uploads]
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
    """Return how well photos of a batch are told from others; every photo is looked at once."""
    used: Counter[str] = Counter()
    members, others = [], []
    for seen in uploads:
        used.update(seen.participants)
        if seen.others is None or any(used[name] % 2 == 0 for name in seen.participants):
            continue
        steps = server.steps(seen.base)
        places = seen.places
        if not places.size:
            continue
        left = seen.values - server.shares(seen, steps) @ steps[:, places] * len(seen.participants)
        scores = [
            np.array([_pull(server, seen.base, places, left, steps, photos, row) for row in range(len(photos.labels))])
            for photos in (seen.batch, seen.others)
        ]
        both = np.concatenate(scores)
        spread = both.std() or 1.0
        members.append((scores[0] - both.mean()) / spread)
        others.append((scores[1] - both.mean()) / spread)
    if not members:
        raise InputError("no upload has photos to compare its own with.")
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
    photos: Batch,
    row: int,
) -> float:
    own = (server.step(base, _taken(photos, slice(row, row + 1))) - steps[photos.labels[row]])[places]
    return float(own @ left / max(float(np.linalg.norm(own)), 1e-30))


def photo_finding(
    server: Server, uploads: Sequence[SeenUpload], *, weights: str, statement: PrivacyStatement
) -> Finding:
    """Return how many photos stand in the rows of a linear layer."""
    compared = [seen for seen in uploads if seen.others is not None]
    if not compared or not linear_layers(server.layout):
        raise InputError(
            "photos are looked for in a linear layer with a bias, of uploads with others to compare theirs with."
        )
    found = [[_shown(server, seen, photos) for photos in (seen.batch, seen.others)] for seen in compared if seen.others]
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
            details={"p-value": luck, "of others": other},
        ),
        statement,
    )


def _shown(server: Server, seen: SeenUpload, photos: Batch) -> NDArray[np.bool_]:
    """Return which photos some row, or difference of rows, of the first or last linear layer points at."""
    found = np.zeros(len(photos.labels), dtype=np.bool_)
    flat, scales = server.flat(photos), server.flat(server.public)
    truths = flat, (flat - scales.mean(axis=0)) / (scales.std(axis=0) + 1e-6)
    sent, layers = seen.dense(), linear_layers(server.layout)
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


# --- a run that lies in a folder ---


@dataclass(frozen=True, eq=False)
class NetworkRun:
    """What `learn network` wrote: how it was asked, its statement and what was recorded."""

    folder: Path
    about: dict[str, Any]
    statement: PrivacyStatement
    recorded: "ServerView | None"
    given: Dataset | None = None
    progress: Progress = field(default=silent, repr=False)

    @classmethod
    def load(cls, folder: Path, *, data: Dataset | None = None, progress: Progress = silent) -> Self:
        """Read a run; `data` stand for its collection where that cannot be read from where it was."""
        path, view = folder / ABOUT_NETWORK, folder / VIEW
        about = read_json(path, "Learn again.")
        if about.get("schema") != SCHEMA or about.get("version") != VERSION:
            raise CorruptFileError(
                f"{path} is of {about.get('schema')!r}, version {about.get('version')}; this Blindsight reads "
                f"{SCHEMA!r}, version {VERSION}. Learn again, or audit it by the one that wrote it."
            )
        if data is not None and "sites" in about:
            raise InputError(
                "the owners of this run had collections of their own. It is audited where these lie: omit data."
            )
        _check(path, about)
        statement = read_statement(folder / "statement.json")
        return cls(folder, about, statement, ServerView.load(view) if view.exists() else None, data, progress)

    @property
    def name(self) -> str:
        """The run in a few words."""
        return f"a network of {self.about['owners']} owners of {self.about['data']}"

    @cached_property
    def _rebuilt(self) -> tuple[NetworkTask, dict[str, Batch], Batch, Batch]:
        """Return the task, the batches of members, public and held-out ones, checked to be of the same pictures."""
        about, seed = self.about, self.about["seed"]
        asked = dict(about["network"])
        sums, privacy = Sums(**asked.pop("sums")), asked.pop("privacy")
        learner = FederatedNetwork(
            module_from(about["model"], len(asked["classes"]), random_state=seed),
            sums=sums,
            privacy=None if privacy is None else Privacy(**privacy),
            random_state=seed,
            **asked,
        )
        copies = privacy is not None
        if "sites" in about:
            sites = Sites(**about["sites"])
            dataset, division = sites.read(
                (), side=about["side"], keep_copies=copies, random_state=seed, progress=self.progress
            )
        else:
            dataset = self._dataset(copies)
            division = divide(dataset, owners=about["owners"], random_state=seed)
        owners = {name: dataset[rows] for name, rows in division.by_owner.items()}
        loaders = {name: partial(_given, owned) for name, owned in owners.items()}
        public, held_out = dataset[division.public], dataset[division.held_out]
        task, _, readers, validation, _ = learner.prepare(loaders, public, held_out)
        self._check_same(task.arrays["first"])
        assert validation is not None
        batches = {name: read() for name, read in readers.items()}
        return task, batches, learner.read(public), Batch(*validation)

    def _check_same(self, first: Vector) -> None:
        about = self.about
        if first.size != about["parameters"]:
            raise DataError(
                f"the module of {about['model']} is not what this run learned: it has {first.size:,} parameters, and "
                f"then it had {about['parameters']:,}."
            )
        if not math.isclose(length_of(first), about["initial"], rel_tol=1e-3):
            raise DataError(
                f"{about['data']} is not what this run was learned from: it, or the module of {about['model']}, has "
                "changed."
            )

    def _dataset(self, copies: bool) -> Dataset:
        from blindsight.data.catalogue import reader_options

        if self.given is not None:
            return self.given
        about = self.about
        path = None if about["path"] is None else Path(about["path"])
        asked: dict[str, Any] = {"path": path, "count": about["count"], "random_state": about["seed"]}
        if copies and "keep_copies" in reader_options(about["data"], path):
            asked["keep_copies"] = True
        with moved_pictures():
            return load(str(about["data"]), progress=self.progress, **asked)

    @cached_property
    def server(self) -> Server:
        """What the server knows beforehand."""
        task, _, public, _ = self._rebuilt
        settings = task.settings
        make = partial(
            _made,
            task.module,
            optimiser=settings["optimiser"],
            learning_rate=settings["learning_rate"],
            epochs=settings["local_epochs"],
            batch=settings["batch_size"] or max(len(public.labels), 1),
        )
        return Server(make, public, settings["classes"])

    def seen(self, effort: float) -> tuple[SeenUpload, ...]:
        """Return the sum of the first round, with some photos of members and of others."""
        if self.recorded is None:
            raise InputError(HOW_TO_RECORD)
        _, members, _, held_out = self._rebuilt
        self.recorded.check(members)
        model, mean = self.recorded.models[0].astype(np.float32), self.recorded.means[0]
        return (self._seen(model, mean, members, held_out, effort),)

    def chosen(self, effort: float) -> tuple[SeenUpload, ...]:
        """Return what the server sees of a round if it chooses the weights: sums are the same in every scheme."""
        task, members, _, held_out = self._rebuilt
        learner = NetworkLearner(task, None)
        weights = chosen_weights(self.server, np.asarray(task.arrays["first"], dtype=np.float32))
        shared = np.stack([weights, np.zeros_like(weights)]).astype(np.float64)
        sent = [learner.update(batch, shared, Memory(), place).sent for place, batch in enumerate(members.values())]
        mean = learner.mean_of(np.sum(sent, axis=0), len(members))
        return (self._seen(weights, mean, members, held_out, effort),)

    def _seen(
        self, weights: Vector, mean: NDArray[np.float64], members: Mapping[str, Batch], held_out: Batch, effort: float
    ) -> SeenUpload:
        """Return a sum as the attacks take it: one upload, of which some of the photos behind it are looked at."""
        rng, most = science(self.about["seed"]), round(_PICTURES * effort)
        batch, others = (
            _taken(photos, rng.permutation(len(photos.labels))[:most]) for photos in (self._all(members), held_out)
        )
        places = np.flatnonzero(mean)
        return SeenUpload(("all members",), weights, places, mean[places], batch, others)

    def _all(self, members: Mapping[str, Batch]) -> Batch:
        """Return the photos of all members, but for those of no known class."""
        together = Batch(*(np.concatenate(parts) for parts in zip(*members.values(), strict=True)))
        return _taken(together, np.flatnonzero(together.labels < self.server.classes))

    def fit_finding(self, effort: float) -> Evidence:
        """Return how well members are told by the fit of the model that everybody gets."""
        _, members, _, held_out = self._rebuilt
        model = NetworkModel.load(self.folder / "network.npz")
        fits = [_margins(model, photos) for photos in (self._all(members), held_out)]
        fprs = tuple(fpr for fpr in membership.LOW_FPRS if len(fits[1]) >= membership.fewest_others(fpr))
        roc = membership.measure(*fits, fprs=fprs, confidence=_CONFIDENCE)
        epsilon, delta = membership.of_exchange(self.statement) if self.statement.unit == "record" else (None, 0.0)
        source = "nobody" if epsilon is None else "the run's statement"
        result = membership.MembershipResult("loss threshold", roc)
        return Evidence(membership.findings(result, "the model", source=source, epsilon=epsilon, delta=delta))

    def noisy_sums(self, share: float, effort: float) -> Evidence:
        """Look for a unit in sums with the noise of the run, or with a `share` of it, to see if that is noticed."""
        task = self._rebuilt[0]
        assert task.noise is not None
        (audit,) = audit_subjects([planned_noise(task.noise, task.delta, noise_share=share)], runs=round(RUNS * effort))
        return Evidence((audit.finding() if share == 1 else audit.self_test(planted=True),), claims=share == 1)


def _given(dataset: Dataset) -> Dataset:
    return dataset


def _made(module: Any, *, record_noise: RecordGaussian | None, **how: Any) -> NetworkTrainer:
    return NetworkTrainer(module, record_noise=record_noise, **how)


def _margins(model: NetworkModel, photos: Batch) -> NDArray[np.float64]:
    """Return the score of the true class above the best other one."""
    scores = model.decision_function(photos.inputs).astype(np.float64)
    rows = np.arange(len(scores))
    own = scores[rows, photos.labels]
    scores[rows, photos.labels] = -np.inf
    margins: NDArray[np.float64] = own - scores.max(axis=1)
    return margins


def _check(path: Path, about: Mapping[str, Any]) -> None:
    """Refuse a description that lacks something."""
    check_fields(path, about, data=str, seed=int, parameters=int, initial=float, network=dict, model=str, owners=int)
    check_fields(path, about["network"], classes=list, sums=dict, privacy=dict | None)
    if "sites" in about:
        check_fields(path, about, sites=dict, side=int)
    else:
        check_fields(path, about, path=str | None, count=int | None)


def about_run(learner: FederatedNetwork, **asked: Any) -> dict[str, Any]:
    """Return how a run was asked, as plain data for `ABOUT_NETWORK`; its public first model tells its data later."""
    asked["network"] = {
        name: value
        for name, value in learner.get_params(deep=False).items()
        if name not in ("module", "sums", "privacy", "random_state")
    }
    sums, privacy = Sums.of(learner.sums), learner.privacy
    asked["network"] |= {"classes": [str(name) for name in learner.classes_]}
    asked["network"] |= {"sums": {"scheme": sums.scheme, "share": sums.share}}
    asked["network"] |= {"privacy": None if privacy is None else asdict(privacy)}
    first = learner.initial_
    return {"schema": SCHEMA, "version": VERSION, "parameters": first.size, "initial": length_of(first)} | asked


def length_of(vector: Vector) -> float:
    return float(np.linalg.norm(vector.astype(np.float64)))


@dataclass(frozen=True, eq=False)
class ServerView:
    """What a server saw in every round, and a mark of every photo by member, by which to know them again."""

    models: NDArray[np.float64]
    means: NDArray[np.float64]
    marks: dict[str, NDArray[np.float64]]

    @classmethod
    def of(cls, seen: SeenRounds, members: Mapping[str, Dataset]) -> Self:
        """Return the view of a run of these members."""
        marks = {}
        for name, owned in members.items():
            if owned.images is None or owned.labels is None:
                raise InputError(f"{name} has no pictures with classes, of which there could be marks.")
            marks[name] = _marks(Batch(owned.images, owned.labels))
        return cls(np.array(seen.models), np.array(seen.means), marks)

    def check(self, members: Mapping[str, Batch]) -> None:
        """Refuse other photos than those of the recording."""
        if self.marks.keys() != members.keys():
            raise DataError(
                f"what was recorded is of another run: of {', '.join(self.marks)}. Learn again with --record."
            )
        for name, marks in self.marks.items():
            now = _marks(members[name])
            if now.shape != marks.shape or not np.allclose(now, marks, rtol=1e-3):
                raise DataError(f"the pictures of {name} are not those of the recording: they have changed.")

    def save(self, path: AnyPath) -> None:
        """Write it for its owner alone."""
        arrays: dict[str, NDArray[Any]] = {"models": self.models, "means": self.means}
        arrays |= {f"marks {place}": marks for place, marks in enumerate(self.marks.values())}
        write_arrays(path, _VIEW_KIND, {"members": list(self.marks)}, arrays, private=True)

    @classmethod
    def load(cls, path: AnyPath) -> Self:
        """Read what `save` wrote."""
        document, arrays = read_arrays(path, _VIEW_KIND)
        try:
            marks = {name: arrays[f"marks {place}"] for place, name in enumerate(document["members"])}
            return cls(arrays["models"], arrays["means"], marks)
        except (KeyError, TypeError) as error:
            raise CorruptFileError(f"{path} does not hold a whole view of a server: {error}.") from None


def _marks(photos: Batch) -> NDArray[np.float64]:
    """Return the class and the length of every photo, which rounding leaves as they are."""
    flat = photos.inputs.reshape(len(photos.inputs), -1)
    return np.column_stack([photos.labels, np.sqrt(np.einsum("ij,ij->i", flat, flat, dtype=np.float64))])


def plan_network(folder: Path, *, random_state: int, data: Dataset | None = None, progress: Progress = silent) -> Plan:
    """Return the checks of a run; those of sums that were not recorded say how to get them."""
    run = NetworkRun.load(folder, data=data, progress=progress)
    attacks: dict[str, Callable[..., Any]] = {"members": member_findings, "photos": photo_finding}
    handed_out = {"the weights as learned": run.seen, "weights that the server chose": run.chosen}

    def check(kind: str, weights: str) -> Check:
        def tried(effort: float) -> Evidence:
            seen = handed_out[weights](effort)
            found = attacks[kind](run.server, seen, weights=weights, statement=run.statement)
            return Evidence(found if isinstance(found, tuple) else (found,))

        return Check(f"{kind} from sums, {weights}", 5, tried)

    checks = [check(kind, weights) for weights in handed_out for kind in attacks]
    checks.append(Check("membership in the model", 2, run.fit_finding))
    if run.statement.guarantee == "differential privacy":
        shares = {"noise inside the sums": 1.0, "noise inside the sums, half of it": 0.5}
        checks += [Check(name, 3, partial(run.noisy_sums, share)) for name, share in shares.items()]
    return Plan(run.name, tuple(checks), statement=run.statement)
