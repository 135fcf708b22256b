"""Pictures of a run's owners, drawn from what a plain update, this run's scheme and a sift would show of them.

A run's own updates are made from many pictures at once, and no decoder draws a single one from them. So each owner
here sends one step on one of its pictures, through the scheme of the run. The sift, which a run does not have, is made
from public rows for comparison: one number that tells the first answer of the classifier and hides the second.
"""

from dataclasses import replace

import numpy as np

from blindsight.audit.checks import Evidence
from blindsight.audit.inversion import aggregator_samples, four_pictures
from blindsight.audit.inversion.study import seconds_to_learn
from blindsight.audit.rebuiltrun import RebuiltRun
from blindsight.data.features import extract
from blindsight.data.pixels import PixelFeatures
from blindsight.errors import InputError
from blindsight.learn.study import Study
from blindsight.rng import science
from blindsight.sift.ppls import PPLS
from blindsight.sift.sift import LinearSift

_PROBES, _SHOWN = 24, 3


def draw_owners(run: RebuiltRun, random_state: int) -> Evidence:
    """Draw some of the owners' pictures, with decoders trained on the public ones."""
    if run.recorded is None or run.dataset.images is None:
        raise InputError(f"{run.dataset.name} has no pictures, only features: nothing can be drawn.")
    study, generator = run.study, science(random_state)
    private = np.concatenate(run.division.owners)
    probes = run.dataset.take(generator.permutation(private)[:_PROBES])
    public, scheme = run.dataset.take(run.division.public), run.recorded.scheme
    sift = _sift(study, scale=not isinstance(run.features, PixelFeatures))
    read = aggregator_samples(
        extract(probes, run.features), study.public[0], scheme=scheme, random_state=generator, progress=run.progress
    )
    drawn = four_pictures(
        probes,
        public,
        pipeline=run.features,
        sift=sift,
        aggregator=read,
        random_state=generator,
        progress=run.progress,
    )
    rows = drawn.findings()
    if scheme == "plain":  # which promises nothing
        rows = tuple(replace(row, verdict="leaks") if row.verdict == "refuted" else row for row in rows)
    return Evidence(rows, tuple(drawn.row(index) for index in range(min(_SHOWN, len(probes)))))


def seconds_to_draw(run: RebuiltRun) -> float:
    """Return about what drawing takes."""
    return 4 + seconds_to_learn(run.features)


def _sift(study: Study, *, scale: bool) -> LinearSift:
    """Return a number that tells the first answer and hides the second."""
    features, answers = study.public
    columns = answers if study.multilabel else np.eye(len(study.answers), dtype=np.int64)[answers]
    if columns.shape[1] < 2:
        raise InputError("a sift tells one attribute and hides another; this run learned a single one.")
    sift: LinearSift = PPLS(1, scale=scale).fit(features, columns[:, 0], columns[:, 1]).sift_
    return sift
