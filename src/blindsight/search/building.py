"""Building, evaluating and erasing galleries of pictures in folders: what `blindsight search` does.

Building again keeps the codebook or hash function and the releases of pictures that were not edited, adds new pictures
and removes those that are gone. A name that was erased and comes back is released once more, and counted. Only
`relearn` starts over; where that changes the codebook, every picture is released once more and the ledger counts it.
What leads from the index back to pictures lies in the subfolder ``private/``.

*What is published depends on private pictures through the mechanism alone.* Whatever a picture shows, the files outside
``private/`` have the same bytes but for its release: copies count as pictures, an edit is released again whatever it
changed, and the published epsilon counts edits and returns of erased names (`releases`). Nor does a picture decide
whether there are such files: no budget counts that pictures are equal, and a private picture that is among the public
ones as well is neither refused nor taken out. Out of the public ones, it would change the codebook. The owner gets a
note, and what is public by then was so without the build. `blindsight audit` compares the bytes.

*A crash redraws nothing.* A codebook is saved, in a gallery without pictures, before anything is released by it;
releases are kept before they are indexed; the gallery is replaced as a whole. A build resumes where a killed one ended.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from blindsight.data import Dataset, contact_sheet, extract
from blindsight.data.features import reading_side
from blindsight.data.images import decode
from blindsight.dp.accounting import check_positive, compose
from blindsight.dp.ledger import EQUAL_CONTENTS, Ledger
from blindsight.errors import BlindsightError, DataError, InputError, PrivacyError
from blindsight.files import AnyPath, as_path, atomic_writer, folder_lock, sha256_of, storage_errors
from blindsight.progress import Progress, silent
from blindsight.rng import ByteSource, science, system_bytes
from blindsight.search.central import CentralHasher
from blindsight.search.codebook import shipped_codebook
from blindsight.search.encrypted_query import most_of, short_embeddings
from blindsight.search.evaluation import Ranking, ground_truth
from blindsight.search.function import Floats, HashFunction
from blindsight.search.gallery import (
    LEARNED_FROM,
    OF_PRIVATE,
    OF_PUBLIC,
    ORIGIN,
    PRIVATE,
    Found,
    Gallery,
    Mode,
    Origin,
    Source,
    choose_features,
    feature_pipeline,
    gallery_file,
    places_of,
    refuse_older,
    whole_json,
)
from blindsight.search.index import HammingIndex, SymbolIndex
from blindsight.search.itq import ITQ
from blindsight.search.localmode import LocalHasher
from blindsight.search.private import PrivateHasher
from blindsight.search.releases import check_store, erase_releases
from blindsight.statement import PrivacyStatement, Unit

_RELEASES, _LEDGER, _SHEETS = "releases", "ledger.jsonl", "sheets.json"
_SCOPE = "pictures"
_CLIPS = {"embedding": 15.0}  # typical norm of features, where no public ones tell it; 1 of thumbnails
FEWEST_PUBLIC = 300  # with fewer public pictures the shipped codebook finds as much, and more at a large epsilon
SHIPPED_FEATURES = "embedding"  # of which the shipped codebook is made
_CELL = 96  # least side of a picture on a sheet of answers


@dataclass(frozen=True)
class BuildOptions:
    """How to make a gallery. `epsilon` is needed unless the mode is open; `budget` is the ledger's, if any.

    A codebook tells `kinds` of pictures apart (None: as many as public ones show), or, with `public_labels`, classes of
    the public pictures; or it is shipped. With `per_person` epsilon is for a person of at most that many pictures. With
    `numbers`, central and open galleries also keep short embeddings of that many bits a number (`encrypted_query`).
    """

    mode: Mode
    epsilon: float | None
    delta: float
    bits: int
    features: str = "auto"
    public_share: float | None = None
    hold_out: int = 0
    budget: float | None = None
    ledger: AnyPath | None = None
    relearn: bool = False
    random_state: int = 0
    kinds: int | None = None
    public_labels: bool = False
    codebook: Literal["auto", "public", "shipped"] = "auto"
    per_person: int | None = None
    numbers: int | None = None

    def check(self, has_public: bool) -> None:
        if self.mode == "open":
            if self.epsilon is not None:
                raise InputError("an open index has no noise and no epsilon. Take --mode local or central.")
        elif self.epsilon is None:
            raise InputError(f"{self.mode} mode needs --epsilon: what one record may lose.")
        else:
            check_positive("epsilon", self.epsilon)
        for budget in () if self.budget is None else (self.budget,):
            check_positive("the budget", budget)
        if self.per_person is not None and (self.mode == "open" or self.per_person < 1):
            raise InputError(f"--per-person is at least 1, and not for an open index; got {self.per_person}.")
        if self.numbers is not None:
            most_of(self.numbers)
            if self.mode == "local":
                raise InputError("a local index is taken home and needs no encrypted queries. Leave --numbers out.")
        if self.mode == "central" and not 0 < self.delta < 1:
            raise InputError(f"delta must be in (0, 1); got {self.delta}.")
        learned = self.kinds is not None or self.public_labels
        if self.mode != "local" and (learned or self.codebook != "auto"):
            raise InputError(f"{self.mode} mode has no codebook. Leave --kinds, --public-labels and --codebook out.")
        if self.codebook == "shipped" and (learned or has_public or self.public_share is not None):
            raise InputError("the shipped codebook learns nothing. Leave public pictures, labels and --kinds out.")
        if self.kinds is not None and self.kinds < 2:
            raise InputError(f"at least 2 kinds can be told apart; got {self.kinds}.")
        if self.kinds is not None and self.public_labels:
            raise InputError("public labels say which kinds there are. Leave --kinds out.")
        if has_public and self.public_share is not None:
            raise InputError("name public pictures with --public, or declare a share public; not both.")
        if self.public_share is not None and not 0 < self.public_share < 1:
            raise InputError(f"the public share must be in (0, 1); got {self.public_share}.")
        if self.features != "auto":
            feature_pipeline(self.features)

    @property
    def settings(self) -> dict[str, Any]:
        """What must be the same for a gallery to be built on."""
        delta, bits = self.delta if self.mode == "central" else None, None if self.mode == "local" else self.bits
        settings = {"epsilon": self.epsilon, "delta": delta, "bits": bits, "per_person": self.per_person}
        return settings if self.numbers is None else settings | {"numbers": self.numbers}

    @property
    def unit(self) -> Unit:
        return "record" if self.per_person is None else "person"


_Public = tuple[Floats, NDArray[np.int64] | None] | LocalHasher  # features, with classes if used; or a codebook


def build_gallery(
    source: Source,
    options: BuildOptions,
    folder: AnyPath,
    *,
    public: Source | Dataset | LocalHasher | None = None,
    cache: AnyPath | None = None,
    progress: Progress = silent,
    secret: ByteSource = system_bytes,
) -> Gallery:
    """Index the pictures of a source in a folder, on top of what the folder holds; builds in one folder take turns.

    In local mode a codebook is learned from `public`, unless it is ready-made. Noise and numbers come from `secret`.
    """
    folder = as_path(folder)
    options.check(public is not None)
    refuse_older(folder)
    private = folder / PRIVATE
    with storage_errors("write into", private):
        private.mkdir(parents=True, exist_ok=True, mode=0o700)
    with folder_lock(private):
        for left in private.glob(".*.part"):  # by a build that was killed
            left.unlink(missing_ok=True)
        _stores(private)
        before = _gallery_before(options, folder)
        notes: list[str] = []
        if options.features == "auto":
            chosen, note = choose_features(source) if before is None else (before.features, "")
            options, notes = replace(options, features=chosen), [note] if note else []
        if options.mode == "local" and before is None:
            _check_codebook(options, public is not None or options.public_share is not None)
        pipeline = feature_pipeline(options.features)
        side = reading_side(pipeline) if before is None else before.side
        source = replace(source, side=side)
        dataset = source.load(progress)
        if dataset.images is None:
            raise DataError(f"{dataset.name} comes without pictures. A gallery is made of pictures.")
        if options.per_person is not None and dataset.persons is not None:  # a promise that cannot be kept
            most = int(np.bincount(dataset.persons[dataset.persons >= 0], minlength=1).max())
            if most > options.per_person:
                raise InputError(f"somebody in {dataset.name} has {most} pictures, more than --per-person allows.")
        origin = _keep_origin(source, dataset, options, folder, secret)
        features = extract(dataset, pipeline, cache=cache, progress=progress)
        numbers, rows = origin.rows(dataset, "indexed")
        opened = origin.rows(dataset, "public")[1]
        known: _Public = features[opened], _public_labels(dataset.take(opened), options) if before is None else None
        if isinstance(public, LocalHasher):
            known = public if before is None else known
        elif public is not None and before is None:
            if not isinstance(public, Dataset):
                _refuse_one_place(source, cast(Source, public))
            others = public if isinstance(public, Dataset) else replace(cast(Source, public), side=side).load(progress)
            known = extract(others, pipeline, cache=cache, progress=progress), _public_labels(others, options)
        if before is None and not isinstance(known, LocalHasher):
            notes += _overlap(features[rows], known[0])
        progress("building the index", 0, None)
        plan = _Build(options, folder, before, numbers, features[rows], dataset.images.shape[1], secret, notes)
        central = options.mode == "central"
        if options.mode == "local":
            versions = np.array([np.frombuffer(sha256(dataset.images[row]).digest(), dtype=np.uint8) for row in rows])
            gallery = plan.local(known, origin.missing(dataset), versions, origin.names_of(numbers))
        else:
            shown = None if isinstance(known, LocalHasher) or not len(known[0]) else known[0]
            gallery = plan.central(shown) if central else plan.open(shown)
        gallery.save(folder)
        return gallery


@dataclass(frozen=True, eq=False)
class _Build:
    options: BuildOptions
    folder: Path
    before: Gallery | None
    numbers: NDArray[np.int64]
    features: Floats
    side: int
    secret: ByteSource
    notes: list[str]

    def local(
        self, public: _Public, gone: NDArray[np.int64], versions: NDArray[np.uint8], names: Sequence[str]
    ) -> Gallery:
        assert self.options.epsilon is not None
        if isinstance(public, LocalHasher):
            learned = public
        elif self.before is None:
            learned = self._learned(*public)
        else:
            assert isinstance(self.before.hasher, LocalHasher)
            learned = self.before.hasher
        index = SymbolIndex(learned.outputs_)
        if gallery_file(self.folder) is None:  # should this build be killed, the next one releases by this codebook too
            self._gallery(learned.statement(self.secret, per_person=self.options.per_person), learned, index).save(
                self.folder
            )
        hasher, ledger = self._hasher(path=self._releases(learned))
        hasher.fit(public=learned)
        if stored := np.intersect1d(gone, hasher.releases_.ids).tolist():
            hasher.releases_.delete(stored)
        codes = hasher.releases_.release(self.numbers, self.features, versions=versions, names=names)
        index.add(self.numbers, codes)
        if hasher.releases_.excess:
            self.notes.append(
                "Some pictures are, or were, here under several names. Each name is released, so these pictures lose "
                f"up to {hasher.releases_.excess + hasher.releases_.most_releases} times epsilon. Your ledger counts "
                "that; the published statement does not tell it and no budget refuses it, for which pictures are equal "
                "is private. Delete copies to lose less from now on."
            )
        return self._gallery(_as_spent(hasher.statement_, ledger, self.options.unit), learned, index)

    def _learned(self, public: Floats, labels: NDArray[np.int64] | None) -> LocalHasher:
        """Return the codebook of public pictures, or the shipped one where these are too few to learn from."""
        options = self.options
        assert options.epsilon is not None
        share = options.epsilon / (options.per_person or 1)
        hasher = LocalHasher(
            share, kinds="auto" if options.kinds is None else options.kinds, random_state=options.random_state
        )
        few = len(public) < FEWEST_PUBLIC and options.kinds is None and labels is None
        if options.codebook == "shipped" or (
            options.codebook == "auto" and options.features == SHIPPED_FEATURES and few
        ):
            hasher.take(shipped_codebook())
            why = f"{len(public)} public pictures are too few to learn from" if len(public) else "no public pictures"
            self.notes.append(f"The codebook is the shipped one ({why}): {hasher.chosen}.")
            return hasher
        hasher.fit(public, labels)
        self.notes.append(f"Chosen from epsilon and {len(public):,} public pictures: {hasher.chosen}.")
        return hasher

    def central(self, public: Floats | None) -> Gallery:
        """Learn a private hash function from the pictures, and index their exact codes for the owner alone."""
        if self.before is not None:
            assert isinstance(self.before.hasher, HashFunction)
            kept = {*self.options.settings, "numbers"}
            held = {name: value for name, value in self.before.settings.items() if name not in kept}
            return self._gallery(self.before.statement, self.before.hasher, self._codes(self.before.hasher), held)
        clip = _CLIPS.get(self.options.features, 1.0)
        if public is not None:
            clip = float(np.median(np.linalg.norm(public, axis=1)))
        hasher, ledger = self._hasher(mode="central", bits=self.options.bits, delta=self.options.delta, clip=clip)
        hasher.fit(self.features, public=public)
        assert isinstance(hasher.hasher_, CentralHasher)
        self.notes.append(f"The hash function is {hasher.hasher_.done_}.")
        function, statement = hasher.hasher_.function_, hasher.statement_
        spent = _as_spent(statement, ledger, self.options.unit) if hasher.hasher_.released_ else statement
        made = {"clip": clip, "public start": public is not None}
        return self._gallery(spent, function, self._codes(function), made)

    def open(self, public: Floats | None) -> Gallery:
        """Index codes that hide nothing: ITQ, learned from public pictures, or else from the pictures themselves."""
        rows, source = (self.features, OF_PRIVATE) if public is None else (public, OF_PUBLIC)
        bits = min(self.options.bits, rows.shape[1], len(rows) - 1)
        function = ITQ(bits, random_state=self.options.random_state).fit(rows).function_
        return self._gallery(_open_statement(bits, source), function, self._codes(function), {LEARNED_FROM: source})

    def _codes(self, function: HashFunction) -> HammingIndex:
        index = HammingIndex(function.bits)
        index.add(self.numbers, function(self.features))
        index.build()
        return index

    def _gallery(
        self,
        statement: PrivacyStatement,
        hasher: HashFunction | LocalHasher,
        index: HammingIndex | SymbolIndex,
        made: Mapping[str, Any] | None = None,
    ) -> Gallery:
        options, notes = self.options, tuple(self.notes)
        settings = options.settings | dict(made or {})
        short = None
        if options.numbers is not None:
            short = short_embeddings(cast(HashFunction, hasher).scores(self.features), most_of(options.numbers))
        return Gallery(options.mode, options.features, self.side, statement, hasher, index, settings, notes, short)

    def _hasher(self, **more: Any) -> tuple[PrivateHasher, Ledger]:
        options = self.options
        ledger = Ledger(options.ledger or self.folder / PRIVATE / _LEDGER)
        if options.budget is not None:
            delta = more.get("delta", 0.0)
            ledger.set_budget(_SCOPE, unit=options.unit, neighbours="replace", epsilon=options.budget, delta=delta)
        assert options.epsilon is not None
        hasher = PrivateHasher(
            options.epsilon,
            unit=options.unit,
            per_person=options.per_person,
            ledger=ledger,
            scope=_SCOPE,
            random_state=options.random_state,
            source=self.secret,
            **more,
        )
        return hasher, ledger

    def _releases(self, learned: LocalHasher) -> Path:
        """Return the file of releases by a codebook, each its own."""
        return self.folder / PRIVATE / f"{_RELEASES}-{learned.digest[:16]}.npz"


def evaluate_gallery(
    gallery: Gallery,
    folder: AnyPath,
    queries: Dataset | None = None,
    *,
    count: int = 500,
    random_state: int = 0,
    progress: Progress = silent,
) -> Ranking:
    """Measure how well a gallery finds the class (or person) of query pictures: others, or those it held out."""
    origin = read_origin(folder)
    dataset = origin.source.load()
    numbers, searcher = gallery.searcher()
    places = dict(zip(*(part.tolist() for part in origin.rows(dataset, "indexed")), strict=True))
    if any(int(number) not in places for number in numbers):
        raise DataError(f"pictures of this gallery are no longer in {dataset.name}. Build it again.")
    offered = _class_names(dataset, np.array([places[int(number)] for number in numbers], dtype=np.int64))
    asked = queries if queries is not None else dataset.take(origin.rows(dataset, "held out")[1])
    if not len(asked):
        raise InputError("no picture was held out of this gallery: name some to ask with, or build it with --hold-out.")
    wanted = _class_names(asked, np.arange(len(asked)))
    findable = np.flatnonzero(np.isin(wanted, offered))
    if not findable.size:
        raise DataError(f"no query of {asked.name} is of a class that the gallery of {dataset.name} has.")
    chosen = science(random_state).permutation(findable)[:count]
    rows = extract(asked.take(chosen), feature_pipeline(gallery.features), progress=progress)
    return searcher.evaluate(rows, wanted[chosen], offered, progress=progress)


def draw_answers(
    gallery: Gallery, folder: AnyPath, query: NDArray[np.uint8], found: Sequence[Found], sheet: AnyPath
) -> bool:
    """Draw query and hits on a sheet for the owner alone, noted for `erase`; False if table or picture is missing."""
    try:
        origin = read_origin(folder)
        names = origin.names_of(np.array([hit.number for hit in found], dtype=np.int64))
        pictures = [query, *_read_some(origin, names, gallery.side)]
    except (BlindsightError, KeyError):
        return False
    captions = ["query", *(f"{rank}. {Path(name).name}" for rank, name in zip(places_of(found), names, strict=True))]
    scale = max(1, _CELL // gallery.side)
    page = contact_sheet(np.stack(pictures), columns=min(6, len(pictures)), captions=captions, scale=scale)
    sheet, private = as_path(sheet), as_path(folder) / PRIVATE
    with atomic_writer(sheet, private=True) as stream:
        page.save(stream, format=Image.registered_extensions().get(sheet.suffix.lower(), "PNG"))
    with folder_lock(private):
        sheets = _sheets(private)
        sheets[str(sheet.absolute())] = {"sha256": sha256_of(sheet), "shows": [hit.number for hit in found]}
        _keep_sheets(private, sheets)
    return True


def _sheets(private: Path) -> dict[str, Any]:
    if not (path := private / _SHEETS).exists():
        return {}
    with whole_json(path, "so that nobody knows which sheets of answers were drawn") as sheets:
        if not all(set(sheet) == {"sha256", "shows"} for sheet in sheets.values()):
            raise ValueError
    return dict(sheets)


def _keep_sheets(private: Path, sheets: Mapping[str, Any]) -> None:
    with atomic_writer(private / _SHEETS, private=True) as stream:
        stream.write(json.dumps(sheets).encode())


def _erase_sheets(private: Path, numbers: NDArray[np.int64]) -> list[str]:
    """Delete the sheets that show some of these pictures, unless they were replaced since; return their paths."""
    sheets, gone, deleted = _sheets(private), set(numbers.tolist()), []
    for path in [path for path, sheet in sheets.items() if gone & set(sheet["shows"])]:
        with storage_errors("delete", Path(path)):
            if Path(path).exists() and sha256_of(path) == sheets[path]["sha256"]:
                Path(path).unlink()
                deleted.append(path)
        del sheets[path]
    _keep_sheets(private, sheets)
    return deleted


@dataclass(frozen=True)
class Erased:
    """What was erased from an index, by name, which sheets of answers with it, and what was not, in words."""

    names: tuple[str, ...]
    sheets: tuple[str, ...]
    left: tuple[str, ...]


def erase(folder: AnyPath, names: Sequence[str] = (), *, person: str | None = None) -> Erased:
    """Remove pictures from an index for good: those of these names, or all of a person (a subfolder of that name).

    They leave the index, the releases, the owner's table and the sheets that show them. What others hold stays theirs.
    """
    folder = as_path(folder)
    read_origin(folder)  # there must be one
    with folder_lock(folder / PRIVATE):
        origin = read_origin(folder)
        known, wanted = origin.names.tolist(), list(names)
        if person is not None:
            wanted += [name for name in known if name.startswith(f"{person}/")]
        if not wanted or (unknown := sorted(set(wanted) - set(known))):
            what = f"no picture of {person!r}" if not wanted else f"no picture {unknown[0]!r}"
            raise InputError(f"{folder} has {what}. Names are paths below the folder of pictures. Nothing was erased.")
        gallery, gone = Gallery.load(folder), np.isin(origin.names, wanted)
        numbers, by_person = origin.numbers[gone], gallery.settings.get("per_person") is not None
        for path in _stores(folder / PRIVATE):
            erase_releases(path, numbers, origin.names[gone].tolist(), person=person if by_person else None)
        sheets = _erase_sheets(folder / PRIVATE, numbers)
        if gallery.short is not None:
            gallery = replace(gallery, short=gallery.short[~np.isin(gallery.index.ids, numbers)])
        gallery.index.remove(numbers)
        gallery.save(folder)
        replace(origin, names=origin.names[~gone], numbers=origin.numbers[~gone], parts=origin.parts[~gone]).save(
            folder / PRIVATE / ORIGIN
        )
    left = ["the picture files: delete them, or the next build takes them for new ones and releases them again"]
    if gallery.mode == "local":
        left.append("whatever others copied of earlier versions of the index: their releases cannot be called back")
        left.append(
            "in private/, how often each name and each content was released (and each person, where persons are the "
            "unit), under keyed digests: without the key, which is there too, no guess of either can be tested. "
            "A name that comes back, whatever it shows, continues its count in the published epsilon and the budget; "
            "the same picture under another name is counted in your ledger alone"
        )
    elif gallery.mode == "central":
        left.append("the published hash function: it was learned from these pictures too, within its epsilon and delta")
    elif gallery.settings.get(LEARNED_FROM) != OF_PUBLIC:
        left.append("the hash function, which was learned from these pictures too: build the index again")
    left.append("reports of searches and sheets that were copied, and their features in the cache folder")
    return Erased(tuple(sorted(set(wanted))), tuple(sheets), tuple(left))


def _stores(private: Path) -> list[Path]:
    """Return the files of releases, none of them damaged or of an older version."""
    paths = sorted(private.glob(f"{_RELEASES}-*.npz"))
    for path in paths:
        check_store(path)
    return paths


def read_origin(folder: AnyPath) -> Origin:
    folder = as_path(folder)
    path = folder / PRIVATE / ORIGIN
    if not path.exists():
        raise DataError(f"{path} is not here: only the owner of the pictures can name them.")
    return Origin.load(path)


def _gallery_before(options: BuildOptions, folder: Path) -> Gallery | None:
    """Return the gallery to build on; None if there is none, nothing was released of it, or it is to be relearned."""
    if options.relearn or options.mode == "open" or gallery_file(folder) is None:
        return None
    before = Gallery.load(folder)
    if not len(before) and not any((folder / PRIVATE).glob(f"{_RELEASES}*")):
        return None
    features, hasher = before.features if options.features == "auto" else options.features, before.hasher
    same = (before.mode, before.features) == (options.mode, features)
    same &= all(before.settings.get(name) == value for name, value in options.settings.items())
    if isinstance(hasher, LocalHasher):
        same &= options.kinds in (None, hasher.kinds) and options.public_labels <= hasher.labelled_
    if not same:
        raise InputError(
            f"{folder} holds a gallery that was made otherwise ({before.mode}, {before.features}, {before.settings}). "
            "Say --relearn to spend once more on the same pictures, or take another folder with the same --ledger."
        )
    return before


def _check_codebook(options: BuildOptions, has_public: bool) -> None:
    if options.codebook == "shipped" and options.features != SHIPPED_FEATURES:
        raise InputError(f"the shipped codebook is for --features {SHIPPED_FEATURES}; got {options.features}.")
    learned = options.codebook == "public" or options.kinds is not None or options.public_labels
    if not has_public and (learned or options.features != SHIPPED_FEATURES):
        raise InputError(
            "local mode learns what codes mean from public pictures, never from private ones: name some with --public, "
            f"or declare a part of these public with --public-share. With --features {SHIPPED_FEATURES} (the extra "
            "deep) a codebook comes with the package."
        )


def _keep_origin(source: Source, dataset: Dataset, options: BuildOptions, folder: Path, secret: ByteSource) -> Origin:
    """Return the owner's table with all pictures in it, written before any of them is released."""
    path = folder / PRIVATE / ORIGIN
    if path.exists():
        origin = Origin.load(path).grown(source, dataset, secret)
    else:
        opened, seed = options.public_share or 0.0, options.random_state
        origin = Origin.begin(source, dataset, opened, options.hold_out, random_state=seed, secret=secret)
    origin.save(path)
    return origin


def _public_labels(dataset: Dataset, options: BuildOptions) -> NDArray[np.int64] | None:
    if options.public_labels and dataset.labels is None:
        raise DataError(f"{dataset.name} has no classes: lay its pictures in a folder per class, or say --kinds.")
    return dataset.labels if options.public_labels else None


def _refuse_one_place(source: Source, public: Source) -> None:
    """Refuse private pictures named as public ones too; by where they are alone, for what they show decides nothing."""
    same = (source.name, source.path) == (public.name, public.path)
    if source.path is not None and public.path is not None:
        one, other = (as_path(path).resolve() for path in (source.path, public.path))
        same = one == other or one in other.parents or other in one.parents
    if same:
        raise PrivacyError(
            f"the public pictures, which are given away with the codebook, are in the same place as the private ones: "
            f"{public.path or public.name}. Name another, or declare a part of the pictures public (public_share)."
        )


def _overlap(private: Floats, public: Floats) -> list[str]:
    """Return a note to the owner if private pictures are equal to public ones; nothing else may depend on that."""
    opened = {row.tobytes() for row in public}
    shared = sum(row.tobytes() in opened for row in private)
    if not shared:
        return []
    return [
        f"{shared} of {len(private)} private pictures are equal to public ones, from which what is given away was "
        "learned. Whatever that shows of them is protected by no epsilon. Unless they are public anyway, give nothing "
        "away: take them out of the public pictures and build with --relearn."
    ]


def _as_spent(statement: PrivacyStatement, ledger: Ledger, unit: Unit) -> PrivacyStatement:
    """Return the statement with all that the ledger has, but for equal pictures: that would tell what pictures show."""
    losses = [one.loss for one in ledger.spends(_SCOPE, unit) if one.purpose != EQUAL_CONTENTS]
    spent = compose(losses, delta=statement.delta or 0.0).epsilon
    if statement.epsilon is None or not statement.epsilon < spent < math.inf:
        return statement
    told = f"{statement.accountant}; all releases of these pictures together, by the ledger"
    return replace(statement, epsilon=spent, accountant=told)


def _open_statement(bits: int, source: str) -> PrivacyStatement:
    return PrivacyStatement(
        guarantee="none",
        mechanism=f"codes of {bits} bits by ITQ, without noise",
        unit="record",
        epsilon=math.inf,
        delta=None,
        randomness="none",
        neighbours="replace",
        who_sees={"holder of the index": f"every picture's exact code, and a function learned from {source}"},
        not_protected=("any picture: a code tells what it shows, and similar pictures are found by it",),
    )


def _class_names(dataset: Dataset, rows: NDArray[np.int64]) -> NDArray[np.str_]:
    """Return what rows show in words, so that two collections can be compared."""
    numbers = ground_truth(dataset)[rows]
    if dataset.labels is not None and dataset.label_names:
        return np.array(dataset.label_names)[numbers]
    return numbers.astype(np.str_)


def _read_some(origin: Origin, names: Sequence[str], side: int) -> list[NDArray[np.uint8]]:
    if origin.source.name == "folder" and origin.source.path is not None:
        return [decode(Path(origin.source.path) / name, size=side) for name in names]
    dataset = origin.source.load()
    assert dataset.images is not None
    where = {str(name): row for row, name in enumerate(dataset.names or range(len(dataset)))}
    return [dataset.images[where[name]] for name in names]
