"""A service that is killed anywhere loses nothing, and lets out nothing that was not verified and logged before."""

import json
import os
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import pytest
import smallservice
from smallservice import GENDER, Cast, asked, copied, granted, linear, open_service, together, work

from blindsight.client import Release
from blindsight.errors import BudgetExceededError, PrivacyError, UnknownNameError
from blindsight.service.frames import FrameStore
from blindsight.service.jobs import Jobs
from blindsight.service.log import AuditLog
from blindsight.service.proposals import Proposals
from blindsight.service.verification import Ensemble
from blindsight.sift.register import KINDS, SiftStore

pytestmark = pytest.mark.usefixtures("known_verdicts")

STEPS = [
    (AuditLog, "add"),
    (AuditLog, "_tell"),
    (Jobs, "submit"),
    (Jobs, "claim"),
    (Jobs, "finish"),
    (Jobs, "amend"),
    (Proposals, "keep_sent"),
    (Proposals, "keep"),
    (SiftStore, "keep"),
    (SiftStore, "keep_last"),
    (Ensemble, "join"),
    (FrameStore, "latest"),
]
"""Everything that changes what a restart finds: between any two of these a kill leaves the same."""


class KilledError(BaseException):
    """Stands for a kill: nobody catches it."""


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    """A folder in which X has a grant of two frames, Y waits for an answer, and Z has not asked yet."""
    folder = tmp_path_factory.mktemp("template") / "service"
    gateway = open_service(folder)
    cast = Cast(gateway)
    granted(gateway, cast, GENDER, "X")
    asked(gateway, cast, linear({4: 1.0}), "Y")
    gateway.close()
    return folder


class KilledService:
    """A service that dies before its k-th step."""

    def __init__(self, monkeypatch, folder: Path, at: int) -> None:
        self.steps, self.at = 0, at
        self.gateway = open_service(folder)
        self.cast = Cast.again(self.gateway)
        for owner, name in STEPS:
            monkeypatch.setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, step):
        def counted(*args, **kwargs):
            self.steps += 1
            if self.steps == self.at:
                raise KilledError
            return step(*args, **kwargs)

        return counted


def ask(gateway, cast):
    """An app asks, and the platform verifies."""
    asked(gateway, cast, linear({5: 1.0}), "Z")


def ask_again(gateway, cast):
    """What was asked is verified, whoever died; else it is asked once more."""
    work(gateway)
    if not any(one.app == "Z" for one in gateway.proposals(cast.ann)):
        ask(gateway, cast)
    assert [one.verdict for one in gateway.proposals(cast.ann) if one.app == "Z"] == ["accept"]
    assert len(gateway.platform._register.tries) == 3  # of X, Y and Z: no kill makes another


def allow(gateway, cast):
    """A person allows what waits."""
    (waiting,) = (one for one in gateway.proposals(cast.ann) if one.app == "Y")
    assert smallservice.allow(gateway, cast.ann, waiting.job).grant == 2


def allow_again(gateway, cast):
    allow(gateway, cast)
    assert [one.number for one in gateway.grants(cast.ann)] == [1, 2]


def release(gateway, cast):
    """An app gets its frame."""
    return gateway.release(cast.apps["X"], "Ann", latest=1).rows


def release_again(gateway, cast):
    with suppress(PrivacyError):  # it was counted, though nobody got it
        release(gateway, cast)
    assert gateway.grants(cast.ann)[0].released == 1


def hide_more(gateway, cast):
    """A person hides more, and the grant is reviewed."""
    gateway.set_private(cast.ann, ["smiling", "age"])
    with pytest.raises(PrivacyError, match="suspended"):
        release(gateway, cast)
    work(gateway)


def hidden_more(gateway, cast):
    if gateway.person(cast.ann, "Ann").private != ("smiling", "age"):
        hide_more(gateway, cast)
    work(gateway)
    assert gateway.grants(cast.ann)[0].standing == "live"


def join(gateway, cast):
    """An attacker joins, and the grant is reviewed."""
    gateway.add_attacker(cast.operator, "naive Bayes, tuned")
    with pytest.raises(PrivacyError, match="suspended"):
        release(gateway, cast)
    work(gateway)


def joined(gateway, cast):
    if len(gateway.attackers()[0]) == 1:
        join(gateway, cast)
    work(gateway)
    assert gateway.attackers()[0] == ("logistic", "naive Bayes, tuned")
    assert gateway.grants(cast.ann)[0].standing == "live"


def check(gateway, given: int) -> None:
    """What must hold after every kill, before anybody does anything."""
    assert gateway.audit.verify().ok
    records = [row.record() for row in gateway.audit.rows(0) if row.action in KINDS]
    released = Counter({one["grant"]: 0 for one in records if one["kind"] == "release"})
    for one in records:
        released[one.get("grant")] += one["frames"] if one["kind"] == "release" else 0
    assert given <= sum(released.values())
    grants = {grant.number: grant for grant in gateway.platform.grants()}
    assert all(gateway.platform.released(grant) == released[number] for number, grant in grants.items())
    accepted = {one["sift"] for one in records if one["kind"] == "decision" and one["verdict"] == "accept"}
    assert {grant.sift for grant in grants.values()} <= accepted


@pytest.mark.parametrize(
    ("act", "go_on"),
    [(ask, ask_again), (allow, allow_again), (release, release_again), (hide_more, hidden_more), (join, joined)],
    ids=lambda step: step.__name__,
)
def test_killed_between_any_two_steps(template, tmp_path, act, go_on):
    at, given = 0, None
    while given is None:
        at += 1
        folder = copied(template, tmp_path / str(at))
        with pytest.MonkeyPatch.context() as patch:
            dying = KilledService(patch, folder, at)
            with suppress(KilledError):
                given = act(dying.gateway, dying.cast) or []
        dying.gateway.close()
        gateway = open_service(folder)
        check(gateway, len(given or []))
        go_on(gateway, Cast.again(gateway))
        check(gateway, len(given or []))
        gateway.close()
    assert at > 3  # or nothing was tried


@pytest.fixture(scope="module")
def crowd(tmp_path_factory) -> Path:
    """A folder in which X and Y have a grant of one frame each, and Y's is repeated."""
    folder = tmp_path_factory.mktemp("crowd") / "service"
    gateway = open_service(folder)
    cast = Cast(gateway)
    granted(gateway, cast, GENDER, "X")
    granted(gateway, cast, linear({4: 1.0}), "Y", then="repeat")
    gateway.close()
    return folder


def release_together(gateway, cast) -> list[Any]:
    """Five releases in one round: both get their frame, X is refused two more and Y gets the same again."""

    def call(name, **asked):
        return lambda: gateway.release(cast.apps[name], "Ann", **asked)

    calls = (call("X", frames=["0" * 32]), call("X", latest=1), call("Y", latest=1), call("X", latest=1))
    return together(gateway._releases._commit, *calls, call("Y", frames=cast.frames[:1]))


def test_releases_together_killed_between_any_two_steps(crowd, tmp_path):
    at, killed = 0, True
    while killed:
        at += 1
        folder = copied(crowd, tmp_path / str(at))
        with pytest.MonkeyPatch.context() as patch:
            dying = KilledService(patch, folder, at)
            outcomes = release_together(dying.gateway, dying.cast)
        dying.gateway.close()
        killed = any(isinstance(one, KilledError) for one in outcomes)
        given = [one.grant for one in outcomes if isinstance(one, Release)]
        gateway = open_service(folder)
        cast = Cast.again(gateway)
        check(gateway, len(set(given)))
        counted = [one.released for one in gateway.grants(cast.ann)]
        assert (given, counted) in (([], [0, 0]), ([], [1, 1]), ([1, 2, 2], [1, 1]))  # the whole round or nothing
        again = [one.grant for one in release_together(gateway, cast) if isinstance(one, Release)]
        assert again == ([2, 2] if counted == [1, 1] else [1, 2, 2])
        assert [one.released for one in gateway.grants(cast.ann)] == [1, 1]
        check(gateway, 2)
        gateway.close()
    assert at > 6  # frames, the last release kept, the log, the journal, the log of a refusal
    assert [type(one) for one in outcomes] == [UnknownNameError, Release, Release, BudgetExceededError, Release]
    entries = [entry for entry in gateway.audit.entries(limit=1000) if entry.action == "release"]
    assert [entry.actor for entry in entries[:3]] == [cast.apps[name].id for name in "XYY"]


def start(what: str, folder: Path, **more: Any) -> Popen:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, smallservice.__file__, what, str(folder), json.dumps(more)]
    return Popen(command, stdin=PIPE, stdout=PIPE, env=environment)


def test_kill_9_during_a_verification(tmp_path):
    folder = tmp_path / "service"
    gateway = open_service(folder)
    cast = Cast(gateway)
    gateway.close()
    with start("verifying", folder) as process:
        job = process.stdout.readline().decode().strip()
        assert process.stdout.readline() == b"attacking\n"
        process.kill()
    gateway = open_service(folder)
    check(gateway, 0)
    assert gateway.proposal(cast.ann, job).state == "queued"
    assert gateway.grants(cast.ann) == ()
    with pytest.raises(PrivacyError, match="grant"):
        gateway.release(cast.apps["X"], "Ann", latest=1)
    work(gateway)
    assert gateway.proposal(cast.ann, job).verdict == "accept"
    tries = [entry for entry in gateway.audit.entries(limit=1000) if entry.action == "try"]
    assert len(tries) == 1  # the second run was no second try
    assert smallservice.allow(gateway, cast.ann, job).grant == 1
    gateway.close()


@pytest.mark.parametrize("what", ["crowding", pytest.param("releasing", marks=pytest.mark.slow)])
def test_kill_9_during_releases(tmp_path, what):
    folder = tmp_path / "service"
    gateway = open_service(folder)
    cast = Cast(gateway)
    granted(gateway, cast, GENDER, then="repeat")
    gateway.close()
    with start(what, folder) as process:
        got = [process.stdout.readline() for _ in range(20)]
        process.kill()
        got += process.stdout.readlines()
    assert set(got) == {b"1\n"}
    gateway = open_service(folder)
    check(gateway, 1)
    releases = [entry for entry in gateway.audit.entries(limit=1000) if entry.action == "release"]
    assert len(releases) >= len(got) >= 20
    assert sum(entry.details["frames"] for entry in releases) == 1
    assert gateway.grants(cast.ann)[0].released == 1
    gateway.close()
