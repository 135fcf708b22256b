"""From features back to pictures: decoders trained on public images, and how much of a face they show."""

from blindsight.audit.inversion.decoder import ConvolutionalInversion, Decoder, RidgeInversion, mean_picture, ssim
from blindsight.audit.inversion.evidence import aggregator_samples, plain_samples, sifted_rows
from blindsight.audit.inversion.pictures import FourPictures, MatchRate, PictureRow, match_rate, picture_strip
from blindsight.audit.inversion.study import four_pictures, split_persons

__all__ = [
    "ConvolutionalInversion",
    "Decoder",
    "FourPictures",
    "MatchRate",
    "PictureRow",
    "RidgeInversion",
    "aggregator_samples",
    "four_pictures",
    "match_rate",
    "mean_picture",
    "picture_strip",
    "plain_samples",
    "sifted_rows",
    "split_persons",
    "ssim",
]
