"""A Write in its savepoint: look up what its changes name, ask the pure rule, write the effects and their journal."""

from collections.abc import Mapping, Sequence

import apsw
import msgspec

from memory_svc.domain.change import (
    Applied,
    Change,
    ChangeMemory,
    Expire,
    Forget,
    ForgetAgent,
    Found,
    Outcome,
    PutEpisode,
    PutMemory,
    PutPrecision,
    PutProfile,
    SetLock,
    Write,
    decide,
)
from memory_svc.domain.memory import Kind, Memory, Ref, Row, Vector, kind_of
from memory_svc.errors import Conflict
from memory_svc.storage.sqlite import journal, memories
from memory_svc.storage.sqlite.calibrations import select_precisions
from memory_svc.storage.sqlite.episodes import select_profiles
from memory_svc.storage.sqlite.rows import read_row, rows_of, write_row


def apply(connection: apsw.Connection, write: Write, vectors: Mapping[int, Vector]) -> Applied:
    """Do all of a write inside the caller's savepoint; a repeated key answers what it answered before.

    Raises what `decide` raises, and Conflict where a key is used again for another request.
    """
    repeated = _repeated(connection, write)
    if repeated:
        return repeated
    number = journal.next_write(connection)
    outcomes = tuple(
        _change(connection, write, number, change, vectors.get(at)) for at, change in enumerate(write.changes)
    )
    applied = Applied(outcomes, journal.latest(connection))
    if write.key:
        connection.execute(
            "INSERT INTO keys (principal, key, digest, applied, instant) VALUES (?, ?, ?, ?, ?)",
            (write.principal, write.key, write.digest, msgspec.json.encode(applied), write.now),
        )
    return applied


def find(connection: apsw.Connection, change: Change, now: str) -> Found:
    """What the store holds at that instant that this change must know."""
    match change:
        case PutMemory(memory):
            keyed = memories.with_msg_id(connection, memory)
            return _alike(None, keyed, memories.with_content(connection, memory, shared=True), now)
        case ChangeMemory():
            return _changed(connection, change, now)
        case PutProfile(profile):
            key = (profile.agent, profile.user, profile.project)
            found = select_profiles(connection, "agent = ? AND user = ? AND project = ?", key)
            return Found(row=found[0] if found else None)
        case PutPrecision(precision):
            held = select_precisions(connection, "agent = ?", (precision.agent,))
            return Found(row=held[0] if held else None)
        case Forget(ref):
            return Found(row=_present(connection, ref, now))
        case SetLock(id):
            return Found(row=_present(connection, Ref(Kind.MEMORY, id), now))
        case Expire(id):
            row = read_row(connection, Ref(Kind.MEMORY, id))
            return Found(over=(row,) if isinstance(row, Memory) and row.is_over(now) else ())
        case ForgetAgent(agent):
            return Found(rows=tuple(rows_of(connection, agent)))
        case PutEpisode():
            return Found()


def _change(connection: apsw.Connection, write: Write, number: int, change: Change, vector: Vector | None) -> Outcome:
    found = find(connection, change, write.now)
    outcome, effects = decide(change, found)
    known = (*found.rows, *found.over, *([found.row] if found.row else []))
    owners = {(kind_of(row), row.id): row for row in known}
    for effect in effects:
        owner = effect.row or owners.get((effect.kind, effect.id))
        id = write_row(connection, effect, vector)
        row = msgspec.structs.replace(effect.row, id=id) if effect.row else None
        if owner:
            journal.append(connection, write, number, msgspec.structs.replace(effect, id=id, row=row), owner)
        if outcome.ref:
            outcome = msgspec.structs.replace(outcome, ref=Ref(effect.kind, id))
    return outcome


def _present(connection: apsw.Connection, ref: Ref, now: str) -> Row | None:
    row = read_row(connection, ref)
    return None if isinstance(row, Memory) and row.is_over(now) else row


def _changed(connection: apsw.Connection, change: ChangeMemory, now: str) -> Found:
    row = _present(connection, Ref(Kind.MEMORY, change.id), now)
    if change.content is None or not isinstance(row, Memory):
        return Found(row=row)
    wanted = msgspec.structs.replace(row, content=change.content)
    return _alike(row, [], memories.with_content(connection, wanted, shared=False), now)


def _alike(row: Memory | None, keyed: Sequence[Memory], twins: Sequence[Memory], now: str) -> Found:
    """The first of each that is seen at that instant, and those that are not."""
    over = {each.id: each for each in (*keyed, *twins) if each.is_over(now)}
    first_keyed, first_twin = (next((each for each in found if each.id not in over), None) for found in (keyed, twins))
    return Found(row=row, keyed=first_keyed, twin=first_twin, over=tuple(over.values()))


def _repeated(connection: apsw.Connection, write: Write) -> Applied | None:
    if not write.key:
        return None
    found = connection.execute(
        "SELECT digest, applied FROM keys WHERE principal = ? AND key = ?", (write.principal, write.key)
    ).fetchone()
    if found and found[0] != write.digest:
        raise Conflict("idempotency key: it was used for another request; give each request a key of its own")
    return msgspec.json.decode(found[1], type=Applied) if found else None
