"""The typed client goes through the whole life of a grant; what a service refuses are the library's own errors."""

import io
import shutil
import socket
from dataclasses import asdict, replace
from threading import Thread
from types import SimpleNamespace

import httpx
import numpy as np
import pytest
from PIL import Image
from smallservice import KEY, TLS, open_service

from blindsight.client import Client, Hit, Identity, enrol, sift_document
from blindsight.crypto.merkle import TreeHead, check_receipt
from blindsight.crypto.sealedbox import ExchangeKey
from blindsight.crypto.signing import SigningKey
from blindsight.errors import CorruptFileError, InputError, MessageError, PrivacyError, ServiceError, UnknownNameError
from blindsight.service.log import verify_export
from blindsight.service.proposals import sift_from_json
from blindsight.service.routes import Library
from blindsight.service.rows import sealed
from blindsight.service.store import epochs, principals
from blindsight.sift.personal import PersonalSift
from blindsight.sift.sift import Quantiser


def test_life_of_a_grant(service_on_each, tmp_path):
    service = service_on_each
    ann, weather, operator = (service.as_(name) for name in ("ann", "weather", "operator"))
    assert weather.attributes() == ("age", "gender", "smiling")
    job = weather.propose("ann", frames=2)
    assert (job.kind, job.state, job.ended) == ("proposal", "queued", False)
    service.work()
    assert weather.wait(job.id).state == "done"
    (waiting,) = ann.proposals()
    assert (waiting.app, waiting.verdict, waiting.answer) == ("weather", "accept", None)
    with pytest.raises(PrivacyError, match="grant"):
        weather.release("ann", latest=1)
    number = ann.answer(job.id, "allow").grant
    (grant,) = weather.grants()
    assert (grant.number, grant.standing, grant.public, grant.evidence) == (number, "live", ("gender",), None)
    out = weather.release("ann", frames=ann.frames()[:1])
    assert (out.grant, out.labels, out.rows[0][0] in (0, 1)) == (number, ("gender",), True)
    with pytest.raises(PrivacyError):
        weather.release("ann", latest=2)
    reading = ann.odometer()
    service.work()
    found = ann.wait(reading.id).result
    assert found is not None
    assert [one["attribute"] for one in found["readings"]] == ["smiling"]
    assert ann.revoke_grant(grant.number, "I moved").standing == "revoked"
    with pytest.raises(PrivacyError):
        weather.release("ann", latest=1)
    actions = [entry.action for entry in operator.log()]
    assert actions.count("release") == 1
    assert actions.index("grant") < actions.index("release") < actions.index("revoke")
    assert operator.check_log().entries > len(actions)  # reading is noted, too
    (tmp_path / "log.jsonl").write_text(operator.export_log())
    assert verify_export(tmp_path / "log.jsonl").ok


def test_a_change_of_mind_suspends_what_was_granted(service_on_each):
    service = service_on_each
    ann, weather = service.as_("ann"), service.as_("weather")
    service.grant()
    review = ann.set_private(["smiling", "gender"])  # which is what weather gets
    with pytest.raises(PrivacyError):
        weather.release("ann", latest=1)
    service.work()
    assert ann.wait(review.id).result == {"kept": [], "revoked": [1]}
    (grant,) = ann.grants()
    assert grant.standing == "revoked"


def test_sifts_arrive_as_they_were_sent(shared_service):
    sift = shared_service.sift(2, 3)
    same = sift_from_json(sift_document(sift), pipeline=sift.pipeline, dimension=sift.dimension)
    assert same.digest == sift.digest
    drawn = PersonalSift(replace(sift, quantiser=Quantiser(np.zeros((sift.width, 1)))), 1.0)
    document = sift_document(drawn)
    assert sift_from_json(document, pipeline=sift.pipeline, dimension=sift.dimension).digest == drawn.digest
    for settings in ({}, {"epsilon": True}, {**document["settings"], "certain": "personal"}):
        with pytest.raises(InputError):
            sift_from_json({**document, "settings": settings}, pipeline=sift.pipeline, dimension=sift.dimension)
    job = shared_service.as_("weather").propose("ann", sift)
    shared_service.work()
    assert shared_service.as_("weather").proposal(job.id).verdict == "accept"
    assert shared_service.as_("ann").answer(job.id, "fewer").next is not None
    for kind in ([], {}, None, 1):
        with pytest.raises(UnknownNameError):
            sift_from_json({"kind": kind}, pipeline="p", dimension=1)


def test_a_query_may_not_be_a_bomb(shared_service, monkeypatch):
    monkeypatch.setattr(Library, "index", lambda self, name: SimpleNamespace(mode="local", side=8))
    stream = io.BytesIO()
    Image.new("1", (5_001, 10_000)).save(stream, "PNG")
    with pytest.raises(InputError, match="50,000,000"):
        shared_service.as_("weather").search("noisy", stream.getvalue())


def test_pictures_go_in_and_come_back_to_their_person(shared_service):
    ann, sent = shared_service.as_("ann"), shared_service.picture(7)
    before = ann.person().frames
    frame = ann.add_frame(sent)
    assert ann.frames()[-1] == frame
    came = np.asarray(Image.open(io.BytesIO(ann.picture(frame))))
    assert np.array_equal(came, np.asarray(Image.open(io.BytesIO(sent))))
    ann.delete_frame(frame)
    with pytest.raises(InputError):
        ann.picture(frame)
    assert ann.person().frames == before


def exchange(service, **values):
    """Put other keys into a row of ann's, as a service that lies can."""
    database = service.gateway.principals.database
    (column, value), rows = next(iter(values.items())), database.rows
    if column == "owner":
        (row,) = rows.fetch(principals, sealed(principals).where(principals.c.name == "ann"))
        rows.change(principals, row, public_key=value)
    else:
        present = sealed(epochs).where(epochs.c.person == "ann", epochs.c.ended.is_(None))
        (row,) = rows.fetch(epochs, present)
        rows.change(epochs, row, **{column: value})


OTHER = ExchangeKey(bytes(range(1, 33)))
SENDING = {
    "one picture": lambda client, picture: client.add_frame(picture),
    "a batch": lambda client, picture: client.add_frames({"a.png": picture}),
}


def refusal_of(send, client, picture):
    try:
        (result,) = send(client, picture)
    except PrivacyError as error:
        return str(error)
    assert result.frame is None
    return result.error


@pytest.mark.parametrize("send", SENDING.values(), ids=SENDING)
@pytest.mark.parametrize(
    "rows", [("owner_key",), ("owner", "owner_key"), ("public_key",)], ids=["epoch", "owner and epoch", "features"]
)
def test_an_owner_sends_nothing_that_would_be_sealed_for_another_key(service, send, rows):
    known, picture = service.as_("ann"), service.picture(3)
    send(known, picture)  # one that has asked before
    before = known.frames()
    for row in rows:
        exchange(service, **{row: OTHER.public.hex()})
    with service.client(service.tokens["ann"]) as new:
        for client in (known, new):
            with pytest.raises(MessageError, match="another key"):
                send(client, picture)
    assert known.frames() == before


@pytest.mark.parametrize("send", SENDING.values(), ids=SENDING)
@pytest.mark.parametrize("row", ["owner_key", "public_key"])
def test_keys_exchanged_after_the_check_seal_nothing(service, send, row, monkeypatch):
    ann, frames, folder = service.as_("ann"), service.gateway.frames, service.gateway.settings.folder / "frames"
    before, files, decoded = ann.frames(), set(folder.rglob("*")), frames._decoded

    def exchanging(content):
        exchange(service, **{row: OTHER.public.hex()})
        return decoded(content)

    monkeypatch.setattr(frames, "_decoded", exchanging)  # the client has checked, the service has begun
    assert "than you expect" in refusal_of(send, ann, service.picture(3))
    assert ann.frames() == before
    assert set(folder.rglob("*")) == files


@pytest.mark.parametrize("send", SENDING.values(), ids=SENDING)
def test_a_camera_names_its_owners_key(service, send):
    ann, picture = service.as_("ann"), service.picture(3)
    token = ann.add_device("door")[1]
    options = {"verify": TLS, "timeout": 60}
    with Client(service.url, token, owner_key=KEY.public.hex(), **options) as camera:
        send(camera, picture)
        before = ann.frames()
        exchange(service, owner_key=OTHER.public.hex())
        assert "than you expect" in refusal_of(send, camera, picture)
        assert ann.frames() == before


def test_principals_come_and_go(shared_on_each, tmp_path):
    operator = shared_on_each.as_("operator")
    made, code = operator.create_principal("zoe", "owner", days=7)
    assert made.expires is not None
    hers = enrol(shared_on_each.url, code, verify=TLS, timeout=60)
    assert (hers.name, hers.role) == ("zoe", "owner")
    assert not any(secret in repr(hers) for secret in (hers.token, hers.key))
    with pytest.raises(PrivacyError, match="redeemed already"):
        enrol(shared_on_each.url, code, verify=TLS, timeout=60)
    hers.save(tmp_path / "zoe")
    assert ((tmp_path / "zoe").stat().st_mode & 0o777, Identity.load(tmp_path / "zoe")) == (0o600, hers)
    with pytest.raises(InputError, match="there already"):
        hers.save(tmp_path / "zoe")
    with Client.of(hers, verify=TLS, timeout=60) as zoe:
        assert zoe.me.name == "zoe"
        newer = zoe.rotate_token()
        assert zoe.frames() == ()
        with shared_on_each.client(hers.token) as before, pytest.raises(PrivacyError, match="token"):
            before.frames()
    with shared_on_each.client(newer) as zoe:
        assert zoe.frames() == ()
        with pytest.raises(MessageError, match="another key"):  # than this client has
            zoe.add_frame(shared_on_each.picture())
        assert operator.revoke_principal(made.id).revoked is not None
        with pytest.raises(PrivacyError, match="token"):
            zoe.frames()
    assert {one.name for one in operator.principals()} >= {"zoe", "ann", "weather"}
    with pytest.raises(InputError, match="taken"):
        operator.create_principal("zoe", "app")


def test_an_attacker_joins_and_everything_is_reviewed(service):
    operator = service.as_("operator")
    job = service.as_("weather").propose("ann", service.sift(2, 3)).id
    service.work()
    service.as_("ann").answer(job, "allow")
    (review,) = operator.add_attacker("naive Bayes, tuned")
    with pytest.raises(PrivacyError, match="suspended"):
        service.as_("weather").release("ann", latest=1)
    service.work()
    assert operator.job(review.id).result == {"kept": [1], "revoked": []}
    assert len(service.as_("weather").release("ann", latest=1).rows) == 1


def test_a_job_is_waited_for_or_cancelled(shared_service):
    weather = shared_service.as_("weather")
    job = weather.propose("ann", frames=9)
    with pytest.raises(ServiceError):
        weather.wait(job.id, seconds=0.0)
    assert weather.cancel(job.id).state == "cancelled"
    assert weather.wait(job.id).ended
    job = weather.propose("ann", frames=9)
    worker = Thread(target=shared_service.work)
    worker.start()
    assert weather.wait(job.id, pause=0.01).state == "done"
    worker.join()


@pytest.mark.parametrize("url", ["ftp://here", "here", "", "https://", "http://example.org"])
def test_addresses_that_are_none_or_would_send_a_token_readable(url):
    with pytest.raises(InputError, match="https"):
        Client(url, "token")


def test_a_proxy_of_the_environment_does_not_get_the_token(monkeypatch):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
        monkeypatch.setenv(name.lower(), "http://127.0.0.1:1")
    with Client("https://example.org", "token") as client:
        assert not client._http.trust_env
        assert set(client._http._mounts.values()) <= {None}
        assert "token" not in repr(client)


def test_a_service_that_is_away():
    with socket.socket() as taken:  # a port that nobody listens at
        taken.bind(("127.0.0.1", 0))
        with (
            Client(f"http://127.0.0.1:{taken.getsockname()[1]}", "token", verify=TLS) as client,
            pytest.raises(ServiceError),
        ):
            client.attributes()


@pytest.mark.parametrize(
    ("status", "content", "error", "named"),
    [
        (500, b"<html>", ServiceError, "500"),
        (429, b'{"error": "too many"}', ServiceError, "too many"),
        (302, b"", ServiceError, "302"),
        (413, b'{"error": "too large"}', InputError, "too large"),
        (403, b'{"error": "no"}', PrivacyError, "no"),
        (200, b'{"hits": [{"number": 1}]}', ServiceError, "version"),
    ],
)
def test_what_other_servers_say(status, content, error, named):
    with answering(status, content) as client, pytest.raises(error, match=named):
        client.search("index", b"picture")


def test_fields_of_later_versions_are_ignored():
    with answering(200, b'{"hits": [{"number": 1, "nearness": 2.5, "colour": "red"}]}') as client:
        assert client.search("index", b"picture") == (Hit(1, 2.5),)


def answering(status, content):
    """A client whose service always says the same."""
    client = Client("https://example.org", "token", verify=TLS)
    client.close()
    answer = httpx.MockTransport(lambda request: httpx.Response(status, content=content))
    client._http = httpx.Client(base_url="https://example.org", transport=answer)
    return client


def test_another_service_witnesses_the_log(start, tmp_path, monkeypatch):
    other, folder = start(), tmp_path / "own"
    monkeypatch.setenv("BLINDSIGHT_WITNESS_TOKEN", other.tokens["rival"])
    gateway = open_service(folder, witnesses=(other.url,))
    gateway.audit.append("operator-1", "anything")
    noted, key = gateway.audit.head(), gateway.audit._key
    gateway.close()  # tells what was not told yet
    assert other.as_("ann").witnessed_head(noted.key)["root"] == noted.root
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "log.key").write_text(key.secret_bytes().hex())
    with pytest.raises(CorruptFileError, match="saw 1 entries"):
        open_service(folder, witnesses=(other.url,))
    forged = TreeHead.sign(key, 1, bytes(32), noted.time)
    with pytest.raises(PrivacyError, match="continue"):
        other.as_("ann").witness_head(asdict(forged), [])
    (entry,) = (one for one in other.as_("operator").log() if one.action == "refuse head")
    assert entry.details["head"] == str(forged)
    with pytest.raises(InputError, match="signed"):
        other.as_("ann").witness_head(asdict(noted) | {"root": "00" * 32}, [])
    with pytest.raises(ServiceError):  # a witness that does not answer
        open_service(folder, witnesses=("http://127.0.0.1:9",))


def test_a_caller_notices_a_log_that_does_not_continue(service):
    first = service.as_("weather").head()
    service.grant()
    given = service.as_("weather").release("ann", latest=1)
    second = service.as_("weather").head(first)
    assert second.size > first.size
    assert check_receipt(given.receipt)[1].size <= second.size
    forged = TreeHead.sign(service.gateway.audit._key, first.size, bytes(32), first.time)
    with pytest.raises(MessageError, match="cut or rewritten"):
        service.as_("weather").head(forged)


# --- receipts ---


def lying(service, client, answer):
    """Put a service that answers every release with the same into the place of the true one."""

    def handle(request):
        if request.url.path == "/v1/releases":
            return httpx.Response(200, json=answer)
        return httpx.Response(200, json=service.call("weather", "GET", str(request.url.copy_with(host=None))).json())

    client._http.close()
    client._http = httpx.Client(base_url=service.url, transport=httpx.MockTransport(handle))


def test_a_client_takes_no_old_receipt_for_a_new_release(service):
    for person in ("ann", "bob"):
        service.grant(person, "weather", frames=2)
    token = service.tokens["weather"]
    client = Client(service.url, token, verify=TLS)
    old = client.release("ann", latest=1)
    answer = {"grant": old.grant, "rows": old.rows, "labels": old.labels, "receipt": old.receipt}
    fresh = Client(service.url, token, verify=TLS)  # one that has seen no receipt
    for one, person, change in (
        (client, "ann", {}),
        (client, "bob", {}),
        (fresh, "ann", {}),
        (fresh, "ann", {"grant": 99}),
    ):
        lying(service, one, {**answer, **change})
        with pytest.raises(MessageError, match="receipt"):
            one.release(person, latest=1)
        one.close()


def test_an_identity_remembers_the_newest_head(service, tmp_path):
    service.grant("ann", "weather", frames=2)
    identity = Identity(service.url, "weather", "app", service.tokens["weather"])
    identity.save(tmp_path / "weather")
    with Client.of(identity, verify=TLS) as client:
        client.release("ann", latest=1)
        identity = client.seen(identity)
    identity.save(tmp_path / "weather", update=True)
    with pytest.raises(InputError, match="already"):
        replace(identity, token="another").save(tmp_path / "weather", update=True)
    again = Identity.load(tmp_path / "weather")
    assert again.head["size"] == service.gateway.audit.head().size
    with Client.of(again, verify=TLS) as client:
        client.release("ann", latest=1)
    key = SigningKey.generate()
    forked = TreeHead.sign(key, 3, bytes(32), again.head["time"])
    with Client.of(replace(again, head=asdict(forked)), verify=TLS) as client, pytest.raises(MessageError, match="log"):
        client.release("ann", latest=1)
