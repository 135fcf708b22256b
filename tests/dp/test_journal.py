"""The journal keeps what it acknowledged, notices what was changed, and repairs only what a crash can leave."""

import errno
import json
import os
import stat
from subprocess import run
from sys import executable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blindsight.dp import journal as module
from blindsight.dp.journal import Journal
from blindsight.errors import CorruptFileError, StorageError

HEADER = {"format": "test", "version": 1}
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
records = st.dictionaries(st.text().filter(lambda key: key != "check"), plain, max_size=3)


def write(path, *entries):
    journal = Journal(path, header=HEADER)
    for entry in entries:
        with journal.locked():
            journal.catch_up(lambda record: None)
            journal.append(entry)


def read(path):
    journal, found = Journal(path, header=HEADER), []
    with journal.locked():
        journal.catch_up(found.append)
    return found[1:], journal


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(records, max_size=4))
def test_records_come_back_as_they_were(tmp_path, entries):
    path = tmp_path / "journal"
    path.unlink(missing_ok=True)
    write(path, *entries)
    assert read(path)[0] == entries


def test_file_is_private_and_one_object_a_line(tmp_path):
    path = tmp_path / "deep" / "journal"
    write(path, {"a": 1})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    header, entry = (json.loads(line) for line in path.read_text().splitlines())
    assert (header["format"], header["version"], entry["a"]) == ("test", 1, 1)


def test_every_cut_through_the_last_line_is_recovered(tmp_path):
    path = tmp_path / "journal"
    write(path, {"a": 1}, {"b": 2})
    kept = path.read_bytes()
    write(path, {"c": "x" * 40})
    whole = path.read_bytes()
    for cut in [*range(len(kept) + 1, len(whole), 9), len(whole) - 1]:
        path.write_bytes(whole[:cut])
        found, journal = read(path)
        assert found == [{"a": 1}, {"b": 2}]
        assert path.read_bytes() == kept
        assert journal.recovered is not None
        aside = tmp_path / journal.recovered.split()[-1].rstrip(".")
        assert aside.read_bytes() == whole[len(kept) : cut]
    assert read(path)[1].recovered is None  # once repaired, there is nothing more to say


def test_blocks_of_zeros_in_the_last_line_are_recovered_and_appending_goes_on(tmp_path):
    path = tmp_path / "journal"
    write(path, {"a": 1})
    kept = path.read_bytes()
    path.write_bytes(kept + b"\0" * 30 + b'"check":"00"}\n')
    found, journal = read(path)
    assert found == [{"a": 1}]
    assert journal.recovered is not None
    write(path, {"b": 2})
    assert read(path)[0] == [{"a": 1}, {"b": 2}]


@pytest.mark.parametrize("line", [0, 1, 2])
def test_a_changed_line_is_noticed_even_the_last(tmp_path, line):
    path = tmp_path / "journal"
    write(path, {"epsilon": 1.5}, {"epsilon": 2.5})
    lines = path.read_bytes().splitlines(keepends=True)
    first_key = lines[line].split(b":")[0][1:]
    twice = b"{" + first_key + b":0," + lines[line][1:]  # the same to a JSON reader
    spelled = [*lines[:line], twice, *lines[line + 1 :]]
    lines[line] = lines[line].replace(b"5", b"4").replace(b"test", b"tess")
    for altered in (lines, spelled):
        path.write_bytes(b"".join(altered))
        with pytest.raises(CorruptFileError, match=f"line {line + 1} "):
            read(path)


@pytest.mark.parametrize("order", [(0, 2, 3), (0, 1, 3), (0, 2, 1, 3), (0, 1, 1, 2, 3), (1, 2, 3)])
def test_a_missing_moved_or_repeated_line_is_noticed(tmp_path, order):
    path = tmp_path / "journal"
    write(path, {"n": 1}, {"n": 2}, {"n": 3})
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[i] for i in order))
    with pytest.raises(CorruptFileError, match="does not match"):
        read(path)


def test_a_cut_at_a_line_is_noticed_by_an_open_journal_and_by_a_noted_head(tmp_path):
    path = tmp_path / "journal"
    write(path, {"n": 1})
    first = read(path)[1].head
    write(path, {"n": 2})
    _, journal = read(path)
    noted = journal.head
    assert journal.includes(first)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    with journal.locked(), pytest.raises(CorruptFileError, match="shorter"):
        journal.catch_up(lambda record: None)
    assert not read(path)[1].includes(noted)


def test_what_is_no_journal_is_refused_and_kept(tmp_path):
    path = tmp_path / "journal"
    Journal(path, header=HEADER | {"version": 2})
    for content in (path.read_bytes(), b"", b"\n", b"not json\n", b"[1]\n", b"half a header"):
        path.write_bytes(content)
        with pytest.raises(CorruptFileError):
            read(path)
        assert path.read_bytes() == content
    with pytest.raises(StorageError, match="folder"):
        read(tmp_path)


def test_nothing_is_repaired_before_every_whole_line_was_verified(tmp_path):
    path = tmp_path / "journal"
    write(path, {"epsilon": 1.5}, {"epsilon": 2.5})
    altered = path.read_bytes().replace(b"2.5", b"2.4") + b'{"half":'
    for content in (altered, b"first line of a letter\nlast line, without its newline"):
        path.write_bytes(content)
        with pytest.raises(CorruptFileError):
            read(path)
        assert path.read_bytes() == content
    assert not list(tmp_path.glob("*.torn-*"))


def test_a_read_only_journal_leaves_a_torn_end_and_reads_it_once_it_is_whole(tmp_path):
    path = tmp_path / "journal"
    write(path, {"n": 1}, {"n": 2})
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    journal, found = Journal(path, header=HEADER, readonly=True), []
    journal.catch_up(found.append)
    assert journal.recovered is not None
    assert "not whole" in journal.recovered
    assert path.read_bytes() == whole[:-5]
    path.write_bytes(whole)
    journal.catch_up(found.append)
    assert found[1:] == [{"n": 1}, {"n": 2}]
    assert journal.recovered is None


@pytest.mark.parametrize("failing", ["write", "fsync"])
def test_a_full_disk_leaves_the_file_whole_and_the_journal_closed(tmp_path, monkeypatch, failing):
    path = tmp_path / "journal"
    write(path, {"n": 1})
    before = path.read_bytes()
    _, journal = read(path)
    real_write = os.write
    calls = []

    def full_disk(descriptor, data=b""):
        calls.append(descriptor)
        if failing == "write" and len(calls) == 1:
            return real_write(descriptor, bytes(data[:10]))
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module.os, failing, full_disk)
    with journal.locked(), pytest.raises(StorageError, match="disk is full"):
        journal.append({"n": 2})
    monkeypatch.undo()
    assert path.read_bytes() == before
    with journal.locked(), pytest.raises(StorageError, match="open it anew"):
        journal.append({"n": 2})
    write(path, {"n": 3})
    assert read(path)[0] == [{"n": 1}, {"n": 3}]


def test_a_real_write_error_half_way(tmp_path):
    """A limit on the size of files makes the kernel write a part of the line and then refuse."""
    path = tmp_path / "journal"
    write(path, {"n": 1})
    script = f"""
import resource
from pathlib import Path
from blindsight.dp.journal import Journal
from blindsight.errors import StorageError
journal = Journal(Path({str(path)!r}), header={HEADER!r})
with journal.locked():
    journal.catch_up(lambda record: None)
    limit = Path({str(path)!r}).stat().st_size + 40
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        journal.append({{"n": "x" * 100}})
    except StorageError as error:
        print("refused")
"""
    assert run([executable, "-c", script], capture_output=True, text=True, check=True).stdout == "refused\n"
    found, journal = read(path)
    assert found == [{"n": 1}]
    assert journal.recovered is None


def test_a_record_that_could_not_be_passed_on_is_not_skipped(tmp_path):
    path = tmp_path / "journal"
    write(path, {"n": 1}, {"n": 2})
    journal = Journal(path, header=HEADER)

    def refuse(record):
        if record.get("n") == 1:
            raise ValueError

    with journal.locked():
        with pytest.raises(ValueError):  # noqa: PT011
            journal.catch_up(refuse)
        with pytest.raises(StorageError, match="open it anew"):
            journal.catch_up(refuse)
