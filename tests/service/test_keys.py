"""What the operator, a thief of disks and a second service can do: nothing, nothing, and its work."""

import stat
import tarfile
from contextlib import closing

import httpx
import numpy as np
import pytest
from smallservice import (
    GENDER,
    KEY,
    TLS,
    Cast,
    Cells,
    allow,
    asked,
    enrolled,
    epoch_keys,
    frames,
    granted,
    open_service,
    pictures,
    serving,
    traits,
    work,
)
from sqlalchemy import text

from blindsight.client import Client, enrol
from blindsight.crypto.sealedbox import ExchangeKey
from blindsight.errors import InputError, MessageError, PrivacyError
from blindsight.service.api import ENROLMENTS_PER_MINUTE, create_app
from blindsight.service.backup import back_up, restore
from blindsight.service.keys import picture_context
from blindsight.service.store import open_database

OTHER = ExchangeKey(bytes(range(1, 33)))
pytestmark = pytest.mark.usefixtures("known_verdicts")

IMAGES = pictures(traits(1, 5, per_person=3)[0])
"""What Ann's three frames show."""


on_both = pytest.mark.parametrize("opened", ["sqlite", "postgresql"], indirect=True)


@pytest.fixture
def opened(request, tmp_path):
    """What opens the service (again), each time after the one before was closed."""
    url = None
    if getattr(request, "param", "sqlite") == "postgresql":
        url = request.getfixturevalue("new_postgresql")("keys")
    gateways = []

    def again(**more):
        for gateway in gateways[-1:]:
            gateway.close()
        gateways.append(open_service(tmp_path / "service", database=url, **more))
        return gateways[-1]

    yield again
    for gateway in gateways[-1:]:
        gateway.close()


def actions(gateway, action):
    return [entry for entry in gateway.audit.entries(limit=1000) if entry.action == action]


def everything_on_disk(gateway, target):
    """The folder, the key folder, the database and a backup, as bytes."""
    folder, url = gateway.settings.folder, gateway.settings.database_url
    back_up(target, folder, url)
    places = [*folder.rglob("*"), *gateway.settings.open_keys.rglob("*"), target]
    found = {str(path): path.read_bytes() for path in places if path.is_file()}
    with tarfile.open(target) as archive:
        assert not any("epoch" in name or "machine" in name for name in archive.getnames())
    with closing(open_database(url)) as database, database.reading() as session:
        for table in ("principals", "enrolments", "epochs", "frames", "jobs", "log"):
            rows = session.execute(text(f"SELECT * FROM {table}")).all()
            found[table] = "\n".join(repr(tuple(row)) for row in rows).encode()
    return found


def holding(found, *secrets):
    return [name for name, content in found.items() for secret in secrets if secret in content]


def secrets_of(gateway, cast):
    """What must be nowhere: pixels, features, owners' and epochs' keys, tokens, in every form that is likely."""
    epochs = [bytes.fromhex(one) for one in epoch_keys(gateway, cast.ann).values()]
    keys = [KEY.secret_bytes(), *epochs]
    shown = [one for image in IMAGES for one in (image.tobytes()[:60], image[0].tobytes())]
    features = [row.tobytes()[:32] for row in Cells().transform(IMAGES)]
    token = str(cast.ann_token).encode()
    return [*shown, *features, *keys, *(key.hex().encode() for key in keys), token, token.removeprefix(b"blindsight_")]


@on_both
def test_nothing_readable_is_on_any_disk_before_during_and_after_a_grant(opened, tmp_path):
    gateway = opened()
    cast = Cast(gateway)
    secrets = secrets_of(gateway, cast)
    assert holding(everything_on_disk(gateway, tmp_path / "before.tar"), *secrets) == []
    number = granted(gateway, cast, GENDER, frames=2)
    secrets += secrets_of(gateway, cast)
    assert gateway.release(cast.apps["X"], "Ann", latest=1).rows
    assert np.array_equal(gateway.frames.features("Ann", cast.frames), Cells().transform(IMAGES))
    during = everything_on_disk(gateway, tmp_path / "during.tar")
    assert holding(during, *secrets) == []
    assert any(name.endswith(".epoch") for name in during)
    gateway.revoke(cast.ann, number, "enough")
    after = everything_on_disk(gateway, tmp_path / "after.tar")
    assert holding(after, *secrets) == []
    assert not any(name.endswith(".epoch") for name in after)
    assert gateway.frames._recent == {}  # nor in memory
    with pytest.raises(PrivacyError, match="not here"):
        gateway.frames.features("Ann", cast.frames)
    (gateway.settings.folder / "plain").write_bytes(IMAGES[0].tobytes())  # where it lies open the same search finds it
    assert holding(everything_on_disk(gateway, tmp_path / "plain.tar"), *secrets)


def test_a_box_opens_in_its_own_place_alone(opened):
    """Whoever can write files may put that of one frame, or of one epoch's key, in the place of another's."""
    gateway = opened()
    cast = Cast(gateway)
    granted(gateway, cast, GENDER, frames=2)
    epoch, (moved, kept, *_) = gateway.keys.current("Ann").id, cast.frames
    gateway.frames._path("Ann", moved).write_bytes(gateway.frames._path("Ann", kept).read_bytes())
    gateway = opened()  # with nothing in memory
    for id, right in ((kept, True), (moved, False)):
        picture = gateway.frames.picture("Ann", id)
        for opening in (
            lambda id=id: gateway.frames.features("Ann", [id]),
            lambda id=id, picture=picture: KEY.open(picture, context=picture_context(id)),
        ):
            if right:
                assert len(opening())
            else:
                with pytest.raises(MessageError, match="altered, or was sealed for another"):
                    opening()
    with pytest.raises(MessageError):
        gateway.keys.secret(epoch).open(gateway.frames._box("Ann", kept, "features"), context=picture_context(kept))
    gateway.keys._path("another").write_bytes(gateway.keys._path(epoch).read_bytes())
    with pytest.raises(PrivacyError, match="not here"):
        gateway.keys.secret("another")


def test_a_restart_during_a_grant_goes_on_and_the_next_epoch_is_another(opened):
    gateway = opened()
    cast = Cast(gateway)
    number = granted(gateway, cast, GENDER, frames=2)
    first = gateway.keys.current("Ann").id
    gateway = opened()
    new = gateway.add_frame(cast.ann, frames(1, seed=8)[0])  # of the same epoch: the grant is about it too
    assert gateway.release(cast.apps["X"], "Ann", frames=[new]).rows
    gateway.revoke(cast.ann, number, "enough")
    assert gateway.keys.current("Ann").id != first
    assert [one.details["person"] for one in actions(gateway, "end epoch")] == ["Ann"]
    later = gateway.add_frame(cast.ann, frames(1, seed=9)[0])
    gateway = opened()
    for frame in (new, later):
        with pytest.raises(PrivacyError, match="not here"):
            gateway.frames.features("Ann", [frame])
    granted(gateway, cast, GENDER, app="Y")  # the owner hands over what opens all her frames
    assert gateway.frames.features("Ann", [new, later]).shape == (2, 20)
    assert gateway.release(cast.apps["Y"], "Ann", frames=[new]).rows


def test_every_end_of_the_last_grant_ends_the_epoch(opened):
    gateway = opened()
    cast = Cast(gateway)
    app = cast.apps["X"]

    def used_up():
        gateway.release(app, "Ann", latest=1)
        work(gateway)
        gateway.sweep()  # as the worker does every second

    def another_wish():
        gateway.register_app(app, ["gender", "age"])
        gateway.register_app(app, ["gender"])

    def private_gender():
        gateway.set_private(cast.ann, ["gender"])
        work(gateway)
        gateway.set_private(cast.ann, ["smiling"])
        work(gateway)

    ends = {
        "revoked by the operator": lambda: gateway.revoke(cast.operator, gateway.grants(app)[-1].number, "enough"),
        "used up": used_up,
        "the app asks for something else": another_wish,
        "refused at its review": private_gender,
        "another code": lambda: gateway.issue_code(cast.operator, cast.ann.id),
    }
    for number, (name, end) in enumerate(ends.items()):
        used = sum(grant.released for grant in gateway.grants(app))
        granted(gateway, cast, GENDER, frames=used + 1)
        epoch = gateway.keys.current("Ann").id
        assert gateway.keys.is_open(epoch), name
        end()
        assert not gateway.keys.is_open(epoch), name
        assert gateway.keys.current("Ann").id != epoch, name
        assert len(actions(gateway, "end epoch")) == number + 1, name


def test_the_secret_of_an_epoch_is_written_once_and_its_copies_open_with_nothing(opened, tmp_path):
    gateway = opened()
    cast = Cast(gateway)
    number = granted(gateway, cast, GENDER, frames=2)
    (path,) = gateway.settings.open_keys.glob("*.epoch")
    before, machine = path.stat().st_ino, (gateway.settings.open_keys / "machine.key").read_bytes()
    gateway.hand_over_keys(cast.ann, epoch_keys(gateway, cast.ann))
    assert path.stat().st_ino == before
    with path.open("rb") as held:  # the blocks, however they are named afterwards
        gateway.revoke(cast.ann, number, "enough")
        assert set(held.read()) == {0}
    assert not (gateway.settings.open_keys / "machine.key").exists()
    granted(gateway, cast, GENDER, frames=2)
    assert (gateway.settings.open_keys / "machine.key").read_bytes() != machine


def test_two_grants_share_an_epoch_until_both_have_ended(opened):
    gateway = opened()
    cast = Cast(gateway)
    first, second = (granted(gateway, cast, GENDER, app=app) for app in "XY")
    epoch = gateway.keys.current("Ann").id
    gateway.revoke(cast.ann, first, "enough")
    assert gateway.keys.is_open(epoch)
    assert gateway.release(cast.apps["Y"], "Ann", latest=1).rows
    gateway.revoke(cast.ann, second, "enough")
    assert not gateway.keys.is_open(epoch)


def test_who_allows_hands_over_the_key_of_the_present_epoch_and_no_other(opened):
    gateway = opened()
    cast = Cast(gateway)
    job = asked(gateway, cast, GENDER)
    (right,) = epoch_keys(gateway, cast.ann).items()
    wrong = [None, {}, {"0" * 32: right[1]}, {right[0]: OTHER.secret_bytes().hex()}, {right[0]: "no"}]
    for keys in [*wrong, dict([right]) | {"0" * 32: right[1]}]:
        with pytest.raises(InputError, match="key"):
            gateway.answer(cast.ann, job, "allow", keys)
    assert gateway.grants(cast.ann) == ()
    with pytest.raises(InputError, match="no grant"):
        gateway.hand_over_keys(cast.ann, dict([right]))
    no = asked(gateway, cast, GENDER, app="Y")
    gateway.set_private(cast.ann, ["smiling", "age"])  # what was verified before does not hold any more
    work(gateway)
    with pytest.raises(PrivacyError):
        allow(gateway, cast.ann, no)
    assert gateway.keys.open_epochs() == {}  # what was not allowed keeps no key


def test_keys_that_a_machine_lost_are_handed_over_once_more(opened):
    gateway = opened()
    cast = Cast(gateway)
    granted(gateway, cast, GENDER)
    for path in gateway.settings.open_keys.iterdir():  # a tmpfs, after a restart of the machine
        path.unlink()
    gateway = opened()
    with pytest.raises(PrivacyError, match="once more"):
        gateway.release(cast.apps["X"], "Ann", latest=1)
    gateway.hand_over_keys(cast.ann, epoch_keys(gateway, cast.ann))
    assert gateway.release(cast.apps["X"], "Ann", latest=1).rows
    modes = {path.name.rpartition(".")[2]: path.stat().st_mode for path in gateway.settings.open_keys.iterdir()}
    assert {name: stat.S_IMODE(mode) for name, mode in modes.items()} == {"key": 0o600, "epoch": 0o600}
    assert stat.S_IMODE(gateway.settings.open_keys.stat().st_mode) == 0o700


def test_a_second_service_with_the_same_key_folder_goes_on(tmp_path, sqlite_url):
    shared = {"database": sqlite_url, "key_folder": tmp_path / "shared keys", "processes": 2}
    with closing(open_service(tmp_path / "a", **shared)) as first:
        cast = Cast(first)
        with closing(open_service(tmp_path / "a", **shared)) as second:
            number = granted(first, cast, GENDER, frames=2)
            assert first.release(cast.apps["X"], "Ann", latest=1).rows
            assert second.release(cast.apps["X"], "Ann", latest=1, frames=None).rows
            second.revoke(cast.ann, number, "enough")
            for service in (first, second):  # what the first had in memory is gone with the key
                with pytest.raises(PrivacyError, match="not here"):
                    service.frames.features("Ann", cast.frames)
                assert service.frames._recent == {}
            assert len(actions(first, "end epoch")) == 1


def test_a_restored_backup_brings_no_key_back(opened, tmp_path):
    gateway = opened()
    cast = Cast(gateway)
    number = granted(gateway, cast, GENDER)
    epoch = gateway.keys.current("Ann").id
    back_up(tmp_path / "backup.tar", gateway.settings.folder, gateway.settings.database_url)
    gateway.revoke(cast.ann, number, "enough")
    gateway.close()
    restore(tmp_path / "backup.tar", gateway.settings.folder, gateway.settings.database_url, replace=True)
    gateway = opened()
    assert not gateway.keys.is_open(epoch)
    with pytest.raises(PrivacyError, match="not here"):
        gateway.frames.features("Ann", cast.frames)


def test_a_key_folder_in_the_folder_itself_is_refused(tmp_path):
    with pytest.raises(InputError, match="copies"):
        open_service(tmp_path / "service", key_folder=tmp_path / "service" / "keys")


# --- the operator ---


@pytest.fixture
def served(tmp_path):
    """A service on a socket, its operator's client, and what makes others."""
    gateway = open_service(tmp_path / "service", requests_per_minute=1e6)
    token = gateway.principals.first_run()
    with (
        closing(gateway),
        serving(create_app(gateway.settings, gateway), gateway.settings) as url,
        Client(url, str(token), verify=TLS) as operator,
    ):
        yield gateway, url, operator


def test_an_operator_who_enrols_in_place_of_an_owner_reads_nothing_and_is_noticed(served):
    gateway, url, operator = served
    made, code = operator.create_principal("ann", "owner")
    hers = enrol(url, code, verify=TLS)
    with Client.of(hers, verify=TLS) as ann:
        frame = ann.add_frame(frames(1)[0])
        assert ann.picture(frame).startswith(b"\x89PNG")
        assert [one.details["frame"] for one in actions(gateway, "read picture")] == [frame]
        with pytest.raises(InputError, match="nothing at this address"):  # as it was once possible
            operator._send("POST", f"/principals/{made.id}/token")
        camera = ann.add_device("door")[1]
        stolen = enrol(url, operator.issue_code(made.id)[1], verify=TLS)  # the operator redeems it herself
        with pytest.raises(PrivacyError, match="token"):
            ann.frames()  # which Ann notices
    with Client(url, camera, verify=TLS) as door, pytest.raises(PrivacyError):
        door.add_frame(frames(1)[0])  # for which key?
    with Client.of(stolen, verify=TLS) as thief:
        assert thief.frames() == (frame,)
        with pytest.raises(MessageError):
            thief.picture(frame)
        assert len(thief.epoch_keys()) == 1  # of frames to come, not of that one
        assert gateway.epochs(made)[0].owner_key == ExchangeKey(bytes.fromhex(hers.key)).public.hex()
    logged = [(entry.actor, entry.action) for entry in gateway.audit.entries(limit=100)]
    assert (operator.me.id, "issue enrolment code") in logged
    assert logged.count((made.id, "enrol")) == 2
    assert len({entry.details["key"] for entry in actions(gateway, "enrol")}) == 2


def test_redeeming_leaves_traces_and_has_a_rate(served):
    gateway, url, operator = served
    _, code = operator.create_principal("ann", "owner")
    enrol(url, code, verify=TLS)
    for wrong, said in ((code, "redeemed already"), ("ABCDEF-ABCDEF-ABCDEF-ABCDEF", "opens nothing")):
        with pytest.raises(PrivacyError, match=said):
            enrol(url, wrong, verify=TLS)
    reasons = [one.details["reason"] for one in actions(gateway, "refuse enrolment")]
    assert len(reasons) == 2
    assert code not in str(reasons)
    tries = [
        httpx.post(f"{url}/v1/enrolment", json={"code": "x"}, verify=TLS, trust_env=False).status_code
        for _ in range(ENROLMENTS_PER_MINUTE)
    ]
    assert tries[-1] == 429
    assert set(tries) == {403, 429}
    assert gateway.audit.verify().ok


def test_a_person_is_erased_and_the_log_still_verifies(served, tmp_path):
    gateway, url, operator = served
    cast = Cast.__new__(Cast)
    people = {name: enrolled(gateway, operator.me, name, role) for name, role in (("Ann", "owner"), ("X", "app"))}
    (cast.ann, token), (app, _) = people["Ann"], people["X"]
    cast.ann_token, cast.apps = token, {"X": app}
    gateway.set_private(cast.ann, ["smiling"])
    gateway.register_app(app, ["gender"])
    cast.frames = [gateway.add_frame(cast.ann, one) for one in frames(2)]
    work(gateway)
    granted(gateway, cast, GENDER, frames=2, then="repeat")
    gateway.release(app, "Ann", latest=2)
    gateway.odometer(cast.ann, "Ann")
    work(gateway)
    secrets = secrets_of(gateway, cast)
    told = gateway.proposals(app)
    with Client(url, str(token), verify=TLS) as ann:
        assert ann.erase() == 2
        with pytest.raises(PrivacyError, match="token"):
            ann.frames()
    assert (gateway.frames.ids("Ann"), gateway.keys.of("Ann"), gateway.keys.open_epochs()) == ((), (), {})
    assert gateway.proposals(app) == told  # an app sees no difference
    assert [one.sentence for one in gateway.proposals(operator.me)] == [None]
    assert gateway.proposal(operator.me, told[0].job).evidence is None
    named = {name for name, content in everything_on_disk(gateway, tmp_path / "named.tar").items() if b"Ann" in content}
    assert not any("proposals" in name or name.endswith(".json") for name in named), named  # the log still does
    left = [path for name in ("frames", "platform/last") for path in (gateway.settings.folder / name).rglob("*.npz")]
    assert left == []
    assert holding(everything_on_disk(gateway, tmp_path / "after.tar"), *secrets) == []
    assert gateway.grants(operator.me)[0].standing == "revoked"
    assert operator.check_log().ok
    assert operator.erase("Ann") == 0  # again changes nothing
    with pytest.raises(InputError, match="person"):
        operator.erase("nobody")
    with Client(url, str(gateway.rotate_token(app)), verify=TLS) as other, pytest.raises(PrivacyError):
        other.erase("Ann")


def test_features_of_live_grants_are_opened_before_anybody_asks_and_gone_with_the_epoch(opened, monkeypatch):
    gateway = opened()
    cast = Cast(gateway)
    assert gateway.frames._recent == {}
    number = granted(gateway, cast, GENDER, frames=2)
    assert set(gateway.frames._recent) == set(cast.frames)  # by the approval
    gateway = opened()
    assert gateway.frames._recent == {}
    gateway.start(works=False)
    assert set(gateway.frames._recent) == set(cast.frames)  # by the start
    new = gateway.add_frame(cast.ann, frames(1, seed=8)[0])
    assert set(gateway.frames._recent) == {*cast.frames, new}  # by its arrival
    with monkeypatch.context() as patch:
        patch.setattr(gateway.frames, "_opened", None)
        assert gateway.release(cast.apps["X"], "Ann", frames=[new]).rows
        assert gateway.release(cast.apps["X"], "Ann", latest=1).rows
    gateway.revoke(cast.ann, number, "enough")
    assert gateway.frames._recent == {}
    gateway.add_frame(cast.ann, frames(1, seed=9)[0])
    assert gateway.frames._recent == {}  # nobody may need it
    assert gateway.frames.open_up() == 0


def test_a_frame_that_arrives_while_its_epoch_ends_is_not_kept_in_memory(opened, monkeypatch):
    gateway = opened()
    cast = Cast(gateway)
    number = granted(gateway, cast, GENDER, frames=2)
    prepare = gateway.frames.prepare

    def interrupted(rows):
        monkeypatch.setattr(gateway.frames, "prepare", prepare)
        gateway.revoke(cast.ann, number, "enough")
        return prepare(rows)

    monkeypatch.setattr(gateway.frames, "prepare", interrupted)
    gateway.add_frame(cast.ann, frames(1, seed=8)[0])
    assert gateway.frames._recent == {}


def test_features_that_are_opened_have_bounds(opened, monkeypatch):
    gateway = opened()
    cast = Cast(gateway)
    row = Cells().transform(IMAGES)[0].nbytes
    monkeypatch.setattr("blindsight.service.frames._REMEMBERED", 2 * row)
    granted(gateway, cast, GENDER, frames=2)
    assert set(gateway.frames._recent) == set(cast.frames[1:])  # the newest
    gateway = opened()
    monkeypatch.setattr("blindsight.service.frames._OPENED", 1)
    gateway.start(works=False)
    assert list(gateway.frames._recent) == cast.frames[2:]
    assert gateway.release(cast.apps["X"], "Ann", frames=cast.frames[:1]).rows  # others are opened when they are needed
