"""One validator of features: what is usable comes back in the asked precision, all else is refused by fact."""

import numpy as np
import pytest
from scipy.sparse import csr_array, csr_matrix

from blindsight.errors import DataError, InputError
from blindsight.validation import check_features, check_finite, check_shape

ROWS = np.arange(6).reshape(2, 3)


@pytest.mark.parametrize(
    ("given", "precision", "kind"),
    [
        (np.int64, "single", np.float32),
        (np.float64, "single", np.float32),
        (np.float16, "wide", np.float32),
        (np.float32, "wide", np.float32),
        (np.uint8, "wide", np.float64),
        (np.uint8, "given", np.uint8),
    ],
)
def test_precision(given, precision, kind):
    rows = check_features(ROWS.astype(given), 3, precision=precision)
    assert rows.dtype == kind
    np.testing.assert_array_equal(rows, ROWS)


def test_single_rows_come_in_one_block_without_a_needless_copy():
    floats = ROWS.astype(np.float32)
    assert check_features(floats) is floats
    assert check_features(floats.T).flags.c_contiguous


def test_sparse_rows_stay_sparse_where_only_their_shape_matters():
    rows = check_shape(csr_matrix(ROWS), 3)
    assert isinstance(rows, csr_array)
    with pytest.raises(InputError, match="numbers"):
        check_features(csr_matrix(ROWS))


def test_rows_of_any_shape_and_no_rows_where_allowed():
    assert check_features(np.zeros((2, 4, 5)), (4, 5), flat=False).shape == (2, 4, 5)
    assert check_features(np.zeros((0, 3)), 3, least=0).shape == (0, 3)


@pytest.mark.parametrize(
    ("X", "options", "words"),
    [
        (ROWS[0], {}, r"int64 \(3,\)"),
        (ROWS[None], {}, r"\(1, 2, 3\)"),
        (ROWS[:0], {}, "one row or more"),
        (ROWS, {"least": 5}, "5 rows or more"),
        (ROWS[:, :0], {"least": 0}, r"\(2, 0\)"),
        ([["a"]], {}, "<U1"),
        ([[1], [1, 2]], {}, "one shape"),
        (ROWS, {"width": 4}, "4 columns; got 3"),
        (ROWS, {"width": (4, 5), "flat": False}, r"\(4, 5\); got \(3,\)"),
        ([[np.nan]], {"what": "scores"}, "scores must be finite"),
        ([[np.inf]], {"precision": "given"}, "finite"),
        ([[1e300]], {}, "finite"),
    ],
)
def test_what_is_wrong_is_named(X, options, words):
    with pytest.raises(InputError, match=words):
        check_features(X, **options)


def test_a_row_is_named_only_where_the_caller_allows_it():
    rows = np.array([[0.0], [np.nan], [np.inf]])
    with pytest.raises(InputError) as caught:
        check_finite(rows, "features")
    assert "row 1" not in str(caught.value)
    with pytest.raises(DataError, match="2 of 3 rows, first in row 1"):
        check_finite(rows, "features", error=DataError, first=True)
