"""The typed client goes through the whole life of a grant; what a service refuses are the library's own errors."""

import io
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from blindsight.client import Client, Hit, sift_document
from blindsight.errors import InputError, PrivacyError, ServiceError, UnknownNameError
from blindsight.service.log import verify_export
from blindsight.service.shelf import Shelf
from blindsight.service.siftjson import sift_from_json


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def database_kind(request: pytest.FixtureRequest) -> str:
    """Services on both kinds of database."""
    return str(request.param)


def test_life_of_a_grant(service: Any, tmp_path: Any) -> None:
    ann, weather, operator = (service.as_(name) for name in ("ann", "weather", "operator"))
    assert weather.attributes() == ("age", "gender", "smiling")
    job = weather.propose("ann", frames=2)
    assert (job.kind, job.state, job.ended) == ("proposal", "queued", False)
    service.work()
    assert weather.wait(job.id).state == "done"
    (waiting,) = ann.proposals()
    assert (waiting.app, waiting.verdict, waiting.answer) == ("weather", "accept", None)
    with pytest.raises(PrivacyError, match="no grant"):
        weather.release("ann", latest=1)
    number = ann.answer(job.id, "allow").grant
    (grant,) = weather.grants()
    assert (grant.number, grant.standing, grant.public, grant.evidence) == (number, "live", ("gender",), None)
    out = weather.release("ann", frames=ann.frames()[:1])
    assert (out.grant, out.labels, out.rows[0][0] in (0, 1)) == (number, ("gender",), True)
    with pytest.raises(PrivacyError, match="Nothing was released"):
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
    assert operator.check_log().entries == len(actions)
    (tmp_path / "log.jsonl").write_text(operator.export_log())
    assert verify_export(tmp_path / "log.jsonl").ok


def test_a_change_of_mind_suspends_what_was_granted(service: Any) -> None:
    ann, weather = service.as_("ann"), service.as_("weather")
    service.grant()
    review = ann.set_private(["smiling", "gender"])  # which is what weather gets
    with pytest.raises(PrivacyError):
        weather.release("ann", latest=1)
    service.work()
    assert ann.wait(review.id).result == {"kept": [], "revoked": [1]}
    (grant,) = ann.grants()
    assert grant.standing == "revoked"


def test_sifts_arrive_as_they_were_sent(service: Any) -> None:
    sift = service.sift(0)
    same = sift_from_json(sift_document(sift), pipeline=sift.pipeline, dimension=sift.dimension)
    assert same.digest == sift.digest
    job = service.as_("weather").propose("ann", sift)
    service.work()
    assert service.as_("weather").proposal(job.id).verdict == "accept"
    assert service.as_("ann").answer(job.id, "fewer").next is not None


@pytest.mark.parametrize("kind", [[], {}, None, 1])
def test_a_kind_that_is_no_text_is_unknown(kind: Any) -> None:
    with pytest.raises(UnknownNameError, match="unknown kind of sift"):
        sift_from_json({"kind": kind}, pipeline="p", dimension=1)


def test_a_query_may_not_be_a_bomb(service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Shelf, "index", lambda self, name: SimpleNamespace(mode="local", side=8))
    stream = io.BytesIO()
    Image.new("1", (4_001, 4_000)).save(stream, "PNG")
    with pytest.raises(InputError, match="more than 16,000,000 pixels"):
        service.as_("weather").search("noisy", stream.getvalue())


def test_pictures_go_in_and_come_back_to_their_person(service: Any) -> None:
    ann = service.as_("ann")
    sent = service.picture(7)
    frame = ann.add_frame(sent)
    assert ann.frames()[-1] == frame
    came = np.asarray(Image.open(io.BytesIO(ann.picture(frame))))
    assert np.array_equal(came, np.asarray(Image.open(io.BytesIO(sent))))
    ann.delete_frame(frame)
    with pytest.raises(InputError, match="unknown frame"):
        ann.picture(frame)
    assert ann.person().frames == 2


def test_principals_come_and_go(service: Any) -> None:
    operator = service.as_("operator")
    made, token = operator.create_principal("zoe", "owner", days=7)
    assert made.expires is not None
    with Client(service.url, token) as zoe:
        assert zoe.me.name == "zoe"
        _, newer = operator.rotate_token(made.id)
        with pytest.raises(PrivacyError, match="valid token"):
            zoe.frames()
    with Client(service.url, newer) as zoe:
        assert zoe.frames() == ()
        assert operator.revoke_principal(made.id).revoked is not None
        with pytest.raises(PrivacyError, match="valid token"):
            zoe.frames()
    assert {one.name for one in operator.principals()} >= {"zoe", "ann", "weather"}
    with pytest.raises(InputError, match="taken"):
        operator.create_principal("zoe", "app")


def test_an_attacker_joins_and_everything_is_reviewed(service: Any) -> None:
    operator = service.as_("operator")
    job = service.as_("weather").propose("ann", service.sift(0)).id
    service.work()
    service.as_("ann").answer(job, "allow")
    (review,) = operator.add_attacker("naive Bayes, tuned")
    with pytest.raises(PrivacyError, match="suspended"):
        service.as_("weather").release("ann", latest=1)
    service.work()
    assert operator.job(review.id).result == {"kept": [1], "revoked": []}
    assert len(service.as_("weather").release("ann", latest=1).rows) == 1


def test_a_waiting_job_can_be_cancelled(service: Any) -> None:
    weather = service.as_("weather")
    job = weather.propose("ann")
    with pytest.raises(ServiceError, match="not finished"):
        weather.wait(job.id, seconds=0.0)
    assert weather.cancel(job.id).state == "cancelled"
    assert weather.wait(job.id).ended


@pytest.mark.parametrize("url", ["ftp://here", "here", "", "https://"])
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(InputError, match="address of a service"):
        Client(url, "token")


def test_a_token_does_not_travel_readable() -> None:
    with pytest.raises(InputError, match="Use https"):
        Client("http://example.org", "token")


def test_a_proxy_of_the_environment_does_not_get_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
        monkeypatch.setenv(name.lower(), "http://127.0.0.1:1")
    with Client("https://example.org", "token") as client:
        assert not client._http.trust_env
        assert set(client._http._mounts.values()) <= {None}


def test_a_token_is_not_shown(service: Any) -> None:
    assert service.tokens["ann"] not in repr(service.as_("ann"))


def test_a_service_that_is_away_or_another_one() -> None:
    with Client("http://127.0.0.1:1", "token") as client, pytest.raises(ServiceError, match="does not answer"):
        client.attributes()


@pytest.mark.parametrize(
    ("status", "content", "error", "sentence"),
    [
        (500, b"<html>", ServiceError, "not as a Blindsight service does"),
        (429, b'{"error": "too many"}', ServiceError, "too many"),
        (302, b"", ServiceError, "302"),
        (413, b'{"error": "too large"}', InputError, "too large"),
        (403, b'{"error": "no"}', PrivacyError, "no"),
        (200, b'{"hits": [{"number": 1}]}', ServiceError, "another version"),
    ],
)
def test_what_other_servers_say(status: int, content: bytes, error: type[Exception], sentence: str) -> None:
    with answering(status, content) as client, pytest.raises(error, match=sentence):
        client.search("index", b"picture")


def test_fields_of_later_versions_are_ignored() -> None:
    with answering(200, b'{"hits": [{"number": 1, "nearness": 2.5, "colour": "red"}]}') as client:
        assert client.search("index", b"picture") == (Hit(1, 2.5),)


def answering(status: int, content: bytes) -> Client:
    """A client whose service always says the same."""
    client = Client("https://example.org", "token")
    client.close()
    answer = httpx.MockTransport(lambda request: httpx.Response(status, content=content))
    client._http = httpx.Client(base_url="https://example.org", transport=answer)
    return client
