"""The tree of errors is the one its docstring draws, and unknown names come with a suggestion."""

import inspect
import re

import pytest

from blindsight import errors


def test_docstring_draws_exactly_the_tree_that_exists():
    drawn = set(re.findall(r"(\w+Error)\b", errors.__doc__.split("Messages")[0])) - {
        "ValueError",
        "OSError",
        "ImportError",
    }
    exist = {
        name for name, value in vars(errors).items() if inspect.isclass(value) and value.__module__ == errors.__name__
    }
    assert drawn == exist


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (errors.InputError, ValueError),
        (errors.StorageError, OSError),
        (errors.MissingExtraError, ImportError),
        (errors.BudgetExceededError, errors.PrivacyError),
    ],
)
def test_errors_can_be_caught_as_what_python_users_expect(error, builtin):
    assert issubclass(error, builtin)
    assert issubclass(error, errors.BlindsightError)


def test_unknown_name_suggests_the_nearest_if_one_is_near():
    message = str(errors.UnknownNameError("attribute", "smilling", ["male", "smiling"]))
    assert all(part in message for part in ("attribute", "'smilling'", "'smiling'?", "male, smiling"))
    assert "?" not in str(errors.UnknownNameError("dataset", "zzz", ["faces"]))
