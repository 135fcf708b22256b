"""Is this picture in there, and which one is it? What somebody finds who has taken the same picture again.

The attacker holds another capture of a picture: noise on every pixel, and a little more or less light. It asks the
index with it and names the nearest entry, one of the nearest at random where several are equally near. A blind guess
is right once in n. Where releases are epsilon-private it is right with probability at most

    e^(2 epsilon) / (e^(2 epsilon) + n - 1):

numbers of pictures are drawn at random, so before the attack the picture is as likely behind any entry as behind any
other; exchanging the pictures behind two entries changes the likelihood of all releases by at most e^epsilon for each.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from blindsight.audit.finding import Finding, Verdict, rate
from blindsight.data.features import FeaturePipeline
from blindsight.rng import science
from blindsight.search.codes import blocks
from blindsight.search.evaluation import Searcher
from blindsight.search.gallery import Mode

NOISE, LIGHT = 8.0, 0.05
"""Deviation of the noise on a pixel (of 255), and of the light."""

CONFIDENCE = 0.999

_ROWS = 128  # pictures whose distances to all entries are in memory at once


@dataclass(frozen=True)
class Linkage:
    """How many of the pictures taken again were named right, among so many entries."""

    right: int
    pictures: int
    entries: int


def recapture(images: NDArray[np.uint8], generator: np.random.Generator) -> NDArray[np.uint8]:
    """Return the same pictures as another capture would show them."""
    light = generator.normal(1.0, LIGHT, size=(len(images), 1, 1, 1))
    seen = images * light + generator.normal(0.0, NOISE, size=images.shape)
    return np.clip(np.rint(seen), 0, 255).astype(np.uint8)


def link_recaptured(
    searcher: Searcher,
    images: NDArray[np.uint8],
    places: NDArray[np.int64],
    pipeline: FeaturePipeline,
    *,
    pictures: int,
    random_state: int | np.random.Generator | None,
) -> Linkage:
    """Take so many of the pictures again and name each; `places` are their true places in the index."""
    generator = science(random_state)
    chosen = generator.permutation(len(images))[:pictures]
    right = 0
    for span in blocks(len(chosen), _ROWS):
        some = chosen[span]
        distances = searcher.distances(pipeline.transform(recapture(images[some], generator)))
        nearest = distances == distances.min(axis=1, keepdims=True)
        named = np.argmax(np.where(nearest, generator.random(distances.shape), -1), axis=1)
        right += int(np.sum(named == places[some]))
    return Linkage(right, len(chosen), distances.shape[1])


def linkage_finding(linked: Linkage, mode: Mode, epsilon: float | None) -> Finding:
    """Return how often a picture is found; an index that tells nothing is called a leak at most once in 2,000."""
    share, chance = rate(linked.right, linked.pictures, confidence=CONFIDENCE), 1 / linked.entries
    source, proven, most = "nobody", "nothing: codes carry no noise", chance
    above: Verdict = "leaks"
    if mode == "central":
        source, above = "the statement of the index", "as stated"
        proven = "nothing of the codes, which must stay with the owner"
    below: Verdict = "at chance"
    if mode == "local":
        assert epsilon is not None
        odds = math.exp(min(2 * epsilon, 700.0))
        most = odds / (odds + linked.entries - 1)
        source, proven = "the statement of the index", f"right in at most {most:.3g} of the cases"
        above, below = "refuted", "not refuted"
    return Finding(
        claim="who has a picture cannot tell which entry of the index it is",
        source=source,
        proven=proven,
        measure=f"share of pictures taken again that are named right (chance: {chance:.3g})",
        measured=share,
        verdict=above if share.low > most else below,
        attack=f"another capture of the picture (noise of {NOISE:g} levels, {LIGHT:.0%} more or less light)",
        details={"pictures": linked.pictures, "entries": linked.entries, "chance": chance},
    )


def uniqueness_finding(codes: NDArray[np.uint8], mode: Mode) -> Finding:
    """Return how many codes belong to one picture alone: such a code is as good as a name."""
    counts = np.unique(codes, axis=0, return_counts=True)[1]
    alone = int(np.sum(counts == 1))
    owner = mode == "central"
    return Finding(
        claim="a code does not give away whose it is",
        source="the statement of the index" if owner else "nobody",
        proven="nothing of the codes, which must stay with the owner" if owner else "nothing: codes carry no noise",
        measure="share of pictures whose code no other picture has",
        measured=rate(alone, len(codes), confidence=CONFIDENCE),
        verdict="at chance" if not alone else "as stated" if owner else "leaks",
        attack="reading the index",
        details={"pictures": len(codes), "different codes": len(counts)},
    )
