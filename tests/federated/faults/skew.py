"""A wrong clock, for all processes of a node."""

import datetime
import time


def skew_clock(seconds):
    """Let the clock of this process be fast, or slow if `seconds` are negative."""
    true_time = time.time

    class Skewed(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls.fromtimestamp(time.time(), tz)

    time.time = lambda: true_time() + seconds
    datetime.datetime = Skewed
