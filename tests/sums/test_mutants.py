"""Messages that are almost right, to every role: nothing but the project's own errors, and nobody else pays.

Mutants are signed and sealed again, so that they get as far as their author's could.
"""

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from blindsight.crypto.sealedbox import seal, unseal
from blindsight.crypto.signing import Signed
from blindsight.crypto.wire import Message, decode, encode
from blindsight.errors import BlindsightError, InputError, MessageError
from blindsight.sums import dphe, masks, twowave
from blindsight.sums.messages import Answer, Enrolment, Refusal, Reply, Setup
from blindsight.sums.roles import ANSWER
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR
from tests.learn.mutants import altered, checked, mutant
from tests.sums.runs import ALL, KEYED, NAMES, SIZE, Run

MANY = [300, pytest.param(20_000, marks=pytest.mark.slow)]
BODIES = [
    kind
    for module in (dphe, masks, twowave)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Message) and kind is not Message
]


def body_mutant(body, rng):
    """A mutant of a scheme's own part of a message, which may be bytes of no kind."""
    with suppress(MessageError):
        return mutant(decode(body, *BODIES), rng)
    other = altered(body, rng)
    return checked(other.ljust(32)) if rng.random() < 0.5 else other


def reply_mutant(run, reply, name, rng):
    """A mutant of a reply: of its frame, of the receipt, or of the body with a receipt that fits."""
    receipt, body = run.opened(reply, name)
    kind = rng.random()
    if kind < 0.15:
        return mutant(decode(reply, Reply), rng)
    if kind < 0.4:
        signed = run.key(name).sign(mutant(receipt, rng), author=name)
        return encode(replace(decode(reply, Reply), receipt=signed))
    return run.reply(name, receipt, body_mutant(body, rng))


@pytest.mark.parametrize("count", MANY)
@pytest.mark.parametrize("scheme", ALL)
def test_mutants_of_a_members_replies_cost_only_that_member(scheme, count):
    """What is not refused is a well-formed lie about an update: the round goes on, and so does the run."""
    run, rng = Run(scheme, members=NAMES[:3]), np.random.default_rng(0)
    run.begin(0)
    steps = run.steps
    for step in steps:
        fresh = True
        for _ in range(-(-count // len(steps))):
            if fresh:
                run.begin(run.round + 1)
                run.play_until(step)
                if "ann" not in run.aggregator.awaited:
                    run.begin(run.round, attempt=1)
                reply = run.ask("ann")
            refused = run.aggregator.refused
            try:
                run.deliver(reply_mutant(run, reply, "ann", rng))
                fresh = True
            except MessageError:
                assert run.aggregator.refused == refused + 1
                fresh = False
    np.testing.assert_array_equal(run.play(run.round + 1), run.sum())


@pytest.mark.parametrize("step", masks.STEPS)
def test_a_lie_under_masks_is_refused_left_out_or_noticed(step):
    """Five members, of whom four are enough: whatever ann says wrong, the right sum comes out, or none.

    Only an upload may be a lie about ann's own update; shares that were sealed wrong spoil the round.
    """
    run, rng, right = Run("masks", slot_bits=24), np.random.default_rng(0), 0
    for round in range(10):
        run.begin(round, attempt=int(round > 0))
        run.play_until(step)
        receipt, body = run.opened(run.ask("ann"), "ann")
        with suppress(MessageError):
            run.deliver(run.reply("ann", receipt, body_mutant(body, rng)))
        try:
            total = run.finish(*NAMES[1:])
        except BlindsightError:
            assert step in ("advertise", "share", "contribute")
            continue
        if step != "contribute" or "ann" not in run.total.members:
            np.testing.assert_array_equal(total, run.sum(*run.total.members))
            right += 1
    assert right > 1
    np.testing.assert_array_equal(run.play(10), run.sum())


def test_a_forged_share_is_left_out_if_enough_others_came():
    run = Run("masks")
    for round, liar in enumerate(NAMES):
        run.begin(round)
        run.play_until("unmask")
        receipt, body = run.opened(run.ask(liar), liar)
        reveal = decode(body, masks.Reveal)
        for place in range(5):
            forged = (*reveal.shares[:place], bytes(33), *reveal.shares[place + 1 :])
        run.deliver(run.reply(liar, receipt, encode(replace(reveal, shares=forged))))
        np.testing.assert_array_equal(run.finish(), run.sum())
    run.begin(5)
    run.play_until("unmask")
    receipt, body = run.opened(run.ask("ann"), "ann")
    forged = replace(decode(body, masks.Reveal), shares=(bytes(33),) * 5)
    run.deliver(run.reply("ann", receipt, encode(forged)))
    with pytest.raises(MessageError, match=r"altered|belong"):
        run.finish(*NAMES[:4])


@pytest.mark.parametrize("count", MANY)
@pytest.mark.parametrize(("scheme", "least"), [("bfv", 1), ("dphe", 1), ("dphe", 2), ("block-dphe", 1)])
def test_mutants_of_a_request_cost_a_round_at_most(scheme, least, count):
    """And the key of it; never state or the run."""
    changes = {} if scheme == "bfv" else {"minimum_per_position": least}
    run, rng = Run(scheme, members=NAMES[:3], **changes), np.random.default_rng(0)
    run.begin(0)
    run.play_step()
    request, generator, renewed, used = run.request(), run.generator, 0, 0
    for _ in range(count):
        before = generator._state, generator._opener
        body = encode(replace(request, body=body_mutant(request.body, rng)))
        try:
            answer = run.answered(run.sealed(mutant(request, rng) if rng.random() < 0.4 else body))
        except MessageError:
            assert generator._state is before[0]
            continue
        if isinstance(answer, Answer):
            np.testing.assert_array_equal(run.terms.read_sums(answer.sums, 3), run.sum())
        if generator._state is before[0]:
            continue
        (entry,) = generator.log[len(before[0].log) :]
        assert entry.startswith(f"round {run.round}: ")
        assert isinstance(answer, Answer) or "nothing was released" in entry
        gone, used = isinstance(answer, Refusal) and answer.renewed, used + 1
        renewed += gone
        if used % 30:  # the same again
            generator._state, generator._opener = before
            continue
        if gone:
            run.set_up()
        run.begin(run.round + 1)
        run.play_step()
        request = run.request()
    assert renewed > 3
    np.testing.assert_array_equal(run.play(run.round + 1), run.sum())


@pytest.mark.parametrize("count", MANY)
@pytest.mark.parametrize("scheme", ALL)
def test_mutants_of_the_servers_calls_are_refused_or_answered(scheme, count):
    """With the aggregator's signature; what is refused has changed nothing."""
    run, rng = Run(scheme, members=NAMES[:3]), np.random.default_rng(0)
    run.begin(0)
    steps = run.steps
    for step in steps:
        run.play_until(step)
        ann, call = run.role("ann"), run.call(run.aggregator.calls(only=["ann"])["ann"])
        for _ in range(-(-count // len(steps))):
            state = ann._state
            body = encode(replace(call, body=body_mutant(call.body, rng)))
            blob = mutant(call, rng) if rng.random() < 0.5 or scheme != "masks" else body
            try:
                run.ask("ann", call=run.key(AGGREGATOR).sign(blob, author=AGGREGATOR))
                ann._state = state  # what it took for a call may have been any
            except BlindsightError:
                assert ann._state is state
    np.testing.assert_array_equal(run.finish(), run.sum())


@pytest.mark.parametrize("scheme", ALL)
def test_mutants_of_an_answer_are_refused_or_read(scheme):
    run, rng = Run(scheme), np.random.default_rng(0)
    run.play(0)
    message = decode(decode(run.answer, Signed).body, Answer)
    author = KEY_GENERATOR if scheme in KEYED else AGGREGATOR
    for _ in range(300):
        with suppress(MessageError):
            outcome = run.role("ann").read(run.key(author).sign(mutant(message, rng), author=author), 0)
            assert outcome.entered.shape == (SIZE,)
            assert outcome.integers.shape in ((SIZE,), (0,))  # of a brief answer there are none
    np.testing.assert_array_equal(run.role("ann").settle(run.answer, 0).integers, run.sum())


@pytest.mark.parametrize("scheme", KEYED)
def test_mutants_of_what_the_key_generator_answers_the_aggregator(scheme):
    run, rng = Run(scheme), np.random.default_rng(0)
    run.begin(0)
    run.play_step()
    channel = run.setup(AGGREGATOR).channel
    sealed = run.generator.answer(run.aggregator.request())
    message = decode(decode(unseal(channel, sealed, purpose=ANSWER), Signed).body, Answer)
    for _ in range(300):
        signed = run.key(KEY_GENERATOR).sign(mutant(message, rng), author=KEY_GENERATOR)
        with suppress(MessageError):
            run.aggregator.conclude(seal(channel, signed, purpose=ANSWER))
    np.testing.assert_array_equal(run.aggregator.conclude(sealed)[1].integers, run.sum())


@pytest.mark.parametrize("scheme", ALL)
def test_mutants_of_set_ups_and_enrolments_are_refused_or_taken(scheme):
    """A set-up comes through a channel that proves who sent it: all that may happen is one of the project's errors."""
    run, rng = Run(scheme), np.random.default_rng(0)
    for party in ("ann", AGGREGATOR):
        setup = decode(run.generator.setup()[party], Setup)
        for _ in range(150):
            with suppress(MessageError, InputError):
                fresh = run.make(party)
                fresh._key = run.key(party)
                fresh.accept(mutant(setup, rng))
    enrolment = decode(run.role("ann").enrolment(), Enrolment)
    for _ in range(100):
        with suppress(BlindsightError):
            run.generator.enrol(mutant(enrolment, rng))
    np.testing.assert_array_equal(run.play(0), run.sum())
