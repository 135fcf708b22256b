"""What somebody holds of a picture, as vectors that a decoder can turn back: plain update, aggregator's view, sift.

- `plain_samples`: an owner makes one step of SGD with hinge loss on one picture, for a linear classifier with a bias,
  and sends the new weights in the clear. The features come back exactly (`leakage.linear`), sign and length included.
- `aggregator_samples`: the same updates go through a round of a scheme; the aggregator reads what it received in every
  way that could make sense (`leakage.views`) and takes the reading that looks most like public features. Nobody tells
  it which one is right, so what comes out speaks of the scheme alone: of `plain` it mostly is the true features.
- `sifted_rows`: the numbers that a sift lets out; symbols become one-hot rows, since their order means nothing.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.audit.inversion.decoder import Floats, check_rows
from blindsight.audit.leakage.linear import recover_from_hinge_step
from blindsight.audit.leakage.recovery import gradient_step
from blindsight.audit.leakage.schemes import Recorder, guesses_from_view
from blindsight.progress import Progress, silent
from blindsight.rng import science
from blindsight.sift.sift import Sift
from blindsight.sums.session import open_session

_LEARNING_RATE = 0.1
_OWNERS = ("ann", "bob", "cem")
_MOST_SYMBOLS = 256  # alphabets up to here become one-hot rows


def plain_samples(features: ArrayLike, *, random_state: int | np.random.Generator | None = 0) -> Floats:
    """Return the features that an attacker recovers from one plain update for each row."""
    rows = check_rows(features)
    before, updates = _updates(rows, science(random_state))
    return np.array(
        [recover_from_hinge_step(before, before + update, bias=True).best.sample for update in updates],
        dtype=np.float32,
    )


def aggregator_samples(
    features: ArrayLike,
    public: ArrayLike,
    *,
    scheme: str,
    key_bits: int = 3072,
    insecure: bool = False,
    random_state: int | np.random.Generator | None = 0,
    progress: Progress = silent,
) -> Floats:
    """Return the features that the aggregator of a scheme takes for those behind each update, three owners a round.

    `public` holds features of public pictures, which tell the attacker what features look like.
    """
    rows, plausible = check_rows(features), _Plausible.like(check_rows(public))
    updates = _updates(rows, science(random_state))[1]
    recorder, dimension = Recorder(), updates.shape[1]
    session = open_session(
        scheme,
        members=_OWNERS,
        dimension=dimension,
        minimum_per_position=1,  # as in the paper
        key_bits=key_bits,
        insecure=insecure,
        record=recorder,
    )
    samples = np.empty_like(rows)
    for number, start in enumerate(range(0, len(rows), len(_OWNERS))):
        taking_part = dict(zip(_OWNERS, np.arange(start, start + len(_OWNERS)) % len(rows), strict=True))
        recorder.forget_rounds()
        session.round({owner: updates[row] for owner, row in taking_part.items()}, number)
        for owner, row in taking_part.items():
            samples[row] = plausible.choose(guesses_from_view(recorder.received, owner, dimension).rows)
        progress("reading the aggregator's view", min(start + len(_OWNERS), len(rows)), len(rows))
    return samples


def sifted_rows(sift: Sift, features: ArrayLike) -> Floats:
    """Return what a sift lets out of each row: its numbers, or one-hot rows of its symbols."""
    if sift.alphabet is None or sift.alphabet > _MOST_SYMBOLS:
        return np.asarray(sift.apply(features), dtype=np.float32)
    return np.eye(sift.alphabet, dtype=np.float32)[sift.symbols(features)]


def _updates(rows: Floats, generator: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the weights that all owners start from, and what the owner of each row adds to them; the bias is last."""
    samples = rows.astype(np.float64)
    size = samples.shape[1]
    # Margins of these weights stay well below one, as those of a classifier that has yet to learn something.
    length = max(float(np.mean(np.linalg.norm(samples, axis=1))), 1e-300)
    before = np.append(generator.normal(size=size) * 0.1 / np.sqrt(size) / length, 0.0)
    labels = generator.choice([-1, 1], size=len(samples))
    steps = [
        gradient_step(before, sample[None], [label], loss="hinge", learning_rate=_LEARNING_RATE, bias=True) - before
        for sample, label in zip(samples, labels, strict=True)
    ]
    return before, np.array(steps)


@dataclass(frozen=True, eq=False)
class _Plausible:
    """What features look like, by public ones: the usual size of each, and the lengths that pictures have."""

    sizes: NDArray[np.float64]
    lengths: tuple[float, float]

    @classmethod
    def like(cls, public: Floats) -> Self:
        sizes, lengths = np.abs(public).mean(axis=0, dtype=np.float64), np.linalg.norm(public, axis=1)
        return cls(sizes, (max(float(lengths.min()), 1e-12), max(float(lengths.max()), 1e-12)))

    def choose(self, guesses: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sample behind the guess of an update that looks most like a picture's.

        An update is a multiple of (features, 1), so its last entry tells sign and length. A sample looks right if large
        features are where they usually are and if public pictures are as long; other lengths are cut.
        """
        samples = guesses[:, :-1] / np.where(guesses[:, -1:] == 0, 1.0, guesses[:, -1:])
        lengths = np.maximum(np.linalg.norm(samples, axis=1), 1e-300)
        likeness = np.abs(samples) @ self.sizes / lengths / np.linalg.norm(self.sizes)
        cut = np.clip(lengths, *self.lengths)
        best = int(np.argmax(likeness - np.abs(np.log(lengths / cut))))
        chosen: NDArray[np.float64] = samples[best] * (cut[best] / lengths[best])
        return chosen
