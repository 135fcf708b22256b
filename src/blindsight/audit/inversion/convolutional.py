"""A convolutional decoder: the linear decoder's picture, redrawn by a small network that knows what pictures look like.

An embedding of a picture has forgotten where things were; a linear map back gives a faint, blurred mean. The network
takes that picture at a quarter of its resolution with the 4 x 4 pixels of every cell as channels, passes it through
four convolutions, adds what they say and spreads the cells out again (sub-pixel convolution: Shi et al., CVPR 2016). It
sees pictures only, so it works for features of any kind and pictures of any size, and needs few public pictures:
trained straight from embedding to pixels, the same budget gave a worse picture than the linear decoder alone.

It learns from pictures that the linear decoder makes of persons it was not fitted to (`fit_and_leave_out`): those of
its own training rows are sharper than any that it will show later. The loss is the mean absolute error plus
1 - SSIM over uniform windows (of 8 x 8 pixels, every 4), since a squared error would blur again what is uncertain.

Needs the extra `deep`. The same `random_state` gives the same decoder on the same machine.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from blindsight.audit.inversion.decoder import Decoder, Floats, Pictures
from blindsight.audit.inversion.ridge import LinearDecoder, RidgeInversion
from blindsight.audit.inversion.similarity import C1, C2, LUMINANCE
from blindsight.errors import InputError
from blindsight.extras import Module, Tensor, load_torch, seeded
from blindsight.progress import Progress, silent
from blindsight.rng import science

_CELL = 4  # pixels on each side that become channels
_WINDOW = 8
_PIECE = 64  # pixels on each side of what is learned from at once: larger pictures take no longer
_ROWS = 64  # pictures that go through the network at once where no gradient is needed
_LEAK = 0.1  # slope of the activation below zero
_DECAY = 1e-2


@dataclass(frozen=True, eq=False)
class ConvolutionalDecoder(Decoder):
    """A linear decoder followed by a network that redraws its pictures."""

    linear: LinearDecoder
    module: Module = field(repr=False)
    device: str = "cpu"

    def paint(self, rows: Floats) -> Floats:
        """Return the pictures of checked rows as numbers in [0, 255]."""
        drafts = self.linear.paint(rows)
        with load_torch().inference_mode():
            for start in range(0, len(drafts), _ROWS):
                span = slice(start, start + _ROWS)
                better = _redrawn(self.module, _tensor(drafts[span], self.device))
                drafts[span] = (better.clamp(0, 1) * 255).permute(0, 2, 3, 1).cpu().numpy()
        return drafts


@dataclass(frozen=True)
class ConvolutionalInversion:
    """Learns a `ConvolutionalDecoder` in so many `steps` of `batch` pictures; the time is that of the steps."""

    steps: int = 600
    batch: int = 32
    channels: int = 48
    learning_rate: float = 1e-3
    random_state: int | np.random.Generator | None = 0
    device: str = "cpu"
    progress: Progress = silent

    def fit(self, features: ArrayLike, images: Pictures, persons: ArrayLike | None = None) -> ConvolutionalDecoder:
        """Learn from public pictures and their features, row by row; `persons` tells which rows show the same one."""
        if min(self.steps, self.batch, self.channels) < 1 or not self.learning_rate > 0:
            raise InputError(
                "steps, batch and channels must be at least 1 and learning_rate positive; got "
                f"{self.steps}, {self.batch}, {self.channels} and {self.learning_rate}."
            )
        load_torch()  # before the linear decoder takes its time
        generator = science(self.random_state)
        linear, drafts = RidgeInversion().fit_and_leave_out(features, images, persons)
        with seeded(generator, self.device):
            module = _network(self.channels).to(self.device)
            self._train(module, drafts, images, generator)
        return ConvolutionalDecoder(linear.dimension, linear.shape, linear, module.eval(), self.device)

    def _train(self, module: Module, drafts: Floats, images: Pictures, generator: np.random.Generator) -> None:
        torch = load_torch()
        optimiser = torch.optim.AdamW(module.parameters(), lr=self.learning_rate, weight_decay=_DECAY)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, self.steps)
        order = np.concatenate(
            [generator.permutation(len(images)) for _ in range(math.ceil(self.steps * self.batch / len(images)))]
        )
        for step in range(self.steps):
            rows = order[step * self.batch : (step + 1) * self.batch]
            cut = _cut(images.shape, generator)
            redrawn = _redrawn(module, _tensor(drafts[rows][:, *cut], self.device))
            loss = _loss(redrawn, _tensor(images[rows][:, *cut], self.device))
            if not math.isfinite(loss.item()):
                raise InputError(f"the training diverged. Use a learning_rate below {self.learning_rate}.")
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            self.progress("training the decoder", step + 1, self.steps)


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


def _tensor(pictures: Floats | Pictures, device: str) -> Tensor:
    """Return pictures as (n, 3, height, width) in [0, 1]."""
    return load_torch().tensor(pictures, device=device).permute(0, 3, 1, 2).float() / 255


def _loss(pictures: Tensor, originals: Tensor) -> Tensor:
    torch = load_torch()
    side = min(_WINDOW, *pictures.shape[2:])

    def windowed(values: Tensor) -> Tensor:
        return torch.nn.functional.avg_pool2d(values, side, max(1, side // 2))

    weights = torch.tensor(LUMINANCE, dtype=torch.float32, device=pictures.device)
    x, y = (torch.einsum("nchw,c->nhw", images, weights)[:, None] for images in (pictures, originals))
    mean_x, mean_y = windowed(x), windowed(y)
    variance = windowed(x * x + y * y) - mean_x**2 - mean_y**2
    covariance = windowed(x * y) - mean_x * mean_y
    c1, c2 = C1 / 255**2, C2 / 255**2
    luminance = (2 * mean_x * mean_y + c1) / (mean_x**2 + mean_y**2 + c1)
    similarity = (luminance * (2 * covariance + c2) / (variance + c2)).mean()
    return 2 * (pictures - originals).abs().mean() + 1 - similarity
