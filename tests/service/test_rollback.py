"""A log that was cut, rewritten or put back is refused; who holds a head or a receipt can prove it."""

import json
import shutil
import sqlite3
import stat
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from smallservice import GENDER, KEY, LOG_KEY, Cast, copied, enrolled, frames, granted, open_service
from sqlalchemy import text

from blindsight.crypto.merkle import TreeHead, check_receipt, consistent
from blindsight.crypto.signing import SigningKey
from blindsight.errors import (
    BudgetExceededError,
    CorruptFileError,
    InputError,
    MessageError,
    PrivacyError,
    StorageError,
)
from blindsight.service.backup import back_up, restore
from blindsight.service.cameras import Retention
from blindsight.service.log import AuditLog, log_key
from blindsight.service.principals import Principals
from blindsight.service.store import open_database
from blindsight.service.witnesses import HeadFile, remember_head

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def spent(tmp_path_factory):
    """A folder in which X got its only frame, and a copy from before."""
    folder = tmp_path_factory.mktemp("spent") / "service"
    gateway = open_service(folder)
    cast = Cast(gateway, apps="X")
    granted(gateway, cast, GENDER)
    gateway.close()
    before = copied(folder, folder.with_name("before"))
    gateway = open_service(folder)
    gateway.release(cast.apps["X"], "Ann", latest=1)
    gateway.close()
    return folder, before


def cut(folder, rows):
    """Remove the last rows of the log as who owns the database can."""
    with closing(sqlite3.connect(folder / "service.db", isolation_level=None)) as database:
        (guard,) = database.execute("SELECT sql FROM sqlite_master WHERE name = 'log_keeps_rows'").fetchone()
        database.execute("DROP TRIGGER log_keeps_rows")
        database.execute("DELETE FROM log WHERE position > (SELECT max(position) FROM log) - ?", (rows,))
        database.execute(guard)


def test_a_budget_is_not_spent_twice_by_cutting_the_log(spent, tmp_path):
    folder = copied(spent[0], tmp_path / "service")
    gateway = open_service(folder)
    with pytest.raises(BudgetExceededError):
        gateway.release(Cast.again(gateway).apps["X"], "Ann", latest=1)
    gateway.close()
    cut(folder, 2)  # the refusal, and the release before it
    with pytest.raises(CorruptFileError, match="cut"):
        open_service(folder)


def test_a_budget_is_not_spent_twice_by_cutting_the_log_of_a_running_service(spent, tmp_path):
    folder, place = copied(spent[1], tmp_path / "service"), tmp_path / "elsewhere"
    gateway = open_service(folder, witnesses=(str(place),))
    gateway.start()
    gateway.check_ready()
    app = Cast.again(gateway).apps["X"]
    gateway.release(app, "Ann", latest=1)
    head = gateway.audit.head()
    cut(folder, 1)
    for number in range(4):  # what is no decision of the platform
        with pytest.raises(CorruptFileError, match=f"saw {head.size} "):
            gateway.note("stranger", "refuse login", address=f"192.0.2.{number}")
    for _ in range(2):
        with pytest.raises(CorruptFileError):
            gateway.note("operator", "read", path="/v1/log")  # nor is it left out the second time
    with pytest.raises(CorruptFileError):
        gateway.release(app, "Ann", latest=1)
    with pytest.raises(CorruptFileError):
        gateway.check_ready()
    gateway.close()
    assert HeadFile(place).last(head.key) == head
    for witnesses in ((), (str(place),)):
        with pytest.raises(CorruptFileError, match=f"saw {head.size} "):
            open_service(folder, witnesses=witnesses)


def test_an_old_folder_put_back_is_refused_by_a_witness_elsewhere(spent, tmp_path):
    place = str(tmp_path / "elsewhere" / "head")
    folder = copied(spent[0], tmp_path / "service")
    open_service(folder, witnesses=(place,)).close()
    shutil.rmtree(folder)
    copied(spent[1], folder)
    open_service(folder).close()  # alone it cannot tell
    with pytest.raises(CorruptFileError, match=r"elsewhere.*saw"):
        open_service(folder, witnesses=(place,))
    (folder / "log.key").unlink()  # nor does another key hide it
    (folder / "log.head").unlink()
    with pytest.raises(StorageError, match="another folder"):
        open_service(folder, witnesses=(place,))
    with closing(sqlite3.connect(folder / "service.db", isolation_level=None)) as database:
        database.execute("DELETE FROM log_key")
    for witnesses in ((place,), ()):
        with pytest.raises(CorruptFileError, match="did not write"):
            open_service(folder, witnesses=witnesses)


def test_an_entry_that_was_altered_is_refused_at_start(spent, tmp_path):
    folder = copied(spent[0], tmp_path / "service")
    with closing(sqlite3.connect(folder / "service.db", isolation_level=None)) as database:
        (guard,) = database.execute("SELECT sql FROM sqlite_master WHERE name = 'log_keeps_content'").fetchone()
        for statement in (
            "DROP TRIGGER log_keeps_content",
            "UPDATE log SET details = replace(details, '\"frames\":1', '\"frames\":0') WHERE action = 'release'",
            guard,
        ):
            database.execute(statement)
    with pytest.raises(CorruptFileError, match="altered"):
        open_service(folder)


def test_evidence_that_was_altered_is_refused_at_start(spent, tmp_path):
    folder = copied(spent[0], tmp_path / "service")
    with closing(sqlite3.connect(folder / "service.db", isolation_level=None)) as database:
        (guard,) = database.execute("SELECT sql FROM sqlite_master WHERE name = 'log_keeps_content'").fetchone()
        for statement in ("DROP TRIGGER log_keeps_content", "UPDATE log SET evidence = '{}'", guard):
            database.execute(statement)
    with pytest.raises(CorruptFileError, match="evidence"):
        open_service(folder)


def test_a_log_without_its_guards_is_refused_at_start(tmp_path, database_url):
    folder = tmp_path / "folder"
    open_service(folder, database=database_url).close()
    database = open_database(database_url)
    with database.session() as session:
        lite = database.engine.dialect.name == "sqlite"
        session.execute(text("DROP TRIGGER log_grows_at_its_end" + ("" if lite else " ON log")))
    database.close()
    with pytest.raises(CorruptFileError, match="guards"):
        open_service(folder, database=database_url)


def test_guards_that_only_have_the_name_are_refused(tmp_path, database_url):
    folder = tmp_path / "folder"
    open_service(folder, database=database_url).close()
    database = open_database(database_url)
    with database.session() as session:
        if database.engine.dialect.name == "sqlite":
            session.execute(text("DROP TRIGGER log_keeps_rows"))
            session.execute(text("CREATE TRIGGER log_keeps_rows BEFORE DELETE ON log BEGIN SELECT 1; END"))
        else:
            session.execute(text("ALTER TABLE log DISABLE TRIGGER log_keeps_rows"))
    database.close()
    with pytest.raises(CorruptFileError, match="guards"):
        open_service(folder, database=database_url)


def test_a_clock_that_jumps_back_opens_no_expired_token(database):
    now = [NOON]
    log = AuditLog(database, clock=lambda: now[0], key=LOG_KEY)
    people = Principals(database, clock=log.now)
    _, code = people.create("Ann", "app", expires=NOON + timedelta(hours=1))
    _, token = people.redeem(code)
    assert people.authenticate(token) is not None
    now[0] += timedelta(hours=2)
    assert people.authenticate(token) is None
    log.append("owner-1", "anything")
    now[0] = NOON
    assert people.authenticate(token) is None
    again = AuditLog(database, clock=lambda: NOON, key=LOG_KEY)  # after a restart
    assert Principals(database, clock=again.now).authenticate(token) is None
    assert again.append("owner-1", "anything").time == "2030-01-01T14:00:00.000000+00:00"


# --- receipts and heads ---


def test_a_clock_that_jumps_ahead_in_a_running_process_is_not_followed(database):
    now, ticks = [NOON], [0.0]
    log = AuditLog(database, key=LOG_KEY, clock=lambda: now[0], ticks=lambda: ticks[0])
    log.append("owner-1", "anything")
    now[0], ticks[0] = NOON + timedelta(days=400), 60.0
    assert log.append("owner-1", "anything").time == "2030-01-01T12:01:00.000000+00:00"
    assert log.ahead > timedelta(days=399)
    now[0], ticks[0] = NOON + timedelta(minutes=2), 120.0
    assert (log.now(), log.ahead) == (now[0], None)
    now[0], ticks[0] = NOON + timedelta(days=9), 120.0 + 9 * 86_400  # days that pass
    assert (log.now() - now[0] < timedelta(minutes=3), log.ahead) == (True, None)


def test_one_wrong_second_deletes_no_picture_and_is_told(tmp_path):
    gateway = open_service(tmp_path / "service")
    cast = Cast(gateway, apps="X")
    gateway.set_retention(cast.ann, Retention(days=30))
    gateway.start()
    gateway.check_ready()
    gateway.audit._clock = lambda: datetime.now(UTC) + timedelta(days=400)
    gateway.note("stranger", "refuse login", address="192.0.2.1")
    with pytest.raises(StorageError, match="clock"):
        gateway.check_ready()
    assert (gateway.cameras.forget_all(), gateway.frames.count("Ann")) == (0, 3)
    gateway.close()
    ahead = AuditLog(open_database(gateway.settings.database_url), key=log_key(gateway.settings.folder))
    ahead._clock = lambda: datetime.now(UTC) + timedelta(days=400)
    ahead.append("stranger", "refuse login")  # by a process that was started at the wrong time
    gateway = open_service(tmp_path / "service")
    assert (gateway.cameras.forget_all(), gateway.frames.count("Ann")) == (0, 3)
    gateway.close()


def test_every_release_has_a_receipt_and_heads_prove_each_other(tmp_path):
    gateway = open_service(tmp_path / "service")
    cast = Cast(gateway, apps="X")
    granted(gateway, cast, GENDER, frames=2)
    first, second = (gateway.release(cast.apps["X"], "Ann", latest=1).receipt for _ in range(2))
    for receipt in (first, second):
        (position, _, actor, action, details), head = check_receipt(receipt)
        assert (position, actor, action) == (receipt["position"], cast.apps["X"].id, "release")
        assert json.loads(details)["frames"] == 1
        assert head.key == gateway.audit.key
    before, after = (TreeHead.from_dict(one["head"]) for one in (first, second))
    proof = [bytes.fromhex(part) for part in gateway.audit.consistency(before.size, after.size)]
    assert consistent(before.size, bytes.fromhex(before.root), after.size, bytes.fromhex(after.root), proof)
    assert gateway.audit.verify(known_heads=[str(before), str(after)]).ok
    for part, wrong in (("position", 1), ("record", first["record"].replace("release", "refusal")), ("proof", [])):
        with pytest.raises(MessageError):
            check_receipt(first | {part: wrong})
    with pytest.raises(MessageError):
        TreeHead.from_dict(first["head"] | {"size": first["head"]["size"] + 1})
    with pytest.raises(InputError):
        gateway.audit.consistency(1, 10_000)
    gateway.close()


def test_what_a_transaction_took_back_did_not_happen(tmp_path):
    gateway = open_service(tmp_path / "service")
    cast = Cast(gateway, apps="X")
    number = granted(gateway, cast, GENDER)

    def interrupted():
        rows = gateway.frames.latest("Ann", 1)
        with gateway.principals.database.session():
            gateway.platform.release("Ann", "X", rows, pipeline=gateway.frames.pipeline)
            raise RuntimeError

    head = gateway.audit.head()
    with pytest.raises(RuntimeError):
        interrupted()
    assert str(gateway.audit.head()) == str(head)
    assert [(one.number, one.released) for one in gateway.grants(cast.ann)] == [(number, 0)]
    assert gateway.release(cast.apps["X"], "Ann", latest=1).receipt["position"] == head.size + 1
    assert gateway.audit.verify().ok
    gateway.close()


def test_two_services_on_one_database_see_one_state(tmp_path, database_url):
    first, second = (open_service(tmp_path / "a", database=database_url, processes=2) for _ in range(2))
    cast = Cast(first, apps="X")
    granted(first, cast, GENDER)
    assert [grant.app for grant in second.grants(cast.ann)] == ["X"]
    first.release(cast.apps["X"], "Ann", latest=1)
    assert [grant.released for grant in second.grants(cast.ann)] == [1]
    second.revoke(cast.ann, 1, "enough")
    with pytest.raises(PrivacyError, match="grant"):
        first.release(cast.apps["X"], "Ann", latest=1)
    assert first.audit.verify() == second.audit.verify()
    for service in (first, second):
        service.close()


def test_a_head_file_survives_a_torn_write_and_knows_its_log(sqlite_database, tmp_path):
    path, key = tmp_path / "head", SigningKey.generate()
    log = AuditLog(sqlite_database, key=key, witnesses=[HeadFile(path)])
    for number in range(1, 5):
        log.append("app-1", "release")
        assert HeadFile(path).last(log.key).size == number
    whole = path.read_bytes()
    place = whole.index(b'"size": 4')
    path.write_bytes(whole[:place] + bytes(40) + whole[place + 40 :])
    assert HeadFile(path).last(log.key).size == 3
    with pytest.raises(CorruptFileError, match="another log"):
        HeadFile(path).last("0" * 64)
    path.write_bytes(b"a diary")
    with pytest.raises(CorruptFileError, match="no whole head"):
        HeadFile(path).last(log.key)


def test_a_witness_that_cannot_be_told_stops_nothing_and_is_named(sqlite_database, tmp_path):
    (tmp_path / "file").write_text("")
    log = AuditLog(sqlite_database, key=LOG_KEY, witnesses=[HeadFile(tmp_path / "file" / "head")])
    log.append("app-1", "release")
    assert list(log.problems) == [str(tmp_path / "file" / "head")]
    (tmp_path / "file").unlink()
    log.append("app-1", "release")
    assert log.problems == {}


def test_a_service_remembers_heads_of_another_and_refuses_another_history(database, tmp_path):
    other = open_database(f"sqlite:///{tmp_path / 'other.db'}")
    log = AuditLog(other, key=LOG_KEY)
    seen = []
    for number in (3, 5):
        for _ in range(number):
            log.append("app-1", "release")
        seen.append(log.head())
    first, second = seen
    assert remember_head(database, first, [], "app-1") == first
    with pytest.raises(PrivacyError, match=str(first)):
        remember_head(database, second, [], "app-1")
    assert remember_head(database, second, log.consistency(3, 8), "app-2") == second
    assert remember_head(database, first, [], "app-1") == second  # an older one changes nothing
    forked = TreeHead.sign(LOG_KEY, 9, bytes(32), "2030-01-01T12:00:00.000000+00:00")
    with pytest.raises(PrivacyError):
        remember_head(database, forked, [], "app-1")
    other.close()


# --- backup and restore ---


@pytest.fixture
def backed_up(tmp_path, database_url):
    """Settings of a service, and a backup from before X got the first of its two frames."""
    settings = {"folder": tmp_path / "service", "database": database_url}
    gateway = open_service(**settings)
    cast = Cast(gateway, apps="X")
    granted(gateway, cast, GENDER, frames=2)
    back_up(tmp_path / "backup.tar", settings["folder"], database_url)
    gateway.release(cast.apps["X"], "Ann", latest=1)
    gateway.close()
    return settings, tmp_path / "backup.tar"


def test_a_restore_is_accepted_logged_and_spends_nothing_twice(backed_up, tmp_path):
    settings, backup = backed_up
    folder, url, place = *settings.values(), str(tmp_path / "elsewhere")
    open_service(**settings, witnesses=(place,)).close()
    with pytest.raises(StorageError, match="--replace"):
        restore(backup, folder, url)
    done = restore(backup, folder, url, witnesses=[place], replace=True)
    assert (len(done.given_up), done.used_up) == (1, 1)
    gateway = open_service(**settings, witnesses=(place,))
    cast = Cast.again(gateway)
    with pytest.raises(PrivacyError, match="no grant"):
        gateway.release(cast.apps["X"], "Ann", latest=1)
    assert gateway.picture(cast.ann, cast.frames[0])
    logged = [entry.action for entry in gateway.audit.entries(limit=1000)]
    assert [one for one in logged if one in ("revoke", "restore", "end epoch")] == ["revoke", "restore", "end epoch"]
    with pytest.raises(InputError, match="already"):  # nor is it granted a second time
        gateway.propose(cast.apps["X"], "Ann", GENDER, frames=2)
    assert not gateway.audit.verify(known_heads=done.given_up).ok  # who noted it still can tell
    gateway.close()
    open_service(**settings, witnesses=(place,)).close()


def test_a_restore_brings_nothing_back_that_had_ended(tmp_path, database_url):
    settings = {"folder": tmp_path / "service", "database": database_url}
    gateway = open_service(**settings)
    cast = Cast(gateway, apps="X")
    _, code = gateway.create_principal(cast.operator, "Zoe", "owner")
    thief, stolen = enrolled(gateway, cast.operator, "thief", "app")
    camera = gateway.add_device(cast.ann, "door")[1]
    number = granted(gateway, cast, GENDER, frames=2, then="repeat")
    bea, _ = enrolled(gateway, cast.operator, "Bea", "owner")
    gateway.add_frame(bea, frames(1)[0])
    back_up(tmp_path / "backup.tar", *settings.values())
    gateway.enrol(code, KEY.public.hex())
    fresh = gateway.rotate_token(cast.ann)
    gateway.revoke_principal(cast.operator, thief.id)
    gateway.revoke(cast.ann, number, "I moved house")
    gateway.erase_person(bea, "Bea")
    gateway.close()
    done = restore(tmp_path / "backup.tar", *settings.values(), replace=True)
    assert done.erased == ("Bea",)
    gateway = open_service(**settings)
    for token in (stolen, cast.ann_token, fresh, camera):
        assert gateway.authenticate(str(token)) is None
    with pytest.raises(PrivacyError, match="code"):
        gateway.enrol(code, KEY.public.hex())
    assert [one.standing for one in gateway.grants(cast.ann)] == ["revoked"]
    assert gateway.principals.named("Bea").revoked is not None
    assert gateway.frames.count("Bea") == 0
    assert len(list((settings["folder"] / "frames").rglob("*.npz"))) == len(cast.frames)
    assert gateway.principals.named("thief").revoked is not None
    again = gateway.issue_code(cast.operator, cast.ann.id)
    assert gateway.enrol(again, KEY.public.hex())[0].name == "Ann"
    assert gateway.principals.database.rows.check() == []
    gateway.close()


def test_a_restore_of_the_newest_state_gives_nothing_up(backed_up, tmp_path):
    settings, _ = backed_up
    folder, url = settings.values()
    back_up(tmp_path / "newest.tar", folder, url)
    assert stat.S_IMODE((tmp_path / "newest.tar").stat().st_mode) == 0o600
    done = restore(tmp_path / "newest.tar", folder, url, replace=True)
    assert (done.given_up, done.used_up) == ((), 0)
    gateway = open_service(**settings)
    assert gateway.release(Cast.again(gateway).apps["X"], "Ann", latest=1).rows
    gateway.close()


def test_what_is_no_backup_changes_nothing(backed_up, tmp_path):
    settings, backup = backed_up
    (tmp_path / "wrong").write_bytes(b"a diary")
    whole = backup.read_bytes()
    (tmp_path / "cut").write_bytes(whole[:300])
    for name in ("wrong", "cut", "none"):
        with pytest.raises((StorageError, MessageError)):
            restore(tmp_path / name, *settings.values(), replace=True)
    gateway = open_service(**settings)
    assert gateway.grants(Cast.again(gateway).ann)[0].released == 1
    gateway.close()
