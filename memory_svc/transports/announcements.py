"""Telling subscribers what has changed. The journal is watched only while somebody listens."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable

import msgspec

from memory_svc.domain.access.principal import Permission, Principal
from memory_svc.domain.memory import Kind
from memory_svc.domain.scope import CANARY_AGENT
from memory_svc.errors import Problem
from memory_svc.observe import log
from memory_svc.storage.interface import JournalRow, Storage
from memory_svc.transports.addresses import Address

RETRY_SECONDS = 1.0


class Changes(msgspec.Struct, frozen=True):
    """What one subscriber may know of a batch of effects: what to read again, and whether rows came or went."""

    uris: tuple[str, ...]
    listed: bool = False


Listener = Callable[[Changes], None]


class Announcements:
    """Every subscriber's listener, called in the event loop. Listeners return at once and never raise."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._listeners: dict[object, tuple[Principal, Listener]] = {}
        self._attending = 0
        self._begins = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None

    def subscribe(self, principal: Principal, listener: Listener) -> Callable[[], None]:
        """Tell this listener of what the principal may see, until the function that comes back is called."""
        token = object()
        self._listeners[token] = (principal, listener)

        def unsubscribe() -> None:
            self._listeners.pop(token, None)

        return unsubscribe

    @contextlib.asynccontextmanager
    async def attended(self) -> AsyncIterator[None]:
        """While the block runs, everything written from its beginning on is told.

        Raises Unavailable when the journal cannot be read.
        """
        async with self._begins:
            if self._watching is None:
                after = await self._storage.journal.latest()
                self._watching = asyncio.create_task(self._watch(after))
            self._attending += 1
        try:
            yield
        finally:
            self._attending -= 1
            if not self._attending:
                await self._stop()

    def tell(self, rows: Iterable[JournalRow]) -> None:
        """Tell every listener what it may know of these effects."""
        held = tuple(rows)
        known: dict[Principal, Changes] = {}
        for principal, listener in tuple(self._listeners.values()):
            if principal not in known:
                known[principal] = changes_in(held, principal)
            if known[principal].uris:
                listener(known[principal])

    async def _watch(self, after: int) -> None:
        while True:
            try:
                async with contextlib.aclosing(self._storage.journal.watch(after)) as batches:
                    async for rows in batches:
                        after = rows[-1].sequence
                        self.tell(rows)
            except Problem as problem:
                log("changes cannot be followed", severity=logging.WARNING, outcome=problem.kind)
                await asyncio.sleep(RETRY_SECONDS)

    async def _stop(self) -> None:
        task, self._watching = self._watching, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def changes_in(rows: Iterable[JournalRow], principal: Principal) -> Changes:
    """What the principal may know of these effects; a row written twice is told once."""
    uris: dict[str, None] = {}
    listed = False
    for row in rows:
        if row.ref.kind is not Kind.PRECISION and row.agent != CANARY_AGENT and may_know(principal, row):
            uris[Address.of_row(row.agent, row.ref).uri] = None
            listed = listed or row.effect is None or row.effect.row is None or row.effect.row.revision == 1
    return Changes(tuple(uris), listed)


def may_know(principal: Principal, row: JournalRow) -> bool:  # noqa: ARG001 - one owner reads every agent's rows
    """Whether the principal may read the row, and so may know that it has changed."""
    return principal.may(Permission.READ)
