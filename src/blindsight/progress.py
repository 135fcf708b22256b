"""How long work tells how far it is, without knowing who listens (a terminal, a page, nobody)."""

from collections.abc import Callable

Progress = Callable[[str, int, int | None], None]
"""Called as ``progress(what, done, total)``; `total` is None while it is not known."""


def silent(what: str, done: int, total: int | None) -> None:
    """Ignore all reports: the default of every library function."""
