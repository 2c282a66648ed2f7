"""The Catalogue as tools of MCP: one for each operation, one text block of JSON for each answer, listed by profile."""

from collections.abc import Iterable

import mcp_types as types
import msgspec

from memory_svc.domain.memory import zone_of
from memory_svc.errors import Invalid
from memory_svc.services.operation import Catalogue
from memory_svc.settings import Settings
from memory_svc.transports.failures import failed
from memory_svc.transports.message import Context, call_in, caller_in, profile_in
from memory_svc.transports.schema import fitted, hints, input_schema

CORE = "core"
FULL = "full"
CORE_TOOLS = (
    "store",
    "recall",
    "get_contents",
    "update_memory",
    "delete_memory",
    "archive_episode",
    "list_memories",
    "get_profile",
    "update_profile",
    "find_tools",
)


class Tools:
    """The tools, made once. A profile says which are listed; every one can be called, listed or not."""

    def __init__(self, catalogue: Catalogue, settings: Settings) -> None:
        """Raises Invalid when the settings name a tool that there is not."""
        self._catalogue = catalogue
        self._zone = zone_of(settings.zone)
        self.schemas = {each.name: input_schema(each.request) for each in catalogue}
        self._default = settings.tools
        try:
            listed(self.schemas, self._default)
        except Invalid as error:
            raise Invalid(f"MEMORY_TOOLS: {error.text}") from error

    async def list(self, context: Context, _params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        """The tools of the connection's profile, in the order of the Catalogue.

        Raises Invalid when the profile names a tool that there is not.
        """
        names = listed(self.schemas, profile_in(context) or self._default)
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=each.name,
                    description=each.summary,
                    input_schema=self.schemas[each.name],
                    annotations=types.ToolAnnotations.model_validate(hints(each)),
                )
                for each in self._catalogue
                if each.name in names
            ]
        )

    async def call(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        """The answer of an operation, or its failure as a tool result."""
        arguments = fitted(params.arguments or {}, self.schemas.get(params.name, {}))
        try:
            answer = await self._catalogue.call(params.name, arguments, call_in(context, self._zone))
            return _result(msgspec.json.encode(answer))
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets an answer
            return _result(failed(error, caller_in(context).request_id).encoded(), is_error=True)


def listed(known: Iterable[str], profile: str) -> frozenset[str]:
    """The names that a profile lists: `core`, `full`, or names separated by commas, in any mixture.

    Raises Invalid naming those that there are not.
    """
    every = frozenset(known)
    wanted = {name.strip() for name in profile.split(",") if name.strip()}
    strange = sorted(wanted - every - {CORE, FULL})
    if strange or not wanted:
        told = ", ".join(repr(name[:80]) for name in strange[:5]) or repr(profile[:80])
        raise Invalid(f"tools: there is no {told}; give core, full, or names of tools separated by commas")
    if FULL in wanted:
        return every
    return every & (wanted | (set(CORE_TOOLS) if CORE in wanted else set()))


def _result(text: bytes, *, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text.decode())], is_error=is_error)
