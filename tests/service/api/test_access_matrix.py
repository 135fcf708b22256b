"""Every endpoint, asked by everybody: the table below is what happens, and it agrees with the table of access."""

import itertools
from dataclasses import asdict
from typing import Any

import pytest

from blindsight.crypto.merkle import EMPTY, TreeHead
from blindsight.crypto.signing import SigningKey
from blindsight.service.access import ACCESS

CALLERS = ("anonymous", "ann", "bob", "weather", "rival", "operator", "expired", "revoked", "device")
NAMES = itertools.count()

# What is asked for is ann's (or weather's). 403: not for this role, or not yours; 404: does not exist for you.
#                                            anonymous owner other  app other  operator expired revoked ann's device
MATRIX = {
    ("GET", "/v1/me"): "                         401   200   200   200   200   200      401     401   200",
    ("GET", "/v1/principals"): "                 401   403   403   403   403   200      401     401   403",
    ("POST", "/v1/principals"): "                401   403   403   403   403   201      401     401   403",
    ("DELETE", "/v1/principals/{id}"): "         401   403   403   403   403   200      401     401   403",
    ("GET", "/v1/platform"): "                   401   200   200   200   200   200      401     401   403",
    ("GET", "/v1/streams/{person}"): "           401   403   403   200   403   403      401     401   403",
    ("POST", "/v1/principals/{id}/enrolment"): " 401   403   403   403   403   201      401     401   403",
    ("POST", "/v1/me/token"): "                  401   201   201   201   201   201      401     401   403",
    ("DELETE", "/v1/people/{person}"): "         401   200   403   403   403   200      401     401   403",
    ("GET", "/v1/people/{person}/keys"): "       401   200   403   403   403   403      401     401   403",
    ("PUT", "/v1/people/{person}/keys"): "       401   422   403   403   403   403      401     401   403",
    ("GET", "/v1/attributes"): "                 401   200   200   200   200   200      401     401   403",
    ("GET", "/v1/people/{person}"): "            401   200   403   403   403   200      401     401   403",
    ("PUT", "/v1/people/{person}/private"): "    401   202   403   403   403   403      401     401   403",
    ("POST", "/v1/people/{person}/odometer"): "  401   202   403   403   403   202      401     401   403",
    ("GET", "/v1/people/{person}/frames"): "     401   200   403   403   403   403      401     401   403",
    ("POST", "/v1/people/{person}/frames"): "    401   201   403   403   403   403      401     401   201",
    ("POST", "/v1/people/{person}/frames/batch"): "401 200  403   403   403   403      401     401   200",
    ("PUT", "/v1/people/{person}/retention"): "  401   200   403   403   403   403      401     401   403",
    ("GET", "/v1/people/{person}/devices"): "    401   200   403   403   403   403      401     401   403",
    ("POST", "/v1/people/{person}/devices"): "   401   201   403   403   403   403      401     401   403",
    ("DELETE", "/v1/people/{person}/devices/{device}"): "401 200 403 403 403   403      401     401   403",
    ("GET", "/v1/people/{person}/log"): "        401   200   403   403   403   403      401     401   403",
    ("GET", "/v1/people/{person}/frames/{frame}"): "401 200  403   403   403   403      401     401   403",
    ("DELETE", "/v1/people/{person}/frames/{frame}"): "401 200 403 403   403   403      401     401   403",
    ("PUT", "/v1/apps/{app}/public"): "          401   403   403   200   403   403      401     401   403",
    ("POST", "/v1/proposals"): "                 401   403   403   202   202   403      401     401   403",
    ("GET", "/v1/proposals"): "                  401   200   200   200   200   200      401     401   403",
    ("GET", "/v1/proposals/{job}"): "            401   200   404   200   404   200      401     401   403",
    ("POST", "/v1/proposals/{job}/answer"): "    401   200   404   403   403   403      401     401   403",
    ("GET", "/v1/grants"): "                     401   200   200   200   200   200      401     401   403",
    ("POST", "/v1/grants/{number}/revocation"): "401   200   404   403   403   200      401     401   403",
    ("POST", "/v1/releases"): "                  401   403   403   200   403   403      401     401   403",
    ("POST", "/v1/releases/batch"): "            401   403   403   200   200   403      401     401   403",
    ("GET", "/v1/attackers"): "                  401   200   200   403   403   200      401     401   403",
    ("POST", "/v1/attackers"): "                 401   403   403   403   403   202      401     401   403",
    ("POST", "/v1/reviews"): "                   401   403   403   403   403   202      401     401   403",
    ("GET", "/v1/log"): "                        401   403   403   403   403   200      401     401   403",
    ("GET", "/v1/log/head"): "                   401   200   200   200   200   200      401     401   403",
    ("GET", "/v1/log/consistency"): "            401   200   200   200   200   200      401     401   403",
    ("POST", "/v1/witness"): "                   401   200   200   200   200   200      401     401   403",
    ("GET", "/v1/witness/{key}"): "              401   404   404   404   404   404      401     401   403",
    ("GET", "/v1/log/check"): "                  401   403   403   403   403   200      401     401   403",
    ("GET", "/v1/log/export"): "                 401   403   403   403   403   200      401     401   403",
    ("GET", "/v1/ledger"): "                     401   403   403   403   403   200      401     401   403",
    ("GET", "/v1/indexes"): "                    401   200   200   200   200   200      401     401   403",
    (
        "POST",
        "/v1/indexes/{name}/query",
    ): "      401   404   404   404   404   404      401     401   403",  # there is none
    ("GET", "/v1/indexes/{name}/file"): "        401   404   404   404   404   404      401     401   403",
    ("GET", "/v1/indexes/{name}/encrypted"): "   401   404   404   404   404   404      401     401   403",
    ("POST", "/v1/indexes/{name}/encrypted"): "  401   404   404   404   404   404      401     401   403",
    ("GET", "/v1/runs"): "                       401   200   200   403   403   200      401     401   403",
    ("GET", "/v1/runs/{name}"): "                401   404   404   403   403   404      401     401   403",
    ("GET", "/v1/statements"): "                 401   200   200   200   200   200      401     401   403",
    ("GET", "/v1/jobs/{job}"): "                 401   200   404   200   404   200      401     401   403",
    ("DELETE", "/v1/jobs/{job}"): "              401   403   404   200   404   200      401     401   403",
}
BODIES: dict[tuple[str, str], Any] = {
    ("PUT", "/v1/people/{person}/private"): {"attributes": ["smiling"]},
    ("PUT", "/v1/people/{person}/retention"): {"frames": 5000},
    ("PUT", "/v1/apps/{app}/public"): {"attributes": ["gender"]},
    ("POST", "/v1/proposals/{job}/answer"): {"answer": "refuse"},
    ("POST", "/v1/grants/{number}/revocation"): {"reason": "enough"},
    ("POST", "/v1/releases"): {"person": "ann", "latest": 1},
    ("POST", "/v1/releases/batch"): {"releases": [{"person": "ann", "latest": 1}]},
    ("POST", "/v1/witness"): {"head": asdict(TreeHead.sign(SigningKey.generate(), 0, EMPTY, "now"))},
    ("POST", "/v1/attackers"): {"name": "naive Bayes, tuned"},
    ("POST", "/v1/principals/{id}/enrolment"): {},
    ("PUT", "/v1/people/{person}/keys"): {"keys": {}},
}


def concrete(service, method, path):
    """Return a request for something of ann's or weather's that is there, made just for it."""
    sent: dict[str, Any] = {"json": BODIES[method, path]} if (method, path) in BODIES else {}
    values = {"person": "ann", "app": "weather", "name": "none", "key": "none"}
    more = 1 + sum(grant.released for grant in service.as_("weather").grants())  # than weather has got already
    if "{id}" in path:
        values["id"] = service.as_("operator").create_principal(f"passing {next(NAMES)}", "app")[0].id
    if (method, path) == ("POST", "/v1/proposals"):
        sent = {"json": {"person": "ann", "frames": more}}
    if (method, path) == ("POST", "/v1/principals"):
        sent = {"json": {"name": f"new {next(NAMES)}", "role": "app"}}
    if "frames" in path or "query" in path:
        sent = {"content": service.picture()} if method == "POST" else {}
        values["frame"] = service.as_("ann").add_frame(service.picture())
    if path.endswith("/frames/batch"):
        sent = {"files": [("pictures", ("a.png", service.picture()))]}
    if path.endswith("/devices"):
        sent = {"json": {"name": f"door {next(NAMES)}"}} if method == "POST" else {}
    if "{device}" in path:
        values["device"] = service.as_("ann").add_device(f"door {next(NAMES)}")[0].id
    if "{job}" in path:
        values["job"] = service.as_("weather").propose("ann", frames=more).id
        if "proposals" in path:
            service.work()
    if "{number}" in path or path == "/v1/releases" or "streams" in path:
        values["number"] = str(service.grant(frames=more))
    return path.format(**values), sent


@pytest.mark.parametrize(("method", "path"), list(ACCESS))
def test_matrix(shared_service, method, path):
    expected = dict(zip(CALLERS, map(int, MATRIX[method, path].split()), strict=True))
    address, sent = concrete(shared_service, method, path)
    found: dict[str, int] = {}
    for caller in sorted(CALLERS, key=lambda name: expected[name] < 400):  # who is refused comes first
        if 200 in found.values():  # what one may end is not there for the next
            address, sent = concrete(shared_service, method, path)
        if (method, path, expected[caller]) == ("DELETE", "/v1/people/{person}", 200):
            person, client = shared_service.enrolled(f"passing {next(NAMES)}", "owner")
            address, caller_now = f"/v1/people/{person.name}", caller if caller == "operator" else person.name
            shared_service.tokens[person.name] = client.rotate_token()
            client.close()
            answer = shared_service.call(caller_now, method, address)
        else:
            answer = shared_service.call(caller, method, address, **sent)
        found[caller] = answer.status_code
        if path == "/v1/me/token" and answer.status_code == 201:
            shared_service.renew(caller, answer.json()["token"])
        if answer.status_code >= 400:
            assert list(answer.json()) == ["error"]
    shared_service.work()
    assert found == expected


def test_table_and_matrix_agree():
    roles = {"ann": "owner", "weather": "app", "operator": "operator", "device": "device"}
    assert set(MATRIX) == set(ACCESS)
    for route, row in MATRIX.items():
        statuses = dict(zip(CALLERS, map(int, row.split()), strict=True))
        allowed = {role for caller, role in roles.items() if statuses[caller] != 403}
        assert allowed == ACCESS[route] or route == ("DELETE", "/v1/jobs/{job}")  # ann may, but only what she asked for


def test_refusals_change_nothing(shared_service):
    before = shared_service.gateway.audit.head().size
    for method, path in ACCESS:
        address = path.format(
            id="x", person="ann", frame="x", device="x", app="weather", job="x", number="1", name="x", key="x"
        )
        for caller in ("anonymous", "expired", "revoked"):
            sent = {"content": b"{", "headers": {"Content-Type": "application/json"}}
            answer = shared_service.call(caller, method, address, **sent)
            assert answer.status_code == 401  # before the body is looked at
            assert answer.headers["www-authenticate"] == "Bearer"
    added = shared_service.gateway.audit.entries(after=before)
    assert {entry.action for entry in added} <= {"refuse login"}  # which is noted once a minute


def test_what_is_no_bearer_token_opens_nothing(shared_service):
    token = shared_service.tokens["operator"]
    headers = ["", "Bearer", "Basic {}", "bearer x{}", "Bearer {}x", "Bearer {} {}", "Bearer é", "Bearer '; DROP TABLE"]
    sent = [{"Authorization": header.format(token, token).encode()} for header in headers]
    for header in [*sent, {"Cookie": f"blindsight_token={token}"}]:
        assert shared_service.call("anonymous", "GET", "/v1/me", headers=header).status_code == 401
    address = f"/v1/me?token={token}&authorization=Bearer+{token}"
    assert shared_service.call("anonymous", "GET", address).status_code == 401


def test_a_revoked_token_opens_nothing_from_the_next_request_on(shared_service):
    operator = shared_service.as_("operator")
    principal, passing = shared_service.enrolled(f"passing {next(NAMES)}", "app")
    header = {"Authorization": f"Bearer {passing.rotate_token()}"}
    passing.close()
    assert shared_service.call("anonymous", "GET", "/v1/me", headers=header).status_code == 200
    operator.revoke_principal(principal.id)
    assert shared_service.call("anonymous", "GET", "/v1/me", headers=header).status_code == 401
