"""The OpenAPI 3.1 document of `POST /v1/<operation>`, read off the Catalogue."""

from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

import msgspec

from memory_svc.services.operation import Operation
from memory_svc.transports.caller import DEADLINE_HEADER, IDEMPOTENCY_HEADER, ZONE_HEADER
from memory_svc.transports.failures import ROWS, TABLE
from memory_svc.transports.schema import input_schema

SCHEMAS = "#/components/schemas/"
HEADERS = (
    (IDEMPOTENCY_HEADER, "A call repeated with the same key is carried out once. At most 200 characters."),
    (ZONE_HEADER, "IANA name of the time zone in which instants without one are read, such as Asia/Tokyo."),
    (DEADLINE_HEADER, "Milliseconds that the caller waits; the call is given up then, or at the server's own limit."),
)


def openapi(operations: Iterable[Operation], prefix: str = "") -> dict[str, Any]:
    """The whole document, as plain values ready for JSON. prefix: the path beneath which all its paths are."""
    found = tuple(operations)
    results = {each.result for each in found}
    shapes, named = msgspec.json.schema_components(
        sorted(results, key=lambda each: each.__qualname__), ref_template=SCHEMAS + "{name}"
    )
    shape_of = dict(zip(sorted(results, key=lambda each: each.__qualname__), shapes, strict=True))
    return {
        "openapi": "3.1.0",
        "info": {"title": "agent-memory", "version": version("agent-memory"), "description": "A memory for AI agents."},
        "servers": [{"url": prefix or "/"}],
        "security": [{"bearer": []}],
        "paths": {f"/v1/{each.name}": {"post": _post(each, shape_of[each.result])} for each in found},
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "parameters": {name: _header(name, words) for name, words in HEADERS},
            "responses": {row.problem.kind: _failure(row.meaning) for row in ROWS},
            "schemas": {**named, "Failure": FAILURE},
        },
    }


def _post(operation: Operation, result: dict[str, Any]) -> dict[str, Any]:
    arguments = input_schema(operation.request)
    return {
        "operationId": operation.name,
        "description": operation.summary,
        "parameters": [{"$ref": f"#/components/parameters/{name}"} for name, _ in HEADERS],
        "requestBody": {"required": "required" in arguments, "content": {"application/json": {"schema": arguments}}},
        "responses": {
            "200": {"description": "Done.", "content": {"application/json": {"schema": result}}},
            **{str(row.status): {"$ref": f"#/components/responses/{row.problem.kind}"} for row in ROWS},
        },
    }


def _header(name: str, words: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "description": words, "schema": {"type": "string"}}


def _failure(meaning: str) -> dict[str, Any]:
    return {"description": meaning, "content": {"application/json": {"schema": {"$ref": f"{SCHEMAS}Failure"}}}}


FAILURE: dict[str, Any] = {
    "type": "object",
    "description": "Why a call failed. Further keys may follow.",
    "properties": {
        "ok": {"const": False},
        "error": {"type": "string", "description": "What is wrong and how to mend it."},
        "code": {"type": "string", "enum": list(TABLE)},
        "retry": {"type": "boolean", "description": "Whether the same call may succeed a little later."},
        "retry_after_seconds": {"type": "number"},
        "request_id": {"type": "string", "description": "Names this request in the server's log."},
    },
    "required": ["ok", "error", "code", "retry", "request_id"],
}
