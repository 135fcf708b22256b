"""Attacks of hostile servers and members read nothing of a sound engine, and each finds the defect it looks for."""

import json
from dataclasses import replace

import numpy as np
import pytest

from blindsight.audit import hostile
from blindsight.audit.hostile import ATTACKS, MEMBERS, LyingServer, attack_scheme
from blindsight.crypto.bfv import generate_keys
from blindsight.sums import KeyGenerator, Member, bfv, dphe, masks, roles
from blindsight.sums.terms import SPARSE_SCHEMES, Terms

SOME = ("dphe", "bfv")  # of keyed schemes: block-dphe differs in nothing that is tested with it
ADMITTED = {  # how much of the victim is read at least
    "differencing rounds": 0.999,
    "malleable copies, of a member with the server": 0.5,
    "forged contributor counts": 1,
}
PLAYED = {name: attack for name, _, attack in ATTACKS}


def verdicts(scheme, name):
    return [row.verdict for row in PLAYED[name](scheme)]


@pytest.mark.parametrize(("name", "scheme"), [(name, scheme) for name, schemes, _ in ATTACKS for scheme in schemes])
def test_attack(name, scheme):
    """What the statement promises holds, and what it admits happens."""
    *held, last = rows = list(PLAYED[name](scheme))
    if name in ADMITTED:
        assert (last.verdict, last.measured.value >= ADMITTED[name], last.proven[:8]) == ("as stated", True, "except: ")
    else:
        held = rows
    most = 1 if name == "differencing attempts" else 0
    assert {(row.verdict, row.measured.value) for row in held} <= {("not refuted", most)}
    assert all(row.attack.startswith(name) and row.claim.startswith(f"{scheme}: ") for row in rows)


def test_every_attack_on_a_scheme_is_played():
    steps = []
    rows = attack_scheme("masks", progress=lambda *step: steps.append(step))
    assert [name for name, _, _ in steps] == [name for name, schemes, _ in ATTACKS if "masks" in schemes]
    assert len(rows) == len(steps)
    assert json.loads(json.dumps([row.to_dict() for row in rows]))


def test_plain_sums_promise_nothing_and_noisy_ones_are_not_differenced():
    assert attack_scheme("plain") == ()
    assert not [row for row in attack_scheme("masks", noisy=True) if row.attack.startswith("differencing rounds")]


def test_a_statement_that_is_silent_about_differences_is_refuted(monkeypatch):
    monkeypatch.setattr(hostile, "_admission", lambda terms, words: None)
    assert verdicts("masks", "differencing rounds") == ["refuted"]


# Planted defects


@pytest.mark.parametrize("scheme", SOME)
def test_a_key_generator_that_forgets_what_it_opened_is_found(monkeypatch, scheme):
    whole = KeyGenerator.answer

    def forgetful(self, request):
        self._state = replace(self._state, round=-1)
        return whole(self, request)

    monkeypatch.setattr(KeyGenerator, "answer", forgetful)
    assert verdicts(scheme, "differencing attempts") == ["refuted"]


@pytest.mark.parametrize("scheme", [*SOME, "masks"])
def test_members_that_answer_a_model_again_are_found(monkeypatch, scheme):
    monkeypatch.setattr(Member, "_check_call", lambda self, call: None)
    assert verdicts(scheme, "differencing attempts") == ["refuted"]


@pytest.mark.parametrize("scheme", SOME)
def test_a_key_generator_without_the_check_of_tags_is_found(monkeypatch, scheme):
    monkeypatch.setattr(bfv, "_checked", lambda *given: True)
    monkeypatch.setattr(dphe, "matches", lambda *given, **named: True)
    assert verdicts(scheme, "chosen ciphertexts")[0] == "refuted"
    assert verdicts(scheme, "malleable copies") == ["refuted"]


@pytest.mark.parametrize("scheme", SOME)
def test_a_key_generator_whose_refusals_cost_nothing_is_found(monkeypatch, scheme):
    refuse = KeyGenerator._refused

    def patient(self, request, reason):
        before, opener = self._state, self._opener
        answer = refuse(self, request, reason)
        self._state, self._opener = before, opener
        return answer

    monkeypatch.setattr(KeyGenerator, "_refused", patient)
    assert verdicts(scheme, "chosen ciphertexts") == ["not refuted", "refuted"]


@pytest.mark.parametrize("scheme", [*SOME, "masks"])
def test_calls_that_are_not_bound_to_the_model_are_found(monkeypatch, scheme):
    """Everybody signs one model, whatever model each was sent."""
    monkeypatch.setattr(LyingServer, "pretend", lambda self, model: None)
    assert verdicts(scheme, "a model of its own for each member") == ["refuted"]


@pytest.mark.parametrize("scheme", [*SOME, "masks"])
def test_a_message_that_raises_what_nobody_catches_is_found(monkeypatch, scheme):
    adder = roles.PARTS[scheme][1]
    check = adder.check

    def fragile(self, step, member, reply):
        try:
            return check(self, step, member, reply)
        except Exception:
            raise IndexError from None

    monkeypatch.setattr(adder, "check", fragile)
    assert verdicts(scheme, "one member ends the run") == ["refuted"]


@pytest.mark.parametrize("scheme", SPARSE_SCHEMES)
def test_counts_that_nobody_compares_with_senders_are_found(monkeypatch, scheme):
    released = dphe._released
    monkeypatch.setattr(dphe, "_released", lambda rows, senders, *rest: released(rows, senders * 0 + 9, *rest))
    assert verdicts(scheme, "forged contributor counts") == ["refuted", "as stated"]


def test_a_chosen_ciphertext_decrypts_to_the_secret_key():
    """The forged request is what it is said to be: whoever reads all of it has a polynomial of -1, 0 and 1."""
    sealapi = pytest.importorskip("tenseal.sealapi")
    secret = generate_keys(max_sum=1 << 30)
    vector = secret.public.encrypt(np.arange(4096), terms=3)
    forged = replace(vector, parts=(hostile._secret_key_part(vector.parts[0]),))
    slots = secret.decrypt(secret.public.read_vector(forged.to_bytes()))
    modulus, plain = secret.public.parameters.plain_modulus, sealapi.Plaintext()
    context = vector.parts[0].context().seal_context().data
    sealapi.BatchEncoder(context).encode([int(slot) % modulus for slot in slots], plain)
    assert {int(plain[place]) for place in range(plain.coeff_count())} == {0, 1, modulus - 1}


def test_five_members_stand_two_that_collude():
    """The number that the attack on drop-out sets takes from the statement."""
    terms = Terms(scheme="masks", run="a", members=MEMBERS, dimension=1, fraction_bits=1)
    assert masks.colluders(len(terms.members)) == hostile.COLLUDING
