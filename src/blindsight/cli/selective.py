"""`blindsight learn selective`: participants of a network share a little of what they learned, day after day."""

import json as json_module
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from blindsight.cli.terminal import DebugOption, JsonOption, LiveTable, SeedOption, show, table, terminal_progress
from blindsight.errors import InputError
from blindsight.files import atomic_writer, cache_folder, check_writable

if TYPE_CHECKING:
    from blindsight.learn.selective.accounting import SharingCost
    from blindsight.learn.timeline.photostudy import PhotoStudy
    from blindsight.learn.timeline.wishes import SharingWish
    from blindsight.report.learning import SharingResult

_SHOWN = ("centralised", "never updated", "local only", "selective sharing", "FedAvg, equal uploads")


def learn_selective(
    data: Annotated[str, typer.Option("--data", help="Name of the collection; see `blindsight data list`.")] = "digits",
    path: Annotated[Path | None, typer.Option("--path", help="Where the collection lies, if read from a path.")] = None,
    count: Annotated[int | None, typer.Option("-n", "--count", help="At most this many pictures.", min=1)] = None,
    classes: Annotated[str, typer.Option("--classes", help="Learn only these classes, by commas.")] = "",
    attribute: Annotated[str | None, typer.Option("--attribute", help="Learn this attribute's yes and no.")] = None,
    model: Annotated[
        Literal["head", "cnn"], typer.Option("--model", help="A new head on features, or a network from scratch.")
    ] = "head",
    features: Annotated[
        str,
        typer.Option(
            "--features", help="Of a head: pixels, embedding, thumbnail, a path of an ONNX model or vgg16:WEIGHTS."
        ),
    ] = "pixels",
    components: Annotated[
        int, typer.Option("--components", help="Principal components of pixels at most.", min=1)
    ] = 64,
    optimiser: Annotated[
        Literal["sgd", "rmsprop", "adam"], typer.Option("--optimiser", help="How participants descend.")
    ] = "sgd",
    learning_rate: Annotated[float | None, typer.Option("--learning-rate", help="Default: by the optimiser.")] = None,
    participants: Annotated[int, typer.Option("--participants", help="How many people take photos.", min=1)] = 10,
    days: Annotated[int, typer.Option("--days", help="For how many days.", min=1)] = 28,
    initial: Annotated[float, typer.Option("--initial", help="Fraction of the photos that are public, day 0.")] = 0.1,
    skew: Annotated[float | None, typer.Option("--skew", help="Unequal classes: Dirichlet concentration.")] = None,
    share: Annotated[float, typer.Option("--share", help="theta_u: fraction of parameters uploaded.")] = 0.1,
    download: Annotated[float, typer.Option("--download", help="theta_d: fraction downloaded.")] = 1.0,
    select: Annotated[
        Literal["largest", "random", "threshold"], typer.Option("--select", help="Which parameters are uploaded.")
    ] = "largest",
    threshold: Annotated[float | None, typer.Option("--threshold", help="tau, for --select threshold.")] = None,
    bound: Annotated[float | None, typer.Option("--bound", help="gamma: values are cut to +- this.")] = None,
    residual: Annotated[bool, typer.Option("--residual", help="Send later what was not sent.")] = False,
    half: Annotated[bool, typer.Option("--half", help="Send float16.")] = False,
    order: Annotated[
        Literal["round-robin", "random", "asynchronous"], typer.Option("--order", help="Who comes when.")
    ] = "round-robin",
    scheme: Annotated[
        str | None, typer.Option("--scheme", help="Add uploads up unseen: block-dphe, dphe, bfv or masks.")
    ] = None,
    noise: Annotated[
        Literal["none", "published", "laplace", "participant", "record"],
        typer.Option("--noise", help="published or laplace: per parameter; participant or record: with a proof."),
    ] = "none",
    epsilon: Annotated[
        float | None,
        typer.Option("--epsilon", help="Of the noise: per parameter and upload, or (with a proof) of all days."),
    ] = None,
    delta: Annotated[float | None, typer.Option("--delta", help="Of all proven epsilons.")] = None,
    clip: Annotated[float | None, typer.Option("--clip", help="Longest gradient of a photo, for record noise.")] = None,
    upload_clip: Annotated[
        float | None, typer.Option("--upload-clip", help="Longest upload, for participant noise.")
    ] = None,
    epsilons: Annotated[str, typer.Option("--epsilons", help="Also play lines with proven noise at these.")] = "",
    out: Annotated[Path, typer.Option("--out", help="Folder of statement and report.")] = Path("out/selective"),
    seed: SeedOption = 0,
    json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Keep a network up to date from people's photos, of which only chosen changes are shared; compare, day by day."""
    from blindsight.data import load
    from blindsight.learn.timeline.photostudy import PhotoStudy, Training, backbone
    from blindsight.learn.timeline.wishes import SharingWish

    training = Training(model=model, optimiser=optimiser, learning_rate=learning_rate)
    wish = SharingWish(
        share=share,
        download=download,
        select=select,
        threshold=threshold,
        bound=bound,
        residual=residual,
        half=half,
        order=order,
        scheme=scheme,
        noise=noise,
        epsilon=epsilon,
        delta=delta,
        clip=clip,
        upload_clip=upload_clip,
        epsilons=_numbers(epsilons),
    )
    wish.check_participants(participants)
    extractor = backbone(features, components=components, random_state=seed)
    check_writable(out)
    with terminal_progress() as progress:
        study = PhotoStudy.prepare(
            load(data, path=path, count=count, random_state=seed, progress=progress),
            extractor,
            training,
            participants=participants,
            days=days,
            initial=initial,
            skew=skew,
            classes=[name.strip() for name in classes.split(",") if name.strip()],
            attribute=attribute,
            random_state=seed,
            cache=cache_folder(),
            progress=progress,
        )
    _show(_play(study, wish, data), out, data, seed)


def _play(study: "PhotoStudy", wish: "SharingWish", data: str) -> "SharingResult":
    from blindsight.report.learning import SharingResult

    lines = wish.lines(study.plan, steps=1)
    names = [line.name for line in lines if line.name in _SHOWN]
    live = LiveTable(
        f"Learning {data} from {len(study.plan.participants)} participants, {study.dimension:,} parameters",
        ("day", *names),
    )
    timeline = study.play(
        lines,
        delta=wish.stated_delta,
        on_day=lambda day, found: live.row((str(day), *(f"{found[name]:.3f}" for name in names))),
    )
    cost = wish.cost(study.plan, timeline, study.dimension, steps=1)
    return SharingResult(timeline, cost, len(study.plan.participants))


def _show(result: "SharingResult", out: Path, data: str, seed: int) -> None:
    from blindsight.learn.selective.accounting import figure
    from blindsight.learn.timeline.figurelines import OURS
    from blindsight.report import write_report
    from blindsight.report.learning import sharing_chapter

    statement = result.timeline.line(OURS).statement
    facts = {"Command": "blindsight learn selective", "Data": data, "Seed": str(seed)}
    write_report(out / "report.html", f"Sharing what was learned from {data}", [sharing_chapter(result)], facts=facts)
    with atomic_writer(out / "statement.json") as stream:
        stream.write(json_module.dumps(statement.to_dict(), indent=2, ensure_ascii=False).encode())
    rows = [
        (
            row.name,
            f"{row.mean:.3f}",
            f"{row.accuracy[0]:.3f}",
            f"{row.uploads:,}",
            f"{row.megabytes_up:.3f}",
            "-" if row.epsilon is None else figure(row.epsilon),
            row.against,
        )
        for row in result.timeline.rows((result.days,))
    ]
    columns = ("line", "all days", "last day", "uploads", "MB up", "proven epsilon", "against whom")
    costs = [(row.what, figure(row.basic), figure(row.composed)) for row in result.cost.rows()]
    counted = ("what is counted", "added up", f"at delta = {result.cost.delta:g}")
    document = result.timeline.to_dict() | {
        "report": str(out / "report.html"),
        "composition": _composition(result.cost),
        "sentence": result.cost.sentence(),
    }
    show(
        document,
        "",
        table("Over all days", columns, rows, numbers=columns[1:-1]),
        "",
        table("What is shared costs", counted, costs, numbers=counted[1:]),
        "",
        result.cost.sentence(),
        statement.headline(),
        f"Report and statement are in {out}.",
    )


def _composition(cost: "SharingCost") -> list[dict[str, str | float | None]]:
    """Return the rows of the cost as plain data; an infinite epsilon is None, as JSON has none."""
    return [
        {
            "what": row.what,
            "basic": row.basic if math.isfinite(row.basic) else None,
            "composed": row.composed if math.isfinite(row.composed) else None,
            "delta": cost.delta,
            "accountant": row.accountant,
        }
        for row in cost.rows()
    ]


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise InputError(f"epsilons are numbers separated by commas; got {text!r}.") from None
