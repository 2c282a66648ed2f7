"""Toy operations over the real wires: in this process, or in one of its own (`toy_server.py http|stdio`)."""

import asyncio
import contextlib
import datetime as dt
import os
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from memory_svc import errors
from memory_svc.domain.access.principal import Permission
from memory_svc.observe import Metrics, configure_logging, log
from memory_svc.services.operation import Catalogue, Effect, Request, Runtime, operation
from memory_svc.settings import Settings, load
from memory_svc.storage.interface import Storage
from memory_svc.storage.sqlite.engine import SqliteStorage
from memory_svc.transports.http import build_app
from memory_svc.transports.mcp import Mcp
from memory_svc.transports.serving import Serving, bound, serve, url_of
from memory_svc.transports.stdio import run_stdio

TOKEN = "toy-token-0123456789"
BODY_BYTES_MAX = 50_000


def problem_of(kind: str) -> Exception:
    """A fresh failure of that kind; `internal` is one that no code foresaw."""
    known = {
        "invalid": errors.Invalid("refs: at most 20"),
        "denied": errors.Denied("permission_denied", tool="fail", required="write"),
        "not_found": errors.NotFound("mem:1 is not there"),
        "conflict": errors.Conflict("changed since it was read", revision=3),
        "too_large": errors.TooLarge("import: over its limit"),
        "overloaded": errors.Overloaded("the queue is full", retry_after_seconds=1.2),
        "unavailable": errors.Unavailable("the database does not answer"),
        "internal": RuntimeError("the password is tomato"),
    }
    return known[kind]


class Add(Request, frozen=True, kw_only=True):
    """What to keep."""

    text: Annotated[str, Meta(description="The text.")]
    count: Annotated[int, Meta(ge=1, le=9, description="How often.")] = 1
    tags: list[str] = []
    metadata: dict[str, Any] = {}


class Added(msgspec.Struct, frozen=True):
    """What was kept."""

    result: Literal["stored", "skipped"]
    text: str
    count: int
    metadata: dict[str, Any]


class Fail(Request, frozen=True, kw_only=True):
    """How to fail."""

    kind: str


class Wait(Request, frozen=True, kw_only=True):
    """How long to wait."""

    seconds: float


class Circumstances(msgspec.Struct, frozen=True):
    """How a call came in."""

    wire: str
    principal: str
    request_id: str
    idempotency_key: str
    zone: str


class Nothing(Request, frozen=True, kw_only=True):
    """No arguments."""


@operation(needs=Permission.WRITE, effect=Effect.ADD)
async def add(runtime: Runtime, request: Add) -> Added:
    """Keep a text — “as it is”."""
    return Added("stored", request.text, request.count, request.metadata)


@operation(needs=Permission.READ, effect=Effect.READ)
async def circumstances(runtime: Runtime, request: Nothing) -> Circumstances:
    """Tell how this call came in."""
    call = runtime.call
    return Circumstances(call.wire, call.principal.name, call.request_id, call.idempotency_key, str(call.zone))


@operation(needs=Permission.READ, effect=Effect.READ)
async def fail(runtime: Runtime, request: Fail) -> Added:
    """Fail in the way that is asked for."""
    raise problem_of(request.kind)


@operation(needs=Permission.READ, effect=Effect.READ)
async def wait(runtime: Runtime, request: Wait) -> Added:
    """Answer later."""
    log("waiting")
    try:
        await asyncio.sleep(request.seconds)
    except asyncio.CancelledError:
        log("cancelled")
        raise
    return Added("skipped", "waited", 1, {})


@operation(needs=Permission.WRITE, effect=Effect.ERASE, idempotent=False)
async def wipe(runtime: Runtime, request: Nothing) -> Added:
    """Print where nobody should, and keep nothing."""
    print("stray output")
    return Added("skipped", "", 1, {})


OPERATIONS = (add, circumstances, fail, wait, wipe)


def settings_for(**changed: Any) -> Settings:
    """Settings of a server on any free port of this machine."""
    return Settings(**{"data_dir": "unused", "port": 0, "embedding_url": "", "tools": "full", **changed})


def toy_catalogue(settings: Settings, storage: Storage | None = None) -> Catalogue:
    """The toy operations, over a store of which only changes are asked, or over nothing."""
    nothing: Any = None
    return Catalogue(
        OPERATIONS,
        Runtime(
            storage=storage or nothing,
            embedder=nothing,
            settings=settings,
            metrics=Metrics(),
            clock=lambda: dt.datetime.now(dt.UTC),
        ),
    )


async def always_ready() -> str | None:
    """Nothing is in the way."""
    return None


@contextlib.asynccontextmanager
async def told() -> AsyncIterator[None]:
    """Background work that tells of its beginning and its end."""
    log("background began")
    yield
    log("background ended")


@contextlib.contextmanager
def running(catalogue: Catalogue, settings: Settings, **parts: Any) -> Iterator[str]:
    """The address of a server that runs in a thread of this process as long as the context lasts."""
    with bound(settings) as listener:
        mcp = Mcp(catalogue, settings)
        app = build_app(mcp, settings, TOKEN, parts.get("ready", always_ready), parts.get("background", ()))
        url = url_of(settings, listener)
        server = Serving(app, settings, url, mcp.leave)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])), daemon=True)
        thread.start()
        try:
            yield url
        finally:
            server.stop(5)
            thread.join(15)


def main() -> None:
    """Serve the wire that the command line names until told to stop."""
    settings = load({"MEMORY_DATA_DIR": "unused", "MEMORY_PORT": "0", "MEMORY_TOOLS": "full"} | dict(os.environ))
    configure_logging(settings.log_level)
    storage = SqliteStorage(Path(sys.argv[2]) / "memory.db") if len(sys.argv) > 2 else None
    mcp = Mcp(toy_catalogue(settings, storage), settings)
    if sys.argv[1] == "stdio":
        asyncio.run(run_stdio(mcp))
    else:
        asyncio.run(serve(build_app(mcp, settings, TOKEN, always_ready, [told()]), settings, mcp.leave))


if __name__ == "__main__":
    main()
