"""Several processes, or services on one database: no budget is spent twice, nothing is lost or doubled by a kill."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from smallservice import GENDER, TLS, Cast, allow, enrolled, epoch_keys, frames, open_service, work
from test_gateway_kills import start

from blindsight.client import Release
from blindsight.crypto.merkle import check_receipt
from blindsight.errors import BlindsightError, BudgetExceededError, PrivacyError, StorageError
from blindsight.service.jobs import LEASE

pytestmark = pytest.mark.usefixtures("known_verdicts")


def new_shared(request, folder, name):
    """Folder and settings of services that share a database, in which people and apps are known."""
    more = {"processes": 2}
    if request.param == "postgresql":
        more["database"] = request.getfixturevalue("new_postgresql")(name)
    gateway = open_service(folder, **more)
    Cast(gateway, apps="X")
    gateway.close()
    return folder, more


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def shared(request, tmp_path_factory):
    return new_shared(request, tmp_path_factory.mktemp("shared") / "service", "sharing")


@contextmanager
def two(folder, more):
    both = [open_service(folder, **more) for _ in range(2)]
    yield *both, Cast.again(both[0])
    for gateway in both:
        gateway.close()


@pytest.fixture
def pair(shared):
    with two(*shared) as opened:
        yield opened


@pytest.fixture(params=["sqlite", "postgresql"])
def own_pair(request, tmp_path):
    with two(*new_shared(request, tmp_path / "service", "sharing_alone")) as opened:
        yield opened


def person(gateway, cast, name):
    """Somebody new, who hides smiling and has a frame."""
    owner = enrolled(gateway, cast.operator, name, "owner")[0]
    gateway.set_private(owner, ["smiling"])
    gateway.add_frame(owner, frames(1)[0])
    work(gateway)
    return owner


def proposed(gateway, cast, name, **more):
    job = gateway.propose(cast.apps["X"], name, GENDER, **more).id
    work(gateway)
    return job


def granted(gateway, cast, name, **more):
    """Somebody new, and the number of the grant that they allowed."""
    owner = person(gateway, cast, name)
    return owner, allow(gateway, owner, proposed(gateway, cast, name, **more)).grant


def tried(gateway, *words, **named):
    try:
        return gateway.release(*words, **named)
    except BlindsightError as error:
        return error


def test_no_budget_is_spent_twice_and_every_receipt_holds(pair):
    first, second, cast = pair
    owner, number = granted(first, cast, "Bea", frames=2)
    with ThreadPoolExecutor(8) as pool:
        asks = [pool.submit(tried, (first, second)[k % 2], cast.apps["X"], "Bea", latest=1) for k in range(24)]
        outcomes = [ask.result() for ask in asks]
    given = [one for one in outcomes if isinstance(one, Release)]
    assert len(given) == 2
    assert all(isinstance(one, Release | BudgetExceededError) for one in outcomes)
    heads = [check_receipt(one.receipt)[1] for one in given]
    for gateway in (first, second):
        assert [(one.number, one.released) for one in gateway.grants(owner)] == [(number, 2)]
        assert gateway.audit.verify(known_heads=list(map(str, heads))).ok
        gateway.audit.check_witnesses()


def test_what_one_changes_counts_in_the_other_at_once(own_pair):
    first, second, cast = own_pair
    owner, number = granted(first, cast, "Bea", then="repeat")
    app = cast.apps["X"]
    assert second.release(app, "Bea", latest=1).grant == number
    first.add_attacker(cast.operator, "naive Bayes, tuned")
    with pytest.raises(PrivacyError, match="suspended"):
        second.release(app, "Bea", latest=1)
    assert second.attackers()[0] == first.attackers()[0]
    second.add_attacker(cast.operator, "quadratic discriminant, tuned")
    assert second.attackers()[0][1:] == ("naive Bayes, tuned", "quadratic discriminant, tuned")
    assert isinstance(tried(first, app, "Bea", latest=1), PrivacyError)
    assert first.attackers()[0] == second.attackers()[0]
    work(second)
    assert first.release(app, "Bea", latest=1).grant == number
    second.revoke(owner, number, "enough")
    with pytest.raises(PrivacyError, match="grant"):
        first.release(app, "Bea", latest=1)


def test_a_job_is_another_process_only_when_its_own_was_not_heard_of(shared, pair):
    first, second, cast = pair
    job = first.propose(cast.apps["X"], "Ann", GENDER).id
    assert first.jobs.claim().id == job
    third = open_service(shared[0], **shared[1])  # a start takes nobody's job
    assert (third.worker.run_one(), second.worker.run_one()) == (None, None)
    third.close()
    second.jobs._clock = lambda: datetime.now(UTC) + timedelta(seconds=LEASE - 5)
    first.jobs.beat(job)
    assert second.jobs.claim() is None
    second.jobs._clock = lambda: datetime.now(UTC) + timedelta(seconds=LEASE + 5)
    assert second.worker.run_one().state == "done"
    first.jobs.finish(job, "failed", error="too late")
    assert first.jobs.progress(job, "on and on", 0.5)  # shall stop
    assert (first.jobs.get(job).state, first.jobs.get(job).attempts) == ("done", 2)


def test_only_one_answer_counts(pair):
    first, second, cast = pair
    owner = person(first, cast, "Cleo")
    job = proposed(first, cast, "Cleo")

    def answer(gateway, said):
        with suppress(BlindsightError):
            return gateway.answer(owner, job, said, epoch_keys(gateway, owner) if said == "allow" else None).answer

    with ThreadPoolExecutor(2) as pool:
        said = [pool.submit(answer, first, "allow"), pool.submit(answer, second, "refuse")]
        assert sum(one.result() is not None for one in said) == 1


def test_a_database_has_one_folder(shared, tmp_path):
    if "database" in shared[1]:
        with pytest.raises(StorageError, match="share"):
            open_service(tmp_path / "other", **shared[1])


def released(gateway):
    return [one for one in gateway.audit.rows(0) if one.action == "release"]


def test_kill_9_of_one_under_load_leaves_the_other_whole(shared):
    folder, more = shared
    gateway = open_service(folder, **more)
    cast = Cast.again(gateway)
    owner, number = granted(gateway, cast, "Dora", then="repeat")
    before = len(released(gateway))
    with start("crowding", folder, person="Dora", **more) as process:
        got = [process.stdout.readline() for _ in range(10)]
        mine = [gateway.release(cast.apps["X"], "Dora", latest=1) for _ in range(10)]
        process.kill()
        got += process.stdout.readlines()
        mine += [gateway.release(cast.apps["X"], "Dora", latest=1) for _ in range(5)]
    logged = len(released(gateway)) - before
    assert len(got) + 15 <= logged <= len(got) + 15 + 4  # four were under way at most
    assert {one.grant for one in mine} == {number}
    assert [one.released for one in gateway.grants(owner)] == [1]
    assert gateway.audit.verify().ok
    gateway.close()


@pytest.mark.slow
def test_two_processes_serve_one_port_and_a_killed_one_is_replaced(shared):
    folder, more = shared
    gateway = open_service(folder, **more)
    cast = Cast.again(gateway)
    _, number = granted(gateway, cast, "Eve", then="repeat")
    token = gateway.principals.rotate(cast.apps["X"].id)
    before = len(released(gateway))
    gateway.close()
    with start("sharing", folder, **more) as process, ExitStack() as stack:
        stack.callback(process.terminate)  # whatever fails, it ends
        url = process.stdout.readline().decode().strip()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        given = 0

        def ask():
            told = {"json": {"person": "Eve", "latest": 1}, "headers": {"Authorization": f"Bearer {token}"}}
            with suppress(httpx.HTTPError):
                answer = httpx.post(f"{url}/v1/releases", **told, verify=TLS, trust_env=False, timeout=60)
                assert (answer.status_code, answer.json()["grant"]) == (200, number)
                return 1
            return 0

        given = sum(ask() for _ in range(10))
        first, second = children.read_text().split()
        os.kill(int(second), signal.SIGKILL)
        given += sum(ask() for _ in range(10))
        assert given >= 10
        while len(again := children.read_text().split()) < 2 or second in again:
            given += ask()
        assert first in again
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    gateway = open_service(folder, **more)
    assert len(released(gateway)) - before >= given
    assert gateway.audit.verify().ok
    gateway.close()
