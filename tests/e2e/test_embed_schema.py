"""Whatever its OpenAPI document allows, and much that it does not, gets an answer that the document tells of."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.support.embed_model import FakeModel, Served

pytestmark = pytest.mark.e2e


CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
CALLS = [
    ("/embed", "POST"),
    ("/v1/embeddings", "POST"),
    ("/count_tokens", "POST"),
    ("/capabilities", "GET"),
    ("/livez", "GET"),
    ("/readyz", "GET"),
    ("/startupz", "GET"),
    ("/metrics", "GET"),
]
# Where nothing is taken, nothing can be wrong.
CASES = [(*call, mode) for call in CALLS for mode in GenerationMode if call[1] == "POST" or mode.is_positive]


@pytest.fixture(scope="module")
def document() -> Iterator[Any]:
    """The document of a server that is ready."""
    with Served(FakeModel()) as served:
        yield schemathesis.openapi.from_url(f"{served.url}/schema/openapi.json")


@pytest.mark.parametrize(("path", "method", "mode"), CASES)
def test_every_answer_is_one_that_the_document_tells_of(
    document: Any, path: str, method: str, mode: GenerationMode
) -> None:
    operation = document[path][method]

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(max_examples=30, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    def check(case: Any) -> None:
        case.call_and_validate(checks=CHECKS)

    check()


def test_every_route_of_the_document_is_called(document: Any) -> None:
    told = {(found.ok().path, found.ok().method.upper()) for found in document.get_all_operations()}
    assert told == set(CALLS)
