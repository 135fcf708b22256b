"""Contact sheets: geometry, order, text that fits, examples on the right side."""

import numpy as np
import pytest

from blindsight.data.contactsheet import _FAINT, _GAP, _MARGIN, _PAPER, attribute_sheet, contact_sheet
from blindsight.data.dataset import Dataset
from blindsight.errors import InputError


def flat(n, height=8, width=10):
    """Pictures of one plain colour each: their number is their red value."""
    images = np.zeros((n, height, width, 3), dtype=np.uint8)
    images[..., 0] = np.arange(n)[:, None, None]
    return images


def test_pictures_stand_row_by_row_at_even_distances():
    page = np.asarray(contact_sheet(flat(7), columns=3, scale=2))
    assert page.shape == (2 * _MARGIN + 3 * 16 + 2 * _GAP, 2 * _MARGIN + 3 * 20 + 2 * _GAP, 3)
    for i in range(7):
        x, y = _MARGIN + (i % 3) * (20 + _GAP), _MARGIN + (i // 3) * (16 + _GAP)
        assert (page[y : y + 16, x : x + 20] == (i, 0, 0)).all()
    assert (page[-_MARGIN - 1, -_MARGIN - 1] == _PAPER).all()  # the empty places of the last row
    assert (page[:_MARGIN] == _PAPER).all()
    assert (page[:, :_MARGIN] == _PAPER).all()


@pytest.mark.parametrize("n", [1, 3, 57])
def test_any_number_of_pictures_makes_a_handy_page(n):
    page = contact_sheet(flat(n, 64, 64))
    assert max(page.size) <= 1900
    assert n < 3 or 0.6 < page.width / page.height < 3


def test_titles_and_captions_take_room_and_leave_the_pictures_alone():
    plain = contact_sheet(flat(4), columns=2, scale=3)
    page = contact_sheet(flat(4), columns=2, scale=3, titles=["first", "second " * 30], captions=["long caption"] * 4)
    assert page.width == plain.width
    assert page.height > plain.height
    pixels = np.asarray(page)
    for i in range(4):
        assert ((pixels == (i, 0, 0)).all(axis=2)).sum() == 24 * 30
    assert (pixels[:, -_MARGIN:] == _PAPER).all()  # even a long title stays within the margins


def dataset(column, persons=None):
    return Dataset(
        name="test",
        licence="none",
        source="test",
        images=flat(len(column)),
        attributes=np.array(column, dtype=np.int8)[:, None],
        attribute_names=("hat",),
        persons=None if persons is None else np.array(persons),
    )


def shown(page):
    """The numbers of the flat pictures on (this part of) a page."""
    plain = page[(page[..., 1] == 0) & (page[..., 2] == 0)]
    return sorted(set(plain[:, 0].tolist()))


def halves(data, per_side):
    page = np.asarray(attribute_sheet(data, ["hat"], per_side=per_side))
    middle = page.shape[1] // 2
    return shown(page[:, :middle]), shown(page[:, middle:])


def test_yes_is_left_no_is_right_and_unknown_is_not_shown():
    assert halves(dataset([1, 0, -1, 0, 1, 0]), 3) == ([0, 4], [1, 3, 5])


def test_examples_show_different_persons_first():
    assert halves(dataset([1, 1, 1, 1, 0], persons=[0, 0, 0, 1, 2]), 2) == ([0, 3], [4])
    assert halves(dataset([1, 1, 1, 1, 0], persons=[0, 0, 0, 1, 2]), 3) == ([0, 1, 3], [4])


@pytest.mark.parametrize("value", [0, 1])
def test_an_empty_side_says_so(value):
    page = np.asarray(attribute_sheet(dataset([value] * 3), ["hat"], per_side=3))
    middle = page.shape[1] // 2
    below_heading = page[_MARGIN + 40 :]
    empty = below_heading[:, middle + _MARGIN :] if value else below_heading[:, : middle - _MARGIN]
    assert shown(empty) == []
    assert (np.abs(empty.astype(int) - _FAINT).max(axis=2) < 30).any()  # the word "none"


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (lambda: attribute_sheet(dataset([0, 1]), ["hats"]), "'hat'"),
        (lambda: attribute_sheet(dataset([0, 1]), []), "attributes"),
        (lambda: attribute_sheet(dataset([0, 1]), ["hat"], per_side=0), "per side"),
        (lambda: attribute_sheet(Dataset("f", "", "", features=np.zeros((2, 3), np.float32)), ["hat"]), "no pictures"),
        (lambda: contact_sheet(flat(3), columns=0), "columns"),
        (lambda: contact_sheet(flat(3), scale=0), "scale"),
        (lambda: contact_sheet(flat(0)), "at least 1 image"),
        (lambda: contact_sheet(np.zeros((2, 4, 4), np.uint8)), "uint8"),
        (lambda: contact_sheet(flat(3), captions=["x"]), "captions .* 3 in all; got 1"),
        (lambda: contact_sheet(flat(3), columns=2, titles=["x"]), "titles .* 2 in all; got 1"),
    ],
)
def test_bad_requests_are_refused(request_, words):
    with pytest.raises(InputError, match=words):
        request_()
