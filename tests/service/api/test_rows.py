"""Who writes to the database alone gets nothing: rows count only as the service wrote them, by its signed log."""

import json
import time
from contextlib import closing

import pytest
from smallservice import KEY
from sqlalchemy import create_engine, text

from blindsight.crypto.merkle import extend, peaks_at
from blindsight.crypto.sealedbox import ExchangeKey, seal_for
from blindsight.errors import BlindsightError, CorruptFileError, InputError, PrivacyError, ServiceError
from blindsight.service.principals import token_hash
from blindsight.service.rows import SEALED
from blindsight.service.store import leaf_of, open_database

EVIL = ExchangeKey(bytes(range(1, 33)))
TOKEN = "blindsight_" + "A" * 43


class Intruder:
    """Writes to the database while the service runs; takes no guard away and has no file."""

    def __init__(self, service):
        url = service.gateway.settings.database_url.replace("postgresql://", "postgresql+psycopg://")
        self._engine = create_engine(url)
        self.close = self._engine.dispose

    def sql(self, statement, **values):
        with self._engine.begin() as connection:
            found = connection.execute(text(statement), values)
            return found.mappings().all() if found.returns_rows else None

    def append(self, actor, action, details, evidence=None, signature=None):
        """Add an entry to the log that fits the tree."""
        last = self.sql("SELECT position, time FROM log ORDER BY position DESC LIMIT 1")[0]
        stored = {one["position"]: one["hash"] for one in self.sql("SELECT position, hash FROM log")}
        peaks = [bytes.fromhex(stored[place]) for place in peaks_at(last["position"])]
        details = json.dumps(details, sort_keys=True, separators=(",", ":"))
        entry = (last["position"] + 1, last["time"], actor, action, details)
        hash = extend(peaks, last["position"], leaf_of(*entry)).hex()
        names = ("position", "time", "actor", "action", "details", "hash", "evidence", "signature")
        self.sql(
            f"INSERT INTO log ({', '.join(names)}) VALUES ({', '.join(f':{name}' for name in names)})",
            **dict(zip(names, (*entry, hash, evidence, signature), strict=True)),
        )


@pytest.fixture
def service(service_on_each):
    return service_on_each


@pytest.fixture
def intruder(service):
    with closing(Intruder(service)) as one:
        yield one


@pytest.mark.parametrize("change", ["role = 'operator'", "token_hash = :evil", "expires = NULL", "revoked = NULL"])
def test_a_changed_principal_opens_nothing(service, intruder, change):
    names = {"role": "rival", "token_hash": "ann", "expires": "expired", "revoked": "revoked"}
    name = names[change.split()[0]]
    values = {"evil": token_hash(TOKEN)} if ":evil" in change else {}
    intruder.sql(f"UPDATE principals SET {change} WHERE name = :name", name=name, **values)
    service.tokens["evil"] = TOKEN if values else service.tokens[name]
    assert service.call("evil", "GET", "/v1/me").status_code == 401
    assert service.call("evil", "GET", "/v1/principals").status_code == 401
    assert any("principals" in one for one in service.gateway.principals.database.rows.check())


def test_a_change_by_the_service_itself_does_not_launder_a_row(service, intruder):
    rival = service.gateway.principals.named("rival")
    intruder.sql("UPDATE principals SET role = 'operator' WHERE name = 'rival'")
    with pytest.raises(InputError, match="principal"):
        service.gateway.issue_code(service.gateway.principals.named("operator"), rival.id)
    assert service.gateway.principals.named("rival") is None


def test_an_old_row_that_is_put_back_opens_nothing(service, intruder):
    (before,) = intruder.sql("SELECT * FROM principals WHERE name = 'rival'")
    rival = service.gateway.principals.named("rival")
    service.as_("operator").revoke_principal(rival.id)
    intruder.sql("UPDATE principals SET revoked = NULL WHERE name = 'rival'")
    assert dict(intruder.sql("SELECT * FROM principals WHERE name = 'rival'")[0]) == dict(before)
    assert service.call("rival", "GET", "/v1/me").status_code == 401
    (device,) = intruder.sql("SELECT * FROM devices")
    service.as_("ann").revoke_device(device["id"])
    intruder.sql("UPDATE devices SET revoked = NULL")
    sent = service.call("device", "POST", "/v1/people/ann/frames", content=service.picture(5))
    assert sent.status_code == 401


@pytest.mark.parametrize("table", ["devices", "enrolments"])
def test_an_inserted_token_or_code_opens_nothing(service, intruder, table):
    now = int(time.time() * 1e6)
    if table == "devices":
        intruder.sql(
            "INSERT INTO devices (id, person, name, token_hash, created) "
            "VALUES ('device-01', 'ann', 'door', :hash, :now)",
            hash=token_hash(TOKEN),
            now=now,
        )
        service.tokens["evil"] = TOKEN
        sent = service.call("evil", "POST", "/v1/people/ann/frames", content=service.picture(5))
        assert sent.status_code == 401
    else:
        ann, code = service.gateway.principals.named("ann"), "A" * 24
        intruder.sql(
            "INSERT INTO enrolments (code_hash, principal, expires) VALUES (:hash, :ann, :until)",
            hash=token_hash(code),
            ann=ann.id,
            until=now + 10**13,
        )
        sent = {"code": code, "public_key": EVIL.public.hex()}
        assert service.call("", "POST", "/v1/enrolment", json=sent).status_code == 403


def test_pictures_and_features_are_sealed_for_no_other_keys(service, intruder):
    (epoch,) = intruder.sql("SELECT * FROM epochs WHERE person = 'bob' AND ended IS NULL")
    intruder.sql("UPDATE epochs SET owner_key = :key WHERE person = 'ann' AND ended IS NULL", key=EVIL.public.hex())
    box = seal_for(KEY.public, EVIL.secret_bytes(), context=b"blindsight/epoch.1 " + epoch["id"].encode()).hex()
    intruder.sql(
        "UPDATE epochs SET public_key = :key, sealed = :box WHERE id = :id",
        key=EVIL.public.hex(),
        box=box,
        id=epoch["id"],
    )
    for name in ("ann", "bob"):
        frames = service.gateway.frames.count(name)
        sent = service.call(name, "POST", f"/v1/people/{name}/frames", content=service.picture(5))
        assert sent.status_code == 422
        assert service.gateway.frames.count(name) == frames
    service.tokens["device"] = str(service.gateway.add_device(service.gateway.principals.named("ann"), "second")[1])
    assert service.call("device", "POST", "/v1/people/ann/frames", content=service.picture(5)).status_code == 422


def test_frames_are_in_the_order_in_which_they_came_and_of_whom_they_show(service, intruder):
    first, second = service.gateway.frames.ids("ann")
    service.grant("ann", "weather", frames=2)
    intruder.sql("UPDATE frames SET added = added + 1000000000 WHERE id = :id", id=first)
    assert service.gateway.frames.ids("ann") == (second,)
    with pytest.raises(InputError, match="frame"):
        service.as_("weather").release("ann", frames=[first])
    intruder.sql("UPDATE frames SET person = 'ann' WHERE person = 'bob'")
    assert service.gateway.frames.ids("ann") == (second,)
    with pytest.raises(InputError):
        service.as_("weather").release("ann", latest=2)


def test_a_deleted_frame_does_not_come_back_with_its_row(service, intruder):
    service.grant("ann", "weather", frames=2)
    first, second = service.gateway.frames.ids("ann")
    (row,) = intruder.sql("SELECT * FROM frames WHERE id = :id", id=second)
    service.as_("weather").release("ann", frames=[second])  # it is in memory
    service.as_("ann").delete_frame(second)
    names = ", ".join(row)
    intruder.sql(f"INSERT INTO frames ({names}) VALUES ({', '.join(f':{name}' for name in row)})", **row)
    assert service.gateway.frames.ids("ann") == (first,)
    with pytest.raises(InputError):
        service.as_("weather").release("ann", frames=[second])


def test_nobody_else_says_how_long_frames_are_kept(service, intruder):
    intruder.sql("INSERT INTO retention (person, frames) VALUES ('ann', 1)")
    assert service.gateway.cameras.forget_all() == 0
    assert service.gateway.frames.count("ann") == 2


FORGED = {
    "a grant": lambda first: (
        "grant",
        {**first, "number": 77, "replaces": [], "budget": {"frames": 900, "then": "refuse"}},
    ),
    "a budget given back": lambda first: (
        "release",
        {
            "app": "weather",
            "frames": -500,
            "grant": first["number"],
            "person": "ann",
            "repeated": 0,
            "size": 0,
            "width": 0,
        },
    ),
    "preferences": lambda first: ("person", {"name": "ann", "private": []}),
    "a seal": lambda first: ("add device", {"seals": [["devices", "ann", "device-01", "00" * 16]]}),
}


@pytest.mark.parametrize("what", FORGED)
@pytest.mark.parametrize("signature", ["none", "of another entry"])
def test_an_appended_entry_counts_for_nothing_and_is_told(service, intruder, what, signature, tmp_path):
    gateway, weather = service.gateway, service.as_("weather")
    service.grant("ann", "weather", frames=1)
    weather.release("ann", latest=1)
    first = intruder.sql("SELECT details, evidence, signature FROM log WHERE action = 'grant'")[0]
    action, details = FORGED[what](json.loads(first["details"]))
    ann, head = gateway.principals.named("ann"), gateway.audit.head()
    evidence = first["evidence"] if action == "grant" else None
    intruder.append(ann.id, action, details, evidence, None if signature == "none" else first["signature"])
    for _ in range(2):
        with pytest.raises(ServiceError):
            weather.release("ann", latest=1)
    for ask in (gateway.audit.head, gateway.audit.entries):
        with pytest.raises(CorruptFileError, match="did not write"):
            ask()
    with pytest.raises(CorruptFileError):
        gateway.platform.preferences("ann")
    with pytest.raises(BlindsightError):
        gateway.check_ready()
    check = gateway.audit.verify()
    assert (check.ok, check.broken_at) == (False, head.size + 2)
    assert service.call("operator", "GET", "/v1/log").status_code == 503  # their reading cannot be logged
    with closing(open_database(gateway.settings.database_url)) as database:
        from blindsight.service.log import open_log

        with pytest.raises(CorruptFileError, match="did not write"):  # at a start
            open_log(gateway.settings.folder, database).check_witnesses()


def test_a_verification_about_somebody_else_cannot_be_allowed(service, intruder):
    job = service.as_("rival").propose("ann", frames=1).id
    service.work()
    (row,) = intruder.sql("SELECT payload FROM jobs WHERE id = :id", id=job)
    payload = row["payload"] if isinstance(row["payload"], dict) else json.loads(row["payload"])
    intruder.sql("UPDATE jobs SET payload = :new WHERE id = :id", new=json.dumps({**payload, "person": "bob"}), id=job)
    for ask in (lambda: service.as_("bob").proposal(job), lambda: service.as_("bob").answer(job, "allow")):
        with pytest.raises((PrivacyError, ServiceError)):
            ask()
    assert service.as_("bob").grants() == service.as_("ann").grants() == ()


def test_a_verdict_is_shown_as_it_was_found(service, intruder):
    job = service.as_("rival").propose("bob", service.sift(1), frames=1).id
    service.work()
    before = service.as_("bob").proposal(job).verdict
    intruder.sql(
        "UPDATE jobs SET result = :new WHERE id = :id",
        new=json.dumps({"verdict": "accept", "sentence": "all is well"}),
        id=job,
    )
    assert before != "accept"
    assert service.as_("bob").proposal(job).verdict == before
    with pytest.raises(PrivacyError):
        service.as_("bob").answer(job, "allow")


def test_what_is_missing_or_foreign_is_named(service, intruder):
    rows = service.gateway.principals.database.rows
    assert rows.check() == []
    intruder.sql("DELETE FROM frames WHERE person = 'bob'")
    intruder.sql("UPDATE devices SET name = 'other'")
    assert [len(one) > 0 for one in rows.check()] == [True] * 3
    assert set(SEALED) == {"principals", "enrolments", "devices", "epochs", "frames", "retention"}
