"""What the client of a session of the older handshakes is told of by itself, once it has asked for any of it."""

import asyncio
import contextlib
from typing import Protocol

import anyio

from memory_svc.domain.access.principal import Principal
from memory_svc.errors import Overloaded
from memory_svc.transports.announcements import Announcements, Changes

PAUSE_SECONDS = 0.1
SUBSCRIPTIONS_MAX = 1000


class Speaker(Protocol):
    """What can say something to the client."""

    async def send_resource_updated(self, uri: str) -> None:
        """Say that this resource is to be read again."""

    async def send_resource_list_changed(self) -> None:
        """Say that the list is to be read again."""


class News:
    """What has changed of the addresses that the client named, each once however often it changed meanwhile.

    So a client that is slow to read holds up nobody, and keeps no more here than the addresses that it named.
    """

    def __init__(self, principal: Principal, announcements: Announcements) -> None:
        self._principal = principal
        self._announcements = announcements
        self._named: set[str] = set()
        self._changed: dict[str, None] = {}
        self._listed = False
        self._any = asyncio.Event()
        self._begins = asyncio.Lock()
        self._begun = asyncio.Event()
        self._stack = contextlib.AsyncExitStack()
        self._speaker: Speaker | None = None

    async def begin(self, speaker: Speaker) -> None:
        """Tell what is written from now on through this, and of the list from the start.

        Raises Unavailable when the journal cannot be read.
        """
        async with self._begins:
            if self._speaker is None:
                await self._stack.enter_async_context(self._announcements.attended())
                self._stack.callback(self._announcements.subscribe(self._principal, self._take))
                self._speaker = speaker
                self._begun.set()

    def name(self, uri: str) -> None:
        """Tell of this address.

        Raises Overloaded when too many are named.
        """
        if len(self._named) >= SUBSCRIPTIONS_MAX and uri not in self._named:
            raise Overloaded(f"A connection may subscribe to {SUBSCRIPTIONS_MAX} resources; unsubscribe from some")
        self._named.add(uri)

    def drop(self, uri: str) -> None:
        """Tell of this address no longer."""
        self._named.discard(uri)
        self._changed.pop(uri, None)

    async def tell(self) -> None:
        """Tell until cancelled. The pause lets what comes in a burst be told together."""
        async with self._stack:
            await self._begun.wait()
            while self._speaker:
                await self._any.wait()
                self._any.clear()
                uris, listed = tuple(self._changed), self._listed
                self._changed, self._listed = {}, False
                with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    for uri in uris:
                        await self._speaker.send_resource_updated(uri)
                    if listed:
                        await self._speaker.send_resource_list_changed()
                await asyncio.sleep(PAUSE_SECONDS)

    def _take(self, changes: Changes) -> None:
        self._changed.update(dict.fromkeys(uri for uri in changes.uris if uri in self._named))
        self._listed = self._listed or changes.listed
        if self._changed or self._listed:
            self._any.set()
