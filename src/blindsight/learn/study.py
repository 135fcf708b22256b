"""Who has what in a study of learning together: public data, owners and test data, cut from one collection.

A tenth of the training data is public and gives the initial model, the rest is shared out among the owners, as in
section 3.2 of Yonetani et al. 2017. Wherever persons are known, nobody is on two sides.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from blindsight.data import partition
from blindsight.data.dataset import Dataset
from blindsight.errors import DataError, InputError

Sharing = Literal["equal", "by-class", "by-person"]
"""How the private part is shared out: at random, skewed by class (Dirichlet), or each person to one owner."""

Pair = tuple[NDArray[np.float32], NDArray[np.int64]]


@dataclass(frozen=True, eq=False)
class Study:
    """Features with labels (n,) or, if `multilabel`, attributes (n, a), for the public, each owner and the test."""

    public: Pair
    owners: dict[str, Pair]
    test: Pair
    answers: tuple[str, ...]  # names of the classes or attributes
    multilabel: bool

    @property
    def classes(self) -> NDArray[np.int64] | None:
        """All classes there are, also those the public data lack; None for attributes."""
        return None if self.multilabel else np.arange(len(self.answers))

    @classmethod
    def of(
        cls,
        dataset: Dataset,
        features: NDArray[np.float32],
        *,
        owners: int,
        attributes: Sequence[str] = (),
        sharing: Sharing | None = None,
        concentration: float = 0.5,
        public: float = 0.1,
        test: float = 0.3,
        random_state: int = 0,
    ) -> Self:
        """Cut a collection: its classes are learned, or the named attributes (all, where it has no classes)."""
        targets, names = _targets(dataset, attributes)
        classes = targets.ndim == 1
        opened, private, tested = partition.split(
            targets if classes else targets[:, 0],
            ((1 - test) * public, (1 - test) * (1 - public), test),
            persons=dataset.persons,
            stratify=classes,
            random_state=random_state,
        )
        shares = _shares(dataset, targets, private, owners, sharing, concentration, random_state)
        return cls(
            public=(features[opened], targets[opened]),
            owners={f"owner {i}": (features[rows], targets[rows]) for i, rows in enumerate(shares, start=1)},
            test=(features[tested], targets[tested]),
            answers=names,
            multilabel=targets.ndim == 2,
        )


def _targets(dataset: Dataset, attributes: Sequence[str]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return what to learn, classes (n,) or attributes (n, a), and the names of the answers."""
    if dataset.labels is not None and not attributes:
        return dataset.labels, dataset.label_names
    if dataset.attributes is None:
        raise DataError(f"{dataset.name} has neither classes nor attributes to learn.")
    names = tuple(attributes) or dataset.attribute_names
    columns = np.stack([dataset.attribute(name) for name in names], axis=1).astype(np.int64)
    return columns, names


def _shares(
    dataset: Dataset,
    targets: NDArray[np.int64],
    rows: NDArray[np.int64],
    owners: int,
    sharing: Sharing | None,
    concentration: float,
    random_state: int,
) -> list[NDArray[np.int64]]:
    """Return each owner's rows; without a wish persons stay together where they are known."""
    chosen = sharing or ("equal" if dataset.persons is None else "by-person")
    if chosen == "by-person":
        if dataset.persons is None:
            raise InputError(f"{dataset.name} does not say who is on its pictures; share equally or by class.")
        places = partition.by_person(dataset.persons[rows], owners, random_state=random_state)
    elif chosen == "by-class":
        if targets.ndim != 1:
            raise InputError("sharing by class needs classes; attributes are shared equally or by person.")
        places = partition.by_class(targets[rows], owners, concentration=concentration, random_state=random_state)
    else:
        places = partition.equal(len(rows), owners, random_state=random_state)
    return [rows[part] for part in places]
