"""The document describes what the service does: every answer, an example of everything, and nothing else happens."""

from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import one_of
from pydantic import TypeAdapter

from blindsight.service import models
from blindsight.service.access import ACCESS, OPEN


@pytest.fixture(scope="module")
def document(shared_service):
    answer = shared_service.call("anonymous", "GET", "/v1/openapi.json")
    assert answer.status_code == 200
    return dict(answer.json())


def operations(document):
    return {
        (method.upper(), path): operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def test_document_holds_every_route_and_who_may_use_it(document):
    described = operations(document)
    assert set(described) == set(ACCESS) | {("GET", "/v1/health"), ("GET", "/v1/ready"), ("POST", "/v1/enrolment")}
    assert {route: frozenset(described[route]["x-roles"]) for route in ACCESS} == ACCESS
    assert all(described[route]["security"] == [{"token": []}] for route in ACCESS)
    assert all("security" not in operation for route, operation in described.items() if route in OPEN)


def test_every_refusal_is_described_and_has_one_shape(document):
    for (method, path), operation in operations(document).items():
        if (method, path) in OPEN:
            continue
        answers = operation["responses"]
        assert {"401", "403", "422", "429", "503"} <= set(answers)
        assert len({"200", "201", "202"} & set(answers)) == 1
        assert ("requestBody" not in operation) or {"400", "413"} <= set(answers)
        assert ("{" not in path) or "404" in answers or path == "/v1/apps/{app}/public"
        for status, answer in answers.items():
            if int(status) >= 400:
                assert answer["content"]["application/json"]["schema"]["$ref"].endswith("/Problem")
        assert operation["description"]


def test_every_body_has_an_example_that_is_valid(document):
    schemas = document["components"]["schemas"]
    kinds = vars(models) | {kind.__name__: kind for kind in models.EXAMPLES}
    shown = []
    for name, schema in schemas.items():
        if schema.get("type") != "object":
            continue
        (example,) = schema["examples"]
        TypeAdapter(kinds[name]).validate_python(example)
        assert set(schema.get("required", ())) <= set(example) <= set(schema["properties"])
        shown.append(name)
    assert len(shown) > 40


def test_no_body_has_text_or_a_list_without_an_end(document):
    requests = {
        operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        for operation in operations(document).values()
        if "application/json" in operation.get("requestBody", {}).get("content", {})
    }
    assert requests == {one.__name__ for one in models.Request.__subclasses__()} - {"SignedHead"}
    for name in requests:
        schema = document["components"]["schemas"][name]
        assert schema["additionalProperties"] is False
        for field in schema["properties"].values():
            for part in field.get("anyOf", [field]):
                bounded = {"string": "maxLength", "array": "maxItems", "integer": "maximum"}.get(part.get("type", ""))
                assert bounded is None or bounded in part or "enum" in part


ROLES = ("ann", "weather", "operator", "device")


def explore(service, examples):
    """Send generated requests, right and wrong ones, to every operation and to things that are there, as everybody."""
    import schemathesis  # slow to import
    from schemathesis import GenerationMode
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks as openapi

    checks = [not_a_server_error, openapi.status_code_conformance]
    checks += [openapi.content_type_conformance, openapi.response_schema_conformance]
    described = schemathesis.openapi.from_url(f"{service.url}/v1/openapi.json")
    existing = {
        "person": "ann",
        "app": "weather",
        "frame": service.as_("ann").frames()[0],
        "job": service.as_("weather").propose("ann").id,
        "number": service.grant(app="rival"),
        "id": service.as_("rival").me.id,
        "device": service.as_("ann").devices()[0].id,
    }
    statuses: Counter[int] = Counter()
    for operation in (found.ok() for found in described.get_all_operations()):
        known = {name: value for name, value in existing.items() if f"{{{name}}}" in operation.path}
        kinds = [operation.as_strategy(path_parameters=known or None)]
        if operation.path_parameters or operation.query or operation.body:
            kinds += [operation.as_strategy(), operation.as_strategy(GenerationMode.NEGATIVE)]

        @settings(max_examples=examples, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
        @given(one_of(kinds))
        def send(case):
            for role in ROLES:
                answer = case.call(headers={"Authorization": f"Bearer {service.tokens[role]}"})
                case.validate_response(answer, checks=checks)
                statuses[answer.status_code] += 1

        send()
    return statuses


@pytest.mark.parametrize("examples", [2, pytest.param(60, marks=pytest.mark.slow)])
def test_generated_requests_get_only_described_answers(service, examples):
    statuses = explore(service, examples)
    assert statuses.total() > 60 * examples
    assert any(status < 300 for status in statuses)
