"""What the rest of the house sees of an engine: Protocols at the level of the domain's verbs.

No method takes or gives SQL, a row of the engine, a cursor or a transaction. A Scope is the first argument of a read.
Every method raises Unavailable when the engine does not answer.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec

from memory_svc.domain.blocks import Passage, Span
from memory_svc.domain.change import Applied, Effect, Write
from memory_svc.domain.memory import Episode, Memory, Precision, Profile, Ref, Row, Vector
from memory_svc.domain.recall.calibration import Calibration
from memory_svc.domain.recall.fusion import Evidence, Flags, Floats, Hits, Integers
from memory_svc.domain.scope import Scope

WATCH_SECONDS_MAX = 0.25
T = TypeVar("T")


class RowVector(msgspec.Struct, frozen=True):
    """The vector of one revision of a row. Without values = that model makes none of it, so it waits no more."""

    ref: Ref
    revision: int
    vector: Vector


class Waiting(msgspec.Struct, frozen=True):
    """A row whose text has no vector of the present model yet, or (has_first) only that of its first block."""

    ref: Ref
    revision: int
    passage: Passage
    has_first: bool = False


class Query(msgspec.Struct, frozen=True):
    """What candidates are looked for by.

    words: distinct folded words, () = the word arms do not run. vector: of the query, None = the vector arms do not
    run. depth: rows an arm may give. pieces: what may stand inside longer words. phrases: what the query quotes.
    times: stretches of time that the query names, half open, as ISO-8601 in UTC. newest_rows: how many rows of the
    scope, those stored last, the vector arm looks through; 0 = all. names: its identifiers and versions. names_alone:
    it is nothing else.
    """

    words: tuple[str, ...]
    vector: Vector | None
    depth: int
    pieces: tuple[str, ...] = ()
    phrases: tuple[str, ...] = ()
    times: tuple[tuple[str, str], ...] = ()
    newest_rows: int = 0
    names: tuple[str, ...] = ()
    names_alone: bool = False


class Past(Protocol):
    """What is known of candidates beside what they say; only to be asked inside the snapshot, by who has use for it.

    Columns are those of the evidence. Instants are hours since 1970, NaN = none.
    """

    def boundary(self) -> float:
        """When the newest episode of the scope ended, else began, else was stored."""
        ...

    def span_hours(self) -> float:
        """From the oldest memory of the scope to the newest."""
        ...

    def said(self) -> Floats:
        """When each candidate was said; an episode, when it began, else when it was stored."""
        ...

    def resolved(self) -> Flags:
        """Which candidates are episodes that are closed."""
        ...

    def recalled(self) -> tuple[Integers, Floats]:
        """How often each memory was recalled, and when last."""
        ...


class Candidates(msgspec.Struct, frozen=True):
    """Every arm's rows, best first, all of one snapshot, and what speaks for each.

    vectors: rows of any kind by cosine. words: memories by text score. windows: memories by that of them and their
    neighbours. pieces: rows that hold a piece inside a longer word. phrases: rows that hold a quoted phrase. episodes:
    episodes by text score. tells: what each of the query's words tells, its idf among the agent's memories.
    threshold: what the best row's evidence must reach, None = not calibrated for this agent and the query's model.
    past: how old each is and how often it was recalled. rows: those of these refs that there are, as the snapshot has
    them. spans: of those of which a block other than the first is nearest to the query, where in the content it lies.
    beside: of each of these refs the rows before and after it in its talk, whether in the scope or not. These are only
    to be asked inside the snapshot.
    """

    vectors: Hits
    words: Hits
    windows: Hits
    pieces: Hits
    phrases: Hits
    episodes: Hits
    evidence: Evidence
    tells: Mapping[str, float]
    threshold: float | None
    past: Past
    rows: Callable[[Sequence[Ref]], Mapping[Ref, Row]]
    spans: Callable[[Sequence[Ref]], Mapping[Ref, Span]]
    beside: Callable[[Sequence[Ref]], Mapping[Ref, Sequence[Ref]]]


class Position(msgspec.Struct, frozen=True, array_like=True):
    """The last row of a page, from which the next one goes on."""

    created_at: str
    id: int


class Sizes(msgspec.Struct, frozen=True):
    """How much there is."""

    rows: Mapping[str, int]
    database_bytes: int
    log_bytes: int
    journal_sequence: int


class Copied(msgspec.Struct, frozen=True):
    """A copy of the store: its file, how large it is, and how many rows each of its tables has."""

    path: str
    size_bytes: int
    rows: Mapping[str, int]


class JournalRow(msgspec.Struct, frozen=True):
    """One effect as it was written. effect None = its row was erased since, or it is an erasure."""

    sequence: int
    write: int
    instant: str
    principal: str
    operation: str
    agent: str
    project: str
    ref: Ref
    effect: Effect | None
    erasure: bool


class Memories(Protocol):
    """Memories, read."""

    async def get(self, scope: Scope, ids: Sequence[int]) -> dict[int, Memory]:
        """Those of these ids that lie in the scope."""
        ...

    async def page(self, scope: Scope, limit: int, before: Position | None = None) -> list[Memory]:
        """The newest by creation, newest first; those after a position of an earlier page."""
        ...


class Episodes(Protocol):
    """Episodes, read."""

    async def get(self, scope: Scope, ids: Sequence[int]) -> dict[int, Episode]:
        """Those of these ids that lie in the scope."""
        ...

    async def page(self, scope: Scope, limit: int, before: Position | None = None) -> list[Episode]:
        """The newest by creation, newest first; those after a position of an earlier page."""
        ...


class Profiles(Protocol):
    """Profiles, read."""

    async def of(self, scope: Scope) -> list[Profile]:
        """The profiles in the scope, newest first."""
        ...

    async def beside(self, scope: Scope, limit: int, rows_min: int) -> list[Profile]:
        """The newest profiles in the scope that are of no user, newest first.

        None where the scope has fewer than so many memories and episodes.
        """
        ...


class Search(Protocol):
    """Every retriever, in one snapshot."""

    async def candidates(self, scope: Scope, query: Query, read: Callable[[Candidates], T]) -> T:
        """What `read` makes of each arm's best rows within the scope; the scope acts before the ranking.

        `read` is called inside the snapshot, in a thread of the engine.
        """
        ...


class Journal(Protocol):
    """The feed of effects."""

    async def after(self, sequence: int, limit: int) -> list[JournalRow]:
        """The effects after that sequence, oldest first."""
        ...

    async def latest(self) -> int:
        """The last sequence given, 0 before the first."""
        ...

    def watch(self, after: int) -> AsyncGenerator[list[JournalRow], None]:
        """The effects after that sequence, oldest first, in bounded batches, for as long as it is asked for more.

        What this process writes comes at once, what others write within WATCH_SECONDS_MAX. Holds up no write however
        slowly it is read. To be closed after use.
        """
        ...

    async def replay(self, rows: Sequence[JournalRow]) -> None:
        """Write these effects by id. Decides nothing; twice the same is once."""
        ...


class Derived(Protocol):
    """What can be made anew from the rows: vectors. Not truth, not journaled."""

    async def waiting(self, fingerprint: str, limit: int) -> list[Waiting]:
        """Rows without a vector of that fingerprint, oldest first, then one that lacks further blocks of it."""
        ...

    async def waiting_count(self, fingerprint: str) -> int:
        """How many rows lack a vector of that fingerprint or a block; "" counts those that have none at all."""
        ...

    async def spans(self, ref: Ref) -> list[Span] | None:
        """Where the blocks of a row's content lie that have vectors, of whatever model, [] where one stands for all.

        None = the row waits for a vector or for further blocks.
        """
        ...

    async def forget_vectors(self) -> int:
        """Let every row wait for a new vector; how many there are."""
        ...

    async def set_vectors(self, vectors: Sequence[RowVector]) -> int:
        """Keep these where the row is still at that revision; how many were kept."""
        ...


class TimesRecalled(msgspec.Struct, frozen=True):
    """How often a memory was recalled, and when last."""

    count: int
    last: str


class Recalls(Protocol):
    """How often memories were recalled. Not truth, not journaled; at most 20,000 memories are noted between flushes."""

    def note(self, ids: Sequence[int], instant: str) -> None:
        """Count each of these memories once more, in memory; `flush` or `close` writes it."""
        ...

    async def flush(self) -> int:
        """Write what was noted; of how many memories. What cannot be written stays noted."""
        ...

    async def of(self, scope: Scope, ids: Sequence[int]) -> dict[int, TimesRecalled]:
        """Those of these memories in the scope that were recalled, with what is noted since."""
        ...


class Sample(msgspec.Struct, frozen=True):
    """Some of an agent's memories and episodes with their vectors, and a text that stands for all as they are.

    corpus: "" = some rows lack a vector, so that the sample is not yet of all.
    """

    corpus: str
    rows_count: int
    rows: Sequence[tuple[Memory | Episode, bytes]]


class Due(msgspec.Struct, frozen=True):
    """An agent whose calibration is not that of its rows as they are, or not by the rule that is set.

    calibrated_rows: how many there were then, 0 = never.
    """

    agent: str
    corpus: str
    rows_count: int
    calibrated_rows: int
    is_rule_new: bool


class Calibrations(Protocol):
    """What the gate goes by: derived from the rows for each agent and model, and what was chosen for an agent."""

    async def precision(self, agent: str) -> Precision | None:
        """What was chosen for the agent."""
        ...

    async def get(self, agent: str, fingerprint: str) -> Calibration | None:
        """The agent's calibration for that model."""
        ...

    async def due(self, fingerprint: str, defaults: str) -> list[Due]:
        """The agents that are to be calibrated. defaults: stands for what is set for all agents."""
        ...

    async def sample(self, agent: str, fingerprint: str, count: int) -> Sample:
        """So many rows that have a vector of that model, chosen by what they say: in whatever order they came."""
        ...

    async def put(self, calibration: Calibration) -> None:
        """Keep a calibration in place of the agent's earlier one for that model, if the agent still has rows."""
        ...


class Upkeep(Protocol):
    """What keeps the files sound and small."""

    async def checkpoint(self) -> int:
        """Move the write-ahead log into the database; how many bytes of log are left."""
        ...

    async def erase_step(self) -> bool:
        """One bounded step towards leaving no byte of what was erased; whether the next one may follow at once."""
        ...

    async def erasing(self) -> bool:
        """Whether bytes of what was erased may still be in the files."""
        ...

    async def expired(self, now: str, limit: int) -> list[int]:
        """The memories whose time is over at that instant, the longest over first."""
        ...

    async def forget_keys(self, before: str) -> int:
        """Forget the idempotency keys used before an instant (ISO-8601 in UTC); how many."""
        ...

    async def sizes(self) -> Sizes:
        """How much there is."""
        ...

    async def verify(self) -> list[str]:
        """Where the journal and the rows disagree, in words; [] = nowhere."""
        ...

    async def backup(self, path: str) -> Copied:
        """Write a proved copy of one moment to that file while others go on; a file of that name is replaced.

        Raises Unavailable where there is no room or the copy is not sound; nothing of that name has changed then.
        """
        ...


class Storage(Protocol):
    """An engine."""

    @property
    def memories(self) -> Memories: ...
    @property
    def episodes(self) -> Episodes: ...
    @property
    def profiles(self) -> Profiles: ...
    @property
    def search(self) -> Search: ...
    @property
    def journal(self) -> Journal: ...
    @property
    def derived(self) -> Derived: ...
    @property
    def calibrations(self) -> Calibrations: ...
    @property
    def recalls(self) -> Recalls: ...
    @property
    def upkeep(self) -> Upkeep: ...

    async def apply(self, write: Write, vectors: Mapping[int, Vector] | None = None) -> Applied:
        """Do all of a write, or none of it, and answer when it is on disk.

        vectors: already made, by the index of the change whose row they belong to.
        Raises what `decide` raises; Overloaded when too many writes wait; Unavailable when the disk does not take it.
        """
        ...

    async def ping(self) -> None:
        """Raise Unavailable unless the engine answers."""
        ...

    async def close(self) -> None:
        """Finish what waits, checkpoint, let go of the files."""
        ...
