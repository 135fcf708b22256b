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
    table,
    tell_skipped,
    terminal_progress,
    to_delta,
    to_features,
    to_file,
    to_positive,
    write_json,
)
from blindsight.errors import InputError, StorageError
from blindsight.files import as_path, atomic_writer, cache_folder, free_memory, storage_errors, write_together

if TYPE_CHECKING:  # the learners bring scikit-learn, which other commands should not wait for
    from collections.abc import Sequence

    from blindsight.data import Dataset
    from blindsight.data.partition import Division, Sharing
    from blindsight.data.sites import Sites, Study
    from blindsight.learn.classifier import FederatedClassifier
    from blindsight.learn.model import PictureModel, Pictures
    from blindsight.progress import Progress
    from blindsight.rounds import Privacy, RoundReport, Sums
    from blindsight.rounds.run import OnRound
    from blindsight.sums.scheme import Choice

app = group("learn", "Train together without seeing each other's data or updates.")

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
        from blindsight.rounds import Sums

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
    option(
        "--keys",
        choices=("subgroup", "conservative"),
        default="subgroup",
        help="Kind of the Paillier key (dphe, block-dphe): subgroup is fast.",
    ),
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
        "--clip",
        type=float,
        check=to_positive,
        help="Longest gradient of a record (default: 1, of a network by the public pictures), or update of a member.",
    ),
    option(
        "--colluders",
        type=int,
        min=0,
        help="Owners that may tell the server their noise; default: what masks withstand.",
    ),
    option("--drop-outs", type=int, min=0, help="Owners that may miss a round; default: what masks withstand."),
)

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
    study, pictures = prepare_study(collected, seen, attributes, sharing, sites)
    _check_memory(study)
    learner.set_params(multilabel=study.multilabel, classes=study.classes)
    described = collected.to_dict() | asdict(seen) | {"data": data, "owners": owners, "attributes": attributes}
    described |= {"sharing": sharing, "scheme": adding.scheme} | ({} if sites is None else {"sites": asdict(sites)})
    described["protocol"] = {"rounds": adding.rounds, "sparsity": adding.sparsity}
    if privacy is not None:
        described["protocol"]["privacy"] = asdict(privacy)
    if not resume:  # the model of an earlier run is not one of this
        with storage_errors("remove", out / "model.npz"):
            (out / "model.npz").unlink(missing_ok=True)
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

    write_together(out, write, last="model.npz")
    if played or not (out / "report.html").exists():  # a finished run that was asked for again keeps its report
        _write_report(out, data, learner, owners)
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
@option("--rounds", type=int, help="Default: 20, and more with a --share below 1.", min=1)
@option("--share", type=float, help="Fraction of the parameters in a round, by a public schedule; default: all.")
@options.scheme
@option("--batch-size", type=int, help="Pictures of a step; default: 4 to 32.", min=1)
@option("--local-epochs", default=1, help="Passes of an owner over its pictures in a round.", min=1)
@option("--learning-rate", type=float, help="Default: by the optimiser and the noise.")
@options.optimiser
@option("--server-momentum", default=0.9, help="How much of its last move the shared model repeats.")
@option("--public-epochs", default=10, help="Passes over the public pictures before the first round.", min=0)
@proof
@option("--ledger", type=Path, help="Ledger that is charged with epsilon before anything is learned.")
@options.model_folder("out/network")
@options.resume
@flag("--record", help="Keep what the server sees of every round, for `blindsight audit`.")
@options.check_only
def learn_network(
    collected: Collected,
    own: Own,
    proof: Proof,
    model: str,
    side: int,
    share: float | None,
    scheme: str | None,
    ledger: Path | None,
    out: Path,
    resume: bool,
    record: bool,
    check: bool,
    **how: Any,
) -> None:
    """Train your own torch module from several owners' pictures, with (epsilon, delta); write model and statement.

    blindsight learn network --model net.py:Net --owner north=DIR --owner east=DIR --owner west=DIR --public DIR
    """
    from blindsight.audit.network_audit import ABOUT_NETWORK, VIEW, ServerView, about_run
    from blindsight.dp.ledger import Ledger
    from blindsight.learn.modules import module_maker
    from blindsight.learn.network import FederatedNetwork
    from blindsight.rounds import RoundReport, Sums
    from blindsight.sums.scheme import choose_scheme

    seed, choice, privacy = collected.seed, choose_scheme(scheme), proof.privacy()
    if privacy is not None and resume:
        raise InputError("with --epsilon there is no checkpoint (--resume).")
    sums = Sums(scheme=choice.scheme, share=share)
    learner = FederatedNetwork(None, privacy=privacy, sums=sums, random_state=seed, **how)
    learner.check()
    make, sites = module_maker(model), own.sites(collected)
    if privacy is not None:  # of as small a model as there is, to see whether these members can give it
        owners, rounds = collected.owners if sites is None else len(sites.owners), how["rounds"] or 1
        privacy.plan(members=owners, dimension=1, rounds=rounds, records=1, scheme=choice.scheme)
    charged = None if ledger is None else Ledger(ledger)
    options.end_check(check)
    with terminal_progress() as progress:
        dataset, division = _divided(collected, sites, progress, side=side, keep_copies=privacy is not None)
    if dataset.images is None or dataset.labels is None:
        raise InputError(f"a network learns the classes of pictures; {dataset.name} has none.")
    learner.set_params(module=make(len(dataset.label_names), seed), classes=dataset.label_names)
    members = {name: dataset[rows] for name, rows in division.by_owner.items()}
    data = collected.name if sites is None else "own pictures"
    played: list[RoundReport] = []
    learner.fit(
        members,
        public=dataset[division.public],
        validation=dataset[division.held_out],
        ledger=charged,
        scope=data,
        checkpoint=out / "checkpoint" if resume else None,
        record=record,
        on_round=_told_and_kept(out, LiveTable(f"Learning {data} from {len(members)} owners", _COLUMNS), played),
    )
    place, _, name = model.rpartition(":")
    source, (height, width) = f"{as_path(place).absolute()}:{name}", dataset.images.shape[1:3]
    kept = replace(learner.model_, side=height if height == width else None, source=source)
    described = collected.to_dict() | {"model": source, "owners": len(members)}
    if sites is not None:
        described |= {"data": data, "sites": asdict(sites), "side": side}

    def write(folder: Path) -> None:
        kept.save(folder / "network.npz")
        write_json(folder / "history.json", [report.to_dict() for report in learner.history_])
        write_json(folder / "statement.json", learner.statement_.to_dict())
        write_json(folder / ABOUT_NETWORK, about_run(learner, **described))
        if learner.seen_ is not None:
            ServerView.of(learner.seen_, members).save(folder / VIEW)

    with storage_errors("remove", out / VIEW):
        (out / VIEW).unlink(missing_ok=True)  # of an earlier run
    write_together(out, write, last="network.npz")
    before, final = learner.public_score_ or 0.0, learner.history_[-1].score or 0.0
    document = {"model": str(out / "network.npz"), "public_score": before, "score": final}
    show(
        document
        | {"plan": asdict(learner.plan_), "statement": learner.statement_.to_dict()}
        | {"history": [report.to_dict() for report in learner.history_]},
        f"\nScheme {choice}.",
        f"From {before:.1%} (public pictures) to {final:.1%} in {len(learner.history_)} rounds.",
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
        from blindsight.learn.network import NetworkModel

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
    study, _ = prepare_study(collected, seen)
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

    write_together(out, write, last="model.npz")
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


def prepare_study(
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
    keep_copies: bool = False,
) -> "tuple[Dataset, Division]":
    """Return all pictures, and which are public, held out and each owner's: shared out, or the owners' own.

    With `keep_copies` pictures of the same content all stay, so that their number does not depend on what they show.
    """
    from blindsight.data.sites import divide

    if sites is not None:
        dataset, division = sites.read(
            attributes, side=side, keep_copies=keep_copies, random_state=collected.seed, progress=progress
        )
        return tell_skipped(dataset), division
    dataset, owners = collected.load(progress, keep_copies=keep_copies), collected.owners
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


def _write_report(out: Path, data: str, learner: "FederatedClassifier", owners: int) -> None:
    """Write the run's report, for its owner alone."""
    from blindsight.report import write_report
    from blindsight.report.learning import LearningResult, learning_chapter

    chapter = learning_chapter(LearningResult.of(learner, owners=owners))
    facts = {"Command": "blindsight learn classifier", "Data": data, "Seed": str(learner.random_state)}
    write_report(out / "report.html", f"Learning {data} together", [chapter], facts=facts, private=True)
