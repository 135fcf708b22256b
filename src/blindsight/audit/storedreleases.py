"""What an index really holds, compared with the pictures: releases with noise on them, hash functions without rows.

A mechanism may be sound and an index still hold something else: the true symbols, by mistake. So the releases in the
index are compared with the true symbols, which only the owner of the pictures can compute. Each names its true symbol
with a known probability, independently, so their number is binomial. KSH and SDH carry training rows as anchors.

And a sound release may be published with something that is none. Two folders that differ in one picture are built, and
built again after that picture was edited, with the same coins: all public bytes must agree but for what the mechanism
released. That is the picture's symbol in local mode; in central mode it is the numbers of the hash function, which no
edit may change. Of files that only the owner can read (all of them, in open mode) the length must agree.
"""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from shutil import copytree, ignore_patterns
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from blindsight.audit.epsilon import CONFIDENCE
from blindsight.audit.finding import Finding, rate
from blindsight.files import write_arrays
from blindsight.rng import seeded_bytes
from blindsight.search.building import Wish, build_gallery, read_origin
from blindsight.search.function import Floats, load_function
from blindsight.search.gallery import FUNCTION, PRIVATE, Gallery, Mode, Source
from blindsight.search.index import SymbolIndex
from blindsight.search.localmode import LocalHasher
from blindsight.search.supervised import KernelHash, squared_distances
from blindsight.validation import check_features

_SAME = 1e-6  # of a row's squared length: what rounding leaves of nothing


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


Seen = dict[str, tuple[int, int, bytes]]
"""What others see of a folder: mode, length and, where they can read it, content of every file but the owner's own."""


def neighbouring_bytes(
    images: NDArray[np.uint8], wish: Wish, codebook: LocalHasher | None = None, *, seeds: int
) -> Iterator[bool]:
    """Build folders of these pictures that differ in the first; yield whether their public bytes agree, twice a pair.

    Its neighbours are a copy of the second picture, one all black, and one of noise; each is edited, slightly or
    wholly, before the second build, so that both versions are compared.
    """
    noise = np.random.default_rng(0).integers(0, 256, images[0].shape, dtype=np.uint8)
    black, touched = np.zeros_like(noise), images[0].copy()
    touched[0, 0] ^= 1  # an edit that changes hardly anything must look like one that changes everything
    histories = [(images[0], touched), (images[1], 255 - images[0]), (black, images[1]), (noise, black)]
    with TemporaryDirectory(prefix="blindsight-audit-") as scratch:
        for seed in range(seeds):
            built = [
                _histories(Path(scratch) / f"{seed}-{number}", images, history, wish, codebook, seed)
                for number, history in enumerate(histories)
            ]
            yield from (one == other for versions in built[1:] for one, other in zip(built[0], versions, strict=True))


def _histories(
    folder: Path,
    images: NDArray[np.uint8],
    history: tuple[NDArray[np.uint8], ...],
    wish: Wish,
    codebook: LocalHasher | None,
    seed: int,
) -> list[Seen]:
    """Return what is seen of each version, without what the mechanism released of the first picture."""
    pictures, index, coins = folder / "pictures", folder / "index", seeded_bytes(seed)
    pictures.mkdir(parents=True)
    for row, image in enumerate(images):
        Image.fromarray(image).save(pictures / f"{row:03}.png")
    versions: list[Seen] = []
    functions: list[bytes] = []
    for image in history:
        Image.fromarray(image).save(pictures / "000.png")
        source, kept = Source("folder", str(pictures)), folder.parent / "cache"  # features are the same for every seed
        build_gallery(source, wish, index, public=codebook, cache=kept, secret=coins)
        seen = folder / f"seen {len(versions)}"
        copytree(index, seen, ignore=ignore_patterns(PRIVATE))
        if codebook is not None:
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
        attack="folders that differ in one picture are built and edited with the same coins, and compared byte by byte",
        details={"pairs": len(agree)},
    )


def anchors_finding(function: KernelHash, rows: Floats) -> Finding:
    """Count the anchors of a kernel hash function that are rows of the collection, word for word."""
    anchors = check_features(function.anchors, function.dimension, least=0)
    nearest = squared_distances(anchors, rows).min(axis=1)
    found = int(np.sum(nearest <= _SAME * np.einsum("ij,ij->i", anchors, anchors)))
    return Finding(
        claim="a hash function does not hold the pictures it was learned from",
        source="nobody",
        proven="nothing: KSH and SDH carry training rows as anchors",
        measure="share of anchors that are features of indexed pictures, word for word",
        measured=rate(found, len(anchors)),
        verdict="leaks" if found else "at chance",
        attack="reading the hash function",
        details={"anchors": len(anchors), "rows": len(rows)},
    )
