"""What owners elsewhere must know to learn: the questions, how to train, the public data; from the server, to all.

A lesson holds nothing of any owner. It is data and never code: numbers, names and settings that are checked one by one.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from blindsight.crypto.wire import Limit, Message, decode, encode
from blindsight.errors import InputError, MessageError
from blindsight.files import pack_arrays, unpack_arrays
from blindsight.learn.clustering import ClusterLearner, ClusterTraining
from blindsight.learn.linear import LinearLearner, LinearTraining
from blindsight.learn.model import Attributes, Classes, Floats, Labels, Standardiser, check_signs
from blindsight.learn.owners import Load
from blindsight.validation import check_features

Kind = Literal["classifier", "k-means"]


class _LessonMessage(Message, name="federated/lesson.1"):
    document: Annotated[bytes, Limit(1 << 16)]
    arrays: bytes


@dataclass(frozen=True, eq=False)
class Lesson:
    """A lesson of linear classification or of clustering; `public` features are standardised already."""

    training: LinearTraining | ClusterTraining
    standardiser: Standardiser
    public: NDArray[Any]
    labels: Labels | None = None  # of a classifier
    signs: NDArray[np.int8] | None = None
    clusters: int = 0

    @property
    def kind(self) -> Kind:
        """What is learned."""
        return "classifier" if isinstance(self.training, LinearTraining) else "k-means"

    def learner(self, owner: str, load: Load, validation: Any = None) -> LinearLearner | ClusterLearner:
        """Return how one owner learns from its own data."""
        if isinstance(self.training, ClusterTraining):
            return ClusterLearner(
                {owner: load}, self.clusters, self.standardiser, self.training, self.public, validation
            )
        if self.labels is None or self.signs is None:
            raise InputError("a lesson of classification needs labels.")
        public = self.public, self.signs
        return LinearLearner({owner: load}, self.labels, self.standardiser, self.training, public, validation)

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the shared model."""
        features = len(self.standardiser.mean)
        return (self.clusters, features) if self.labels is None else (self.labels.rows, features + 1)

    @property
    def digest(self) -> str:
        """SHA-256 of all that is taught."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def to_bytes(self) -> bytes:
        """Return the lesson as a message."""
        arrays = {"mean": self.standardiser.mean, "scale": self.standardiser.scale, "public": self.public}
        document: dict[str, Any] = {"kind": self.kind, "training": asdict(self.training), "clusters": self.clusters}
        if isinstance(self.labels, Classes):
            arrays["classes"] = np.asarray(self.labels.names)
        elif isinstance(self.labels, Attributes):
            document["attributes"] = self.labels.count
        if self.signs is not None:
            arrays["signs"] = self.signs
        return encode(_LessonMessage(json.dumps(document).encode(), pack_arrays(arrays)))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read what `to_bytes` wrote; `MessageError` on anything else."""
        message = decode(data, _LessonMessage)
        try:
            document, arrays = json.loads(message.document), unpack_arrays(message.arrays)
            standardiser, public = _checked_public(arrays)
            if document["kind"] == "k-means":
                return cls(
                    ClusterTraining(**document["training"]), standardiser, public, clusters=_count(document["clusters"])
                )
            named = "attributes" not in document
            labels = Classes(arrays["classes"]) if named else Attributes(_count(document["attributes"]))
            signs = check_signs(arrays["signs"], len(public))
            if signs.shape[1] != labels.rows:
                raise InputError(f"the public data answer {signs.shape[1]} questions; there are {labels.rows}.")
            return cls(LinearTraining(**document["training"]), standardiser, public, labels, signs)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise MessageError(f"the lesson of this run cannot be understood: {error}") from None


def _checked_public(arrays: Mapping[str, NDArray[Any]]) -> tuple[Standardiser, Floats]:
    """Return the standardiser and the public features, which must fit each other."""
    mean, scale = (check_features(arrays[name][None], precision="wide")[0] for name in ("mean", "scale"))
    public = check_features(arrays["public"], precision="wide")
    if not len(mean) == len(scale) == public.shape[1] or not (scale > 0).all():
        raise InputError("features have a mean and a scale above 0 each.")
    return Standardiser(mean, scale), public


def _count(number: Any) -> int:
    if type(number) is not int or number < 1:
        raise InputError(f"clusters and attributes are counted from 1; got {number!r}.")
    return number
