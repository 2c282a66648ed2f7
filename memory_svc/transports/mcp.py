"""The Catalogue as an MCP server: one tool for each operation, one text block of JSON for each answer."""

from importlib.metadata import version
from typing import Any

import mcp_types as types
import msgspec
from mcp.server import Server
from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext

from memory_svc.domain.memory import zone_of
from memory_svc.services.operation import Call, Catalogue
from memory_svc.settings import Settings
from memory_svc.transports.caller import IDEMPOTENCY_META, ZONE_META, Caller, Names, call_for, caller_of, local_caller
from memory_svc.transports.failures import failed
from memory_svc.transports.schema import fitted, hints, input_schema

NAME = "agent-memory"
TOOLS_FRESH_MILLISECONDS = 300_000
INSTRUCTIONS = (
    "A memory that lasts beyond this conversation. Recall before you answer what may have come up before: "
    "in the answer of recall the last message is the best match, and long ones are cut (get_contents has them whole). "
    "Store what will still matter later, one fact a call, as a whole sentence that can be understood by itself, with "
    "names and dates instead of 'he' or 'yesterday'. After store, branch on `result`: stored, skipped (already there) "
    "or rejected. A failed call has ok: false, says in `error` how to mend it, and in `retry` whether to try again."
)
Context = ServerRequestContext[dict[str, Any], Any]


def build_server(catalogue: Catalogue, settings: Settings) -> Server[dict[str, Any]]:
    """A server of the SDK that lists and calls the operations of the Catalogue, over HTTP or stdio."""
    tools = _Tools(catalogue, settings)
    return Server(
        NAME,
        version=version(NAME),
        title="Agent memory",
        instructions=INSTRUCTIONS,
        cache_hints={"tools/list": CacheHint(ttl_ms=TOOLS_FRESH_MILLISECONDS, scope="private")},
        get_tool_input_schema=tools.schemas.get,
        on_list_tools=tools.list,
        on_call_tool=tools.call,
    )


class _Tools:
    """The tools, made once."""

    def __init__(self, catalogue: Catalogue, settings: Settings) -> None:
        self._catalogue = catalogue
        self._zone = zone_of(settings.zone)
        self.schemas = {each.name: input_schema(each.request) for each in catalogue}
        self._listed = types.ListToolsResult(
            tools=[
                types.Tool(
                    name=each.name,
                    description=each.summary,
                    input_schema=self.schemas[each.name],
                    annotations=types.ToolAnnotations.model_validate(hints(each)),
                )
                for each in catalogue
            ]
        )

    async def list(self, _context: Context, _params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        """Every tool, in the order of the Catalogue."""
        return self._listed

    async def call(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        """The answer of an operation, or its failure as a tool result."""
        caller = caller_of(context.request.scope) if context.request else local_caller()
        arguments = params.arguments or {}
        try:
            found = self._catalogue.call(
                params.name, fitted(arguments, self.schemas.get(params.name, {})), self._circumstances(context, caller)
            )
            return _result(msgspec.json.encode(await found))
        except Exception as error:  # noqa: BLE001
            return _result(failed(error, caller.request_id).encoded(), is_error=True)

    def _circumstances(self, context: Context, caller: Caller) -> Call:
        """What the message itself says goes before the headers of the request that carried it."""
        meta = dict(context.meta or {})
        names = Names(meta.get(IDEMPOTENCY_META), meta.get(ZONE_META))
        if context.request is None:
            return call_for(caller, "mcp-stdio", names, self._zone)
        return call_for(caller, "mcp-http", names.over(Names.of_headers(context.request.headers)), self._zone)


def _result(text: bytes, *, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text.decode())], is_error=is_error)
