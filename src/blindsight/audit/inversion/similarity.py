"""Structural similarity: how much of a picture another picture shows, 1 for the same and near 0 for a stranger.

Wang, Bovik, Sheikh & Simoncelli, "Image Quality Assessment: From Error Visibility to Structural Similarity" (IEEE
Transactions on Image Processing 2004), Eq. 13, with the constants of its section III-C: an 11 x 11 Gaussian window of
standard deviation 1.5, C1 = (0.01 L)^2 and C2 = (0.03 L)^2 with L = 255, and the mean over all windows that lie wholly
inside the picture. The paper measures luminance only; here that is 0.299 R + 0.587 G + 0.114 B.

| paper | here |
| --- | --- |
| x, y | `pictures`, `others` |
| mu_x, mu_y | `mean_x`, `mean_y` |
| sigma_x^2, sigma_y^2, sigma_xy | `variance_x`, `variance_y`, `covariance` |
| MSSIM | what `ssim` returns, one number per pair |

Two faces look alike before anything leaked: the average of public pictures scores .2 to .4 against any face that is
centred alike. A figure says something only beside that of `mean_picture`.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import correlate1d

from blindsight.audit.inversion.decoder import Pictures
from blindsight.data.dataset import check_images
from blindsight.errors import InputError

WINDOW = 11
"""Pixels on each side of the window."""

SIGMA = 1.5
"""Standard deviation of the window, in pixels."""

C1, C2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
"""They keep the two factors of SSIM steady where a window is black or flat."""

LUMINANCE = (0.299, 0.587, 0.114)
"""Weights of red, green and blue."""

_BATCH = 128  # pairs whose windows are in memory at once

Floats = NDArray[np.float64]


def ssim(pictures: Pictures, others: Pictures) -> Floats:
    """Return the mean structural similarity of each pair of pictures, (n,): 1 means the same, it can be negative.

    >>> black, white = np.zeros((1, 16, 16, 3), np.uint8), np.full((1, 16, 16, 3), 255, np.uint8)
    >>> float(ssim(black, black)[0]), round(float(ssim(black, white)[0]), 6)
    (1.0, 0.0001)
    """
    check_images(pictures, least=1)
    check_images(others, least=1)
    if pictures.shape != others.shape:
        raise InputError(f"SSIM compares pictures one by one, of one size; got {pictures.shape} and {others.shape}.")
    if min(pictures.shape[1:3]) < WINDOW:
        height, width = pictures.shape[1:3]
        raise InputError(f"SSIM needs pictures of at least {WINDOW}x{WINDOW} pixels; got {height}x{width}.")
    spans = (slice(start, start + _BATCH) for start in range(0, len(pictures), _BATCH))
    return np.concatenate([_mean_similarity(pictures[span], others[span]) for span in spans])


def mean_picture(public: Pictures) -> NDArray[np.uint8]:
    """Return the average of public pictures, (height, width, 3): the best guess of somebody who saw nothing else."""
    check_images(public, least=1)
    total = np.zeros(public.shape[1:])
    for picture in public:
        total += picture
    average: NDArray[np.uint8] = np.rint(total / len(public)).astype(np.uint8)
    return average


def _mean_similarity(pictures: Pictures, others: Pictures) -> Floats:
    x, y = (np.asarray(images @ np.array(LUMINANCE), dtype=np.float64) for images in (pictures, others))
    mean_x, mean_y = _windowed(x), _windowed(y)  # Eq. 14
    variance_x = _windowed(x * x) - mean_x**2  # Eq. 15
    variance_y = _windowed(y * y) - mean_y**2
    covariance = _windowed(x * y) - mean_x * mean_y  # Eq. 16
    luminance = (2 * mean_x * mean_y + C1) / (mean_x**2 + mean_y**2 + C1)
    structure = (2 * covariance + C2) / (variance_x + variance_y + C2)
    similarity: Floats = (luminance * structure).mean(axis=(1, 2))  # Eqs. 13 and 17
    return similarity


def _windowed(values: Floats) -> Floats:
    """Return the weighted mean of every window that lies wholly inside."""
    reach = WINDOW // 2
    weights = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * SIGMA**2))
    weights /= weights.sum()
    for axis in (1, 2):
        values = correlate1d(values, weights, axis=axis, mode="constant")
    return values[:, reach:-reach, reach:-reach]
