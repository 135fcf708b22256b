"""Whoever asks gets what is theirs, what was verified and what was allowed; all of it stands in the log first."""

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, local
from unittest.mock import Mock

import numpy as np
import pytest
from smallservice import (
    GENDER,
    MINUS,
    PLUS,
    SMILE,
    XOR,
    Cast,
    allow,
    asked,
    enrolled,
    epoch_keys,
    granted,
    linear,
    open_service,
    work,
)

from blindsight.errors import (
    BudgetExceededError,
    CorruptFileError,
    InputError,
    PrivacyError,
    StorageError,
    UnknownNameError,
)
from blindsight.service.gateway import MOST_WAITING
from blindsight.service.jobs import Worker
from blindsight.service.principals import Principal

EVIL = "'; DROP TABLE log; --<script>alert(1)</script>${7*7}../../etc/passwd"


@pytest.fixture
def gateway(tmp_path):
    opened = open_service(tmp_path / "service")
    yield opened
    opened.close()


@pytest.fixture
def cast(gateway):
    return Cast(gateway)


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory):
    """A service and its people for tests that are refused everything."""
    opened = open_service(tmp_path_factory.mktemp("unchanged") / "service")
    yield opened, Cast(opened)
    opened.close()


def actions(gateway, *wanted):
    return [entry for entry in gateway.audit.entries(limit=1000) if entry.action in wanted]


# --- from a proposal to a release ---


def test_included_mode_gives_a_label(gateway, cast):
    job = asked(gateway, cast)
    seen = gateway.proposal(cast.ann, job)
    assert (seen.state, seen.mode, seen.verdict, seen.answer) == ("done", "included", "accept", None)
    assert "App X asks for gender. You hide smiling." in seen.sentence
    assert seen.evidence["report"]["certificates"]
    number = allow(gateway, cast.ann, job).grant
    out = gateway.release(cast.apps["X"], "Ann", frames=cast.frames[:1])
    assert (out.grant, out.labels, np.shape(out.rows)) == (number, ("gender",), (1, 1))
    assert out.rows[0][0] in (0, 1)


def test_unincluded_mode_gives_the_numbers_of_the_platforms_version(gateway, cast):
    number = granted(gateway, cast, GENDER, frames=2)
    out = gateway.release(cast.apps["X"], "Ann", latest=2)
    assert (out.grant, out.labels, np.shape(out.rows)) == (number, None, (2, 2))
    (grant,) = gateway.grants(cast.ann)
    assert (grant.standing, grant.frames, grant.released, grant.mode) == ("live", 2, 2, "unincluded")
    assert grant.evidence["report"]["verdict"] == "accept"


def test_an_app_is_told_the_verdict_and_no_more(gateway, cast):
    app = cast.apps["X"]
    for sift, verdict in ((GENDER, "accept"), (SMILE, "denied")):
        job = asked(gateway, cast, sift)
        seen, told = gateway.proposal(app, job), gateway.job(app, job)
        assert (seen.verdict, seen.sentence, seen.evidence, seen.doing, seen.done) == (verdict, None, None, "", 1.0)
        assert (told.result, told.error) == ({"verdict": verdict}, None)
    assert all(one.sentence is None for one in gateway.proposals(app))
    assert [one.verdict for one in gateway.proposals(cast.ann)] == ["reject", "accept"]
    allow(gateway, cast.ann, gateway.proposals(cast.ann)[1].job)
    (grant,) = gateway.grants(app)
    assert (grant.reason, grant.evidence) == (None, None)
    _, (subject, statement) = gateway.statements(app)
    assert (subject, set(statement)) == ("grant 1: X about Ann", {"status", "mechanism", "who_sees"})
    assert "smiling" not in json.dumps(statement)
    assert "smiling" in json.dumps(gateway.statements(cast.ann))
    assert gateway.statements(cast.ann)[1][1]["evidence"]


def test_what_leaks_or_cannot_be_verified_is_not_granted_and_the_app_does_not_learn_why(gateway, cast):
    job = asked(gateway, cast, SMILE)
    with pytest.raises(PrivacyError, match="too much"):
        allow(gateway, cast.ann, job)
    assert gateway.proposal(cast.ann, job).answer is None
    with pytest.raises(PrivacyError, match="grant"):
        gateway.release(cast.apps["X"], "Ann", latest=1)
    seen = [entry.action for entry in actions(gateway, "refuse grant", "refuse release", "grant", "release")]
    assert seen == ["refuse grant", "refuse release"]
    gateway.register_app(cast.apps["Y"], ["smiling"])
    job = asked(gateway, cast, app="Y")
    assert "both public and private" in gateway.proposal(cast.ann, job).sentence
    assert gateway.proposal(cast.apps["Y"], job).verdict == "denied"
    assert gateway.job(cast.apps["Y"], job).result == {"verdict": "denied"}
    with pytest.raises(InputError):
        allow(gateway, cast.ann, job)
    assert gateway.grants(cast.ann) == ()


def test_a_person_may_refuse_or_ask_for_less_and_answers_once(gateway, cast):
    no = asked(gateway, cast, GENDER)
    assert gateway.answer(cast.ann, no, "refuse").answer == "refuse"
    with pytest.raises(InputError, match="refuse"):
        allow(gateway, cast.ann, no)
    assert gateway.answer(cast.ann, no, "refuse").answer == "refuse"
    less = gateway.answer(cast.ann, asked(gateway, cast, GENDER, app="Y"), "fewer").next
    work(gateway)
    assert gateway.proposal(cast.ann, less).evidence["report"]["certificates"]  # bits, which can be certified
    assert gateway.proposal(cast.apps["Y"], less).verdict == "accept"
    with pytest.raises(UnknownNameError, match="maybe"):
        gateway.answer(cast.ann, less, "maybe")
    assert allow(gateway, cast.ann, less).grant == allow(gateway, cast.ann, less).grant == 1
    assert len(gateway.grants(cast.ann)) == 1
    assert set(gateway.release(cast.apps["Y"], "Ann", latest=1).rows[0]) <= {0, 1}


def test_only_one_of_two_answers_at_once_counts(gateway, cast, monkeypatch):
    job, get, barrier = asked(gateway, cast, GENDER), gateway.jobs.get, Barrier(2)
    read = local()

    def together(id):
        found = get(id)
        if not getattr(read, "before", False):
            read.before = True
            barrier.wait(120)  # both have read that nobody has answered yet
        return found

    monkeypatch.setattr(gateway.jobs, "get", together)
    with ThreadPoolExecutor(2) as pool:
        keys = epoch_keys(gateway, cast.ann)
        answers = [pool.submit(gateway.answer, cast.ann, job, answer, keys) for answer in ("allow", "refuse")]
    (given,) = [one.result().answer for one in answers if one.exception() is None]
    assert sorted(type(one.exception()) is InputError for one in answers) == [False, True]
    assert get(job).result["answer"] == given
    assert len(gateway.grants(cast.ann)) == (given == "allow")
    refused = [entry for entry in actions(gateway, "decision") if "refused" in entry.details["reason"]]
    assert len(refused) == (given == "refuse")


def test_nothing_is_answered_before_it_is_verified_or_when_it_is_stale_or_tampered_with(gateway, cast, tmp_path):
    job = gateway.propose(cast.apps["X"], "Ann", GENDER).id
    with pytest.raises(InputError, match="queued"):
        allow(gateway, cast.ann, job)
    gateway.cancel(cast.apps["X"], job)
    with pytest.raises(InputError, match="cancelled"):
        allow(gateway, cast.ann, job)
    good, bad, stale = asked(gateway, cast, GENDER), asked(gateway, cast, SMILE, "Y"), asked(gateway, cast, GENDER, "Z")
    folder = tmp_path / "service" / "proposals"
    (folder / bad / "applied.npz").replace(folder / good / "applied.npz")
    with pytest.raises(CorruptFileError, match="another proposal"):
        allow(gateway, cast.ann, good)
    gateway.set_private(cast.ann, ["smiling", "age"])
    with pytest.raises(PrivacyError, match="changed"):
        allow(gateway, cast.ann, stale)
    assert gateway.grants(cast.ann) == ()


# --- collusion and budgets ---


def test_two_harmless_sifts_that_leak_together_are_refused(gateway, cast):
    granted(gateway, cast, PLUS, "X")
    job = asked(gateway, cast, MINUS, "Y")
    seen = gateway.proposal(cast.ann, job)
    assert seen.evidence["report"]["verdict"] == "accept"
    assert (seen.verdict, seen.evidence["together"]["verdict"]) == ("reject", "reject")
    assert "With app X together" in seen.sentence
    with pytest.raises(PrivacyError, match="too much"):
        allow(gateway, cast.ann, job)


def test_no_more_frames_than_were_verified(gateway, cast):
    granted(gateway, cast, GENDER, frames=2)
    app = cast.apps["X"]
    gateway.release(app, "Ann", latest=1)
    with pytest.raises(BudgetExceededError, match=r"2 frame.* 1 "):
        gateway.release(app, "Ann", latest=2)
    gateway.release(app, "Ann", frames=[cast.frames[0]])
    with pytest.raises(BudgetExceededError):
        gateway.release(app, "Ann", frames=[cast.frames[0]])
    assert gateway.grants(app)[0].released == 2
    with pytest.raises(InputError, match="2 frames"):
        gateway.propose(app, "Ann", GENDER, frames=2)
    frames = [entry.details["frames"] for entry in actions(gateway, "release")]
    assert frames == [1, 1]


def test_a_crowd_gets_as_many_frames_as_were_verified(gateway, cast):
    granted(gateway, cast, GENDER, frames=2)
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(gateway.release, cast.apps["X"], "Ann", latest=1) for _ in range(24)]
    errors = Counter(type(one.exception()) for one in asked)
    assert errors == {type(None): 2, BudgetExceededError: 22}
    assert gateway.grants(cast.ann)[0].released == 2
    assert [entry.actor for entry in actions(gateway, "release")] == [cast.apps["X"].id] * 2
    assert len(actions(gateway, "refuse release")) == 22
    assert gateway.check_log(cast.operator).ok


def test_a_release_says_which_frames_and_a_stream_goes_on_with_its_last(gateway, cast):
    granted(gateway, cast, GENDER, frames=2, then="repeat")
    app = cast.apps["X"]
    for wrong in ({}, {"frames": [], "latest": None}, {"latest": 0}, {"latest": -1}, {"latest": 1001}):
        with pytest.raises(InputError):
            gateway.release(app, "Ann", **wrong)
    with pytest.raises(InputError, match=r"^\D*not so many frames\D*$"):  # how many there are is not told
        gateway.release(app, "Ann", latest=9)
    with pytest.raises(UnknownNameError, match="frame"):
        gateway.release(app, "Ann", frames=["0" * 32])
    assert gateway.grants(cast.ann)[0].released == 0
    assert len(actions(gateway, "refuse release")) == 2  # what cannot be asked at all is refused before
    first = gateway.release(app, "Ann", frames=cast.frames[:2]).rows
    assert gateway.release(app, "Ann", frames=cast.frames[2:]).rows == first[1:]


def test_a_budget_is_decided_before_frames_are_looked_at(gateway, cast, monkeypatch):
    granted(gateway, cast, GENDER)
    monkeypatch.setattr(gateway.frames, "latest", lambda *_: pytest.fail("looked at"))
    with pytest.raises(BudgetExceededError):
        gateway.release(cast.apps["X"], "Ann", latest=999)


# --- changing one's mind ---


def test_new_preferences_suspend_at_once_and_a_job_reviews(gateway, cast):
    granted(gateway, cast, GENDER, "X")
    granted(gateway, cast, linear({6: 1.0, 7: 1.0}), "Y")
    job = gateway.set_private(cast.ann, ["smiling", "age"])
    assert [grant.standing for grant in gateway.grants(cast.ann)] == ["suspended", "suspended"]
    for name in "XY":
        with pytest.raises(PrivacyError, match="suspended"):
            gateway.release(cast.apps[name], "Ann", latest=1)
    assert gateway.set_private(cast.ann, ["smiling", "age"]).id == job.id  # queued already
    work(gateway)
    assert gateway.job(cast.ann, job.id).result == {"kept": [1], "revoked": [2]}
    assert [grant.standing for grant in gateway.grants(cast.ann)] == ["live", "revoked"]
    assert "age" in gateway.grants(cast.ann)[1].reason
    gateway.release(cast.apps["X"], "Ann", latest=1)
    order = [entry.action for entry in actions(gateway, "person", "confirm", "revoke", "release")]
    assert order[1:] == ["person", "person", "confirm", "revoke", "release"]


def test_a_new_attacker_ends_what_only_it_can_read(gateway, cast, tmp_path):
    granted(gateway, cast, XOR)
    name = "quadratic discriminant, tuned"
    assert name in gateway.attackers()[1]
    (job,) = gateway.add_attacker(cast.operator, name)
    assert gateway.grants(cast.ann)[0].standing == "suspended"
    work(gateway)
    assert gateway.jobs.get(job.id).result == {"kept": [], "revoked": [1]}
    assert name in gateway.grants(cast.operator)[0].reason
    for wrong in (name, "no such attacker", EVIL):
        with pytest.raises(InputError):
            gateway.add_attacker(cast.operator, wrong)
    gateway.close()
    again = open_service(tmp_path / "service")
    assert again.attackers()[0] == ("logistic", name)
    again.close()


def test_a_person_or_an_operator_ends_a_grant(gateway, cast):
    for principal in (cast.ann, cast.operator):
        number = granted(gateway, cast, GENDER)
        assert gateway.revoke(principal, number, EVIL).standing == "revoked"
        with pytest.raises(PrivacyError, match="grant"):
            gateway.release(cast.apps["X"], "Ann", latest=1)
    last = actions(gateway, "revoke")[-1]
    assert (last.actor, last.details["grant"], last.details["reason"]) == (cast.operator.id, number, EVIL)
    for wrong in (number, 99):
        with pytest.raises(InputError):
            gateway.revoke(cast.ann, wrong, "again")


def test_the_odometer_is_measured_once(gateway, cast):
    first = gateway.odometer(cast.ann, "Ann")
    assert gateway.odometer(cast.ann, "Ann").id == first.id
    work(gateway)
    done = gateway.odometer(cast.operator, "Ann")
    assert done.id == first.id
    assert [reading["at_most"] for reading in done.result["readings"]] == [0.5]
    granted(gateway, cast, PLUS)
    second = gateway.odometer(cast.ann, "Ann")
    assert second.id != first.id
    work(gateway)
    (reading,) = gateway.job(cast.ann, second.id).result["readings"]
    assert reading["attribute"] == "smiling"
    assert 0.5 < reading["guess"] < reading["at_most"] < 0.6


# --- who may what ---


def test_everyone_sees_only_what_is_theirs(gateway, cast):
    bob, _ = enrolled(gateway, cast.operator, "Bob", "owner")
    gateway.set_private(bob, ["age"])
    job = asked(gateway, cast, GENDER)
    allow(gateway, cast.ann, job)
    for stranger in (bob, cast.apps["Y"]):
        for call in (gateway.proposal, gateway.cancel):
            with pytest.raises(UnknownNameError, match="job"):
                call(stranger, job)
        assert gateway.proposals(stranger) == gateway.grants(stranger) == ()
    for call, kind in (
        (lambda: gateway.answer(bob, job, "refuse"), "job"),
        (lambda: gateway.revoke(bob, 1, "mine"), "grant"),
        (lambda: gateway.picture(bob, cast.frames[0]), "frame"),
        (lambda: gateway.person(bob, "Ann"), "person"),
        (lambda: gateway.delete_frame(bob, cast.frames[0]), "frame"),
    ):
        with pytest.raises(UnknownNameError, match=f"unknown {kind}"):
            call()
    assert gateway.person(bob, "Bob").private == ("age",)
    assert gateway.person(cast.operator, "Ann").frames == 3


def test_every_method_is_closed_to_other_roles(unchanged):
    gateway, cast = unchanged
    owner, app, operator = cast.ann, cast.apps["X"], cast.operator
    for refused, *calls in (
        (
            (app, operator),
            lambda who: gateway.set_private(who, ["age"]),
            lambda who: gateway.add_frame(who, b""),
            lambda who: gateway.picture(who, cast.frames[0]),
            gateway.frame_ids,
            lambda who: gateway.delete_frame(who, cast.frames[0]),
            lambda who: gateway.answer(who, "0" * 32, "allow"),
        ),
        (
            (owner, operator),
            lambda who: gateway.register_app(who, ["age"]),
            lambda who: gateway.propose(who, "Ann"),
            lambda who: gateway.release(who, "Ann", latest=1),
        ),
        (
            (owner, app),
            lambda who: gateway.add_attacker(who, "naive Bayes, tuned"),
            gateway.review,
            gateway.entries,
            gateway.check_log,
            lambda who: gateway.create_principal(who, "Eve", "operator"),
            lambda who: gateway.revoke_principal(who, owner.id),
            lambda who: gateway.issue_code(who, owner.id),
        ),
        (
            (app,),
            lambda who: gateway.revoke(who, 1, "no"),
            lambda who: gateway.person(who, "Ann"),
            lambda who: gateway.odometer(who, "Ann"),
        ),
    ):
        for principal in refused:
            for call in calls:
                with pytest.raises(PrivacyError, match="role"):
                    call(principal)


def test_an_app_that_asks_for_nothing_learns_no_names_and_nobody_floods_the_queue(gateway, cast):
    stranger, _ = enrolled(gateway, cast.operator, "W", "app")
    for call in (lambda: gateway.propose(stranger, "Ann"), lambda: gateway.release(stranger, "Ann", latest=1)):
        with pytest.raises(InputError) as error:
            call()
        assert "X" not in str(error.value)
    for _ in range(MOST_WAITING):
        gateway.propose(cast.apps["X"], "Ann", GENDER)
    for sift in (GENDER, None):
        with pytest.raises(InputError, match=str(MOST_WAITING)):
            gateway.propose(cast.apps["X"], "Ann", sift)
    gateway.propose(cast.apps["Y"], "Ann", GENDER)
    job = gateway.set_private(cast.ann, ["age"])  # a review is not cancelled by whom it concerns
    with pytest.raises(PrivacyError, match="operator"):
        gateway.cancel(cast.ann, job.id)
    assert gateway.cancel(cast.operator, job.id).state == "cancelled"


# --- jobs that are stopped ---


def stopped(gateway, cast, monkeypatch, clock):
    """Let X propose to a service whose worker looks at another clock; return the job."""
    again = Worker(gateway.jobs, gateway.worker._handlers, gateway.settings, clock=lambda: next(clock), heartbeat=0)
    monkeypatch.setattr(gateway, "worker", again)
    job = asked(gateway, cast, GENDER)
    assert actions(gateway, "decision") == []
    return job


def test_a_cancelled_verification_decides_nothing(gateway, cast, monkeypatch):
    progress = gateway.jobs.progress

    def cancelling(id, doing, done):
        if doing == "attacking" and not gateway.jobs.get(id).cancel:
            gateway.cancel(cast.apps["X"], id)
        return progress(id, doing, done)

    monkeypatch.setattr(gateway.jobs, "progress", cancelling)
    job = stopped(gateway, cast, monkeypatch, iter(range(10**6)))
    seen = gateway.proposal(cast.ann, job)
    assert (seen.state, seen.verdict) == ("cancelled", None)


def test_a_verification_that_takes_too_long_decides_nothing(gateway, cast, monkeypatch):
    job = stopped(gateway, cast, monkeypatch, iter([0.0, 1.0] + [10_000.0] * 1000))
    assert gateway.proposal(cast.ann, job).state == "timed out"
    assert gateway.proposal(cast.apps["X"], job).sentence is None


# --- what is sent in ---

NAN, INF = float("nan"), float("inf")


def changed(**parts):
    return {**linear({2: 1.0}), **parts}


@pytest.mark.parametrize(
    ("sift", "named"),
    [
        (changed(matrix=[[NAN]] * 20), "matrix.*finite"),
        (changed(matrix=[[INF]] * 20), "finite"),
        (changed(matrix=[[1e30]] * 20), "finite"),
        (changed(matrix=[[10**400]] * 20), "numbers"),
        (changed(matrix=[["1"]] * 20), "numbers"),
        (changed(matrix=[[None]] * 20), "numbers"),
        (changed(matrix=[[1.0], [1.0, 2.0]]), "same length"),
        (changed(matrix="import os"), "numbers"),
        (changed(matrix=[]), "mean and a scale|list"),
        (changed(matrix=[[[1.0]]] * 20), "numbers"),
        (changed(matrix=[[0.0]] * 20), "zero"),
        (changed(matrix=[[1.0]] * 19 + [[1e9]]), "median"),
        (changed(scale=[0.0] * 20), "scale"),
        (changed(mean=[0.0] * 19), "mean"),
        ({"mean": [0.0], "scale": [1.0], "matrix": [[1.0]]}, "20"),
        (changed(matrix=[[1.0] * 65] * 20), "64"),
        (changed(matrix=[[1.0] * 250_000] * 20), "4,000,000"),
        (changed(pipeline="another"), "pipeline"),
        (changed(name="a\nb"), "one line"),
        (changed(name="a" * 101), "one line"),
        (changed(code="import os"), "code"),
        ({"kind": "pickle", "arrays": {}}, "pickle"),
        ({"kind": "linear", "settings": [], "arrays": {}}, "JSON"),
        ({"kind": "linear", "settings": {}, "arrays": {"mean": [0.0] * 20}}, "scale|matrix"),
        ({"kind": "symbol", "settings": {}, "arrays": {}}, "reading|mean"),
        ({"kind": "symbol", "settings": {"reading": "ab"}, "arrays": {"weight0": [1.0]}}, "needs|fit"),
        ([1, 2], "JSON"),
        ({}, "mean"),
    ],
)
def test_sifts_that_are_none_get_a_sentence(unchanged, sift, named):
    gateway, cast = unchanged
    with pytest.raises(InputError, match=named):
        gateway.propose(cast.apps["X"], "Ann", sift)
    assert gateway.jobs.waiting(cast.apps["X"].id) == 0
    assert actions(gateway, "try") == []  # and it counts as none


def test_budgets_are_checked_before_anything_is_queued(unchanged):
    gateway, cast = unchanged
    for frames, then in ((0, "refuse"), (-1, "refuse"), (True, "refuse"), (1001, "refuse"), (1, "x")):
        with pytest.raises(InputError):
            gateway.propose(cast.apps["X"], "Ann", GENDER, frames=frames, then=then)
    assert gateway.jobs.waiting(cast.apps["X"].id) == 0
    with pytest.raises(UnknownNameError, match="mood"):  # an attribute without labels cannot be hidden
        gateway.set_private(cast.ann, ["mood"])
    assert gateway.person(cast.ann, "Ann").private == ("smiling",)


def test_sifts_may_come_in_parts_and_with_levels(gateway, cast):
    plain = linear({2: 1.0, 3: 1.0}, edges=[[0.0]], name="one bit")
    parts = {name: plain[name] for name in ("mean", "scale", "matrix", "edges")}
    declared = {"kind": "linear", "name": "one bit", "settings": {"pipeline": "cells 1"}, "arrays": parts}
    jobs = [asked(gateway, cast, sift) for sift in (plain, declared)]
    first, second = (gateway.proposal(cast.ann, job) for job in jobs)
    assert first.evidence["sift"] == second.evidence["sift"]
    assert first.evidence["report"]["certificates"]
    assert len(actions(gateway, "try")) == 1  # the same sift is no second try


def test_hostile_names_are_text_and_nothing_else(gateway, cast):
    owner, _ = enrolled(gateway, cast.operator, EVIL, "owner")
    app, _ = enrolled(gateway, cast.operator, EVIL + "2", "app")
    gateway.set_private(owner, ["smiling"])
    gateway.register_app(app, [EVIL])
    job = gateway.propose(app, EVIL, {**GENDER, "name": EVIL})
    work(gateway)
    assert EVIL in gateway.proposal(owner, job.id).sentence
    assert allow(gateway, owner, job.id).grant == 1
    assert [one.person for one in gateway.grants(owner)] == [EVIL]
    for id in (EVIL, "../../" + job.id, job.id + "\0"):
        with pytest.raises(UnknownNameError):
            gateway.proposal(owner, id)
    assert gateway.check_log(cast.operator).ok
    with pytest.raises(InputError):
        gateway.set_private(owner, ["smiling\n"])


# --- the log ---


def test_the_log_tells_who_did_what_and_holds_no_secrets(gateway, cast):
    granted(gateway, cast, GENDER, frames=2)
    gateway.release(cast.apps["X"], "Ann", latest=2)
    (entry,) = actions(gateway, "release")
    assert entry.actor == cast.apps["X"].id
    assert entry.details.items() >= {"person": "Ann", "grant": 1, "frames": 2, "width": 2}.items()
    (grant,) = actions(gateway, "grant")
    assert (grant.actor, grant.details["app"], len(grant.details["evidence"])) == (cast.ann.id, "X", 64)
    assert "report" not in grant.details
    text = json.dumps([[one.actor, one.action, dict(one.details)] for one in gateway.entries(cast.operator)])
    assert cast.ann_token not in text
    assert gateway.check_log(cast.operator).ok


def test_where_the_log_cannot_be_written_nothing_happens(gateway, cast, monkeypatch):
    job = asked(gateway, cast, GENDER)
    granted(gateway, cast, GENDER, "Y")
    monkeypatch.setattr(gateway.audit, "add", Mock(side_effect=StorageError("the database is gone.")))
    for call in (
        lambda: allow(gateway, cast.ann, job),
        lambda: gateway.release(cast.apps["Y"], "Ann", latest=1),
        lambda: gateway.set_private(cast.ann, ["age"]),
        lambda: gateway.revoke(cast.ann, 1, "no"),
        lambda: gateway.add_attacker(cast.operator, "naive Bayes, tuned"),
        lambda: gateway.register_app(cast.apps["Y"], ["age"]),
    ):
        with pytest.raises(StorageError):
            call()
    monkeypatch.undo()
    (grant,) = gateway.grants(cast.ann)
    assert (grant.app, grant.standing, grant.released) == ("Y", "live", 0)
    assert gateway.person(cast.ann, "Ann").private == ("smiling",)
    assert gateway.attackers()[0] == ("logistic",)


# --- restarts ---


def test_everything_survives_a_restart(tmp_path):
    first = open_service(tmp_path / "service")
    cast = Cast(first)
    granted(first, cast, GENDER, "X")
    first.release(cast.apps["X"], "Ann", latest=1)
    waiting = asked(first, cast, linear({6: 1.0}), "Y")
    seen = first.proposal(cast.ann, waiting)
    with pytest.raises(StorageError, match="another service"):
        open_service(tmp_path / "service")
    first.close()

    second = open_service(tmp_path / "service")
    cast = Cast.again(second)
    assert second.proposal(cast.ann, waiting) == seen
    assert second.answer(cast.ann, waiting, "fewer").next
    with pytest.raises(BudgetExceededError):
        second.release(cast.apps["X"], "Ann", latest=1)
    assert second.check_log(cast.operator).ok
    second.close()


def test_principals_come_and_go_with_their_entries(gateway, cast, monkeypatch):
    token = gateway.rotate_token(cast.ann)
    assert gateway.principals.authenticate(cast.ann_token) is None
    assert gateway.principals.authenticate(token).name == "Ann"
    gateway.revoke_principal(cast.operator, cast.ann.id)
    assert gateway.principals.authenticate(token) is None
    assert [entry.actor for entry in actions(gateway, "rotate token", "revoke principal")] == [
        cast.ann.id,
        cast.operator.id,
    ]
    with pytest.raises(UnknownNameError):
        gateway.revoke_principal(Principal("operator-x", "eve", "operator"), "owner-none")
    monkeypatch.setattr(gateway.audit, "add", Mock(side_effect=StorageError("the disk is full.")))
    with pytest.raises(StorageError):
        gateway.create_principal(cast.operator, "Bob", "owner")
    assert "Bob" not in [one.name for one in gateway.principals.list()]


@pytest.mark.parametrize("cut_off", [False, True])
def test_grants_end_with_their_owners_token(gateway, cast, cut_off):
    granted(gateway, cast, GENDER)
    if cut_off:  # by a kill behind the token's end
        gateway.principals.revoke(cast.ann.id)
        gateway.recover()
    else:
        gateway.revoke_principal(cast.operator, cast.ann.id)
    (grant,) = gateway.grants(cast.operator)
    assert grant.standing == "revoked"
    assert "token" in grant.reason
    assert [entry.actor for entry in actions(gateway, "revoke")] == ["platform" if cut_off else cast.operator.id]
    with pytest.raises(PrivacyError, match="grant"):
        gateway.release(cast.apps["X"], "Ann", latest=1)
