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
from mcp.shared.message import ServerMessageMetadata, SessionMessage

from memory_svc.domain.access.principal import OWNER
from memory_svc.observe import log
from memory_svc.transports.caller import local_caller, new_request_id
from memory_svc.transports.mcp import Mcp
from memory_svc.transports.session import Session

ANSWER_SECONDS_MAX = 7.0
FLUSH_SECONDS_MAX = 2.0
CHUNK_BYTES = 65_536
WAITING_LINES_MAX = 256
UNREAD = "Not JSON in UTF-8, or a line longer than MEMORY_BODY_BYTES_MAX"
Incoming = MemoryObjectSendStream[SessionMessage | Exception]
Line = bytes | None


async def run_stdio(mcp: Mcp, *, on_signals: bool = True) -> None:
    """Serve the owner of this process until its input ends; calls under way are then answered.

    Ends likewise when the session is told to leave and, `on_signals`, on SIGTERM and Ctrl-C. Takes the standard streams
    for good: what else reads finds an empty input, what else prints prints to stderr.
    """
    session = mcp.session(OWNER, "mcp-stdio")
    wire_in, wire_out = _claim_standard_streams()
    incoming, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, sent = anyio.create_memory_object_stream[SessionMessage](0)
    line_bytes_max = mcp.catalogue.runtime.settings.body_bytes_max
    pump = _Pump(session, incoming, outgoing.clone(), mcp.leave)
    writer = _Writer(wire_out, pump.stop)
    reading = (wire_in, line_bytes_max, pump.take_from_thread)
    threading.Thread(target=_read_lines, args=reading, daemon=True).start()
    with _on_signals(pump.stop) if on_signals else contextlib.nullcontext():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pump.read)
            tasks.start_soon(pump.write, sent, writer)
            tasks.start_soon(pump.watch)
            await mcp.serve(session, received, outgoing)
            tasks.cancel_scope.deadline = anyio.current_time() + FLUSH_SECONDS_MAX
    await writer.close()
    log("session ended", wire=session.wire)


class _Pump:
    """Lines to messages and back, of one session."""

    def __init__(
        self,
        session: Session,
        incoming: Incoming,
        outgoing: MemoryObjectSendStream[SessionMessage],
        leave: Callable[[], None],
    ) -> None:
        self._session = session
        self._incoming = incoming
        self._outgoing = outgoing
        self._leave = leave
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[Line] = asyncio.Queue()

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
            self._leave()
            with anyio.move_on_after(ANSWER_SECONDS_MAX):
                await self._session.answered()

    async def watch(self) -> None:
        """Stop when the session is told to leave."""
        await self._session.leaving.wait()
        self.stop()

    async def write(self, sent: MemoryObjectReceiveStream[SessionMessage], writer: "_Writer") -> None:
        """Write messages out until there are no more."""
        async with sent:
            async for session_message in sent:
                message = session_message.message
                await writer.write(message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                self._session.went(message)

    async def _pass_on(self, line: bytes) -> None:
        """One message to the server, or at once the error of a line that is none."""
        raw: Any = None
        try:
            raw = json.loads(line)
            _refuse_unsendable(raw)
            message = types.jsonrpc_message_adapter.validate_python(raw, by_name=False)
        except (ValueError, RecursionError):
            await self._refuse(raw)
            return
        self._session.came(message)
        await self._incoming.send(SessionMessage(message, ServerMessageMetadata(request_context=local_caller())))

    async def _refuse(self, raw: object) -> None:
        """`raw` None = not even JSON, or a line that is too long to be read."""
        code, words = (types.PARSE_ERROR, UNREAD) if raw is None else (types.INVALID_REQUEST, "No message")
        request_id = new_request_id()
        log("refused", code=code, request_id=request_id)
        given = raw.get("id") if isinstance(raw, dict) and str(raw.get("id")).isprintable() else None
        error = types.JSONRPCError(
            jsonrpc="2.0",
            id=given if isinstance(given, str | int) and not isinstance(given, bool) else None,
            error=types.ErrorData(code=code, message=words, data={"request_id": request_id}),
        )
        await self._outgoing.send(SessionMessage(error))


class _Writer:
    """Writes on a thread of its own, so that a client which does not read holds up no more than its own messages."""

    def __init__(self, descriptor: int, on_broken: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._on_broken = on_broken
        self._loop = asyncio.get_running_loop()
        self._room = asyncio.Event()
        # The thread wakes the loop only where it waits for room: to wake it costs as much as to write.
        self._is_held = False
        self._waiting: queue.SimpleQueue[Line] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    async def write(self, line: bytes) -> None:
        """Have these bytes written after all before, once not too many wait."""
        while self._waiting.qsize() >= WAITING_LINES_MAX:
            self._room.clear()
            self._is_held = True
            if self._waiting.qsize() >= WAITING_LINES_MAX:  # else the thread may have looked before it was told
                await self._room.wait()
            self._is_held = False
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
                if self._is_held:
                    self._loop.call_soon_threadsafe(self._room.set)
        except OSError:
            self._on_broken()
        except RuntimeError:  # the loop has ended
            return


def _refuse_unsendable(raw: object) -> None:
    """Raise ValueError where the id or the method, which answers repeat, cannot be written as UTF-8."""
    for name in ("id", "method"):
        text = raw.get(name) if isinstance(raw, dict) else None
        if isinstance(text, str):
            text.encode()


def _read_lines(descriptor: int, bytes_max: int, take: Callable[[Line], None]) -> None:
    """Give every line, and None at the end. Straight from the descriptor: a buffered reader blocks the exit.

    Of a line that is too long nothing is kept but its beginning, which is then no JSON.
    """
    rest = bytearray()
    with contextlib.suppress(OSError):
        while chunk := os.read(descriptor, CHUNK_BYTES):
            first, *others = chunk.split(b"\n")
            rest += first[: max(0, bytes_max - len(rest))]
            for line in others:
                take(bytes(rest))
                rest = bytearray(line)
    take(bytes(rest))
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
