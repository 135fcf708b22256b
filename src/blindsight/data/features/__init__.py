"""From pictures to numbers: SensorSift's pixel pipeline, a pretrained embedding, any ONNX model; cached on disk."""

from blindsight.data.features.cache import CacheWarning, FeaturePipeline, extract
from blindsight.data.features.embedding import Embedding, OnnxEmbedding
from blindsight.data.features.pipelines import pipeline
from blindsight.data.features.pixels import PixelFeatures
from blindsight.data.features.thumbnail import Thumbnails

__all__ = [
    "CacheWarning",
    "Embedding",
    "FeaturePipeline",
    "OnnxEmbedding",
    "PixelFeatures",
    "Thumbnails",
    "extract",
    "pipeline",
]
