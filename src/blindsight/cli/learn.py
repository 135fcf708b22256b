"""`blindsight learn`: owners train together, and nobody sees their data or their updates."""

import csv
import io
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from blindsight.cli import options
from blindsight.cli.command import argument, command, flag, group, grouped, option, several
from blindsight.cli.options import (
    LiveTable,
    hint,
    show,
    split_names,
    split_numbers,
    table,
    tell_skipped,
    terminal_progress,
    to_delta,
    to_features,
    to_file,
    to_folder,
    to_positive,
    write_json,
)
from blindsight.errors import InputError, StorageError
from blindsight.files import as_path, atomic_writer, cache_folder, free_memory, storage_errors, write_together

if TYPE_CHECKING:  # the learners bring scikit-learn, which other commands should not wait for
    from collections.abc import Mapping, Sequence

    from blindsight.data import Dataset
    from blindsight.data.partition import Division, Sharing
    from blindsight.data.sites import Sites, Study
    from blindsight.learn.classifier import FederatedClassifier
    from blindsight.learn.model import PictureModel, Pictures
    from blindsight.progress import Progress
    from blindsight.rounds import Privacy, RoundReport, Sums
    from blindsight.rounds.run import OnRound
    from blindsight.selective.codec import Vector
    from blindsight.selective.study import SharingResult
    from blindsight.selective.timeline import Photos
    from blindsight.sums.engine import Cost
    from blindsight.sums.scheme import Choice

app = group("learn", "Train together without seeing each other's data or updates.")

_SHOWN = ("centralised", "never updated", "local only", "selective sharing", "FedAvg, equal uploads")
_BYTES_PER_SCORE = 48  # of an owner's memory while it learns, for every picture and class
_COLUMNS = ("round", "score", "sparsity", "kB/owner", "training s", "owners s", "aggregator s", "key generator s")


@dataclass(frozen=True)
class Collected(options.Collected):
    """One collection, which the owners share out."""

    owners: int


collected = grouped("collected", Collected, *options.which, options.owners)


@dataclass(frozen=True)
class Seen:
    """What the owners learn from."""

    features: str
    components: int


seen = grouped("seen", Seen, options.features, options.components(200))


@dataclass(frozen=True)
class Own:
    """Owners with pictures of their own."""

    owner: tuple[str, ...]
    public: Path | None
    test: Path | None

    def sites(self, collected: Collected, sharing: str | None = None) -> "Sites | None":
        """Return where the owners' own pictures lie, or None where they share one collection out."""
        from blindsight.data.sites import Sites, name_members

        if not self.owner:
            if self.public or self.test:
                raise InputError(
                    "--public and --test belong to owners with pictures of their own: name them by --owner."
                )
            collected.check()
            return None
        if collected.data or collected.path or collected.count or sharing:
            raise InputError(
                "with --owner each brings its own pictures. Leave --data, --path, --count and --sharing out."
            )
        named = dict(owner.split("=", 1) for owner in self.owner if "=" in owner)
        if len(named) < len(self.owner) or not all(named) or not all(named.values()):
            raise InputError(f"--owner is NAME=PATH, once for each name; got {', '.join(self.owner)}.")
        if self.public is None:
            raise InputError("owners need public pictures that say what the classes are. Name them by --public.")
        name_members(named)
        places = {name: as_path(path).absolute() for name, path in named.items()}
        for place in (*places.values(), self.public, *([self.test] if self.test else [])):
            with storage_errors("read", place):
                place.stat()
        test = None if self.test is None else str(self.test.absolute())
        return Sites({name: str(place) for name, place in places.items()}, str(self.public.absolute()), test)


own = grouped(
    "own",
    Own,
    several("--owner", help="An owner's own pictures, NAME=PATH (a folder per class, or a table); once for each."),
    option("--public", type=Path, help="With --owner: public pictures, which say what the classes are."),
    option("--test", type=Path, help="With --owner: pictures for the score; default: a part of the public ones."),
)


@dataclass(frozen=True)
class Adding:
    """How updates are added up."""

    rounds: int
    scheme: str | None
    key_bits: int
    keys: str
    sparsity: float | None

    def choice(self) -> "Choice":
        """Return the scheme and the reason for it."""
        from blindsight.sums.scheme import choose_scheme

        return choose_scheme(self.scheme)

    def sums(self, minimum_per_position: int | None = None) -> "Sums":
        """Return them for the library."""
        from blindsight.crypto.paillier import check_key_bits, check_keys
        from blindsight.rounds import Sums

        check_key_bits(self.key_bits)
        check_keys(self.keys)
        return Sums.sending(
            self.choice().scheme,
            sparsity=self.sparsity,
            key_bits=self.key_bits,
            keys=self.keys,
            minimum_per_position=minimum_per_position,
        )


adding = grouped(
    "adding",
    Adding,
    options.rounds,
    options.scheme,
    options.key_bits,
    option("--keys", default="subgroup", help="Kind of the Paillier key: subgroup (fast) or conservative."),
    options.sparsity(None),
)


@dataclass(frozen=True)
class Proof:
    """What is to be proven of all rounds."""

    epsilon: float | None
    delta: float | None
    unit: Literal["record", "member"] | None
    clip: float | None
    colluders: int | None
    drop_outs: int | None

    def privacy(self) -> "Privacy | None":
        """Return it for the library; None without epsilon."""
        from blindsight.rounds import Privacy

        named = {name: value for name, value in vars(self).items() if value is not None}
        if self.epsilon is None:
            if named:
                raise InputError(f"--{next(iter(named)).replace('_', '-')} goes with --epsilon. Name both, or neither.")
            return None
        for name in ("delta", "unit"):
            if name not in named:
                raise InputError(f"--epsilon needs --{name}, which has no default.")
        return Privacy(**named)


proof = grouped(
    "proof",
    Proof,
    option(
        "--epsilon",
        type=float,
        check=to_positive,
        help="Prove this much of all rounds, by noise inside the sums; needs --delta and --unit.",
    ),
    option("--delta", type=float, check=to_delta, help="Of epsilon; below one over the number of records."),
    option("--unit", choices=("record", "member"), help="What epsilon protects."),
    option(
        "--clip", type=float, check=to_positive, help="Longest gradient of a record (default 1), or update of a member."
    ),
    option(
        "--colluders",
        type=int,
        min=0,
        help="Owners that may tell the server their noise; default: what masks withstand.",
    ),
    option("--drop-outs", type=int, min=0, help="Owners that may miss a round; default: what masks withstand."),
)

recorded = flag("--record", help="Keep what the server received, for `blindsight audit`.")
attributes = option("--attributes", default="", help="Learn these attributes instead of the classes.")


@command(app, "classifier", example="learn classifier --owner north=DIR --owner east=DIR --owner west=DIR --public DIR")
@collected
@own
@seen
@adding
@attributes
@option(
    "--sharing",
    choices=("equal", "by-class", "by-person"),
    help="How they share it out; by default by person where persons are known, else equally.",
)
@option(
    "--minimum-per-position",
    type=int,
    help="Withhold weights that fewer owners changed (dphe, block-dphe); default: 2, from 5 owners on 3.",
    min=1,
)
@proof
@option("--ledger", type=Path, check=to_file, help="Ledger that is charged with epsilon before anything is learned.")
@flag("--compare", help="Also measure in the report what a round costs with every other scheme.")
@options.model_folder("out/learn")
@options.resume
@flag(
    "--record",
    help="Keep one round with every update in the clear: for `blindsight audit`, and a picture in the report.",
)
@options.check_only
def learn_classifier(
    collected: Collected,
    own: Own,
    seen: Seen,
    adding: Adding,
    proof: Proof,
    attributes: str,
    sharing: Literal["equal", "by-class", "by-person"] | None,
    minimum_per_position: int | None,
    ledger: Path | None,
    compare: bool,
    out: Path,
    resume: bool,
    record: bool,
    check: bool,
) -> None:
    """Train one linear classifier from several owners by encrypted rounds; write model, statement and report.

    The owners share one collection out (--data, --path, --owners), or each brings its own:
    blindsight learn classifier --owner north=DIR --owner east=DIR --owner west=DIR --public DIR
    """
    from blindsight.dp.ledger import Ledger
    from blindsight.learn.classifier import FederatedClassifier
    from blindsight.rounds import RoundReport

    sites, privacy = own.sites(collected, sharing), proof.privacy()
    if privacy is not None and (record or resume):
        raise InputError("with --epsilon there is no checkpoint (--resume) and no recorded round (--record).")
    learner = FederatedClassifier(
        adding.sums(minimum_per_position), rounds=adding.rounds, privacy=privacy, random_state=collected.seed
    )
    data, owners = collected.name, collected.owners
    if sites is not None:
        data, owners = "own pictures", len(sites.owners)
    learner.check()
    if privacy is not None:  # of as small a model as there is, to see whether these members can give it
        privacy.plan(members=owners, dimension=1, rounds=adding.rounds, records=1, scheme=adding.choice().scheme)
    charged = None if ledger is None else Ledger(ledger)
    options.end_check(check)
    study, pictures = _study(collected, seen, attributes, sharing, sites)
    _check_memory(study)
    learner.set_params(multilabel=study.multilabel, classes=study.classes)
    described = collected.to_dict() | asdict(seen) | {"data": data, "owners": owners, "attributes": attributes}
    described |= {"sharing": sharing, "scheme": adding.scheme} | ({} if sites is None else {"sites": asdict(sites)})
    described["protocol"] = {"rounds": adding.rounds, "sparsity": adding.sparsity}
    if privacy is not None:
        described["protocol"]["privacy"] = asdict(privacy)
    write_json(out / "run.json", {"schema": "blindsight/run", "version": 1} | described)
    title, played = f"Learning {data} from {owners} owners by {adding.scheme}", list[RoundReport]()
    learner.fit(
        study.owners,
        public=study.public,
        validation=study.test,
        ledger=charged,
        scope=data,
        checkpoint=out / "checkpoint" if resume else None,
        record=record,
        on_round=_told_and_kept(out, LiveTable(title, _COLUMNS), played),
    )

    def write(folder: Path) -> None:
        write_json(folder / "history.json", [report.to_dict() for report in learner.history_])
        learner.model_.save(folder / "model.npz")
        if pictures is not None:
            pictures.save(folder / "pictures.npz")
        write_json(folder / "statement.json", learner.statement_.to_dict())
        if learner.noise_ is not None:
            write_json(folder / "noise.json", learner.noise_.to_dict() | {"delta": proof.delta})
        if learner.recorded_ is not None:
            learner.recorded_.save(folder / "recorded-round.npz")

    write_together(out, write)
    if played or not (out / "report.html").exists():  # a finished run that was asked for again keeps its report
        _write_report(out, data, learner, owners, adding, compare)
    before, final = learner.public_score_ or 0.0, learner.history_[-1].score or 0.0
    lines = [
        f"\nScheme {adding.choice()}.",
        f"From {before:.1%} (public data) to {final:.1%} in {len(learner.history_)} rounds.",
    ]
    if final <= before and seen.features == "pixels" and pictures is not None:
        lines.append(
            "Learning together did not help here. --features embedding tells more of photographs (extra deep)."
        )
    show(
        {"model": str(out / "model.npz"), "report": str(out / "report.html"), "public_score": before, "score": final}
        | {"history": [report.to_dict() for report in learner.history_], "statement": learner.statement_.to_dict()},
        *lines,
        learner.statement_.headline(),
        f"Model, statement and report are in {out}.",
        *(() if pictures is None else (_predict_hint(out, collected, own),)),
    )


@command(app, "network", example="learn network --model net.py:Net --epsilon 4 --delta 1e-5 --unit record")
@collected
@own
@option("--model", required=True, help="Your torch module, as in net.py:Net; called with the number of classes.")
@option("--side", default=32, help="With --owner: size at which pictures are read.", min=8)
@option("--epsilon", type=float, check=to_positive, help="Prove this much of the run; needs --delta and --unit.")
@option("--delta", type=float, check=to_delta, help="Of epsilon; below one over the number of pictures.")
@option("--unit", choices=("record", "participant"), help="What epsilon protects.")
@option("--share", default=0.1, help="Fraction of the parameters in an upload.")
@option("--clip", type=float, check=to_positive, help="Longest gradient or upload; default: by the public pictures.")
@option("--batch-size", type=int, help="Pictures of an upload; default: from epsilon.", min=1)
@option("--local-steps", type=int, help="Passes over them; default: 5.", min=1)
@option("--learning-rate", type=float, help="Default: by the optimiser and epsilon.")
@option("--decay", type=float, help="In the t-th upload the rate is divided by 1 + decay t.")
@options.optimiser
@option("--passes", default=1, help="How often all pictures are gone through.", min=1)
@options.hidden_scheme
@recorded
@options.model_folder("out/network")
@options.check_only
def learn_network(
    collected: Collected, own: Own, model: str, side: int, record: bool, out: Path, check: bool, **how: Any
) -> None:
    """Train your own torch module from several owners' pictures, with (epsilon, delta); write model and statement.

    blindsight learn network --model net.py:Net --owner north=DIR --owner east=DIR --owner west=DIR --public DIR
    """
    from blindsight.selective.accounting import number_of
    from blindsight.selective.estimator import SelectiveClassifier
    from blindsight.selective.networks import module_maker
    from blindsight.selective.timeline import Photos
    from blindsight.sums.roles import forget

    seed = collected.seed
    learner = SelectiveClassifier(None, random_state=seed, **how)
    learner.check()
    make = module_maker(model)
    sites = own.sites(collected)
    options.end_check(check)
    with terminal_progress() as progress:
        dataset, division = _divided(collected, sites, progress, side=side)
    if dataset.images is None or dataset.labels is None:
        raise InputError(f"a network learns the classes of pictures; {dataset.name} has none.")
    learner.set_params(module=make(len(dataset.label_names), seed), classes=dataset.label_names)
    messages: list[bytes] = []
    learner.fit(
        {name: dataset[rows] for name, rows in division.by_owner.items()},
        public=dataset[division.public],
        test=dataset[division.held_out],
        record=messages.append if record else forget,
    )
    place, _, name = model.rpartition(":")
    source, (height, width) = f"{as_path(place).absolute()}:{name}", dataset.images.shape[1:3]
    kept = replace(learner.model_, side=height if height == width else None, source=source)
    asked = {name: value for name, value in learner.get_params(deep=False).items() if name != "module"}
    described = collected.to_dict() | {"model": source, "network": asked}
    if sites is not None:
        described |= {"data": "own pictures", "owners": len(sites.owners), "sites": asdict(sites), "side": side}
    photos = {name: Photos(dataset.images[rows], dataset.labels[rows]) for name, rows in division.by_owner.items()}

    def write(folder: Path) -> None:
        kept.save(folder / "network.npz")
        write_json(folder / "statement.json", learner.statement_.to_dict())
        _keep_run(folder, learner.initial_, described, messages if record else None, photos)

    _forget_view(out)
    write_together(out, write)
    document = {"model": str(out / "network.npz"), "public_score": learner.public_score_, "score": learner.score_}
    show(
        document | {"plan": asdict(learner.plan_), "statement": learner.statement_.to_dict()},
        f"From {learner.public_score_:.1%} (public pictures) to {learner.score_:.1%} in {learner.uploads_} uploads, "
        f"{learner.plan_.batch_size} pictures and {number_of(learner.plan_.local_steps, 'local step')} each.",
        learner.statement_.headline(),
        f"Model and statement are in {out}.",
        _predict_hint(out, collected, own),
    )


@command(app, "predict", example="learn predict out/learn photos")
@argument("run", "Folder that `learn classifier` or `learn network` wrote.", type=Path)
@argument("pictures", "Folder of pictures, at any depth; their folders' names are not used.", type=Path)
@option("--out", type=Path, help="Write the answers as a table (.csv) as well.", check=to_file)
def learn_predict(run: Path, pictures: Path, out: Path | None) -> None:
    """Say what the model of a run sees on pictures: blindsight learn predict out/learn PICTURES"""
    from blindsight.data import load
    from blindsight.learn.model import load_model

    if (run / "network.npz").is_file():
        from blindsight.selective.estimator import NetworkModel

        model: NetworkModel | PictureModel = NetworkModel.load(run / "network.npz")
    else:
        model = load_model(run)
        to_features(model.pictures.features)
    several = model.answers if model.multilabel else ()
    with terminal_progress() as progress:
        found = tell_skipped(load("folder", path=pictures, size=model.side, keep_copies=True, progress=progress))
        answers = model.predict(found)
    columns = ("picture", *(several or ("class",)))
    rows = [
        (name, *(map(str, answer) if several else (str(answer),)))
        for name, answer in zip(found.names, answers.tolist(), strict=True)
    ]
    if out is not None:
        text = io.StringIO()
        csv.writer(text).writerows([columns, *rows])
        with atomic_writer(out) as stream:
            stream.write(text.getvalue().encode())
    named = {name: row if several else row[0] for name, *row in rows}
    show({"answers": named, "skipped": list(found.skipped)}, table(f"{len(rows)} pictures", columns, rows))


@command(app, "cluster", example="learn cluster --data digits --owners 5 --clusters 10")
@collected
@seen
@adding
@option("--clusters", type=int, help="How many; default: the classes.", min=2)
@options.model_folder("out/cluster")
@options.resume
@options.check_only
def learn_clusters(
    collected: Collected, seen: Seen, adding: Adding, clusters: int | None, out: Path, resume: bool, check: bool
) -> None:
    """Find clusters in several owners' pictures by encrypted rounds; classes, where known, only judge the result."""
    from blindsight.learn.kmeans import FederatedKMeans

    sums = adding.sums()
    collected.check()
    options.end_check(check)
    study, _ = _study(collected, seen)
    if clusters is None and study.multilabel:
        raise InputError(f"{collected.name} has attributes and no classes: say how many clusters to find (--clusters).")
    many = clusters or len(study.answers)
    learner = FederatedKMeans(many, sums, rounds=adding.rounds, random_state=collected.seed)
    live = LiveTable(f"Clustering {collected.name} from {collected.owners} owners by {adding.scheme}", _COLUMNS)
    learner.fit(
        {name: pair[0] for name, pair in study.owners.items()},
        public=study.public[0],
        validation=None if study.multilabel else study.test,
        checkpoint=out / "checkpoint" if resume else None,
        on_round=lambda report: live.row(_cells(report)),
    )

    def write(folder: Path) -> None:
        learner.model_.save(folder / "model.npz")
        write_json(folder / "statement.json", learner.statement_.to_dict())

    write_together(out, write)
    score = learner.history_[-1].score
    found = "" if score is None else f"Adjusted mutual information with the classes: {score:.3f}."
    show(
        {"model": str(out / "model.npz"), "score": score}
        | {"history": [report.to_dict() for report in learner.history_], "statement": learner.statement_.to_dict()},
        f"\nScheme {adding.choice()}.",
        found,
        learner.statement_.headline(),
        f"Model and statement are in {out}.",
    )


@command(app, "compare", example="learn compare --data digits --epsilon 1 --delta 1e-5")
@collected
@seen
@option("--epsilon", type=float, required=True, check=to_positive, help="What PRR10 and RA12 claim to spend.")
@option("--delta", type=float, required=True, check=to_delta, help="Their delta.")
@attributes
@options.rounds
@options.key_bits
@options.sparsity(0.9)
def learn_compare(
    collected: Collected,
    seen: Seen,
    epsilon: float,
    delta: float,
    attributes: str,
    rounds: int,
    key_bits: int,
    sparsity: float | None,
) -> None:
    """Learn the same data by every installed scheme and every baseline: accuracy, cost and privacy side by side."""
    from blindsight.learn.comparison import contest

    asked: dict[str, Any] = {"rounds": rounds, "key_bits": key_bits, "sparsity": sparsity}
    Adding(scheme="dphe", keys="subgroup", **asked).sums()
    study, _ = _study(collected, seen, attributes)
    with terminal_progress() as progress:
        rows = contest(study, epsilon=epsilon, delta=delta, **asked, random_state=collected.seed, progress=progress)
    columns = ("method", "accuracy", "CPU s", "MB/owner", "privacy")
    cells = [
        (
            *(row.method, f"{row.score:.3f}", f"{row.seconds:.1f}"),
            "-" if row.megabytes is None else f"{row.megabytes:.2f}",
            "-" if row.statement is None else row.statement.headline(),
        )
        for row in rows
    ]
    show(
        {"methods": [row.to_dict() for row in rows]},
        table(f"Learning {collected.name}", columns, cells, numbers=columns[1:4]),
    )


@dataclass(frozen=True)
class Plan:
    """Whose photos, and when."""

    participants: int
    days: int
    initial: float
    skew: float | None
    attribute: str | None


plan = grouped(
    "plan",
    Plan,
    option("--attribute", help="Learn this attribute's yes and no."),
    option("--participants", default=10, min=1, help="How many people take photos."),
    option("--days", default=28, min=1, help="For how many days."),
    option("--initial", default=0.1, help="Fraction of the photos that are public, day 0."),
    option("--skew", type=float, help="Unequal classes: Dirichlet concentration."),
)


@dataclass(frozen=True)
class Training:
    """What is trained, and how."""

    model: str
    optimiser: Literal["sgd", "rmsprop", "adam"]
    learning_rate: float | None
    local_steps: int
    decay: float


training = grouped(
    "training",
    Training,
    option(
        "--model",
        default="head",
        help="head (on features), cnn (from scratch), or your torch module, as in net.py:Net.",
    ),
    options.optimiser,
    option("--learning-rate", type=float, help="Default: by the optimiser."),
    option("--local-steps", default=5, min=1, help="Passes over each batch of 32 photos."),
    option("--decay", default=0.01, min=0, help="In the t-th upload the rate is divided by 1 + decay t."),
)


@command(
    app,
    "selective",
    example="learn selective --data digits --share 0.1 --noise record --epsilon 4 --delta 1e-5 --clip 1",
)
@options.collected
@option("--classes", default="", help="Learn only these classes, by commas.")
@plan
@training
@option(
    "--features",
    default="pixels",
    check=lambda kind: kind if kind.startswith("vgg16:") else to_features(kind),
    help="Of a head: pixels, embedding, thumbnail, a path of an ONNX model or vgg16:WEIGHTS.",
)
@options.components(64)
@option("--share", default=0.1, help="theta_u: fraction of parameters uploaded.")
@option("--download", default=1.0, help="theta_d: fraction downloaded.")
@option(
    "--select", choices=("largest", "random", "threshold"), default="largest", help="Which parameters are uploaded."
)
@option("--threshold", type=float, help="tau, for --select threshold.")
@option("--bound", type=float, help="gamma: values are cut to +- this.")
@flag("--residual", help="Send later what was not sent.")
@flag("--half", help="Upload float16.")
@flag("--half-download", help="Download float16.")
@option("--order", choices=("round-robin", "random", "asynchronous"), default="round-robin", help="Who comes when.")
@options.hidden_scheme
@option(
    "--noise",
    choices=("none", "published", "laplace", "participant", "record"),
    default="none",
    help="published or laplace: per parameter; participant or record: with a proof.",
)
@option("--epsilon", type=float, help="Of the noise: per parameter and upload, or (with a proof) of all days.")
@option("--delta", type=float, help="Of all proven epsilons.")
@option("--clip", type=float, help="Longest gradient of a photo, for record noise.")
@option("--upload-clip", type=float, help="Longest upload, for participant noise.")
@option("--epsilons", default="", help="Also simulate methods with proven noise at these.")
@recorded
@option("--out", default=Path("out/selective"), help="Folder of statement and report.", check=to_folder)
def learn_selective(
    collected: options.Collected,
    plan: Plan,
    training: Training,
    classes: str,
    features: str,
    components: int,
    epsilons: str,
    record: bool,
    out: Path,
    **sharing: Any,
) -> None:
    """Keep a network up to date from people's photos, of which only chosen changes are shared; compare, day by day."""
    from blindsight.selective import study as studies
    from blindsight.sums.roles import forget

    seed = collected.seed
    trained = studies.Training(**vars(training))
    asked = studies.SharingOptions(**sharing, epsilons=tuple(split_numbers(epsilons)))
    asked.check_participants(plan.participants)
    planned: dict[str, Any] = asdict(plan) | {"classes": split_names(classes)}
    extractor = studies.backbone(features, components=components, random_state=seed)
    with terminal_progress() as progress:
        study = studies.PhotoStudy.prepare(
            collected.load(progress),
            extractor,
            trained,
            **planned,
            random_state=seed,
            cache=cache_folder(),
            progress=progress,
        )
    title = f"Learning {collected.name} from {plan.participants} participants, {study.dimension:,} parameters"
    live = LiveTable(title, ("day", *_SHOWN))

    def show_day(day: int, found: "Mapping[str, float]") -> None:
        live.row((str(day), *(f"{found[name]:.3f}" for name in _SHOWN)))

    messages: list[bytes] = []
    result = studies.SharingResult.of(study, asked, record=messages.append if record else forget, on_day=show_day)
    described = {"features": features, "components": components, "training": asdict(trained), "plan": planned}
    described |= collected.to_dict() | {"sharing": asdict(asked)}
    _forget_view(out)
    _keep_run(out, study.initial, described, messages if record else None, study.photos)
    _show_sharing(result, out, collected.name, seed)


def _keep_run(
    out: Path,
    initial: "Vector",
    described: dict[str, Any],
    messages: list[bytes] | None,
    photos: "Mapping[str, Photos]",
) -> None:
    """Write how a run was asked and what its server received, for audits."""
    from blindsight.audit.selective_audit import ABOUT_SELECTIVE, VIEW, Recording, about_run

    write_json(out / ABOUT_SELECTIVE, about_run(initial, **described))
    if messages is not None:
        Recording.of(messages, photos).save(out / VIEW)


def _forget_view(out: Path) -> None:
    """Remove what the server of an earlier run received."""
    from blindsight.audit.selective_audit import VIEW

    with storage_errors("remove", out / VIEW):
        (out / VIEW).unlink(missing_ok=True)


def _told_and_kept(out: Path, live: LiveTable, reports: "list[RoundReport]") -> "OnRound":
    def after_round(report: "RoundReport") -> None:
        reports.append(report)
        if len(reports) == report.round:  # of a resumed run the rounds before are known only when it ends
            try:
                write_json(out / "history.json", [one.to_dict() for one in reports])
            except StorageError as error:
                options.warn(f"{error} Learning goes on.")
        live.row(_cells(report))

    return after_round


def _study(
    collected: Collected,
    seen: Seen,
    attributes: str = "",
    sharing: "Sharing | None" = None,
    sites: "Sites | None" = None,
) -> "tuple[Study, Pictures | None]":
    """Return everybody's features, and how pictures become such, unless they came ready-made."""
    from blindsight.data import pipeline
    from blindsight.data.features import reading_side
    from blindsight.data.sites import Study
    from blindsight.learn.model import Pictures

    made = pipeline(seen.features, components=seen.components, random_state=collected.seed)
    with terminal_progress() as progress:
        dataset, division = _divided(
            collected, sites, progress, side=reading_side(made), attributes=split_names(attributes), sharing=sharing
        )
        study = Study.prepare(dataset, division, made, cache=cache_folder(), progress=progress)
    if dataset.images is None:
        return study, None
    height, width = dataset.images.shape[1:3]
    return study, Pictures(seen.features, made, study.answers, height if height == width else None)


def _check_memory(study: "Study") -> None:
    """Refuse to learn more classes from more pictures than fit into memory, where the process would be killed."""
    rows, classes = max(len(X) for X, _ in (study.public, *study.owners.values())), len(study.answers)
    needed, free = _BYTES_PER_SCORE * rows * classes, free_memory()
    if needed > free:
        raise InputError(
            f"{classes:,} classes in {rows:,} pictures of one owner take about {needed / 1e9:.0f} GB of memory; "
            f"{free / 1e9:.0f} GB are free. Learn fewer classes, or from fewer pictures (-n)."
        )


def _divided(
    collected: Collected,
    sites: "Sites | None",
    progress: "Progress",
    *,
    side: int,
    attributes: "Sequence[str]" = (),
    sharing: "Sharing | None" = None,
) -> "tuple[Dataset, Division]":
    """Return all pictures and whose are whose: shared out, or the owners' own."""
    from blindsight.data.sites import divide

    if sites is not None:
        dataset, division = sites.read(attributes, side=side, random_state=collected.seed, progress=progress)
        return tell_skipped(dataset), division
    dataset, owners = collected.load(progress), collected.owners
    return dataset, divide(dataset, owners=owners, attributes=attributes, sharing=sharing, random_state=collected.seed)


def _predict_hint(run: Path, collected: Collected, own: Own) -> str:
    """Return how a model is applied, for a start to pictures that are known."""
    known = own.test or own.public or collected.path
    if known is None:
        return f"Apply it to pictures of your own: {hint('learn', 'predict', '--help')}"
    folder = known.parent if options.kind_of(known) == "csv" else known
    return f"Apply it to pictures, for instance these: {hint('learn', 'predict', run, folder)}"


def _cells(report: "RoundReport") -> tuple[str, ...]:
    return (
        str(report.round),
        "-" if report.score is None else f"{report.score:.3f}",
        "-" if report.sparsity is None else f"{report.sparsity:.1%}",
        f"{report.sent['members'] / max(len(report.contributors), 1) / 1e3:.1f}",
        *(f"{report.seconds[role]:.2f}" for role in ("training", "members", "aggregator", "key generator")),
    )


def _write_report(
    out: Path, data: str, learner: "FederatedClassifier", owners: int, adding: Adding, compare: bool
) -> None:
    """Write the run's report, for its owner alone; to compare, measure what every scheme costs at this size."""
    from blindsight.report import write_report
    from blindsight.report.learning import LearningResult, learning_chapter

    costs: Mapping[str, Cost] = {}
    if compare:
        from blindsight.learn.comparison import round_costs

        weights, sparsity = learner.model_.weights.size, adding.sparsity
        with terminal_progress() as progress:
            costs = round_costs(weights, owners, sparsity=sparsity, key_bits=adding.key_bits, progress=progress)
    chapter = learning_chapter(LearningResult.of(learner, owners=owners, costs=costs))
    facts = {"Command": "blindsight learn classifier", "Data": data, "Seed": str(learner.random_state)}
    write_report(out / "report.html", f"Learning {data} together", [chapter], facts=facts, private=True)


def _show_sharing(result: "SharingResult", out: Path, data: str, seed: int) -> None:
    from blindsight.report import write_report
    from blindsight.report.learning import sharing_chapter
    from blindsight.selective.study import OURS
    from blindsight.statement import rounded_up

    statement = result.timeline.method(OURS).statement
    facts = {"Command": "blindsight learn selective", "Data": data, "Seed": str(seed)}
    write_report(out / "report.html", f"Sharing what was learned from {data}", [sharing_chapter(result)], facts=facts)
    write_json(out / "statement.json", statement.to_dict())
    columns, rows = result.timeline.rows((result.days,))
    costs = [(row.what, rounded_up(row.basic), rounded_up(row.composed)) for row in result.cost.rows()]
    counted = ("what is counted", "added up", f"at delta = {result.cost.delta:g}")
    show(
        result.to_dict() | {"report": str(out / "report.html")},
        "",
        table("Over all days", columns, rows, numbers=columns[1:-1]),
        "",
        table("What is shared costs", counted, costs, numbers=counted[1:]),
        "",
        result.cost.sentence(),
        statement.headline(),
        f"Report and statement are in {out}.",
    )
