"""Users do what the run's aggregator has signed and nothing else: one forged call must not lock anybody out."""

import contextlib
from dataclasses import replace

import numpy as np
import pytest

from blindsight.crypto.wire import decode, encode
from blindsight.errors import InputError, MessageError
from blindsight.federated.home import Home
from blindsight.federated.identity import Identity
from blindsight.federated.sums.messages import Call, Contribution, Order, RunTermsMessage, Step
from blindsight.federated.sums.orders import next_attempt, read_order, sign_order
from blindsight.federated.sums.runterms import RunTerms, briefing_digest
from blindsight.federated.sums.server import SumServer
from blindsight.federated.sums.signingseed import signing_key
from blindsight.learn.dphe import collection
from blindsight.learn.dphe.terms import AGGREGATOR, KEY_GENERATOR
from blindsight.learn.lattice import aggregator
from blindsight.learn.masks.messages import Directory
from tests.federated.village import ALL_SCHEMES, DECRYPTED, PATIENCE, USERS, Village, damaged

BRIEFING = b"what the run is about"


@pytest.fixture
def village(tmp_path):
    return Village(tmp_path)


@pytest.fixture
def stranger(tmp_path):
    return Identity.create(tmp_path / "another aggregator", AGGREGATOR)


def call_of(village, server, name, payload=()):
    village.draw(1)
    return server.begin(1, payload)[name]


def far_ahead(message):
    return replace(read_order(message, Call)[0], attempt=10**9 << 256)


@pytest.mark.parametrize("scheme", ALL_SCHEMES)
def test_a_forged_call_is_refused_and_the_user_is_there_for_the_next(village, stranger, scheme):
    server = village.open(scheme)
    early = Call(server.terms.run, "ann", 1, 0, 0, -1, b"", b"")
    with pytest.raises(MessageError, match="not set up"):
        village.user_desk("ann").call((sign_order(village.homes[AGGREGATOR].identity, "contribute", early),))
    village.draw(1)
    real = village.homes["bob"].identity
    forged = []

    def transit(name, kind, parts):
        if (name, kind) != ("ann", "contribute"):
            return parts
        call = far_ahead(parts[0])
        signature = decode(parts[0], Order).signature
        forgeries = [encode(call), sign_order(stranger, "contribute", call), sign_order(real, "contribute", call)]
        for forgery in [*forgeries, encode(Order(encode(call), signature)), damaged(parts[0])]:
            with pytest.raises(MessageError):
                village.handlers["ann"]("contribute", (forgery,))
            forged.append(forgery)
        return parts

    village.courier._transit = transit
    assert server.play(1, ()).contributors == USERS
    village.courier._transit = None
    assert server.play(2, ()).contributors == USERS
    assert len(forged) == 5


def test_a_call_counts_for_one_user_one_kind_of_message_and_the_parts_it_came_with(village):
    server = village.open("bfv")
    model = b"the shared model"
    message = call_of(village, server, "ann", (model,))
    desk = village.user_desk("ann")
    assert desk.call((message, model)).user == "ann"
    for parts in ((message,), (message, b"another model"), (message, model, b""), (message, b"", model)):
        with pytest.raises(MessageError, match="parts"):
            desk.call(parts)
    with pytest.raises(MessageError, match=r"'ann'.*'bob'"):
        village.user_desk("bob").call((message, model))
    with pytest.raises(MessageError, match="a part at least"):
        desk.call(())
    call, _ = read_order(message, Call)
    with pytest.raises(MessageError, match="'advertise'"):
        desk.call((sign_order(village.homes[AGGREGATOR].identity, "advertise", call),))


class TestAModelOfOnesOwnForEachMember:
    """The aggregator itself signs the model for dan and dead weights for everybody else."""

    MODEL, DEAD = b"the model", b"dead weights"
    OTHERS = USERS[:3]

    def swapped(self, village, **change):
        def transit(name, kind, parts):
            if name not in self.OTHERS or kind != "contribute":
                return parts
            call = replace(read_order(parts[0], Call)[0], **change)
            return sign_order(village.homes[AGGREGATOR].identity, kind, call, (self.DEAD,)), self.DEAD

        return transit

    def asked(self, village, scheme, **change):
        server = village.open(scheme)
        village.draw(1)
        village.courier._transit = self.swapped(village, **change)
        server._gather(1, (self.MODEL,))
        return server

    @pytest.mark.parametrize("scheme", ALL_SCHEMES)
    def test_in_one_attempt_is_refused_before_anybody_learns(self, village, scheme):
        server = self.asked(village, scheme)
        assert server.contributors == ("dan",)
        assert set(server.refused) == set(self.OTHERS)
        assert [name for name, _ in village.proposals] == ["dan"]

    @pytest.mark.parametrize("scheme", ALL_SCHEMES)
    def test_in_another_attempt_enters_another_sum(self, village, scheme):
        server = self.asked(village, scheme, attempt=next_attempt(-1, [self.DEAD]))
        assert server.contributors == ("dan",)
        assert set(server.refused) == set(self.OTHERS)
        assert all(len(sentence) < 120 for sentence in server.refused.values())

    @pytest.mark.parametrize("scheme", DECRYPTED)
    def test_is_refused_by_the_key_generator(self, village, monkeypatch, scheme):
        """An aggregator that does not care which sum a contribution is for."""
        numbers = [next_attempt(-1, [payload]) for payload in (self.MODEL, self.DEAD)]

        def careless(real):
            def read(*args, round, **others):
                for number in numbers:
                    with contextlib.suppress(MessageError):
                        return real(*args, round=number, **others)
                raise MessageError("neither.")

            return read

        for module in (collection, aggregator):
            monkeypatch.setattr(module, "read_receipt", careless(module.read_receipt))
        village.courier.back = lambda name, kind, parts: (
            [encode(replace(decode(parts[0], Contribution), attempt=numbers[0]))] if kind == "contribute" else parts
        )
        server = self.asked(village, scheme, attempt=numbers[1])
        assert server.contributors == USERS
        with pytest.raises(MessageError, match=r"refused: .* attempt 0"):
            server.finish()

    def test_is_refused_by_the_other_users_of_masks(self, village):
        server = village.open("masks")
        server._prepared(USERS)
        one, other = (next_attempt(-1, [payload]) for payload in (self.MODEL, self.DEAD))
        identity, run = village.homes[AGGREGATOR].identity, server.terms.run

        def ask(name, kind, attempt, message=b""):
            return village.handlers[name](kind, (sign_order(identity, kind, Step(run, attempt, message)),))[0]

        advertised = [ask(name, "advertise", one if name == "dan" else other) for name in USERS]
        roster = server._end._masks.roster
        directory = encode(Directory(roster.digest, one, tuple(advertised)))
        signed = signing_key(server.run.folder / "signing").sign(directory, author=AGGREGATOR)
        with pytest.raises(MessageError, match="speaks of round"):
            ask("dan", "share", one, signed)


def test_a_forged_step_of_the_masks_is_refused_and_the_user_goes_on(village, stranger):
    server = village.open("masks")
    village.draw(1)
    server.play(1, ())
    step = Step(server.terms.run, 10**9 << 256, b"")
    for forgery in (encode(step), sign_order(stranger, "advertise", step)):
        with pytest.raises(MessageError):
            village.user_desk("ann").handle("advertise", (forgery,))
    assert server.play(2, ()).contributors == USERS


def test_in_a_plain_run_a_second_aggregator_is_refused(village, stranger):
    server = village.open("plain")
    village.draw(1)
    server.play(1, ())
    with pytest.raises(MessageError, match="another aggregator"):
        village.user_desk("ann").handle("set-up", (server.terms.run.encode(), stranger.public.to_bytes(), b""))
    assert server.play(2, ()).contributors == USERS


class TestTheBriefing:
    def opened(self, village, scheme):
        run = village.open(scheme, briefing=briefing_digest(BRIEFING), briefed=BRIEFING).run
        return SumServer(run, village.courier, PATIENCE, briefing=BRIEFING)

    @pytest.mark.parametrize("scheme", ["plain", "bfv"])
    def test_users_refuse_any_but_the_one_of_the_terms(self, village, scheme):
        server = self.opened(village, scheme)
        village.draw(1)
        desk, run = village.user_desk("ann"), server.terms.run
        for other in (b"", BRIEFING + b"!"):
            with pytest.raises(MessageError, match="briefing"):
                desk.handle("set-up", (run.encode(), server.run.letters["ann"], other))
            with pytest.raises(MessageError, match="was not told yet"):
                desk.briefing(run)
        assert server.play(1, ()).contributors == USERS
        with pytest.raises(MessageError, match="briefing"):
            desk.handle("set-up", (run.encode(), server.run.letters["ann"], b"second thoughts"))
        assert desk.briefing(run) == BRIEFING

    def test_a_user_that_was_promised_another_is_found_out_by_the_key_generator(self, village):
        def transit(name, kind, parts):
            if (name, kind) != ("bob", "enrol"):
                return parts
            terms = replace(decode(parts[0], RunTermsMessage), briefing=briefing_digest(b"for bob alone"))
            return encode(terms), parts[1]

        village.courier._transit = transit
        assert village.open("masks").terms.users == ("ann", "cem", "dan")
        assert "other terms" in village.refused["bob"]

    def test_a_server_cannot_go_on_with_another(self, village):
        server = self.opened(village, "masks")
        with pytest.raises(InputError, match="briefing"):
            SumServer(village.reloaded(server), village.courier, PATIENCE, briefing=b"other")

    def test_terms_hold_a_digest_of_it(self, village):
        with pytest.raises(InputError, match="SHA-256"):
            village.make_terms("masks", briefing=b"short")("run1", USERS)


def test_the_key_generator_vouches_for_the_aggregator_among_its_members(village):
    server = village.open("bfv")
    village.draw(1)
    server.play(1, ())
    for name in USERS:
        followed = village.user_desk(name)._aggregator(server.terms.run)
        assert followed.fingerprint == village.members.fingerprints[AGGREGATOR]
        assert followed != village.homes[KEY_GENERATOR].identity.public


def test_a_contribution_longer_than_any_can_be_is_not_even_read(village):
    server = village.open("bfv")
    village.draw(1)
    lengths = []

    def back(name, kind, parts):
        if kind != "contribute":
            return parts
        lengths.append(len(parts[0]))
        return parts if name != "bob" else (parts[0] + bytes(server.terms.most_bytes),)

    village.courier.back = back
    result = server.play(1, ())
    assert result.contributors == ("ann", "cem", "dan")
    assert 0.9 < np.mean(lengths) / server.terms.contribution_bytes < 1.1
    server.receive("bob", _announcing(server.terms.most_bytes))
    assert f"at most {server.terms.most_bytes}" in server.refused["bob"]


def _announcing(payload):
    message = encode(Step("run", 0, b""))
    return message[:6] + payload.to_bytes(8, "big") + message[14:]


class TestMessagesHaveALength:
    def terms(self, scheme, dimension, **others):
        settings = {"fraction_bits": 16, "capacity": 1000} | others
        return RunTerms(scheme=scheme, run="run1", users=USERS, dimension=dimension, **settings)

    def test_vectors_that_no_message_holds_are_refused_before_anything_is_trained(self):
        with pytest.raises(InputError, match=r"bfv.* 256"):
            self.terms("bfv", 16_000_000)
        with pytest.raises(InputError, match="400000 blocks"):
            self.terms("dphe", 4_000_000, capacity=400_000)
        with pytest.raises(InputError, match=r"dphe.* 256"):
            self.terms("dphe", 400_000, capacity=342_000)

    @pytest.mark.parametrize("scheme", ["plain", "masks", "bfv", "block-dphe"])
    def test_large_models_fit(self, scheme):
        assert self.terms(scheme, 15_000_000, capacity=10_000).contribution_bytes < 1 << 28


def test_a_home_that_was_moved_keeps_its_runs(village, tmp_path):
    server = village.open("bfv")
    moved = tmp_path / "moved"
    village.homes[AGGREGATOR].path.rename(moved)
    village.homes[AGGREGATOR] = Home(moved)
    village.draw(1)
    assert village.restarted(server).play(1, ()).contributors == USERS
