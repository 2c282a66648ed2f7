"""Memories, episodes and profiles as resources of MCP: read and listed by asking the Catalogue, so its rules hold."""

import base64
import binascii
import datetime as dt
from collections.abc import Mapping
from typing import Any, Literal

import mcp_types as types
import msgspec

from memory_svc.domain.memory import Kind, Ref, zone_of
from memory_svc.domain.text import preview
from memory_svc.errors import Invalid, NotFound
from memory_svc.services.operation import Call, Catalogue
from memory_svc.settings import Settings
from memory_svc.transports.addresses import EPISODE_TEMPLATE, MEMORY_TEMPLATE, PROFILE, PROFILE_TEMPLATE, Address
from memory_svc.transports.message import Context, call_in

PAGE_ROWS = 100
MEMORIES_MAX = 500
EPISODES_MAX = 200
PROFILES_MAX = 20
TITLE_CHARS = 80
PLAIN = "text/plain"
TEMPLATES = (
    (MEMORY_TEMPLATE, "memory", "One memory, whole. `agent` is percent-encoded and may be empty."),
    (EPISODE_TEMPLATE, "episode", "The summary of one episode. `agent` is percent-encoded and may be empty."),
    (PROFILE_TEMPLATE, "profile", "The profile of the one an agent serves. `agent` is percent-encoded."),
)


class Row(msgspec.Struct, frozen=True):
    """One row of the list. Ordered by `place`, newest last."""

    created_at: str
    address: Address
    title: str

    @property
    def place(self) -> tuple[str, str, int]:
        """Where it stands: by instant, then kind, then id."""
        kind, _, id = self.address.name.partition(":")
        return self.created_at, kind, int(id)


class Place(msgspec.Struct, frozen=True, array_like=True):
    """The last row of a page, in its cursor."""

    created_at: str
    kind: str
    id: int


class Resources:
    """The handlers of the SDK. What is refused is a Problem, told as every other is."""

    def __init__(self, catalogue: Catalogue, settings: Settings) -> None:
        self._catalogue = catalogue
        self._zone: dt.tzinfo = zone_of(settings.zone)

    async def page(self, context: Context, params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        """A page of the newest rows, newest first; before the first page the profiles of the agents among them.

        Raises Invalid for a cursor that is none of ours.
        """
        call = call_in(context, self._zone)
        cursor = params.cursor if params else None
        rows = await self._rows(call)
        before = _place(cursor) if cursor else None
        left = [row for row in rows if before is None or row.place < msgspec.structs.astuple(before)]
        profiles = await self._profiles(call, rows) if before is None else []
        shown = left[:PAGE_ROWS]
        return types.ListResourcesResult(
            resources=[*profiles, *(_resource(row.address, row.title) for row in shown)],
            next_cursor=_cursor(shown[-1]) if len(left) > PAGE_ROWS else None,
        )

    async def templates(
        self, _context: Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        """How addresses are made."""
        made = [
            types.ResourceTemplate(uri_template=template, name=name, description=words, mime_type=PLAIN)
            for template, name, words in TEMPLATES
        ]
        return types.ListResourceTemplatesResult(resource_templates=made)

    async def read(self, context: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        """The text at an address.

        Raises NotFound when there is none for this caller.
        """
        uri = str(params.uri)
        text = await self._text(call_in(context, self._zone), address_at(uri))
        if text is None:
            raise not_found(uri)
        return types.ReadResourceResult(contents=[types.TextResourceContents(uri=uri, mime_type=PLAIN, text=text)])

    async def _text(self, call: Call, address: Address) -> str | None:
        if address.name == PROFILE:
            return (
                str((await self._catalogue.call("get_profile", {"agent_id": address.agent}, call))["profile"]) or None
            )
        arguments = {"agent_id": address.agent, "refs": [address.name]}
        items = (await self._catalogue.call("get_contents", arguments, call))["items"]
        return str(items[0]["content"]) if items else None

    async def _rows(self, call: Call) -> list[Row]:
        memories = await self._catalogue.call("list_memories", {"limit": MEMORIES_MAX}, call)
        episodes = await self._catalogue.call("list_episodes", {"limit": EPISODES_MAX}, call)
        rows = [_row(each, Kind.MEMORY, "content") for each in memories["memories"]]
        rows += [_row(each, Kind.EPISODE, "summary") for each in episodes["episodes"]]
        return sorted(rows, key=lambda row: row.place, reverse=True)

    async def _profiles(self, call: Call, rows: list[Row]) -> list[types.Resource]:
        """Those of the agents that wrote last."""
        agents = list(dict.fromkeys(row.address.agent for row in rows))[:PROFILES_MAX]
        addresses = [Address(agent, PROFILE) for agent in agents]
        texts = [await self._text(call, address) for address in addresses]
        return [_resource(address, text) for address, text in zip(addresses, texts, strict=True) if text]


def address_at(uri: str) -> Address:
    """The address in this text.

    Raises NotFound when it is none of ours.
    """
    address = Address.parse(uri)
    if address is None:
        raise not_found(uri)
    return address


def not_found(uri: str) -> NotFound:
    """The failure for an address at which there is nothing for this caller."""
    return NotFound(f"There is no resource {uri[:200]!r} for you; resources/templates/list tells their form", uri=uri)


def _row(listed: Mapping[str, Any], kind: Literal[Kind.MEMORY, Kind.EPISODE], text: str) -> Row:
    return Row(listed["created_at"], Address.of_row(listed["agent_id"], Ref(kind, listed["id"])), listed[text])


def _resource(address: Address, text: str) -> types.Resource:
    title = preview(" ".join(text.split()), TITLE_CHARS).strip()
    return types.Resource(uri=address.uri, name=address.name, title=title, mime_type=PLAIN)


def _cursor(row: Row) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(row.place)).decode()


def _place(cursor: str) -> Place:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(cursor), type=Place)
    except (ValueError, binascii.Error, msgspec.DecodeError) as error:
        raise Invalid("cursor: is none that this list gave; leave it out to begin anew") from error
