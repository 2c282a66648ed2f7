"""`memory-svc reembed`: give vectors of the present model to every row that lacks one, and tell how far it is."""

import argparse
import asyncio
import sys

from memory_svc import app
from memory_svc.errors import Unavailable
from memory_svc.observe import configure_logging
from memory_svc.settings import Settings, environment, load


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Whether rows that have a vector get a new one too."""
    parser.add_argument("--all", action="store_true", help="also rows that have a vector of the present model")


def run(arguments: argparse.Namespace) -> int:
    """Work until no row waits. May be stopped and started again; servers on the same store go on meanwhile.

    Raises Unavailable when the embedding server gives no vectors.
    """
    settings = load(environment())
    configure_logging(settings.log_level)
    asyncio.run(_reembed(settings, everything=arguments.all))
    return 0


async def _reembed(settings: Settings, *, everything: bool) -> None:
    async with app.assembled(settings) as parts:
        if everything:
            await parts.storage.derived.forget_vectors()
        await parts.embedder.probe(0)
        total = await parts.storage.derived.waiting_count(parts.embedder.fingerprint)
        left = total
        while not parts.embedder.failure and left:
            await parts.worker.backfill()
            left = parts.embedder.waiting
            sys.stdout.write(f"{total - left} of {total} rows have vectors of {parts.embedder.fingerprint}\n")
            sys.stdout.flush()
        if parts.embedder.failure:
            raise Unavailable(
                f"The embedding server gives no vectors: {parts.embedder.failure}; {left} rows still wait"
            )
    sys.stdout.write(f"done: {total} rows\n")
