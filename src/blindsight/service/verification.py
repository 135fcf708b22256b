"""The gateway's verification data (labelled pictures, divided so that nobody is on two sides) and attackers.

Two fifths of the persons are the platform's to fit features, sifts and their support to, the others judge
(`sift.trial`). Without a collection of its own a service uses drawn faces, of people who do not exist.

An attacker that joined never leaves: a grant that only its absence would allow must not come back with a restart. The
names are in a file of their own, written before the platform is told.
"""

import hashlib
import io
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.naive_bayes import GaussianNB

from blindsight.data import Dataset, FeaturePipeline, PixelFeatures, faces, load
from blindsight.data.faces import GENERATOR
from blindsight.data.features import LearningPipeline
from blindsight.errors import CorruptFileError, InputError, StorageError, UnknownNameError
from blindsight.files import as_path, atomic_writer, folder_lock, read_arrays, storage_errors, write_arrays
from blindsight.progress import Progress, silent
from blindsight.sift.adaptive import share
from blindsight.sift.attackers import MODERN, Attacker, chosen_attackers
from blindsight.sift.certificate import certify
from blindsight.sift.labels import FEWEST_OF_EITHER, FEWEST_ROWS, enough
from blindsight.sift.trial import DEVELOPER, prepare_data
from blindsight.sift.verificationset import VerificationSet
from blindsight.sift.verify import Verifier

PICTURES, PER_PERSON = 5000, 2  # drawn faces: two frames of each of many persons can be verified

UNCHANGING = ("male", "youth", "pale_skin", "beard", "long_hair")  # between drawn faces of one person
_COMPONENTS = 100  # of the pixel pipeline: later ones carry more noise than faces


@dataclass(frozen=True, eq=False)
class PlatformData:
    """Rows to develop on and rows to judge by, of one fitted pipeline; `size` is the side of the pictures. Of
    `unchanging` attributes people may have permanent symbols.
    """

    development: VerificationSet
    judging: VerificationSet
    pipeline: FeaturePipeline
    size: int
    unchanging: tuple[str, ...] = ()


def platform_data(
    dataset: Dataset | None,
    pipeline: FeaturePipeline | None,
    *,
    cache: Path,
    unchanging: Sequence[str] = (),
    random_state: int = 0,
    progress: Progress = silent,
) -> PlatformData:
    """Make features of a labelled collection and divide it, the same way every time; `unchanging` attributes are the
    operator's to name, but known of drawn faces.
    """
    stay = tuple(unchanging) or (UNCHANGING if dataset is None else ())
    made_by = PixelFeatures(max_components=_COMPONENTS, random_state=random_state) if pipeline is None else pipeline
    if dataset is not None and (dataset.images is None or dataset.images.shape[1] != dataset.images.shape[2]):
        raise InputError(
            f"the service needs square pictures, to which those of people are cut; {dataset.name} has none."
        )
    if dataset is not None and dataset.attributes is None:
        raise InputError(f"{dataset.name} has no labels: nothing could be kept private. Label its pictures.")
    drawn = f"{PICTURES} faces {GENERATOR}, {PER_PERSON} each"
    about = drawn if dataset is None else dataset.content_hash()
    key = hashlib.sha256(f"{about}\n{made_by.fingerprint()}\n{random_state}".encode()).hexdigest()
    kept = _read_kept(cache / "platform" / f"{key}.npz", made_by)
    if kept is None:
        if dataset is None:
            dataset = faces(PICTURES, pictures_per_person=PER_PERSON, random_state=random_state, progress=progress)
        assert dataset.images is not None
        data = prepare_data(dataset, made_by, random_state=random_state, cache=cache, progress=progress)
        kept = data, int(dataset.images.shape[1])
        _keep(cache / "platform" / f"{key}.npz", made_by, *kept)
    data, side = kept
    development, judging = data.divide(DEVELOPER, random_state=random_state)
    for name in stay:
        if name not in judging.labels:
            raise UnknownNameError("unchanging attribute", name, judging.labels)
    return PlatformData(development, judging, made_by, side, stay)


_KEPT = "blindsight/platform-data.1"


def _keep(path: Path, pipeline: FeaturePipeline, data: VerificationSet, side: int) -> None:
    """Keep what a start computes: features, labels and what the pipeline learned."""
    learned = pipeline.state() if isinstance(pipeline, LearningPipeline) else {}
    arrays = {f"learned {name}": array for name, array in learned.items()}
    arrays |= {f"label {name}": column for name, column in data.labels.items()} | {"features": data.features}
    if data.persons is not None:
        arrays["persons"] = data.persons
    with suppress(StorageError):  # then the next start computes it again
        write_arrays(path, _KEPT, {"side": side, "pipeline": data.pipeline}, arrays, private=True)


def _read_kept(path: Path, pipeline: FeaturePipeline) -> tuple[VerificationSet, int] | None:
    """Return what an earlier start kept, and teach the pipeline what it had learned; None if it is not there."""
    try:
        document, arrays = read_arrays(path, _KEPT) if path.exists() else ({}, {})
    except StorageError:
        return None
    if not document:
        return None
    if isinstance(pipeline, LearningPipeline):
        prefix = "learned "
        pipeline.restore({name.removeprefix(prefix): arrays[name] for name in arrays if name.startswith(prefix)})
    labels = {name.removeprefix("label "): arrays[name] for name in arrays if name.startswith("label ")}
    return VerificationSet(arrays["features"], labels, arrays.get("persons"), document["pipeline"]), document["side"]


def collection(where: str, *, path: Path | None = None, **how: Any) -> Dataset:
    """Return a named labelled collection: a folder of classes (each an attribute that all other pictures lack), a table
    (CSV), or a name of `load`.
    """
    given = as_path(where)
    if given.suffix.lower() != ".csv" and not given.is_dir():
        return load(where, path=path, **how)
    found: Dataset = load("folder" if given.is_dir() else "csv", path=given, **how)
    if not given.is_dir():
        return found
    if found.labels is None or len(found.label_names) < 2:
        raise InputError(
            f"{given} needs a folder for each of two classes or more, such as smiling and neutral, or be a table "
            "(CSV) that names pictures and their attributes. Photos of people without labels go to --people."
        )
    own = np.arange(len(found.label_names))
    attributes = (found.labels[:, None] == own).astype(np.int8)
    return replace(found, attributes=attributes, attribute_names=found.label_names)


def shortages(data: VerificationSet, verifier: Verifier) -> tuple[str, ...]:
    """Say for what verification rows are too few: how many there are, and how many are needed."""
    counts = {name: (int((one == 1).sum()), int((one == 0).sum())) for name, one in data.labels.items()}
    hidden = [name for name, column in data.labels.items() if enough(column)]
    needed = rows_needed(verifier.confidence, verifier.threshold, verifier.surest, verifier.exempt)
    said = []
    if few := [f"{name} ({counts[name][0]} with, {counts[name][1]} without)" for name in counts if name not in hidden]:
        said.append(
            f"{_listed(few)} cannot be hidden: that takes {FEWEST_OF_EITHER} pictures with it, as many without, and "
            f"{FEWEST_ROWS} in all."
        )
    if few := [f"{name} ({min(counts[name])})" for name in hidden if min(counts[name]) < needed]:
        said.append(
            f"Nothing can be granted to an app about people who hide {_listed(few)}: even a label that tells nothing "
            f"is shown to be harmless by {needed} pictures of either kind on, and more for each further question."
        )
    people = None if data.persons is None else np.unique(data.persons, return_counts=True)[1]
    if people is None or people.max() < 2:
        said.append("Only single frames can be granted: windows of n frames need n pictures of each person, by name.")
    if said:
        whose = "" if people is None else f" of {len(people):,} people"
        said.insert(0, f"The verification data are few: {len(data.features):,} pictures{whose} judge.")
    return tuple(said)


@cache
def rows_needed(confidence: float, threshold: float, surest: float, exempt: float) -> int:
    """Return how many rows of either kind show, at the first question, that a bit which tells nothing is harmless."""

    def shown(rows: int) -> bool:
        bits, hidden = np.tile([0, 1], rows), np.repeat([0, 1], rows)
        found = certify(bits, hidden, confidence=confidence, surest=surest, share=share(0, 0))
        return found.bound <= threshold and found.exposed <= exempt

    low, high = 0, 64
    while not shown(high):
        low, high = high, 2 * high
    while high - low > 8:
        middle = (low + high) // 2
        low, high = (low, middle) if shown(middle) else (middle, high)
    return high


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def drawn_frames(count: int, *, random_state: int) -> list[bytes]:
    """Return pictures of one drawn person as PNG files; another seed than the service's is another person."""
    images = faces(count, pictures_per_person=count, random_state=random_state).images
    assert images is not None
    frames = []
    for image in images:
        stream = io.BytesIO()
        Image.fromarray(image).save(stream, "PNG")
        frames.append(stream.getvalue())
    return frames


def _trees(seed: int) -> Any:
    return ExtraTreesClassifier(300, min_samples_leaf=5, class_weight="balanced", n_jobs=1, random_state=seed)


def _bayes(seed: int) -> Any:
    return GaussianNB()


def _quadratic(seed: int) -> Any:
    return QuadraticDiscriminantAnalysis(reg_param=1e-3)


KNOWN: dict[str, Attacker] = {
    attacker.name: attacker
    for attacker in (
        *MODERN,
        Attacker("naive Bayes, tuned", _bayes, "whitened", tune=True),
        Attacker("quadratic discriminant, tuned", _quadratic, "whitened", tune=True),
        Attacker("extremely random trees, balanced and tuned", _trees, "whitened", tune=True),
    )
}  # whom an operator may call by name


class Ensemble:
    """A verifier with those who joined it, by the file at `path`."""

    def __init__(self, path: Path, base: Verifier) -> None:
        self._path, self._base = path, base
        self.verifier = self.again()

    def again(self) -> Verifier:
        """Return the verifier with those who joined it until now, in whichever process."""
        mine = chosen_attackers(self._base.attackers)
        present = {attacker.name for attacker in mine}
        joined = tuple(KNOWN[name] for name in self._read() if name not in present)
        return replace(self._base, attackers=mine + joined) if joined else self._base

    def join(self, name: str, verifier: Verifier) -> Attacker:
        """Note that an attacker joins those of the verifier, and return it; the caller tells the platform."""
        attacker = self.candidate(name, verifier)
        with folder_lock(self._path.parent):
            joined = (*self._read(), name)
            with atomic_writer(self._path, private=True) as stream:
                stream.write(json.dumps(joined).encode())
        return attacker

    @staticmethod
    def candidate(name: str, verifier: Verifier) -> Attacker:
        if name not in KNOWN:
            raise UnknownNameError("attacker", name, KNOWN)
        if name in {attacker.name for attacker in chosen_attackers(verifier.attackers)}:
            raise InputError(f"{name} judges already.")
        return KNOWN[name]

    def _read(self) -> tuple[str, ...]:
        if not self._path.exists():
            return ()
        with storage_errors("read", self._path):
            text = self._path.read_text()
        try:
            names = json.loads(text)
            return tuple(KNOWN[name].name for name in names)
        except (ValueError, KeyError, TypeError):
            raise CorruptFileError(
                f"{self._path} does not name known attackers: altered, or of another version."
            ) from None
