"""`memory-svc serve`: MCP and HTTP on one port; with --stdio a session on standard input and output beside it."""

import argparse
import functools

from memory_svc import app
from memory_svc.cli import loop
from memory_svc.observe import configure_logging
from memory_svc.settings import Settings, environment, load, traces_asked
from memory_svc.transports.auth import token_for
from memory_svc.transports.http import build_app
from memory_svc.transports.mcp import Mcp
from memory_svc.transports.serving import serve
from memory_svc.transports.stdio import run_stdio


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this verb."""
    parser.add_argument(
        "--stdio",
        action="store_true",
        help="also serve the one who started this on standard input and output; all ends when the input ends",
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until told to stop, with --stdio until the input ends.

    Raises Invalid for settings that cannot be used, Unavailable when the database or the address cannot be had.
    """
    settings, traced = load(environment()), traces_asked(environment())
    configure_logging(settings.log_level)
    loop.run(_serve(settings, traced=traced, stdio=arguments.stdio))
    return 0


async def _serve(settings: Settings, *, traced: bool, stdio: bool) -> None:
    async with app.opened(settings, traced=traced) as parts:
        token = token_for(settings)
        mcp = Mcp(parts.catalogue, settings)
        beside = functools.partial(run_stdio, mcp, on_signals=False) if stdio else None
        await serve(build_app(mcp, settings, token, parts.ready), settings, mcp.leave, beside)
