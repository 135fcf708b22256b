"""`blindsight learn`: owners train together, and nobody sees their data or their updates."""

import csv
import io
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

from blindsight.cli import options
from blindsight.cli.options import (
    Commands,
    LiveTable,
    chosen,
    hint,
    show,
    split_names,
    split_numbers,
    table,
    tell_skipped,
    terminal_progress,
    to_file,
    to_folder,
    write_json,
)
from blindsight.errors import InputError
from blindsight.files import as_path, atomic_writer, cache_folder, storage_errors

if TYPE_CHECKING:  # the learners bring scikit-learn, which other commands should not wait for
    from collections.abc import Mapping

    from blindsight.data.partition import Sharing
    from blindsight.data.study import Sites, Study
    from blindsight.learn.comparison import Choice
    from blindsight.learn.estimators import FederatedClassifier
    from blindsight.learn.model import PictureModel, Pictures
    from blindsight.learn.rounds import OnRound, RoundReport
    from blindsight.selective.study import SharingResult
    from blindsight.sums.engine import Cost

app = Commands(help="Train together without seeing each other's data or updates.")

_SHOWN = ("centralised", "never updated", "local only", "selective sharing", "FedAvg, equal uploads")
_COLUMNS = ("round", "score", "sparsity", "kB/owner", "training s", "owners s", "aggregator s", "key generator s")


@dataclass(frozen=True)
class Collected(options.Collected):
    """One collection, which the owners share out."""

    owners: options.OwnersOption = 5


@dataclass(frozen=True)
class Seen:
    """What the owners learn from."""

    features: options.FeaturesOption = "pixels"
    components: options.ComponentsOption = 200


@dataclass(frozen=True)
class Own:
    """Owners with pictures of their own."""

    owner: Annotated[
        list[str] | None,
        Option("--owner", help="An owner's own pictures, NAME=PATH (a folder per class, or a table); once for each."),
    ] = None
    public: Annotated[
        Path | None, Option("--public", help="With --owner: public pictures, which say what the classes are.")
    ] = None
    test: Annotated[
        Path | None, Option("--test", help="With --owner: pictures for the score; default: a part of the public ones.")
    ] = None

    def sites(self, collected: Collected, sharing: str | None = None) -> "Sites | None":
        """Return where the owners' own pictures lie, or None where they share one collection out."""
        from blindsight.data.study import Sites
        from blindsight.learn.owners import name_owners

        if not self.owner:
            if self.public or self.test:
                raise InputError(
                    "--public and --test belong to owners with pictures of their own: name them by --owner."
                )
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
        name_owners(named)
        places = {name: as_path(path).absolute() for name, path in named.items()}
        for place in (*places.values(), self.public, *([self.test] if self.test else [])):
            with storage_errors("read", place):
                place.stat()
        test = None if self.test is None else str(self.test.absolute())
        return Sites({name: str(place) for name, place in places.items()}, str(self.public.absolute()), test)


@dataclass(frozen=True)
class Sums:
    """How updates are added up."""

    rounds: options.RoundsOption = 10
    scheme: options.SchemeOption = "masks"
    key_bits: options.KeyOption = 3072
    keys: Annotated[str, Option("--keys", help="Kind of the Paillier key: subgroup (fast) or conservative.")] = (
        "subgroup"
    )
    sparsity: options.SparsityOption = None

    def check(self) -> "Choice":
        from blindsight.crypto.paillier import check_key_bits, check_keys
        from blindsight.learn.comparison import choose_scheme

        choice = choose_scheme(self.scheme)
        check_key_bits(self.key_bits)
        check_keys(self.keys)
        if self.sparsity is not None and not 0 <= self.sparsity < 1:
            raise InputError(f"sparsity must be in [0, 1); got {self.sparsity}.")
        return choice


AttributesOption = Annotated[str, Option(help="Learn these attributes instead of the classes.")]


@app.command("encrypted", example="learn encrypted --owner north=DIR --owner east=DIR --owner west=DIR --public DIR")
def learn_encrypted(
    collected: Collected,
    own: Own,
    seen: Seen,
    sums: Sums,
    attributes: AttributesOption = "",
    sharing: Annotated[
        Literal["equal", "by-class", "by-person"] | None,
        Option(help="How they share it out; by default by person where persons are known, else equally."),
    ] = None,
    minimum_per_position: Annotated[
        int | None,
        Option(
            help="Withhold weights that fewer owners changed (dphe, block-dphe); default: 2, from 5 owners on 3.", min=1
        ),
    ] = None,
    epsilon: Annotated[
        float | None, Option(help="Prove this much of all rounds, by noise inside the sums; needs --delta and --unit.")
    ] = None,
    delta: Annotated[float | None, Option(help="Of epsilon; below one over the number of records.")] = None,
    unit: Annotated[Literal["record", "owner"] | None, Option(help="What epsilon protects.")] = None,
    clip: Annotated[
        float | None, Option(help="Longest gradient of a record (default 1), or update of an owner.")
    ] = None,
    colluders: Annotated[
        int | None, Option(help="Owners that may tell the server their noise; default: what masks withstand.", min=0)
    ] = None,
    drop_outs: Annotated[
        int | None, Option(help="Owners that may miss a round; default: what masks withstand.", min=0)
    ] = None,
    ledger: Annotated[
        Path | None, Option(help="Ledger that is charged with epsilon before anything is learned.")
    ] = None,
    compare: Annotated[
        bool, Option("--compare", help="Also measure in the report what a round costs with every other scheme.")
    ] = False,
    out: options.ModelOutOption = Path("out/learn"),
    resume: options.ResumeOption = False,
    record: Annotated[
        bool, Option("--record", help="Keep one round with every update in the clear, for `blindsight audit`.")
    ] = False,
) -> None:
    """Train one linear classifier from several owners by encrypted rounds; write model, statement and report.

    The owners share one collection out (--data, --path, --owners), or each brings its own:
    blindsight learn encrypted --owner north=DIR --owner east=DIR --owner west=DIR --public DIR
    """
    from blindsight.dp.ledger import Ledger
    from blindsight.learn.estimators import FederatedClassifier

    choice, sites = sums.check(), own.sites(collected, sharing)
    asked = vars(sums) | locals()
    learner = chosen(FederatedClassifier, asked, random_state=collected.seed, record=record or epsilon is None)
    data, owners = collected.name, collected.owners
    if sites is not None:
        data, owners = "own pictures", len(sites.owners)
    learner.check(owners)
    study, pictures = _study(collected, seen, attributes, sharing, sites)
    learner.set_params(multilabel=study.multilabel, classes=study.classes)
    described = asdict(collected) | asdict(seen) | {"data": data, "owners": owners, "attributes": attributes}
    described |= {"path": collected.path and str(collected.path.absolute()), "sharing": sharing, "scheme": sums.scheme}
    described |= {} if sites is None else {"sites": asdict(sites)}
    noise = ("epsilon", "delta", "unit", "clip", "colluders", "drop_outs") if epsilon is not None else ()
    described["protocol"] = {name: asked[name] for name in ("rounds", "sparsity", *noise)}
    write_json(out / "run.json", {"schema": "blindsight/run", "version": 1} | described)
    title = f"Learning {data} from {owners} owners by {sums.scheme}"
    learner.fit(
        study.owners,
        public=study.public,
        validation=study.test,
        ledger=None if ledger is None else Ledger(ledger),
        scope=data,
        checkpoint=out / "checkpoint" if resume else None,
        on_round=_told_and_kept(out, LiveTable(title, _COLUMNS)),
    )
    write_json(out / "history.json", [report.to_dict() for report in learner.history_])
    learner.model_.save(out / "model.npz")
    if pictures is not None:
        pictures.save(out / "pictures.npz")
    write_json(out / "statement.json", learner.statement_.to_dict())
    if learner.noise_ is not None:
        write_json(out / "noise.json", learner.noise_.to_dict() | {"delta": delta})
    if record and learner.recorded_ is not None:
        learner.recorded_.save(out / "recorded-round.npz")
    if learner.views_ or not (out / "report.html").exists():  # a finished run that was asked for again keeps its report
        _write_report(out, data, learner, owners, compare)
    before, final = learner.public_score_ or 0.0, learner.history_[-1].score or 0.0
    lines = [
        f"\nScheme {choice}.",
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


@app.command("network", example="learn network --model net.py:Net --epsilon 4 --delta 1e-5 --unit record")
def learn_network(
    collected: Collected,
    own: Own,
    model: Annotated[str, Option(help="Your torch module, as in net.py:Net; called with the number of classes.")],
    side: Annotated[int, Option(help="With --owner: size at which pictures are read.", min=8)] = 32,
    epsilon: Annotated[float | None, Option(help="Prove this much of the run; needs --delta and --unit.")] = None,
    delta: Annotated[float | None, Option(help="Of epsilon; below one over the number of pictures.")] = None,
    unit: Annotated[Literal["record", "participant"] | None, Option(help="What epsilon protects.")] = None,
    share: Annotated[float, Option(help="Fraction of the parameters in an upload.")] = 0.1,
    clip: Annotated[float | None, Option(help="Longest gradient or upload; default: by the public pictures.")] = None,
    batch_size: Annotated[int | None, Option(help="Pictures of an upload; default: from epsilon.", min=1)] = None,
    local_steps: Annotated[int | None, Option(help="Passes over them; default: 5.", min=1)] = None,
    learning_rate: Annotated[float | None, Option(help="Default: by the optimiser and epsilon.")] = None,
    decay: Annotated[float | None, Option(help="In the t-th upload the rate is divided by 1 + decay t.")] = None,
    optimiser: options.OptimiserOption = "sgd",
    passes: Annotated[int, Option(help="How often all pictures are gone through.", min=1)] = 1,
    scheme: options.HiddenOption = None,
    out: options.ModelOutOption = Path("out/network"),
) -> None:
    """Train your own torch module from several owners' pictures, with (epsilon, delta); write model and statement.

    blindsight learn network --model net.py:Net --owner north=DIR --owner east=DIR --owner west=DIR --public DIR
    """
    from blindsight.data.study import divide
    from blindsight.selective.accounting import number_of
    from blindsight.selective.estimator import SelectiveClassifier
    from blindsight.selective.networks import module_maker

    seed = collected.seed
    learner = chosen(SelectiveClassifier, locals(), module=None, random_state=seed)
    learner.check()
    make = module_maker(model)
    sites = own.sites(collected)
    with terminal_progress() as progress:
        if sites is None:
            dataset = collected.load(progress)
            division = divide(dataset, owners=collected.owners, random_state=seed)
        else:
            dataset, division = sites.read((), side=side, random_state=seed, progress=progress)
            tell_skipped(dataset)
    if dataset.images is None or dataset.labels is None:
        raise InputError(f"a network learns the classes of pictures; {dataset.name} has none.")
    names = division.names or tuple(f"owner {number}" for number in range(1, len(division.owners) + 1))
    learner.set_params(module=make(len(dataset.label_names), seed), classes=dataset.label_names)
    learner.fit(
        {name: dataset[rows] for name, rows in zip(names, division.owners, strict=True)},
        public=dataset[division.public],
        test=dataset[division.held_out],
    )
    place, _, name = model.rpartition(":")
    height, width = dataset.images.shape[1:3]
    kept = replace(
        learner.model_, side=height if height == width else None, source=f"{as_path(place).absolute()}:{name}"
    )
    kept.save(out / "network.npz")
    write_json(out / "statement.json", learner.statement_.to_dict())
    document = {"model": str(out / "network.npz"), "public_score": learner.public_score_, "score": learner.score_}
    show(
        document | {"plan": asdict(learner.plan_), "statement": learner.statement_.to_dict()},
        f"From {learner.public_score_:.1%} (public pictures) to {learner.score_:.1%} in {learner.uploads_} uploads, "
        f"{learner.plan_.batch_size} pictures and {number_of(learner.plan_.local_steps, 'local step')} each.",
        learner.statement_.headline(),
        f"Model and statement are in {out}.",
        _predict_hint(out, collected, own),
    )


@app.command("predict", example="learn predict out/learn photos")
def learn_predict(
    run: Annotated[Path, Argument(help="Folder that `learn encrypted` or `learn network` wrote.")],
    pictures: Annotated[Path, Argument(help="Folder of pictures, at any depth; their folders' names are not used.")],
    out: Annotated[Path | None, Option(help="Write the answers as a table (.csv) as well.", callback=to_file)] = None,
) -> None:
    """Say what the model of a run sees on pictures: blindsight learn predict out/learn PICTURES"""
    from blindsight.data import load
    from blindsight.learn.model import load_model

    if (run / "network.npz").is_file():
        from blindsight.selective.estimator import NetworkModel

        model: NetworkModel | PictureModel = NetworkModel.load(run / "network.npz")
    else:
        model = load_model(run)
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


@app.command("cluster", example="learn cluster --data digits --owners 5 --clusters 10")
def learn_clusters(
    collected: Collected,
    seen: Seen,
    sums: Sums,
    clusters: Annotated[int | None, Option(help="How many; default: the classes.", min=2)] = None,
    out: options.ModelOutOption = Path("out/cluster"),
    resume: options.ResumeOption = False,
) -> None:
    """Find clusters in several owners' pictures by encrypted rounds; classes, where known, only judge the result."""
    from blindsight.learn.estimators import FederatedKMeans

    choice = sums.check()
    study, _ = _study(collected, seen)
    if clusters is None and study.multilabel:
        raise InputError(f"{collected.name} has attributes and no classes: say how many clusters to find (--clusters).")
    many = clusters or len(study.answers)
    learner = chosen(FederatedKMeans, vars(sums), n_clusters=many, random_state=collected.seed)
    live = LiveTable(f"Clustering {collected.name} from {collected.owners} owners by {sums.scheme}", _COLUMNS)
    learner.fit(
        {name: pair[0] for name, pair in study.owners.items()},
        public=study.public[0],
        validation=None if study.multilabel else study.test,
        checkpoint=out / "checkpoint" if resume else None,
        on_round=lambda report: live.row(_cells(report)),
    )
    learner.model_.save(out / "model.npz")
    write_json(out / "statement.json", learner.statement_.to_dict())
    score = learner.history_[-1].score
    found = "" if score is None else f"Adjusted mutual information with the classes: {score:.3f}."
    show(
        {"model": str(out / "model.npz"), "score": score}
        | {"history": [report.to_dict() for report in learner.history_], "statement": learner.statement_.to_dict()},
        f"\nScheme {choice}.",
        found,
        learner.statement_.headline(),
        f"Model and statement are in {out}.",
    )


@app.command("compare", example="learn compare --data digits --epsilon 1 --delta 1e-5")
def learn_compare(
    collected: Collected,
    seen: Seen,
    epsilon: Annotated[float, Option(help="What PRR10 and RA12 claim to spend.")],
    delta: Annotated[float, Option(help="Their delta.")],
    attributes: AttributesOption = "",
    rounds: options.RoundsOption = 10,
    key_bits: options.KeyOption = 3072,
    sparsity: options.SparsityOption = 0.9,
) -> None:
    """Learn the same data by every installed scheme and every baseline: accuracy, cost and privacy side by side."""
    from blindsight.dp.accounting import check_positive
    from blindsight.learn.comparison import contest

    check_positive("epsilon", epsilon)
    if not 0 < delta < 1:
        raise InputError(f"delta must be in (0, 1); got {delta}.")
    asked: dict[str, Any] = {"rounds": rounds, "key_bits": key_bits, "sparsity": sparsity}
    Sums(**asked).check()
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


@app.command(
    "selective", example="learn selective --data digits --share 0.1 --noise record --epsilon 4 --delta 1e-5 --clip 1"
)
def learn_selective(
    collected: options.Collected,
    classes: Annotated[str, Option(help="Learn only these classes, by commas.")] = "",
    attribute: Annotated[str | None, Option(help="Learn this attribute's yes and no.")] = None,
    model: Annotated[
        str, Option(help="head (on features), cnn (from scratch), or your torch module, as in net.py:Net.")
    ] = "head",
    features: Annotated[
        str,
        Option("--features", help="Of a head: pixels, embedding, thumbnail, a path of an ONNX model or vgg16:WEIGHTS."),
    ] = "pixels",
    components: options.ComponentsOption = 64,
    optimiser: options.OptimiserOption = "sgd",
    learning_rate: Annotated[float | None, Option(help="Default: by the optimiser.")] = None,
    local_steps: Annotated[int, Option(help="Passes over each batch of 32 photos.", min=1)] = 5,
    decay: Annotated[float, Option(help="In the t-th upload the rate is divided by 1 + decay t.", min=0)] = 0.01,
    participants: Annotated[int, Option(help="How many people take photos.", min=1)] = 10,
    days: Annotated[int, Option(help="For how many days.", min=1)] = 28,
    initial: Annotated[float, Option(help="Fraction of the photos that are public, day 0.")] = 0.1,
    skew: Annotated[float | None, Option(help="Unequal classes: Dirichlet concentration.")] = None,
    share: Annotated[float, Option(help="theta_u: fraction of parameters uploaded.")] = 0.1,
    download: Annotated[float, Option(help="theta_d: fraction downloaded.")] = 1.0,
    select: Annotated[
        Literal["largest", "random", "threshold"], Option(help="Which parameters are uploaded.")
    ] = "largest",
    threshold: Annotated[float | None, Option(help="tau, for --select threshold.")] = None,
    bound: Annotated[float | None, Option(help="gamma: values are cut to +- this.")] = None,
    residual: Annotated[bool, Option("--residual", help="Send later what was not sent.")] = False,
    half: Annotated[bool, Option("--half", help="Upload float16.")] = False,
    half_download: Annotated[bool, Option("--half-download", help="Download float16.")] = False,
    order: Annotated[Literal["round-robin", "random", "asynchronous"], Option(help="Who comes when.")] = "round-robin",
    scheme: options.HiddenOption = None,
    noise: Annotated[
        Literal["none", "published", "laplace", "participant", "record"],
        Option(help="published or laplace: per parameter; participant or record: with a proof."),
    ] = "none",
    epsilon: Annotated[
        float | None,
        Option(help="Of the noise: per parameter and upload, or (with a proof) of all days."),
    ] = None,
    delta: Annotated[float | None, Option(help="Of all proven epsilons.")] = None,
    clip: Annotated[float | None, Option(help="Longest gradient of a photo, for record noise.")] = None,
    upload_clip: Annotated[float | None, Option(help="Longest upload, for participant noise.")] = None,
    epsilons: Annotated[str, Option(help="Also simulate methods with proven noise at these.")] = "",
    record: Annotated[bool, Option("--record", help="Keep what the server received, for `blindsight audit`.")] = False,
    out: Annotated[Path, Option(help="Folder of statement and report.", callback=to_folder)] = Path("out/selective"),
) -> None:
    """Keep a network up to date from people's photos, of which only chosen changes are shared; compare, day by day."""
    from blindsight.audit.selective_audit import ABOUT_SELECTIVE, VIEW, about_run, save_view
    from blindsight.selective.study import PhotoStudy, SharingOptions, SharingResult, Training, backbone
    from blindsight.sums.roles import forget

    given, seed, path = locals(), collected.seed, collected.path
    training = chosen(Training, given)
    asked = chosen(SharingOptions, given, epsilons=tuple(split_numbers(epsilons)))
    asked.check_participants(participants)
    plan: dict[str, Any] = {name: given[name] for name in ("participants", "days", "initial", "skew", "attribute")}
    plan["classes"] = split_names(classes)
    extractor = backbone(features, components=components, random_state=seed)
    with terminal_progress() as progress:
        study = PhotoStudy.prepare(
            collected.load(progress),
            extractor,
            training,
            **plan,
            random_state=seed,
            cache=cache_folder(),
            progress=progress,
        )
    title = f"Learning {collected.name} from {participants} participants, {study.dimension:,} parameters"
    live = LiveTable(title, ("day", *_SHOWN))

    def show_day(day: int, found: "Mapping[str, float]") -> None:
        live.row((str(day), *(f"{found[name]:.3f}" for name in _SHOWN)))

    messages: list[bytes] = []
    result = SharingResult.of(study, asked, record=messages.append if record else forget, on_day=show_day)
    about = about_run(
        study,
        data=collected.name,
        path=None if path is None else str(path.absolute()),
        count=collected.count,
        seed=seed,
        features=features,
        components=components,
        training=asdict(training),
        plan=plan,
        sharing=asdict(asked),
    )
    write_json(out / ABOUT_SELECTIVE, about)
    if record:
        save_view(out / VIEW, messages)
    _show_sharing(result, out, collected.name, seed)


def _told_and_kept(out: Path, live: LiveTable) -> "OnRound":
    reports: list[RoundReport] = []

    def after_round(report: "RoundReport") -> None:
        reports.append(report)
        if len(reports) == report.round:  # of a resumed run the rounds before are known only when it ends
            write_json(out / "history.json", [one.to_dict() for one in reports])
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
    from blindsight.data.study import Study, divide
    from blindsight.learn.model import Pictures

    asked, seed = split_names(attributes), collected.seed
    made = pipeline(seen.features, components=seen.components, random_state=seed)
    with terminal_progress() as progress:
        if sites is None:
            dataset = collected.load(progress)
            division = divide(dataset, owners=collected.owners, attributes=asked, sharing=sharing, random_state=seed)
        else:
            dataset, division = sites.read(asked, side=reading_side(made), random_state=seed, progress=progress)
            tell_skipped(dataset)
        study = Study.prepare(dataset, division, made, cache=cache_folder(), progress=progress)
    if dataset.images is None:
        return study, None
    height, width = dataset.images.shape[1:3]
    return study, Pictures(seen.features, made, study.answers, height if height == width else None)


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
        f"{report.sparsity:.1%}",
        f"{report.sent['members'] / max(len(report.contributors), 1) / 1e3:.1f}",
        *(f"{report.seconds[role]:.2f}" for role in ("training", "members", "aggregator", "key generator")),
    )


def _write_report(out: Path, data: str, learner: "FederatedClassifier", owners: int, compare: bool) -> None:
    """Write the run's report, for its owner alone; to compare, measure what every scheme costs at this size."""
    from blindsight.report import write_report
    from blindsight.report.learning import LearningResult, learning_chapter

    costs: Mapping[str, Cost] = {}
    if compare:
        from blindsight.learn.comparison import round_costs

        weights, key_bits = learner.model_.weights.size, learner.key_bits
        with terminal_progress() as progress:
            costs = round_costs(weights, owners, sparsity=learner.sparsity, key_bits=key_bits, progress=progress)
    chapter = learning_chapter(LearningResult.of(learner, owners=owners, costs=costs))
    facts = {"Command": "blindsight learn encrypted", "Data": data, "Seed": str(learner.random_state)}
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
