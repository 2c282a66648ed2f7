"""MCP over standard input and output: stdout carries its messages and nothing else, whatever prints."""

import asyncio
import contextlib
import json
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from memory_svc.observe import log
from memory_svc.services.operation import Catalogue
from memory_svc.settings import Settings
from memory_svc.transports.mcp import build_server

ANSWER_SECONDS_MAX = 7.0
FLUSH_SECONDS_MAX = 2.0
CHUNK_BYTES = 65_536
Incoming = MemoryObjectSendStream[SessionMessage | Exception]
Line = bytes | None


async def run_stdio(catalogue: Catalogue, settings: Settings) -> None:
    """Serve the owner of this process until its input ends or SIGTERM comes; calls under way are then answered.

    Takes the standard streams for good: what else reads finds an empty input, what else prints prints to stderr.
    """
    server = build_server(catalogue, settings)
    wire_in, wire_out = _claim_standard_streams()
    incoming, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, sent = anyio.create_memory_object_stream[SessionMessage](0)
    pump = _Pump(incoming, outgoing.clone())
    writer = _Writer(wire_out, pump.stop)
    threading.Thread(target=_read_lines, args=(wire_in, pump.take_from_thread), daemon=True).start()
    with _on_signals(pump.stop):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pump.read)
            tasks.start_soon(pump.write, sent, writer)
            await server.run(received, outgoing, server.create_initialization_options())
    await writer.close()
    log("stopped")


class _Pump:
    """Lines to messages and back; knows which requests still wait for their answer."""

    def __init__(self, incoming: Incoming, outgoing: MemoryObjectSendStream[SessionMessage]) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[Line] = asyncio.Queue()
        self._waiting: set[types.RequestId] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    def take_from_thread(self, line: Line) -> None:
        """Take a line that another thread has read; None = there will be no more."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._lines.put_nowait, line)

    def stop(self) -> None:
        """Read no further, as at the end of the input. From any thread, and from a signal."""
        self.take_from_thread(None)

    async def read(self) -> None:
        """Pass messages on until there are no more and those passed on are answered."""
        async with self._incoming, self._outgoing:
            while (line := await self._lines.get()) is not None:
                if line.strip():
                    await self._pass_on(line)
            with anyio.move_on_after(ANSWER_SECONDS_MAX):
                await self._idle.wait()

    async def write(self, sent: MemoryObjectReceiveStream[SessionMessage], writer: "_Writer") -> None:
        """Write messages out until there are no more."""
        async with sent:
            async for session_message in sent:
                message = session_message.message
                writer.write(message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
                    self._settle(message.id)

    async def _pass_on(self, line: bytes) -> None:
        """One message to the server, or at once the error of a line that is none."""
        raw: Any = None
        try:
            raw = json.loads(line)
            message = types.jsonrpc_message_adapter.validate_python(raw, by_name=False)
        except (ValueError, RecursionError):
            await self._refuse(raw)
            return
        if isinstance(message, types.JSONRPCRequest):
            self._waiting.add(message.id)
            self._idle.clear()
        elif isinstance(message, types.JSONRPCNotification) and message.method == "notifications/cancelled":
            self._settle((message.params or {}).get("requestId"))
        await self._incoming.send(SessionMessage(message))

    async def _refuse(self, raw: object) -> None:
        """`raw` None = not even JSON."""
        code, words = (types.PARSE_ERROR, "Not JSON in UTF-8") if raw is None else (types.INVALID_REQUEST, "No message")
        given = raw.get("id") if isinstance(raw, dict) else None
        error = types.JSONRPCError(
            jsonrpc="2.0",
            id=given if isinstance(given, str | int) and not isinstance(given, bool) else None,
            error=types.ErrorData(code=code, message=words),
        )
        await self._outgoing.send(SessionMessage(error))

    def _settle(self, request: object) -> None:
        """A request has its answer, or was called off and will have none."""
        self._waiting = {waiting for waiting in self._waiting if waiting != request}
        if not self._waiting:
            self._idle.set()


class _Writer:
    """Writes on a thread of its own, so that a client which does not read cannot hold up the rest."""

    def __init__(self, descriptor: int, on_broken: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._on_broken = on_broken
        self._waiting: queue.SimpleQueue[Line] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def write(self, line: bytes) -> None:
        """Have these bytes written after all before."""
        self._waiting.put(line)

    async def close(self) -> None:
        """Wait, a while, until everything is written."""
        self._waiting.put(None)
        await asyncio.to_thread(self._thread.join, FLUSH_SECONDS_MAX)

    def _run(self) -> None:
        try:
            while (line := self._waiting.get()) is not None:
                left = memoryview(line)
                while left:
                    left = left[os.write(self._descriptor, left) :]
        except OSError:
            self._on_broken()


def _read_lines(descriptor: int, take: Callable[[Line], None]) -> None:
    """Give every line, and None at the end. Straight from the descriptor: a buffered reader blocks the exit."""
    rest = b""
    with contextlib.suppress(OSError):
        while chunk := os.read(descriptor, CHUNK_BYTES):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                take(line)
    take(rest)
    take(None)


def _claim_standard_streams() -> tuple[int, int]:
    """Descriptors of our own for input and output, whose old numbers now mean nothing and stderr."""
    wire_in, wire_out = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return wire_in, wire_out


@contextlib.contextmanager
def _on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Stop on SIGTERM and on Ctrl-C."""
    before = {each: signal.signal(each, lambda *_: stop()) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
