"""What owners elsewhere must know to learn: the questions, how to train, the public data; from the server, to all.

A lesson holds nothing of any owner. It is data and never code: numbers, names and settings that are checked one by one.
"""

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from blindsight.crypto.wire import Limit, Message, decode, encode
from blindsight.errors import InputError, MessageError
from blindsight.learn.clustering import ClusterTraining
from blindsight.learn.clusterlearner import ClusterLearner
from blindsight.learn.labels import Attributes, Classes, Labels
from blindsight.learn.linear import LinearTraining
from blindsight.learn.linearlearner import LinearLearner
from blindsight.learn.linearmodel import Standardiser, check_features, check_signs
from blindsight.learn.owners import Load

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
            standardiser = Standardiser(*(check_features(arrays[name][None])[0] for name in ("mean", "scale")))
            public = check_features(arrays["public"])
            if document["kind"] == "k-means":
                training = ClusterTraining(**document["training"])
                return cls(training, standardiser, public, clusters=int(document["clusters"]))
            labels = Attributes(document["attributes"]) if "attributes" in document else Classes(arrays["classes"])
            signs = check_signs(arrays["signs"], len(public))
            return cls(LinearTraining(**document["training"]), standardiser, public, labels, signs)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise MessageError(f"the lesson of this run cannot be understood: {error}") from None


def pack_arrays(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return plain arrays as bytes (an uncompressed .npz)."""
    stream = io.BytesIO()
    np.savez(stream, allow_pickle=False, **dict(arrays))
    return stream.getvalue()


def unpack_arrays(data: bytes) -> dict[str, NDArray[Any]]:
    """Return the arrays in what somebody sent; nothing is executed, and nothing unpacks to more than was sent."""
    stream = io.BytesIO(data)
    try:
        with zipfile.ZipFile(stream) as archive:
            if any(item.compress_type != zipfile.ZIP_STORED for item in archive.infolist()):
                raise MessageError("arrays are sent as they are, not compressed.")
        stream.seek(0)
        with np.load(stream, allow_pickle=False) as members:
            return {name: members[name] for name in members.files}
    except (zipfile.BadZipFile, ValueError, KeyError, EOFError, OSError, RuntimeError) as error:
        raise MessageError(f"arrays arrived damaged: {type(error).__name__}.") from None
