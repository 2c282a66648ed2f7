"""What a client is shown of the tools, and what that costs it."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
import quicktok
from mcp import Client

from memory_svc.services import OPERATIONS
from memory_svc.settings import Settings
from memory_svc.storage.interface import Storage
from memory_svc.transports.mcp import Mcp
from memory_svc.transports.schema import input_schema
from memory_svc.transports.tools import CORE_TOOLS
from tests.conftest import House

TOKENS_MAX = 4000


async def test_the_default_list_is_the_core_and_costs_at_most_4000_tokens(storage: Storage, settings: Settings) -> None:
    house = House(storage, msgspec.structs.replace(settings, embedding_url=""))
    async with Client(Mcp(house.catalogue, settings).connections, mode="legacy") as client:
        listed = await client.list_tools()
    await house.embedder.close()
    names = [tool.name for tool in listed.tools]
    assert names == [each.name for each in OPERATIONS if each.name in CORE_TOOLS]
    text = listed.model_dump_json(by_alias=True, exclude_none=True)
    tokens = len(quicktok.get_encoding("cl100k_base").encode_ordinary(text))
    assert 500 < tokens <= TOKENS_MAX


def test_no_tool_has_an_argument_that_is_told_in_a_header_too() -> None:
    assert "x-mcp-header" not in json.dumps([input_schema(each.request) for each in OPERATIONS])


def nodes(schema: Any) -> list[Mapping[str, Any]]:
    """Every schema inside a schema, itself first."""
    assert isinstance(schema, Mapping), schema
    inner = [*schema.get("properties", {}).values(), *schema.get("anyOf", ())]
    inner += [schema[key] for key in ("items", "additionalProperties") if key in schema]
    return [schema, *(node for each in inner for node in nodes(each))]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.name)
def test_every_client_accepts_the_schema(operation: Any) -> None:
    schema = input_schema(operation.request)
    for node in nodes(schema):
        assert isinstance(node.get("type", ""), str)
        assert node.get("type") != "null"
        assert ("items" in node) is (node.get("type") == "array")
        assert not {"$ref", "$defs", "default", "oneOf", "allOf", "not"} & set(node)
    assert set(schema.get("required", ())) <= set(schema["properties"])
    assert json.loads(json.dumps(schema)) == schema
