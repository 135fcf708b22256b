"""`blindsight learn`: owners train together, and nobody sees their data or their updates."""

import csv
import io
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

from blindsight.cli import options
from blindsight.cli.options import (
    Commands,
    LiveTable,
    chosen,
    show,
    split_names,
    split_numbers,
    table,
    terminal_progress,
    write_json,
)
from blindsight.errors import InputError
from blindsight.files import as_path, atomic_writer, cache_folder, check_writable

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


@app.command("encrypted", example="learn encrypted --owner north=DIR --owner east=DIR --owner west=DIR --public DIR")
def learn_encrypted(
    data: options.DataOption = "digits",
    path: options.PathOption = None,
    count: options.CountOption = None,
    owner: options.SiteOption = None,
    public: options.SitePublicOption = None,
    test: options.SiteTestOption = None,
    features: options.FeaturesOption = "pixels",
    components: options.ComponentsOption = 200,
    attributes: options.AttributesOption = "",
    owners: options.OwnersOption = 5,
    sharing: Annotated[
        Literal["equal", "by-class", "by-person"] | None,
        Option(help="How; by default by person where persons are known, else equally."),
    ] = None,
    rounds: options.RoundsOption = 10,
    scheme: options.SchemeOption = "masks",
    key_bits: options.KeyOption = 3072,
    keys: options.KeysOption = "subgroup",
    sparsity: options.SparsityOption = None,
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
    seed: options.SeedOption = 0,
) -> None:
    """Train one linear classifier from several owners by encrypted rounds; write model, statement and report.

    The owners share one collection out (--data, --path, --owners), or each brings its own:
    blindsight learn encrypted --owner north=DIR --owner east=DIR --owner west=DIR --public DIR
    """
    from blindsight.dp.ledger import Ledger
    from blindsight.learn.estimators import FederatedClassifier
    from blindsight.learn.owners import name_owners

    choice = _check_options(scheme, key_bits, sparsity, keys)
    sites = _sites(owner, public, test, shared=data != "digits" or any((path, sharing, count)))
    learner = chosen(FederatedClassifier, locals(), random_state=seed, record=record or epsilon is None)
    if sites is not None:
        name_owners(sites.owners)
        data, owners = "own pictures", len(sites.owners)
    learner.check(owners)
    check_writable(out)
    study, pictures = _study(data, path, count, (features, components), attributes, owners, sharing, seed, sites)
    learner.set_params(multilabel=study.multilabel, classes=study.classes)
    where = None if path is None else str(path.absolute())
    described: dict[str, Any] = {"data": data, "path": where, "count": count, "seed": seed}
    described |= {"features": features, "components": components, "attributes": attributes, "owners": owners}
    described |= {} if sites is None else {"sites": asdict(sites)}
    described |= {"sharing": sharing, "scheme": scheme, "protocol": {"rounds": rounds, "sparsity": sparsity}}
    if epsilon is not None:
        asked = {"epsilon": epsilon, "delta": delta, "unit": unit, "clip": clip}
        described["protocol"] |= asked | {"colluders": colluders, "drop_outs": drop_outs}
    write_json(out / "run.json", {"schema": "blindsight/run", "version": 1} | described)
    learner.fit(
        study.owners,
        public=study.public,
        validation=study.test,
        ledger=None if ledger is None else Ledger(ledger),
        scope=data,
        checkpoint=out / "checkpoint" if resume else None,
        on_round=_told_and_kept(out, LiveTable(f"Learning {data} from {owners} owners by {scheme}", _COLUMNS)),
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
    final = learner.history_[-1]
    document = {
        "model": str(out / "model.npz"),
        "report": str(out / "report.html"),
        "public_score": learner.public_score_,
        "score": final.score,
        "history": [report.to_dict() for report in learner.history_],
        "statement": learner.statement_.to_dict(),
    }
    show(
        document,
        f"\nScheme {choice}.",
        f"From {learner.public_score_:.1%} (public data) to {final.score:.1%} in {len(learner.history_)} rounds.",
        learner.statement_.headline(),
        f"Model, statement and report are in {out}."
        + ("" if pictures is None else f"\nApply it to pictures: blindsight learn predict {out} FOLDER"),
    )


@app.command(
    "network",
    example="learn network --model net.py:Net --epsilon 4 --delta 1e-5 --unit record",
)
def learn_network(
    model: Annotated[str, Option(help="Your torch module, as in net.py:Net; called with the number of classes.")],
    data: options.DataOption = "digits",
    path: options.PathOption = None,
    count: options.CountOption = None,
    owner: options.SiteOption = None,
    public: options.SitePublicOption = None,
    test: options.SiteTestOption = None,
    owners: options.OwnersOption = 5,
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
    optimiser: Annotated[Literal["sgd", "rmsprop", "adam"], Option(help="How participants descend.")] = "sgd",
    passes: Annotated[int, Option(help="How often all pictures are gone through.", min=1)] = 1,
    scheme: Annotated[str | None, Option(help="Add uploads up unseen: block-dphe, dphe, bfv or masks.")] = None,
    out: options.ModelOutOption = Path("out/network"),
    seed: options.SeedOption = 0,
) -> None:
    """Train your own torch module from several owners' pictures, with (epsilon, delta); write model and statement.

    blindsight learn network --model net.py:Net --owner north=DIR --owner east=DIR --owner west=DIR --public DIR
    """
    from dataclasses import replace

    from blindsight.data.study import divide
    from blindsight.selective.accounting import number_of
    from blindsight.selective.estimator import SelectiveClassifier
    from blindsight.selective.networks import module_maker

    learner = chosen(SelectiveClassifier, locals(), module=None, random_state=seed)
    learner.check()
    make = module_maker(model)
    sites = _sites(owner, public, test, shared=data != "digits" or any((path, count)))
    check_writable(out)
    with terminal_progress() as progress:
        if sites is None:
            from blindsight.data import load

            dataset = load(data, path=path, count=count, random_state=seed, progress=progress)
            division = divide(dataset, owners=owners, random_state=seed)
        else:
            dataset, division = sites.read((), side=side, random_state=seed, progress=progress)
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
        f"Model and statement are in {out}.\nApply it to pictures: blindsight learn predict {out} FOLDER",
    )


@app.command("predict", example="learn predict out/learn photos")
def learn_predict(
    run: Annotated[Path, Argument(help="Folder that `learn encrypted` or `learn network` wrote.")],
    pictures: Annotated[Path, Argument(help="Folder of pictures, at any depth; their folders' names are not used.")],
    out: Annotated[Path | None, Option(help="Write the answers as a table (.csv) as well.")] = None,
) -> None:
    """Say what the model of a run sees on pictures: blindsight learn predict out/learn PICTURES"""
    from blindsight.data import load
    from blindsight.learn.model import load_model

    if out is not None:
        check_writable(out.parent)
    if (run / "network.npz").is_file():
        from blindsight.selective.estimator import NetworkModel

        model: NetworkModel | PictureModel = NetworkModel.load(run / "network.npz")
    else:
        model = load_model(run)
    several = model.answers if model.multilabel else ()
    with terminal_progress() as progress:
        found = load("folder", path=pictures, size=model.side, keep_copies=True, progress=progress)
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
    document = {"answers": named, "skipped": list(found.skipped)}
    skipped = [f"{len(found.skipped)} files could not be read."] if found.skipped else []
    show(document, table(f"{len(rows)} pictures", columns, rows), *skipped)


@app.command("cluster", example="learn cluster --data digits --owners 5 --clusters 10")
def learn_clusters(
    data: options.DataOption = "digits",
    path: options.PathOption = None,
    count: options.CountOption = None,
    features: options.FeaturesOption = "pixels",
    components: options.ComponentsOption = 200,
    clusters: Annotated[int | None, Option(help="How many; default: the classes.", min=2)] = None,
    owners: options.OwnersOption = 5,
    rounds: options.RoundsOption = 10,
    scheme: options.SchemeOption = "masks",
    key_bits: options.KeyOption = 3072,
    keys: options.KeysOption = "subgroup",
    sparsity: options.SparsityOption = None,
    out: options.ModelOutOption = Path("out/cluster"),
    resume: options.ResumeOption = False,
    seed: options.SeedOption = 0,
) -> None:
    """Find clusters in several owners' pictures by encrypted rounds; classes, where known, only judge the result."""
    from blindsight.learn.estimators import FederatedKMeans

    choice = _check_options(scheme, key_bits, sparsity, keys)
    check_writable(out)
    study, _ = _study(data, path, count, (features, components), "", owners, None, seed)
    if clusters is None and study.multilabel:
        raise InputError(f"{data} has attributes and no classes: say how many clusters to find (--clusters).")
    learner = chosen(FederatedKMeans, locals(), n_clusters=clusters or len(study.answers), random_state=seed)
    live = LiveTable(f"Clustering {data} from {owners} owners by {scheme}", _COLUMNS)
    learner.fit(
        {name: pair[0] for name, pair in study.owners.items()},
        public=study.public[0],
        validation=None if study.multilabel else study.test,
        checkpoint=out / "checkpoint" if resume else None,
        on_round=lambda report: live.row(_cells(report)),
    )
    learner.model_.save(out / "model.npz")
    write_json(out / "statement.json", learner.statement_.to_dict())
    final = learner.history_[-1]
    document = {
        "model": str(out / "model.npz"),
        "score": final.score,
        "history": [report.to_dict() for report in learner.history_],
        "statement": learner.statement_.to_dict(),
    }
    found = "" if final.score is None else f"Adjusted mutual information with the classes: {final.score:.3f}."
    show(document, f"\nScheme {choice}.", found, learner.statement_.headline(), f"Model and statement are in {out}.")


@app.command("compare", example="learn compare --data digits --epsilon 1 --delta 1e-5")
def learn_compare(
    epsilon: Annotated[float, Option(help="What PRR10 and RA12 claim to spend.")],
    delta: Annotated[float, Option(help="Their delta.")],
    data: options.DataOption = "digits",
    path: options.PathOption = None,
    count: options.CountOption = None,
    features: options.FeaturesOption = "pixels",
    components: options.ComponentsOption = 200,
    attributes: options.AttributesOption = "",
    owners: options.OwnersOption = 5,
    rounds: options.RoundsOption = 10,
    key_bits: options.KeyOption = 3072,
    sparsity: options.SparsityOption = 0.9,
    seed: options.SeedOption = 0,
) -> None:
    """Learn the same data by every installed scheme and every baseline: accuracy, cost and privacy side by side."""
    from blindsight.dp.accounting import check_positive
    from blindsight.learn.comparison import contest

    check_positive("epsilon", epsilon)
    if not 0 < delta < 1:
        raise InputError(f"delta must be in (0, 1); got {delta}.")
    _check_options("masks", key_bits, sparsity)
    study, _ = _study(data, path, count, (features, components), attributes, owners, None, seed)
    with terminal_progress() as progress:
        rows = contest(
            study,
            epsilon=epsilon,
            delta=delta,
            rounds=rounds,
            sparsity=sparsity,
            key_bits=key_bits,
            random_state=seed,
            progress=progress,
        )
    columns = ("method", "accuracy", "CPU s", "MB/owner", "privacy")
    cells = [
        (
            *(row.method, f"{row.score:.3f}", f"{row.seconds:.1f}"),
            "-" if row.megabytes is None else f"{row.megabytes:.2f}",
            "-" if row.statement is None else row.statement.headline(),
        )
        for row in rows
    ]
    show({"methods": [row.to_dict() for row in rows]}, table(f"Learning {data}", columns, cells, numbers=columns[1:4]))


@app.command(
    "selective", example="learn selective --data digits --share 0.1 --noise record --epsilon 4 --delta 1e-5 --clip 1"
)
def learn_selective(
    data: options.DataOption = "digits",
    path: options.PathOption = None,
    count: options.CountOption = None,
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
    optimiser: Annotated[Literal["sgd", "rmsprop", "adam"], Option(help="How participants descend.")] = "sgd",
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
    scheme: Annotated[str | None, Option(help="Add uploads up unseen: block-dphe, dphe, bfv or masks.")] = None,
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
    out: Annotated[Path, Option(help="Folder of statement and report.")] = Path("out/selective"),
    seed: options.SeedOption = 0,
) -> None:
    """Keep a network up to date from people's photos, of which only chosen changes are shared; compare, day by day."""
    from blindsight.audit.selective_audit import ABOUT_SELECTIVE, VIEW, about_run, save_view
    from blindsight.data import load
    from blindsight.selective.study import PhotoStudy, SharingOptions, SharingResult, Training, backbone
    from blindsight.sums.roles import forget

    given = locals()
    training = chosen(Training, given)
    asked = chosen(SharingOptions, given, epsilons=tuple(split_numbers(epsilons)))
    asked.check_participants(participants)
    plan: dict[str, Any] = {
        "participants": participants,
        "days": days,
        "initial": initial,
        "skew": skew,
        "classes": split_names(classes),
        "attribute": attribute,
    }
    extractor = backbone(features, components=components, random_state=seed)
    check_writable(out)
    with terminal_progress() as progress:
        study = PhotoStudy.prepare(
            load(data, path=path, count=count, random_state=seed, progress=progress),
            extractor,
            training,
            **plan,
            random_state=seed,
            cache=cache_folder(),
            progress=progress,
        )
    title = f"Learning {data} from {participants} participants, {study.dimension:,} parameters"
    live = LiveTable(title, ("day", *_SHOWN))

    def show_day(day: int, found: "Mapping[str, float]") -> None:
        live.row((str(day), *(f"{found[name]:.3f}" for name in _SHOWN)))

    messages: list[bytes] = []
    result = SharingResult.of(study, asked, record=messages.append if record else forget, on_day=show_day)
    about = about_run(
        study,
        data=data,
        path=None if path is None else str(path.absolute()),
        count=count,
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
    _show_sharing(result, out, data, seed)


def _told_and_kept(out: Path, live: LiveTable) -> "OnRound":
    reports: list[RoundReport] = []

    def after_round(report: "RoundReport") -> None:
        reports.append(report)
        if len(reports) == report.round:  # of a resumed run the rounds before are known only when it ends
            write_json(out / "history.json", [one.to_dict() for one in reports])
        live.row(_cells(report))

    return after_round


def _check_options(scheme: str, key_bits: int, sparsity: float | None, keys: str = "subgroup") -> "Choice":
    from blindsight.crypto.paillier import check_key_bits, check_keys
    from blindsight.learn.comparison import choose_scheme

    choice = choose_scheme(scheme)
    check_key_bits(key_bits)
    check_keys(keys)
    if sparsity is not None and not 0 <= sparsity < 1:
        raise InputError(f"sparsity must be in [0, 1); got {sparsity}.")
    return choice


def _sites(owners: list[str] | None, public: Path | None, test: Path | None, *, shared: bool) -> "Sites | None":
    """Return where the owners' own pictures lie, or None where they share one collection out, as `shared` asks."""
    from blindsight.data.study import Sites

    if not owners:
        if public is not None or test is not None:
            raise InputError("--public and --test belong to owners with pictures of their own. Name them by --owner.")
        return None
    if shared:
        raise InputError("with --owner each brings its own pictures. Leave --data, --path, --count and --sharing out.")
    named = dict(owner.split("=", 1) for owner in owners if "=" in owner)
    if len(named) < len(owners) or not all(named) or not all(named.values()):
        raise InputError(f"--owner is NAME=PATH, once for each name; got {', '.join(owners)}.")
    if public is None:
        raise InputError("owners need public pictures that say what the classes are. Name them by --public.")
    places = {name: str(as_path(path).absolute()) for name, path in named.items()}
    return Sites(places, str(public.absolute()), None if test is None else str(test.absolute()))


def _study(
    data: str,
    path: Path | None,
    count: int | None,
    features: tuple[str, int],
    attributes: str,
    owners: int,
    sharing: "Sharing | None",
    seed: int,
    sites: "Sites | None" = None,
) -> "tuple[Study, Pictures | None]":
    """Return everybody's features, and how pictures become such, unless they came ready-made."""
    from blindsight.data import load, pipeline
    from blindsight.data.features import reading_side
    from blindsight.data.study import Study, divide
    from blindsight.learn.model import Pictures

    kind, components = features
    asked = split_names(attributes)
    made = pipeline(kind, components=components, random_state=seed)
    with terminal_progress() as progress:
        if sites is None:
            dataset = load(data, path=path, count=count, random_state=seed, progress=progress)
            division = divide(dataset, owners=owners, attributes=asked, sharing=sharing, random_state=seed)
        else:
            dataset, division = sites.read(asked, side=reading_side(made), random_state=seed, progress=progress)
        study = Study.prepare(dataset, division, made, cache=cache_folder(), progress=progress)
    if dataset.images is None:
        return study, None
    height, width = dataset.images.shape[1:3]
    return study, Pictures(kind, made, study.answers, height if height == width else None)


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
    from blindsight.selective.accounting import figure
    from blindsight.selective.study import OURS

    statement = result.timeline.method(OURS).statement
    facts = {"Command": "blindsight learn selective", "Data": data, "Seed": str(seed)}
    write_report(out / "report.html", f"Sharing what was learned from {data}", [sharing_chapter(result)], facts=facts)
    write_json(out / "statement.json", statement.to_dict())
    columns, rows = result.timeline.rows((result.days,))
    costs = [(row.what, figure(row.basic), figure(row.composed)) for row in result.cost.rows()]
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
