"""The rounds: nothing that a member learned is lost, absent members are left out, and a run stops when it should."""

import numpy as np
import pytest

from blindsight.errors import InputError, PrivacyError
from blindsight.rounds import ClippedWarning, EarlyStopping, LocalSums, RoundReport, Run, Sums, run_here
from blindsight.sums import DpheOptions
from tests.rounds.learners import NAMES, constant, loaders


def play(learned, task=None, rounds=1, sums=None, **session):
    """Play rounds in which members learn these vectors; return the run."""
    task = constant() if task is None else task
    terms = task.terms(sums or Sums(scheme="plain"), run="a", members=tuple(learned))
    run = Run(task, LocalSums(task, terms, loaders(learned), **session), rounds=rounds)
    run.play()
    return run


def held(run):
    return {name: member.memory.held for name, member in run.backend.members.items()}


def accounted(run):
    """All that arrived in the model and all that members still hold."""
    return run.state.shared * len(NAMES) + sum(held(run).values())


def random_vectors(size=6):
    generator = np.random.default_rng(0)
    return {name: generator.normal(size=size) for name in NAMES}


def test_rounding_and_what_is_held_back_are_never_lost():
    learned = random_vectors()
    run = play(learned, constant(half=True), rounds=5)
    np.testing.assert_allclose(accounted(run), 5 * sum(learned.values()), atol=1e-9)
    kept, step = np.stack(list(held(run).values())), 2.0**-run.backend.terms.fraction_bits
    assert (np.abs(kept[:, :3]) <= step / 2).all()
    assert (np.abs(kept[:, 3:]) > step / 2).all()


def paillier(**options):
    return Sums(scheme="dphe", options=DpheOptions(key_bits=1024, insecure=True, **options))


def test_what_is_withheld_is_sent_later():
    learned = {name: np.zeros(6) for name in NAMES}
    learned["ann"][0] = learned["bob"][0] = 1.0
    learned["cem"][5] = 1.0
    run = play(learned, rounds=2, sums=paillier(minimum_per_position=2, sparsity=0.0))
    np.testing.assert_allclose(accounted(run), 2 * sum(learned.values()), atol=1e-9)
    assert run.state.shared[0] == 1.0  # two rounds of two members' 1, averaged over four
    assert run.state.shared[5] == 0.0
    assert held(run)["cem"][5] == 2.0
    assert run.state.history[0].withheld == 5


@pytest.mark.parametrize("always", [0, 2])
def test_a_round_of_a_schedule_is_about_its_positions_and_the_rest_is_kept(always):
    learned, task = random_vectors(48), constant(48, always=always)
    for rounds in (1, 2, 3):
        run = play(learned, task, rounds=rounds, sums=Sums(scheme="plain", share=0.34))
        np.testing.assert_allclose(accounted(run), rounds * sum(learned.values()), atol=1e-9)
        reached = np.any([run.backend.terms.support(number).mask for number in range(1, rounds + 1)], axis=0)
        assert ((run.state.shared != 0) == reached).all()
    assert reached.all()


def test_a_schedule_tells_apart_what_was_withheld_from_what_was_not_due():
    learned = {name: np.zeros(40) for name in NAMES}
    learned["ann"][:] = learned["bob"][:20] = 1.0
    sums = Sums(scheme="dphe", share=0.5, options=paillier(minimum_per_position=2).options)
    run = play(learned, constant(40), rounds=2, sums=sums)  # blocks of 16, 16 and 8, in two rounds
    np.testing.assert_allclose(accounted(run), 2 * sum(learned.values()), atol=1e-9)
    assert sum(report.withheld for report in run.state.history) == 20  # not the padding
    assert (run.state.shared[20:] == 0).all()


def test_a_member_whose_message_is_lost_keeps_everything():
    learned = {name: np.full(6, place + 1.0) for place, name in enumerate(NAMES)}
    lost = lambda sender, receiver, kind, parts: [] if sender == "bob" else [parts]  # noqa: E731
    run = play(learned, transit=lost)
    assert run.state.history[0].contributors == ("ann", "cem", "dan")
    assert (held(run)["bob"] == 2.0).all()
    assert (held(run)["ann"] == 0.0).all()
    np.testing.assert_allclose(run.state.shared, (1 + 3 + 4) / 3, atol=2**-10)


def test_what_is_too_large_is_clipped_with_a_warning_and_sent_later():
    learned = {name: np.zeros(6) for name in NAMES} | {"ann": np.array([1e6, 1, 0, 0, 0, 0.0])}
    with pytest.warns(ClippedWarning, match="1 weights of round 1"):
        run = play(learned)
    assert run.state.history[0].clipped == 1
    np.testing.assert_allclose(accounted(run), sum(learned.values()))


def test_only_members_whose_turn_it_is_learn():
    asked, learned = [], random_vectors()
    sums = Sums(scheme="plain", sample=3)
    task = constant()
    terms = task.terms(sums, run="a", members=NAMES)
    loads = {name: (lambda name=name: asked.append(name) or learned[name]) for name in NAMES}
    run = Run(task, LocalSums(task, terms, loads), rounds=3)
    run.play()
    assert len(asked) == 9
    for report in run.state.history:
        assert report.contributors == terms.sampled(report.round)
        assert not report.missing


def test_a_round_that_fails_leaves_the_state_and_the_updates_as_they_were():
    broken, learned = [True], random_vectors()

    def transit(sender, receiver, kind, parts):
        return [] if broken[0] and sender in ("ann", "bob") else [parts]

    task = constant()
    terms = task.terms(Sums(scheme="plain"), run="a", members=NAMES)
    run = Run(task, LocalSums(task, terms, loaders(learned), transit=transit), rounds=1)
    with pytest.raises(PrivacyError):
        run.round()
    assert run.state.history == ()
    assert all(member.awaits(1) for member in run.backend.members.values())


def test_prolonging_needs_a_round_at_least():
    with pytest.raises(InputError, match="rounds"):
        run_here(constant(), Sums(scheme="plain"), loaders(random_vectors()), rounds=0, random_state=0)


def history(*rows):
    return [RoundReport(round=i, score=score, step=step) for i, (score, step) in enumerate(rows, start=1)]


def test_stopping_waits_for_patience():
    by_score = EarlyStopping(patience=2, tolerance=0.01)
    rows = [(0.5, 1.0), (0.6, 1.0), (0.605, 1.0)]
    assert not by_score.should_stop(history(*rows))
    assert by_score.should_stop(history(*rows, (0.59, 1.0)))
    assert not by_score.should_stop(history(*rows, (0.62, 1.0)))
    by_step = EarlyStopping(criterion="step", patience=2, tolerance=0.01)
    assert not by_step.should_stop(history((None, 0.001)))
    assert by_step.should_stop(history((None, 0.5), (None, 0.001), (None, 0.002)))
    assert not by_step.should_stop(history((None, 0.001), (None, 0.5), (None, 0.001)))
    assert not EarlyStopping(tolerance=0.0).should_stop([])


def test_rounds_without_a_sum_do_not_end_a_run():
    failed = RoundReport(round=2, failure="too few members")
    moved = RoundReport(round=1, step=0.5)
    assert not EarlyStopping(criterion="step", patience=2).should_stop([moved, failed, failed, failed])


def test_a_report_survives_json_and_shows_what_is_known():
    report = RoundReport(round=3, score=0.5, contributors=("ann",), missing={"bob": "it is <late>"}, withheld=7)
    assert RoundReport.from_dict(report.to_dict()) == report
    shown = report._repr_html_()
    assert "bob" in shown
    assert "<late>" not in shown
