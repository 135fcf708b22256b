"""Local mode: every owner releases one noisy symbol per record, and anyone who holds the releases can search them.

*The guarantee.* A release is at most e^epsilon times as likely from one record as from any other: epsilon-differential
privacy per record with delta = 0, against anyone who sees the release, whatever they know. The only way from a record
to its release is its symbol, one of k, and a mechanism on k symbols that is proven to lose epsilon (`symbols`).
Everything else, the codebook, k, the choice of the mechanism and how releases are ranked, comes from *public* features.

Symbols are regions of meaning that public pictures reveal (`codebook`), as many of them as epsilon can carry
(`channels`); the query is real-valued and ranks the releases by Bayes' rule. ::

    hasher = LocalHasher(epsilon=4.0).fit(public_features)
    released = hasher.release(features)                    # leaves the owner, once
    order = np.argsort(-hasher.scores(query, released))    # by the asker

Releasing a record again loses epsilon again: keep the first release (`releases`).
"""

import json
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

from blindsight.dp.accounting import check_positive
from blindsight.errors import CorruptFileError, InputError, UnknownNameError
from blindsight.files import AnyPath, read_arrays, write_arrays
from blindsight.rng import ByteSource, science, system_bytes
from blindsight.search.channels import Design, Doubles, Mechanism, best_design
from blindsight.search.codebook import Codebook, HeadCodebook, learn_codebook, learn_labelled_codebook
from blindsight.search.codes import check_whole
from blindsight.search.function import class_numbers, digest_of
from blindsight.search.symbols import KaryResponse, SubsetSelection
from blindsight.statement import PrivacyStatement, randomness_of
from blindsight.validation import check_features

FEWEST_PUBLIC = 8
_KIND = "blindsight/local-hasher.1"
KEPT_APART = 0.9  # the share of the best expected precision for which public classes are kept apart, not joined
_MECHANISMS = ("auto", "kary", "subset")


@dataclass(eq=False, repr=False)
class LocalHasher(BaseEstimator):  # type: ignore[misc]
    """Symbols for search with a proof for every single record.

    Fitted, `codebook_` and `design_` are the frozen public parts: what pictures mean, and how cells of meaning are
    released; `mechanism_`, `k_` and `outputs_` the mechanism, its number of symbols and of different releases;
    `decoder_` (outputs, cells) how likely a record lies in a cell given its release; `labelled_` if labels were used.
    """

    epsilon: float  # what one release of a record costs it
    _: KW_ONLY
    symbols: int | str = "auto"  # how many; "auto": as many as epsilon makes useful
    mechanism: str = "auto"  # "kary", "subset" or, whichever is expected to find more, "auto"
    kinds: int | str = "auto"  # about how many to tell apart; "auto": as public features show; not used with labels
    max_public: int = 20_000  # of more public features, this many are drawn, and are part of the codebook
    random_state: int = 0  # decides that draw and where computations on public features start

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Learn from public features (n, d) and, where they have some, from one public label per row."""
        symbols, rows = self._check_parameters(), check_features(X, what="public features", least=0)
        fewest = max(FEWEST_PUBLIC, symbols or 0)
        if len(rows) < fewest:
            raise InputError(f"a codebook is learned from at least {fewest} public rows; got {len(rows)}.")
        classes = None
        if y is not None:
            names, classes = class_numbers(y, len(rows), "public labels")
            if not 2 <= len(names) <= len(rows) // 2:
                raise InputError(
                    f"public labels must name 2 to {len(rows) // 2} classes, half as many as rows; got {len(names)}. "
                    "Join some, or use none."
                )
        generator = science(self.random_state)
        if len(rows) > self.max_public:
            drawn = np.sort(generator.choice(len(rows), self.max_public, replace=False))
            rows, classes = rows[drawn], None if classes is None else np.unique(classes[drawn], return_inverse=True)[1]
        if classes is None:
            kinds = None if self.kinds == "auto" else int(self.kinds)
            codebook: Codebook = learn_codebook(rows, kinds, generator, fewest=symbols or 2)
        else:
            codebook = learn_labelled_codebook(rows, classes, generator)
        return self.take(codebook, labelled=y is not None)

    def take(self, codebook: Codebook, *, labelled: bool = False) -> Self:
        """Use a codebook that is there already, such as `shipped_codebook()`; only the symbols are chosen."""
        design = best_design(
            codebook.prior,
            codebook.relevance,
            self.epsilon,
            symbols=self._check_parameters(),
            mechanism=self.mechanism,
            nearly=KEPT_APART if labelled else 1.0,
        )
        return self._adopt(codebook, design, labelled=labelled)

    def true_symbols(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return the symbols of records without noise: they are as private as the records and stay with the owner."""
        return np.asarray(self._fitted().symbol_of_cell[self.codebook_.cells_of(X)])

    def release(self, X: ArrayLike, *, source: ByteSource = system_bytes) -> NDArray[np.int64]:
        """Return one noisy output in [0, outputs_) per record, drawn afresh: each call costs the records epsilon."""
        return self._fitted().release(self.true_symbols(X), source=source)

    def symbol_scores(self, queries: ArrayLike) -> Doubles:
        """Return how relevant the records with each output are expected to be, (queries, outputs); more is better."""
        self._fitted()
        return np.asarray(self.codebook_.relevance_of(queries) @ self.decoder_.T)

    def scores(self, queries: ArrayLike, released: ArrayLike) -> Doubles:
        """Return the scores of released records, (queries, n); equal releases tie."""
        given = np.asarray(released)
        outputs = self._fitted().outputs
        if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
            raise InputError(f"releases must be a list of whole numbers; got {given.dtype} {given.shape}.")
        if given.size and not 0 <= given.min() <= given.max() < outputs:
            raise InputError(f"releases must lie in [0, {outputs}). Were they made with another codebook?")
        return np.asarray(self.symbol_scores(queries)[:, given.astype(np.int64)])

    def statement(
        self, source: ByteSource = system_bytes, *, per_person: int | None = None, releases: int = 1
    ) -> PrivacyStatement:
        """Return what releases by `source` prove and leave open.

        `releases` counts those of the record with most; with `per_person` the unit is a person of at most that many.
        """
        design, shipped = self._fitted(), isinstance(self.codebook_, HeadCodebook)
        learned = "learned from public features " + ("and their labels" if self.labelled_ else "without labels")
        accounted = ["exact: the largest ratio of two probabilities of the same release"]
        assumptions = ["the codebook was learned from public data only"]
        not_protected = [
            "that a record exists, and how many there are",
            "that a record was edited, from anyone with two versions of the index: edited records are released again",
            "a picture that is there under several names, or comes back under another: it is released once for each",
            "what the public data show, even of a private picture that is also among them: nothing tells that it is",
            "queries, where the asker sends them to somebody else",
        ]
        if releases > 1:
            accounted.append(
                f"times {releases}, for that many releases were counted of some record (basic composition)"
            )
            assumptions.append(f"no record was released more often than the {releases} times that were counted")
        else:
            assumptions.append("every record is released once, and the release is kept rather than drawn again")
        if per_person is not None:
            each = _times(self.mechanism_.loss, max(releases, 1))
            accounted.append(f"group privacy: {per_person} records of {each:g} each")
            assumptions.append(f"no person ever has more than {per_person} of the records, deleted ones included")
        else:
            not_protected.append("several pictures of the same person: each loses epsilon, and together they add up")
        return PrivacyStatement(
            guarantee="differential privacy",
            mechanism=f"{design.mechanism}, of a codebook {'made of ImageNet classes' if shipped else learned}",
            unit="record" if per_person is None else "person",
            epsilon=_times(self.mechanism_.loss, max(releases, 1) * (per_person or 1)),
            delta=0.0,
            neighbours="replace",
            accountant="; ".join(accounted),
            randomness=randomness_of(source),
            who_sees={
                "owner": "the record and its true symbol",
                "holder of the index": "one noisy release per record, and which record it belongs to",
                "asker": "the own query, which is not noised and not protected, and the ranked releases",
                "anyone": "the codebook" if shipped else "the codebook, which holds the public features",
            },
            assumptions=tuple(assumptions),
            not_protected=tuple(not_protected),
        )

    @property
    def chosen(self) -> str:
        """What was chosen from epsilon and public features, in words."""
        design, learned = self._fitted(), "classes" if self.labelled_ else "cells"
        source = "of ImageNet" if isinstance(self.codebook_, HeadCodebook) else "that public features show"
        return f"{design.mechanism}, for {self.codebook_.cells} {learned} {source}"

    @property
    def digest(self) -> str:
        """SHA-256 of everything that decides releases and rankings."""
        document, arrays = self.parts()
        return digest_of(json.dumps(document, sort_keys=True), arrays)

    def save(self, path: AnyPath) -> None:
        """Write everything that was learned to one file, whole or not at all; it is public."""
        write_arrays(path, _KIND, *self.parts())

    @classmethod
    def load(cls, path: AnyPath) -> Self:
        """Read what `save` wrote; a damaged file raises `CorruptFileError`."""
        return cls.from_parts(*read_arrays(path, _KIND), where=str(path))

    def parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        mechanism = self._fitted().mechanism
        size = mechanism.size if isinstance(mechanism, SubsetSelection) else None
        document = {"parameters": self.get_params(), "k": mechanism.k, "size": size, "labelled": self.labelled_}
        return document, {**self.codebook_.arrays(), "symbol_of_cell": self.design_.symbol_of_cell}

    @classmethod
    def from_parts(cls, document: dict[str, Any], arrays: dict[str, NDArray[Any]], *, where: str) -> Self:
        try:
            hasher = cls(**document["parameters"])
            k, size = int(document["k"]), document["size"]
            mechanism: Mechanism = KaryResponse(k, hasher.epsilon)
            if size is not None:
                mechanism = SubsetSelection(k, hasher.epsilon, size)
            design = Design(arrays.pop("symbol_of_cell"), mechanism)
            return hasher._adopt(Codebook.from_arrays(arrays), design, labelled=bool(document["labelled"]))
        except (KeyError, TypeError, IndexError, ValueError, AttributeError, InputError) as error:
            raise CorruptFileError(f"{where} holds no usable local hasher: {error}") from None

    def _adopt(self, codebook: Codebook, design: Design, *, labelled: bool) -> Self:
        if len(design.symbol_of_cell) != codebook.cells:
            raise InputError(f"{codebook.cells} cells need as many symbols; got {len(design.symbol_of_cell)}.")
        self.codebook_, self.design_, self.labelled_ = codebook, design, labelled
        self.mechanism_, self.k_, self.outputs_ = design.mechanism, design.mechanism.k, design.outputs
        self.decoder_ = design.posterior(codebook.prior)
        self.n_features_in_ = codebook.dimension
        return self

    def _fitted(self) -> Design:
        if not hasattr(self, "design_"):
            raise InputError("this LocalHasher is not fitted yet: call fit with public features.")
        return self.design_

    def _check_parameters(self) -> int | None:
        """Return how many symbols are wanted, None for as many as are useful."""
        check_positive("epsilon", self.epsilon)
        if self.mechanism not in _MECHANISMS:
            raise UnknownNameError("mechanism", str(self.mechanism), _MECHANISMS)
        if self.kinds != "auto":
            check_whole("kinds", self.kinds, 2)
        check_whole("max_public", self.max_public, FEWEST_PUBLIC)
        return None if self.symbols == "auto" else check_whole("symbols", self.symbols, 2)


def _times(epsilon: float, number: int) -> float:
    """Return a multiple of an epsilon, to twelve digits: 0.1 three times is 0.3."""
    return epsilon if number == 1 else float(f"{epsilon * number:.12g}")
