"""The OpenAPI document: every operation, every failure, no loose end."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import msgspec
import pytest

from memory_svc.transports.failures import TABLE
from memory_svc.transports.openapi import openapi
from tests.support import toy_server

DOCUMENT = json.loads(msgspec.json.encode(openapi(toy_server.OPERATIONS)))


def inside(node: Any) -> Iterator[dict[str, Any]]:
    """Every object in the document."""
    if isinstance(node, dict):
        yield node
    for each in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from inside(each)


def test_every_operation_has_one_path() -> None:
    assert DOCUMENT["openapi"] == "3.1.0"
    assert list(DOCUMENT["paths"]) == [f"/v1/{each.name}" for each in toy_server.OPERATIONS]
    assert {path["post"]["operationId"] for path in DOCUMENT["paths"].values()} == {
        each.name for each in toy_server.OPERATIONS
    }


def test_every_reference_leads_somewhere() -> None:
    references = [node["$ref"] for node in inside(DOCUMENT) if "$ref" in node]
    assert references
    for reference in references:
        target = DOCUMENT
        for part in reference.removeprefix("#/").split("/"):
            target = target[part]
        assert isinstance(target, dict)


def test_every_schema_is_one() -> None:
    schemas = [node["schema"] for node in inside(DOCUMENT) if isinstance(node.get("schema"), dict)]
    for schema in [*schemas, *DOCUMENT["components"]["schemas"].values()]:
        jsonschema.Draft202012Validator.check_schema(schema)


def test_an_operation_needs_the_token_and_tells_its_answer_and_every_failure() -> None:
    assert DOCUMENT["security"] == [{"bearer": []}]
    assert DOCUMENT["components"]["securitySchemes"]["bearer"] == {"type": "http", "scheme": "bearer"}
    responses = DOCUMENT["paths"]["/v1/add"]["post"]["responses"]
    assert set(responses) == {"200", *(str(row.status) for row in TABLE.values())}
    assert responses["200"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Added"}


@pytest.mark.parametrize(("name", "required"), [("add", True), ("circumstances", False)])
def test_a_body_is_required_where_an_argument_is(name: str, required: bool) -> None:
    assert DOCUMENT["paths"][f"/v1/{name}"]["post"]["requestBody"]["required"] is required
