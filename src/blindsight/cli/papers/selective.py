"""`blindsight papers selective`: PPDL, learning from people's photos by sharing few changes."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from blindsight.cli import options
from blindsight.cli.command import command, flag, group, grouped, option
from blindsight.cli.options import (
    LiveTable,
    show,
    split_names,
    split_numbers,
    table,
    terminal_progress,
    to_features,
    to_folder,
    write_json,
)
from blindsight.files import cache_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blindsight.papers.selective.study import SharingResult

app = group("selective", "PPDL: learn from people's photos by sharing few changes (Bu 2019).")

_LINES = ("centralised", "never updated", "local only", "selective sharing", "FedAvg, equal uploads")


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
    "days",
    example="papers selective days --data digits --share 0.1 --noise record --epsilon 4 --delta 1e-5 --clip 1",
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
@option("--out", default=Path("out/papers/selective"), help="Folder of statement and report.", check=to_folder)
def selective_days(
    collected: options.Collected,
    plan: Plan,
    training: Training,
    classes: str,
    features: str,
    components: int,
    epsilons: str,
    out: Path,
    **sharing: Any,
) -> None:
    """Play PPDL's Figure 4: keep a network up to date from people's photos, of which only chosen changes are shared."""
    from blindsight.papers.selective import study as studies

    trained = studies.Training(**vars(training))
    asked = studies.SharingOptions(**sharing, epsilons=tuple(split_numbers(epsilons)))
    extractor = studies.backbone(features, components=components, random_state=collected.seed)
    with terminal_progress() as progress:
        study = studies.PhotoStudy.prepare(
            collected.load(progress),
            extractor,
            trained,
            **asdict(plan),
            classes=split_names(classes),
            random_state=collected.seed,
            cache=cache_folder(),
            progress=progress,
        )
    title = f"Learning {collected.name} from {plan.participants} participants, {study.dimension:,} parameters"
    live = LiveTable(title, ("day", *_LINES))

    def show_day(day: int, found: "Mapping[str, float]") -> None:
        live.row((str(day), *(f"{found[name]:.3f}" for name in _LINES)))

    _show_sharing(studies.SharingResult.of(study, asked, on_day=show_day), out, collected.name, collected.seed)


def _show_sharing(result: "SharingResult", out: Path, data: str, seed: int) -> None:
    from blindsight.papers.selective.chapter import sharing_chapter
    from blindsight.papers.selective.study import OURS
    from blindsight.report import write_report
    from blindsight.statement import rounded_up

    statement = result.timeline.method(OURS).statement
    facts = {"Command": "blindsight papers selective days", "Data": data, "Seed": str(seed)}
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
