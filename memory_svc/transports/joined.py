"""What one answer writes leaves in one piece: uvicorn writes head and body one by one, the loop sends each at once."""

import asyncio
from typing import Any


class Joined:
    """A transport that keeps what is written until `flush` or the loop's next turn; all else is the transport's own."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._written: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Keep it to be sent."""
        if not self._written:
            self._loop.call_soon(self.flush)
        self._written.append(data)

    def flush(self) -> None:
        """Send what is kept; where the connection is gone, it goes with it."""
        written, self._written = self._written, []
        if written and not self._transport.is_closing():
            self._transport.writelines(written)

    def close(self) -> None:
        """Send what is kept, then close."""
        self.flush()
        self._transport.close()
