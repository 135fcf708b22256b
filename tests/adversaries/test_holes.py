"""A way around a verdict by which nothing is read shows nothing."""

from tests.adversaries.holes import Hole


def test_a_way_around_a_verdict_by_which_nothing_is_read_shows_nothing():
    verdicts = [
        Hole("it", "a rule", read, True, now).finding().verdict for read in (0.05, 0.5) for now in (False, True)
    ]
    assert verdicts == ["undecided", "undecided", "not refuted", "refuted"]
