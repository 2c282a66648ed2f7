"""Handing an HTTP request to the SDK: who it is from; what the SDK refuses by itself is told as our failures are."""

from typing import Any

import mcp_types as types
import msgspec
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken

from memory_svc.observe import log
from memory_svc.transports.caller import caller_of
from memory_svc.transports.failures import TABLE
from memory_svc.transports.guard import Message, Scope, Send

REFUSED_FROM = TABLE["invalid"].status
WORDS = {
    405: "This method is not for this address",
    406: "Send the header Accept: application/json, text/event-stream",
    415: "Send the header Content-Type: application/json",
}


def with_user(scope: Scope) -> Scope:
    """The scope with the caller as the SDK's user, to whom it binds the sessions that it keeps."""
    name = caller_of(scope).principal.name
    scope["user"] = AuthenticatedUser(AccessToken(token="", client_id=name, scopes=[]))
    return scope


def telling(scope: Scope, send: Send) -> Send:
    """`send`, which makes every refusal an error of JSON-RPC with the request id in its data, and logs it."""
    refused: list[Message] = []
    body = bytearray()
    request_id = caller_of(scope).request_id

    async def told(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] >= REFUSED_FROM:
            refused.append(message)
        elif not refused:
            await send(message)
        elif message["type"] == "http.response.body":
            body.extend(message.get("body", b""))
            if not message.get("more_body", False):
                await _tell(refused[0], bytes(body), request_id, send)

    return told


async def _tell(start: Message, body: bytes, request_id: str, send: Send) -> None:
    status = start["status"]
    log("refused", status=status, request_id=request_id)
    content = _error(body, status, request_id)
    replaced = {b"content-length": str(len(content)).encode(), b"content-type": b"application/json"}
    kept = [(name, value) for name, value in start.get("headers", ()) if name.lower() not in replaced]
    await send({**start, "headers": [*kept, *replaced.items()]})
    await send({"type": "http.response.body", "body": content, "more_body": False})


def _error(body: bytes, status: int, request_id: str) -> bytes:
    """The error in this body, or one made of its words."""
    try:
        answer = msgspec.json.decode(body, type=dict[str, Any])
        error = answer["error"]
        data = error.get("data")
    except (msgspec.DecodeError, KeyError, AttributeError):
        words = WORDS.get(status) or body.decode("utf-8", "replace")[:200] or "The request was refused"
        answer, error, data = {"jsonrpc": "2.0", "id": None}, {"code": types.INVALID_REQUEST, "message": words}, None
    given = data if isinstance(data, dict) else {"detail": data} if data else {}
    return msgspec.json.encode({**answer, "error": {**error, "data": {**given, "request_id": request_id}}})
