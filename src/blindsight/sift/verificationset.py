"""The platform's own labelled pictures, on which every sift is judged: features, labels, persons, one pipeline.

*Strange inputs.* A verdict speaks of pictures like these rows. A sift that behaves on them and leaks on a photo with a
green frame around it would pass, so what lies outside a `Support` never reaches a sift: such a row is replaced by the
mean row, when a release is judged and when it goes out, so all such rows get the same release. A trigger within the
support, or one that is rare among people, is not kept out by this.

*Reference rows.* What goes out is a function of the sift and of the support, and a certificate speaks of functions that
do not depend on the rows that are counted. A support of the counted rows has all of them inside but not all fresh ones:
what being outside tells would be counted on rows that never are. So the support, and every sift that is hardened, is
fitted to `reference` rows of other people, which are never counted. Without any, rows are taken as they are.

Enev et al., "SensorSift", ACSAC 2012, section 3: DB_verify. An attribute can be kept private only if it has labels
here. `digest` names what a verdict rests on, the reference included; a grant that was verified on other rows does not
hold.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blindsight.data.partition import split
from blindsight.errors import InputError, PrivacyError
from blindsight.sift.labels import Labels, check_labels, check_persons, private_labels
from blindsight.sift.stream import Windows, windows
from blindsight.validation import check_features

_SAMPLE, _DIRECTIONS, _ROWS = 2000, 64, 4096
_INSIDE, _ROOM = 0.99, 1.5
_ASIDE, _COMMON = 0.2, 0.05  # shares: of rows that are set aside, of rows that two sets may have in common


@dataclass(frozen=True, eq=False)
class Support:
    """Where features of people lie; fitted to features alone, never to labels, nor to rows that are counted.

    `spread` are the leading principal directions of standardised features, each divided by its deviation; `limits` are
    1.5 times the squared distances, within and off these directions, that all but one in a hundred rows keep.
    """

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]
    directions: NDArray[np.float64]
    deviations: NDArray[np.float64]
    limits: tuple[float, float]

    @classmethod
    def of(cls, features: NDArray[Any]) -> "Support":
        sample = features[:: -(-len(features) // _SAMPLE)].astype(np.float64)
        mean, deviation = sample.mean(axis=0), sample.std(axis=0)
        scale = np.where(deviation > 0, deviation, 1.0)
        found = np.linalg.svd((sample - mean) / scale, full_matrices=False)
        kept = min(_DIRECTIONS, max(1, len(sample) // 20), int((1e-6 * max(found.S[0], 1e-300) < found.S).sum()) or 1)
        parts = (mean, scale, found.Vh[:kept].T, np.maximum(found.S[:kept] / np.sqrt(len(sample)), 1e-12))
        whole = cls(*parts, (np.inf, np.inf))
        within, off = whole._distances(features)
        limits = (_ROOM * float(np.quantile(distances, _INSIDE)) + 1e-9 for distances in (within, off))
        return cls(*parts, tuple(limits))  # type: ignore[arg-type]

    def inside(self, X: Any) -> NDArray[np.bool_]:
        within, off = self._distances(X)
        return (within <= self.limits[0]) & (off <= self.limits[1])

    def clip(self, X: Any) -> NDArray[np.float32]:
        """Return the rows as float32, those outside replaced by the mean row."""
        rows = np.array(X.toarray() if sparse.issparse(X) else X, dtype=np.float32)
        rows[~self.inside(rows)] = self.mean.astype(np.float32)
        return rows

    def _distances(self, X: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        within, off = np.empty(len(X)), np.empty(len(X))
        for start in range(0, len(X), _ROWS):
            span = slice(start, start + _ROWS)
            rows = np.clip((X[span].astype(np.float64) - self.mean) / self.scale, -1e100, 1e100)
            inner = rows @ self.directions
            within[span] = np.sum((inner / self.deviations) ** 2, axis=1)
            off[span] = np.sum((rows - inner @ self.directions.T) ** 2, axis=1)
        return within, off


@dataclass(frozen=True, eq=False)
class VerificationSet:
    """Features (n, d) of one pipeline, labels 1, 0 or -1 per attribute, and who is on each row where that is known."""

    features: NDArray[np.float32]
    labels: Mapping[str, Labels]
    persons: NDArray[Any] | None = None
    pipeline: str = ""
    also: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    """The same rows through other pipelines, by fingerprint: to judge together with what those released. The reference
    must have them too: what they released was within the support of its features then."""
    reference: "VerificationSet | None" = None
    """Rows of other people, the platform's own and never counted: the support is fitted to their features."""

    def __post_init__(self) -> None:
        features = np.array(check_features(self.features))
        labels = {name: check_labels(column, len(features), name)[:, 0] for name, column in self.labels.items()}
        persons = check_persons(self.persons, len(features))
        also = {name: np.array(check_features(rows)) for name, rows in self.also.items()}
        if any(len(rows) != len(features) for rows in also.values()):
            raise InputError(f"other pipelines must have the same {len(features)} rows, in the same order.")
        for array in (features, *labels.values(), *also.values()):
            array.setflags(write=False)  # what was hashed stays as it was
        for part, value in (("features", features), ("labels", labels), ("persons", persons), ("also", also)):
            object.__setattr__(self, part, value)
        if self.reference is not None:
            self.reference.check_apart_from(self)

    @property
    def dimension(self) -> int:
        return int(self.features.shape[1])

    @cached_property
    def support(self) -> Support | None:
        return None if self.reference is None else Support.of(self.reference.features)

    def seen(self, rows: Any, pipeline: str | None = None) -> NDArray[np.float32]:
        """Return rows (of an earlier pipeline) as sifts get them: within the support, where there is a reference."""
        if self.support is None or self.reference is None:
            return np.asarray(rows, dtype=np.float32)
        present = pipeline in (None, self.pipeline)
        return (self.support if present else Support.of(self.reference.also[pipeline or ""])).clip(rows)

    @cached_property
    def _seen(self) -> NDArray[np.float32]:
        return self.seen(self.features)

    @cached_property
    def digest(self) -> str:
        digest = hashlib.sha256(f"{self.pipeline}\n{sorted(self.labels)}".encode())
        arrays: list[NDArray[Any]] = [self.features, *(self.labels[name] for name in sorted(self.labels))]
        if self.persons is not None:
            arrays.append(self.persons.astype(str))
        arrays += [self.also[name] for name in sorted(self.also)]
        for array in arrays:
            _update(digest, array)
        if self.reference is not None:
            digest.update(self.reference_digest.encode())
        return digest.hexdigest()

    @cached_property
    def reference_digest(self) -> str:
        """The SHA-256 of the reference rows, which determine the support; empty where there are none."""
        if self.reference is None:
            return ""
        digest = hashlib.sha256(b"reference\n")
        _update(digest, self.reference.features)
        return digest.hexdigest()

    def private(self, names: Iterable[str]) -> dict[str, Labels]:
        return private_labels(self.labels, names)

    def through(self, pipeline: str) -> NDArray[np.float32]:
        """The features of a pipeline as sifts get them, or got them while it was the platform's."""
        if pipeline == self.pipeline:
            return self._seen
        if pipeline not in self.also or (self.reference is not None and pipeline not in self.reference.also):
            raise PrivacyError(
                f"something was released through feature pipeline {pipeline!r}, and verification and reference rows "
                "are not both here through that pipeline: what it tells with something new cannot be judged. Give "
                "them as `also`."
            )
        return self.seen(self.also[pipeline], pipeline)

    def windows(self, frames: int) -> Windows:
        """Windows of frames of one person; a single frame needs no persons."""
        if frames == 1:
            return Windows(np.arange(len(self.features), dtype=np.int64)[:, None])
        if self.persons is None:
            raise InputError(
                f"{frames} frames of one person cannot be verified: nobody knows who is on the verification rows. "
                "Ask for single frames, or name the persons."
            )
        return windows(self.persons, frames)

    def divide(self, share: float = 0.4, *, random_state: int = 0) -> tuple[Self, Self]:
        """Return two sets, the first with this share of the rows; no person is in both."""
        parts = split(
            np.zeros(len(self.features)),
            (share, 1 - share),
            persons=self.persons,
            stratify=False,
            random_state=random_state,
        )
        first, second = (self._rows(part) for part in parts)
        return first, second

    def with_reference(self) -> Self:
        """Return the set with a reference: its own, or a fifth of its rows, by persons, which then are not counted."""
        if self.reference is not None:
            return self
        aside, counted = self.divide(_ASIDE)
        return replace(counted, reference=aside)

    def check_apart_from(self, other: "VerificationSet") -> None:
        """Refuse another set with features of another pipeline, with some of the same persons or, where persons are not
        known, with more of the same rows than coincide within a set.
        """
        if (self.pipeline, self.dimension) != (other.pipeline, other.dimension):
            raise InputError("development and verification rows must have features of one pipeline.")
        if self.persons is None or other.persons is None:
            few, many = sorted((_keys(self.features), _keys(other.features)), key=len)
            _, numbers, counts = np.unique(few, return_inverse=True, return_counts=True)
            common = np.isin(few, many).mean()
            by_chance = (counts[numbers] > 1).mean() * len(many) / len(few)  # as features of few values coincide
            if common > _COMMON + by_chance:
                raise InputError(
                    f"{common:.0%} of the rows are development and verification rows at once: verdicts would flatter. "
                    "Divide them, or name the persons if these are different people."
                )
            return
        if np.intersect1d(self.persons.astype(str), other.persons.astype(str)).size:
            raise InputError(
                "some persons are on development and verification rows: verdicts would flatter. Divide them."
            )

    def _rows(self, rows: NDArray[np.int64]) -> Self:
        labels = {name: column[rows] for name, column in self.labels.items()}
        persons = None if self.persons is None else self.persons[rows]
        also = {name: features[rows] for name, features in self.also.items()}
        return type(self)(self.features[rows], labels, persons, self.pipeline, also, self.reference)


def _keys(features: NDArray[np.float32]) -> NDArray[Any]:
    return np.ascontiguousarray(features).view(np.dtype((np.void, features.shape[1] * features.itemsize)))[:, 0]


def _update(digest: Any, array: NDArray[Any]) -> None:
    digest.update(f"{array.dtype.str} {array.shape}".encode())
    digest.update(np.ascontiguousarray(array).tobytes())
