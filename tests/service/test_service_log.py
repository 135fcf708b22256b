"""The log is one tree whoever appends; whatever is done to it is refused, or found."""

import io
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import asdict
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from smallservice import LOG_KEY
from sqlalchemy import event, select, text
from sqlalchemy.exc import DBAPIError

from blindsight.crypto.merkle import EMPTY, TreeHead
from blindsight.crypto.signing import SigningKey
from blindsight.errors import (
    BlindsightError,
    CorruptFileError,
    InputError,
    MessageError,
    StorageError,
    UnknownNameError,
)
from blindsight.service.log import AuditLog, Draft, LogCheck, open_log, verify_export
from blindsight.service.principals import Principals
from blindsight.service.store import log as table
from blindsight.service.store import open_database
from blindsight.service.witnesses import MOST_WITNESSED, HeadFile, HeadService, remember_head, remembered_head

NONE = EMPTY.hex()
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
INJECTIONS = ["'; DROP TABLE log; --", "') ON CONFLICT DO UPDATE --", "%s :a ? $1", "<img onerror=x>", "\\u0000\\"]


@pytest.fixture
def log(database):
    return AuditLog(database, clock=lambda: NOON, key=LOG_KEY)


def execute(database, *statements):
    with database.session() as session:
        for statement in statements:
            session.execute(text(statement))


def unguard(database):
    """Do what someone who owns the database can do: take the guards away."""
    lite = database.engine.dialect.name == "sqlite"
    names = ["log_keeps_rows", "log_grows_at_its_end"] + ["log_keeps_content"] * lite
    execute(database, *(f"DROP TRIGGER {name}" + ("" if lite else " ON log") for name in names))


def fill(log, count):
    return [log.append(f"app-{number}", "release", {"dimensions": number}) for number in range(1, count + 1)]


def heads(log, count):
    """The heads while a log grows, beginning with the first."""
    return [str(log.head())] + [(fill(log, 1), str(log.head()))[1] for _ in range(count)]


def test_entries_come_back_in_order_and_verify(log, monkeypatch):
    assert log.verify() == LogCheck(True, 0, NONE)
    made = fill(log, 5)
    assert [entry.position for entry in made] == [1, 2, 3, 4, 5]
    assert made[0].time == "2030-01-01T12:00:00.000000+00:00"
    assert log.entries() == tuple(made)
    assert log.entries(after=2, limit=2) == tuple(made[2:4])
    head = log.head()
    assert log.verify() == LogCheck(True, 5, head.root)
    noted = [str(head), *heads(log, 3)]
    assert all(log.verify(known_heads=[one]).ok for one in noted)
    assert all(log.verify(known_heads=[one.split(":")[1]]).ok for one in noted)
    assert not log.verify(known_heads=["4:" + head.root]).ok
    monkeypatch.setattr("blindsight.service.log._BATCH", 2)  # long logs are read in batches
    assert log.verify() == LogCheck(True, 8, log.head().root)
    assert log.entries(after=2, limit=2) == tuple(made[2:4])


CHANGES = {
    "both": [
        "UPDATE log SET actor = 'someone else' WHERE position = 2",
        "UPDATE log SET details = details",
        "DELETE FROM log WHERE position = 3",
        "DELETE FROM log",
        "INSERT INTO log VALUES (9, '', '', '', '{}', '', NULL, NULL, NULL)",
        "INSERT INTO log VALUES (0, '', '', '', '{}', '', NULL, NULL, NULL)",
        "INSERT INTO log VALUES (2, '', '', '', '{}', '', NULL, NULL, NULL)",
    ],
    "sqlite": [
        "INSERT OR REPLACE INTO log VALUES (2, '', '', '', '{}', '', NULL, NULL, NULL)",
        "UPDATE OR REPLACE log SET position = 1 WHERE position = 2",
        "INSERT INTO log VALUES (2, '', '', '', '', '', NULL, NULL, NULL) ON CONFLICT DO UPDATE SET actor = 'x'",
    ],
    "postgresql": [
        "INSERT INTO log VALUES (2, '', '', '', '', '', NULL, NULL, NULL) "
        "ON CONFLICT (position) DO UPDATE SET actor = ''",
        "TRUNCATE log",
    ],
}


def test_database_refuses_to_change_the_log(log, database):
    made = fill(log, 3)
    for statement in CHANGES["both"] + CHANGES[database.engine.dialect.name]:
        with pytest.raises(DBAPIError, match="only grows"), database.engine.begin() as connection:
            connection.execute(text(statement))
        assert log.entries() == tuple(made), statement


EDITED = [
    (3, f"UPDATE log SET {column} = '{{}}' WHERE position = 3")
    for column in ("time", "actor", "action", "details", "hash")
]
MOVED = [
    (1, "DELETE FROM log WHERE position = 1"),
    (3, "DELETE FROM log WHERE position = 3"),
    (3, "DELETE FROM log WHERE position = 3", "UPDATE log SET position = 3 WHERE position = 4"),
    (
        3,  # the third and fourth change places
        "UPDATE log SET position = 99 WHERE position = 3",
        "UPDATE log SET position = 3 WHERE position = 4",
        "UPDATE log SET position = 4 WHERE position = 99",
    ),
    (6, "INSERT INTO log SELECT 6, time, actor, action, details, hash, NULL, NULL, NULL FROM log WHERE position = 5"),
    (1, "INSERT INTO log SELECT 0, time, actor, action, details, hash, NULL, NULL, NULL FROM log WHERE position = 5"),
]
NO_TEXT = [
    (2, f"UPDATE log SET actor = {value} WHERE position = 2") for value in ("x'00ff'", "CAST(x'c328ff' AS TEXT)", "''")
]


def test_whatever_is_done_to_entries_is_found(log, database):
    noted = heads(log, 5)
    unguard(database)
    with database.reading() as session:
        rows = [row._asdict() for row in session.execute(select(table)).all()]
    for broken_at, *statements in EDITED + MOVED + NO_TEXT * (database.engine.dialect.name == "sqlite"):
        execute(database, *statements)
        check = log.verify()
        assert (check.ok, check.broken_at) == (False, broken_at), statements
        assert f"{check.entries}:{check.head}" == noted[broken_at - 1]
        with pytest.raises(CorruptFileError, match=str(broken_at)):
            log.export()
        with database.session() as session:
            session.execute(table.delete())
            session.execute(table.insert(), rows)
    assert log.verify().ok


def test_edit_with_its_own_hash_made_to_fit_is_found_at_the_next(log, database):
    fill(log, 5)
    unguard(database)
    forged = AuditLog(database, clock=lambda: NOON, key=LOG_KEY)
    with database.session() as session:
        rows = session.execute(select(table).order_by(table.c.position)).all()
        session.execute(table.delete().where(table.c.position >= 3))
        forged.append("app-3", "release", {"dimensions": 999}, session=session)
        session.execute(table.insert(), [row._asdict() for row in rows[3:]])
    assert log.verify().broken_at == 4


def test_entries_cut_off_are_found_by_a_noted_head(log, database):
    fill(log, 5)
    noted = str(log.head())
    unguard(database)
    execute(database, "DELETE FROM log WHERE position > 3")
    other = AuditLog(database, clock=lambda: NOON, key=LOG_KEY)
    assert other.verify().ok  # the tree alone cannot tell
    check = other.verify(known_heads=[noted])
    assert (check.ok, check.entries, check.broken_at) == (False, 3, 4)
    other.append("app-4", "release")  # nor does growing again hide it
    other.append("app-5", "release")
    assert not other.verify(known_heads=[noted]).ok
    execute(database, "DELETE FROM log")
    assert not AuditLog(database, key=LOG_KEY).verify(known_heads=[noted]).ok


# --- a log that is cut or rewritten while it is in use ---


def stored(database):
    with database.reading() as session:
        return [row._asdict() for row in session.execute(select(table).order_by(table.c.position))]


@pytest.fixture
def processes(database_url, tmp_path):
    """What opens the log and its database as one more process of the service does, with a witness elsewhere."""
    with ExitStack() as stack:

        def opened():
            database = open_database(database_url)
            stack.callback(database.close)
            return open_log(tmp_path / "service", database, [HeadFile(tmp_path / "elsewhere")]), database

        yield opened


def rewrite(url, rows, size, key):
    """Cut the log to its first `rows` entries, and let it grow to `size` with others under the log's own key."""
    database = open_database(url)
    unguard(database)
    execute(database, f"DELETE FROM log WHERE position > {rows}")
    forger = AuditLog(database, clock=lambda: NOON, key=key)
    for number in range(rows, size):
        forger.append("app-9", "something else", {"number": number})
    rows = stored(database)
    database.close()
    return rows


@pytest.mark.parametrize("size", [3, 6, 7], ids=["cut", "rewritten to its size", "rewritten and longer"])
def test_a_log_cut_or_rewritten_in_use_is_not_continued(processes, database_url, tmp_path, size):
    log, database = processes()
    fill(log, 6)
    head, rows = log.head(), stored(database)
    there = rewrite(database_url, 3, size, log._key)
    for _ in range(2):
        with pytest.raises(CorruptFileError, match="this process saw 6 "):
            log.append("stranger", "refuse login")
    with pytest.raises(CorruptFileError):
        log.head()
    with pytest.raises(CorruptFileError):
        log.consistency(1, 3)
    check = log.verify()
    assert (check.ok, check.broken_at) == (False, size + 1)
    with pytest.raises(CorruptFileError):
        log.export()
    assert stored(database) == there  # nothing was built on it
    for path in (tmp_path / "service" / "log.head", tmp_path / "elsewhere"):
        assert HeadFile(path).last(log.key) == head
    with pytest.raises(CorruptFileError, match=r"log\.head saw 6 "):
        processes()[0].check_witnesses()
    with database.session() as session:  # the true entries put back
        session.execute(table.delete())
        session.execute(table.insert(), rows)
    assert log.append("app-7", "release").position == 7


@pytest.mark.parametrize("key", [None, SigningKey.generate()], ids=["unsigned", "signed with another key"])
def test_who_cuts_the_log_cannot_pretend_a_restore(processes, database_url, tmp_path, key):
    log, _ = processes()
    fill(log, 6)
    head = log.head()
    rewrite(database_url, 3, 3, log._key)
    signed = {}
    if key is not None:
        elsewhere = open_database(f"sqlite:///{tmp_path / 'elsewhere.db'}")
        signed = AuditLog(elsewhere, key=key).add_restore([str(head)], {}).details
        elsewhere.close()
    with closing(open_database(database_url)) as other:
        AuditLog(other, key=log._key).append("machine", "restore", {"given_up": [str(head)], **signed})
    with pytest.raises(CorruptFileError, match="this process saw 6 "):
        log.append("app-1", "release")
    with pytest.raises(CorruptFileError, match=r"log\.head saw 6 "):
        processes()[0].check_witnesses()


@pytest.mark.parametrize("known", ["service/log.head", "elsewhere"])
@pytest.mark.parametrize("size", [3, 5, 7])
def test_what_another_process_wrote_and_lost_is_missed_by_the_others(processes, database_url, tmp_path, known, size):
    first, database = processes()
    fill(first, 3)
    old = (tmp_path / "elsewhere").read_bytes()
    second, _ = processes()
    fill(second, 2)
    head, there = second.head(), rewrite(database_url, 3, size, first._key)
    for name in {"service/log.head", "elsewhere"} - {known}:
        (tmp_path / name).write_bytes(old)
    with pytest.raises(CorruptFileError, match=f"{known} saw 5 "):
        first.append("app-4", "release")
    assert stored(database) == there
    assert HeadFile(tmp_path / known).last(first.key) == head


def test_processes_that_write_in_turn_follow_each_other(processes):
    logs = [processes()[0] for _ in range(2)]
    for number in range(12):
        log = logs[number % 3 == 0]
        log.append("app-1", "release", {"number": number})
        assert log.problems == {}
    assert len({str(log.head()) for log in logs}) == 1
    assert logs[0].verify().ok


def test_a_transaction_reads_no_more_of_a_long_log_than_of_a_short_one(processes):
    (log, database), statements, costs = processes(), [], []
    event.listen(database.engine, "before_cursor_execute", lambda *told: statements.append(told[2]))
    for _ in range(70):
        statements.clear()
        log.append("app-1", "release")
        costs.append(len(statements))
    assert set(costs[1:]) == {costs[1]}


def test_a_file_keeps_its_head_from_one_that_does_not_continue_it(sqlite_database, tmp_path):
    log = AuditLog(sqlite_database, key=LOG_KEY, witnesses=[HeadFile(tmp_path / "elsewhere")])
    fill(log, 4)
    known, path = log.head(), tmp_path / "elsewhere"
    other = open_database(f"sqlite:///{tmp_path / 'other.db'}")
    for entries, key in ((7, log._key), (2, log._key), (7, SigningKey.generate())):  # longer, shorter, another log's
        execute(other, "DROP TRIGGER IF EXISTS log_keeps_rows", "DELETE FROM log")
        forged = AuditLog(other, key=key)
        fill(forged, entries)
        with pytest.raises(CorruptFileError, match=str(known)):
            HeadFile(path).note(forged.head(), forged)
        assert HeadFile(path).last(log.key) == known
    other.close()


class Far:
    """What the other service answers, in place of its client."""

    def __init__(self, database):
        self._database = database

    def witness_head(self, head, proof):
        return asdict(remember_head(self._database, TreeHead.from_dict(dict(head)), proof, "app-1"))

    def witnessed_head(self, key):
        try:
            return asdict(remembered_head(self._database, key))
        except UnknownNameError:
            return None

    def close(self):
        pass


@pytest.mark.parametrize("entries", [3, 5, 8], ids=["shorter", "as long", "longer"])
def test_a_service_that_knows_another_history_has_not_taken_a_head(sqlite_database, tmp_path, entries):
    far = open_database(f"sqlite:///{tmp_path / 'far.db'}")
    log = AuditLog(sqlite_database, key=LOG_KEY)
    fill(log, 5)
    remember_head(far, log.head(), [], "app-1")
    other = open_database(f"sqlite:///{tmp_path / 'other.db'}")
    witness = HeadService("https://other.example.org", "t")
    witness._client = Far(far)
    forged = AuditLog(other, key=log._key, witnesses=[witness])
    forged.append_all([Draft("app-9", "something else")] * entries)
    witness.close()  # it is told by then
    assert remembered_head(far, log.key) == log.head()
    with pytest.raises(BlindsightError):
        witness.note(witness._newest[0], forged)
    with pytest.raises(CorruptFileError, match=r"other\.example\.org saw 5 "):
        forged.append("app-9", "something else")
    for one in (far, other):
        one.close()


def test_a_service_that_shows_the_head_of_another_log_is_no_witness(sqlite_database):
    log, stranger = AuditLog(sqlite_database, key=LOG_KEY), SigningKey.generate()
    witness = HeadService("https://other.example.org", "t")
    shown = asdict(TreeHead.sign(stranger, 3, bytes(32), "2030-01-01T12:00:00.000000+00:00"))
    witness._client = type("Far", (), {"witnessed_head": lambda self, key: shown})()
    with pytest.raises(MessageError, match=stranger.public.hex()):
        witness.last(log.key)
    assert witness.known(log.key) is None


def test_altered_details_that_are_no_json_are_told(log, database):
    fill(log, 2)
    unguard(database)
    execute(database, "UPDATE log SET details = 'oh' WHERE position = 2")
    with pytest.raises(CorruptFileError, match="2"):
        log.entries()


def test_entry_belongs_to_the_transaction_around_it(log, database):
    def interrupted(**keywords):
        with database.session() as session:
            log.append("app-1", "release", session=session if keywords else None)
            raise RuntimeError

    for keywords in ({}, {"session": True}):
        with pytest.raises(RuntimeError):
            interrupted(**keywords)
    assert (log.head().size, log.head().root) == (0, NONE)
    with database.session():
        log.append("app-1", "grant")
        log.append("app-1", "release")
    assert log.verify().entries == 2


def test_threads_append_to_one_chain(log):
    def work(name):
        return [log.append(name, "release", {"number": number}) for number in range(10)]

    with ThreadPoolExecutor(5) as pool:
        made = list(pool.map(work, [f"app-{number}" for number in range(5)]))
    assert log.verify().entries == 50
    entries = log.entries()
    for own in made:  # each thread's entries are all there, in its own order
        assert [entry for entry in entries if entry.actor == own[0].actor] == own


WRITER = """
import sys
from blindsight.service.store import open_database
from blindsight.service.log import AuditLog
from blindsight.crypto.signing import SigningKey
log = AuditLog(open_database(sys.argv[1]), key=SigningKey(bytes(range(32))))
for number in range(100_000):
    print(log.append("app-a", "release", {"number": number}).position, flush=True)
"""


def test_processes_append_to_one_chain_and_a_killed_one_loses_no_acknowledged_entry(log, database_url):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", WRITER, database_url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        seen = [int(process.stdout.readline())]
        own = [log.append("app-b", "release", {"number": number}).position for number in range(25)]
        seen += [int(process.stdout.readline()) for _ in range(10)]
        process.send_signal(signal.SIGKILL)
        seen += [int(line) for line in process.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
    last = log.append("app-b", "release").position  # waits for what the database may still do for the dead process
    check = log.verify()
    assert (check.ok, check.entries) == (True, last)
    untold = set(range(1, last)) - {*seen, *own}
    assert len(seen) + len(own) + len(untold) == last - 1  # nobody got a position of somebody else
    assert len(untold) <= 1  # at most one was written but not yet told


def test_export_verifies_by_itself(log, tmp_path):
    path = tmp_path / "log.jsonl"
    for count in (0, 4):
        fill(log, count)
        with path.open("w", encoding="utf-8") as stream:
            stream.writelines(log.export())
            check = log.verify()
        assert check == log.verify()
        assert verify_export(path) == check
        assert verify_export(path, known_heads=[check.head]).ok
        assert not verify_export(path, known_heads=["f" * 64]).ok
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["actor"] for line in lines[:-1]] == [entry.actor for entry in log.entries()]
    assert (lines[-1]["size"], lines[-1]["root"], lines[-1]["key"]) == (4, check.head, log.key)


@pytest.fixture
def exported(sqlite_database, tmp_path):
    log, path = AuditLog(sqlite_database, key=LOG_KEY), tmp_path / "log.jsonl"
    fill(log, 4)
    with path.open("w", encoding="utf-8") as stream:
        stream.writelines(log.export())
    return path


def test_tampered_export_is_found(exported):
    lines = exported.read_text().splitlines()
    first, second, third, fourth, last = lines
    for broken_at, *changed in [
        (2, first, second.replace('"dimensions": 2', '"dimensions": 5'), third, fourth, last),
        (2, first, second.replace('"position": 2', '"position": true'), third, fourth, last),
        (2, first, second.replace("{", '{"note": "seen", ', 1), third, fourth, last),
        (2, first, second.replace("{", '{"actor": "somebody else", ', 1), third, fourth, last),  # twice
        (2, first, second.replace('{"dim', '{"dimensions": 9, "dim'), third, fourth, last),
        (5, *lines[:-1], last.replace("{", '{"size": 9, ')),
        (5, *lines[:-1], last.replace('"size": 4', '"size": 4.0')),
        *((2, first, wrong, third, fourth, last) for wrong in ("[" * 50_000, "x" * 1_000_000, "", "null")),
        (1, *lines[1:]),
        (2, first, *lines[2:]),
        (2, first, third, second, fourth, last),
        (5, *lines[:-1]),
        (4, first, second, third, last),
        (5, *lines, last),
        (1, last, *lines[:-1]),
        (1,),
    ]:
        exported.write_text("".join(line + "\n" for line in changed))
        check = verify_export(exported)
        assert (check.ok, check.broken_at) == (False, broken_at), changed
        assert check.reason
    with pytest.raises(StorageError, match="nowhere"):
        verify_export(exported.with_name("nowhere"))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_changed_character_of_an_export_is_found(exported, data):
    whole = exported.read_text()
    place = data.draw(st.integers(0, len(whole) - 1))
    other = data.draw(st.characters(codec="ascii").filter(lambda character: character != whole[place]))
    changed = whole[:place] + other + whole[place + 1 :]
    copy = exported.with_name("copy")
    copy.write_bytes(changed.encode())
    assert not verify_export(copy).ok


def test_what_does_not_belong_into_the_log_is_refused(sqlite_database):
    log = AuditLog(sqlite_database, key=LOG_KEY)
    for arguments, named in [
        (("", "release", {}), "100"),
        (("app-1", "two\nlines", {}), "printable"),
        (("app-1", "release", {"pixels": b"raw"}), "JSON"),
        (("app-1", "release", {"value": float("nan")}), "JSON"),
        (("app-1", "release", {1: "a", "1": "b"}), "JSON"),
        (("app-1", "release", {"vector": [0.123456789] * 2_000}), "16384"),
    ]:
        with pytest.raises(InputError, match=named):
            log.append(*arguments)
    assert (log.head().size, log.head().root) == (0, NONE)
    for wrong in ({"after": -1}, {"limit": 0}, {"limit": 1_001}, {"after": 2**70}):
        with pytest.raises(InputError, match="after"):
            log.entries(**wrong)


def test_tokens_are_kept_out(sqlite_database):
    principals, log = Principals(sqlite_database), AuditLog(sqlite_database, key=LOG_KEY)
    code, size = principals.create("X", "app")[1], 2
    for secret in (code, principals.redeem(code)[1]):
        for arguments in (
            (secret, "x"),
            ("owner-1", secret),
            ("owner-1", "x", {"why": f"used {secret}"}),
            ("a", "x", {secret: 1}),
        ):
            with pytest.raises(InputError, match="token") as caught:
                log.append(*arguments)
            assert secret not in str(caught.value)
    assert [entry.action for entry in log.entries()] == ["seal rows"] * size


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
printable = (st.text(min_size=1, max_size=50) | st.sampled_from(INJECTIONS)).filter(
    lambda text: text.isprintable() and text == text.strip() != ""
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(printable, printable, st.dictionaries(st.text() | st.sampled_from(INJECTIONS), plain, max_size=3))
def test_any_text_comes_back_as_it_was(log, actor, action, details):
    entry = log.append(actor, action, details)
    assert log.entries(after=entry.position - 1) == (entry,)
    assert (entry.actor, entry.action, entry.details) == (actor, action, details)
    check = log.verify()
    assert (check.ok, check.entries) == (True, entry.position)
    stream = io.StringIO()
    stream.writelines(log.export())
    assert json.loads(stream.getvalue().splitlines()[-2])["details"] == details


def test_log_survives_a_restart(database, database_url):
    AuditLog(database, key=LOG_KEY).append("app-1", "release")
    database.close()
    reopened = open_database(database_url)
    assert AuditLog(reopened, key=LOG_KEY).append("app-1", "release").position == 2
    assert AuditLog(reopened, key=LOG_KEY).verify().ok
    reopened.close()


def test_nobody_fills_a_witnesss_memory_for_others(sqlite_database):
    def told(principal):
        return remember_head(sqlite_database, TreeHead.sign(SigningKey.generate(), 0, bytes(32), "2026"), [], principal)

    for _ in range(MOST_WITNESSED):
        told("app-1")
    with pytest.raises(InputError, match="already"):
        told("app-1")
    told("app-2")


def test_a_witness_that_knows_nothing_of_a_log_with_entries_must_be_said_to_be_new(sqlite_database, tmp_path):
    far = open_database(f"sqlite:///{tmp_path / 'far.db'}")
    witness = HeadService("https://other.example.org", "t")
    witness._client = Far(far)
    log = AuditLog(sqlite_database, key=LOG_KEY, witnesses=[witness])
    fill(AuditLog(sqlite_database, key=LOG_KEY), 2)
    with pytest.raises(StorageError, match="new"):
        log.check_witnesses()
    log.check_witnesses(new=True)
    witness.close()
    log.check_witnesses()
    far.close()
