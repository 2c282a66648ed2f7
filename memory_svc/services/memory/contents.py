"""Reading rows whole, or parts of them."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from memory_svc.domain.access.principal import Permission
from memory_svc.domain.memory import Episode, Kind, Memory, Ref
from memory_svc.domain.portion import Part, Portion, Reason, portion
from memory_svc.domain.scope import Scope
from memory_svc.errors import Invalid
from memory_svc.services.memory.shown import Shown, complete
from memory_svc.services.operation import Effect, Request, Runtime, operation

CONTENTS_BUDGET_CHARS = 40_000


class GetContents(Request, frozen=True, kw_only=True):
    """Which rows, by ref."""

    agent_id: Annotated[str, Meta(max_length=1000, description="Whose rows they are.")]
    refs: Annotated[list[str | Part], Meta(max_length=20, description="Refs such as mem:12 or ep:3.")]


class Item(Shown, frozen=True, kw_only=True):
    """A row, whole; or a part of it, and which."""

    resolved: bool | UnsetType = UNSET
    range: Portion | UnsetType = UNSET


class Unresolved(msgspec.Struct, frozen=True):
    """A part that cannot be given exactly, and why."""

    ref: str
    reason: Reason


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, in the order asked for; deferred = not given for want of budget, ask again for these."""

    items: list[Item]
    missing: list[str]
    count: int
    unresolved: list[Unresolved] | UnsetType = UNSET
    deferred: list[str | Part] | UnsetType = UNSET
    budget_chars: int | UnsetType = UNSET


@operation(needs=Permission.READ, effect=Effect.READ)
async def get_contents(runtime: Runtime, request: GetContents) -> Contents:
    """Read rows whole, or parts of them, by the refs that recall gave. Rows of others are `missing`."""
    if not request.refs:
        raise Invalid("refs must be a non-empty list of 'mem:<id>' / 'ep:<id>' strings")
    asked = [Part(each) if isinstance(each, str) else each for each in request.refs]
    rows = await _rows(runtime, request.agent_id, [ref for part in asked if (ref := Ref.parse(part.ref))])
    items: list[Item] = []
    missing: list[str] = []
    unresolved: list[Unresolved] = []
    left = CONTENTS_BUDGET_CHARS
    deferred: Sequence[str | Part] = ()
    for at, part in enumerate(asked):
        found = _found(rows, part)
        if found is None:
            missing.append(part.ref)
            continue
        if isinstance(found, Unresolved):
            unresolved.append(found)
            continue
        left -= _cost(found)
        if items and left < 0:
            deferred = request.refs[at:]
            break
        items.append(found)
    return Contents(
        items=items,
        missing=missing,
        count=len(items),
        unresolved=unresolved or UNSET,
        deferred=list(deferred) or UNSET,
        budget_chars=CONTENTS_BUDGET_CHARS if deferred else UNSET,
    )


OPERATIONS = (get_contents,)


async def _rows(runtime: Runtime, agent: str, refs: Sequence[Ref]) -> dict[Ref, Memory | Episode]:
    scope = runtime.present(Scope(agent=agent))
    ids = {kind: [ref.id for ref in refs if ref.kind is kind] for kind in (Kind.MEMORY, Kind.EPISODE)}
    memories = await runtime.storage.memories.get(scope, ids[Kind.MEMORY])
    episodes = await runtime.storage.episodes.get(scope, ids[Kind.EPISODE])
    rows: dict[Ref, Memory | Episode] = {Ref(Kind.MEMORY, id): row for id, row in memories.items()}
    rows.update({Ref(Kind.EPISODE, id): row for id, row in episodes.items()})
    return rows


def _found(rows: Mapping[Ref, Memory | Episode], part: Part) -> Item | Unresolved | None:
    """What is given of a row, or why that part is not; None = there is no such row."""
    ref = Ref.parse(part.ref)
    row = rows.get(ref) if ref else None
    if row is None:
        return None
    resolved = row.resolved if isinstance(row, Episode) else UNSET
    item = Item(**msgspec.structs.asdict(complete(row)), resolved=resolved)
    if part.is_whole:
        return item
    text = row.content if isinstance(row, Memory) else row.summary
    given = portion(text, part)
    if not isinstance(given, Portion):
        return Unresolved(part.ref, given)
    return msgspec.structs.replace(item, content=text[slice(*given.span)], range=given)


def _cost(item: Item) -> int:
    """Characters of a row in the answer: its texts as they are, other fields as JSON."""
    fields: dict[str, Any] = msgspec.to_builtins(item)
    return sum(len(value) if isinstance(value, str) else len(json.dumps(value)) for value in fields.values())
