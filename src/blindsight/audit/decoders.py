"""Decoders of features, learned from public pictures by ridge regression and a small network; structural similarity.

A `Decoder` is frozen: it can only be applied. Whatever it shows comes from its input and from public pictures, never
from the owner of the features; a decoder that gets nothing useful shows an average public picture.

Structural similarity: how much of a picture another picture shows, 1 for the same and near 0 for a stranger.

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

A linear decoder: the picture that features make most likely, by ridge regression on public pictures.

Of all linear maps it has the smallest expected squared error, so it shows what an attacker with linear means can know:
of a pixel pipeline nearly the whole picture, of a few sifted numbers the mean picture of all people they could belong
to, of a symbol (one-hot) the mean picture of that symbol.

The regression runs in units that features can know. `PixelFeatures` takes each picture's mean and contrast away, so
these are predicted apart: a target is the picture less its own mean over its own standard deviation, and two numbers
more, its mean and the logarithm of its standard deviation.

The penalty is chosen by cross-validation that leaves out one person at a time (one picture, where nobody said who is on
them): other pictures of the same person would make weak penalties look good, and the faces to come are of strangers.
With X = U S V' and the hat matrix H = 1/n + U S^2 / (S^2 + penalty) U', the errors on the rows g of a person left out
are (I - H_gg)^-1 e_g, where e are the residuals of the fit to all rows: one decomposition serves all penalties. It also
gives the picture of every row by a decoder that never saw its person. A further stage that learns to improve pictures
must learn from these: the decoder's own pictures of its training rows are too good.

A convolutional decoder: the linear decoder's picture, redrawn by a small network that knows what pictures look like.

An embedding of a picture has forgotten where things were; a linear map back gives a faint, blurred mean. The network
takes that picture at a quarter of its resolution with the 4 x 4 pixels of every cell as channels, passes it through
four convolutions, adds what they say and spreads the cells out again (sub-pixel convolution: Shi et al., CVPR 2016). It
sees pictures only, so it works for features of any kind and pictures of any size, and needs few public pictures:
trained straight from embedding to pixels, the same budget gave a worse picture than the linear decoder alone.

It learns from pictures that the linear decoder makes of persons it was not fitted to: those of its own training rows
are sharper than any that it will show later. The loss is the mean absolute error plus 1 - SSIM over uniform windows (of
8 x 8 pixels, every 4), since a squared error would blur again what is uncertain.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import svd
from scipy.ndimage import correlate1d

from blindsight.data.dataset import check_images
from blindsight.errors import InputError
from blindsight.extras import Module, Tensor, load_torch, seeded
from blindsight.rng import science
from blindsight.validation import check_features

Pictures = NDArray[np.uint8]
"""(n, height, width, 3)."""

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

LARGEST = 1e12
"""No number that is decoded is larger."""


@dataclass(frozen=True, eq=False)
class Decoder:
    """picture = pixels(x) * contrast(x) + brightness(x), where all three are read from (x - centre) matrix + offset.

    The contrast stays between those of the public pictures, whatever the features are. A `module` redraws the picture.
    """

    shape: tuple[int, int, int]
    centre: Floats
    matrix: Floats
    offset: Floats
    contrasts: tuple[float, float]
    module: Module | None = field(default=None, repr=False)

    def decode(self, features: ArrayLike) -> Pictures:
        """Return one picture per row of features, uint8 (n, height, width, 3)."""
        rows = check_rows(features, self.centre.size)
        drafts = self.paint(np.matmul(rows - self.centre, self.matrix) + self.offset)
        if self.module is not None:
            with load_torch().inference_mode():
                for start in range(0, len(drafts), _ROWS):
                    better = _redrawn(self.module, _tensor(drafts[start : start + _ROWS]))
                    drafts[start : start + _ROWS] = (better.clamp(0, 1) * 255).permute(0, 2, 3, 1).numpy()
        pictures: Pictures = np.rint(drafts).astype(np.uint8)
        return pictures

    def paint(self, targets: Floats) -> Floats:
        """Return the pictures that predicted targets stand for, as numbers in [0, 255]."""
        contrast = np.exp(np.clip(targets[:, -1:], *np.log(self.contrasts)))
        pixels = targets[:, :-_NUMBERS] * contrast + 255 * targets[:, -_NUMBERS:-1]
        painted: Floats = np.clip(pixels, 0, 255).reshape(len(targets), *self.shape)
        return painted


def check_rows(features: ArrayLike, dimension: int | None = None) -> Floats:
    """Return features as float32 (n, d); rows of another length and numbers that are not finite are refused."""
    floats: Floats = check_features(features, dimension)
    if not (np.abs(floats) <= LARGEST).all():
        raise InputError(f"features must be within +-{LARGEST:g}. Remove, repair or rescale those rows.")
    return floats


WINDOW = 11
"""Pixels on each side of the window."""

SIGMA = 1.5
"""Standard deviation of the window, in pixels."""

C1, C2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
"""They keep the two factors of SSIM steady where a window is black or flat."""

LUMINANCE = (0.299, 0.587, 0.114)
"""Weights of red, green and blue."""

_BATCH = 128  # pairs whose windows are in memory at once


def ssim(pictures: Pictures, others: Pictures) -> Doubles:
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


def _mean_similarity(pictures: Pictures, others: Pictures) -> Doubles:
    x, y = (np.asarray(images @ np.array(LUMINANCE), dtype=np.float64) for images in (pictures, others))
    mean_x, mean_y = _windowed(x), _windowed(y)  # Eq. 14
    variance_x = _windowed(x * x) - mean_x**2  # Eq. 15
    variance_y = _windowed(y * y) - mean_y**2
    covariance = _windowed(x * y) - mean_x * mean_y  # Eq. 16
    luminance = (2 * mean_x * mean_y + C1) / (mean_x**2 + mean_y**2 + C1)
    structure = (2 * covariance + C2) / (variance_x + variance_y + C2)
    similarity: Doubles = (luminance * structure).mean(axis=(1, 2))  # Eqs. 13 and 17
    return similarity


def _windowed(values: Doubles) -> Doubles:
    """Return the weighted mean of every window that lies wholly inside."""
    reach = WINDOW // 2
    weights = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * SIGMA**2))
    weights /= weights.sum()
    for axis in (1, 2):
        values = correlate1d(values, weights, axis=axis, mode="constant")
    return values[:, reach:-reach, reach:-reach]


_PENALTIES = 10.0 ** np.arange(-7, 1.5, 0.5)  # in units of the largest squared singular value
_COLUMNS = 128  # of the targets, evenly spread, by which penalties are compared
_FLATTEST = 1.0  # grey levels of contrast below which a picture counts as flat
_NUMBERS = 2  # that a target holds besides the pixels: mean and log contrast

Groups = Sequence[NDArray[np.int64]]
"""Rows that are left out together."""


def fit_linear(
    features: ArrayLike, images: Pictures, persons: ArrayLike | None = None, *, penalty: float | None = None
) -> tuple[Decoder, Callable[[], Floats]]:
    """Learn from public pictures and their features, row by row; `persons` tells which rows show the same one.

    `penalty`, in units of the largest squared singular value, is chosen unless given. Return the decoder, and what
    paints each row by a decoder that saw all rows but those of its person.
    """
    check_images(images, least=1)
    rows = check_rows(features)
    if not 2 <= len(rows) == len(images):
        raise InputError(f"a decoder learns from 2 pictures or more, a row each; got {len(images)}, {len(rows)} rows.")
    if penalty is not None and not penalty > 0:
        raise InputError(f"a penalty must be above 0; got {penalty}. Use None to have it chosen.")
    groups, targets = _groups(persons, len(rows)), _targets(images)
    centre, offset = rows.mean(axis=0), targets.mean(axis=0)
    contrasts = (float(np.exp(targets[:, -1].min())), float(np.exp(targets[:, -1].max())))
    targets -= offset
    left, singular, right = svd(rows - centre, full_matrices=False, check_finite=False)
    kept = singular > 1e-6 * max(float(singular[0]), 1e-30)
    hat = _Hat(left[:, kept], singular[kept].astype(np.float64) ** 2)
    penalty = penalty or hat.best_penalty(targets, groups)
    weights = (hat.shrink(penalty) / singular[kept]).astype(np.float32)
    matrix: Floats = np.matmul(right[kept].T * weights, hat.left.T @ targets)
    decoder = Decoder((images.shape[1], images.shape[2], 3), centre, matrix, offset, contrasts)
    return decoder, lambda: decoder.paint(targets - hat.errors(targets, penalty, groups) + offset)


@dataclass(frozen=True, eq=False)
class _Hat:
    """The fitted values of a ridge regression as a function of its targets: `left` = U, `squares` = S^2."""

    left: Floats
    squares: NDArray[np.float64]

    def shrink(self, penalty: float) -> Floats:
        """Return S^2 / (S^2 + penalty), with the penalty in units of the largest square."""
        strength = penalty * self.squares[:1].sum()
        factors: Floats = (self.squares / (self.squares + strength)).astype(np.float32)
        return factors

    def errors(self, targets: Floats, penalty: float, groups: Groups) -> Floats:
        """Return the error in each target (of mean zero) of a fit to all rows but those of its group."""
        shrunk = self.left * self.shrink(penalty)
        errors: Floats = targets - np.matmul(shrunk, self.left.T @ targets)
        for rows in groups:
            unseen = (1 + 1e-6) * np.eye(len(rows), dtype=np.float32) - shrunk[rows] @ self.left[rows].T
            errors[rows] = np.linalg.solve(unseen - np.float32(1 / len(targets)), errors[rows])
        return errors

    def best_penalty(self, targets: Floats, groups: Groups) -> float:
        """Return the penalty with the smallest squared error on groups left out."""
        some = targets[:, :: -(-targets.shape[1] // _COLUMNS)]
        scores = [np.sum(self.errors(some, float(penalty), groups) ** 2) for penalty in _PENALTIES]
        return float(_PENALTIES[int(np.argmin(scores))])


def _groups(persons: ArrayLike | None, count: int) -> Groups:
    """Return the rows of each person; each row by itself if nobody said who is on them."""
    names = np.arange(count) if persons is None else np.asarray(persons)
    if names.shape != (count,):
        raise InputError(f"every public picture needs its person; got {names.shape} persons of {count} pictures.")
    starts = np.unique(np.sort(names), return_index=True)[1]
    if len(starts) < 2:
        raise InputError("public pictures must be of 2 persons or more: one is left out at a time.")
    return np.split(np.argsort(names, kind="stable"), starts[1:])


def _targets(images: Pictures) -> Floats:
    """Return what is predicted of each picture: its pixels in units of its own contrast, brightness, log contrast."""
    pixels = images.reshape(len(images), -1).astype(np.float32)
    brightness = pixels.mean(axis=1, keepdims=True)
    pixels -= brightness
    contrast = np.maximum(pixels.std(axis=1, keepdims=True), _FLATTEST)
    return np.hstack([pixels / contrast, brightness / 255, np.log(contrast)])


_CELL = 4  # pixels on each side that become channels
_WINDOW = 8
_PIECE = 64  # pixels on each side of what is learned from at once: larger pictures take no longer
_ROWS = 64  # pictures that go through the network at once where no gradient is needed
_LEAK = 0.1  # slope of the activation below zero
_DECAY = 1e-2


def fit_network(
    features: ArrayLike,
    images: Pictures,
    persons: ArrayLike | None = None,
    *,
    steps: int = 600,
    batch: int = 32,
    channels: int = 48,
    learning_rate: float = 1e-3,
    random_state: int | np.random.Generator | None = 0,
) -> Decoder:
    """Learn as `fit_linear` does, and a network behind it, in so many `steps` of `batch` pictures, which take the time.

    Needs the extra `deep`. The same `random_state` gives the same decoder on the same machine.
    """
    if min(steps, batch, channels) < 1 or not learning_rate > 0:
        raise InputError(
            "steps, batch and channels must be at least 1 and learning_rate positive; got "
            f"{steps}, {batch}, {channels} and {learning_rate}."
        )
    torch = load_torch()  # before the linear decoder takes its time
    generator = science(random_state)
    linear, left_out = fit_linear(features, images, persons)
    drafts = left_out()
    rounds = math.ceil(steps * batch / len(images))
    with seeded(generator, "cpu"):
        module = _network(channels)
        optimiser = torch.optim.AdamW(module.parameters(), lr=learning_rate, weight_decay=_DECAY)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
        order = np.concatenate([generator.permutation(len(images)) for _ in range(rounds)])
        for step in range(steps):
            rows = order[step * batch : (step + 1) * batch]
            cut = _cut(images.shape, generator)
            loss = _loss(_redrawn(module, _tensor(drafts[rows][:, *cut])), _tensor(images[rows][:, *cut]))
            if not math.isfinite(loss.item()):
                raise InputError(f"the training diverged. Use a learning_rate below {learning_rate}.")
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    return replace(linear, module=module.eval())


def _cut(shape: tuple[int, ...], generator: np.random.Generator) -> tuple[slice, slice]:
    """Return where to cut a piece of at most 64 x 64 pixels out of pictures; whole cells from its border."""
    tops = [_CELL * int(generator.integers(max(0, side - _PIECE) // _CELL + 1)) for side in shape[1:3]]
    return slice(tops[0], tops[0] + _PIECE), slice(tops[1], tops[1] + _PIECE)


def _network(channels: int) -> Module:
    """Return four convolutions on cells; the last begins at zero, so the network begins by changing nothing."""
    nn, cells = load_torch().nn, 3 * _CELL * _CELL
    last = nn.Conv2d(channels, cells, 3, padding=1)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(
        nn.Conv2d(cells, channels, 3, padding=1),
        nn.LeakyReLU(_LEAK),
        nn.Conv2d(channels, channels, 3, padding=1),
        nn.LeakyReLU(_LEAK),
        nn.Conv2d(channels, channels, 3, padding=1),
        nn.LeakyReLU(_LEAK),
        last,
    )


def _redrawn(module: Module, drafts: Tensor) -> Tensor:
    """Return better pictures, of the same size; those whose sides are no whole number of cells are padded meanwhile."""
    functional = load_torch().nn.functional
    height, width = drafts.shape[2:]
    padded = functional.pad(drafts, (0, -width % _CELL, 0, -height % _CELL), mode="replicate")
    cells = functional.pixel_unshuffle(padded, _CELL)
    return functional.pixel_shuffle(cells + module(cells), _CELL)[:, :, :height, :width]


def _tensor(pictures: Floats | Pictures) -> Tensor:
    """Return pictures as (n, 3, height, width) in [0, 1]."""
    return load_torch().tensor(pictures).permute(0, 3, 1, 2).float() / 255


def _loss(pictures: Tensor, originals: Tensor) -> Tensor:
    torch = load_torch()
    side = min(_WINDOW, *pictures.shape[2:])

    def windowed(values: Tensor) -> Tensor:
        return torch.nn.functional.avg_pool2d(values, side, max(1, side // 2))

    weights = torch.tensor(LUMINANCE, dtype=torch.float32)
    x, y = (torch.einsum("nchw,c->nhw", images, weights)[:, None] for images in (pictures, originals))
    mean_x, mean_y = windowed(x), windowed(y)
    variance = windowed(x * x + y * y) - mean_x**2 - mean_y**2
    covariance = windowed(x * y) - mean_x * mean_y
    c1, c2 = C1 / 255**2, C2 / 255**2
    luminance = (2 * mean_x * mean_y + c1) / (mean_x**2 + mean_y**2 + c1)
    similarity = (luminance * (2 * covariance + c2) / (variance + c2)).mean()
    return 2 * (pictures - originals).abs().mean() + 1 - similarity
