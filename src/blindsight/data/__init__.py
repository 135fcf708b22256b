"""Pictures, who owns them, and the features made of them."""

from blindsight.data.catalogue import catalogue, load, register_collection
from blindsight.data.contactsheet import attribute_sheet, contact_sheet
from blindsight.data.dataset import Dataset, PictureDataset
from blindsight.data.embedding import Embedding, OnnxEmbedding
from blindsight.data.faces import default_correlation, faces
from blindsight.data.features import FeaturePipeline, Thumbnails, extract, pipeline
from blindsight.data.pixels import PixelFeatures

__all__ = [
    "Dataset",
    "Embedding",
    "FeaturePipeline",
    "OnnxEmbedding",
    "PictureDataset",
    "PixelFeatures",
    "Thumbnails",
    "attribute_sheet",
    "catalogue",
    "contact_sheet",
    "default_correlation",
    "extract",
    "faces",
    "load",
    "pipeline",
    "register_collection",
]
