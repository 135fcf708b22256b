"""Who gets into a run, and on which terms: nobody is believed who cannot prove what it says."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from blindsight.crypto.wire import decode, encode
from blindsight.errors import InputError, MessageError, PrivacyError, StorageError
from blindsight.federated.courier import LocalCourier
from blindsight.federated.home import Home
from blindsight.federated.identity import IDENTITY_FILE, Identity
from blindsight.federated.members import Members
from blindsight.federated.sums.generatordesk import GeneratorDesk
from blindsight.federated.sums.generatorend import PaillierGeneratorEnd
from blindsight.federated.sums.messages import Enrolment, Opening, RunTermsMessage, Step
from blindsight.federated.sums.opening import find_run, gather_run, label_run, open_run, wait_for_users
from blindsight.federated.sums.runterms import RunTerms
from blindsight.federated.sums.server import Patience
from blindsight.federated.sums.userdesk import ENROLMENT, UserDesk
from blindsight.learn.dphe.messages import Enrolment as DpheEnrolment
from blindsight.learn.dphe.terms import AGGREGATOR, KEY_GENERATOR
from tests.federated.village import DIMENSION, IMPATIENT, PATIENCE, USERS, Village

KEYED = ("dphe", "block-dphe", "bfv", "masks")


@pytest.fixture
def village(tmp_path):
    return Village(tmp_path)


def terms_of(village, scheme="masks", **others):
    return village.make_terms(scheme, **others)("run1", USERS)


def enrol(village, name, terms, **policy):
    generator = village.homes[KEY_GENERATOR].identity.public.to_bytes()
    return village.user_desk(name, **policy).handle("enrol", (terms.to_bytes(), generator))[0]


class TestWhatAUserRefuses:
    @pytest.mark.parametrize(
        ("terms", "policy", "sentence"),
        [
            ({"scheme": "plain"}, {"schemes": ("bfv", "masks")}, "plain.* bfv, masks"),
            ({"scheme": "bfv"}, {"minimum": 4}, "4.* got 3"),
            ({"scheme": "dphe"}, {"insecure": False}, "full length"),
            ({"scheme": "dphe"}, {"minimum_per_position": 2}, "2 .* got 1"),
        ],
    )
    def test_terms_that_protect_less_than_it_asks_for(self, village, terms, policy, sentence):
        before = set(village.homes["ann"].path.rglob("*"))
        with pytest.raises(PrivacyError, match=sentence):
            enrol(village, "ann", terms_of(village, **terms), **policy)
        assert set(village.homes["ann"].path.rglob("*")) == before

    def test_plain_a_run_without_it_and_a_key_generator_other_than_pinned(self, village):
        assert enrol(village, "ann", terms_of(village, "dphe", minimum_per_position=2), minimum_per_position=2)
        assert enrol(village, "bob", terms_of(village, "bfv"), minimum_per_position=3)
        with pytest.raises(PrivacyError, match="plain"):
            UserDesk(village.homes["ann"], village.pin).handle("enrol", (terms_of(village, "plain").to_bytes(), b""))
        with pytest.raises(PrivacyError, match="'ann'"):
            enrol(village, "ann", village.make_terms("masks")("run1", ("bob", "cem", "dan")))
        other = village.homes["dan"].identity.public
        with pytest.raises(PrivacyError) as error:
            village.user_desk("ann").handle("enrol", (terms_of(village).to_bytes(), other.to_bytes()))
        assert village.pin in str(error.value)
        assert other.fingerprint in str(error.value)

    def test_other_terms_for_a_run_it_has_joined(self, village):
        enrol(village, "ann", terms_of(village))
        with pytest.raises(MessageError, match="other terms"):
            enrol(village, "ann", terms_of(village, minimum=4))

    def test_messages_of_the_wrong_shape_and_set_ups_of_a_run_it_has_not_joined_without_a_trace(self, village):
        for kind in ("hello", "enrol", "set-up", "advertise", "contribute", "open", ""):
            for parts in ((), (b"",), (b"", b""), (b"x", b"y", b"z", b"w"), (b"", b"", b""), (b"\xff", b"", b"")):
                with pytest.raises(MessageError):
                    village.user_desk("ann").handle(kind, parts)
        assert not (village.homes["ann"].path / "runs").exists()


@pytest.mark.parametrize("scheme", KEYED)
def test_an_enrolment_asked_for_again_says_the_same_and_no_round_begins_before_the_set_up(village, scheme):
    terms, generator = terms_of(village, scheme), village.homes[KEY_GENERATOR].identity
    letters = [enrol(village, "ann", terms) for _ in range(2)]
    sender = village.homes["ann"].identity.public
    first, again = (generator.read(letter, sender=sender, purpose=ENROLMENT, run="run1") for letter in letters)
    assert first == again
    assert decode(first, Enrolment).terms == terms.digest
    with pytest.raises((MessageError, InputError), match="not set up yet"):
        village.user_desk("ann").end("run1").contribute(np.zeros(DIMENSION, dtype=np.int64), 0, b"")


class TestOneBadUserDoesNotStopTheRest:
    @pytest.mark.parametrize("scheme", KEYED)
    def test_garbage_or_anothers_in_place_of_an_enrolment(self, village, scheme):
        for letter in (b"", b"garbage", None):
            sent = {}

            def back(name, kind, parts, letter=letter, sent=sent):
                if kind == "enrol":
                    sent[name] = parts
                evil = sent["ann"] if letter is None and name == "bob" else (letter,)
                return evil if (name, kind) == ("bob", "enrol") else parts

            village.courier.back = back
            assert village.open(scheme).terms.users == ("ann", "cem", "dan")
            assert set(village.refused) == {"bob"}

    @pytest.mark.parametrize("scheme", ["dphe", "bfv"])
    def test_an_enrolment_that_is_none_inside_a_good_letter(self, village, scheme):
        bob, generator = village.homes["bob"].identity, village.homes[KEY_GENERATOR].identity.public
        terms = []

        def transit(name, kind, parts):
            if kind == "enrol":
                terms.append(RunTerms.from_bytes(parts[0]))
            return parts

        def back(name, kind, parts):
            if (name, kind) != ("bob", "enrol"):
                return parts
            content = encode(DpheEnrolment("cem", bytes(32))) if scheme == "dphe" else b"too short"
            body = encode(Enrolment(terms[-1].digest, content))
            return (bob.write(body, to=generator, purpose=ENROLMENT, run=terms[-1].run),)

        village.courier._transit, village.courier.back = transit, back
        assert village.open(scheme).terms.users == ("ann", "cem", "dan")
        assert "'bob'" in village.refused["bob"]

    def test_a_user_that_agreed_to_other_terms(self, village):
        """The server shows bob a run of four at least, and the key generator one of three."""

        def transit(name, kind, parts):
            if (name, kind) != ("bob", "enrol"):
                return parts
            return encode(replace(decode(parts[0], RunTermsMessage), minimum=4)), parts[1]

        village.courier._transit = transit
        assert village.open("bfv").terms.users == ("ann", "cem", "dan")
        assert "agreed to other terms" in village.refused["bob"]

    def test_a_user_with_a_wrong_key(self, village):
        home = village.homes["bob"].path
        (home / IDENTITY_FILE).unlink()
        Identity.create(home / IDENTITY_FILE, "bob")
        village.homes["bob"] = Home(home)
        assert village.open("masks").terms.users == ("ann", "cem", "dan")
        assert "Somebody else" in village.refused["bob"]

    def test_a_user_that_refuses_or_is_silent(self, village):
        village.handlers["bob"] = lambda kind, parts: village.user_desk("bob", minimum=4).handle(kind, parts)
        assert village.open("masks").terms.users == ("ann", "cem", "dan")
        assert "4 or more" in village.refused["bob"]
        village.courier.back = lambda name, kind, parts: None if name == "bob" else parts
        village.handlers["bob"] = village.user_handler("bob")
        village.open("masks")
        assert "in time" in village.refused["bob"]

    def test_with_too_few_left_everybodys_reason_is_told(self, village):
        for name in ("ann", "bob"):
            village.handlers[name] = lambda kind, parts, name=name: village.user_desk(name, minimum=4).handle(
                kind, parts
            )
        with pytest.raises(PrivacyError, match=r"2 users.*3.* ann: .* bob: "):
            village.open("masks")

    def test_a_minimum_that_those_who_are_left_cannot_reach(self, village):
        del village.handlers["bob"]
        with pytest.raises(InputError, match=r"3 users.* bob: "):
            village.open("masks", minimum=4)


class TestWhatTheKeyGeneratorRefuses:
    def opening(self, village, terms):
        own, generator = village.homes[AGGREGATOR].identity, village.homes[KEY_GENERATOR].identity.public
        letters = [own.write(encode(Enrolment(terms.digest, bytes(32))), to=generator, purpose=ENROLMENT, run="run1")]
        letters += [enrol(village, name, terms) for name in USERS]
        parties = (AGGREGATOR, *USERS)
        identities = tuple(village.homes[party].identity.public.to_bytes() for party in parties)
        return Opening(terms.to_bytes(), parties, identities, tuple(letters))

    def ask(self, desk, opening):
        return desk.handle("open", (encode(opening),))

    def test_weak_keys_small_sums_and_runs_that_need_none(self, village):
        desk = village.generator_desk()
        weak = self.opening(village, terms_of(village, "dphe"))
        with pytest.raises(PrivacyError, match="full length"):
            self.ask(replace(desk, insecure=False), weak)
        with pytest.raises(PrivacyError, match=r"4.*got 3"):
            self.ask(replace(desk, minimum=4), weak)
        plain = replace(weak, terms=terms_of(village, "plain").to_bytes())
        with pytest.raises(MessageError, match="needs no key generator"):
            self.ask(desk, plain)

    def test_a_party_that_is_missing_or_named_twice(self, village):
        desk, whole = village.generator_desk(), self.opening(village, terms_of(village))
        for spoilt in (
            replace(whole, parties=whole.parties[:-1]),
            replace(whole, letters=whole.letters[:-1]),
            replace(whole, identities=(*whole.identities, whole.identities[0])),
            replace(whole, parties=(*whole.parties, "ann")),
        ):
            with pytest.raises(MessageError, match="one letter"):
                self.ask(desk, spoilt)
        assert not (village.homes[KEY_GENERATOR].path / "runs").exists()

    def test_an_aggregator_that_is_no_member_a_home_of_somebody_else_and_messages_of_the_wrong_shape(self, village):
        for kind in ("hello", "open", "answer", "enrol"):
            for parts in ((), (b"",), (b"", b"")):
                with pytest.raises(MessageError):
                    village.generator_desk().handle(kind, parts)
        with pytest.raises(PrivacyError, match="'ann'"):
            GeneratorDesk(village.homes["ann"], village.members)
        fingerprints = dict(village.members.fingerprints)
        del fingerprints[AGGREGATOR]
        village.members = Members(fingerprints)
        with pytest.raises(PrivacyError, match="'aggregator'"):
            village.open("bfv")

    def test_a_second_opening_of_a_run_on_other_terms(self, village):
        desk = village.generator_desk()
        self.ask(desk, self.opening(village, terms_of(village, "bfv")))
        for name in USERS:
            shutil.rmtree(village.homes[name].path / "runs")
        with pytest.raises(MessageError, match="other terms"):
            self.ask(desk, self.opening(village, terms_of(village, "bfv", minimum=4)))

    def test_an_answer_in_a_run_it_has_not_opened_or_of_masks(self, village):
        desk = village.generator_desk()
        with pytest.raises(MessageError, match="has not opened"):
            desk.handle("answer", (encode(Step("run1", 0, b"")),))
        assert not (village.homes[KEY_GENERATOR].path / "runs").exists()
        self.ask(desk, self.opening(village, terms_of(village)))
        with pytest.raises(MessageError, match="nothing is decrypted"):
            desk.handle("answer", (encode(Step("run1", 0, b"")),))

    def test_asked_again_it_opens_the_same_run(self, village):
        opening = self.opening(village, terms_of(village, "dphe"))
        for _ in range(2):
            self.ask(village.generator_desk(), opening)
        folder = village.homes[KEY_GENERATOR].folder("run1")
        end = PaillierGeneratorEnd(RunTerms.from_bytes(opening.terms), folder)
        assert end.log == ()


def test_a_key_generator_whose_home_is_not_the_pinned_one_sets_nobody_up(village):
    """Members and server believe in another key generator than the users were told of."""
    village.pin = village.homes["dan"].identity.public.fingerprint
    with pytest.raises(PrivacyError, match="0 users take part"):
        village.open("bfv")


def test_without_a_key_generator_that_answers_no_run_but_a_plain_one_begins(village):
    others = {name: identity for name, identity in village.identities.items() if name != KEY_GENERATOR}
    with pytest.raises(PrivacyError, match="key generator"):
        open_run(village.homes[AGGREGATOR], village.courier, others, village.make_terms("bfv"), PATIENCE)
    open_run(village.homes[AGGREGATOR], village.courier, others, village.make_terms("plain"), PATIENCE)
    identities = village.identities
    del village.handlers[KEY_GENERATOR]
    with pytest.raises(MessageError, match="key generator"):
        open_run(village.homes[AGGREGATOR], village.courier, identities, village.make_terms("bfv"), IMPATIENT)


def test_waiting_for_users_ends_with_them_or_with_a_sentence(village):
    assert wait_for_users(lambda: village.identities, wanted=4, seconds=60.0) == USERS
    few = {name: identity for name, identity in village.identities.items() if name in ("ann", "bob")}
    with pytest.raises(PrivacyError, match=r"2 of 3.* key generator .*Node 7 is odd."):
        wait_for_users(lambda: few, wanted=3, seconds=1e-9, complaints=lambda: " Node 7 is odd.")


class Reception(LocalCourier):
    """A courier that also knows who is there."""

    def __init__(self, village):
        super().__init__(village.handlers)
        self.village = village

    def identities(self):
        return self.village.identities

    def complaints(self):
        return " Node 7 is odd."


def test_a_run_is_gathered_and_everybody_who_stays_outside_is_told_of(village):
    village.handlers["bob"] = lambda kind, parts: village.user_desk("bob", minimum=4).handle(kind, parts)
    told = []
    home, terms = village.homes[AGGREGATOR], village.make_terms("bfv")
    wish = {"seconds": 1e-9, "keyed": True, "warn": told.append}
    run = gather_run(home, Reception(village), terms, PATIENCE, wanted=4, **wish)
    assert run.terms.users == ("ann", "cem", "dan")
    assert "Node 7 is odd." in told[0]
    assert told[1].startswith("bob ")
    assert "4 or more" in told[1]
    with pytest.raises(PrivacyError, match="4 of 5 users"):
        gather_run(home, Reception(village), terms, PATIENCE, wanted=5, **wish)


def test_a_label_finds_its_run_with_its_seed_alone(village):
    home, run = village.homes[AGGREGATOR], village.open("plain").run
    assert find_run(home, "digits", seed=1) is None
    label_run(home, "digits", run, seed=1)
    assert find_run(home, "digits", seed=1).terms == run.terms
    with pytest.raises(InputError, match=r"'digits'.*seed 1; got 2"):
        find_run(home, "digits", seed=2)


def test_impossible_terms_open_homes_and_bad_patience_are_refused(village):
    message = decode(terms_of(village).to_bytes(), RunTermsMessage)
    for change in ({"scheme": "rot13"}, {"run": "../x"}, {"minimum": 2}, {"dimension": 0}):
        with pytest.raises(MessageError, match="impossible"):
            RunTerms.from_bytes(encode(replace(message, **change)))
    path = village.homes["ann"].path
    path.chmod(0o755)
    with pytest.raises(StorageError, match="chmod 700"):
        Home(path)
    for wrong in ({"round": 0.0}, {"step": -1.0}, {"attempts": 0}, {"pause": float("nan")}):
        with pytest.raises(InputError):
            Patience(**wrong)
