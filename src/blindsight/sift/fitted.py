"""A sift on disk with all that it takes to use and verify it: policy, feature pipeline, and whose pictures it saw.

*The guarantee.* Rows that a sift was made from do not verify it, whatever collection they come back in: pictures are
recognised by their SHA-256, and all other pictures of the same persons are excluded with them. Features come from the
pipeline that the sift belongs to, or are refused.

| file | what |
| --- | --- |
| `sift.npz` | the sift: all that an app needs, and all that a platform verifies |
| `policy.yaml` | what it tells and what it hides |
| `pipeline.npz` | features that were learned from pictures; they show faces, so only the owner may read the file |
| `origin.npz` | kind of features, the collection, and digests of the pictures it was made from; for the owner alone |
| `verified.npz` | what a platform accepted, once it has: the version of the sift to apply |
| `verification.json` | what that rests on |
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from blindsight.data.catalogue import load
from blindsight.data.dataset import Dataset
from blindsight.data.features import FeaturePipeline, extract, pipeline
from blindsight.data.pixels import PixelFeatures
from blindsight.errors import CorruptFileError, InputError
from blindsight.files import (
    AnyPath,
    as_path,
    atomic_writer,
    folder_content,
    read_arrays,
    storage_errors,
    write_arrays,
)
from blindsight.progress import Progress, silent
from blindsight.sift.policy import Policy
from blindsight.sift.sift import Sift, load_sift, save_sift
from blindsight.sift.verdict import Verification

SIFT, POLICY, PIPELINE, ORIGIN = "sift.npz", "policy.yaml", "pipeline.npz", "origin.npz"
VERIFIED, EVIDENCE = "verified.npz", "verification.json"

FACES = 4000  # pictures drawn by default, each of another person: verdicts count persons

_ORIGIN = "blindsight/sift-origin.1"
_DIGEST = 16  # bytes

Digests = NDArray[np.uint8]


@dataclass(frozen=True)
class Collection:
    """The arguments of `load`, as they can be kept. Drawn faces are each of another person."""

    data: str
    path: str | None = None
    root: str | None = None
    count: int | None = None
    seed: int = 0

    def load(self, *, labelled: bool = True, progress: Progress = silent) -> Dataset:
        how: dict[str, Any] = {}
        count = self.count
        if self.data == "faces":
            how, count = {"pictures_per_person": 1}, FACES if count is None else count
        if self.root is not None:
            if self.data != "csv":
                raise InputError(f"--root is for tables of pictures (--data csv); {self.data} names its own pictures.")
            how = {"root": self.root}
        dataset = load(self.data, path=self.path, count=count, random_state=self.seed, progress=progress, **how)
        if labelled and dataset.attributes is None:
            raise InputError(f"{self.data} has no attributes: there is nothing to show or to hide.")
        return dataset


@dataclass(frozen=True, eq=False)
class FittedSift:
    """A sift, its policy, the features it takes, and digests (n, 16) of the pictures it was made from. `features` names
    the pipeline: pixels, embedding, thumbnail or the path of an ONNX model.
    """

    sift: Sift
    policy: Policy
    features: str
    pipeline: FeaturePipeline
    seen: Digests
    collection: Collection | None = None

    def save(self, folder: AnyPath) -> None:
        """Write everything into a folder; an earlier acceptance there no longer counts."""
        folder = as_path(folder)
        _forget_verified(folder)
        about = {"features": self.features} | (
            {} if self.collection is None else {"collection": asdict(self.collection)}
        )
        write_arrays(folder / ORIGIN, _ORIGIN, about, {"seen": self.seen}, private=True)
        with atomic_writer(folder / POLICY) as stream:
            stream.write(self.policy.to_yaml().encode())
        if isinstance(self.pipeline, PixelFeatures) and self.pipeline.fitted:
            self.pipeline.save(folder / PIPELINE)
        save_sift(self.sift, folder / SIFT)

    @classmethod
    def load(cls, path: AnyPath, *, verified: bool = False) -> Self:
        """Read what `save` wrote into a folder, or another sift file in such a folder. Of a folder, `verified` asks for
        the version that was accepted, where there is one.
        """
        path = as_path(path)
        with storage_errors("read", path):
            path.stat()
        folder = path if path.is_dir() else path.parent
        if not (folder / ORIGIN).exists():
            raise InputError(f"{path} is no sift; it holds {folder_content(path)}. Give what `sift fit` wrote.")
        document, arrays = read_arrays(folder / ORIGIN, _ORIGIN)
        with storage_errors("read", folder / POLICY):
            policy = Policy.from_yaml((folder / POLICY).read_text())
        seen = arrays.get("seen")
        if seen is None or seen.dtype != np.uint8 or seen.shape[1:] != (_DIGEST,):
            raise CorruptFileError(f"{folder / ORIGIN} does not say which pictures the sift was made from.")
        file = VERIFIED if verified and (folder / VERIFIED).exists() else SIFT
        kind = str(document.get("features"))
        try:
            origin = Collection(**document["collection"]) if "collection" in document else None
        except TypeError:
            raise CorruptFileError(f"{folder / ORIGIN} does not say which collection the sift was made from.") from None
        sift = load_sift(folder / file if path.is_dir() else path)
        return cls(sift, policy, kind, _pipeline(kind, folder), seen, origin)

    def extract(
        self, dataset: Dataset, *, cache: AnyPath | None = None, progress: Progress = silent
    ) -> NDArray[np.float32]:
        """Return the features that this sift takes; those of another pipeline are refused."""
        self.sift.check_pipeline(fingerprint(dataset, self.pipeline))
        return extract(dataset, self.pipeline, cache=cache, progress=progress)

    def unseen(self, dataset: Dataset) -> NDArray[np.int64]:
        """Return the rows of a dataset that this sift was not made from, nor from anybody who is on them."""
        known = {row.tobytes() for row in self.seen}
        seen = np.array([row.tobytes() in known for row in picture_digests(dataset)], dtype=bool)
        if dataset.persons is not None:
            seen = np.isin(dataset.persons, dataset.persons[seen])
        if seen.all():
            raise InputError(
                f"this sift was made from every picture of {dataset.name}: nothing is left to verify it by."
            )
        return np.flatnonzero(~seen).astype(np.int64)


def keep_verified(path: AnyPath, judged: Sift, found: Verification, dataset: Dataset) -> Path | None:
    """Keep what a verification of the sift at `path` accepted, and its evidence, which names the collection with a
    digest of its pictures; if it did not accept, forget earlier ones.
    """
    path = as_path(path)
    folder = path if path.is_dir() else path.parent
    _forget_verified(folder)
    if found.verdict != "accept":
        return None
    about = {"name": dataset.name, "pictures": len(dataset), "sha256": dataset.content_hash()}
    with atomic_writer(folder / EVIDENCE) as stream:
        stream.write(json.dumps(found.to_dict() | {"collection": about}, indent=2, allow_nan=False).encode())
    save_sift(judged, folder / VERIFIED)
    return folder / VERIFIED


def _forget_verified(folder: Path) -> None:
    for name in (VERIFIED, EVIDENCE):
        with storage_errors("remove", folder / name):
            (folder / name).unlink(missing_ok=True)


def picture_digests(dataset: Dataset) -> Digests:
    """16 bytes of the SHA-256 of every picture, or of its features where there are no pictures."""
    rows = dataset.features if dataset.images is None else dataset.images
    assert rows is not None
    digests = b"".join(hashlib.sha256(np.ascontiguousarray(row).tobytes()).digest()[:_DIGEST] for row in rows)
    return np.frombuffer(digests, dtype=np.uint8).reshape(-1, _DIGEST)


def fingerprint(dataset: Dataset, made_by: FeaturePipeline) -> str:
    """Return what names the features of a dataset: their pipeline, or the collection where they come ready-made."""
    return made_by.fingerprint() if dataset.images is not None else f"ready-made features of {dataset.name}"


def _pipeline(kind: str, folder: Path) -> FeaturePipeline:
    learned = folder / PIPELINE
    if kind == "pixels" and learned.exists():
        return PixelFeatures.load(learned)
    return pipeline(kind)
