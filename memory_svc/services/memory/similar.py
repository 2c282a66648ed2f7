"""Which memories say nearly the same as one that was just stored: advice, for which a store neither fails nor waits."""

import asyncio

import msgspec

from memory_svc.domain.memory import Kind, Memory, Ref, Vector
from memory_svc.domain.scope import Scope
from memory_svc.domain.text import preview
from memory_svc.errors import Problem
from memory_svc.services.operation import Runtime
from memory_svc.storage.interface import Candidates, Query

ROWS_MAX = 3
# The row itself is its own nearest, and episodes are passed over.
DEPTH = 8
PREVIEW_CHARS = 120
SECONDS_MAX = 0.25
DIGITS = 4


class Similar(msgspec.Struct, frozen=True):
    """A memory that says nearly the same: its ref, how near it is, and its beginning."""

    ref: str
    cosine: float
    content: str


async def similar_to(runtime: Runtime, stored: Memory, vector: Vector | None) -> list[Similar]:
    """The memories of its bucket that say nearly the same, nearest first; [] also where it cannot be told in time."""
    if not runtime.settings.similar_min or vector is None:
        return []
    scope = runtime.present(Scope(agent=stored.agent, project=stored.project, channel=stored.channel))
    query = Query((), vector, DEPTH)
    try:
        async with asyncio.timeout(min(SECONDS_MAX, runtime.seconds_left / 2)):
            return await runtime.storage.search.candidates(
                scope, query, lambda found: _near(found, stored, runtime.settings.similar_min)
            )
    except (Problem, TimeoutError):
        return []


def _near(found: Candidates, stored: Memory, cosine_min: float) -> list[Similar]:
    near = {Ref.of_document(document): cosine for document, cosine in found.vectors if cosine >= cosine_min}
    others = [ref for ref in near if ref.kind is Kind.MEMORY and ref.id != stored.id]
    rows = found.rows(others) if others else {}
    return [
        Similar(str(ref), round(near[ref], DIGITS), preview(row.content, PREVIEW_CHARS))
        for ref in others
        if isinstance(row := rows.get(ref), Memory) and row.channel in ("", stored.channel)
    ][:ROWS_MAX]
