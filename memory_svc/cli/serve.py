"""`memory-svc serve`: MCP and HTTP on one port."""

import argparse
import asyncio

from memory_svc import app
from memory_svc.observe import configure_logging
from memory_svc.settings import Settings, environment, load
from memory_svc.transports.auth import token_for
from memory_svc.transports.http import build_app
from memory_svc.transports.serving import serve


def run(arguments: argparse.Namespace) -> int:  # noqa: ARG001 - every verb takes them
    """Serve until told to stop.

    Raises Invalid for settings that cannot be used, Unavailable when the database or the address cannot be had.
    """
    settings = load(environment())
    configure_logging(settings.log_level)
    asyncio.run(_serve(settings))
    return 0


async def _serve(settings: Settings) -> None:
    token = token_for(settings)
    async with app.opened(settings) as parts:
        await serve(build_app(parts.catalogue, settings, token, parts.ready), settings)
