"""Who gets into a run, and on which terms: nobody is believed who cannot prove what it says."""

import shutil
from dataclasses import replace

import pytest

from blindsight.crypto.signing import SigningKey
from blindsight.crypto.wire import decode, encode
from blindsight.errors import InputError, MessageError, PrivacyError, StorageError
from blindsight.federated.identity import IDENTITY_FILE, Identity, KeyStore, Members, verify_signed
from blindsight.federated.node import (
    ENROLMENT,
    FORGOTTEN,
    REGISTRATION,
    KeyGeneratorNode,
    MemberNode,
    Registration,
    RunRefusal,
    Setups,
)
from blindsight.federated.server import await_and_set_up, load_run, set_up, wait_for_members
from blindsight.sums import Aggregator, Patience, Terms, UnansweredError
from blindsight.sums.engine import LocalTransport
from blindsight.sums.generator import Partitions
from blindsight.sums.messages import Call, Enrolment
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR
from tests.federated.parties import IMPATIENT, MEMBERS, PATIENCE, Parties

HIDING = ("block-dphe", "bfv", "masks")


@pytest.fixture
def parties(tmp_path):
    return Parties(tmp_path)


def terms_of(parties, scheme="masks", **others):
    return parties.make_terms(scheme, **others)("run1", MEMBERS)


def impossible(terms, **changes):
    """Bytes of terms that nobody could make."""
    changed = decode(terms.to_bytes(), Terms)
    for name, value in changes.items():
        object.__setattr__(changed, name, value)
    return encode(changed)


def enrol(parties, name, terms, **policy):
    generator = parties.stores[KEY_GENERATOR].identity.public.to_bytes()
    return parties.member(name, **policy).handle("enrol", (terms.to_bytes(), generator))[0]


class TestWhatAMemberRefuses:
    @pytest.mark.parametrize(
        ("terms", "policy", "sentence"),
        [
            ({"scheme": "plain"}, {"schemes": ("bfv", "masks")}, "plain.* bfv, masks"),
            ({"scheme": "bfv"}, {"quorum": 4}, "4.* got 3"),
            ({"scheme": "dphe"}, {"insecure": False}, "full length"),
            ({"scheme": "dphe"}, {"minimum_per_position": 2}, "2 .* got 1"),
        ],
    )
    def test_terms_that_protect_less_than_it_asks_for(self, parties, terms, policy, sentence):
        before = set(parties.stores["ann"].path.rglob("*"))
        with pytest.raises(PrivacyError, match=sentence):
            enrol(parties, "ann", terms_of(parties, **terms), **policy)
        assert set(parties.stores["ann"].path.rglob("*")) == before

    def test_plain_a_run_without_it_and_a_key_generator_other_than_pinned(self, parties):
        assert enrol(parties, "ann", terms_of(parties, "dphe", minimum_per_position=2), minimum_per_position=2)
        assert enrol(parties, "bob", terms_of(parties, "bfv"), minimum_per_position=3)
        with pytest.raises(PrivacyError, match="plain"):
            MemberNode(parties.stores["ann"], parties.pin).handle("enrol", (terms_of(parties, "plain").to_bytes(), b""))
        with pytest.raises(PrivacyError, match="'ann'"):
            enrol(parties, "ann", parties.make_terms("masks")("run1", ("bob", "cem", "dan")))
        other = parties.stores["dan"].identity.public
        with pytest.raises(PrivacyError) as error:
            parties.member("ann").handle("enrol", (terms_of(parties).to_bytes(), other.to_bytes()))
        assert parties.pin in str(error.value)
        assert other.fingerprint in str(error.value)

    def test_other_terms_for_a_run_it_has_joined(self, parties):
        enrol(parties, "ann", terms_of(parties))
        with pytest.raises(MessageError, match="other terms"):
            enrol(parties, "ann", terms_of(parties, minimum=4))

    def test_messages_of_the_wrong_shape_and_set_ups_of_a_run_it_has_not_joined_without_a_trace(self, parties):
        for kind in ("hello", "enrol", "set-up", "advertise", "contribute", "open", "register", ""):
            for parts in ((), (b"",), (b"", b""), (b"x", b"y", b"z", b"w"), (b"", b"", b""), (b"\xff", b"", b"", b"")):
                with pytest.raises(MessageError):
                    parties.member("ann").handle(kind, parts)
        assert not (parties.stores["ann"].path / "runs").exists()


@pytest.mark.parametrize("scheme", HIDING)
def test_an_enrolment_asked_for_again_says_the_same_and_no_round_begins_before_the_set_up(parties, scheme):
    terms, generator = terms_of(parties, scheme), parties.stores[KEY_GENERATOR].identity
    letters = [enrol(parties, "ann", terms) for _ in range(2)]
    sender = parties.stores["ann"].identity.public
    first, again = (generator.unseal(letter, sender=sender, purpose=ENROLMENT, run="run1") for letter in letters)
    assert first == again
    assert decode(first, Enrolment).terms == terms.digest
    call = SigningKey.generate().sign(encode(Call(b"", 1, 0, "", "contribute", b"", b"", b"")), author=AGGREGATOR)
    with pytest.raises(MessageError, match="not set up yet"):
        parties.contribute("ann", (b"run1", call))


class TestOneBadMemberDoesNotStopTheRest:
    @pytest.mark.parametrize("scheme", HIDING)
    def test_garbage_or_anothers_in_place_of_an_enrolment(self, parties, scheme):
        for letter in (b"", b"garbage", None):
            sent = {}

            def back(name, kind, parts, letter=letter, sent=sent):
                if kind == "enrol":
                    sent[name] = parts
                evil = sent["ann"] if letter is None and name == "bob" else (letter,)
                return evil if (name, kind) == ("bob", "enrol") else parts

            parties.network.back = back
            assert parties.open(scheme).terms.members == ("ann", "cem", "dan")
            assert set(parties.refused) == {"bob"}

    @pytest.mark.parametrize("enrolment", [("cem", bytes(32)), ("bob", b"too short")])
    def test_an_enrolment_that_is_none_inside_a_sealed_message(self, parties, enrolment):
        bob, generator = parties.stores["bob"].identity, parties.stores[KEY_GENERATOR].identity.public
        terms = []

        def transit(name, kind, parts):
            if kind == "enrol":
                terms.append(Terms.from_bytes(parts[0]))
            return parts

        def back(name, kind, parts):
            if (name, kind) != ("bob", "enrol"):
                return parts
            body = encode(Enrolment(enrolment[0], terms[-1].digest, enrolment[1]))
            return (bob.seal(body, to=generator, purpose=ENROLMENT, run=terms[-1].run),)

        parties.network.there, parties.network.back = transit, back
        assert parties.open("bfv").terms.members == ("ann", "cem", "dan")
        assert "'bob'" in parties.refused["bob"]

    def test_a_member_that_agreed_to_other_terms(self, parties):
        """The server shows bob a run of four at least, and the key generator one of three."""

        def transit(name, kind, parts):
            if (name, kind) != ("bob", "enrol"):
                return parts
            return replace(Terms.from_bytes(parts[0]), minimum=4).to_bytes(), parts[1]

        parties.network.there = transit
        assert parties.open("bfv").terms.members == ("ann", "cem", "dan")
        assert "agreed to other terms" in parties.refused["bob"]

    def test_a_member_with_a_wrong_key(self, parties):
        home = parties.stores["bob"].path
        (home / IDENTITY_FILE).unlink()
        Identity.create(home / IDENTITY_FILE, "bob")
        parties.stores["bob"] = KeyStore(home)
        assert parties.open("masks").terms.members == ("ann", "cem", "dan")
        assert "Somebody else" in parties.refused["bob"]

    @pytest.mark.parametrize("scheme", HIDING)
    def test_a_member_for_whom_nothing_can_be_sealed(self, parties, scheme):
        """Its key for messages is of low order; everybody has accepted its fingerprint."""
        object.__setattr__(parties.stores["bob"].identity.public, "exchange_key", bytes(32))
        known = {name: store.identity.public.fingerprint for name, store in parties.stores.items()}
        parties.members = Members(known)
        assert parties.open(scheme).terms.members == ("ann", "cem", "dan")
        assert set(parties.refused) == {"bob"}
        assert "low order" in parties.refused["bob"]

    def test_a_member_that_refuses_or_is_silent(self, parties):
        parties.handlers["bob"] = lambda kind, parts: parties.member("bob", quorum=4).handle(kind, parts)
        assert parties.open("masks").terms.members == ("ann", "cem", "dan")
        assert "4 or more" in parties.refused["bob"]
        parties.network.back = lambda name, kind, parts: None if name == "bob" else parts
        parties.handlers["bob"] = parties.member_handler("bob")
        parties.open("masks")
        assert "in time" in parties.refused["bob"]

    def test_with_too_few_left_everybodys_reason_is_told(self, parties):
        for name in ("ann", "bob"):
            parties.handlers[name] = lambda kind, parts, name=name: parties.member(name, quorum=4).handle(kind, parts)
        with pytest.raises(PrivacyError, match=r"2 members.*3.* ann: .* bob: "):
            parties.open("masks")

    def test_a_minimum_that_those_who_are_left_cannot_reach(self, parties):
        del parties.handlers["bob"]
        with pytest.raises(InputError, match=r"3 members.* bob: "):
            parties.open("masks", minimum=4)


class TestWhatTheKeyGeneratorRefuses:
    def registration(self, parties, terms):
        own, generator = parties.stores[AGGREGATOR].identity, parties.stores[KEY_GENERATOR].identity.public
        enrolments = [own.seal(Aggregator(terms).enrolment(), to=generator, purpose=ENROLMENT, run="run1")]
        enrolments += [enrol(parties, name, terms) for name in MEMBERS]
        names = (AGGREGATOR, *MEMBERS)
        identities = tuple(parties.stores[name].identity.public.to_bytes() for name in names)
        return Registration(terms.to_bytes(), names, identities, tuple(enrolments))

    def ask(self, parties, handler, registration):
        """Return what the key generator sealed for the aggregator."""
        (sealed,) = handler.handle("register", (encode(registration),))
        own, sender = parties.stores[AGGREGATOR].identity, parties.stores[KEY_GENERATOR].identity.public
        return decode(own.unseal(sealed, sender=sender, purpose=REGISTRATION, run="run1"), Setups, RunRefusal)

    def refused(self, parties, handler, registration):
        answer = self.ask(parties, handler, registration)
        assert isinstance(answer, RunRefusal)
        return " ".join(answer.sentences)

    def test_weak_keys_small_sums_and_runs_that_need_none(self, parties):
        handler = parties.generator()
        weak = self.registration(parties, terms_of(parties, "dphe"))
        assert "full length" in self.refused(parties, replace(handler, insecure=False), weak)
        assert "4 or more; got 3" in self.refused(parties, replace(handler, quorum=4), weak)
        other = replace(weak, terms=terms_of(parties, "plain").to_bytes())
        assert "needs no key generator" in self.refused(parties, handler, other)
        unknown = replace(weak, terms=impossible(terms_of(parties), scheme="rot13"))
        with pytest.raises(MessageError, match="unknown aggregation scheme 'rot13'"):
            self.ask(parties, handler, unknown)

    def test_a_party_that_is_missing_or_named_twice(self, parties):
        handler, whole = parties.generator(), self.registration(parties, terms_of(parties))
        for spoilt in (
            replace(whole, parties=whole.parties[:-1]),
            replace(whole, enrolments=whole.enrolments[:-1]),
            replace(whole, identities=(*whole.identities, whole.identities[0])),
            replace(whole, parties=(*whole.parties, "ann")),
        ):
            assert "one enrolment" in self.refused(parties, handler, spoilt)
        with pytest.raises(MessageError, match="aggregator"):
            self.ask(parties, handler, replace(whole, parties=whole.parties[1:], identities=whole.identities[1:]))
        assert not (parties.stores[KEY_GENERATOR].path / "runs").exists()

    def test_an_aggregator_that_is_no_member_keys_of_somebody_else_and_messages_of_the_wrong_shape(self, parties):
        for kind in ("hello", "open", "register", "enrol"):
            for parts in ((), (b"",), (b"", b"", b"")):
                with pytest.raises(MessageError):
                    parties.generator().handle(kind, parts)
        with pytest.raises(PrivacyError, match="'ann'"):
            KeyGeneratorNode(parties.stores["ann"], parties.members)
        fingerprints = dict(parties.members.fingerprints)
        del fingerprints[AGGREGATOR]
        parties.members = Members(fingerprints)
        with pytest.raises(UnansweredError, match="'aggregator'"):
            parties.open("bfv", patience=IMPATIENT)

    def test_a_second_registration_of_a_run_on_other_terms(self, parties):
        handler = parties.generator()
        self.ask(parties, handler, self.registration(parties, terms_of(parties, "bfv")))
        for name in MEMBERS:
            shutil.rmtree(parties.stores[name].path / "runs")
        other = self.registration(parties, terms_of(parties, "bfv", minimum=4))
        assert "other terms" in self.refused(parties, handler, other)

    def test_to_open_sums_of_a_run_it_has_not_set_up_or_of_masks(self, parties):
        handler = parties.generator()
        (signed,) = handler.handle("open", (b"run1", b""))
        assert verify_signed(signed, parties.stores[KEY_GENERATOR].identity.public, purpose=FORGOTTEN) == b"run1"
        assert not (parties.stores[KEY_GENERATOR].path / "runs").exists()
        self.ask(parties, handler, self.registration(parties, terms_of(parties)))
        with pytest.raises(MessageError, match="nothing is decrypted"):
            handler.handle("open", (b"run1", b""))

    def test_asked_again_it_sets_up_the_same_run_and_another_key_of_a_member_is_refused(self, parties):
        registration = self.registration(parties, terms_of(parties, "bfv"))
        for _ in range(2):
            assert isinstance(self.ask(parties, parties.generator(), registration), Setups)
        generator = parties.key_generator("run1")
        assert generator.log == ()
        before = generator.setup()
        shutil.rmtree(parties.stores["ann"].path / "runs")
        again = list(registration.enrolments)
        again[1] = enrol(parties, "ann", terms_of(parties, "bfv"))
        changed = replace(registration, enrolments=tuple(again))
        assert "another key" in self.refused(parties, parties.generator(), changed)
        assert parties.key_generator("run1").setup() == before


def test_neither_runs_nor_restarts_draw_other_cohorts_and_sets_of_members_are_counted(parties):
    seeds = {parties.open("two-wave-masks").aggregator.roster.partition for _ in range(3)}
    assert len(seeds) == 1
    kept = Partitions(parties.stores[KEY_GENERATOR].path / "partitions")
    fingerprints = [parties.members.fingerprints[name].encode() for name in MEMBERS]
    assert {kept.seed(fingerprints)} == seeds
    others = {kept.seed([b"%d" % number]) for number in range(15)}
    assert len(others | seeds) == 16
    assert {parties.open("two-wave-masks").aggregator.roster.partition} == seeds
    del parties.handlers["dan"]
    with pytest.raises(PrivacyError, match="16 sets of members"):
        parties.open("two-wave-masks")


def test_a_key_generator_that_is_not_the_pinned_one_sets_nobody_up(parties):
    """Members and server believe in another key generator than the members were told of."""
    parties.pin = parties.stores["dan"].identity.public.fingerprint
    with pytest.raises(PrivacyError, match="0 members take part"):
        parties.open("bfv")


def test_without_a_key_generator_that_answers_no_run_but_a_plain_one_begins(parties):
    others = {name: identity for name, identity in parties.identities.items() if name != KEY_GENERATOR}
    with pytest.raises(PrivacyError, match="key generator"):
        set_up(parties.stores[AGGREGATOR], parties.network, others, parties.make_terms("bfv"), PATIENCE)
    set_up(parties.stores[AGGREGATOR], parties.network, others, parties.make_terms("plain"), PATIENCE)
    del parties.handlers[KEY_GENERATOR]
    with pytest.raises(UnansweredError, match="key generator"):
        parties.open("bfv", patience=IMPATIENT)


def test_an_error_that_nobody_sealed_ends_no_set_up(parties):
    honest, times = parties.handlers[KEY_GENERATOR], []

    def spoilt(kind, parts):
        times.append(kind)
        if len(times) < 3:
            raise PrivacyError("bob cannot take part.")
        return honest(kind, parts)

    parties.handlers[KEY_GENERATOR] = spoilt
    assert parties.open("bfv").terms.members == MEMBERS
    assert times == ["register"] * 3


class Reception(LocalTransport):
    """A transport that also knows who is there."""

    def __init__(self, parties, names=(*MEMBERS, KEY_GENERATOR)):
        super().__init__(parties.handlers)
        self.parties, self.names = parties, names

    def identities(self):
        return {name: identity for name, identity in self.parties.identities.items() if name in self.names}

    def complaints(self):
        return " Node 7 is odd."


def test_waiting_for_members_ends_with_them_or_with_a_sentence(parties):
    assert wait_for_members(Reception(parties), wanted=4, seconds=60.0) == MEMBERS
    with pytest.raises(PrivacyError, match=r"2 of 3.* key generator .*Node 7 is odd."):
        wait_for_members(Reception(parties, ("ann", "bob")), wanted=3, seconds=1e-9)


def test_a_run_is_gathered_and_everybody_who_stays_outside_is_told_of(parties):
    parties.handlers["bob"] = lambda kind, parts: parties.member("bob", quorum=4).handle(kind, parts)
    told = []
    store, terms = parties.stores[AGGREGATOR], parties.make_terms("bfv")
    wish = {"seconds": 1e-9, "keyed": True, "warn": told.append}
    run = await_and_set_up(store, Reception(parties), terms, PATIENCE, wanted=4, **wish)
    assert run.terms.members == ("ann", "cem", "dan")
    assert "Node 7 is odd." in told[0]
    assert told[1].startswith("bob ")
    assert "4 or more" in told[1]
    with pytest.raises(PrivacyError, match="4 of 5 members"):
        await_and_set_up(store, Reception(parties), terms, PATIENCE, wanted=5, **wish)


def test_a_label_finds_its_run_with_its_seed_alone(parties):
    store, run = parties.stores[AGGREGATOR], parties.open("plain").run
    assert load_run(store, "digits", seed=1) is None
    run.label("digits", seed=1)
    assert load_run(store, "digits", seed=1).terms == run.terms
    with pytest.raises(InputError, match=r"'digits'.*seed 1; got 2"):
        load_run(store, "digits", seed=2)


def test_impossible_terms_open_key_stores_and_bad_patience_are_refused(parties):
    terms = terms_of(parties)
    for change in ({"scheme": "rot13"}, {"minimum": 2}, {"dimension": 0}, {"extra": b"options"}):
        with pytest.raises(MessageError, match="impossible"):
            parties.member("ann").handle("enrol", (impossible(terms, **change), b""))
    path = parties.stores["ann"].path
    path.chmod(0o755)
    with pytest.raises(StorageError, match="chmod 700"):
        KeyStore(path)
    for wrong in ({"round": 0.0}, {"step": -1.0}, {"attempts": 0}, {"pause": float("nan")}):
        with pytest.raises(InputError):
            Patience(**wrong)
