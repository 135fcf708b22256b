"""Cameras: tokens that only bring frames, batches, what phones send, and how long frames are kept."""

import io
from datetime import UTC, datetime, timedelta
from time import monotonic

import numpy as np
import pytest
from PIL import Image
from smallservice import KEY, TLS

from blindsight.client import Client, Retention
from blindsight.data.images import decode
from blindsight.errors import InputError, PrivacyError
from blindsight.service.cameras import MOST_DEVICES
from blindsight.service.gateway import MOST_PICTURES


def photo(kind="JPEG", size=(640, 480), **how):
    """A photo of smooth colours, of which every corner is another one."""
    across, down = np.meshgrid(np.linspace(0, 255, size[0]), np.linspace(0, 255, size[1]))
    picture = Image.fromarray(np.stack([across, down, 255 - across], axis=2).astype(np.uint8))
    stream = io.BytesIO()
    if kind == "HEIF":
        import pillow_heif

        pillow_heif.register_heif_opener()
    picture.save(stream, kind, **how)
    return stream.getvalue()


def actions(service, name="ann"):
    return [entry.action for entry in service.as_(name).log()]


def test_a_camera_brings_frames_and_nothing_else(service):
    ann = service.as_("ann")
    made, token = ann.add_device("front door", days=30)
    camera = Client(service.url, token, owner_key=KEY.public.hex(), verify=TLS, timeout=60)
    assert (camera.me.name, camera.me.role) == ("ann", "device")
    frame = camera.add_frame(service.picture(7))
    assert frame in ann.frames()
    for refused in (camera.frames, lambda: camera.picture(frame), lambda: camera.delete_frame(frame), camera.devices):
        with pytest.raises(PrivacyError):
            refused()
    headers = {"Authorization": f"Bearer {token}"}
    others = service.http.post("/v1/people/bob/frames", content=service.picture(7), headers=headers)
    assert others.status_code == 403
    assert service.http.post("/login", data={"token": token}, headers={"origin": service.url}).status_code != 303
    ann.revoke_device(made.id)
    with pytest.raises(PrivacyError):
        camera.add_frame(service.picture(8))
    camera.close()
    assert {"add device", "revoke device"} <= set(actions(service))
    assert token not in service.as_("operator").export_log()


def test_a_camera_ends_with_its_owner_and_with_its_days(service):
    gateway = service.gateway
    ann = gateway.authenticate(service.tokens["ann"])
    _, token = gateway.add_device(ann, "door", days=2)
    assert gateway.authenticate(str(token)).name == "ann"
    later = datetime.now(UTC) + timedelta(days=3)
    gateway.audit._clock, gateway.audit._monotonic = (lambda: later), (lambda: monotonic() + 4 * 86_400)
    assert gateway.authenticate(str(token)) is None
    _, token = gateway.add_device(ann, "garden")
    gateway.principals.revoke(ann.id)
    assert gateway.authenticate(str(token)) is None


def test_devices_have_names_and_bounds_and_are_their_owners(service):
    ann = service.as_("ann")
    made, _ = ann.add_device("door")
    with pytest.raises(InputError):
        ann.add_device("door")
    with pytest.raises(InputError):
        service.as_("bob").revoke_device(made.id)
    for number in range(MOST_DEVICES - 2):
        ann.add_device(f"door {number}")
    with pytest.raises(InputError, match=str(MOST_DEVICES)):
        ann.add_device("one too many")
    ann.revoke_device(made.id)
    assert next(one for one in ann.devices() if one.id == made.id).revoked
    ann.add_device("door")  # a name is free again


def test_every_picture_of_a_batch_has_its_own_result(service):
    ann = service.as_("ann")
    before = len(ann.frames())
    sent = {"a.png": service.picture(1), "b.txt": b"hello", "c.heic": photo("HEIF"), "d.jpg": photo()[:500], "e": b""}
    results = ann.add_frames(sent)
    assert [one.name for one in results] == list(sent)
    assert [one.error is None for one in results] == [True, False, True, False, False]
    assert tuple(one.frame for one in results if one.frame) == ann.frames()[before:]
    for wrong in ({}, {str(number): b"x" for number in range(MOST_PICTURES + 1)}):
        with pytest.raises(InputError):
            ann.add_frames(wrong)
    headers = {"content-type": "multipart/form-data; boundary=x"}
    part = b'--x\r\nContent-Disposition: form-data; name="pictures"; filename="%s"\r\n\r\nhello\r\n'
    odd = (part % (b"a" * 5_000), b"--x\r\nX: " + b"a" * 3_000_000, b"--x\r\n" * 3_000_000, part % b"a" * 100)
    for body in (b"", b"--x\r\n\r\n", b"--x--", *odd):
        answer = service.call("ann", "POST", "/v1/people/ann/frames/batch", content=body, headers=headers)
        assert answer.status_code == 422
        assert list(answer.json()) == ["error"]


@pytest.mark.parametrize("kind", ["JPEG", "HEIF", "PNG"])
def test_large_photos_are_scaled_on_arrival_and_look_the_same(kind):
    large, small = photo(kind, (2400, 1800)), photo("PNG", (240, 180))
    found, expected = decode(large, size=16, shrink=True), decode(small, size=16)
    assert np.abs(found.astype(int) - expected).max() <= 4


def test_a_photo_taken_sideways_stands_upright():
    turned = Image.Exif()
    turned[0x0112] = 6
    found = decode(photo("JPEG", (800, 800), exif=turned), size=16, shrink=True).astype(int)
    assert np.abs(found - np.rot90(decode(photo("JPEG", (800, 800)), size=16, shrink=True), -1)).max() <= 4


def test_retention_is_a_ring_by_number_and_by_days_and_is_logged(service):
    ann, gateway = service.as_("ann"), service.gateway
    kept = ann.frames()
    ann.set_retention(frames=3)
    kept = [*kept, *(ann.add_frame(service.picture(seed)) for seed in (30, 31))]
    assert list(ann.frames()) == kept[-3:]
    assert ann.person().retention == Retention(frames=3)
    with pytest.raises(InputError):
        ann.set_retention(frames=0)
    ann.set_retention(days=7)
    now = gateway.audit._clock()
    gateway.audit._monotonic = lambda: monotonic() + 10 * 86_400  # days that pass, not a clock that jumps
    gateway.audit._clock = gateway.frames._clock = lambda: now + timedelta(days=6)
    newest = ann.add_frame(service.picture(40))
    assert len(ann.frames()) == 4
    gateway.audit._monotonic = lambda: monotonic() + 20 * 86_400
    gateway.audit._clock = gateway.cameras._clock = lambda: now + timedelta(days=8)
    assert gateway.cameras.forget_all() == 3
    assert ann.frames() == (newest,)
    forgotten = [entry.details for entry in ann.log() if entry.action == "forget frames"]
    assert [(one["frames"], one["kept"]["days"]) for one in forgotten] == [(1, None), (3, 7)]
    assert len(service.as_("bob").frames()) == 2  # who chose nothing loses nothing


def test_an_owners_log_is_about_them_alone(service):
    service.grant("ann"), service.grant("bob")
    service.as_("weather").release("ann", latest=1)
    mine = list(service.as_("ann").log())
    assert {"person", "add frame", "propose", "grant", "release"} <= {entry.action for entry in mine}
    assert all(entry.details.get("person", "ann") == "ann" for entry in mine)
    assert not any("bob" in str(entry.details) for entry in mine)
    assert list(service.as_("ann").log(after=mine[3].position)) == mine[4:]
    whole = [entry for entry in service.as_("operator").log() if entry.position <= mine[-1].position]
    ann = service.gateway.principals.named("ann").id
    assert mine == [one for one in whole if one.actor == ann or one.details.get("person") == "ann"]
