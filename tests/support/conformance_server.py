"""What the official conformance suite asks for, on our HTTP app: its tools, resources and prompts in place of ours.

Ours are the app, the guard, the routing, the SDK's manager as we set it up, and the middleware that names requests. The
suite's fixtures are no operations, so the Catalogue's own tools and resources are proven elsewhere. Resources may be
subscribed to here because the suite asks for it; the server itself promises no such thing where it cannot push.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, PromptsListChanged, ToolsListChanged
from mcp.shared.exceptions import MCPError

from memory_svc.observe import configure_logging
from memory_svc.transports.http import build_app
from memory_svc.transports.mcp import Mcp
from memory_svc.transports.message import Context
from memory_svc.transports.serving import serve
from tests.support.toy_server import TOKEN, always_ready, settings_for, toy_catalogue

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="
STEP_SECONDS = 0.05
Json = dict[str, Any]
Answer = Awaitable[Json]
BUS = InMemorySubscriptionBus()
NO_ARGUMENTS: Json = {"type": "object", "properties": {}}
SCHEMA_2020: Json = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
SCHEMAS: dict[str, Json] = {
    "json_schema_2020_12_tool": SCHEMA_2020,
    "test_header": {
        "type": "object",
        "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
        "required": ["region"],
    },
}


def text(words: str) -> Json:
    """A block of text."""
    return {"type": "text", "text": words}


def embedded(uri: str, kind: str, words: str) -> Json:
    """A block that holds a resource."""
    return {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": words}}


IMAGE = {"type": "image", "data": PNG, "mimeType": "image/png"}
CONTENT: dict[str, list[Json]] = {
    "test_simple_text": [text("This is a simple text response for testing.")],
    "test_image_content": [IMAGE],
    "test_audio_content": [{"type": "audio", "data": WAV, "mimeType": "audio/wav"}],
    "test_embedded_resource": [
        embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    ],
    "test_multiple_content_types": [
        text("Multiple content types test:"),
        IMAGE,
        embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    ],
    "json_schema_2020_12_tool": [text("taken")],
    "test_header": [text("taken")],
    "test_streaming_elicitation": [text("nothing was asked")],
}


def form(message: str, name: str, kind: str = "string") -> Json:
    """A question to the user with one field."""
    schema = {"type": "object", "properties": {name: {"type": kind}}, "required": [name]}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def sampled(words: str, tokens: int) -> Json:
    """A question to the client's model."""
    messages = [{"role": "user", "content": text(words)}]
    return {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": tokens}}


ROOTS: Json = {"method": "roots/list", "params": {}}
NAME = form("What is your name?", "name")
CONFIRM = form("Please confirm", "ok", "boolean")
QUESTIONS: dict[str, list[dict[str, Json]]] = {
    "test_input_required_result_elicitation": [{"user_name": NAME}],
    "test_input_required_result_sampling": [{"capital_question": sampled("What is the capital of France?", 100)}],
    "test_input_required_result_list_roots": [{"client_roots": ROOTS}],
    "test_input_required_result_request_state": [{"confirm": CONFIRM}],
    "test_input_required_result_tampered_state": [{"confirm": CONFIRM}],
    "test_input_required_result_multiple_inputs": [
        {"user_name": NAME, "greeting": sampled("Generate a greeting", 50), "client_roots": ROOTS}
    ],
    "test_input_required_result_multi_round": [
        {"step1": form("Step 1: What is your name?", "name")},
        {"step2": form("Step 2: What is your favorite color?", "color")},
    ],
    "test_input_required_result_capabilities": [
        {"user_name": NAME, "greeting": sampled("Generate a greeting", 50), "client_roots": ROOTS}
    ],
    "test_input_required_result_prompt": [{"user_context": form("What context should the prompt use?", "context")}],
}
NEEDS = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}
STATELESS_QUESTIONS = {"test_input_required_result_elicitation", "test_input_required_result_prompt"}


def declared(context: Context) -> Json:
    """What the client says that it can do."""
    found = context.session.client_capabilities
    return found.model_dump(by_alias=True, exclude_none=True) if found else {}


def asked(context: Context, name: str, params: Any) -> Json | None:
    """What is still to be asked before there is an answer; None = nothing."""
    rounds = QUESTIONS[name]
    given = {key for key, value in (params.input_responses or {}).items() if value}
    state = params.request_state
    at = int(state) if state else 0
    if at < len(rounds) and set(rounds[at]) <= given and (state or name in STATELESS_QUESTIONS or len(rounds) == 1):
        at += 1
    if at >= len(rounds):
        return None
    able = declared(context)
    questions = {key: each for key, each in rounds[at].items() if NEEDS[each["method"]] in able}
    answer: Json = {"resultType": "input_required", "inputRequests": questions or rounds[at]}
    return answer if name in STATELESS_QUESTIONS else {**answer, "requestState": str(at)}


async def with_questions(context: Context, params: types.CallToolRequestParams) -> Json:
    """Ask, and when all is said answer with it."""
    question = asked(context, params.name, params)
    if question:
        return question
    given = {key: str(value) for key, value in (params.input_responses or {}).items()}
    return {"content": [text(f"state-ok: {given}")]}


async def with_progress(context: Context, _params: types.CallToolRequestParams) -> Json:
    """Tell of progress thrice."""
    for done in (0, 50, 100):
        token = (context.meta or {}).get("progressToken") or (context.meta or {}).get("progress_token")
        if token is not None:
            told = types.ProgressNotificationParams(progress_token=token, progress=done, total=100)
            await context.session.send_notification(
                types.ProgressNotification(params=told), related_request_id=context.request_id
            )
        await asyncio.sleep(STEP_SECONDS)
    return {"content": [text("done")]}


async def with_logging(context: Context, _params: types.CallToolRequestParams) -> Json:
    """Log thrice."""
    for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        params = types.LoggingMessageNotificationParams(level="info", data=words)
        wanted = (context.meta or {}).get("io.modelcontextprotocol/logLevel")
        if context.protocol_version != "2026-07-28" or wanted:
            await context.session.send_notification(
                types.LoggingMessageNotification(params=params), related_request_id=context.request_id
            )
        await asyncio.sleep(STEP_SECONDS)
    return {"content": [text("done")]}


async def with_error(_context: Context, _params: types.CallToolRequestParams) -> Json:
    """Fail."""
    return {"content": [text("This tool intentionally returns an error for testing")], "isError": True}


async def with_a_missing_capability(context: Context, _params: types.CallToolRequestParams) -> Json:
    """Refuse a client without sampling."""
    if "sampling" not in declared(context):
        data = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "The client must declare sampling", data)
    return {"content": [text("done")]}


async def with_changed_tools(_context: Context, _params: types.CallToolRequestParams) -> Json:
    """Say that the list of tools has changed."""
    await BUS.publish(ToolsListChanged())
    return {"content": [text("done")]}


async def with_changed_prompts(_context: Context, _params: types.CallToolRequestParams) -> Json:
    """Say that the list of prompts has changed."""
    await BUS.publish(PromptsListChanged())
    return {"content": [text("done")]}


TOOLS: dict[str, Callable[[Context, types.CallToolRequestParams], Answer]] = {
    "test_tool_with_progress": with_progress,
    "test_tool_with_logging": with_logging,
    "test_logging_tool": with_logging,
    "test_error_handling": with_error,
    "test_missing_capability": with_a_missing_capability,
    "test_trigger_tool_change": with_changed_tools,
    "test_trigger_prompt_change": with_changed_prompts,
    **{name: with_questions for name in QUESTIONS if not name.endswith("_prompt")},
}


async def list_tools(_context: Context, _params: Any) -> Json:
    """Every tool of the suite."""
    names = [*CONTENT, *TOOLS]
    return {
        "tools": [{"name": name, "description": name, "inputSchema": SCHEMAS.get(name, NO_ARGUMENTS)} for name in names]
    }


async def call_tool(context: Context, params: types.CallToolRequestParams) -> Json:
    """The answer of a tool."""
    if params.name in CONTENT:
        return {"content": CONTENT[params.name]}
    if params.name not in TOOLS:
        raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name}")
    return await TOOLS[params.name](context, params)


RESOURCES: dict[str, Json] = {
    "test://static-text": {"mimeType": "text/plain", "text": "This is the content of the static text resource."},
    "test://static-binary": {"mimeType": "image/png", "blob": PNG},
    "test://watched-resource": {"mimeType": "text/plain", "text": "Watched."},
}


async def list_resources(_context: Context, _params: Any) -> Json:
    """Every resource of the suite."""
    return {"resources": [{"uri": uri, "name": uri, "mimeType": each["mimeType"]} for uri, each in RESOURCES.items()]}


async def list_templates(_context: Context, _params: Any) -> Json:
    """The one template."""
    template = {"uriTemplate": "test://template/{id}/data", "name": "template", "mimeType": "application/json"}
    return {"resourceTemplates": [template]}


async def read_resource(_context: Context, params: types.ReadResourceRequestParams) -> Json:
    """What stands at an address."""
    uri = str(params.uri)
    if uri in RESOURCES:
        return {"contents": [{"uri": uri, **RESOURCES[uri]}]}
    if not uri.startswith("test://template/"):
        raise MCPError(types.INVALID_PARAMS, "Resource not found", {"uri": uri})
    id = uri.removeprefix("test://template/").removesuffix("/data")
    words = f'{{"id":"{id}","templateTest":true,"data":"Data for ID: {id}"}}'
    return {"contents": [{"uri": uri, "mimeType": "application/json", "text": words}]}


def said(*blocks: Json) -> Json:
    """A prompt of these blocks."""
    return {"messages": [{"role": "user", "content": block} for block in blocks]}


PROMPTS: dict[str, list[str]] = {
    "test_simple_prompt": [],
    "test_prompt_with_arguments": ["arg1", "arg2"],
    "test_prompt_with_embedded_resource": ["resourceUri"],
    "test_prompt_with_image": [],
    "test_input_required_result_prompt": [],
}


async def list_prompts(_context: Context, _params: Any) -> Json:
    """Every prompt of the suite."""
    return {
        "prompts": [
            {
                "name": name,
                "description": name,
                "arguments": [{"name": each, "description": each, "required": True} for each in arguments],
            }
            for name, arguments in PROMPTS.items()
        ]
    }


async def get_prompt(context: Context, params: types.GetPromptRequestParams) -> Json:
    """One prompt."""
    given = params.arguments or {}
    if params.name == "test_prompt_with_arguments":
        return said(text(f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'"))
    if params.name == "test_prompt_with_embedded_resource":
        resource = embedded(given["resourceUri"], "text/plain", "Embedded resource content for testing.")
        return said(resource, text("Please process the embedded resource above."))
    if params.name == "test_prompt_with_image":
        return said(IMAGE, text("Please analyze the image above."))
    if params.name == "test_input_required_result_prompt":
        return asked(context, params.name, params) or said(text(f"With {params.input_responses}"))
    return said(text("This is a simple prompt for testing."))


async def complete(_context: Context, _params: Any) -> Json:
    """Some suggestions."""
    return {"completion": {"values": ["paris", "park", "party"], "total": 3, "hasMore": False}}


async def take_note(_context: Context, _params: Any) -> Json:
    """Take note."""
    return {}


def typed(result: Any, handler: Callable[[Context, Any], Answer]) -> Any:
    """The handler, its answer as the SDK's type, which adds what the newest protocol wants."""

    async def handled(context: Context, params: Any) -> Any:
        answer = await handler(context, params)
        return (types.InputRequiredResult if "inputRequests" in answer else result).model_validate(answer)

    return handled


def fixtures(mcp: Mcp) -> Mcp:
    """The servers, with what the suite asks for in place of what we have."""
    page = types.PaginatedRequestParams
    handlers: list[tuple[str, Any, Any, Any]] = [
        ("tools/list", page, types.ListToolsResult, list_tools),
        ("tools/call", types.CallToolRequestParams, types.CallToolResult, call_tool),
        ("resources/list", page, types.ListResourcesResult, list_resources),
        ("resources/templates/list", page, types.ListResourceTemplatesResult, list_templates),
        ("resources/read", types.ReadResourceRequestParams, types.ReadResourceResult, read_resource),
        ("resources/subscribe", types.SubscribeRequestParams, types.EmptyResult, take_note),
        ("resources/unsubscribe", types.UnsubscribeRequestParams, types.EmptyResult, take_note),
        ("prompts/list", page, types.ListPromptsResult, list_prompts),
        ("prompts/get", types.GetPromptRequestParams, types.GetPromptResult, get_prompt),
        ("completion/complete", types.CompleteRequestParams, types.CompleteResult, complete),
        ("logging/setLevel", types.SetLevelRequestParams, types.EmptyResult, take_note),
    ]
    for method, params, result, handler in handlers:
        mcp.exchanges.add_request_handler(method, params, typed(result, handler))
    listen = types.SubscriptionsListenRequestParams
    mcp.exchanges.add_request_handler("subscriptions/listen", listen, ListenHandler(BUS))
    mcp.exchanges.get_tool_input_schema = lambda name: SCHEMAS.get(name, NO_ARGUMENTS)
    security = RequestStateSecurity(keys=["a key of the tests, thirty-two bytes or more"])
    mcp.exchanges.middleware.append(RequestStateBoundary(security, default_audience="tests"))
    return mcp


def main() -> None:
    """Serve on the port that the command line names until told to stop."""
    settings = settings_for(port=int(sys.argv[1]), allow_unauthenticated_http=True)
    configure_logging(settings.log_level)
    mcp = fixtures(Mcp(toy_catalogue(settings), settings))
    asyncio.run(serve(build_app(mcp, settings, TOKEN, always_ready), settings, mcp.leave))


if __name__ == "__main__":
    main()
