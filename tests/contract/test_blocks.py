"""Rows with several vectors: the best one speaks for the row, and all of them come and go with it."""

import struct
from pathlib import Path

import apsw
import msgspec
import numpy as np
import pytest

from memory_svc.domain.blocks import Span
from memory_svc.domain.change import ChangeMemory, Forget, PutEpisode, PutMemory, SetLock
from memory_svc.domain.memory import Block, Kind, Ref, Vector
from memory_svc.domain.scope import Scope
from memory_svc.storage.interface import Candidates, Query, RowVector, Storage
from memory_svc.storage.sqlite.connection import open_connection
from memory_svc.storage.sqlite.engine import SqliteStorage
from memory_svc.storage.sqlite.vectors import Resident
from tests.contract.test_migrations import old_database
from tests.support.corpus import candidates, episode, memory, put, vector, write

FIRST = Ref(Kind.MEMORY, 1)


def blocks(*seeds: str, fingerprint: str = "f1") -> Vector:
    """A vector of as many blocks as there are seeds, of ten characters each."""
    made = [vector(seed, fingerprint) for seed in seeds]
    parts = tuple(Block(10 * at, 10 * at + 10, each.values) for at, each in enumerate(made))
    return msgspec.structs.replace(made[0], blocks=parts)


async def nearest(storage: Storage, seed: str, depth: int = 10, scope: Scope | None = None) -> list[tuple[str, float]]:
    """(ref, cosine), best first."""
    found = await candidates(storage, scope or Scope(), Query((), vector(seed), depth))
    return [(str(hit.ref), round(hit.score, 6)) for hit in found.vectors]


async def test_the_best_block_speaks_for_the_row_in_the_vector_arm_and_beside_words(storage: Storage) -> None:
    await storage.apply(put("needle"), {0: blocks("one", "two", "three")})
    await storage.apply(write(PutEpisode(episode("thread"))), {0: blocks("four", "five")})
    await storage.apply(put("short"), {0: vector("six")})
    for seed, ref in (("one", "mem:1"), ("three", "mem:1"), ("four", "ep:1"), ("five", "ep:1"), ("six", "mem:2")):
        found = await nearest(storage, seed)
        assert found[0] == (ref, 1.0)
        assert len(found) == 3

    def cosines(found: Candidates) -> dict[str, float]:
        columns = zip(found.evidence.documents.tolist(), found.evidence.cosines.tolist(), strict=True)
        return {str(Ref.of_document(document)): round(cosine, 6) for document, cosine in columns}

    for depth in (2, 10):
        asked = Query(("needle", "short"), vector("three"), depth)
        read = await storage.search.candidates(Scope(), asked, cosines)
        assert read["mem:1"] == 1.0
        assert read["mem:2"] == dict(await nearest(storage, "three"))["mem:2"]


async def test_rows_of_many_blocks_leave_room_for_as_many_rows_as_are_asked_for(storage: Storage) -> None:
    """Each block of the first rows is nearer than any of the others."""
    near = vector("query")
    for number in range(5):
        parts = tuple(Block(at, at + 1, near.values) for at in range(30))
        await storage.apply(put(f"long {number}"), {0: msgspec.structs.replace(near, blocks=parts)})
    for number in range(40):
        await storage.apply(put(f"short {number}"), {0: vector(f"t{number}")})
    everything = await nearest(storage, "query", 100)
    assert [ref for ref, _ in everything[:5]] == [f"mem:{id}" for id in range(1, 6)]
    assert len(everything) == 45
    for depth in (1, 5, 6, 20, 44):
        assert await nearest(storage, "query", depth) == everything[:depth]


async def test_the_order_is_that_of_the_best_cosine_of_every_row(storage: Storage) -> None:
    best: dict[str, float] = {}
    query = np.frombuffer(vector("query").values, "<f4").astype(float)
    for number in range(200):
        seeds = [f"t{number}-{at}" for at in range(1 + number % 7)]
        await storage.apply(put(f"text {number}"), {0: blocks(*seeds)})
        of_blocks = [np.frombuffer(vector(seed).values, "<f4").astype(float) for seed in seeds]
        best[f"mem:{number + 1}"] = max(float(each @ query) for each in of_blocks)
    expected = sorted(best, key=lambda ref: -best[ref])
    for depth in (1, 10, 60):
        assert [ref for ref, _ in await nearest(storage, "query", depth)] == expected[:depth]


async def test_it_is_told_where_the_block_lies_that_speaks_for_a_row_unless_it_is_the_first(storage: Storage) -> None:
    await storage.apply(put("long"), {0: blocks("one", "two", "three")})
    await storage.apply(put("short"), {0: vector("four")})
    await storage.apply(write(PutEpisode(episode("talk"))), {0: blocks("five", "six")})
    refs = [FIRST, Ref(Kind.MEMORY, 2), Ref(Kind.EPISODE, 1)]
    for seed, ref, span in (("three", FIRST, Span(20, 30)), ("six", refs[2], Span(10, 20)), ("one", FIRST, None)):
        asked = Query((), vector(seed), 10)
        found = await storage.search.candidates(Scope(), asked, lambda each: dict(each.spans(refs)))
        assert found.get(ref) == span
        assert Ref(Kind.MEMORY, 2) not in found
    without = Query(("long",), None, 10)
    assert await storage.search.candidates(Scope(), without, lambda each: dict(each.spans(refs))) == {}


async def test_every_block_lies_in_the_scope_of_its_row(storage: Storage) -> None:
    await storage.apply(put("mine", agent="a", project="P"), {0: blocks("one", "two")})
    await storage.apply(put("theirs", agent="b", channel="c"), {0: blocks("one", "two")})
    for scope, ref in ((Scope(agent="a"), "mem:1"), (Scope(agent="b"), "mem:2"), (Scope(project="P"), None)):
        found = await nearest(storage, "two", scope=scope)
        assert [each for each, _ in found] == ([ref] if ref else ["mem:1", "mem:2"])
    assert await nearest(storage, "two", scope=Scope(agent="a", project="Q")) == []


async def test_of_the_rows_stored_last_each_counts_once_however_many_blocks_it_has(storage: Storage) -> None:
    for number in range(6):
        row = msgspec.structs.replace(memory(f"text {number}"), created_at=f"2026-03-0{1 + number}T00:00:00+00:00")
        await storage.apply(write(PutMemory(row)), {0: blocks(*(f"t{number}-{at}" for at in range(1 + number % 3)))})
    for newest in range(1, 8):
        query = Query((), vector("query"), 10, newest_rows=newest)
        found = await candidates(storage, Scope(), query)
        assert {hit.ref.id for hit in found.vectors} == set(range(max(7 - newest, 1), 7))


async def test_a_text_that_changes_loses_all_blocks_of_what_it_was(storage: Storage) -> None:
    await storage.apply(put("long"), {0: blocks("one", "two", "three")})
    assert await storage.derived.spans(FIRST) == [Span(0, 10), Span(10, 20), Span(20, 30)]
    await storage.apply(write(SetLock(1, True)))
    await storage.apply(write(SetLock(1, False)))
    assert (await nearest(storage, "three"))[0] == ("mem:1", 1.0)
    await storage.apply(write(ChangeMemory(1, "short")), {0: vector("four")})
    assert await storage.derived.spans(FIRST) == []
    assert (await nearest(storage, "four"))[0] == ("mem:1", 1.0)
    for seed in ("one", "two", "three"):
        assert (await nearest(storage, seed))[0][1] < 0.9
    await storage.apply(write(ChangeMemory(1, "waits")))
    assert await nearest(storage, "four") == []
    assert await storage.derived.spans(FIRST) is None


async def test_a_row_that_goes_takes_all_its_blocks_with_it(storage: Storage) -> None:
    await storage.apply(put("long"), {0: blocks("one", "two", "three")})
    await storage.apply(put("kept"), {0: vector("four")})
    await nearest(storage, "one")
    await storage.apply(write(Forget(FIRST)))
    for seed in ("one", "two", "three"):
        assert [ref for ref, _ in await nearest(storage, seed)] == ["mem:2"]
    assert await storage.derived.set_vectors([RowVector(FIRST, 1, blocks("one", "two"))]) == 0


async def test_after_the_erasure_steps_no_block_of_an_erased_text_is_left_in_the_files(tmp_path: Path) -> None:
    engine = SqliteStorage(tmp_path / "memory.db")
    seeds = [f"seed {at}" for at in range(40)]
    for number in range(20):
        await engine.apply(put(f"kept {number}"), {0: blocks(f"k{number}", f"l{number}")})
    erased = (await engine.apply(put("long"), {0: blocks(*seeds)})).outcomes[0].ref
    await engine.apply(write(Forget(erased)))
    for _ in range(100):
        await engine.upkeep.erase_step()
    assert not await engine.upkeep.erasing()
    for file in tmp_path.iterdir():
        held = file.read_bytes()
        assert not any(vector(seed).values[32:64] in held for seed in seeds), file.name
    await engine.close()


async def test_first_vectors_come_before_further_blocks_and_a_begun_row_waits_for_those(storage: Storage) -> None:
    begun = msgspec.structs.replace(vector("one"), read=10)
    await storage.apply(put("begun"), {0: begun})
    await storage.apply(put("bare"))
    await storage.apply(put("whole"), {0: vector("two")})
    assert await storage.derived.waiting_count("f1") == 2
    assert [(row.passage.text, row.has_first) for row in await storage.derived.waiting("f1", 10)] == [
        ("bare", False),
        ("begun", True),
    ]
    assert (await nearest(storage, "one"))[0] == ("mem:1", 1.0)
    assert await storage.derived.spans(FIRST) is None
    assert await storage.derived.set_vectors([RowVector(FIRST, 1, blocks("one", "three"))]) == 1
    assert await storage.derived.waiting_count("f1") == 1
    assert (await nearest(storage, "three"))[0] == ("mem:1", 1.0)
    assert [row.has_first for row in await storage.derived.waiting("f2", 10)] == [False, False, False]
    assert await storage.derived.waiting_count("f2") == 3


async def test_a_row_lets_go_of_its_blocks_when_every_row_waits_for_new_vectors(storage: Storage) -> None:
    await storage.apply(put("long"), {0: blocks("one", "two")})
    await storage.apply(put("begun"), {0: msgspec.structs.replace(vector("three"), read=10)})
    assert await storage.derived.forget_vectors() == 2
    assert await nearest(storage, "two") == []
    assert [row.has_first for row in await storage.derived.waiting("f1", 10)] == [False, False]


async def test_a_replayed_row_waits_for_its_blocks_and_an_erased_one_for_none(storage: Storage, tmp_path: Path) -> None:
    await storage.apply(put("long"), {0: blocks("one", "two")})
    await storage.apply(put("gone"), {0: blocks("three", "four")})
    copy = SqliteStorage(tmp_path / "copy.db")
    await copy.journal.replay(await storage.journal.after(0, 10))
    await copy.derived.set_vectors([RowVector(Ref(Kind.MEMORY, id), 1, blocks("one", "two")) for id in (1, 2)])
    assert len(await nearest(copy, "two")) == 2
    await storage.apply(write(Forget(Ref(Kind.MEMORY, 2))))
    for _ in range(2):
        await copy.journal.replay(await storage.journal.after(0, 10))
    assert await nearest(copy, "two") == [("mem:1", 1.0)]
    assert await copy.derived.waiting_count("f1") == 0
    await copy.close()


async def test_the_answers_are_the_same_after_a_restart_in_whatever_order_blocks_came(tmp_path: Path) -> None:
    engine = SqliteStorage(tmp_path / "memory.db")
    for number in range(60):
        await engine.apply(put(f"text {number}"), {0: msgspec.structs.replace(vector(f"t{number}"), read=5)})
        await nearest(engine, "query")
    for number in sorted(range(60), key=lambda each: each * 7 % 60):
        made = blocks(*(f"t{number}-{at}" for at in range(number % 4 + 1)))
        await engine.derived.set_vectors([RowVector(Ref(Kind.MEMORY, number + 1), 1, made)])
    before = [await nearest(engine, f"query {at}", 25) for at in range(20)]
    await engine.close()
    again = SqliteStorage(tmp_path / "memory.db")
    assert [await nearest(again, f"query {at}", 25) for at in range(20)] == before
    await again.close()


async def test_many_replaced_blocks_do_not_stay_resident(storage: Storage) -> None:
    await storage.apply(put("one"), {0: vector("v0")})
    for number in range(1, 400):
        seeds = [f"v{number}-{at}" for at in range(10)]
        await storage.derived.set_vectors([RowVector(FIRST, 1, blocks(*seeds))])
        if number % 40 == 0:
            assert await nearest(storage, f"v{number}-9") == [("mem:1", 1.0)]


async def test_a_snapshot_sees_the_blocks_of_its_moment_whatever_others_have_read_since(tmp_path: Path) -> None:
    engine = SqliteStorage(tmp_path / "memory.db")
    await engine.apply(put("kept"), {0: blocks("one", "two")})
    await engine.apply(put("changed"), {0: blocks("three", "four")})
    resident = Resident()
    earlier, latest = (open_connection(tmp_path / "memory.db") for _ in range(2))
    changed = Ref(Kind.MEMORY, 2)

    def near(connection: apsw.Connection, seed: str) -> dict[int, float]:
        found = resident.nearest(connection, Scope(agent="a"), vector(seed), 10)
        documents = np.array([FIRST.document, changed.document])
        cosines = resident.cosines(connection, vector(seed), documents).tolist()
        known = {
            document: cosine for document, cosine in zip(documents.tolist(), cosines, strict=True) if cosine == cosine
        }
        assert known == pytest.approx(dict(found))
        return {document: round(score, 6) for document, score in found}

    near(latest, "one")
    earlier.execute("BEGIN")
    assert earlier.execute("SELECT count(*) FROM memories").fetchall() == [(2,)]
    await engine.apply(write(ChangeMemory(2, "changed again")), {0: blocks("five", "six", "seven")})
    assert near(latest, "seven")[changed.document] == 1.0
    assert near(latest, "four")[changed.document] < 0.9
    assert near(earlier, "four")[changed.document] == 1.0
    assert near(earlier, "seven")[changed.document] < 0.9
    assert near(earlier, "two")[FIRST.document] == 1.0
    earlier.close()
    latest.close()
    await engine.close()


async def test_the_gate_is_calibrated_by_the_first_vector_of_each_row(storage: Storage) -> None:
    for number in range(3):
        await storage.apply(put(f"text {number}"), {0: blocks(f"t{number}", "other")})
    sample = await storage.calibrations.sample("a", "f1", 10)
    assert sorted(values for _, values in sample.rows) == sorted(vector(f"t{number}").values for number in range(3))
    assert all(len(struct.unpack(f"<{len(values) // 4}f", values)) == 32 for _, values in sample.rows)
    assert sample.corpus


async def test_long_rows_of_an_older_database_keep_their_vector_and_wait_for_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    old_database(path, 3)
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE memories SET content = ? WHERE id = 2", ("long " * 300,))
    connection.close()
    engine = SqliteStorage(path)
    assert [(row.ref.id, row.has_first) for row in await engine.derived.waiting("f1", 10)] == [(2, True)]
    assert (await nearest(engine, "ships are loading"))[0] == ("mem:2", 1.0)
    await engine.close()
