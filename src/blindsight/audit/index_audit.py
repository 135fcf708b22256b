"""The audit of an index: what its noise is worth, whether it was really added, and what a lost picture is found by.

| mode | epsilon | permanence | the hash function | codes |
| --- | --- | --- | --- | --- |
| local | fresh draws; the stored releases | building again | public, holds no record | releases |
| central | fresh fits of the mechanism | building again | who was in the collection | exact, for the owner alone |
| open | none is claimed | - | who was in the collection | exact, for whoever has them |

Whatever looks at pictures needs the owner's table and the pictures themselves, and says so where they are not there.

*What is stored.* A mechanism may be sound and an index still hold something else: the true symbols, by mistake. So the
releases in the index are compared with the true symbols, which only the owner of the pictures can compute. Each names
its true symbol with a known probability, independently, so their number is binomial. KSH and SDH carry training rows as
anchors. Where the owner of a central or open index allows encrypted queries, they are spent on reading the codes.

*What is published.* A sound release may be published with something that is none. Two folders that differ in one
picture are built, and built again after that picture was edited, with the same coins: all public bytes must agree but
for what the mechanism released. That is the picture's symbol in local mode; in central mode it is the numbers of the
hash function, which no edit may change. Of files that only the owner can read (all of them, in open mode) the length
must agree. Among the neighbours are a picture equal to another private one, under a budget that the edit uses up, and
one equal to a public picture: neither may decide whether a version is published.

*Is this picture in there, and which one is it?* The attacker holds another capture of a picture: noise on every pixel,
and a little more or less light. It asks the index with it and names the nearest entry, one of the nearest at random
where several are equally near. A blind guess is right once in n. Where releases are epsilon-private it is right with
probability at most

    e^(2 epsilon) / (e^(2 epsilon) + n - 1):

numbers of pictures are drawn at random, so before the attack the picture is as likely behind any entry as behind any
other; exchanging the pictures behind two entries changes the likelihood of all releases by at most e^epsilon for each.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from shutil import copytree, ignore_patterns
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from blindsight.audit.checks import Check, Evidence, Plan, moved_pictures
from blindsight.audit.epsilon import CONFIDENCE, Draws, known, runs_needed
from blindsight.audit.finding import Finding, Verdict, exactly, rate
from blindsight.audit.membership import Game, audit_members, code_fit, hash_trainer
from blindsight.audit.subject import Claim, Subject, repeated
from blindsight.data.dataset import Dataset
from blindsight.data.features import FeaturePipeline, extract
from blindsight.errors import CorruptFileError, InputError, PrivacyError
from blindsight.files import cache_folder, write_arrays
from blindsight.progress import Progress, silent
from blindsight.rng import ByteSource, science, seeded_bytes
from blindsight.search.building import BuildOptions, build_gallery, read_origin
from blindsight.search.central import CentralHasher
from blindsight.search.codes import blocks, unpack
from blindsight.search.encrypted_query import (
    EncryptedQuery,
    EncryptedScan,
    QueryBudget,
    QueryServer,
    held_bits,
    plain_modulus,
    told_bits,
)
from blindsight.search.evaluation import Searcher
from blindsight.search.function import Floats, HashFunction, HashLearner, LinearHash, load_function
from blindsight.search.gallery import FUNCTION, PRIVATE, Gallery, Mode, Origin, Source, feature_pipeline
from blindsight.search.index import SymbolIndex
from blindsight.search.itq import ITQ
from blindsight.search.localmode import LocalHasher

_RUNS = 100_000
_NEIGHBOURHOOD = 8  # pictures of the folders whose public bytes are compared
_PUBLIC = 24  # public pictures that one of them is equal to
_EPSILON_SECONDS = 2.0
_FEWEST_ASKED = 20
_SCANNED = 4095  # codes that encrypted queries are tried on
STATEMENT = "the statement of the index"
OWNERS_CODES = "nothing of the codes, which must stay with the owner"


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
    builds = (0.8 if index.gallery.features == "thumbnail" else 8.0) + 1.5 * (index.gallery.mode == "central")
    public = Check("public bytes", 0, index.dependence, fixed=builds)
    checks: dict[str, tuple[Check, ...]] = {
        "local": (epsilon, public, Check("stored releases", 0, index.truths, fixed=reading), again, linked),
        "central": (epsilon, again, linked, members, public),
        "open": (linked, members, public),
    }
    chosen = (*checks[index.gallery.mode], Check("classes of the pictures", 0.2, index.attributes, fixed=reading))
    if (allowed := QueryBudget(folder).most) and index.gallery.mode != "local":
        chosen += (Check("encrypted queries", 0, index.queries, fixed=1 + 0.15 * min(20, allowed)),)
    if index.gallery.statement.epsilon == 0:  # nothing was released
        chosen = tuple(check for check in chosen if check is not epsilon)
    return Plan(
        f"the {index.gallery.mode} index of {len(index.gallery):,} pictures", chosen, statement=index.gallery.statement
    )


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
        with moved_pictures():
            return self.origin.source.load() if self.given is None else self.given

    def features(self, rows: NDArray[np.int64]) -> Floats:
        """Return the features of these pictures."""
        if not len(rows):
            return np.empty((0, 1), dtype=np.float32)
        pipeline = feature_pipeline(self.gallery.features)
        return extract(self.dataset.take(rows), pipeline, cache=cache_folder(), progress=self.progress)

    @cached_property
    def indexed(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where the indexed pictures that are still there stand in the index, and in the collection."""
        numbers = self.gallery.index.ids
        mine, rows = self.origin.rows(self.dataset, "indexed")
        known = np.isin(mine, numbers)
        if not known.any():
            raise InputError(f"no picture of the index is in {self.dataset.name} any more. Build it again.")
        return np.searchsorted(numbers, mine[known]), rows[known]

    @property
    def build_options(self) -> BuildOptions:
        """How the index was asked for."""
        said = self.gallery.settings
        return BuildOptions(
            self.gallery.mode,
            said["epsilon"],
            said["delta"] or 0.0,
            said["bits"] or 1,
            features=self.gallery.features,
            per_person=said.get("per_person"),
        )

    def epsilon(self, effort: float) -> Evidence:
        """Run the mechanism anew, with the parameters of this index, on neighbours that are told apart most easily."""
        subject = self._mechanism()
        self.progress(subject.claim.name, 0, None)
        needed, seconds = runs_needed(subject.claim.epsilon, delta=subject.claim.delta), _EPSILON_SECONDS * effort
        runs = subject.runs_within(seconds, max(round(_RUNS * effort), needed))
        if runs < needed:
            raise InputError(
                f"to refute {subject.claim} takes {needed:,} runs, and {runs:,} fit into {seconds:.3g} s. Allow more "
                "time (--minutes)."
            )
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
        truth, held = hasher.true_symbols(self.features(rows)), _held(self.gallery)[places]
        return Evidence((truth_finding(hasher, truth, held, STATEMENT),))

    def permanence(self, effort: float) -> Evidence:
        """Build a copy again, twice: the first brings it up to date, the second must change nothing."""
        with moved_pictures():
            self.origin.source.load()
        with TemporaryDirectory(prefix="blindsight-audit-") as scratch:
            copy = Path(scratch) / "index"
            copytree(self.folder, copy)
            first, second = (
                build_gallery(
                    self.origin.source, self.build_options, copy, cache=cache_folder(), progress=self.progress
                )
                for _ in range(2)
            )
        return Evidence((_permanence_finding(first, second),))

    def dependence(self, effort: float) -> Evidence:
        """Build neighbouring folders as this index was, with the same coins, and compare what is public."""
        gallery = self.gallery
        if self.dataset.images is None:
            raise InputError(f"{self.dataset.name} has no pictures, only features: no folder can be built of them.")
        some = self.dataset.images[self.origin.rows(self.dataset, "indexed")[1][:_NEIGHBOURHOOD]]
        if len(some) < 2:
            raise InputError(f"fewer than 2 pictures of the index are in {self.dataset.name}. Build it again.")
        how = self.build_options
        if gallery.mode != "central":
            how = replace(how, bits=min(how.bits, _NEIGHBOURHOOD // 2))  # ITQ has a direction for each
        codebook = gallery.hasher if isinstance(gallery.hasher, LocalHasher) else None
        seeds = 1 if gallery.mode == "central" else min(3, max(1, round(3 * effort)))  # its noise takes long to draw
        pairs = list(neighbouring_bytes(some, how, codebook, seeds=seeds))
        if not pairs:
            raise InputError("no index could be built of these pictures once more: nothing was compared.")
        return Evidence((public_bytes_finding(pairs, STATEMENT, gallery.mode),))

    def linkage(self, effort: float) -> Evidence:
        """Look for pictures in the index by taking them again, a little differently."""
        (places, rows), searcher = self.indexed, self.gallery.searcher()[1]
        images = self.dataset.take(rows).images
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
        found = [linkage_finding(*linked, self.gallery.mode, self.gallery.statement.epsilon)]
        if isinstance(self.gallery.hasher, HashFunction):
            found.append(uniqueness_finding(_held(self.gallery), self.gallery.mode))
        return Evidence(tuple(found))

    def attributes(self, effort: float) -> Evidence:
        """Read the classes of half of the pictures in the index, after learning from the other half."""
        labels, (places, rows) = self.dataset.labels, self.indexed
        if labels is None:
            raise InputError(f"{self.dataset.name} has no classes that could be read in the index.")
        answers = labels[rows]
        hasher, held = self.gallery.hasher, _held(self.gallery)[places]
        if isinstance(hasher, LocalHasher):
            seen = np.eye(hasher.design_.sets.shape[0], dtype=np.float32)[held]
            epsilon: float | None = hasher.mechanism_.loss
        else:
            assert isinstance(hasher, HashFunction)
            seen, epsilon = unpack(held, hasher.bits).astype(np.float32), None
        return Evidence((attribute_finding(seen, answers, self.gallery.mode, epsilon, random_state=self.seed),))

    def members(self, effort: float) -> Evidence:
        """Ask the hash function, and shadows of it, which pictures it was learned from."""
        function, statement = self.gallery.hasher, self.gallery.statement
        assert isinstance(function, HashFunction)
        parts = (self.indexed[1], self.origin.rows(self.dataset, "held out")[1])
        inside, outside = (self.features(rows) for rows in parts)
        if not len(outside):
            raise InputError("no picture was held out of this index to compare with. Build it with --hold-out 100.")
        X = np.concatenate([inside, outside])
        game = Game(X, np.zeros(len(X), dtype=np.int64), np.arange(len(X)) < len(inside))
        private = self.gallery.mode == "central"
        rows = audit_members(
            code_fit(function),
            game,
            hash_trainer(self._learner),
            "the hash function",
            effort=effort,
            seed=self.seed,
            source=STATEMENT if private else "nobody",
            epsilon=statement.epsilon if private else None,
            delta=statement.delta or 0.0,
            progress=self.progress,
        )
        return Evidence(rows)

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
        share, all_read = right / truth.size, right == tried * len(truth)  # half of what is not read is right by luck
        finding = Finding(
            claim=f"{allowed} encrypted queries tell at most {100 * most:.3g}% of the bits of records",
            source="the statement of encrypted queries",
            proven=f"{told:.2f} bits of each of {held:.0f} a query, whatever is sent; averaged over pictures",
            measure="share of the bits of records that were read, without guessing",
            measured=exactly(share),
            verdict="undecided" if not all_read else "refuted" if share > most else "as stated",
            attack=f"queries with powers of {base} as weights, so that a sum spells {'numbers' if largest else 'bits'}",
            details={"queries": len(places), "pictures": len(codes)},
        )
        return Evidence((finding,))

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


def truth_finding(hasher: LocalHasher, truth: NDArray[np.int64], released: NDArray[np.int64], source: str) -> Finding:
    """Compare stored releases with the true symbols: they may not name them more often than the mechanism does.

    Releases that are sound are called refuted with probability at most (1 - CONFIDENCE) / 2.
    """
    named, expected = hasher.design_.sets[released, truth], float(hasher.mechanism_.truth)
    share = rate(int(named.sum()), len(named), confidence=CONFIDENCE)
    return Finding(
        claim="every stored release carries the noise of its mechanism",
        source=source,
        proven=f"a release names the true symbol with probability {expected:.3g}",
        measure="share of stored releases that name the true symbol",
        measured=share,
        verdict="refuted" if share.low > expected else "not refuted",
        attack="the owner compares the index with the pictures",
        details={"releases": len(named), "expected": expected},
    )


def attribute_finding(
    seen: NDArray[np.float32], answers: NDArray[np.integer], mode: str, epsilon: float | None, *, random_state: int
) -> Finding:
    """Read an attribute in what an index holds of pictures, and say what an epsilon per picture allows.

    If the likeliest class has the prior p, no reader of an epsilon-private release is right more often than with
    p e^epsilon / (p e^epsilon + 1 - p): the odds of a class against all others grow by e^epsilon at most.
    """
    from sklearn.naive_bayes import BernoulliNB

    order = science(random_state).permutation(len(answers))
    known, asked = np.array_split(order, 2)
    if len(asked) < _FEWEST_ASKED or len(np.unique(answers)) < 2:
        raise InputError(
            f"reading classes takes {2 * _FEWEST_ASKED} pictures of two classes or more; got {len(answers)}."
        )
    guessed = BernoulliNB(alpha=0.5).fit(seen[known] > 0, answers[known]).predict(seen[asked] > 0)
    told = rate(int(np.sum(guessed == answers[asked])), len(asked), confidence=CONFIDENCE)
    prior = float(np.bincount(answers - answers.min()).max() / len(answers))
    verdict: Verdict = "leaks" if told.low > prior else "at chance"
    source, proven, allowed = "nobody", "nothing", None
    if mode == "central":  # as of every other attack that reads its codes
        source, proven, verdict = STATEMENT, OWNERS_CODES, "as stated" if verdict == "leaks" else verdict
    if epsilon is not None:
        source = STATEMENT
        allowed = 1 / (1 + (1 - prior) / prior * math.exp(-epsilon))
        proven = f"epsilon = {epsilon:.3g} allows {allowed:.1%}"
        verdict = "refuted" if told.low > allowed else "as stated" if verdict == "leaks" else verdict
    return Finding(
        claim=f"the {mode} index does not tell the classes of its pictures",
        source=source,
        proven=proven,
        measure=f"share of pictures whose class is told (the commonest has {prior:.1%})",
        measured=told,
        verdict=verdict,
        chance=prior,
        attack=f"naive Bayes, learned from the classes of {len(known):,} other pictures of the index",
        details={"prior": prior, "allowed": allowed},
    )


Seen = dict[str, tuple[int, int, bytes]]
"""What others see of a folder: mode, length and, where they can read it, content of every file but the owner's own."""


def neighbouring_bytes(
    images: NDArray[np.uint8], how: BuildOptions, codebook: LocalHasher | None = None, *, seeds: int
) -> Iterator[bool]:
    """Build folders of these pictures that differ in the first; yield whether their public bytes agree, twice a pair.

    Its neighbours are a copy of the second picture, one all black, and one of noise; each is edited, slightly or
    wholly, before the second build, so that both versions are compared. The budget is what these two cost. In local
    mode the black one is tried once more, with public pictures in place of the codebook, of which it is one.
    """
    noise = np.random.default_rng(0).integers(0, 256, images[0].shape, dtype=np.uint8)
    black, touched = np.zeros_like(noise), images[0].copy()
    touched[0, 0] ^= 1  # an edit that changes hardly anything must look like one that changes everything
    histories = [(images[0], touched), (images[1], 255 - images[0]), (black, images[1]), (noise, black)]
    how = replace(how, budget=None if how.epsilon is None else 2 * how.epsilon)
    rows = np.random.default_rng(1).integers(0, 256, (_PUBLIC, *images.shape[1:]), dtype=np.uint8)
    public = Dataset("public pictures", "none", "drawn", images=np.concatenate([rows, black[None]]))
    trials: list[tuple[int, LocalHasher | Dataset | None, list[Any]]] = [
        (seed, codebook, histories) for seed in range(seeds)
    ]
    if codebook is not None:
        trials.append((0, public, [histories[0], histories[2]]))
    with TemporaryDirectory(prefix="blindsight-audit-") as scratch:
        for number, (seed, known, chosen) in enumerate(trials):
            built = [
                _histories(Path(scratch) / f"{number}-{place}", images, history, how, known, seed)
                for place, history in enumerate(chosen)
            ]
            pairs = (pair for versions in built[1:] for pair in zip(built[0], versions, strict=True))
            yield from (one == other for one, other in pairs if one or other)


def _histories(
    folder: Path,
    images: NDArray[np.uint8],
    history: tuple[NDArray[np.uint8], ...],
    how: BuildOptions,
    public: LocalHasher | Dataset | None,
    seed: int,
) -> list[Seen]:
    """Return what is seen of each version, without what the mechanism released of the first picture.

    Nothing is seen of a version that was refused, which the folder's first picture must not decide.
    """
    pictures, index, coins = folder / "pictures", folder / "index", seeded_bytes(seed)
    pictures.mkdir(parents=True)
    for row, image in enumerate(images):
        Image.fromarray(image).save(pictures / f"{row:03}.png")
    versions: list[Seen] = []
    functions: list[bytes] = []
    for image in history:
        Image.fromarray(image).save(pictures / "000.png")
        source, kept = Source("folder", str(pictures)), folder.parent / "cache"  # features are the same for every seed
        try:
            build_gallery(source, how, index, public=public, cache=kept, secret=coins)
        except PrivacyError:
            versions.append({})
            continue
        seen = folder / f"seen {len(versions)}"
        copytree(index, seen, ignore=ignore_patterns(PRIVATE))
        if how.mode == "local":
            origin, gallery = read_origin(index), Gallery.load(seen)
            assert isinstance(gallery.index, SymbolIndex)
            place = gallery.index.ids == origin.numbers[origin.names == "000.png"]
            gallery.index.update(gallery.index.ids[place], np.zeros(int(place.sum()), dtype=np.int64))
            gallery.save(seen)
        elif (path := seen / FUNCTION).exists():
            functions.append(path.read_bytes())
            function = load_function(path)
            nothing = {name: np.zeros_like(numbers) for name, numbers in function.arrays().items()}
            edited = "" if functions[-1] == functions[0] else sha256(functions[-1]).hexdigest()
            write_arrays(path, "what is left", {"function": function.name, "edited": edited}, nothing)
        files = sorted(path for path in seen.rglob("*") if path.is_file())
        versions.append({str(path.relative_to(seen)): _seen(path) for path in files})
    return versions


def _seen(path: Path) -> tuple[int, int, bytes]:
    mode, content = path.stat().st_mode, path.read_bytes()
    return mode, len(content), content if mode & 0o077 else b""


def public_bytes_finding(agree: list[bool], source: str, mode: Mode) -> Finding:
    """Say whether anything public but what the mechanism releases depended on what a picture shows."""
    different = len(agree) - sum(agree)
    through = {"local": "through its noisy release alone", "central": "through the noisy hash function alone"}
    return Finding(
        claim=f"what is published depends on a picture {through.get(mode, 'in no way: only the owner can read it')}",
        source=source,
        proven="nothing that others can read looks at pictures, but for what the mechanism releases",
        measure="share of neighbouring folders whose public files differ in more than that",
        measured=rate(different, len(agree)),
        verdict="refuted" if different else "not refuted",
        attack="folders that differ in one picture, which may equal another, private or public, are built and edited "
        "with the same coins, and compared byte by byte",
        details={"pairs": len(agree)},
    )


NOISE, LIGHT = 8.0, 0.05
"""Deviation of the noise on a pixel (of 255), and of the light."""

_ROWS = 128  # pictures whose distances to all entries are in memory at once


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
) -> tuple[int, int, int]:
    """Take so many of the pictures again and name each; `places` are their true places in the index.

    Return how many were named right, of how many, among how many entries.
    """
    generator = science(random_state)
    chosen = generator.permutation(len(images))[:pictures]
    right = 0
    for span in blocks(len(chosen), _ROWS):
        some = chosen[span]
        distances = searcher.distances(pipeline.transform(recapture(images[some], generator)))
        nearest = distances == distances.min(axis=1, keepdims=True)
        named = np.argmax(np.where(nearest, generator.random(distances.shape), -1), axis=1)
        right += int(np.sum(named == places[some]))
    return right, len(chosen), distances.shape[1]


def linkage_finding(right: int, pictures: int, entries: int, mode: Mode, epsilon: float | None) -> Finding:
    """Return how often a picture is found; an index that tells nothing is called a leak at most once in 2,000."""
    share, chance = rate(right, pictures, confidence=CONFIDENCE), 1 / entries
    source, proven, most = "nobody", "nothing: codes carry no noise", chance
    above: Verdict = "leaks"
    if mode == "central":
        source, proven, above = STATEMENT, OWNERS_CODES, "as stated"
    below: Verdict = "at chance"
    if mode == "local":
        assert epsilon is not None
        odds = math.exp(min(2 * epsilon, 700.0))
        most = odds / (odds + entries - 1)
        source, proven = STATEMENT, f"right in at most {most:.3g} of the cases"
        above, below = "refuted", "not refuted"
    perfect = rate(pictures, pictures, confidence=CONFIDENCE)
    few = perfect.low <= most <= (share.high or 0.0)  # naming all of them right would have shown nothing
    return Finding(
        claim="who has a picture cannot tell which entry of the index it is",
        source=source,
        proven=proven,
        measure=f"share of pictures taken again that are named right (chance: {chance:.3g})"
        + few * f"; {pictures} are too few to tell",
        measured=share,
        verdict=above if share.low > most else "undecided" if few else below,
        chance=chance,
        attack=f"another capture of the picture (noise of {NOISE:g} levels, {LIGHT:.0%} more or less light)",
        details={"pictures": pictures, "entries": entries, "chance": chance},
    )


def uniqueness_finding(codes: NDArray[np.uint8], mode: Mode) -> Finding:
    """Return how many codes belong to one picture alone: such a code is as good as a name."""
    counts = np.unique(codes, axis=0, return_counts=True)[1]
    alone = int(np.sum(counts == 1))
    owner = mode == "central"
    return Finding(
        claim="a code does not give away whose it is",
        source=STATEMENT if owner else "nobody",
        proven=OWNERS_CODES if owner else "nothing: codes carry no noise",
        measure="share of pictures whose code no other picture has",
        measured=rate(alone, len(codes), confidence=CONFIDENCE),
        verdict="at chance" if not alone else "as stated" if owner else "leaks",
        attack="reading the index",
        details={"pictures": len(codes), "different codes": len(counts)},
    )


def local_mechanism(hasher: LocalHasher, source: str) -> Subject:
    """Return the mechanism of a fitted local hasher: any two symbols are told apart as easily as any others."""
    design, loss = hasher.design_, hasher.mechanism_.loss
    cells = [int(np.argmax(design.symbol_of_cell == symbol)) for symbol in (0, 1)]
    first, second = np.log(design.probabilities()[cells])
    proven = f"epsilon = {loss:g} per record and release"
    return Subject(
        claim=Claim(f"local index, {hasher.mechanism_}", loss, source=source, proven=proven),
        release=repeated(design),
        inputs=(np.array([0]), np.array([1])),
        scorer=known(lambda outputs: (first - second)[outputs]),
    )


def central_sums(hasher: CentralHasher, source: str) -> Subject:
    """Return the noisy sums that a central function is learned from, of a record that moves each as far as it can.

    No collection has such a record, so this bounds the accounting of all releases together and the noise they get.
    """
    releases = hasher.plan().releases
    weights = np.array([mechanism.sensitivity / mechanism.sigma**2 for mechanism in releases])

    def released(share: float, runs: int, noise: ByteSource) -> Draws:
        return np.stack([one.release(np.full(runs, share * one.sensitivity), noise) for one in releases], axis=1)

    return Subject(
        claim=Claim("central mode, all noisy sums together", hasher.epsilon, hasher.delta, source=source),
        release=released,
        inputs=(1.0, 0.0),
        scorer=known(lambda sums: sums @ weights),
        gaussian=True,
    )
