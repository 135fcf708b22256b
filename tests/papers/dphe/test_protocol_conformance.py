"""The papers' schemes do what every scheme must do, except what needs seals and tags."""

import pytest

import blindsight.papers.dphe  # noqa: F401  makes the schemes known
from tests.sums import conftest
from tests.sums import test_conformance as suite

disk, kept, run, quick = suite.disk, suite.kept, suite.run, conftest.quick


@pytest.fixture(scope="session", params=["dphe-published", "dphe-single", "dphe-all"])
def scheme(request):
    return request.param


test_sum = suite.test_everyone_reads_the_exact_sum
test_drop_outs = suite.test_drop_outs_at_any_step_leave_the_sum_of_those_who_contributed
test_too_few = suite.test_with_too_few_a_step_stays_open_and_more_may_come
test_numbers = suite.test_rounds_count_up
test_samples = suite.test_sampled_members_alone_are_asked_and_added
test_what_is_wrong = suite.test_what_is_wrong_is_refused_counted_and_changes_nothing
test_repeats = suite.test_a_reply_counts_once_however_often_it_comes_and_not_in_another_round
test_orders = suite.test_calls_and_replies_in_any_order_give_the_same_sum
test_latecomers = suite.test_whoever_comes_late_is_left_out_and_the_others_go_on
test_answers = suite.test_forged_and_foreign_answers_are_refused
test_steps = suite.test_a_step_is_done_once_and_repeated_in_the_same_bytes
test_calls = suite.test_calls_that_are_forged_for_others_or_out_of_turn_are_refused_and_use_up_nothing
test_loading = suite.test_every_role_can_be_loaded_between_any_two_messages
