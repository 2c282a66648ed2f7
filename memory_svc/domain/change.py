"""What can happen to the store: changes as data, the pure rule that decides their outcome, and the effects it has."""

from collections import Counter
from typing import Literal

import msgspec

from memory_svc.domain.memory import Episode, Kind, Memory, Precision, Profile, Ref, Row, kind_of
from memory_svc.errors import Conflict, Invalid, NotFound


class PutMemory(msgspec.Struct, frozen=True, tag_field="change", tag="put_memory"):
    """Store a memory, unless its bucket sees it already; a locked one then locks the one that is held."""

    memory: Memory


class ChangeMemory(msgspec.Struct, frozen=True, tag_field="change", tag="change_memory"):
    """Give a memory another text, or another end of its time ("" = none); None = what it has stays.

    `agent` None = whoever owns it; `expected_revision` None = whatever it is.
    """

    id: int
    content: str | None
    agent: str | None = None
    expected_revision: int | None = None
    expires_at: str | None = None


class SetLock(msgspec.Struct, frozen=True, tag_field="change", tag="set_lock"):
    """Protect a memory from being edited or deleted, or no longer."""

    id: int
    locked: bool
    agent: str | None = None


class PutEpisode(msgspec.Struct, frozen=True, tag_field="change", tag="put_episode"):
    """Store an episode. Two alike are two episodes."""

    episode: Episode


class PutProfile(msgspec.Struct, frozen=True, tag_field="change", tag="put_profile"):
    """Replace the profile of one agent, user and project, or make it."""

    profile: Profile


class PutPrecision(msgspec.Struct, frozen=True, tag_field="change", tag="put_precision"):
    """Replace what was chosen for an agent's recall; where nothing is chosen any more, its row is erased."""

    precision: Precision


class Forget(msgspec.Struct, frozen=True, tag_field="change", tag="forget"):
    """Erase a row, its words, its vector and what the journal holds of it."""

    ref: Ref
    agent: str | None = None


class Expire(msgspec.Struct, frozen=True, tag_field="change", tag="expire"):
    """Erase a memory whose time is over, a locked one too: its owner set the time. Skipped where it is not over."""

    id: int


class ForgetAgent(msgspec.Struct, frozen=True, tag_field="change", tag="forget_agent"):
    """Erase every row of an agent, locked ones too."""

    agent: str


Change = PutMemory | ChangeMemory | SetLock | PutEpisode | PutProfile | PutPrecision | Forget | Expire | ForgetAgent


class Found(msgspec.Struct, frozen=True):
    """What the store holds that a change must know. A memory whose time is over is in `over` alone.

    row: the row it names. keyed: a memory that the agent and project see, with the same msg_id.
    twin: a memory with the same text; for a new memory one that its bucket sees (its project and channel, and what is
    shared by all), for a changed one another of the same bucket. over: what would be any of these if its time were not
    over. rows: all of an agent's.
    """

    row: Row | None = None
    keyed: Memory | None = None
    twin: Memory | None = None
    over: tuple[Memory, ...] = ()
    rows: tuple[Row, ...] = ()


class Effect(msgspec.Struct, frozen=True):
    """One row as it is to be, whole; row None = erased. id 0 = the engine gives it one."""

    kind: Kind
    id: int
    row: Row | None


class Outcome(msgspec.Struct, frozen=True):
    """What became of one change. ref None = it was about many rows, and `counts` says how many of each kind."""

    result: Literal["stored", "skipped", "changed", "gone"]
    ref: Ref | None
    revision: int = 0
    reason: str = ""
    counts: dict[Kind, int] = {}


class Write(msgspec.Struct, frozen=True):
    """What one call asks of the store, as data: all of its changes happen, or none.

    key: idempotency key of the caller ("" = none); digest: of the request, so that a key used twice is told.
    """

    principal: str
    operation: str
    now: str
    changes: tuple[Change, ...]
    key: str = ""
    digest: bytes = b""


class Applied(msgspec.Struct, frozen=True):
    """One outcome for each change, in order, and the journal's sequence after it."""

    outcomes: tuple[Outcome, ...]
    sequence: int = 0

    def id(self) -> int:
        """The id of the row that the first change was about, 0 where it was about many."""
        ref = self.outcomes[0].ref
        return ref.id if ref else 0


def decide(change: Change, found: Found) -> tuple[Outcome, tuple[Effect, ...]]:
    """The outcome of a change and its effects.

    Raises NotFound where the row is not there for this caller; Conflict where it is locked, has moved on, or another
    memory holds the text.
    """
    match change:
        case PutMemory(memory):
            return _put_memory(memory, found)
        case ChangeMemory():
            return _change_memory(change, found)
        case SetLock():
            return _set_lock(change, found)
        case PutEpisode(episode):
            return _stored(episode)
        case PutProfile(profile):
            return _put_profile(profile, found)
        case PutPrecision(precision):
            return _put_precision(precision, found)
        case Forget():
            return _forget(change, found)
        case Expire(id):
            return _expire(id, found.over)
        case ForgetAgent():
            return _forget_all(found.rows)


def _put_memory(memory: Memory, found: Found) -> tuple[Outcome, tuple[Effect, ...]]:
    held = found.keyed or found.twin
    if held is None:
        outcome, effects = _stored(memory)
        return outcome, (*_erased(found.over), *effects)
    reason = "duplicate msg_id" if found.keyed else "duplicate content"
    kept = msgspec.structs.replace(held, locked=True, revision=held.revision + 1)
    effects = (Effect(Kind.MEMORY, held.id, kept),) if memory.locked and not held.locked else ()
    return Outcome("skipped", Ref(Kind.MEMORY, held.id), held.revision + len(effects), reason), effects


def _change_memory(change: ChangeMemory, found: Found) -> tuple[Outcome, tuple[Effect, ...]]:
    ref = Ref(Kind.MEMORY, change.id)
    memory = _owned(ref, change.agent, found)
    if not isinstance(memory, Memory):
        raise Invalid(f"{ref} is not a memory")
    _refuse_locked(memory, "edited")
    if change.expected_revision not in (None, memory.revision):
        raise Conflict(f"Memory {memory.id} changed since it was read (revision {memory.revision}); read it again")
    if found.twin and found.twin.id != memory.id:
        raise Conflict(
            f"Memory {memory.id} was not edited: memory {found.twin.id} in the same agent, project and channel already"
            " holds this text; edit or delete that one instead"
        )
    content = memory.content if change.content is None else change.content
    expires_at = memory.expires_at if change.expires_at is None else change.expires_at
    if (content, expires_at) == (memory.content, memory.expires_at):
        return Outcome("changed", ref, memory.revision), ()
    changed = msgspec.structs.replace(memory, content=content, expires_at=expires_at, revision=memory.revision + 1)
    return Outcome("changed", ref, changed.revision), (
        *_erased(found.over),
        Effect(Kind.MEMORY, memory.id, changed),
    )


def _set_lock(change: SetLock, found: Found) -> tuple[Outcome, tuple[Effect, ...]]:
    ref = Ref(Kind.MEMORY, change.id)
    memory = _owned(ref, change.agent, found)
    if not isinstance(memory, Memory) or memory.locked == change.locked:
        return Outcome("changed", ref, memory.revision), ()
    changed = msgspec.structs.replace(memory, locked=change.locked, revision=memory.revision + 1)
    return Outcome("changed", ref, changed.revision), (Effect(Kind.MEMORY, memory.id, changed),)


def _put_profile(profile: Profile, found: Found) -> tuple[Outcome, tuple[Effect, ...]]:
    if not isinstance(found.row, Profile):
        return _stored(profile)
    changed = msgspec.structs.replace(profile, id=found.row.id, revision=found.row.revision + 1)
    return Outcome("changed", Ref(Kind.PROFILE, changed.id), changed.revision), (
        Effect(Kind.PROFILE, changed.id, changed),
    )


def _put_precision(precision: Precision, found: Found) -> tuple[Outcome, tuple[Effect, ...]]:
    held = found.row
    if not isinstance(held, Precision):
        return _stored(precision) if precision.is_chosen else (Outcome("skipped", None), ())
    ref = Ref(Kind.PRECISION, held.id)
    if not precision.is_chosen:
        return Outcome("gone", ref, held.revision), (Effect(Kind.PRECISION, held.id, None),)
    changed = msgspec.structs.replace(precision, id=held.id, revision=held.revision)
    if changed == held:
        return Outcome("changed", ref, held.revision), ()
    changed = msgspec.structs.replace(changed, revision=held.revision + 1)
    return Outcome("changed", ref, changed.revision), (Effect(Kind.PRECISION, held.id, changed),)


def _forget(change: Forget, found: Found) -> tuple[Outcome, tuple[Effect, ...]]:
    row = _owned(change.ref, change.agent, found)
    if isinstance(row, Memory):
        _refuse_locked(row, "deleted")
    return Outcome("gone", change.ref, row.revision), (Effect(change.ref.kind, change.ref.id, None),)


def _expire(id: int, over: tuple[Memory, ...]) -> tuple[Outcome, tuple[Effect, ...]]:
    return Outcome("gone" if over else "skipped", Ref(Kind.MEMORY, id)), _erased(over)


def _forget_all(rows: tuple[Row, ...]) -> tuple[Outcome, tuple[Effect, ...]]:
    counts = Counter(kind_of(row) for row in rows)
    return Outcome("gone", None, counts=dict(counts)), tuple(Effect(kind_of(row), row.id, None) for row in rows)


def _erased(rows: tuple[Memory, ...]) -> tuple[Effect, ...]:
    return tuple(Effect(Kind.MEMORY, row.id, None) for row in rows)


def _stored(row: Row) -> tuple[Outcome, tuple[Effect, ...]]:
    kind = kind_of(row)
    return Outcome("stored", Ref(kind, row.id), row.revision), (Effect(kind, row.id, row),)


def _owned(ref: Ref, agent: str | None, found: Found) -> Row:
    row = found.row
    if row is None or (agent is not None and row.agent != agent):
        raise NotFound(f"{ref.kind.capitalize()} {ref.id} not found")
    return row


def _refuse_locked(memory: Memory, verb: str) -> None:
    if memory.locked:
        raise Conflict(f"Memory {memory.id} is locked and cannot be {verb}; unlock it first")
