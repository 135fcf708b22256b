"""Members do what the run's aggregator has signed and nothing else: one forged call must not lock anybody out."""

from dataclasses import replace

import numpy as np
import pytest

from blindsight.crypto.signing import Signed, SigningKey
from blindsight.crypto.wire import decode, encode
from blindsight.errors import InputError, MessageError, PrivacyError
from blindsight.federated.identity import KeyStore
from blindsight.federated.node import Note
from blindsight.federated.server import RemoteSums
from blindsight.sums import Aggregator, KeyGenerator, Member, Terms
from blindsight.sums.engine import Response
from blindsight.sums.messages import Answer, Call, model_digest
from blindsight.sums.terms import AGGREGATOR
from tests.federated.parties import ALL_SCHEMES, IMPATIENT, KEYED, MEMBERS, PATIENCE, Parties, damaged, model, numbers

TASK = numbers(about="what the run is about")


@pytest.fixture
def parties(tmp_path):
    return Parties(tmp_path)


def signed(server, parts, key=None, author=AGGREGATOR, **changes):
    """Return the parts of a call with changes, signed by the aggregator or by somebody else."""
    role = server.aggregator
    call = replace(decode(decode(parts[1], Signed).body, Call), **changes)
    return parts[0], role.roster.signed(key or role._key, author, call), *parts[2:]


@pytest.mark.parametrize("scheme", ALL_SCHEMES)
def test_a_forged_call_is_refused_and_the_member_is_there_for_the_next(parties, scheme):
    server = parties.open(scheme)
    with pytest.raises(MessageError):
        parties.contribute("ann", (server.terms.run.encode(), b""))
    parties.draw(1)
    stranger, forged = SigningKey.generate(), []
    bob = parties.member("bob").sum_role(server.terms.run)._key

    def there(name, kind, parts):
        if (name, kind) != ("ann", "contribute"):
            return parts
        ahead = {"round": 10**9}
        envelope = decode(parts[1], Signed)
        swapped = replace(envelope, body=encode(replace(decode(envelope.body, Call), **ahead)))
        for forgery in (
            signed(server, parts, stranger, **ahead),
            signed(server, parts, bob, **ahead),
            signed(server, parts, bob, "bob", **ahead),
            (parts[0], encode(swapped)),
            (parts[0], damaged(parts[1])),
            (b"another run", parts[1]),
            (b"\xff", parts[1]),
        ):
            with pytest.raises(MessageError):
                parties.handlers["ann"]("contribute", forgery)
            forged.append(forgery)
        return parts

    parties.network.there = there
    assert server.round(1, model(1)).contributors == MEMBERS
    parties.network.there = None
    assert server.round(2, model(2)).contributors == MEMBERS
    assert len(forged) == 7


def test_a_call_counts_for_one_member_one_kind_of_message_and_the_parts_it_came_with(parties):
    server, model = parties.open("bfv"), b"the shared model"
    parties.draw(1)
    run, call, _ = server.begin(1, (model,))["ann"]
    for parts in ((), (run,), (run, call), (run, call, b"another"), (run, call, model, b""), (run, call, b"", model)):
        with pytest.raises(MessageError, match="parts"):
            parties.contribute("ann", parts)
    with pytest.raises(MessageError, match="'advertise'"):
        parties.member("ann").handle("advertise", (run, call))
    with pytest.raises(MessageError, match="'bob'"):
        parties.contribute("ann", signed(server, (run, call, model), member="bob"))
    assert not parties.proposals
    assert parties.contribute("ann", (run, call, model))


class TestAModelOfOnesOwnForEachMember:
    """The model for dan, and dead weights for everybody else."""

    MODEL, DEAD = b"the model", b"dead weights"
    OTHERS = MEMBERS[:3]

    @pytest.mark.parametrize("scheme", ALL_SCHEMES)
    def test_that_the_aggregator_has_not_signed_is_refused_before_anybody_learns(self, parties, scheme):
        server = parties.open(scheme, patience=IMPATIENT)
        parties.draw(1)
        parties.network.there = lambda name, kind, parts: (
            (*parts[:2], self.DEAD) if name in self.OTHERS and kind == "contribute" else parts
        )
        with pytest.raises(PrivacyError):
            server.play(1, (self.MODEL,))
        assert server.aggregator.contributors == ("dan",)
        assert set(server.refused) == set(self.OTHERS)
        assert [name for name, _ in parties.proposals] == ["dan"]

    def swapped(self, server):
        def there(name, kind, parts):
            if name not in self.OTHERS or kind != "contribute":
                return parts
            dead = model_digest((self.DEAD,))
            return signed(server, (*parts[:2], self.DEAD), model=dead, base=dead)

        return there

    @pytest.mark.parametrize("scheme", ALL_SCHEMES)
    def test_that_it_has_signed_enters_another_sum(self, parties, scheme):
        server = parties.open(scheme, patience=IMPATIENT)
        parties.draw(1)
        parties.network.there = self.swapped(server)
        with pytest.raises(PrivacyError):
            server.play(1, (self.MODEL,))
        assert server.aggregator.contributors == ("dan",)
        assert set(server.refused) == set(self.OTHERS)

    @pytest.mark.parametrize("scheme", KEYED)
    def test_is_refused_by_the_key_generator(self, parties, scheme):
        """An aggregator that does not care which model a contribution was learned from."""
        server = parties.open(scheme, patience=IMPATIENT)
        parties.draw(1)
        role, there = server.aggregator, self.swapped(server)
        for name, parts in server.begin(1, (self.MODEL,)).items():
            model = model_digest((self.DEAD if name in self.OTHERS else self.MODEL,))
            role._state = replace(role._state, model=model)
            server.receive(
                name, Response(tuple(parties.handlers[name]("contribute", there(name, "contribute", parts))))
            )
        assert server.aggregator.contributors == MEMBERS
        with pytest.raises(PrivacyError, match="nothing of round 1"):
            server.finish()
        assert "another step or model" in parties.key_generator(server.terms.run).log[-1]


def test_in_a_plain_run_a_second_aggregator_is_refused(parties):
    server = parties.open("plain")
    parties.draw(1)
    server.round(1, model(1))
    terms, registrar = server.terms, KeyGenerator(server.terms)
    others = [Member(name, terms) for name in MEMBERS if name != "ann"]
    for party in (*others, Aggregator(terms), parties.member("ann").sum_role(terms.run)):
        registrar.enrol(party.enrolment())
    with pytest.raises(MessageError, match="already set up"):
        parties.member("ann")._set_up(terms.run, Note(setup=registrar.setup()["ann"], task=server.task.to_bytes()))
    assert server.round(2, model(2)).contributors == MEMBERS


def test_zeros_that_the_server_signs_in_the_place_of_a_sum_bring_no_second_sum_of_a_model(parties, monkeypatch):
    """With the calls of a round come the answers of the last; dan is left out, whose update would be the difference."""
    server, true = parties.open("masks", patience=IMPATIENT), RemoteSums.note
    parties.draw(1)
    first, told = server.round(1, model(1)), []
    assert first.contributors == MEMBERS

    def zeros(role, envelope):
        answer = decode(decode(envelope, Signed).body, Answer)
        sums = bytes(len(first.total) * role.terms.residue_type.itemsize)
        told.append(role.roster.signed(role._key, AGGREGATOR, replace(answer, sums=sums)))
        return told[-1]

    def note(self, member):
        if not (blob := true(self, member)):
            return blob
        found = decode(blob, Note)
        return encode(replace(found, answers=tuple(zeros(self.aggregator, one) for one in found.answers)))

    monkeypatch.setattr(RemoteSums, "note", note)
    parties.network.there = lambda name, kind, parts: None if name == "dan" else parts
    with pytest.raises(PrivacyError, match="answered this model"):
        server.round(2, model(1))
    assert told
    assert set(parties.proposals) == {(name, 1) for name in MEMBERS}


class TestTheTask:
    @pytest.mark.parametrize("scheme", ["plain", "bfv"])
    def test_members_refuse_any_but_the_one_of_the_terms(self, parties, scheme):
        server = parties.open(scheme, task=TASK)
        parties.draw(1)
        member, run = parties.member("ann"), server.terms.run
        for other in (b"", TASK.to_bytes() + b"!", numbers(about="another").to_bytes()):
            with pytest.raises(MessageError):
                member._set_up(run, Note(setup=server.run.setups["ann"], task=other))
            with pytest.raises(MessageError, match="not set up"):
                member.task(run)
        assert server.round(1, model(1)).contributors == MEMBERS
        with pytest.raises(MessageError, match="agreed on"):
            member._set_up(run, Note(setup=server.run.setups["ann"], task=numbers(about="second thoughts").to_bytes()))
        assert member.task(run).to_bytes() == TASK.to_bytes()

    def test_a_member_that_was_promised_another_is_found_out_by_the_key_generator(self, parties):
        def there(name, kind, parts):
            if (name, kind) != ("bob", "enrol"):
                return parts
            return replace(Terms.from_bytes(parts[0]), config=numbers(about="bob alone").digest).to_bytes(), parts[1]

        parties.network.there = there
        assert parties.open("masks").terms.members == ("ann", "cem", "dan")
        assert "other terms" in parties.refused["bob"]

    def test_a_server_cannot_go_on_with_another(self, parties):
        server = parties.open("masks", task=TASK)
        with pytest.raises(InputError, match="another task"):
            RemoteSums(parties.reloaded(server), parties.network, PATIENCE, numbers())


def test_the_key_generator_vouches_for_the_aggregators_key(parties):
    server = parties.open("bfv")
    roster = server.aggregator.roster
    assert roster.keys[AGGREGATOR] == server.aggregator._key.public
    parties.draw(1)
    server.round(1, model(1))
    for name in MEMBERS:
        assert parties.member(name).sum_role(server.terms.run).roster.digest == roster.digest


def test_a_contribution_longer_than_any_can_be_is_not_even_read(parties):
    server, lengths = parties.open("bfv"), []
    parties.draw(1)

    def back(name, kind, parts):
        if kind != "contribute":
            return parts
        lengths.append(len(parts[0]))
        return parts if name != "bob" else (parts[0] + bytes(server.terms.most_bytes),)

    parties.network.back = back
    result = server.round(1, model(1))
    assert result.contributors == ("ann", "cem", "dan")
    assert result.missing["bob"]
    assert 0.9 < np.mean(lengths) / server.terms.sizes.shard < 1.1


def test_a_key_store_that_was_moved_keeps_its_runs(parties, tmp_path):
    server, moved = parties.open("bfv"), tmp_path / "moved"
    parties.stores[AGGREGATOR].path.rename(moved)
    parties.stores[AGGREGATOR] = KeyStore(moved)
    parties.draw(1)
    assert parties.restarted(server).round(1, model(1)).contributors == MEMBERS
