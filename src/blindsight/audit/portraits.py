"""The row of four pictures on faces whose persons are known: original, from a plain update, from what the aggregator
really holds, from a sift.
"""

import math

from blindsight.audit.checks import Evidence
from blindsight.audit.inversion.evidence import aggregator_samples
from blindsight.audit.inversion.study import four_pictures, split_persons
from blindsight.data.dataset import Dataset
from blindsight.data.features import extract
from blindsight.data.features.pixels import PixelFeatures
from blindsight.progress import Progress, silent
from blindsight.sift.ppls import PPLS

SHOWN = 3
_COMPONENTS = 200
_PROBES = 60  # pictures that are really sent through a round


def portraits(
    dataset: Dataset,
    *,
    public: str,
    private: str,
    scheme: str = "block-dphe",
    random_state: int = 0,
    progress: Progress = silent,
) -> Evidence:
    """Draw faces from what each side holds of them; the sift lets `public` through and hides `private`."""
    known, gallery, probes = split_persons(dataset, random_state=random_state)
    probes = probes.take(range(min(_PROBES, len(probes))))
    assert known.images is not None
    pipeline = PixelFeatures(max_components=_COMPONENTS, random_state=random_state).fit(known.images)
    features, theirs = extract(known, pipeline), extract(probes, pipeline)
    sift = PPLS(5, math.inf, scale=False).fit(features, known.attribute(public), known.attribute(private)).sift_
    progress("a round of the real protocol", 0, None)
    held = aggregator_samples(theirs, features, scheme=scheme, random_state=random_state)
    found = four_pictures(
        probes,
        known,
        pipeline=pipeline,
        sift=sift,
        aggregator=held,
        gallery=gallery,
        random_state=random_state,
        progress=progress,
    )
    return Evidence(found.findings(), tuple(found.row(index) for index in range(min(SHOWN, len(probes)))))
