"""Whatever moment the server is killed at, no acknowledged upload is lost and none is added twice."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from blindsight.crypto.wire import decode, encode
from blindsight.errors import CorruptFileError, MessageError, StorageError
from blindsight.selective import ParameterServer, SelectiveTerms
from blindsight.selective.codec import SparseUpdate, encode_sparse
from blindsight.selective.terms import Receipt, Total, Upload
from tests.learn.crashes import Child, full_disk

SIZE = 60
TERMS = SelectiveTerms(run="test", participants=("ann", "bob"), layout="none", dimension=SIZE)
INITIAL = np.random.default_rng(0).normal(size=SIZE).astype(np.float32)
OFTEN = 700  # bytes: a snapshot after every second or third upload


def uploads(count):
    """Uploads of two participants in turn, with a few random values each."""
    rng = np.random.default_rng(5)
    made = []
    for number in range(count):
        places = np.sort(rng.choice(SIZE, 8, replace=False))
        update = SparseUpdate(SIZE, places, rng.normal(size=8).astype(np.float32))
        name, sequence = TERMS.participants[number % 2], number // 2 + 1
        made.append(encode(Upload(TERMS.digest, name, sequence, number, encode_sparse(update))))
    return made


def state(server):
    return server.version, server.parameters.tobytes(), server.counters.tobytes()


@pytest.fixture(scope="module")
def sent():
    return uploads(8)


@pytest.fixture(scope="module")
def expected(sent):
    """The state before the first upload and after each, of a server that nothing happens to."""
    server = ParameterServer(TERMS, INITIAL)
    states = [state(server)]
    for upload in sent:
        server.receive(upload)
        states.append(state(server))
    return states


def begun(folder, upload, **options):
    server = ParameterServer(TERMS, INITIAL, folder=folder, **options)
    for blob in upload:
        server.receive(blob)
    return server


def resumed(folder, **options):
    server = ParameterServer.resume(folder, **options)
    return state(server), server


def finish(server, sent):
    """Send everything anew; what was added already is refused, or told again to be, and not added twice."""
    for number, upload in enumerate(sent, start=1):
        version = server.version
        if number > version:
            server.receive(upload)
            continue
        try:
            told = str(decode(server.receive(upload), Receipt).version)
        except MessageError as error:
            told = str(error)
        assert told == str(number) or "was added before" in told
        assert server.version == version


@pytest.mark.parametrize("journal_bytes", [None, OFTEN, 1])
def test_a_server_resumes_between_any_two_uploads(tmp_path, sent, expected, journal_bytes):
    begun(tmp_path / "it", [], journal_bytes=journal_bytes).close()
    for number, upload in enumerate(sent):
        found, server = resumed(tmp_path / "it", journal_bytes=journal_bytes)
        assert found == expected[number]
        receipt = server.receive(upload)
        server.close()
        _, server = resumed(tmp_path / "it", journal_bytes=journal_bytes)
        assert server.receive(upload) == receipt  # once more, and added once
        server.close()
    assert resumed(tmp_path / "it")[0] == expected[-1]


class Camera:
    """Copies the folder before and after everything done to a file in it: each copy is a moment to be killed at."""

    def __init__(self, folder, album):
        self.folder, self.album = folder, album
        self.acknowledged = 0
        self.moments = []

    def shoot(self):
        copy = self.album / str(len(self.moments))
        shutil.copytree(self.folder, copy)
        self.moments.append((self.acknowledged, copy))

    def watching(self, act):
        def watched(*arguments, **options):
            self.shoot()
            try:
                return act(*arguments, **options)
            finally:
                self.shoot()

        return watched


def test_a_kill_at_any_moment_loses_and_doubles_nothing(tmp_path, sent, expected, monkeypatch):
    camera = Camera(tmp_path / "server", tmp_path / "album")
    server = begun(camera.folder, [], journal_bytes=OFTEN)
    with monkeypatch.context() as patch:
        for module, name in ((os, "write"), (os, "fsync"), (os, "ftruncate"), (Path, "replace")):
            patch.setattr(module, name, camera.watching(getattr(module, name)))
        for upload in sent:
            server.receive(upload)
            camera.acknowledged += 1
    snapshots = {(folder / "snapshot.npz").read_bytes() for _, folder in camera.moments}
    assert len(snapshots) >= 3  # or the moments around them were not seen
    for acknowledged, folder in camera.moments:
        found, again = resumed(folder)
        assert found in expected[acknowledged : acknowledged + 2]
        finish(again, sent)
        assert state(again) == expected[-1]
        again.close()
        assert resumed(folder)[0] == expected[-1]


def test_a_kill_while_the_server_is_made_leaves_none_or_a_whole_one(tmp_path, expected, monkeypatch):
    camera = Camera(tmp_path / "server", tmp_path / "album")
    with monkeypatch.context() as patch:
        for module, name in ((os, "write"), (os, "fsync"), (Path, "replace")):
            patch.setattr(module, name, camera.watching(getattr(module, name)))
        begun(camera.folder, [])
    made = []
    for _, folder in camera.moments:
        try:
            found, _ = resumed(folder)
            made.append(True)
        except StorageError:
            found = state(begun(folder, []))
            made.append(False)
        assert found == expected[0]
    assert made == sorted(made)
    assert set(made) == {False, True}


def test_the_journal_may_end_at_any_byte(tmp_path, sent, expected):
    begun(tmp_path / "it", sent[:3]).close()
    journal = tmp_path / "it" / "journal"
    whole = journal.read_bytes()
    for length in range(len(whole) - len(sent[2]), len(whole), 5):
        journal.write_bytes(whole[:length])
        found, server = resumed(tmp_path / "it")
        assert found == expected[2]
        server.receive(sent[2])
        server.close()
        assert journal.read_bytes() == whole
    assert resumed(tmp_path / "it")[0] == expected[3]


def kill_and_resume(folder, kills, seed):
    rng = np.random.default_rng(seed)
    sent = uploads(20 * kills)
    plain = ParameterServer(TERMS, INITIAL)
    begun(folder, [], journal_bytes=OFTEN).close()
    done = 0
    for _ in range(kills):
        child = Child(str(OFTEN), folder)
        child.send(*sent[done : done + 20])
        added = [int(line) for line in child.killed_after(int(rng.integers(1, 15)))]
        assert added == list(range(done + 1, done + 1 + len(added)))
        server = ParameterServer.resume(folder)
        assert done + len(added) <= server.version <= done + 20
        for upload in sent[done : server.version]:
            plain.receive(upload)
        done = server.version
        assert state(server) == state(plain)
        server.close()


def test_a_killed_server_resumes(tmp_path):
    kill_and_resume(tmp_path / "server", kills=1, seed=1)


@pytest.mark.slow
def test_a_server_killed_many_times_resumes(tmp_path):
    kill_and_resume(tmp_path / "server", kills=12, seed=2)


def test_on_a_full_disk_nothing_is_acknowledged(tmp_path, sent, expected, monkeypatch):
    with full_disk(monkeypatch), pytest.raises(StorageError, match="full"):
        begun(tmp_path / "none", [])
    server = begun(tmp_path / "it", sent[:2])
    with full_disk(monkeypatch), pytest.raises(StorageError, match="full"):
        server.receive(sent[2])
    assert state(server) == expected[2]
    server.receive(sent[2])  # there is room again
    server.close()
    assert resumed(tmp_path / "it")[0] == expected[3]


def test_a_disk_too_full_for_a_snapshot_loses_nothing(tmp_path, sent, expected, monkeypatch):
    server = begun(tmp_path / "it", sent[:2], journal_bytes=1)
    for upload in sent[2:4]:
        with full_disk(monkeypatch, after=1):
            server.receive(upload)  # the upload itself still fitted
    server.receive(sent[4])
    server.close()
    found, _ = resumed(tmp_path / "it")
    assert found == state(server) == expected[5]


def test_an_interrupted_write_stops_the_server_and_not_the_run(tmp_path, sent, expected, monkeypatch):
    def interrupted(descriptor):
        raise KeyboardInterrupt

    server = begun(tmp_path / "it", sent[:2])
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            server.receive(sent[2])
    assert state(server) == expected[2]
    with pytest.raises(StorageError, match="interrupted"):
        server.receive(sent[2])
    server.close()
    found, again = resumed(tmp_path / "it")
    assert found == expected[3]  # it had reached the disk
    finish(again, sent)
    assert state(again) == expected[-1]


def test_one_server_at_a_time_works_in_a_folder(tmp_path, sent, expected):
    server = begun(tmp_path / "it", sent[:1])
    with pytest.raises(StorageError, match="another server"):
        ParameterServer.resume(tmp_path / "it")
    server.close()
    again = ParameterServer.resume(tmp_path / "it")
    with pytest.raises(StorageError, match="closed"):
        server.receive(sent[1])
    again.receive(sent[1])
    assert state(server) == expected[1]
    assert state(again) == expected[2]
    again.close()
    with pytest.raises(StorageError, match="exists"):
        begun(tmp_path / "it", [])
    assert resumed(tmp_path / "it")[0] == expected[2]


def test_sums_survive_too(tmp_path):
    terms = SelectiveTerms(run="sums", participants=("ann", "bob"), layout="", dimension=SIZE, together=2, max_values=1)
    server = ParameterServer(terms, INITIAL, folder=tmp_path / "it")
    everything = encode_sparse(SparseUpdate(SIZE, np.arange(SIZE), np.ones(SIZE, dtype=np.float32)))
    for turn in (1, 2):
        server.receive_total(encode(Total(terms.digest, turn, ("ann", "bob"), everything)))
    server.close()
    found, again = resumed(tmp_path / "it")
    assert found == state(server)
    assert again.turn == 2


def test_only_the_owner_may_read_the_folder(tmp_path, sent):
    begun(tmp_path / "it", sent[:3], journal_bytes=OFTEN).close()
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "it").iterdir()} == {0o600}
    assert (tmp_path / "it").stat().st_mode & 0o777 == 0o700
    (tmp_path / "it" / "journal").chmod(0o640)
    with pytest.raises(StorageError, match="chmod 600"):
        ParameterServer.resume(tmp_path / "it")


@pytest.mark.parametrize("name", ["snapshot.npz", "journal"])
def test_altered_files_are_refused_and_left_alone(tmp_path, sent, name):
    begun(tmp_path / "it", sent[:3]).close()
    path = tmp_path / "it" / name
    whole = path.read_bytes()
    middle = len(whole) // 2
    for altered in (b"", b"garbage" * 200, whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]):
        path.write_bytes(altered)
        with pytest.raises(CorruptFileError, match=name):
            ParameterServer.resume(tmp_path / "it")
        assert path.read_bytes() == altered
    path.write_bytes(whole)
    assert resumed(tmp_path / "it")[1].version == 3


def test_files_of_different_servers_are_not_mixed(tmp_path, sent):
    begun(tmp_path / "one", sent[:3], journal_bytes=1).close()
    begun(tmp_path / "two", sent[:1]).close()
    shutil.copy(tmp_path / "one" / "journal", tmp_path / "two" / "journal")
    with pytest.raises(CorruptFileError, match=r"journal does not continue snapshot\.npz"):
        ParameterServer.resume(tmp_path / "two")
    shutil.copy(tmp_path / "two" / "snapshot.npz", tmp_path / "one" / "journal")
    with pytest.raises(CorruptFileError, match="journal was altered"):
        ParameterServer.resume(tmp_path / "one")
    with pytest.raises(StorageError, match="does not exist"):
        ParameterServer.resume(tmp_path / "none")


def test_receiving_writes_no_more_than_the_upload(tmp_path, sent):
    server = begun(tmp_path / "it", [])
    files = {path: path.read_bytes() for path in (tmp_path / "it").iterdir()}
    server.receive(sent[0])
    changed = {path.name: path.read_bytes() for path, before in files.items() if path.read_bytes() != before}
    assert changed == {"journal": files[tmp_path / "it" / "journal"] + sent[0]}
