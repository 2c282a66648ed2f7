"""Scope: what every arm sees of rows that differ in every axis, and that it narrows before anything is ranked."""

import random
from collections.abc import Callable, Mapping

import pytest

from memory_svc.domain.change import ChangeMemory, PutEpisode, PutMemory, PutProfile
from memory_svc.domain.labels import folded
from memory_svc.domain.memory import Episode, Kind, Memory, Profile, Ref
from memory_svc.domain.scope import CANARY_AGENT, Scope
from memory_svc.storage.interface import Candidates, Query, Storage
from tests.support.corpus import NOW, vector, write

AGENTS, PROJECTS, CHANNELS, SOURCES = (
    ("a", "b", "", CANARY_AGENT),
    ("", "P", "Q"),
    ("", "c", "d"),
    ("", "s:1", "s:2", "t:1"),
)
# With and without a fraction, on both sides of midnight and of 1970.
INSTANTS = tuple(
    f"{day}T{clock}+00:00"
    for day in ("1969-12-31", "2026-02-28", "2026-03-01")
    for clock in ("00:00:00", "00:00:00.000001", "23:59:59", "23:59:59.500000")
)
EXPIRIES = ("", "", "", "2026-03-05T00:00:00+00:00", "2026-03-05T00:00:00.000001+00:00", "2026-03-06T00:00:00+00:00")
TAGS = ("red", "Grün", "ＢＬＵＥ", "two words")
VALUES = (
    ("kind", "note"),
    ("kind", "Note"),
    ("level", 1),
    ("level", 1.5),
    ("done", True),
    ("done", None),
    ("a.b", "x"),
)
ROWS_COUNT, SCOPES_COUNT = 90, 150
Seen = Callable[[Scope], set[Ref]]


def memory(number: int, dice: random.Random) -> Memory:
    """A memory that every arm finds, somewhere in the axes."""
    source = dice.choice(SOURCES)
    return Memory(
        agent=dice.choice(AGENTS),
        project=dice.choice(PROJECTS),
        channel=dice.choice(CHANNELS),
        content=f"needle stands in haystacks {number}",
        source={"id": source} if source else {},
        timestamp=dice.choice(INSTANTS),
        created_at=dice.choice(INSTANTS),
        expires_at=dice.choice(EXPIRIES),
        tags=tuple(dice.sample(TAGS, dice.randrange(4))),
        metadata=dict(dice.sample(VALUES, dice.randrange(4))),
    )


def episode(number: int, dice: random.Random) -> Episode:
    """An episode that every arm finds, somewhere in the axes."""
    return Episode(
        agent=dice.choice(AGENTS),
        project=dice.choice(PROJECTS),
        channel=dice.choice(CHANNELS),
        summary=f"needle stands in haystacks {number}",
        start_time=dice.choice(("", *INSTANTS)),
        created_at=dice.choice(INSTANTS),
    )


def some_scope(dice: random.Random) -> Scope:
    """A scope, mostly narrow in some axes and open in others."""
    return Scope(
        agent=dice.choice((None, *AGENTS)),
        project=dice.choice((None, None, *PROJECTS)),
        channel=dice.choice(("", *CHANNELS)),
        source=dice.choice(("", "", "s:", "s:1", "x")),
        since=dice.choice(("", "", *INSTANTS)),
        until=dice.choice(("", "", *INSTANTS)),
        known_by=dice.choice(("", "", *INSTANTS)),
        now=dice.choice(("", *EXPIRIES, NOW)),
        tags=tuple(map(folded, dice.sample(TAGS, dice.choice((0, 0, 0, 0, 0, 0, 1, 2))))),
        metadata=tuple(dice.sample(VALUES, dice.choice((0, 0, 0, 0, 0, 0, 1, 2)))),
    )


def same(held: object, asked: object) -> bool:
    """Equal as JSON has it: true is no number."""
    return held == asked and isinstance(held, bool) is isinstance(asked, bool)


def lies_in(row: Memory | Episode, scope: Scope) -> bool:
    """What the words of the contract say of a row and a scope."""
    is_memory = isinstance(row, Memory)
    said = row.timestamp if is_memory else row.start_time or row.created_at
    return (
        (scope.agent == row.agent or (scope.agent is None and row.agent != CANARY_AGENT))
        and (scope.project is None or row.project in (scope.project, ""))
        and (not scope.channel or row.channel in (scope.channel, ""))
        and (
            not scope.source
            or (str(row.source.get("id", "")).startswith(scope.source) if is_memory else bool(scope.channel))
        )
        and (not scope.since or said >= scope.since)
        and (not scope.until or said < scope.until)
        and (not scope.known_by or row.created_at <= scope.known_by)
        and (is_memory or not (scope.tags or scope.metadata))
        and all(is_memory and tag in map(folded, row.tags) for tag in scope.tags)
        and all(is_memory and key in row.metadata and same(row.metadata[key], value) for key, value in scope.metadata)
        and not (is_memory and scope.now and row.expires_at and row.expires_at <= scope.now)
    )


@pytest.fixture
async def seen(storage: Storage) -> Seen:
    """A store of such rows; gives those of them that lie in a scope."""
    dice = random.Random(7)
    rows: dict[Ref, Memory | Episode] = {}
    for number in range(ROWS_COUNT):
        row = memory(number, dice) if number % 3 else episode(number, dice)
        change = PutMemory(row) if isinstance(row, Memory) else PutEpisode(row)
        outcome = (await storage.apply(write(change), {0: vector("same")})).outcomes[0]
        assert outcome.ref is not None
        rows[outcome.ref] = row
    return lambda scope: {ref for ref, row in rows.items() if lies_in(row, scope)}


async def arms(storage: Storage, scope: Scope, depth: int) -> Mapping[str, set[Ref]]:
    """What each arm sees of the scope; every row answers every arm."""
    query = Query(("needle",), vector("same"), depth, ("aystac",), ("needle stands in",))

    def read(found: Candidates) -> Mapping[str, set[Ref]]:
        names = ("vectors", "words", "windows", "pieces", "phrases", "episodes")
        given = {name: {Ref.of_document(document) for document, _ in getattr(found, name)} for name in names}
        return given | {"evidence": set(map(Ref.of_document, found.evidence.documents.tolist()))}

    return await storage.search.candidates(scope, query, read)


async def pages(storage: Storage, scope: Scope) -> tuple[set[Ref], set[Ref]]:
    """What the lists of memories and of episodes see of the scope."""
    memories, episodes = await storage.memories.page(scope, 999), await storage.episodes.page(scope, 999)
    return {Ref(Kind.MEMORY, row.id) for row in memories}, {Ref(Kind.EPISODE, row.id) for row in episodes}


async def test_every_arm_and_list_sees_exactly_what_lies_in_the_scope(storage: Storage, seen: Seen) -> None:
    dice = random.Random(11)
    sizes = set()
    for _ in range(SCOPES_COUNT):
        scope = some_scope(dice)
        expected = seen(scope)
        memories = {ref for ref in expected if ref.kind is Kind.MEMORY}
        found = await arms(storage, scope, ROWS_COUNT)
        for name in ("vectors", "pieces", "phrases", "evidence"):
            assert found[name] == expected, (scope, name)
        assert found["words"] == found["windows"] == memories, scope
        assert found["episodes"] == expected - memories, scope
        listed = await pages(storage, scope)
        assert listed[0] == memories, scope
        assert scope.source or listed[1] == expected - memories, scope
        sizes.add(len(expected))
    assert len(sizes) > 10


async def test_an_arm_is_filled_from_the_scope_however_many_rows_beside_it_rank_higher(
    storage: Storage, seen: Seen
) -> None:
    dice = random.Random(13)
    for _ in range(SCOPES_COUNT):
        scope = some_scope(dice)
        expected = seen(scope)
        memories_count = sum(ref.kind is Kind.MEMORY for ref in expected)
        found = await arms(storage, scope, 3)
        for name, there in (("vectors", len(expected)), ("words", memories_count), ("windows", memories_count)):
            assert len(found[name]) == min(3, there), (scope, name)
        for name in ("pieces", "phrases"):
            assert len(found[name]) >= min(3, len(expected)), (scope, name)
        assert all(rows <= expected for rows in found.values())


async def test_a_row_that_changes_stays_where_it_is_in_time(storage: Storage, seen: Seen) -> None:
    scope = Scope(since=INSTANTS[2], until=INSTANTS[7], known_by=INSTANTS[8])
    before = (await arms(storage, scope, ROWS_COUNT))["vectors"]
    for ref in before:
        if ref.kind is Kind.MEMORY:
            await storage.apply(write(ChangeMemory(ref.id, f"needle changed {ref.id}")), {0: vector("same")})
    assert (await arms(storage, scope, ROWS_COUNT))["vectors"] == before == seen(scope)


async def test_profiles_are_of_when_they_were_last_changed(storage: Storage) -> None:
    await storage.apply(write(PutProfile(Profile(agent="a", content="likes tea", updated_at=INSTANTS[5]))))
    for scope, count in (
        (Scope(since=INSTANTS[5], until=INSTANTS[6], known_by=INSTANTS[5]), 1),
        (Scope(since=INSTANTS[6]), 0),
        (Scope(until=INSTANTS[5]), 0),
        (Scope(known_by=INSTANTS[4]), 0),
    ):
        assert len(await storage.profiles.of(scope)) == count
