"""`memory-svc canary`: asks a running server for rows that are known; whether every arm of recall finds them."""

import argparse
import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from memory_svc.cli.run import url_of, with_addresses
from memory_svc.domain.canary import NOT_FOUND, Examined
from memory_svc.errors import Unavailable
from memory_svc.reference import table
from memory_svc.services.canary import examined
from memory_svc.settings import Settings, environment, load
from memory_svc.transports.auth import load_token

SECONDS_MAX = 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which server, and how the answer is told."""
    parser.add_argument("--url", help="address of the server; left out = as the settings say")
    parser.add_argument("--token-file", help="file that holds its token; left out = as the settings say")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Ask for every probe, and print their ranks; 1 = one is not found first, or recall runs without vectors.

    What the canary stores is stored once, for an agent of its own that no list shows. Raises Unavailable where the
    server does not answer, Invalid for a token that cannot be read.
    """
    environ = environment()
    url = (arguments.url or url_of(with_addresses(environ), "MEMORY")).rstrip("/")
    found = asyncio.run(_examined(url, _token(arguments.token_file, load(environ))))
    sys.stdout.write(_json(found) if arguments.json else page(found))
    return 0 if found.is_well else 1


def page(found: Examined) -> str:
    """What became of every probe."""
    rows = [(each.sort, each.query, str(each.rank) if each.rank < NOT_FOUND else "not found") for each in found.ranks]
    notes = [
        *([f"Recall runs without vectors: {found.degraded}"] if found.degraded else []),
        *(f"Not tested: {sort}, since no embedding server is set" for sort in found.skipped),
        "Every arm finds its rows." if found.is_well else "Not every arm finds its rows: see docs/explain/recall.md.",
    ]
    return "\n\n".join([table(("sort", "question", "rank"), rows), "\n".join(notes)]) + "\n"


async def _examined(url: str, token: str) -> Examined:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    timeout = aiohttp.ClientTimeout(total=SECONDS_MAX)
    async with aiohttp.ClientSession(headers=headers, timeout=timeout) as session:

        async def ask(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
            try:
                async with session.post(f"{url}/v1/{name}", data=msgspec.json.encode(arguments)) as response:
                    return _answer(url, response.status, await response.read())
            except (aiohttp.ClientError, OSError, ValueError) as error:
                raise Unavailable(f"{url} does not answer ({type(error).__name__}); is a server there?") from error

        return await examined(ask)


def _answer(url: str, status: int, body: bytes) -> dict[str, Any]:
    try:
        answer = msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise Unavailable(f"{url} answers with status {status} and no JSON; is it a memory server?") from error
    if status != 200:
        raise Unavailable(f"{url} refuses with status {status}: {answer.get('error', '')}")
    return answer


def _token(given: str | None, settings: Settings) -> str:
    if settings.allow_unauthenticated_http and not given:
        return ""
    return load_token(Path(given or settings.token_file or Path(settings.data_dir) / "token"))


def _json(found: Examined) -> str:
    told = {**msgspec.to_builtins(found), "worst": found.worst, "ok": found.is_well}
    return msgspec.json.format(msgspec.json.encode(told), indent=1).decode() + "\n"
