"""The audit of an index: what its noise is worth, whether it was really added, and what a lost picture is found by.

| mode | epsilon | permanence | the hash function | codes |
| --- | --- | --- | --- | --- |
| local | fresh draws; the stored releases | building again | public, holds no record | releases |
| central | fresh fits of the mechanism | building again | who was in the collection | exact, for the owner alone |
| open | none is claimed | - | who was in the collection | exact, for whoever has them |

In every mode neighbouring folders are built and every byte that others can read is compared (`storedreleases`). Where
the owner of a central or open index allows encrypted queries, they are spent on reading the codes.

Whatever looks at pictures needs the owner's table and the pictures themselves, and says so where they are not there.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.audit import membership
from blindsight.audit.checks import Check, Evidence
from blindsight.audit.epsilon import runs_needed
from blindsight.audit.finding import Finding, rate
from blindsight.audit.linkage import link_recaptured, linkage_finding, uniqueness_finding
from blindsight.audit.mechanisms import central_sums, local_mechanism
from blindsight.audit.membership import Game, code_fit, hash_trainer, likelihood_ratio
from blindsight.audit.run_audit import shadows_for, usable_fprs
from blindsight.audit.storedreleases import (
    anchors_finding,
    neighbouring_bytes,
    public_bytes_finding,
    truth_finding,
)
from blindsight.audit.subject import Subject
from blindsight.audit.targets import Plan
from blindsight.data.dataset import Dataset
from blindsight.data.features import extract
from blindsight.errors import CorruptFileError, InputError
from blindsight.files import cache_folder
from blindsight.progress import Progress, silent
from blindsight.search.building import Wish, build_gallery, read_origin
from blindsight.search.central import CentralHasher
from blindsight.search.codes import unpack
from blindsight.search.encrypted_query import (
    EncryptedQuery,
    EncryptedScan,
    QueryBudget,
    QueryServer,
    held_bits,
    plain_modulus,
    told_bits,
)
from blindsight.search.function import Floats, HashFunction, HashLearner, LinearHash
from blindsight.search.gallery import Gallery, Origin, Part, feature_pipeline
from blindsight.search.hashers import ITQ
from blindsight.search.index import SymbolIndex
from blindsight.search.localmode import LocalHasher
from blindsight.search.supervised import KernelHash

_RUNS = 100_000
_NEIGHBOURHOOD = 8  # pictures of the folders whose public bytes are compared
_EPSILON_SECONDS = 2.0
_SCANNED = 4095  # codes that encrypted queries are tried on
STATEMENT = "the statement of the index"


def plan_index(folder: Path, *, random_state: int, data: Dataset | None = None, progress: Progress = silent) -> Plan:
    """Return the checks of an index by its mode."""
    index = IndexAudit(folder, Gallery.load(folder), data, random_state, progress)
    if index.gallery.mode != "open" and not index.gallery.settings.keys() >= {"epsilon", "delta", "bits"}:
        raise CorruptFileError(f"{folder} does not say with which epsilon, delta and bits it was made. Build it again.")
    pictures = len(index.gallery)
    epsilon = Check("epsilon of the mechanism", _EPSILON_SECONDS, index.epsilon)
    reading = 0.5 + 2e-4 * pictures
    again = Check("building again", 0, index.permanence, fixed=reading)
    linked = Check("finding a picture taken again", 0.2, index.linkage, fixed=reading)
    members = Check("membership in the hash function", 2e-3 * pictures, index.members, fixed=reading)
    builds = (0.5 if index.gallery.features == "thumbnail" else 8.0) + 1.5 * (index.gallery.mode == "central")
    public = Check("public bytes", 0, index.dependence, fixed=builds)
    checks: dict[str, tuple[Check, ...]] = {
        "local": (epsilon, public, Check("stored releases", 0, index.truths, fixed=reading), again, linked),
        "central": (epsilon, again, linked, members, public),
        "open": (linked, members, public),
    }
    chosen = checks[index.gallery.mode]
    if (allowed := QueryBudget(folder).most) and index.gallery.mode != "local":
        chosen += (Check("encrypted queries", 0, index.queries, fixed=1 + 0.15 * min(20, allowed)),)
    if index.gallery.statement.epsilon == 0:  # nothing was released
        chosen = tuple(check for check in chosen if check is not epsilon)
    if isinstance(index.gallery.hasher, KernelHash):
        chosen = (Check("anchors of the hash function", 1, index.anchors), *chosen)
    return Plan(f"the {index.gallery.mode} index of {len(index.gallery):,} pictures", chosen)


@dataclass(frozen=True, eq=False)
class IndexAudit:
    """An index, and the pictures behind it where they can be read."""

    folder: Path
    gallery: Gallery
    given: Dataset | None
    seed: int
    progress: Progress

    @cached_property
    def origin(self) -> Origin:
        """The owner's table."""
        return read_origin(self.folder)

    @cached_property
    def dataset(self) -> Dataset:
        """The pictures."""
        return self.origin.source.load() if self.given is None else self.given

    def features(self, part: Part) -> Floats:
        """Return the features of one part of the pictures, in the order of their numbers."""
        rows = self.origin.rows(self.dataset, part)[1]
        if not len(rows):
            return np.empty((0, 1), dtype=np.float32)
        pipeline = feature_pipeline(self.gallery.features)
        return extract(self.dataset.take(rows), pipeline, cache=cache_folder(), progress=self.progress)

    @cached_property
    def indexed(self) -> tuple[NDArray[np.int64], Floats]:
        """Where the indexed pictures that are still there stand in the index, and their features."""
        numbers = self.gallery.index.ids
        mine = self.origin.rows(self.dataset, "indexed")[0]
        known = np.isin(mine, numbers)
        if not known.any():
            raise InputError(f"no picture of the index is in {self.dataset.name} any more. Build it again.")
        return np.searchsorted(numbers, mine[known]), self.features("indexed")[known]

    def epsilon(self, effort: float) -> Evidence:
        """Run the mechanism anew, with the parameters of this index, on neighbours that are told apart most easily."""
        subject = self._mechanism()
        self.progress(subject.claim.name, 0, None)
        needed, seconds = runs_needed(subject.claim.epsilon, delta=subject.claim.delta), _EPSILON_SECONDS * effort
        runs = subject.runs_within(seconds, max(round(_RUNS * effort), needed))
        if runs < needed:
            note = (
                f"{subject.claim} was not put to the test: {needed:,} runs are needed to refute it, and {runs:,} fit "
                f"into {seconds:.3g} s. Allow more time (--minutes)."
            )
            return Evidence((), notes=(note,))
        return Evidence((subject.audit(runs).finding(),))

    def _mechanism(self) -> Subject:
        """Return what the index was made by, on trial for what its statement says of one release."""
        if isinstance(self.gallery.hasher, LocalHasher):
            return local_mechanism(self.gallery.hasher, STATEMENT)
        return central_sums(self._central_hasher(self.seed), STATEMENT)

    def truths(self, effort: float) -> Evidence:
        """Compare what is stored with what is true."""
        hasher, (places, rows) = self.gallery.hasher, self.indexed
        assert isinstance(hasher, LocalHasher)
        return Evidence((truth_finding(hasher, hasher.true_symbols(rows), _held(self.gallery)[places], STATEMENT),))

    def permanence(self, effort: float) -> Evidence:
        """Build a copy again, twice: the first brings it up to date, the second must change nothing."""
        settings = self.gallery.settings
        wish = Wish(
            self.gallery.mode,
            settings["epsilon"],
            settings["delta"] or 0.0,
            settings["bits"] or 1,
            features=self.gallery.features,
            per_person=settings.get("per_person"),
        )
        with TemporaryDirectory(prefix="blindsight-audit-") as scratch:
            copy = Path(scratch) / "index"
            copytree(self.folder, copy)
            first, second = (
                build_gallery(self.origin.source, wish, copy, cache=cache_folder(), progress=self.progress)
                for _ in range(2)
            )
        return Evidence((_permanence_finding(first, second),))

    def dependence(self, effort: float) -> Evidence:
        """Build neighbouring folders as this index was, with the same coins, and compare what is public."""
        gallery, settings = self.gallery, self.gallery.settings
        if self.dataset.images is None:
            raise InputError(f"{self.dataset.name} has no pictures, only features: no folder can be built of them.")
        some = self.dataset.images[self.origin.rows(self.dataset, "indexed")[1][:_NEIGHBOURHOOD]]
        if len(some) < 2:
            raise InputError(f"fewer than 2 pictures of the index are in {self.dataset.name}. Build it again.")
        bits = settings["bits"] or 1
        wish = Wish(
            gallery.mode,
            settings["epsilon"],
            settings["delta"] or 0.0,
            bits if gallery.mode == "central" else min(bits, _NEIGHBOURHOOD // 2),  # ITQ has a direction for each
            features=gallery.features,
            per_person=settings.get("per_person"),
        )
        codebook = gallery.hasher if isinstance(gallery.hasher, LocalHasher) else None
        seeds = 1 if gallery.mode == "central" else min(3, max(1, round(3 * effort)))  # its noise takes long to draw
        pairs = list(neighbouring_bytes(some, wish, codebook, seeds=seeds))
        return Evidence((public_bytes_finding(pairs, STATEMENT, gallery.mode),))

    def linkage(self, effort: float) -> Evidence:
        """Look for pictures in the index by taking them again, a little differently."""
        places, searcher = self.indexed[0], self.gallery.searcher()[1]
        numbers, rows = self.origin.rows(self.dataset, "indexed")
        images = self.dataset.take(rows[np.isin(numbers, self.gallery.index.ids)]).images
        if images is None:
            raise InputError(f"{self.dataset.name} has no pictures, only features: none can be taken again.")
        linked = link_recaptured(
            searcher,
            images,
            places,
            feature_pipeline(self.gallery.features),
            pictures=min(2000, max(50, round(500 * effort))),
            random_state=self.seed,
        )
        found = [linkage_finding(linked, self.gallery.mode, self.gallery.statement.epsilon)]
        if isinstance(self.gallery.hasher, HashFunction):
            found.append(uniqueness_finding(_held(self.gallery), self.gallery.mode))
        return Evidence(tuple(found))

    def members(self, effort: float) -> Evidence:
        """Ask the hash function, and shadows of it, which pictures it was learned from."""
        function, statement = self.gallery.hasher, self.gallery.statement
        assert isinstance(function, HashFunction)
        inside, outside = self.indexed[1], self.features("held out")
        if not len(outside):
            raise InputError("no picture was held out of this index to compare with. Build it with --hold-out 100.")
        X = np.concatenate([inside, outside])
        game = Game(X, np.zeros(len(X), dtype=np.int64), np.arange(len(X)) < len(inside))
        fprs, scorer = usable_fprs(len(outside)), code_fit(function)
        by_loss = membership.loss_threshold(scorer, game, fprs=fprs)
        by_ratio = likelihood_ratio(
            scorer,
            game,
            hash_trainer(self._learner),
            shadows=shadows_for(effort),
            fprs=fprs,
            random_state=self.seed,
            progress=self.progress,
        )
        private = self.gallery.mode == "central"
        epsilon, source = (statement.epsilon, STATEMENT) if private else (None, "nobody")
        rows: list[Finding] = []
        for found in (by_loss, by_ratio):
            rows += membership.findings(
                found, "the hash function", source=source, epsilon=epsilon, delta=statement.delta or 0.0
            )
        return Evidence(tuple(rows))

    def queries(self, effort: float) -> Evidence:
        """Spend the allowed encrypted queries on reading records, with weights whose sums spell bits or numbers."""
        server = QueryServer(self.gallery, self.folder)
        bits, largest, allowed = server.bits, server.most, server.budget.most
        codes, base = _held(self.gallery)[:_SCANNED], max(2, 2 * largest + 1)
        truth = unpack(codes, bits).astype(np.int64)
        if self.gallery.short is not None:
            codes = self.gallery.short[:_SCANNED]
            truth = codes.astype(np.int64) + largest
        modulus, told = plain_modulus(bits, largest), told_bits(bits, largest)
        each, scan = int(math.log(modulus) / math.log(base)), EncryptedScan(codes, bits, most=largest)
        read = np.zeros_like(truth)
        places = range(0, min(bits, allowed * each), each)
        for number, begin in enumerate(places):
            self.progress("encrypted queries", number, len(places))
            weights = np.zeros(bits, dtype=np.int64)
            weights[begin : begin + each] = base ** np.arange(len(weights[begin : begin + each]))
            query = EncryptedQuery(weights, most=largest)
            sums = query.distances(scan.answer(scan.read(query.message)))
            sums = (sums + largest * weights.sum()) % modulus
            for place in range(begin, min(bits, begin + each)):
                read[:, place] = sums // base ** (place - begin) % base
        tried, held = min(bits, allowed * each), held_bits(bits, largest)
        right, most = int((read == truth)[:, :tried].sum()), min(1.0, allowed * told / held)
        share = rate(right, truth.size)
        finding = Finding(
            claim=f"{allowed} encrypted queries tell at most {100 * most:.3g}% of the bits of records",
            source="the statement of encrypted queries",
            proven=f"{told:.2f} bits of each of {held:.0f} a query, whatever is sent; averaged over pictures",
            measure="share of the bits of records that were read, without guessing",
            measured=share,
            verdict="refuted" if share.low > most else "as stated",
            attack=f"queries with powers of {base} as weights, so that a sum spells {'numbers' if largest else 'bits'}",
            details={"queries": len(places), "pictures": len(codes)},
        )
        return Evidence((finding,))

    def anchors(self, effort: float) -> Evidence:
        """Look for the rows that a kernel hash function carries."""
        assert isinstance(self.gallery.hasher, KernelHash)
        return Evidence((anchors_finding(self.gallery.hasher, self.indexed[1]),))

    def _learner(self, seed: int) -> HashLearner:
        """Return what the function of this index was learned by."""
        if self.gallery.mode == "central":
            return self._central_hasher(seed)
        assert isinstance(self.gallery.hasher, HashFunction)
        return ITQ(self.gallery.hasher.bits, random_state=seed)

    def _central_hasher(self, seed: int) -> CentralHasher:
        settings, function = self.gallery.settings, self.gallery.hasher
        return CentralHasher(
            settings["epsilon"],
            settings["delta"],
            settings.get("clip", 1.0),
            settings["bits"],
            per_person=settings.get("per_person"),
            start=function if settings.get("public start") and isinstance(function, LinearHash) else None,
            random_state=seed,
        )


def _permanence_finding(first: Gallery, second: Gallery) -> Finding:
    both, places, again = np.intersect1d(first.index.ids, second.index.ids, return_indices=True)
    same = _held(first)[places] == _held(second)[again]
    changed = int(np.sum(~same.reshape(len(both), -1).all(axis=1)))
    return Finding(
        claim="building the index again draws nothing anew: noise does not average out",
        source=STATEMENT,
        proven="releases (the hash function, in central mode) are kept with the index",
        measure="share of pictures whose release or code changes when nothing else does",
        measured=rate(changed, len(both)),
        verdict="refuted" if changed or first.hasher.digest != second.hasher.digest else "not refuted",
        attack="a copy of the index is built twice more",
        details={"pictures": len(both), "same hash function or codebook": first.hasher.digest == second.hasher.digest},
    )


def _held(gallery: Gallery) -> NDArray[Any]:
    """Return what the index holds of each picture, in the order of their numbers: a release or a code."""
    index = gallery.index
    return index.symbols if isinstance(index, SymbolIndex) else index.codes
