"""A wrong clock, for all processes of a node."""

import datetime
import time
from contextlib import suppress
from importlib import import_module


def skew_clock(seconds):
    """Let the clock of this process be fast, or slow if `seconds` are negative."""
    with suppress(ImportError):  # scikit-learn imports it where it is installed, and it crashes on any other datetime
        import_module("pandas")
    true_time = time.time

    class Skewed(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls.fromtimestamp(time.time(), tz)

    time.time = lambda: true_time() + seconds
    datetime.datetime = Skewed
