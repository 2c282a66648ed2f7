"""How the service is doing, as a caller may ask."""

import msgspec

from memory_svc.domain.access.principal import Permission
from memory_svc.services.operation import Effect, Request, Runtime, operation


class GetQueueStatus(Request, frozen=True, kw_only=True):
    """Nothing to say."""


class QueueStatus(msgspec.Struct, frozen=True, kw_only=True):
    """enabled: whether rows get vectors at all. pending: rows that wait for one. retry_delay: seconds between tries."""

    enabled: bool
    pending: int
    retry_delay: float


@operation(needs=Permission.READ, effect=Effect.READ)
async def get_queue_status(runtime: Runtime, request: GetQueueStatus) -> QueueStatus:  # noqa: ARG001
    """Tell how many rows still wait for a vector."""
    embedder = runtime.embedder
    pending = await runtime.storage.derived.waiting_count(embedder.fingerprint)
    return QueueStatus(enabled=embedder.enabled, pending=pending, retry_delay=runtime.settings.worker_seconds)


OPERATIONS = (get_queue_status,)
