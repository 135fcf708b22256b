"""Picture files become uint8 pixels: every readable one, each content once, within bounded memory.

A file that is no picture, is truncated or is absurdly large never stops the rest: it is named with its reason. The
decoder is told which formats it may open (so no file can start an interpreter such as PostScript) and how many pixels a
picture may have. The pixels are always upright 8-bit RGB: the EXIF orientation is obeyed, alpha is laid over white,
16-bit grey is scaled (65535 becomes 255), of an animation the first frame is taken.

Two files are *duplicates* when their upright RGB pixels at full resolution agree, whatever their format, name or
metadata; the same photo at another resolution or compression is another picture. Of duplicates the first (of those of
which most is known) is kept, unless what is known of them disagrees: then all go. Collections larger than a memory
limit are decoded into a memory-mapped file in the cache folder, which only its owner may read.
"""

import hashlib
import io
import math
import os
import stat
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from blindsight.data.dataset import UNKNOWN, check_images
from blindsight.errors import DataError, InputError, MissingExtraError, UnknownNameError
from blindsight.extras import require
from blindsight.files import as_path, atomic_writer, cache_folder
from blindsight.progress import Progress, silent

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""HEIF (phones' HEIC) too, if `pillow_heif` of the extra `service` is installed."""
MAX_PIXELS = 64_000_000
MAX_SIZE = 4096
MEMORY_LIMIT = 2 * 1024**3
_WORKERS = min(4, os.cpu_count() or 1)  # each may hold one picture of MAX_PIXELS

Content = Path | bytes | memoryview
Entry = tuple[str, Content]  # the name a reader of messages will recognise, and where the picture's bytes are

Fit = Literal["crop", "stretch"]  # how a picture becomes square: cut out its centre, or squeeze all of it


@dataclass(frozen=True, eq=False)
class Pictures:
    """What reading many files gave: `images[i]` is the picture of entry `rows[i]`."""

    images: NDArray[np.uint8]
    rows: NDArray[np.int64]
    skipped: tuple[str, ...]  # "name: reason"
    duplicates: int  # pictures dropped because their content occurs more than once
    contradicting: int  # those of them whose copies were described in contradicting ways


def decode(
    content: str | os.PathLike[str] | bytes | memoryview | NDArray[np.uint8],
    *,
    size: int,
    fit: Fit = "crop",
    shrink: bool = False,
) -> NDArray[np.uint8]:
    """Return the picture in a file, in its bytes or in pixels as uint8 RGB (size, size, 3), or a DataError's reason.

    With `shrink` a much larger one is reduced while it is decoded, or right after, to at least four times `size`: a
    photo of 50 million pixels then takes little time and memory.
    """
    _check_shape(size, fit)
    if isinstance(content, np.ndarray):
        check_images(content[None])
        return _square(Image.fromarray(np.ascontiguousarray(content)), size, fit)
    source = content if isinstance(content, bytes | memoryview) else as_path(content)
    return _square(_upright_rgb(source, 4 * size if shrink else None), size, fit)


def claimed_size(content: bytes) -> tuple[int, int, str]:
    """Return width, height and mode that a file claims, without decoding it; zeros where `decode` will say what is
    wrong.
    """
    try:
        with _opened(content) as picture:
            return picture.width, picture.height, picture.mode
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        return MAX_PIXELS + 1, 1, "RGB"
    except Exception:  # decoders raise nearly anything on damaged files
        return 0, 0, "RGB"


def read_images(
    entries: Sequence[Entry],
    *,
    where: str = "the collection",
    annotations: NDArray[np.integer] | None = None,
    size: int = 64,
    fit: Fit = "crop",
    keep_copies: bool = False,
    limit_memory: int = MEMORY_LIMIT,
    cache: str | os.PathLike[str] | None = None,
    progress: Progress = silent,
) -> Pictures:
    """Decode all entries on a few threads; drop unreadable ones and (unless `keep_copies`) duplicates, and say which.

    `annotations` holds one row of integers per entry, all that is known of it (-1: unknown): duplicates whose rows
    disagree are all dropped. Where the pixels of all entries exceed `limit_memory` bytes, they are decoded into the
    folder `cache` (default: the cache folder) and `images` is a read-only memory map. `where` names the collection in
    the error that tells that no picture could be read.
    """
    _check_shape(size, fit)
    shape = (len(entries), size, size, 3)

    def fill(pixels: NDArray[np.uint8]) -> Pictures:
        digests, skipped = _decode_into(pixels, entries, size, fit, progress)
        readable = np.flatnonzero([digest is not None for digest in digests])
        rows, contradicting = (readable, 0) if keep_copies else _distinct(digests, annotations)
        if not len(rows):
            raise DataError(_nothing_left(where, len(entries), skipped))
        _compact(pixels, rows)
        return Pictures(pixels[: len(rows)], rows, skipped, len(entries) - len(skipped) - len(rows), contradicting)

    if math.prod(shape) <= limit_memory:
        return fill(np.empty(shape, dtype=np.uint8))
    path = (cache_folder() if cache is None else as_path(cache)) / "pixels" / f"{_fingerprint(entries, size, fit)}.npy"
    with atomic_writer(path, private=True) as stream:
        start = _write_header(stream, shape)
        # Reserve the blocks now: a disk that fills up under a memory map would kill the process instead of raising.
        os.posix_fallocate(stream.fileno(), 0, start + math.prod(shape))
        found = fill(np.memmap(stream, dtype=np.uint8, mode="r+", offset=start, shape=shape))
        stream.truncate(start + found.images.nbytes)
        _write_header(stream, found.images.shape)
    mapped: NDArray[np.uint8] = np.load(path, mmap_mode="r", allow_pickle=False)
    return replace(found, images=mapped)


def _check_shape(size: int, fit: str) -> None:
    if not 1 <= size <= MAX_SIZE:
        raise InputError(f"size must be in 1..{MAX_SIZE} pixels; got {size}.")
    if fit not in get_args(Fit):
        raise UnknownNameError("fit", fit, get_args(Fit))


def _opened(content: Content) -> Image.Image:
    """Open a picture in a format that may be opened; HEIF where the library is there."""
    source: Path | io.BytesIO = content if isinstance(content, Path) else io.BytesIO(content)
    try:
        return Image.open(source, formats=FORMATS)
    except UnidentifiedImageError:
        if isinstance(source, Path):
            with source.open("rb") as stream:
                start = stream.read(12)
        else:
            start = bytes(content[:12])  # type: ignore[index]
        if start[4:8] != b"ftyp":
            raise
    _open_heif()
    return Image.open(source, formats=["HEIF"])


@cache
def _open_heif() -> None:
    require("pillow_heif", extra="service", purpose="a HEIC picture").register_heif_opener(thumbnails=False)


def _upright_rgb(content: Content, at_least: int | None = None) -> Image.Image:
    """Decode at full resolution, or `at_least` so wide, or raise a DataError whose text is the reason."""
    try:
        if _length(content) == 0:
            raise DataError("empty")
        with _opened(content) as picture:
            if picture.width * picture.height > MAX_PIXELS:
                raise Image.DecompressionBombError
            if at_least is None:
                return _to_rgb(_turned(picture))
            picture.draft(None, (at_least, at_least))
            whole = _turned(picture)
            factor = min(whole.size) // at_least
            return _to_rgb(whole.reduce(factor) if factor > 1 and whole.mode in ("L", "RGB", "RGBA") else whole)
    except DataError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise DataError(f"more than {MAX_PIXELS // 1_000_000} million pixels") from None
    except UnidentifiedImageError:
        raise DataError(f"not a picture in a known format ({', '.join(FORMATS)}, HEIF)") from None
    except MissingExtraError as missing:
        raise DataError(str(missing).rstrip(".")) from None
    except OSError as error:  # with a reason of the operating system, else from a decoder
        raise DataError((error.strerror or "truncated or damaged").lower()) from None
    except Exception:  # decoders raise nearly anything on damaged files, and none of it may stop the rest
        raise DataError("truncated or damaged") from None


def _length(content: Content) -> int:
    if not isinstance(content, Path):
        return len(content)
    status = content.stat()
    if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for ever
        raise DataError("not a file")
    return status.st_size


def _turned(picture: Image.Image) -> Image.Image:
    picture.load()
    with suppress(Exception):  # damaged EXIF: the pixels are fine, they stay as they are stored
        return ImageOps.exif_transpose(picture)
    return picture


def _to_rgb(picture: Image.Image) -> Image.Image:
    if picture.mode == "F":
        raise DataError("floating-point pixels, whose white is not defined")
    if picture.mode.startswith("I"):
        picture = _eight_bit(picture)
    if not picture.has_transparency_data:
        return picture.convert("RGB")
    white = Image.new("RGBA", picture.size, "white")
    white.alpha_composite(picture.convert("RGBA"))
    return white.convert("RGB")


def _eight_bit(picture: Image.Image) -> Image.Image:
    """Scale grey of 0..65535 to 0..255, rounding to the nearest; 255 * 257 = 65535."""
    values = np.asarray(picture)
    if values.min() < 0 or values.max() > 65535:
        raise DataError("grey values outside 0..65535, whose white is not defined")
    return Image.fromarray(((values.astype(np.uint32) + 128) // 257).astype(np.uint8))


def _square(picture: Image.Image, size: int, fit: Fit) -> NDArray[np.uint8]:
    if fit == "crop":
        return np.array(ImageOps.fit(picture, (size, size), Image.Resampling.LANCZOS))
    return np.array(picture.resize((size, size), Image.Resampling.LANCZOS))


def _decode_into(
    pixels: NDArray[np.uint8], entries: Sequence[Entry], size: int, fit: Fit, progress: Progress
) -> tuple[list[bytes | None], tuple[str, ...]]:
    """Fill the rows of `pixels`; return each entry's content hash (None: unreadable) and the reasons."""

    def work(entry: Entry) -> tuple[NDArray[np.uint8], bytes] | str:
        name, content = entry
        try:
            picture = _upright_rgb(content)
        except DataError as reason:
            return f"{name}: {reason}"
        digest = hashlib.sha256(f"{picture.width}x{picture.height}".encode())
        digest.update(picture.tobytes())
        return _square(picture, size, fit), digest.digest()

    digests: list[bytes | None] = [None] * len(entries)
    skipped: list[str] = []
    Image.init()  # load the decoders once, before threads ask for them
    with ThreadPoolExecutor(_WORKERS) as pool:
        waiting: deque[Future[tuple[NDArray[np.uint8], bytes] | str]] = deque()
        ahead: Iterator[Entry] = iter(entries)
        for row in range(len(entries)):
            waiting.extend(pool.submit(work, entry) for entry in islice(ahead, 4 * _WORKERS - len(waiting)))
            result = waiting.popleft().result()
            if isinstance(result, str):
                skipped.append(result)
            else:
                pixels[row], digests[row] = result
            progress("decoding pictures", row + 1, len(entries))
    return digests, tuple(skipped)


def _distinct(
    digests: Sequence[bytes | None], annotations: NDArray[np.integer] | None
) -> tuple[NDArray[np.int64], int]:
    """Return the rows to keep, in order, and how many were dropped for contradicting annotations."""
    copies: dict[bytes, list[int]] = {}
    for row, digest in enumerate(digests):
        if digest is not None:
            copies.setdefault(digest, []).append(row)
    kept: list[int] = []
    contradicting = 0
    for rows in copies.values():
        if len(rows) == 1 or annotations is None:
            kept.append(rows[0])
            continue
        said = annotations[rows]
        known = said != UNKNOWN
        best = int(known.sum(axis=1).argmax())
        # The copies agree when some row can stand for all: where two of them are known, they are equal.
        widest = np.where(known, said, np.iinfo(said.dtype).min).max(axis=0)
        narrowest = np.where(known, said, np.iinfo(said.dtype).max).min(axis=0)
        if np.any(widest > narrowest):
            contradicting += len(rows)
        else:
            kept.append(rows[best])
    return np.array(sorted(kept), dtype=np.int64), contradicting


def _compact(pixels: NDArray[np.uint8], rows: NDArray[np.int64]) -> None:
    """Move the kept rows to the front, in place; rows only ever move down, so a chunk never overwrites a later one."""
    chunk = max(1, 2**24 // pixels[0].nbytes)
    for start in range(0, len(rows), chunk):
        wanted = rows[start : start + chunk]
        if wanted[-1] != start + len(wanted) - 1:
            pixels[start : start + len(wanted)] = pixels[wanted]


def _nothing_left(where: str, count: int, skipped: tuple[str, ...]) -> str:
    if not count:
        return f"{where} holds no files."
    if len(skipped) < count:
        return f"every readable picture of {where} has copies with contradicting labels, so none can be used."
    more = f"; and {len(skipped) - 3} more" if len(skipped) > 3 else ""
    return f"no picture of {where} can be read: {'; '.join(skipped[:3])}{more}."


def _write_header(stream: BinaryIO, shape: tuple[int, ...]) -> int:
    """Write the head of a .npy file and return its length, which numpy keeps equal for any number of rows."""
    stream.seek(0)
    np.lib.format.write_array_header_1_0(stream, {"descr": "|u1", "fortran_order": False, "shape": shape})
    stream.flush()
    return stream.tell()


def _fingerprint(entries: Sequence[Entry], size: int, fit: Fit) -> str:
    """Name the decoded pixels after what they are made of, so that reading the same files again replaces them."""
    digest = hashlib.sha256(f"{size} {fit}".encode())
    for name, content in entries:
        digest.update(f"{name}\0".encode(errors="surrogateescape"))
        if not isinstance(content, Path):
            digest.update(hashlib.sha256(content).digest())
            continue
        with suppress(OSError):  # a missing file is reported when it is decoded
            status = content.stat()
            digest.update(os.fsencode(content.absolute()) + f" {status.st_size} {status.st_mtime_ns}".encode())
    return digest.hexdigest()[:32]
