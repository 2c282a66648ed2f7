"""Operations over plain HTTP: `POST /v1/<operation>` takes the arguments as a JSON object and gives the answer."""

from collections.abc import Mapping
from typing import Any

import msgspec
from litestar import MediaType, Request, Response, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from memory_svc.domain.memory import zone_of
from memory_svc.errors import Invalid
from memory_svc.services.operation import Catalogue
from memory_svc.settings import Settings
from memory_svc.transports.caller import Names, call_for, caller_of
from memory_svc.transports.schema import fitted, input_schema


def call_route(catalogue: Catalogue, settings: Settings) -> HTTPRouteHandler:
    """The route of all operations. What it raises is answered by the failure table.

    The body is read as JSON whatever Content-Type it is sent with.
    """
    zone = zone_of(settings.zone)
    schemas = {each.name: input_schema(each.request) for each in catalogue}

    @post("/v1/{operation:str}", status_code=200, name="call")
    async def call(request: Request[Any, Any, Any], operation: FromPath[str]) -> Response[bytes]:
        names = Names.of_headers(request.headers)
        circumstances = call_for(caller_of(request.scope), "rest", names, zone)
        arguments = fitted(arguments_in(await request.body()), schemas.get(operation, {}))
        answer = await catalogue.call(operation, arguments, circumstances)
        return Response(msgspec.json.encode(answer), media_type=MediaType.JSON)

    return call


def arguments_in(body: bytes) -> Mapping[str, Any]:
    """The arguments in a request body; an empty one stands for none.

    Raises Invalid when it is not JSON in UTF-8, or not an object.
    """
    if not body.strip():
        return {}
    try:
        arguments = msgspec.json.decode(body)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"body: is not JSON in UTF-8: {error}") from error
    if not isinstance(arguments, dict):
        raise Invalid("body: expected a JSON object with the operation's arguments")
    return arguments
