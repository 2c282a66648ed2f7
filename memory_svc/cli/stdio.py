"""`memory-svc stdio`: MCP on standard input and output, over the same store."""

import argparse

from memory_svc import app
from memory_svc.cli import loop
from memory_svc.observe import configure_logging
from memory_svc.settings import Settings, environment, load, traces_asked
from memory_svc.transports.mcp import Mcp
from memory_svc.transports.stdio import run_stdio


def run(arguments: argparse.Namespace) -> int:  # noqa: ARG001 - every verb takes them
    """Serve until the input ends.

    Raises Invalid for settings that cannot be used, Unavailable when the database cannot be opened.
    """
    settings, traced = load(environment()), traces_asked(environment())
    configure_logging(settings.log_level)
    loop.run(_serve(settings, traced=traced))
    return 0


async def _serve(settings: Settings, *, traced: bool) -> None:
    async with app.opened(settings, traced=traced) as parts:
        await run_stdio(Mcp(parts.catalogue, settings))
