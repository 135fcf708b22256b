"""Numbers that a caller gives: what is none gets a sentence before anything is compared with it."""

from numbers import Real
from typing import Any

from blindsight.errors import InputError


def check_number(name: str, value: Any) -> None:
    """Refuse text, truth values and all else that is no number."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InputError(f"{name} must be a number; got {value!r}.")


def check_whole(name: str, value: Any) -> None:
    """Refuse what is no whole number of Python's own."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"{name} must be a whole number; got {value!r}.")
