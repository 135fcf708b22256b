"""`blindsight sift`: show an app one thing about a picture and hide another, verified before anything goes out."""

import csv
import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from click.exceptions import Exit

from blindsight.cli import options
from blindsight.cli.command import command, flag, group, grouped, option
from blindsight.cli.options import (
    hint,
    show,
    split_names,
    table,
    tell_skipped,
    terminal_progress,
    to_features,
    to_file,
    to_folder,
    to_positive,
    write_json,
)
from blindsight.errors import InputError, UnknownNameError
from blindsight.files import atomic_writer, cache_folder, storage_errors

if TYPE_CHECKING:  # sifting brings scikit-learn, which other commands should not wait for
    from numpy.typing import NDArray

    from blindsight.data import Dataset, FeaturePipeline
    from blindsight.progress import Progress
    from blindsight.sift.fit import SiftResult
    from blindsight.sift.fitted import Collection, FittedSift
    from blindsight.sift.policy import Policy
    from blindsight.sift.sift import Sift
    from blindsight.sift.verdict import Verification
    from blindsight.sift.verify import Verifier

app = group("sift", "Show an app one thing and hide another, verified before it goes out.")


@dataclass(frozen=True)
class Collected(options.Collected):
    """Which pictures: those that are named, those that a sift was made from, or drawn faces."""

    standard: ClassVar[str] = "faces"
    root: Path | None

    def collection(self, given: "FittedSift | None" = None) -> "Collection":
        """Return the collection that is named, or else the one that a sift was made from."""
        from blindsight.sift.fitted import Collection

        options.register_collections()
        if given is not None and self.data is None and self.path is None:
            if given.collection is None:
                raise InputError("this sift does not say which collection it was made from. Name one: --data, --path.")
            return given.collection if self.count is None else replace(given.collection, count=self.count)
        where, below = (None if one is None else str(one.absolute()) for one in (self.path, self.root))
        return Collection(self.name, where, below, self.count, self.seed)


collected = grouped(
    "collected",
    Collected,
    option("--data", help="Name of the collection; default: what --path holds, that of the sift, or faces."),
    options.path,
    option("-n", "--count", type=int, help="At most this many; of faces 4,000.", min=1),
    options.seed,
    option("--root", type=Path, help="Folder with all pictures of a table; default: the table's own."),
)


@dataclass(frozen=True)
class Asked:
    """What is to be told and what to be hidden."""

    public: str
    private: str
    policy: Path | None

    def read(self) -> "Policy":
        from blindsight.sift.policy import Policy

        public, private = split_names(self.public), split_names(self.private)
        if self.policy is None:
            if not public or not private:
                raise InputError(
                    "say what an app may know (--public) and what it must not (--private), or give a --policy."
                )
            return Policy(tuple(public), tuple(private))
        if public or private:
            raise InputError("give either a policy file or --public and --private, not both.")
        with storage_errors("read", self.policy):
            text = self.policy.read_text()
        return Policy.from_json(text) if self.policy.suffix == ".json" else Policy.from_yaml(text)


asked = grouped(
    "asked",
    Asked,
    option("--public", default="", help="What the app may know: attributes, by commas."),
    option("--private", default="", help="What it must not know: attributes, by commas."),
    option("--policy", type=Path, help="Both, as a YAML or JSON file instead."),
)


@dataclass(frozen=True)
class Seen:
    """What a sift sees of a picture."""

    features: str
    dimensions: int

    def pipeline(self, seed: int) -> "FeaturePipeline":
        from blindsight.data import pipeline

        return pipeline(self.features, components=self.dimensions, random_state=seed)


seen = grouped(
    "seen",
    Seen,
    options.features,
    option("--dimensions", default=200, help="Principal components of pixels at most.", min=1),
)


@dataclass(frozen=True)
class Judged:
    """When a sift is accepted."""

    threshold: float
    confidence: float

    def verifier(self, seed: int, attackers: options.Attackers = "quick") -> "Verifier":
        from blindsight.sift.trial import QUICK
        from blindsight.sift.verify import Verifier

        chosen = QUICK if attackers == "quick" else attackers
        return Verifier(chosen, self.threshold, self.confidence, random_state=seed, stop_early=False)


judged = grouped(
    "judged",
    Judged,
    option("--threshold", default=0.1, help="What a guess of the private may gain over a blind one."),
    option("--confidence", default=0.95, help="How sure a verdict must be."),
)


@command(app, "fit", example="sift fit --public smiling --private male --out out/sift")
@collected
@asked
@seen
@judged
@option("--method", choices=("ppls", "leace", "symbol"), default="ppls", help="Who makes the sift.")
@options.numbers
@options.privacy
@option("--out", default=Path("out/sift"), help="Folder of sift, policy, statement and report.", check=to_folder)
@options.check_only
def fit(
    collected: Collected,
    asked: Asked,
    seen: Seen,
    judged: Judged,
    method: Literal["ppls", "leace", "symbol"],
    components: int,
    privacy: float | None,
    out: Path,
    check: bool,
) -> None:
    """Make a sift for a policy from two fifths of the pictures, and have a quick look at it on the others."""
    from blindsight.report import write_report
    from blindsight.report.sifting import sift_chapter
    from blindsight.sift.fit import METHODS, SiftResult, make_learner
    from blindsight.sift.fitted import FittedSift, picture_digests
    from blindsight.sift.trial import Trial, divide_rows, prepare_data

    policy, seed, data = asked.read(), collected.seed, collected.name
    verifier, made_by = judged.verifier(seed), seen.pipeline(seed)
    learner = make_learner(method, made_by, components=components, privacy=privacy, verifier=verifier)
    collected.check()
    options.end_check(check)
    with terminal_progress() as progress:
        dataset = load_labelled(collected.collection(), progress, policy, judged.threshold)
        rows = prepare_data(dataset, made_by, random_state=seed, cache=cache_folder(), progress=progress)
        trial = Trial(rows, verifier=verifier)
        progress("fitting the sift", 0, None)
        sift = trial.fit(learner, policy)
        found = trial.measure(METHODS[method].title, sift, policy, progress=progress)
        develop, _ = divide_rows(len(dataset), dataset.persons, seed)
        digests = picture_digests(dataset)[develop]
        FittedSift(sift, policy, seen.features, made_by, digests, collected.collection()).save(out)
        write_json(out / "statement.json", found.found.statement.to_dict())
        result = SiftResult.of(trial, policy, [found], dataset)
    facts = {"Command": "blindsight sift fit", "Data": data, "Seed": str(seed)}
    write_report(out / "report.html", f"{policy}: a sift for {data}", [sift_chapter(result)], facts=facts, private=True)
    _show_fit(result, out)


@command(app, "verify", example="sift verify out/sift")
@options.sift
@collected
@judged
@option("--private", default="", help="Private attributes, instead of the policy's.")
@options.attackers("modern")
@flag("--as-is", help="Attack the numbers as they come: for sifts of one's own.")
@option(
    "--personal",
    type=float,
    check=to_positive,
    help="Epsilon per release: draw every symbol by randomised response, a bound for everybody.",
)
@option("--jobs", default=1, help="Attackers at work at the same time.", min=1)
@options.check_only
def verify(
    sift: Path,
    collected: Collected,
    judged: Judged,
    private: str,
    attackers: options.Attackers,
    as_is: bool,
    personal: float | None,
    jobs: int,
    check: bool,
) -> None:
    """Attack a sift on pictures it was not made from, and decide. Exit code 0: accepted; 1: rejected or inconclusive.

    The pictures are the others of the collection it was made from, unless another is named (--data, --path).
    Verified is the platform's version of the sift (the same span, rounded, with nowhere to hide anything). If it is
    accepted against all that the policy hides, it is written beside the sift as verified.npz, with the evidence; if
    not, an earlier one is taken away. With --as-is nothing is written.
    """
    from blindsight.sift.fit import verify_fitted
    from blindsight.sift.fitted import keep_verified

    verifier = replace(judged.verifier(collected.seed, attackers), jobs=jobs, stop_early=True)
    given = _fitted(sift)
    if not as_is:
        to_folder(sift if sift.is_dir() else sift.parent)
    options.end_check(check)
    hidden = tuple(split_names(private)) or given.policy.private
    with terminal_progress() as progress:
        dataset = load_labelled(collected.collection(given), progress)
        cache = cache_folder()
        tried, found = verify_fitted(
            given, dataset, hidden, verifier, as_is=as_is, personal=personal, cache=cache, progress=progress
        )
    written = None
    if not as_is and set(given.policy.private) <= set(hidden):
        written = keep_verified(sift, tried, found, dataset)
    _show_verification(found, written, tried, sift, dataset.name)
    if found.verdict != "accept":
        raise Exit(1)


@command(app, "apply", example="sift apply out/sift --path photos --out released.csv")
@options.sift
@collected
@option("--out", default=Path("out/released.npz"), help="The file to write, .npz or .csv.", check=to_file)
def apply(sift: Path, collected: Collected, out: Path) -> None:
    """Write what an app receives of pictures: the verified version of a sift if there is one, else the sift itself.

    Of new pictures: blindsight sift apply out/sift --path FOLDER --out released.csv
    """
    from blindsight.sift.fitted import VERIFIED

    if out.suffix not in (".npz", ".csv"):
        raise InputError(f"what is released is written as .npz or .csv; got {out.name!r}.")
    given = _fitted(sift, verified=True)
    with terminal_progress() as progress:
        dataset = tell_skipped(collected.collection(given).load(labelled=False, progress=progress))
        released = given.sift.apply(given.extract(dataset, cache=cache_folder(), progress=progress))
    verified = (sift.is_dir() and (sift / VERIFIED).exists()) or sift.name == VERIFIED
    _write_released(out, dataset, released, given.sift.digest)
    state = "a version that was verified and accepted" if verified else "as it was fitted, and not verified"
    levels = None if given.sift.levels is None else list(given.sift.levels)
    show(
        {"released": str(out), "pictures": len(released), "numbers": released.shape[1], "levels": levels}
        | {"sift": given.sift.digest, "verified": verified},
        f"{released.shape[1]} number{'s' * (released.shape[1] > 1)} of each of {len(released):,} pictures: {out}",
        f"The sift ({given.policy}) is {state}.",
    )


def _fitted(path: Path, *, verified: bool = False) -> "FittedSift":
    """Read a sift; one with features that cannot be made here is refused."""
    from blindsight.sift.fitted import FittedSift

    given = FittedSift.load(path, verified=verified)
    to_features(given.features)
    return given


def load_labelled(
    collection: "Collection", progress: "Progress", policy: "Policy | None" = None, threshold: float = 0.0
) -> "Dataset":
    """Read the pictures; a policy that no sift for them can satisfy is refused before anything is trained."""
    from blindsight.data import load

    dataset = tell_skipped(collection.load(progress=progress))
    if policy is not None:
        try:
            report = policy.check(dataset, leak_cap=threshold)
        except UnknownNameError:
            columns = [name for name in policy.public + policy.private if name in " ".join(dataset.notes)]
            if columns:  # unused ones of the table: this says which cell is neither yes nor no
                load("csv", path=collection.path, attribute_columns=columns)
            raise
        report.require_usable()
        for warning in report.warnings:
            raise InputError(warning)
    return dataset


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


def _show_fit(result: "SiftResult", out: Path) -> None:
    (found,) = result.sifted
    seen = found.found
    document = {"sift": str(out / "sift.npz"), "report": str(out / "report.html")} | result.to_dict()
    rows = [
        (f"told: {name}", f"{result.raw[name]:.3f}", f"{accuracy:.3f}", f"{result.check.ceilings[name]:.3f}")
        for name, accuracy in found.accuracies.items()
    ]
    for name in result.policy.private:
        raw, left = (f"{_best(verification, name):.3f}" for verification in (result.before, seen))
        rows.append((f"hidden: {name}", raw, left, f"{0.5 + result.threshold:.3f}"))
    columns = ("balanced accuracy", "raw features", "sifted", "at most")
    show(
        document,
        table(f"{result.policy} by {found.name}", columns, rows, numbers=columns[1:]),
        f"PubLoss {found.pub_loss:.3f}, PrivLoss {seen.priv_loss:.3f}. {seen.sentence}",
        *(f"Certificate: {one.sentence}." for one in seen.certificates),
        f"Sift, policy, statement and report are in {out}.",
        f"This was a quick look; what decides: {hint('sift', 'verify', out)}",
    )


def _show_verification(found: "Verification", written: Path | None, judged: "Sift", sift: Path, data: str) -> None:
    from blindsight.sift.personal import PersonalSift

    promise = judged.sentence if isinstance(judged, PersonalSift) else ""
    columns = ("attacker", "accuracy", "interval", "PrivLoss", "Eq. 5")
    several = len({result.attribute for result in found.results}) > 1
    rows = [
        (
            f"{result.attribute}: {result.attacker}" if several else result.attacker,
            f"{result.balanced_accuracy:.3f}",
            f"{result.interval.low:.3f} to {result.interval.high:.3f}",
            f"{result.priv_loss:.3f}",
            f"{result.mean_precision:.3f}",
        )
        for result in found.results
    ]
    setting = found.setting
    title = f"Balanced accuracies on {data}; {setting.train:,} rows to learn from, {setting.test:,} to be judged by"
    show(
        found.to_dict() | {"accepted": None if written is None else str(written), "personal": promise or None},
        table(title, columns, rows, numbers=columns[1:]),
        *(f"Certificate: {one.sentence}." for one in found.certificates),
        *(_pub_loss(name, one.summary()) for name, one in (found.public or {}).items()),
        promise,
        found.sentence,
        ""
        if written is None
        else f"{written} is the version to apply: {hint('sift', 'apply', sift, '--out', 'released.csv')} "
        "(to the same pictures; --path names others)",
    )


def _best(found: "Verification", attribute: str) -> float:
    """Return the best guess of one attribute: of those that were tried, or of anybody where it is certified."""
    tried = [one.balanced_accuracy for one in found.results if one.attribute == attribute]
    return max([*tried, *(0.5 + one.estimate for one in found.certificates if one.attribute == attribute)])


def _pub_loss(name: str, summary: dict[str, Any]) -> str:
    return (
        f"The app reads {name} with {summary['balanced_accuracy']:.3f} (raw features "
        f"{summary['raw_balanced_accuracy']:.3f}): PubLoss {summary['pub_loss']:.3f}."
    )
