"""A collection divided for a study of search: public pictures, the private ones that are indexed, and queries.

What a query looks for are pictures of its class or, in a collection without classes, of its person. No picture is in
two parts, and nobody on a public picture is on a private one, unless persons are only another name for classes.
Features that learn from pictures learn from the public ones alone, so that nothing leaves by that way.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from blindsight.data import partition
from blindsight.data.dataset import Dataset
from blindsight.data.features import FeaturePipeline, extract
from blindsight.data.partition import Division
from blindsight.errors import DataError
from blindsight.files import AnyPath
from blindsight.progress import Progress, silent
from blindsight.search.function import Floats

Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Part:
    """Features (n, d), what each row shows (class or person), and the row of the collection it is."""

    features: Floats
    labels: Rows
    rows: Rows

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, eq=False)
class SearchStudy:
    """The three parts, ready to be searched."""

    name: str
    public: Part
    indexed: Part
    queries: Part

    @property
    def chance(self) -> float:
        """Mean average precision of a random order: the share of right answers."""
        return float((self.queries.labels[:, None] == self.indexed.labels).mean())

    def first_queries(self, each: int = 1) -> list[int]:
        """Return the places of the first `each` queries of every class, in the order of classes."""
        labels = self.queries.labels
        return [int(place) for label in np.unique(labels) for place in np.flatnonzero(labels == label)[:each]]

    @classmethod
    def prepare(
        cls,
        dataset: Dataset,
        division: Division,
        pipeline: FeaturePipeline,
        *,
        cache: AnyPath | None = None,
        progress: Progress = silent,
    ) -> Self:
        features = extract(dataset, pipeline, fit_to=division.public, cache=cache, progress=progress)
        return cls.of(dataset, features, division)

    @classmethod
    def of(cls, dataset: Dataset, features: Floats, division: Division) -> Self:
        """Put a collection's features where its rows belong; a query without anything to find is left out."""
        shown, (indexed,), queries = sought(dataset), division.owners, division.held_out
        findable = np.isin(shown[queries], shown[indexed])
        if not findable.any():
            raise DataError(f"no query of {dataset.name} has anything to find among the indexed pictures.")
        parts = (division.public, indexed, queries[findable])
        return cls(dataset.name, *(Part(features[rows], shown[rows], rows) for rows in parts))


def sought(dataset: Dataset) -> Rows:
    """Return what two pictures must have in common to be a right answer: their class or, without classes, person."""
    if dataset.labels is not None:
        return dataset.labels
    if dataset.persons is not None:
        return dataset.persons
    raise DataError(f"{dataset.name} has neither classes nor persons, so no answer can be told right from wrong.")


def divide(dataset: Dataset, *, queries: int = 500, public: float = 0.5, random_state: int = 0) -> Division:
    """Divide a collection: a share of it public, then so many queries, and the rest indexed for one owner."""
    persons = dataset.persons if dataset.labels is None else None
    return partition.divide(
        sought(dataset),
        public=public,
        held_out=queries,
        persons=persons,
        stratify=persons is None,
        random_state=random_state,
    )
