"""Resources over every wire that speaks MCP: listed, read, and announced when they change."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from mcp import Client
from mcp.client.subscriptions import ResourcesListChanged, ResourceUpdated
from mcp.shared.exceptions import MCPError

from memory_svc.settings import Settings
from memory_svc.storage.interface import Storage
from tests.conftest import House
from tests.support.wires import WIRES, Call, opened, over_mcp

MCP_WIRES = [wire for wire in WIRES if wire != "rest"]
PARAMS = [pytest.param(wire, marks=[pytest.mark.e2e] if wire.startswith("stdio") else []) for wire in MCP_WIRES]
BOUND = 10
pytestmark = pytest.mark.filterwarnings("ignore:resources/")


class Connection:
    """A client of one wire, a way to call tools, and what the client was told."""

    def __init__(self, client: Client, told: list[Any]) -> None:
        self.client = client
        self.call: Call = over_mcp(client)
        self.told = told

    async def until_told(self, wanted: set[str]) -> None:
        """Wait until the client was told of all of these."""
        for _ in range(BOUND * 50):
            if wanted <= {name_of(each) for each in self.told}:
                return
            await asyncio.sleep(0.02)
        raise AssertionError(f"told of {self.told}, not of {wanted}")


def name_of(told: Any) -> str:
    """The address that an announcement names, or `list`."""
    if isinstance(told, ResourcesListChanged):
        return "list"
    if isinstance(told, ResourceUpdated):
        return told.uri
    return str(told.params.uri) if told.method == "notifications/resources/updated" else "list"


@contextlib.asynccontextmanager
async def connection_over(wire: str, storage: Storage, settings: Settings, folder: Path) -> AsyncIterator[Connection]:
    """A connection over that wire to a server without embeddings."""
    house = House(storage, msgspec.structs.replace(settings, embedding_url=""))
    told: list[Any] = []

    async def hear(message: Any) -> None:
        if getattr(message, "method", "").startswith("notifications/resources/"):
            told.append(message)

    async with opened(wire, house.catalogue, house.catalogue.runtime.settings, folder, hear) as client:
        yield Connection(client, told)
    await house.embedder.close()


@pytest.fixture(params=PARAMS)
async def connection(
    request: pytest.FixtureRequest, storage: Storage, settings: Settings, tmp_path: Path
) -> AsyncIterator[Connection]:
    """A connection over each wire."""
    async with connection_over(request.param, storage, settings, tmp_path / "own") as opened:
        yield opened


async def text_at(client: Client, uri: str) -> str:
    """The text of a resource."""
    found: Any = (await client.read_resource(uri)).contents
    assert [(str(each.uri), each.mime_type) for each in found] == [(uri, "text/plain")]
    return str(found[0].text)


async def test_what_is_stored_is_listed_newest_first_and_read_whole(connection: Connection) -> None:
    await connection.call("store", agent_id="me", content="The staging database is called harbour. " * 40)
    await connection.call("archive_episode", agent_id="me", summary="Moved the database.")
    await connection.call("update_profile", agent_id="me", profile="likes tea")
    await connection.call("store", agent_id="", content="of nobody")
    listed = await connection.client.list_resources()
    assert [resource.uri for resource in listed.resources] == [
        "memory://me/profile",
        "memory:///mem:2",
        "memory://me/ep:1",
        "memory://me/mem:1",
    ]
    assert listed.next_cursor is None
    assert listed.resources[3].title == ("The staging database is called harbour. " * 2)[:80].strip()
    assert len(await text_at(connection.client, "memory://me/mem:1")) == 1599
    assert await text_at(connection.client, "memory://me/ep:1") == "[Episode] Moved the database."
    assert await text_at(connection.client, "memory://me/profile") == "likes tea"
    assert await text_at(connection.client, "memory:///mem:2") == "of nobody"


async def test_the_forms_of_addresses_are_told(connection: Connection) -> None:
    found = (await connection.client.list_resource_templates()).resource_templates
    assert [each.uri_template for each in found] == [
        "memory://{agent}/mem:{id}",
        "memory://{agent}/ep:{id}",
        "memory://{agent}/profile",
    ]


@pytest.mark.parametrize("agent", ["Me", "a/b", "会議 room", "x?y#z%", "a:b@c", "..", "É"])
async def test_any_agent_has_addresses(storage: Storage, settings: Settings, tmp_path: Path, agent: str) -> None:
    async with connection_over("mcp-http", storage, settings, tmp_path) as connection:
        await connection.call("store", agent_id=agent, content="one")
        uri = (await connection.client.list_resources()).resources[0].uri
        assert await text_at(connection.client, uri) == "one"


@pytest.mark.parametrize(
    "uri",
    [
        "memory://me/mem:9",
        "memory://other/mem:1",
        "memory:///mem:1",
        "memory://me/ep:1",
        "memory://me/profile",
        "memory://me/mem:1/more",
        "memory://me/task:1",
        "memory://%ff/mem:1",
        "memory://me",
        "file:///etc/passwd",
        "nonsense",
    ],
)
async def test_what_is_not_there_for_the_caller_is_not_found(
    storage: Storage, settings: Settings, tmp_path: Path, uri: str
) -> None:
    async with connection_over("mcp-http", storage, settings, tmp_path) as connection:
        await connection.call("store", agent_id="me", content="one")
        with pytest.raises(MCPError) as refused:
            await connection.client.read_resource(uri)
    assert refused.value.code == -32602
    assert (refused.value.data["uri"], refused.value.data["code"]) == (uri, "not_found")


async def test_the_list_is_given_in_pages_that_a_new_row_does_not_shift(
    storage: Storage, settings: Settings, tmp_path: Path
) -> None:
    async with connection_over("mcp-http", storage, settings, tmp_path) as connection:
        for number in range(230):
            await connection.call("store", agent_id="me", content=f"fact {number}")
        first = await connection.client.list_resources()
        await connection.call("store", agent_id="me", content="late")
        second = await connection.client.list_resources(cursor=first.next_cursor)
        third = await connection.client.list_resources(cursor=second.next_cursor)
        pages = [[resource.name for resource in page.resources] for page in (first, second, third)]
        assert [len(page) for page in pages] == [100, 100, 30]
        assert [name for page in pages for name in page] == [f"mem:{230 - number}" for number in range(230)]
        assert third.next_cursor is None
        with pytest.raises(MCPError, match="cursor"):
            await connection.client.list_resources(cursor="nonsense")


@pytest.fixture(params=["sse-legacy", pytest.param("stdio-legacy", marks=pytest.mark.e2e)])
async def session(
    request: pytest.FixtureRequest, storage: Storage, settings: Settings, tmp_path: Path
) -> AsyncIterator[Connection]:
    """A connection of the older handshakes that stays open."""
    async with connection_over(request.param, storage, settings, tmp_path / "own") as opened:
        yield opened


async def test_a_session_is_told_of_what_it_subscribed_to_and_of_nothing_else(session: Connection) -> None:
    await session.call("store", agent_id="me", content="one")
    await session.call("store", agent_id="me", content="two")
    await session.client.subscribe_resource("memory://me/mem:1")
    await session.client.subscribe_resource("memory://me/profile")
    await session.call("update_memory", memory_id=2, content="two again")
    await session.call("update_memory", memory_id=1, content="one again")
    await session.call("update_profile", agent_id="me", profile="likes tea")
    await session.until_told({"memory://me/mem:1", "memory://me/profile"})
    assert "memory://me/mem:2" not in {name_of(each) for each in session.told}
    session.told.clear()
    await session.call("delete_memory", memory_id=1)
    await session.until_told({"memory://me/mem:1", "list"})
    await session.client.unsubscribe_resource("memory://me/profile")
    session.told.clear()
    await session.call("update_profile", agent_id="me", profile="likes coffee")
    await session.call("store", agent_id="me", content="three")
    await session.until_told({"list"})
    assert {name_of(each) for each in session.told} == {"list"}


async def test_a_session_that_asked_for_nothing_is_told_nothing(session: Connection) -> None:
    await session.call("store", agent_id="me", content="one")
    await asyncio.sleep(0.5)
    assert session.told == []
    await session.client.list_resources()
    await session.call("store", agent_id="me", content="two")
    await session.until_told({"list"})


async def test_only_addresses_of_ours_can_be_subscribed_to(session: Connection) -> None:
    with pytest.raises(MCPError) as refused:
        await session.client.subscribe_resource("file:///etc/passwd")
    assert refused.value.data["code"] == "not_found"


async def test_where_nothing_can_be_pushed_none_is_promised(
    storage: Storage, settings: Settings, tmp_path: Path
) -> None:
    async with connection_over("mcp-http-legacy", storage, settings, tmp_path) as connection:
        told = connection.client.server_capabilities.resources
        assert told is not None
        assert (told.subscribe, told.list_changed) == (False, False)
        with pytest.raises(MCPError, match="Method not found"):
            await connection.client.subscribe_resource("memory://me/mem:1")


@pytest.mark.parametrize("wire", ["mcp-http-open", "sse", pytest.param("stdio", marks=pytest.mark.e2e)])
async def test_a_listen_stream_tells_of_what_it_asked_for(
    storage: Storage, settings: Settings, tmp_path: Path, wire: str
) -> None:
    async with connection_over(wire, storage, settings, tmp_path / "own") as connection:
        call = connection.call
        await call("store", agent_id="me", content="one")
        await call("store", agent_id="me", content="two")
        async with (
            asyncio.timeout(BOUND),
            connection.client.listen(
                resources_list_changed=True, resource_subscriptions=["memory://me/mem:1", "memory:///profile"]
            ) as events,
        ):
            await call("update_memory", memory_id=2, content="two again")
            await call("update_memory", memory_id=1, content="one again")
            assert await anext(events) == ResourceUpdated("memory://me/mem:1")
            await call("update_profile", agent_id="", profile="likes tea")
            told = [await anext(events), await anext(events)]
            assert told == [ResourceUpdated("memory:///profile"), ResourcesListChanged()]
            await call("delete_memory", memory_id=1)
            assert await anext(events) == ResourceUpdated("memory://me/mem:1")
            assert await anext(events) == ResourcesListChanged()


async def test_what_another_process_writes_is_announced_too(
    storage: Storage, settings: Settings, tmp_path: Path
) -> None:
    from memory_svc.storage.sqlite.engine import SqliteStorage
    from tests.support.corpus import put

    other = SqliteStorage(tmp_path / "memory.db")
    async with connection_over("sse-legacy", storage, settings, tmp_path) as connection:
        await connection.client.subscribe_resource("memory://a/mem:1")
        await other.apply(put("one"))
        await connection.until_told({"memory://a/mem:1", "list"})
    await other.close()
