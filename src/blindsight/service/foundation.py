"""What a gateway stands on: labelled pictures, divided so that nobody is on two sides, and a folder of its own.

Two fifths of the persons are the platform's to fit features and sifts to, the others judge (`sift.trial`). Without a
collection of its own a service stands on drawn faces, of people who do not exist.
"""

import fcntl
import io
import os
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from blindsight.data import Dataset, FeaturePipeline, PixelFeatures, faces
from blindsight.errors import InputError, StorageError
from blindsight.files import storage_errors
from blindsight.progress import Progress, silent
from blindsight.sift.trial import DEVELOPER, prepare_data
from blindsight.sift.verificationset import VerificationSet

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
