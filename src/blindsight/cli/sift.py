"""`blindsight sift`: show an app one thing about a picture and hide another, verified before anything goes out."""

import csv
import io
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from blindsight.cli.siftshow import show_comparison, show_fit, show_matrix, show_verification
from blindsight.cli.terminal import DebugOption, JsonOption, SeedOption, show, terminal_progress
from blindsight.errors import InputError
from blindsight.files import atomic_writer, cache_folder, check_writable, storage_errors

if TYPE_CHECKING:  # sifting brings scikit-learn, which other commands should not wait for
    from numpy.typing import NDArray

    from blindsight.data import Dataset, FeaturePipeline
    from blindsight.progress import Progress
    from blindsight.sift.lossbench import SiftLearner
    from blindsight.sift.policy import Policy
    from blindsight.sift.study import SiftResult
    from blindsight.sift.trial import Sifted, Trial
    from blindsight.sift.verify import Verifier

app = typer.Typer(help="Show an app one thing and hide another, verified before it goes out.", no_args_is_help=True)

Method = Literal["ppls", "leace", "symbol", "adversarial"]
Attackers = Literal["paper", "modern", "quick"]

SiftArgument = Annotated[Path, typer.Argument(help="Folder that `sift fit` wrote, or a sift's file inside it.")]
DataOption = Annotated[str, typer.Option("--data", help="Name of the collection; see `blindsight data list`.")]
PathOption = Annotated[
    Path | None, typer.Option("--path", help="Where the collection lies, if it is read from a path.")
]
CountOption = Annotated[
    int | None, typer.Option("-n", "--count", help="At most this many pictures; of faces 4,000.", min=1)
]
FeaturesOption = Annotated[str, typer.Option("--features", help="pixels, embedding, or the path of an ONNX model.")]
DimensionsOption = Annotated[int, typer.Option("--dimensions", help="Principal components of pixels at most.", min=1)]
PublicOption = Annotated[str, typer.Option("--public", help="What the app may know: attributes, by commas.")]
PrivateOption = Annotated[str, typer.Option("--private", help="What it must not know: attributes, by commas.")]
PolicyOption = Annotated[Path | None, typer.Option("--policy", help="Both, as a YAML or JSON file instead.")]
MethodOption = Annotated[Method, typer.Option("--method", help="Who makes the sift.")]
ComponentsOption = Annotated[int, typer.Option("--components", help="Numbers let out; the paper's K.", min=1)]
PrivacyOption = Annotated[
    float | None, typer.Option("--privacy", help="Weight of hiding, the paper's lambda; default 1, or inf.")
]
ThresholdOption = Annotated[
    float, typer.Option("--threshold", help="What a guess of the private may gain over a blind one.")
]
AttackersOption = Annotated[
    Attackers,
    typer.Option("--attackers", help="Who tries to read what is private: the paper's five, thirteen, or three."),
]
ConfidenceOption = Annotated[float, typer.Option("--confidence", help="How sure a verdict must be.")]

FACES = 4000
"""Pictures drawn where nobody says how many, each of another person: verdicts count persons."""

_MOST_EVEN = 6  # attributes of a matrix where nobody names them
_NAMES = {"ppls": "PPLS", "leace": "LEACE and PLS", "symbol": "Symbols", "adversarial": "Adversarial network"}


@app.command("fit")
def fit(
    data: DataOption = "faces",
    path: PathOption = None,
    count: CountOption = None,
    public: PublicOption = "",
    private: PrivateOption = "",
    policy: PolicyOption = None,
    method: MethodOption = "ppls",
    components: ComponentsOption = 5,
    privacy: PrivacyOption = None,
    features: FeaturesOption = "pixels",
    dimensions: DimensionsOption = 200,
    threshold: ThresholdOption = 0.10,
    confidence: ConfidenceOption = 0.95,
    out: Annotated[Path, typer.Option("--out", help="Folder of sift, policy, statement and report.")] = Path(
        "out/sift"
    ),
    seed: SeedOption = 0,
    json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Make a sift for a policy from two fifths of the pictures, and have a quick look at it on the others."""
    from blindsight.report import write_report
    from blindsight.report.sifting import sift_chapter
    from blindsight.sift.fitted import FittedSift, picture_digests
    from blindsight.sift.trial import Trial, divide_rows, prepare_data

    asked = _policy(public, private, policy)
    verifier = _verifier("quick", threshold, confidence, seed)
    made_by = _pipeline(features, dimensions, seed)
    learner = _learner(method, components, privacy, made_by, (threshold, confidence), seed)
    check_writable(out)
    with terminal_progress() as progress:
        dataset = _collection(data, path, count, seed, progress)
        _check_policy(asked, dataset, threshold)
        rows = prepare_data(dataset, made_by, random_state=seed, cache=cache_folder(), progress=progress)
        trial = Trial(rows, asked, verifier=verifier)
        progress("fitting the sift", 0, None)
        found = trial.measure(_NAMES[method], trial.fit(learner), progress=progress)
        develop, _ = divide_rows(len(dataset), dataset.persons, seed)
        FittedSift(found.sift, asked, features, made_by, picture_digests(dataset)[develop]).save(out)
        with atomic_writer(out / "statement.json") as stream:
            stream.write(found.losses.verification.statement.to_json().encode())
        result = _sift_result(dataset, trial, found, made_by, learner, progress)
    facts = {"Command": "blindsight sift fit", "Data": data, "Seed": str(seed)}
    write_report(out / "report.html", f"{asked}: a sift for {data}", [sift_chapter(result)], facts=facts, private=True)
    show_fit(result, out)


@app.command("verify")
def verify(
    sift: SiftArgument,
    data: DataOption = "faces",
    path: PathOption = None,
    count: CountOption = None,
    private: Annotated[str, typer.Option("--private", help="Private attributes, instead of the policy's.")] = "",
    attackers: AttackersOption = "modern",
    threshold: ThresholdOption = 0.10,
    confidence: ConfidenceOption = 0.95,
    as_is: Annotated[bool, typer.Option("--as-is", help="Attack the numbers as they come: for sifts of one's own.")] = (
        False
    ),
    jobs: Annotated[int, typer.Option("--jobs", help="Attackers at work at the same time.", min=1)] = 1,
    seed: SeedOption = 0,
    json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Attack a sift on pictures it was not made from, and decide. Exit code 0: accepted; 1: rejected or inconclusive.

    Verified is the platform's version of the sift (the same span, rounded, with nowhere to hide anything). If it is
    accepted against all that the policy hides, it is written beside the sift as verified.npz, with the evidence; if
    not, an earlier one is taken away. With --as-is nothing is written.
    """
    from blindsight.sift.candidate import prepare
    from blindsight.sift.fitted import FittedSift, fingerprint, keep_verified
    from blindsight.sift.labels import label_columns
    from blindsight.sift.verificationset import VerificationSet

    verifier = replace(_verifier(attackers, threshold, confidence, seed), jobs=jobs, stop_early=True)
    given = FittedSift.load(sift)
    hidden = tuple(_names(private)) or given.policy.private
    with terminal_progress() as progress:
        dataset = _collection(data, path, count, seed, progress)
        label_columns(dataset, hidden)  # an unknown attribute is named before any work is done
        unseen = dataset.take(given.unseen(dataset))
        features = given.extract(unseen, cache=cache_folder(), progress=progress)
        labels = {name: unseen.attribute(name) for name in unseen.attribute_names}
        rows = VerificationSet(features, labels, unseen.persons, fingerprint(unseen, given.pipeline))
        judged = given.sift if as_is else prepare(given.sift, rows.private(hidden), rows)
        public = {name: labels[name] for name in given.policy.public if name in labels}
        found = verifier.verify(
            (judged, rows.features), rows.private(hidden), persons=rows.persons, public=public, progress=progress
        )
    written = None
    if not as_is and set(given.policy.private) <= set(hidden):
        written = keep_verified(sift, judged, found)
    show_verification(found, written)
    if found.verdict != "accept":
        raise typer.Exit(1)


@app.command("apply")
def apply(
    sift: SiftArgument,
    data: DataOption = "faces",
    path: PathOption = None,
    count: CountOption = None,
    out: Annotated[Path, typer.Option("--out", help="The file to write, .npz or .csv.")] = Path("out/released.npz"),
    seed: SeedOption = 0,
    json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Write what an app receives of pictures: the verified version of a sift if there is one, else the sift itself."""
    from blindsight.sift.fitted import VERIFIED, FittedSift

    if out.suffix not in (".npz", ".csv"):
        raise InputError(f"what is released is written as .npz or .csv; got {out.name!r}.")
    given = FittedSift.load(sift, verified=True)
    with terminal_progress() as progress:
        dataset = _collection(data, path, count, seed, progress, labelled=False)
        released = given.sift.apply(given.extract(dataset, cache=cache_folder(), progress=progress))
    verified = (sift.is_dir() and (sift / VERIFIED).exists()) or sift.name == VERIFIED
    _write_released(out, dataset, released, given.sift.digest)
    state = "a version that was verified and accepted" if verified else "as it was fitted, and not verified"
    document = {
        "released": str(out),
        "pictures": len(released),
        "numbers": released.shape[1],
        "levels": None if given.sift.levels is None else list(given.sift.levels),
        "sift": given.sift.digest,
        "verified": verified,
    }
    show(
        document,
        f"{released.shape[1]} number{'s' * (released.shape[1] > 1)} of each of {len(released):,} pictures: {out}",
        f"The sift ({given.policy}) is {state}.",
    )


@app.command("matrix")
def matrix(
    data: DataOption = "faces",
    path: PathOption = None,
    count: CountOption = None,
    attributes: Annotated[
        str, typer.Option("--attributes", help="By commas; default: the six whose labels are most even.")
    ] = "",
    method: Annotated[Literal["ppls", "leace"], typer.Option("--method", help="Who makes the sifts.")] = "ppls",
    components: ComponentsOption = 5,
    privacy: PrivacyOption = None,
    features: FeaturesOption = "pixels",
    dimensions: DimensionsOption = 200,
    threshold: ThresholdOption = 0.10,
    confidence: ConfidenceOption = 0.95,
    out: Annotated[Path, typer.Option("--out", help="Folder of the report.")] = Path("out/sift-matrix"),
    seed: SeedOption = 0,
    json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Try every attribute against every other: correlation, overlap, what the app loses, what an attacker gains."""
    from blindsight.report import write_report
    from blindsight.report.sifting import matrix_chapter
    from blindsight.sift.labels import label_columns
    from blindsight.sift.policymatrix import policy_matrix
    from blindsight.sift.trial import prepare_data

    verifier = _verifier("quick", threshold, confidence, seed)
    made_by = _pipeline(features, dimensions, seed)
    learner = _learner(method, components, privacy, made_by, (threshold, confidence), seed)
    with terminal_progress() as progress:
        dataset = _collection(data, path, count, seed, progress)
        names = tuple(_names(attributes)) or _most_even(dataset)
        label_columns(dataset, names)
        rows = prepare_data(dataset, made_by, random_state=seed, cache=cache_folder(), progress=progress)
        found = policy_matrix(
            rows.features,
            rows.labels,
            names,
            method=learner,
            verifier=verifier,
            persons=rows.persons,
            progress=progress,
        )
    if all(cell.problem for cell in found.cells):
        raise InputError(f"no two of these attributes have a sift: {found.cells[0].problem}")
    chapter = matrix_chapter(found, threshold=threshold)
    report = write_report(out / "report.html", f"Attributes of {data}", [chapter], facts={"Seed": str(seed)})
    show_matrix(found, report)


@app.command("compare")
def compare(
    data: DataOption = "faces",
    path: PathOption = None,
    count: CountOption = None,
    public: PublicOption = "",
    private: PrivateOption = "",
    policy: PolicyOption = None,
    methods: Annotated[str, typer.Option("--methods", help="Only these, separated by semicolons.")] = "",
    attackers: AttackersOption = "quick",
    features: FeaturesOption = "pixels",
    dimensions: DimensionsOption = 200,
    threshold: ThresholdOption = 0.10,
    confidence: ConfidenceOption = 0.95,
    seed: SeedOption = 0,
    json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Make sifts for one policy by every method, and name the accepted one that costs the app least."""
    from blindsight.data import PixelFeatures
    from blindsight.sift.compare import compare_sifts
    from blindsight.sift.trial import prepare_data

    asked = _policy(public, private, policy)
    _verifier(attackers, threshold, confidence, seed)  # refuses what it cannot mean before any work is done
    made_by = _pipeline(features, dimensions, seed)
    with terminal_progress() as progress:
        dataset = _collection(data, path, count, seed, progress)
        _check_policy(asked, dataset, threshold)
        rows = prepare_data(dataset, made_by, random_state=seed, cache=cache_folder(), progress=progress)
        found = compare_sifts(
            rows.features,
            rows.labels,
            asked,
            methods=[name.strip() for name in methods.split(";") if name.strip()] or None,
            threshold=threshold,
            confidence=confidence,
            attackers=_attackers(attackers),
            persons=rows.persons,
            scale=not isinstance(made_by, PixelFeatures),
            random_state=seed,
            progress=progress,
        )
    show_comparison(asked, found)


def _collection(
    data: str, path: Path | None, count: int | None, seed: int, progress: "Progress", *, labelled: bool = True
) -> "Dataset":
    """Load a collection; faces are drawn as single pictures of different persons."""
    from blindsight.data import load

    drawn = data == "faces"
    options: dict[str, Any] = {"pictures_per_person": 1} if drawn else {}
    asked = FACES if drawn and count is None else count
    dataset = load(data, path=path, count=asked, random_state=seed, progress=progress, **options)
    if labelled and dataset.attributes is None:
        raise InputError(f"{data} has no attributes: there is nothing to show or to hide.")
    return dataset


def _policy(public: str, private: str, file: Path | None) -> "Policy":
    from blindsight.sift.policy import Policy

    if file is None:
        if not _names(public) or not _names(private):
            raise InputError(
                "say what an app may know (--public) and what it must not (--private), or give a --policy."
            )
        return Policy(tuple(_names(public)), tuple(_names(private)))
    if public or private:
        raise InputError("give either a policy file or --public and --private, not both.")
    with storage_errors("read", file):
        text = file.read_text()
    return Policy.from_json(text) if file.suffix == ".json" else Policy.from_yaml(text)


def _attackers(name: Attackers) -> Any:
    from blindsight.sift.lossbench import QUICK

    return QUICK if name == "quick" else name


def _verifier(attackers: Attackers, threshold: float, confidence: float, seed: int) -> "Verifier":
    """Return a verifier that lets every attacker have its turn."""
    from blindsight.sift.verify import Verifier

    return Verifier(_attackers(attackers), threshold, confidence, random_state=seed, stop_early=False)


def _check_policy(policy: "Policy", dataset: "Dataset", threshold: float) -> None:
    """Refuse a policy that no sift can satisfy, before anything is trained."""
    report = policy.check(dataset, leak_cap=threshold)
    report.require_usable()
    for warning in report.warnings:
        raise InputError(warning)


def _pipeline(features: str, dimensions: int, seed: int) -> "FeaturePipeline":
    from blindsight.data import pipeline

    return pipeline(features, components=dimensions, random_state=seed)


def _learner(
    method: Method,
    components: int,
    privacy: float | None,
    made_by: "FeaturePipeline",
    verdict: tuple[float, float],
    seed: int,
) -> "SiftLearner":
    """Return who makes the sift; principal components keep their own scale, or little more than two would exist."""
    from blindsight.data import PixelFeatures
    from blindsight.sift.leace import LeacePLS
    from blindsight.sift.ppls import PPLS

    scale = not isinstance(made_by, PixelFeatures)
    if privacy is not None and method not in ("ppls", "adversarial"):
        raise InputError(f"--privacy weighs hiding in ppls and adversarial sifts; {method} has no such weight.")
    if method == "ppls":
        return PPLS(components, 1.0 if privacy is None else privacy, scale=scale)
    if method == "leace":
        return LeacePLS(components, scale=scale)
    if method == "symbol":
        from blindsight.sift.symbollearner import SymbolLearner

        threshold, confidence = verdict
        return SymbolLearner(leak=threshold, confidence=confidence, random_state=seed)
    from blindsight.sift.adversarial import AdversarialSift

    return AdversarialSift(components, 1.0 if privacy is None else privacy, random_state=seed)


def _sift_result(
    dataset: "Dataset",
    trial: "Trial",
    found: "Sifted",
    made_by: "FeaturePipeline",
    learner: "SiftLearner",
    progress: "Progress",
) -> "SiftResult":
    """Measure what the report shows besides: the trade-off of PPLS, and where in a picture attributes are seen."""
    from blindsight.data import PixelFeatures
    from blindsight.sift.ppls import PPLS
    from blindsight.sift.regions import attribute_regions, sift_regions
    from blindsight.sift.sift import LinearSift
    from blindsight.sift.study import SiftResult
    from blindsight.sift.tradeoff import trade_off

    data, policy, curves, regions = trial.data, trial.policy, None, {}
    if isinstance(learner, PPLS):
        curves = trade_off(
            data.features,
            data.labels,
            policy,
            components=sorted({1, 2, 5, learner.n_components, 2 * learner.n_components}),
            privacies=sorted({0.0, learner.privacy, math.inf}),
            method=learner,
            verifier=trial.verifier,
            persons=data.persons,
            progress=progress,
        )
    if dataset.images is not None and isinstance(made_by, PixelFeatures):
        regions = attribute_regions(data.features, data.labels, policy.public + policy.private, made_by)
        if isinstance(found.sift, LinearSift):
            regions["where the sift looks"] = sift_regions(found.sift, made_by)
    return SiftResult.of(trial, [found], dataset, regions=regions, trade_off=curves)


def _most_even(dataset: "Dataset") -> tuple[str, ...]:
    """Return the attributes with most pictures on their rarer side, in the order of the collection."""
    counts = {
        name: min(int((dataset.attribute(name) == value).sum()) for value in (0, 1)) for name in dataset.attribute_names
    }
    chosen = sorted(counts, key=lambda name: -counts[name])[:_MOST_EVEN]
    return tuple(name for name in dataset.attribute_names if name in chosen)


def _write_released(out: Path, dataset: "Dataset", released: "NDArray[Any]", sift: str) -> None:
    import numpy as np

    names = dataset.names or tuple(map(str, range(len(dataset))))
    with atomic_writer(out) as stream:
        if out.suffix == ".npz":
            np.savez_compressed(stream, released=released, names=np.array(names, dtype=np.str_), sift=np.str_(sift))
            return
        text = io.StringIO(newline="")
        lines = csv.writer(text)
        lines.writerow(["picture", *(f"z{i + 1}" for i in range(released.shape[1]))])
        lines.writerows([name, *row] for name, row in zip(names, released.tolist(), strict=True))
        stream.write(text.getvalue().encode())


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
