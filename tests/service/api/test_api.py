"""What comes in is refused with a sentence or taken as it is; to an app no picture and no feature ever goes out."""

import io
import json
import re
from typing import Any

import numpy as np
import pytest
from fastapi import APIRouter, FastAPI
from PIL import Image
from smallservice import linear
from sqlalchemy import text as sql

from blindsight.crypto.merkle import check_receipt
from blindsight.data.images import decode
from blindsight.dp import Ledger
from blindsight.dp.accounting import BoundedLoss
from blindsight.errors import PrivacyError
from blindsight.search.building import BuildOptions, build_gallery
from blindsight.search.encrypted_query import QueryBudget, QuerySetup
from blindsight.search.gallery import Gallery, Source
from blindsight.service.access import ACCESS, GuardedRoute, check_routes
from blindsight.statement import PrivacyStatement

NASTY = ["<script>alert(1)</script>", "'; DROP TABLE principals; --", '" OR 1=1 --', "../../../etc/passwd"]
NASTY += ["..%2f..%2fetc%2fpasswd", "{{7*7}}${7*7}", "\u202egnp.exe", "nul\x00byte", "\ud800", "a" * 5000, "", " "]
"""Text that has broken other services."""

JSON = {"Content-Type": "application/json"}


def body(value):
    """Send JSON as it is, lone surrogates and NaN included."""
    return {"content": json.dumps(value).encode(), "headers": JSON}


# --- text in every field ---


@pytest.mark.parametrize(
    ("caller", "method", "path", "sent"),
    [
        ("operator", "POST", "/v1/principals", lambda text: {"name": text, "role": "app"}),
        ("operator", "POST", "/v1/principals", lambda text: {"name": "zoe", "role": text}),
        ("operator", "POST", "/v1/attackers", lambda text: {"name": text}),
        ("ann", "PUT", "/v1/people/ann/private", lambda text: {"attributes": [text]}),
        ("ann", "POST", "/v1/proposals/x/answer", lambda text: {"answer": text}),
        ("ann", "POST", "/v1/grants/1/revocation", lambda text: {"reason": text}),
        ("weather", "PUT", "/v1/apps/weather/public", lambda text: {"attributes": [text]}),
        ("weather", "POST", "/v1/proposals", lambda text: {"person": text}),
        ("weather", "POST", "/v1/proposals", lambda text: {"person": "ann", "then": text}),
        ("weather", "POST", "/v1/proposals", lambda text: {"person": "ann", "sift": {text: text, "kind": text}}),
        ("weather", "POST", "/v1/releases", lambda text: {"person": text, "latest": 1}),
        ("weather", "POST", "/v1/releases", lambda text: {"person": "ann", "frames": [text]}),
        ("weather", "POST", "/v1/releases", lambda text: {"person": "ann", text: 1}),
    ],
)
def test_nasty_text_in_bodies(shared_on_each, caller, method, path, sent):
    for text in NASTY:
        answer = shared_on_each.call(caller, method, path, **body(sent(text)))
        assert answer.status_code in (200, 201, 202, 400, 403, 404, 422), (text, answer.text)
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["x-content-type-options"] == "nosniff"
    shared_on_each.work()  # proposals about nobody are denied
    assert shared_on_each.call("operator", "GET", "/v1/principals").status_code == 200
    assert shared_on_each.as_("operator").check_log().ok


def test_names_are_kept_as_they_are_or_refused_where_no_address_could_hold_them(shared_on_each):
    name = "<b>Robert'); DROP TABLE principals;-- ?#%2e & é"
    made, client = shared_on_each.enrolled(name, "owner")
    with client as robert:
        assert robert.me.id == made.id
        robert.set_private(["smiling"])
        assert robert.me.name == robert.person().person == name
    for wrong in ("a/b", "..", ".", "a\\b"):
        answer = shared_on_each.call("operator", "POST", "/v1/principals", json={"name": wrong, "role": "owner"})
        assert answer.status_code == 422


@pytest.mark.parametrize("path", sorted({path for _, path in ACCESS if "{" in path}))
def test_nasty_text_in_addresses(shared_on_each, path):
    methods = [method for method, known in ACCESS if known == path]
    quoted = ["..%2f..%2f..%2fetc%2fpasswd", "..%5c..%5cservice.db", "%00", "%2e%2e", "%3Cscript%3E", "'%20OR%201=1"]
    for text in [*quoted, "9" * 400, "%ed%a0%80", "a" * 4000]:
        for method in methods:
            for caller in ("ann", "weather", "operator"):
                address = re.sub(r"{\w+}", text, path)
                answer = shared_on_each.call(caller, method, address, **body({"attributes": ["smiling"]}))
                assert 400 <= answer.status_code < 500, (address, answer.text)
                assert "root:" not in answer.text
                assert "SQLite" not in answer.text
                assert "psycopg" not in answer.text


def test_injected_characters_in_queries(shared_service):
    for query in ("after=1;DROP", "after=-1", "limit=0", "limit=1e9", "after=%00", f"after={'9' * 5000}"):
        assert shared_service.call("operator", "GET", f"/v1/log?{query}").status_code == 422
    for query in ("delta=nan", "delta=0", "delta=1", "delta=x", "delta=-inf"):
        assert shared_service.call("operator", "GET", f"/v1/ledger?{query}").status_code == 422


# --- bodies that are no bodies ---


def test_malformed_bodies_are_refused_without_repeating_them(shared_service):
    secret = "my-secret-" + "x" * 30
    cases = [b"", b"{", b"null", b"[]", b'"text"', b"\xff\xfe", b"[" * 100_000, b'{"person": ' + b"9" * 5000 + b"}"]
    cases += [json.dumps({"person": secret * 9, secret: secret, "latest": secret}).encode()]
    for content in cases:
        answer = shared_service.call("weather", "POST", "/v1/releases", content=content, headers=JSON)
        assert answer.status_code in (400, 422), content[:40]
        assert secret not in answer.text
        assert len(answer.json()["error"]) < 400
    assert shared_service.call("weather", "POST", "/v1/releases", content=b'{"person":"ann"}').status_code == 422


def test_what_is_too_much_or_no_picture_is_refused(start):
    service = start(body_bytes=10_000, pictures_bytes=10_000, picture_pixels=1_000_000, requests_per_minute=120)
    whole, bomb = b"x" * 10_001, io.BytesIO()
    Image.new("1", (2_000, 1_000)).save(bomb, "PNG")
    assert len(bomb.getvalue()) < 5_000
    unannounced = (whole[start : start + 1000] for start in range(0, 11_000, 1000))
    for content, status in ((whole, 413), (unannounced, 413), (bomb.getvalue(), 422), (b"", 422), (b"GIF89a", 422)):
        answer = service.call("ann", "POST", "/v1/people/ann/frames", content=content)
        assert answer.status_code == status
        assert list(answer.json()) == ["error"]
    assert service.as_("ann").frames() == ()
    answers = (service.call("ann", "GET", "/v1/me") for _ in range(10_000))
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert int(refused.headers["retry-after"]) >= 1


def test_sifts_that_cannot_be(shared_service):
    for sift, word in (
        (linear({2: float("nan")}), "finite"),
        ({"mean": [0.0], "scale": [1.0], "matrix": [[1.0]]}, "20"),
        (linear({2: 1.0}, code="print(1)"), "code"),
        ({"kind": "pickle", "arrays": {}}, "pickle"),
        ({}, "mean"),
    ):
        answer = shared_service.call("weather", "POST", "/v1/proposals", **body({"person": "ann", "sift": sift}))
        assert answer.status_code == 422
        assert word in answer.json()["error"]


def test_states_that_do_not_allow_it_are_conflicts(service):
    job = service.as_("weather").propose("ann").id
    early = service.call("ann", "POST", f"/v1/proposals/{job}/answer", json={"answer": "allow"})
    service.work()
    service.as_("ann").answer(job, "refuse")
    late = service.call("ann", "POST", f"/v1/proposals/{job}/answer", json={"answer": "allow"})
    again = service.call("ann", "POST", f"/v1/proposals/{job}/answer", json={"answer": "refuse"})
    ended = service.call("weather", "DELETE", f"/v1/jobs/{job}")
    taken = service.call("operator", "POST", "/v1/principals", json={"name": "ann", "role": "app"})
    assert [one.status_code for one in (early, late, again, ended, taken)] == [409, 409, 200, 409, 409]


# --- pages ---


def test_listings_come_in_pages(service):
    job = service.as_("weather").propose("ann").id
    others = [service.as_(app).propose("ann").id for app in ("rival", "weather")]
    service.work()
    for who, path, name, key in (
        ("operator", "/v1/principals", "principals", "id"),
        ("ann", "/v1/people/ann/frames", "frames", None),
        ("ann", "/v1/proposals", "proposals", "job"),
    ):
        whole = service.call(who, "GET", path).json()[name]
        found, after = [], ""
        while page := service.call(who, "GET", f"{path}?limit=1{after}").json()[name]:
            assert len(page) == 1
            found += page
            after = f"&after={page[0] if key is None else page[0][key]}"
        assert found == whole
        assert len(found) > 1
        assert service.call(who, "GET", f"{path}?after={'0' * 32}").status_code == 404
        assert service.call(who, "GET", f"{path}?limit=0").status_code == 422
    assert {one.job for one in service.as_("ann").proposals()} == {job, *others}
    number = service.grant()
    assert service.call("ann", "GET", "/v1/grants?limit=1").json()["grants"][0]["number"] == number
    assert service.call("ann", "GET", f"/v1/grants?after={number}").json()["grants"] == []


# --- several releases in one request ---


def test_of_several_releases_each_has_its_own_result_or_refusal(service_on_each):
    service = service_on_each
    service.grant(frames=2)
    asks = [{"person": "ann", "latest": 1}, {"person": "bob", "latest": 1}, {"person": "ann", "frames": ["0" * 32]}]
    before = service.gateway.audit.head().size
    given = service.call("weather", "POST", "/v1/releases/batch", json={"releases": [*asks, *asks[:1] * 2]})
    results = given.json()["results"]
    assert [one["status"] for one in results] == [200, 403, 404, 200, 403]
    assert results[0]["release"]["rows"] == results[3]["release"]["rows"] != []
    assert results[1] == {"status": 403, "error": results[1]["error"]}
    assert "verified" in results[4]["error"]  # the budget: two frames, of which this would be the third
    for one in (results[0], results[3]):
        record, head = check_receipt(one["release"]["receipt"])
        assert (record[3], head.size) == ("release", before + 5)  # one head for all, refusals included
    assert service.as_("ann").grants()[0].released == 2
    outcomes = service.as_("weather").release_each([("ann", 1), ("bob", 1)])
    assert [type(one) for one in outcomes] == [PrivacyError, PrivacyError]
    for wrong in ({"releases": []}, {"releases": asks * 34}, {"releases": [{"person": "ann"}]}, {}):
        assert service.call("weather", "POST", "/v1/releases/batch", json=wrong).status_code == 422


def test_each_of_several_releases_counts_as_a_request(start):
    service = start(requests_per_minute=120)  # and so 20 at once
    asks = {"releases": [{"person": "ann", "latest": 1}] * 15}
    statuses = [service.call("weather", "POST", "/v1/releases/batch", json=asks).status_code for _ in range(2)]
    assert statuses[1] == 429


def test_a_token_or_grant_that_ends_is_dead_for_who_was_let_in_before(service_on_each):
    """The door remembers whose token it saw; that it has ended is found where the release is decided."""
    service = service_on_each
    service.grant(frames=1, then="repeat")
    ask = {"json": {"person": "ann", "latest": 1}}
    gateway, operator = service.gateway, service.as_("operator")
    assert [service.call("weather", "POST", "/v1/releases", **ask).status_code for _ in range(2)] == [200, 200]
    (app,) = (one for one in operator.principals() if one.name == "weather")
    with gateway.principals.database.session() as session:  # as another process would
        session.execute(sql("UPDATE principals SET revoked = 1 WHERE id = :id"), {"id": app.id})
    assert service.call("weather", "POST", "/v1/releases", **ask).status_code == 401
    assert service.call("weather", "POST", "/v1/releases/batch", json={"releases": [ask["json"]]}).status_code == 401
    with gateway.principals.database.session() as session:
        session.execute(sql("UPDATE principals SET revoked = NULL WHERE id = :id"), {"id": app.id})
    assert service.call("weather", "POST", "/v1/releases", **ask).status_code == 200
    service.as_("ann").revoke_grant(1, "enough")
    assert service.call("weather", "POST", "/v1/releases", **ask).status_code == 403


# --- what an app can ever see ---


def test_an_app_is_told_verdicts_and_nothing_that_a_person_hides(service):
    job = service.as_("weather").propose("ann", service.sift(1)).id  # shows what ann hides
    service.work()
    told = service.as_("weather").proposal(job)
    assert (told.verdict, told.sentence, told.evidence) == ("denied", None, None)
    assert not re.search(r"\d\.\d|%", json.dumps(service.as_("weather").job(job).result))
    assert "smiling" not in service.call("weather", "GET", f"/v1/proposals/{job}").text
    full = service.as_("ann").proposal(job)
    assert "smiling" in str(full.sentence)
    assert full.evidence is not None
    keys = service.as_("ann").epoch_keys()
    refused = service.call("ann", "POST", f"/v1/proposals/{job}/answer", json={"answer": "allow", "keys": keys})
    assert refused.status_code == 403
    assert service.call("weather", "POST", "/v1/releases", json={"person": "ann", "latest": 1}).status_code == 403
    service.grant()
    told = service.call("weather", "GET", "/v1/statements")
    assert len(told.json()["statements"]) == 2
    assert "smiling" not in told.text
    assert "smiling" in service.call("ann", "GET", "/v1/statements").text


def every_number(value):
    if isinstance(value, dict):
        return [number for part in value.values() for number in every_number(part)]
    if isinstance(value, list):
        return [number for part in value for number in every_number(part)]
    return [float(value)] if isinstance(value, int | float) and not isinstance(value, bool) else []


def test_no_app_endpoint_lets_pictures_or_features_out(service):
    job = service.as_("weather").propose("ann", frames=2).id
    service.work()
    service.as_("ann").answer(job, "allow")
    frames = service.as_("ann").frames()
    features = service.gateway.frames.features("ann", frames)
    bodies = {
        "/v1/proposals": {"json": {"person": "ann", "frames": 3}},
        "/v1/releases": {"json": {"person": "ann", "frames": list(frames)}},
        "/v1/releases/batch": {"json": {"releases": [{"person": "ann", "frames": [frame]} for frame in frames]}},
        "/v1/apps/{app}/public": {"json": {"attributes": ["gender"]}},
        "/v1/indexes/{name}/query": {"content": service.picture()},
    }
    seen = 0
    for (method, path), roles in ACCESS.items():
        if "app" not in roles or path in (
            "/v1/me/token",
            "/v1/streams/{person}",
        ):  # ends the token; tested alone
            continue
        for thing in (job, *frames):  # frames' ids where other ids belong find nothing either
            address = path.format(app="weather", job=thing, name=thing, key=thing)
            answer = service.call("weather", method, address, **bodies.get(path, {}))
            seen += answer.is_success
            assert answer.headers["content-type"] == "application/json"
            assert b"PNG" not in answer.content
            found = np.array(every_number(answer.json()))
            for row in features:
                assert np.isin(row, found).mean() < 0.1  # of 20 features, one may occur by chance
    assert seen >= 10
    for frame in frames:
        assert service.call("weather", "GET", f"/v1/people/ann/frames/{frame}").status_code == 403
        assert service.call("operator", "GET", f"/v1/people/ann/frames/{frame}").status_code == 403


# --- search and learn ---


@pytest.fixture
def local_index(service, tmp_path):
    """An index of noisy releases and an open one of the same pictures; returns the pictures."""
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (60, 16, 16, 3), dtype=np.uint8)
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number, pixels in enumerate(pictures):
        Image.fromarray(pixels).save(folder / f"{number}.png")
    source = Source("folder", str(folder), None, 0)
    library = service.gateway.settings.folder / "indexes"
    build_gallery(source, BuildOptions("local", 8.0, 1e-6, 16, "thumbnail", public_share=0.5), library / "noisy")
    build_gallery(source, BuildOptions("open", None, 1e-6, 16, "thumbnail"), library / "plain")
    shared = BuildOptions("open", None, 1e-6, 16, "thumbnail", public_share=0.5)
    build_gallery(source, shared, library / "asked")
    return pictures


def test_an_index_answers_with_numbers_only(service, local_index):
    stream = io.BytesIO()
    Image.fromarray(local_index[0]).save(stream, "PNG")
    modes = {"noisy": "local", "plain": "open", "asked": "open"}
    assert {index.name: index.mode for index in service.as_("weather").indexes()} == modes
    answer = service.call("weather", "POST", "/v1/indexes/noisy/query?k=3", content=stream.getvalue())
    assert answer.status_code == 200
    assert [sorted(hit) for hit in answer.json()["hits"]] == [["nearness", "number"]] * 3
    for caller, status in (("weather", 403), ("ann", 403), ("operator", 200)):  # codes without noise
        assert service.call(caller, "POST", "/v1/indexes/plain/query", content=stream.getvalue()).status_code == status
    assert service.call("ann", "POST", "/v1/indexes/noisy/query", content=b"no picture").status_code == 422
    assert service.call("ann", "POST", "/v1/indexes/noisy/query?k=0", content=stream.getvalue()).status_code == 422
    indexes = {"index noisy", "index plain", "index asked"}
    assert set(service.as_("weather").statements()) == {"pictures of people", *indexes}


def test_a_local_index_is_taken_home_and_no_other(service, local_index, tmp_path):
    home = Gallery.receive(service.as_("weather").take_index("noisy"), tmp_path / "home")
    stream = io.BytesIO()
    Image.fromarray(local_index[0]).save(stream, "PNG")
    asked = service.call("weather", "POST", "/v1/indexes/noisy/query?k=3", content=stream.getvalue()).json()["hits"]
    picture = decode(stream.getvalue(), size=home.side)
    assert [hit.number for hit in home.search(picture[None], 3)[0]] == [hit["number"] for hit in asked]
    for caller in ("weather", "ann", "operator"):
        assert service.call(caller, "GET", "/v1/indexes/plain/file").status_code == 403  # codes without noise
    assert len(service.as_("ann").take_index("noisy", numbers=False)) < len(service.as_("ann").take_index("noisy"))


def test_an_open_index_is_asked_under_encryption_within_its_budget(service, local_index):
    address = "/v1/indexes/asked/encrypted"
    asker = service.as_("weather")
    assert service.call("weather", "GET", address).status_code == 403  # the owner allowed none
    folder = service.gateway.settings.folder / "indexes" / "asked"
    QueryBudget(folder).allow(1)
    setup = QuerySetup.from_bytes(asker.query_setup("asked"))
    query = setup.encrypt(local_index[7])
    assert service.call("weather", "POST", address, content=query.message[:-1]).status_code == 400
    found = setup.nearest(query, asker.ask_encrypted("asked", query.message), 3)
    assert found == Gallery.load(folder).search(local_index[7:8], 3)[0]
    assert service.call("ann", "POST", address, content=query.message).status_code == 403  # spent
    assert service.call("ann", "GET", "/v1/indexes/noisy/encrypted").status_code == 422  # may be taken home
    QueryBudget(folder.parent / "plain").allow(1)
    for method, sent in (("GET", {}), ("POST", {"content": query.message})):  # a function learned from the pictures
        refused = service.call("ann", method, "/v1/indexes/plain/encrypted", **sent)
        assert (refused.status_code, "public pictures" in refused.text) == (403, True)


def test_runs_are_shown_without_paths_or_models(service):
    folder = service.gateway.settings.folder / "runs" / "digits"
    folder.mkdir(parents=True)
    about = {"schema": "blindsight/run", "version": 1, "data": "digits", "path": "/home/somebody", "owners": 5}
    (folder / "run.json").write_text(json.dumps(about | {"features": "pixels"}))
    (folder / "model.npz").write_bytes(b"weights")
    (folder / "history.json").write_text(json.dumps([{"round": 1, "score": 0.5}, {"round": 2, "score": 0.75}]))
    run = service.as_("ann").run("digits")
    assert (run.data, run.owners, run.rounds, run.score, run.finished) == ("digits", 5, 2, 0.75, False)
    assert "somebody" not in service.call("ann", "GET", "/v1/runs/digits").text
    nothing: Any = dict.fromkeys(("guarantee", "mechanism", "randomness"), "none")
    nothing |= dict.fromkeys(("unit", "epsilon", "delta"))
    statement = PrivacyStatement(**nothing, who_sees={"all": "all"}, not_protected=("anything",))
    (folder / "statement.json").write_text(statement.to_json())
    assert service.as_("ann").run("digits").finished
    assert "headline" in service.as_("ann").statements()["run digits"]
    assert "run digits" not in service.as_("weather").statements()
    (folder / "run.json").write_text("{")
    damaged = service.call("ann", "GET", "/v1/runs/digits")
    assert damaged.status_code == 503
    assert str(folder) not in damaged.text


def test_ledger_shows_what_was_spent(service):
    assert service.as_("operator").ledger() == ()
    ledger = Ledger(service.gateway.settings.folder / "ledger.jsonl")
    kind: Any = {"unit": "record", "neighbours": "replace"}
    ledger.spend(BoundedLoss(0.5), scope="pictures", **kind, mechanism="test", purpose="test")
    (row,) = service.as_("operator").ledger()
    assert (row["scope"], row["epsilon_basic"], row["budget"]) == ("pictures", 0.5, None)


# --- the door itself ---


def nothing(): ...


def test_a_route_that_nobody_was_given_access_to_cannot_be_made_nor_one_without_a_guard():
    router = APIRouter(prefix="/v1", route_class=GuardedRoute)
    with pytest.raises(RuntimeError, match="/v1/secrets"):
        router.add_api_route("/secrets", nothing, methods=["GET"])
    app = FastAPI()
    app.add_api_route("/v1/me", nothing, methods=["GET"])
    with pytest.raises(RuntimeError, match="/v1/me"):
        check_routes(app.routes)


def test_what_goes_wrong_inside_tells_nothing(shared_service, monkeypatch):
    def fail():
        raise ZeroDivisionError("the secret is 42")

    monkeypatch.setattr(shared_service.gateway, "attributes", fail)
    answer = shared_service.call("ann", "GET", "/v1/attributes")
    assert answer.status_code == 500
    assert list(answer.json()) == ["error"]
    assert "42" not in answer.text


def test_unknown_addresses_and_methods(shared_service):
    assert list(shared_service.call("ann", "GET", "/v1/nothing").json()) == ["error"]
    assert shared_service.call("ann", "PATCH", "/v1/me").status_code == 405
    assert shared_service.call("anonymous", "GET", "/v1/health").json()["status"] == "ok"
    for path in ("/v1/nothing", "/docs", "/redoc", "/openapi.json"):
        assert shared_service.call("operator", "GET", path).status_code == 404
