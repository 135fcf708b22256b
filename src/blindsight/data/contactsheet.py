"""Many pictures on one page, to be looked at by a person: a plain grid, or examples of attributes, yes and no."""

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from blindsight.data.dataset import Dataset, check_images
from blindsight.errors import InputError

_PAPER, _INK, _FAINT, _RULE = (250, 250, 248), (40, 42, 46), (122, 126, 132), (220, 221, 222)
_PAGE_WIDTH = 1800
_MARGIN, _GAP = 24, 8
_TITLE, _CAPTION = 20, 12
_HEAD = _TITLE + 2 * _GAP  # room for a title above pictures
_FOOT = _CAPTION + _GAP  # room for a caption below a picture


def contact_sheet(
    images: NDArray[np.uint8],
    *,
    columns: int | None = None,
    titles: Sequence[str] | None = None,
    captions: Sequence[str] | None = None,
    scale: int | None = None,
) -> Image.Image:
    """Arrange pictures (n, h, w, 3) in a grid, row by row.

    `columns` defaults to a grid about half as wide again as high; `scale` enlarges every picture by a whole factor, by
    default as far as the page stays within 1,800 pixels. `titles` puts one line above each row, `captions` one below
    each picture; lines that are too long end in an ellipsis.
    """
    check_images(images, least=1)
    n, height, width = images.shape[:3]
    columns = min(n, _good_columns(n) if columns is None else columns)
    _at_least_one("the number of columns", columns)
    scale = _good_scale(columns, width) if scale is None else scale
    _at_least_one("the scale", scale)
    rows = -(-n // columns)
    _one_for_each("titles", titles, rows, "row")
    _one_for_each("captions", captions, n, "picture")
    head, foot = _HEAD if titles else 0, _FOOT if captions else 0
    step_x, step_y = width * scale + _GAP, head + height * scale + foot + _GAP
    page = _blank(columns * step_x - _GAP, rows * step_y - _GAP)
    pen = ImageDraw.Draw(page)
    for row, title in enumerate(titles or ()):
        _write(pen, _MARGIN, _MARGIN + row * step_y, title, page.width - 2 * _MARGIN)
    for i, picture in enumerate(images):
        x, y = _MARGIN + (i % columns) * step_x, _MARGIN + (i // columns) * step_y + head
        _place(page, picture, x, y, scale)
        if captions:
            below = (x + width * scale / 2, y + height * scale + _GAP / 2)
            pen.text(below, _shortened(captions[i], _CAPTION, width * scale), _FAINT, _font(_CAPTION), anchor="ma")
    return page


def attribute_sheet(dataset: Dataset, attributes: Sequence[str], *, per_side: int = 6) -> Image.Image:
    """Show each attribute as one row: pictures that have it on the left, pictures that do not on the right."""
    if dataset.images is None:
        raise InputError(f"dataset {dataset.name!r} has no pictures to show, only features.")
    _at_least_one("the number of attributes", len(attributes))
    _at_least_one("the number of pictures per side", per_side)
    columns = [dataset.attribute(name) for name in attributes]
    height, width = dataset.images.shape[1:3]
    scale = _good_scale(2 * per_side, width)
    side, step_y = per_side * (width * scale + _GAP) - _GAP, _HEAD + height * scale + _MARGIN
    page = _blank(2 * side + 2 * _MARGIN, len(columns) * step_y - _MARGIN)
    pen = ImageDraw.Draw(page)
    for row, (name, column) in enumerate(zip(attributes, columns, strict=True)):
        y = _MARGIN + row * step_y
        for value, answer, x in ((1, "yes", _MARGIN), (0, "no", 3 * _MARGIN + side)):
            found = np.flatnonzero(column == value)
            _write(pen, x, y, f"{name.replace('_', ' ')}: {answer}", side, note=_counted(len(found)))
            for i, picture in enumerate(_examples(dataset, found, per_side)):
                _place(page, dataset.images[picture], x + i * (width * scale + _GAP), y + _HEAD, scale)
            if not len(found):
                pen.text((x + side / 2, y + _HEAD + height * scale / 2), "none", _FAINT, _font(_TITLE), anchor="mm")
        pen.line([(2 * _MARGIN + side, y), (2 * _MARGIN + side, y + _HEAD + height * scale)], _RULE, 2)
    return page


def _examples(dataset: Dataset, rows: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Choose up to `count` rows, spread over the dataset, of different persons as far as there are enough."""
    if dataset.persons is not None:
        _, first = np.unique(dataset.persons[rows], return_index=True)
        rows = rows[first] if len(first) >= count else np.concatenate([rows[first], np.delete(rows, first)])[:count]
    return rows if len(rows) <= count else rows[np.arange(count) * len(rows) // count]


def _blank(width: int, height: int) -> Image.Image:
    return Image.new("RGB", (width + 2 * _MARGIN, height + 2 * _MARGIN), _PAPER)


def _place(page: Image.Image, pixels: NDArray[np.uint8], x: int, y: int, scale: int) -> None:
    picture = Image.fromarray(np.ascontiguousarray(pixels))
    page.paste(picture.resize((picture.width * scale, picture.height * scale), Image.Resampling.BICUBIC), (x, y))


def _write(pen: ImageDraw.ImageDraw, x: int, y: int, title: str, width: int, note: str = "") -> None:
    room = width - (_font(_CAPTION).getlength(note) + _GAP if note else 0)
    pen.text((x, y + _TITLE), _shortened(title, _TITLE, room), _INK, _font(_TITLE), anchor="ls")
    pen.text((x + width, y + _TITLE), note, _FAINT, _font(_CAPTION), anchor="rs")


def _shortened(text: str, size: int, width: float) -> str:
    if _font(size).getlength(text) <= width:
        return text
    while text and _font(size).getlength(text + "…") > width:
        text = text[:-1]
    return text + "…"


@cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def _counted(count: int) -> str:
    return f"{count:,} picture{'' if count == 1 else 's'}"


def _good_columns(n: int) -> int:
    """Return the columns of a grid about half as wide again as high.

    >>> [_good_columns(n) for n in (1, 2, 6, 24, 96, 200)]
    [1, 2, 3, 6, 12, 18]
    """
    return min(n, int(np.ceil(np.sqrt(1.5 * n) - 1e-9)))


def _good_scale(columns: int, width: int) -> int:
    return int(np.clip((_PAGE_WIDTH // columns - _GAP) // width, 1, 4))


def _at_least_one(what: str, count: int) -> None:
    if count < 1:
        raise InputError(f"{what} must be at least 1; got {count}.")


def _one_for_each(what: str, texts: Sequence[str] | None, count: int, owner: str) -> None:
    if texts is not None and len(texts) != count:
        raise InputError(f"{what} must be one for each {owner}, {count} in all; got {len(texts)}.")
