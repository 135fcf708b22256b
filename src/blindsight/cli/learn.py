"""`blindsight learn`: owners train together, and nobody sees their data or their updates."""

import json as json_module
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from blindsight.cli.selective import learn_selective
from blindsight.cli.terminal import DebugOption, JsonOption, LiveTable, SeedOption, show, table, terminal_progress
from blindsight.errors import InputError, UnknownNameError
from blindsight.files import atomic_writer, cache_folder, check_writable

if TYPE_CHECKING:  # the learners bring scikit-learn, which other commands should not wait for
    from blindsight.data.partition import Sharing
    from blindsight.learn.classifier import FederatedClassifier
    from blindsight.learn.contest import ContestRow
    from blindsight.learn.rounds import RoundReport
    from blindsight.learn.runs import OnRound
    from blindsight.learn.study import Study
    from blindsight.statement import PrivacyStatement

app = typer.Typer(help="Train together without seeing each other's data or updates.", no_args_is_help=True)

app.command("selective")(learn_selective)

DataOption = Annotated[str, typer.Option("--data", help="Name of the collection; see `blindsight data list`.")]
PathOption = Annotated[
    Path | None, typer.Option("--path", help="Where the collection lies, if it is read from a path.")
]
CountOption = Annotated[int | None, typer.Option("-n", "--count", help="At most this many pictures.", min=1)]
FeaturesOption = Annotated[str, typer.Option("--features", help="pixels, embedding, or the path of an ONNX model.")]
ComponentsOption = Annotated[int, typer.Option("--components", help="Principal components of pixels at most.", min=1)]
AttributesOption = Annotated[str, typer.Option("--attributes", help="Learn these attributes instead of the classes.")]
OwnersOption = Annotated[int, typer.Option("--owners", help="How many owners share the data out.", min=1)]
SharingOption = Annotated[
    Literal["equal", "by-class", "by-person"] | None,
    typer.Option("--sharing", help="How; by default by person where persons are known, else equally."),
]
RoundsOption = Annotated[int, typer.Option("--rounds", help="How many rounds.", min=1)]
SchemeOption = Annotated[str, typer.Option("--scheme", help="block-dphe, dphe, bfv, masks or plain.")]
KeyOption = Annotated[int, typer.Option("--key-bits", help="Length of the Paillier key: 2048, 3072 or 4096.")]
SparsityOption = Annotated[float, typer.Option("--sparsity", help="Share of weights an owner does not send.")]
OutOption = Annotated[Path, typer.Option("--out", help="Folder of model, statement and report.")]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Keep checkpoints there, and go on from the last one.")]

_COLUMNS = ("round", "score", "sparsity", "kB/owner", "training s", "owners s", "aggregator s", "key generator s")


@app.command("encrypted")
def learn_encrypted(
    data: DataOption = "digits",
    path: PathOption = None,
    count: CountOption = None,
    features: FeaturesOption = "pixels",
    components: ComponentsOption = 200,
    attributes: AttributesOption = "",
    owners: OwnersOption = 5,
    sharing: SharingOption = None,
    rounds: RoundsOption = 10,
    scheme: SchemeOption = "block-dphe",
    key_bits: KeyOption = 3072,
    sparsity: SparsityOption = 0.9,
    minimum_per_position: Annotated[
        int, typer.Option("--minimum-per-position", help="Withhold weights that fewer owners changed.", min=1)
    ] = 1,
    out: OutOption = Path("out/learn"),
    resume: ResumeOption = False,
    record: Annotated[
        bool, typer.Option("--record", help="Keep one round with every update in the clear, for `blindsight audit`.")
    ] = False,
    seed: SeedOption = 0,
    json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Train one linear classifier from several owners by encrypted rounds; write model, statement and report."""
    from blindsight.learn.classifier import FederatedClassifier

    _prepare(out, scheme, key_bits, sparsity)
    study = _study(data, path, count, (features, components), attributes, owners, sharing, seed)
    described = {"data": data, "path": None if path is None else str(path.absolute()), "count": count, "seed": seed}
    described |= {"features": features, "components": components, "attributes": attributes, "owners": owners}
    _write_json(out / "run.json", {"schema": "blindsight/run", "version": 1} | described | {"sharing": sharing})
    learner = FederatedClassifier(
        scheme,
        rounds=rounds,
        sparsity=sparsity,
        key_bits=key_bits,
        multilabel=study.multilabel,
        classes=study.classes,
        minimum_per_position=minimum_per_position,
        random_state=seed,
        record=True,
    )
    learner.fit(
        study.owners,
        public=study.public,
        validation=study.test,
        checkpoint=out / "checkpoint" if resume else None,
        on_round=_told_and_kept(out, LiveTable(f"Learning {data} from {owners} owners by {scheme}", _COLUMNS)),
    )
    _write_history(out, learner.history_)
    learner.model_.save(out / "model.npz")
    _write_statement(out, learner.statement_)
    if record and learner.recorded_ is not None:
        learner.recorded_.save(out / "recorded-round.npz")
    if learner.views_ or not (out / "report.html").exists():  # a finished run that was asked for again keeps its report
        _write_report(out, data, learner, owners)
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
        f"\nFrom {learner.public_score_:.1%} (public data) to {final.score:.1%} in {len(learner.history_)} rounds.",
        learner.statement_.headline(),
        f"Model, statement and report are in {out}.",
    )


@app.command("cluster")
def learn_clusters(
    data: DataOption = "digits",
    path: PathOption = None,
    count: CountOption = None,
    features: FeaturesOption = "pixels",
    components: ComponentsOption = 200,
    clusters: Annotated[int | None, typer.Option("--clusters", help="How many; default: the classes.", min=2)] = None,
    owners: OwnersOption = 5,
    rounds: RoundsOption = 10,
    scheme: SchemeOption = "block-dphe",
    key_bits: KeyOption = 3072,
    sparsity: SparsityOption = 0.9,
    out: OutOption = Path("out/cluster"),
    resume: ResumeOption = False,
    seed: SeedOption = 0,
    json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Find clusters in several owners' pictures by encrypted rounds; classes, where known, only judge the result."""
    from blindsight.learn.kmeans import FederatedKMeans

    _prepare(out, scheme, key_bits, sparsity)
    study = _study(data, path, count, (features, components), "", owners, None, seed)
    if clusters is None and study.multilabel:
        raise InputError(f"{data} has attributes and no classes: say how many clusters to find (--clusters).")
    learner = FederatedKMeans(
        clusters or len(study.answers),
        scheme=scheme,
        rounds=rounds,
        sparsity=sparsity,
        key_bits=key_bits,
        random_state=seed,
    )
    live = LiveTable(f"Clustering {data} from {owners} owners by {scheme}", _COLUMNS)
    learner.fit(
        {name: pair[0] for name, pair in study.owners.items()},
        public=study.public[0],
        validation=None if study.multilabel else study.test,
        checkpoint=out / "checkpoint" if resume else None,
        on_round=lambda report: live.row(_cells(report)),
    )
    learner.model_.save(out / "model.npz")
    _write_statement(out, learner.statement_)
    final = learner.history_[-1]
    document = {
        "model": str(out / "model.npz"),
        "score": final.score,
        "history": [report.to_dict() for report in learner.history_],
        "statement": learner.statement_.to_dict(),
    }
    found = "" if final.score is None else f"\nAdjusted mutual information with the classes: {final.score:.3f}."
    show(document, found, learner.statement_.headline(), f"Model and statement are in {out}.")


@app.command("compare")
def learn_compare(
    epsilon: Annotated[float, typer.Option("--epsilon", help="What PRR10 and RA12 claim to spend.")],
    delta: Annotated[float, typer.Option("--delta", help="Their delta.")],
    data: DataOption = "digits",
    path: PathOption = None,
    count: CountOption = None,
    features: FeaturesOption = "pixels",
    components: ComponentsOption = 200,
    attributes: AttributesOption = "",
    owners: OwnersOption = 5,
    rounds: RoundsOption = 10,
    key_bits: KeyOption = 3072,
    sparsity: SparsityOption = 0.9,
    seed: SeedOption = 0,
    json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Learn the same data by every installed scheme and every baseline: accuracy, cost and privacy side by side."""
    from blindsight.dp.accounting import check_positive
    from blindsight.learn.contest import contest

    check_positive("epsilon", epsilon)
    if not 0 < delta < 1:
        raise InputError(f"delta must be in (0, 1); got {delta}.")
    _check_wishes("block-dphe", key_bits, sparsity)
    study = _study(data, path, count, (features, components), attributes, owners, None, seed)
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
    cells = [(row.method, f"{row.score:.3f}", f"{row.seconds:.1f}", _megabytes(row), _privacy(row)) for row in rows]
    document = {"methods": [_contest_document(row) for row in rows]}
    show(document, table(f"Learning {data}", columns, cells, numbers=columns[1:4]))


def _told_and_kept(out: Path, live: LiveTable) -> "OnRound":
    """Return what shows every round and keeps it for whoever watches the folder."""
    played: list[RoundReport] = []

    def after_round(report: "RoundReport") -> None:
        played.append(report)
        if len(played) == report.round:  # of a resumed run the rounds before are known only when it ends
            _write_history(out, played)
        live.row(_cells(report))

    return after_round


def _prepare(out: Path, scheme: str, key_bits: int, sparsity: float) -> None:
    """Refuse wishes that cannot be met, and a folder that cannot be written, before anything is computed."""
    _check_wishes(scheme, key_bits, sparsity)
    check_writable(out)


def _check_wishes(scheme: str, key_bits: int, sparsity: float) -> None:
    from blindsight.crypto.paillier import check_key_bits
    from blindsight.learn.aggregation import SCHEMES

    if scheme not in SCHEMES:
        raise UnknownNameError("aggregation scheme", scheme, SCHEMES)
    check_key_bits(key_bits)
    if not 0 <= sparsity < 1:
        raise InputError(f"sparsity must be in [0, 1); got {sparsity}.")


def _study(
    data: str,
    path: Path | None,
    count: int | None,
    features: tuple[str, int],
    attributes: str,
    owners: int,
    sharing: "Sharing | None",
    seed: int,
) -> "Study":
    from blindsight.data import load, pipeline
    from blindsight.learn.study import Study, divide

    asked = [name.strip() for name in attributes.split(",") if name.strip()]
    kind, components = features
    with terminal_progress() as progress:
        dataset = load(data, path=path, count=count, random_state=seed, progress=progress)
        division = divide(dataset, owners=owners, attributes=asked, sharing=sharing, random_state=seed)
        made = pipeline(kind, components=components, random_state=seed)
        return Study.prepare(dataset, division, made, cache=cache_folder(), progress=progress)


def _cells(report: "RoundReport") -> tuple[str, ...]:
    return (
        str(report.round),
        "-" if report.score is None else f"{report.score:.3f}",
        f"{report.sparsity:.1%}",
        f"{report.sent['users'] / max(len(report.contributors), 1) / 1e3:.1f}",
        *(f"{report.seconds[role]:.2f}" for role in ("training", "users", "aggregator", "key generator")),
    )


def _megabytes(row: "ContestRow") -> str:
    return "-" if row.megabytes is None else f"{row.megabytes:.2f}"


def _privacy(row: "ContestRow") -> str:
    return "-" if row.statement is None else row.statement.headline()


def _contest_document(row: "ContestRow") -> dict[str, Any]:
    statement = None if row.statement is None else row.statement.to_dict()
    return {
        "method": row.method,
        "score": row.score,
        "cpu_seconds": row.seconds,
        "megabytes_per_owner": row.megabytes,
        "statement": statement,
    }


def _write_report(out: Path, data: str, learner: "FederatedClassifier", owners: int) -> None:
    """Measure what the schemes cost for a model of this size, and write the run's report for its owner alone."""
    from blindsight.learn.contest import round_costs
    from blindsight.report import write_report
    from blindsight.report.learning import LearningResult, learning_chapter

    weights, sparsity, key_bits = learner.model_.weights.size, learner.sparsity, learner.key_bits
    with terminal_progress() as progress:
        costs = round_costs(weights, owners, sparsity=sparsity, key_bits=key_bits, progress=progress)
    chapter = learning_chapter(LearningResult.of(learner, owners=owners, costs=costs))
    facts = {"Command": "blindsight learn encrypted", "Data": data, "Seed": str(learner.random_state)}
    write_report(out / "report.html", f"Learning {data} together", [chapter], facts=facts, private=True)


def _write_statement(out: Path, statement: "PrivacyStatement") -> None:
    _write_json(out / "statement.json", statement.to_dict())


def _write_history(out: Path, history: "Sequence[RoundReport]") -> None:
    """Keep the rounds so far, whole at any time, where a service that shows the run looks for them."""
    _write_json(out / "history.json", [report.to_dict() for report in history])


def _write_json(path: Path, document: dict[str, Any] | list[dict[str, Any]]) -> None:
    with atomic_writer(path) as stream:
        stream.write(json_module.dumps(document, indent=2, ensure_ascii=False).encode())
