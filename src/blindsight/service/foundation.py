"""What a gateway stands on: labelled pictures divided so that nobody is on two sides, attackers, a folder of its own.

Two fifths of the persons are the platform's to fit features and sifts to, the others judge (`sift.trial`). Without a
collection of its own a service stands on drawn faces, of people who do not exist.

An attacker that joined those who judge never leaves: a grant that only its absence would allow must not come back with
a restart. The names are in a file of their own, written before the platform is told.
"""

import fcntl
import io
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from PIL import Image
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.naive_bayes import GaussianNB

from blindsight.data import Dataset, FeaturePipeline, PixelFeatures, faces
from blindsight.errors import CorruptFileError, InputError, StorageError, UnknownNameError
from blindsight.files import atomic_writer, storage_errors
from blindsight.progress import Progress, silent
from blindsight.sift.attackers import MODERN, Attacker, chosen_attackers
from blindsight.sift.trial import DEVELOPER, prepare_data
from blindsight.sift.verificationset import VerificationSet
from blindsight.sift.verify import Verifier

PICTURES, PER_PERSON = 5000, 2
"""Of the drawn faces: two frames of a person can be verified, and there are many persons to judge by."""

_COMPONENTS = 100  # of the pixel pipeline: later ones carry more noise than faces


@dataclass(frozen=True, eq=False)
class Foundation:
    """Rows to develop on and rows to judge by, of one fitted pipeline; `size` is the side of the pictures."""

    development: VerificationSet
    judging: VerificationSet
    pipeline: FeaturePipeline
    size: int


def lay_foundation(
    dataset: Dataset | None,
    pipeline: FeaturePipeline | None,
    *,
    cache: Path,
    random_state: int = 0,
    progress: Progress = silent,
) -> Foundation:
    """Make features of a labelled collection and divide it; the same collection gives the same rows every time."""
    chosen = dataset
    if chosen is None:
        chosen = faces(PICTURES, pictures_per_person=PER_PERSON, random_state=random_state, progress=progress)
    if chosen.images is None or chosen.images.shape[1] != chosen.images.shape[2]:
        raise InputError(
            f"the service needs square pictures, to which those of people are cut; {chosen.name} has none."
        )
    if chosen.attributes is None:
        raise InputError(f"{chosen.name} has no labels: nothing could be kept private. Label its pictures.")
    made_by = PixelFeatures(max_components=_COMPONENTS, random_state=random_state) if pipeline is None else pipeline
    data = prepare_data(chosen, made_by, random_state=random_state, cache=cache, progress=progress)
    development, judging = data.divide(DEVELOPER, random_state=random_state)
    return Foundation(development, judging, made_by, int(chosen.images.shape[1]))


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


class FolderLock:
    """Keeps a second service out of a folder; a killed one frees it."""

    def __init__(self, folder: Path) -> None:
        with storage_errors("use", folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.chmod(0o700)
            self._descriptor = os.open(folder / "service.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._descriptor)
            raise StorageError(f"another service uses {folder}. Stop it first, or choose another folder.") from None

    def release(self) -> None:
        """Let others in."""
        os.close(self._descriptor)


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
}
"""Whom an operator may call by name."""


class Ensemble:
    """A verifier with those who joined it, by the file at `path`."""

    def __init__(self, path: Path, base: Verifier) -> None:
        self._path = path
        self._joined = self._read()
        mine = chosen_attackers(base.attackers)
        present = {attacker.name for attacker in mine}
        joined = tuple(KNOWN[name] for name in self._joined if name not in present)
        self.verifier = replace(base, attackers=mine + joined) if joined else base

    def join(self, name: str, verifier: Verifier) -> Attacker:
        """Note that an attacker joins those of the verifier, and return it; the caller tells the platform."""
        attacker = self.candidate(name, verifier)
        self._joined = (*self._joined, name)
        with atomic_writer(self._path, private=True) as stream:
            stream.write(json.dumps(self._joined).encode())
        return attacker

    @staticmethod
    def candidate(name: str, verifier: Verifier) -> Attacker:
        """Return an attacker that may join, or say why it may not."""
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
