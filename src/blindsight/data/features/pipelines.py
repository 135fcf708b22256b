"""From a name to a feature pipeline: "thumbnail", "pixels", "embedding", or the path of an ONNX model."""

from pathlib import Path

from blindsight.data.features.cache import FeaturePipeline
from blindsight.data.features.embedding import Embedding, OnnxEmbedding
from blindsight.data.features.pixels import PixelFeatures
from blindsight.data.features.thumbnail import Thumbnails
from blindsight.errors import UnknownNameError


def pipeline(kind: str, *, components: int | None = None, random_state: int = 0) -> FeaturePipeline:
    """Return the pipeline that `kind` names.

    Pixels are compressed to 95% of their energy, or to at most so many `components`; `random_state` seeds the fit.

    >>> pipeline("pixels").energy
    0.95
    """
    if kind == "pixels":
        return PixelFeatures(max_components=components, random_state=random_state)
    if kind == "thumbnail":
        return Thumbnails()
    if kind == "embedding":
        return Embedding()
    if Path(kind).suffix == ".onnx":
        return OnnxEmbedding(kind)
    raise UnknownNameError("feature pipeline", kind, ("embedding", "pixels", "thumbnail", "the path of an .onnx model"))
