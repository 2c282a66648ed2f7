"""HTTP parsed in C, with a bound on what a request may send before anything comes of it."""

import asyncio
from typing import cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from memory_svc.transports.joined import Joined

HEAD_BYTES_MAX = 65_536
TOO_LARGE = f"The head of the request, or what follows its last chunk, is longer than {HEAD_BYTES_MAX} bytes"


class BoundedHeads(HttpToolsProtocol):
    """A connection that is closed when its headers, trailers or chunk extensions have no end.

    The parser keeps them until they are complete, however long they are; one read beyond the bound may pass.
    """

    _pending_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin; each answer is to leave in one piece."""
        super().connection_made(cast(asyncio.Transport, Joined(transport, self.loop)))

    def on_response_complete(self) -> None:
        """Send the answer."""
        cast(Joined, self.transport).flush()
        super().on_response_complete()

    def data_received(self, data: bytes) -> None:
        """Parse what came."""
        self._pending_bytes += len(data)
        super().data_received(data)
        if self._pending_bytes > HEAD_BYTES_MAX and not self.transport.is_closing():
            self.send_400_response(TOO_LARGE)

    def on_headers_complete(self) -> None:
        """Start to answer."""
        self._pending_bytes = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Hand on a part of the body."""
        self._pending_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End the request."""
        self._pending_bytes = 0
        super().on_message_complete()
