"""A token opens the door of one principal, until it expires, is revoked or is replaced; nothing else opens any."""

import hashlib
import hmac
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import event, select, text

from blindsight.crypto.sealedbox import ExchangeKey
from blindsight.errors import InputError, PrivacyError, UnknownNameError
from blindsight.rng import seeded_bytes
from blindsight.service import principals as module
from blindsight.service.principals import Principal, Principals, Token
from blindsight.service.store import principals as table

KEY = ExchangeKey(bytes(range(32))).public.hex()
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
INJECTIONS = [
    "'; DROP TABLE principals; --",
    "' OR '1'='1",
    '" OR ""="',
    "1); DELETE FROM log; --",
    "%s %(name)s :name ? $1",
    "\\'; SELECT pg_sleep(10); --",
    "<script>alert(1)</script>",
    "../../etc/passwd",
    "{{7*7}}",
]


class Clock:
    def __init__(self):
        self.now = NOON

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


class Enrolled(Principals):
    """Everyone redeems their code at once."""

    def join(self, name, role, **more):
        _, code = self.create(name, role, **more)
        return self.redeem(code, KEY)


@pytest.fixture
def people(database, clock):
    return Enrolled(database, clock=clock)


def test_token_opens_its_own_door(people):
    ann, hers = people.join("Ann", "owner")
    app, its = people.join("Camera app", "app")
    assert people.authenticate(hers) == ann == people.get(ann.id)
    assert people.authenticate(str(its)) == app
    assert (ann.role, app.name) == ("owner", "Camera app")
    assert people.list() == tuple(sorted((ann, app), key=lambda one: one.id))  # they came at the same moment


def test_only_the_hash_is_stored(people, database):
    _, token = people.join("Ann", "owner")
    with database.reading() as session:
        row = session.execute(select(table)).one()
        stored = session.execute(text("SELECT * FROM principals")).one()
    assert row.token_hash == hashlib.sha256(token.encode()).hexdigest()
    assert token not in repr(stored)
    assert token.removeprefix("blindsight_") not in repr(stored)


def test_tokens_hold_256_bits_of_the_source(sqlite_database):
    drawn = []

    def source(count):
        drawn.append(count)
        return seeded_bytes(len(drawn))(count)

    people = Enrolled(sqlite_database, source=source)
    tokens = {people.join(f"app {number}", "app")[1] for number in range(5)}
    assert len(tokens) == 5
    assert drawn.count(32) == 5 * 3  # two tokens that nobody gets come before the one that somebody gets
    assert all(module.TOKEN.fullmatch(token) for token in tokens)


def test_token_is_in_no_representation_or_error(people):
    created = people.join("Ann", "owner")
    token = created[1]
    assert token not in repr(created)
    assert token not in f"{created!r} {[token]} {{'token': token}}"
    for misuse in (lambda: people.get(token), lambda: people.join(token, "app"), lambda: people.revoke(token)):
        with pytest.raises(InputError) as caught:
            misuse()
        assert token not in str(caught.value)


def test_what_is_no_token_opens_nothing(people):
    _, token = people.join("Ann", "owner")
    digest = hashlib.sha256(token.encode()).hexdigest()
    near = [token[:-1] + ("A" if token[-1] != "A" else "Q"), token + "\n", " " + token, token.lower()]
    none = ["", "blindsight_", "x" * 10_000_000, "blindsight_" + "é" * 43, None, b"bytes", 7]
    for wrong in (*near, *none, digest, f"blindsight_{digest[:43]}"):
        assert people.authenticate(wrong) is None


def test_hashes_are_compared_in_constant_time(people, monkeypatch):
    _, token = people.join("Ann", "owner")
    compared = []
    monkeypatch.setattr(module.hmac, "compare_digest", lambda a, b: compared.append((a, b)))
    assert people.authenticate(token) is None  # the comparison decides
    monkeypatch.undo()
    ((stored, digest),) = compared
    assert hmac.compare_digest(stored, digest)


def test_token_expires(people, clock):
    ann, token = people.join("Ann", "owner", expires=NOON + HOUR)
    clock.now = NOON + HOUR - timedelta(microseconds=1)
    assert people.authenticate(token) == ann
    clock.now = NOON + HOUR
    assert people.authenticate(token) is None
    assert people.list() == (ann,)


def test_revoked_token_is_worthless_for_ever(people, clock):
    ann, token = people.join("Ann", "owner")
    people.revoke(ann.id)
    assert people.authenticate(token) is None
    assert people.get(ann.id).revoked == NOON
    clock.now += HOUR
    people.revoke(ann.id)  # again changes nothing
    assert people.get(ann.id).revoked == NOON
    with pytest.raises(InputError, match="revoked"):
        people.rotate(ann.id)
    with pytest.raises(InputError, match="taken"):
        people.join("Ann", "app")


def test_rotation_replaces_the_token_at_once(people, clock):
    ann, old = people.join("Ann", "owner", expires=NOON + HOUR)
    new = people.rotate(ann.id)
    assert isinstance(new, Token)
    assert people.authenticate(old) is None
    assert people.authenticate(new) == ann  # with the expiry as it was
    clock.now += 2 * HOUR
    for late in (people.rotate, people.issue_code):
        with pytest.raises(InputError, match="expires"):
            late(ann.id)
    _, renewed = people.redeem(people.issue_code(ann.id, expires=NOON + 3 * HOUR), KEY)
    assert people.authenticate(renewed).expires == NOON + 3 * HOUR


def test_a_code_makes_one_token_for_who_redeems_it_first(people, database, clock):
    ann, code = people.create("Ann", "owner")
    assert ann.public_key is None
    with pytest.raises(InputError, match="public key"):
        people.redeem(code)
    for wrong in ("0" * 64, KEY[:62], KEY[:-1] + "g"):
        with pytest.raises(InputError, match="key"):
            people.redeem(code, wrong)
    with pytest.raises(PrivacyError, match="nothing"):
        people.redeem("ABCDEF-ABCDEF-ABCDEF-ABCDEF", KEY)
    with ThreadPoolExecutor(4) as pool:
        tried = [pool.submit(people.redeem, f" {code.lower()}\n", KEY) for _ in range(4)]
    came = [one.exception() for one in tried]
    (token,) = (one.result()[1] for one in tried if one.exception() is None)
    late = [str(one) for one in came if one is not None]
    assert len(late) == 3
    assert all("2030-01-01T12:00:00" in said for said in late)  # so that she notices who came second
    assert people.authenticate(token).public_key == KEY
    with database.reading() as session:
        rows = [
            repr(row) for name in ("principals", "enrolments") for row in session.execute(text(f"SELECT * FROM {name}"))
        ]
    assert not any(secret in row for row in rows for secret in (code, code.replace("-", ""), token))
    assert code not in repr([code])


def test_a_code_expires_and_a_newer_one_ends_it_and_the_token(people, clock):
    bob, first = people.create("Bob", "app", hours=1)
    second = people.issue_code(bob.id, hours=1)
    with pytest.raises(PrivacyError, match="expired"):
        people.redeem(first)
    _, token = people.redeem(second)
    third = people.issue_code(bob.id, hours=1)
    assert people.authenticate(token) is None
    clock.now += HOUR
    with pytest.raises(PrivacyError, match="expired"):
        people.redeem(third)
    fourth = people.issue_code(bob.id)
    people.revoke(bob.id)
    with pytest.raises(InputError, match="revoked"):
        people.redeem(fourth)
    for hours in (0, -1, 24 * 366, float("nan")):
        with pytest.raises(InputError, match="hours"):
            people.create("Cid", "app", hours=hours)


def test_last_operator_stays(people, clock):
    first, _ = people.join("Op", "operator")
    second, _ = people.join("Deputy", "operator", expires=NOON + HOUR)
    clock.now += 2 * HOUR  # the deputy's token expired, so it does not count
    with pytest.raises(InputError, match="Op"):
        people.revoke(first.id)
    people.issue_code(second.id, expires=NOON + 3 * HOUR)
    people.revoke(first.id)
    assert people.get(first.id).revoked is not None


def test_first_run_happens_once_whoever_starts(database):
    with ThreadPoolExecutor(6) as pool:
        tokens = list(pool.map(lambda _: Principals(database).first_run(), range(6)))
    (token,) = [token for token in tokens if token is not None]
    assert Principals(database).authenticate(token).role == "operator"
    assert Principals(database).first_run() is None


def test_nobody_is_called_like_those_who_act_without_a_token(people):
    for name in ("machine", "Platform", "str\u0430nger"):
        with pytest.raises(InputError, match="taken"):
            people.create(name, "owner")


def test_making_somebody_reads_no_more_of_many_than_of_few(people, database):
    statements, costs = [], []
    event.listen(database.engine, "before_cursor_execute", lambda *told: statements.append(told[2]))
    for number in range(12):
        statements.clear()
        people.create(f"app {number}", "app")
        costs.append(len(statements))
    assert set(costs[1:]) == {costs[1]}


def test_wrong_names_roles_and_expiries_are_refused(people):
    for name in ("", "x" * 101, "two\nlines", "nul\0", "\ud800", " Ann"):
        with pytest.raises(InputError, match="name"):
            people.join(name, "owner")
    with pytest.raises(InputError, match="king"):
        people.join("Ann", "king")
    for expires, named in ((NOON, "future"), (NOON.replace(tzinfo=None) + HOUR, "time zone")):
        with pytest.raises(InputError, match=named):
            people.join("Ann", "owner", expires=expires)
    assert people.list() == ()


def test_unknown_principals_and_injections_are_told_without_naming_others(people):
    bystander, token = people.join("Bystander", "operator")
    made = [people.join(injection, "app")[0] for injection in INJECTIONS]
    assert [people.get(one.id).name for one in made] == INJECTIONS
    for unknown in ("owner-0", *INJECTIONS):
        assert people.authenticate(unknown) is None
        for ask in (people.get, people.revoke, people.rotate):
            with pytest.raises(UnknownNameError) as caught:
                ask(unknown)
            assert bystander.id not in str(caught.value)
    assert set(people.list()) == {bystander, *made}
    assert people.authenticate(token) == bystander


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=120) | st.sampled_from(INJECTIONS).map(lambda text: text + "\0"))
@example("'\"\\;--")
def test_any_text_comes_back_as_it_was_or_is_refused(people, name):
    before = people.list()
    assert people.authenticate(name) is None
    if re.fullmatch(r"\S(.*\S)?", name) and name.isprintable() and len(name) <= 100:
        if name in {one.name for one in before}:
            return
        made, token = people.join(name, "owner")
        assert people.authenticate(token) == made == Principal(made.id, name, "owner", NOON, public_key=KEY)
        assert set(people.list()) == {*before, made}
    else:
        with pytest.raises(InputError):
            people.join(name, "owner")
        with pytest.raises(InputError):
            people.get(name)
        assert people.list() == before
