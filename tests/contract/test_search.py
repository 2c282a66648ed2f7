"""Candidates: exact, in scope, in one snapshot, the same every time."""

import asyncio
import struct
from pathlib import Path

import apsw
import pytest

from memory_svc.domain.change import ChangeMemory, Forget, PutEpisode
from memory_svc.domain.memory import Kind, Ref, Vector
from memory_svc.domain.scope import Scope
from memory_svc.storage.interface import Candidates, Query, RowVector, Storage
from memory_svc.storage.sqlite.connection import open_connection
from memory_svc.storage.sqlite.engine import SqliteStorage
from memory_svc.storage.sqlite.vectors import Resident
from tests.support.corpus import candidates, episode, put, vector, write


async def nearest(storage: Storage, scope: Scope, seed: str, depth: int = 10) -> list[tuple[str, float]]:
    """(ref, cosine), best first."""
    found = await candidates(storage, scope, Query((), vector(seed), depth))
    return [(str(hit.ref), hit.score) for hit in found.vectors]


def cosine(one: Vector, other: Vector) -> float:
    """The cosine of two unit vectors."""
    values = [struct.unpack(f"<{len(each.values) // 4}f", each.values) for each in (one, other)]
    return sum(a * b for a, b in zip(*values, strict=True))


async def test_the_vector_arm_is_exact(storage: Storage) -> None:
    for number in range(300):
        await storage.apply(put(f"t{number}"), {0: vector(f"t{number}")})
    found = await nearest(storage, Scope(agent="a"), "query", 25)
    exact = sorted(range(300), key=lambda number: -cosine(vector(f"t{number}"), vector("query")))[:25]
    assert [ref for ref, _ in found] == [f"mem:{number + 1}" for number in exact]
    assert found[0][1] == pytest.approx(cosine(vector(f"t{exact[0]}"), vector("query")), abs=1e-6)


async def test_equal_cosines_are_ordered_by_id_also_at_the_cut(storage: Storage) -> None:
    for number in range(50):
        await storage.apply(put(f"t{number}"), {0: vector("same")})
    assert [ref for ref, _ in await nearest(storage, Scope(), "same", 5)] == [f"mem:{id}" for id in range(1, 6)]


@pytest.mark.parametrize(
    ("scope", "seen"),
    [
        (Scope(), {"1", "2", "3", "4", "5", "6"}),
        (Scope(agent="a"), {"1", "2", "3", "4"}),
        (Scope(agent=""), {"6"}),
        (Scope(agent="a", project="P"), {"1", "2", "4"}),
        (Scope(agent="a", project=""), {"1", "4"}),
        (Scope(agent="a", channel="c"), {"1", "2", "4"}),
        (Scope(agent="a", source="s:"), {"4"}),
        (Scope(agent="nobody"), set()),
    ],
)
async def test_every_arm_sees_the_scope_and_nothing_else(storage: Storage, scope: Scope, seen: set[str]) -> None:
    axes = [
        {},
        {"project": "P"},
        {"project": "Q", "channel": "d"},
        {"source": {"id": "s:1"}},
        {"agent": "b"},
        {"agent": ""},
    ]
    for number, each in enumerate(axes, start=1):
        await storage.apply(put(f"needle {number}", **each), {0: vector("same")})
    found = await candidates(storage, scope, Query(("needle",), vector("same"), 10))
    for arm in (found.vectors, found.words):
        assert {str(hit.ref.id) for hit in arm} == seen
    assert {str(row.id) for row in await storage.memories.page(scope, 10)} == seen


async def test_episodes_are_found_by_words_and_vectors_in_their_scope(storage: Storage) -> None:
    await storage.apply(write(PutEpisode(episode("needle", channel="c"))), {0: vector("same")})
    for scope, seen in (
        (Scope(), 1),
        (Scope(channel="d"), 0),
        (Scope(source="s"), 0),
        (Scope(source="s", channel="c"), 1),
    ):
        found = await candidates(storage, scope, Query(("needle",), vector("same"), 10))
        assert (len(found.vectors), len(found.episodes), len(found.words)) == (seen, seen, 0)


async def test_the_rows_before_and_after_one_in_its_talk_are_known(storage: Storage) -> None:
    for number, talk in enumerate(("s", "s", "t", "s", "")):
        await storage.apply(put(f"needle {number}", metadata={"session": talk} if talk else {}))
    await storage.apply(write(PutEpisode(episode("needle"))))
    asked = [Ref(Kind.MEMORY, id) for id in (4, 1, 2, 3, 5)] + [Ref(Kind.EPISODE, 1)]

    async def beside() -> dict[str, list[str]]:
        found = await storage.search.candidates(
            Scope(agent="a"), Query(("needle",), None, 10), lambda found: found.beside(asked)
        )
        return {str(ref): [str(each) for each in near] for ref, near in found.items() if near}

    assert await beside() == {"mem:1": ["mem:2"], "mem:2": ["mem:1", "mem:4"], "mem:4": ["mem:2"]}
    await storage.apply(write(Forget(Ref(Kind.MEMORY, 2))))
    assert await beside() == {"mem:1": ["mem:4"], "mem:4": ["mem:1"]}


async def test_text_scores_are_scaled_to_the_best_of_their_arm(storage: Storage) -> None:
    for text in ("needle needle", "needle in much hay and more hay", "hay"):
        await storage.apply(put(text))
    found = await candidates(storage, Scope(), Query(("needle",), None, 10))
    assert found.words[0].score == 1.0
    assert 0.0 < found.words[1].score < 1.0


async def test_a_changed_or_erased_row_is_found_no_more_by_what_it_was(storage: Storage) -> None:
    await storage.apply(put("apple"), {0: vector("apple")})
    await storage.apply(put("pear"), {0: vector("pear")})
    assert len(await nearest(storage, Scope(), "apple")) == 2
    await storage.apply(write(ChangeMemory(1, "plum")))
    await storage.apply(write(Forget(Ref(Kind.MEMORY, 2))))
    assert await nearest(storage, Scope(), "apple") == []
    for word, count in (("apple", 0), ("pear", 0), ("plum", 1)):
        found = await candidates(storage, Scope(), Query((word,), None, 10))
        assert len(found.words) == count


async def test_a_vector_is_kept_only_for_the_revision_it_was_made_of(storage: Storage) -> None:
    await storage.apply(put("apple"))
    waiting = (await storage.derived.waiting("f1", 10))[0]
    assert (str(waiting.ref), waiting.revision, waiting.passage.text) == ("mem:1", 1, "apple")
    await storage.apply(write(ChangeMemory(1, "plum")))
    assert await storage.derived.set_vectors([RowVector(waiting.ref, waiting.revision, vector("apple"))]) == 0
    assert await storage.derived.set_vectors([RowVector(waiting.ref, 2, vector("plum"))]) == 1
    assert await storage.derived.waiting("f1", 10) == []
    await storage.apply(write(Forget(waiting.ref)))
    assert await storage.derived.set_vectors([RowVector(waiting.ref, 2, vector("plum"))]) == 0
    assert await storage.derived.waiting_count("f1") == 0


async def test_vectors_of_another_model_wait_and_are_never_compared(storage: Storage) -> None:
    await storage.apply(put("old"), {0: vector("same", "f0")})
    await storage.apply(put("new"), {0: vector("same", "f1")})
    await storage.apply(put("none"))
    assert [ref for ref, _ in await nearest(storage, Scope(), "same")] == ["mem:2"]
    assert {row.passage.text for row in await storage.derived.waiting("f1", 10)} == {"old", "none"}
    assert await storage.derived.waiting_count("f1") == 2
    assert await storage.derived.waiting_count("") == 1
    old = await candidates(storage, Scope(), Query((), vector("same", "f0"), 10))
    assert [str(hit.ref) for hit in old.vectors] == ["mem:1"]


async def test_a_vector_of_another_length_is_never_compared(storage: Storage) -> None:
    await storage.apply(put("short"), {0: vector("same", dimensions=16)})
    assert await nearest(storage, Scope(), "same") == []


async def test_readers_and_a_writer_at_once_always_see_whole_rows(storage: Storage) -> None:
    async def keep_writing() -> None:
        for number in range(120):
            applied = await storage.apply(put(f"needle {number}"), {0: vector(f"t{number}")})
            if number % 3 == 0:
                await storage.apply(write(Forget(applied.outcomes[0].ref)))

    async def keep_reading() -> None:
        for _ in range(60):
            found = await candidates(storage, Scope(), Query(("needle",), vector("t5"), 200))
            assert {hit.ref for hit in found.vectors} == {hit.ref for hit in found.words} == set(found.rows)

    await asyncio.gather(keep_writing(), keep_reading(), keep_reading())


async def test_many_replaced_vectors_do_not_stay_resident(storage: Storage) -> None:
    await storage.apply(put("one"), {0: vector("v0")})
    for number in range(1, 1200):
        await storage.derived.set_vectors([RowVector(Ref(Kind.MEMORY, 1), 1, vector(f"v{number}"))])
        if number % 100 == 0:
            assert [ref for ref, _ in await nearest(storage, Scope(), f"v{number}")] == ["mem:1"]
    assert (await nearest(storage, Scope(), "v1199"))[0][1] == pytest.approx(1.0)


async def test_a_snapshot_sees_the_vectors_of_its_moment_whatever_others_have_read_since(tmp_path: Path) -> None:
    """The resident copy is ahead of a reader that began earlier."""
    engine = SqliteStorage(tmp_path / "memory.db")
    for text in ("kept", "changed", "erased"):
        await engine.apply(put(text), {0: vector(f"{text} 1")})
    resident = Resident()
    earlier, latest = (open_connection(tmp_path / "memory.db") for _ in range(2))

    def near(connection: apsw.Connection, seed: str) -> dict[str, float]:
        found = resident.nearest(connection, Scope(agent="a"), vector(seed), 10)
        return {str(Ref.of_document(document)): round(score, 3) for document, score in found}

    near(latest, "kept 1")
    await engine.apply(write(ChangeMemory(2, "changed twice")), {0: vector("changed 2")})
    await engine.apply(put("born and gone"), {0: vector("born 1")})
    earlier.execute("BEGIN")
    assert earlier.execute("SELECT count(*) FROM memories").fetchall() == [(4,)]
    await engine.apply(write(ChangeMemory(2, "changed thrice")), {0: vector("changed 3")})
    await engine.apply(write(Forget(Ref(Kind.MEMORY, 3))))
    await engine.apply(write(Forget(Ref(Kind.MEMORY, 4))))
    await engine.apply(put("new"), {0: vector("new 1")})
    assert set(near(latest, "changed 3")) == {"mem:1", "mem:2", "mem:5"}
    assert near(latest, "changed 3")["mem:2"] == 1.0
    for seed, ref in (("changed 2", "mem:2"), ("erased 1", "mem:3"), ("born 1", "mem:4")):
        found = near(earlier, seed)
        assert set(found) == {"mem:1", "mem:2", "mem:3", "mem:4"}
        assert found[ref] == 1.0
    earlier.close()
    latest.close()
    await engine.close()


@pytest.mark.parametrize("depth", [1, 3, 50])
async def test_a_scope_of_most_rows_and_one_of_few_rank_their_words_alike(storage: Storage, depth: int) -> None:
    for number in range(60):
        filler = " ".join(f"w{number}x{at}" for at in range(1 + number % 7))
        await storage.apply(
            put(f"needle {'thread ' * (number % 3)}{filler}", agent="few" if number % 6 == 0 else "most")
        )
    asked = Query(("needle", "thread"), None, 100)
    everything = (await candidates(storage, Scope(), asked)).words
    for agent in ("most", "few"):
        whole = (await candidates(storage, Scope(agent=agent), asked)).words
        found = (await candidates(storage, Scope(agent=agent), Query(asked.words, None, depth))).words
        owned = {hit.ref for hit in whole}
        assert len(owned) == {"most": 50, "few": 10}[agent]
        assert [hit.ref for hit in found] == [hit.ref for hit in everything if hit.ref in owned][:depth]


async def test_an_episode_that_holds_less_of_the_query_than_the_best_memory_counts_less(storage: Storage) -> None:
    await storage.apply(put("needle and thread in the harbour"))
    await storage.apply(put("needle of the north"))
    await storage.apply(write(PutEpisode(episode("we looked for a needle"))))

    def read(found: Candidates) -> dict[str, float]:
        columns = zip(found.evidence.documents.tolist(), found.evidence.fields.tolist(), strict=True)
        return {str(Ref.of_document(document)): score for document, score in columns}

    asked = Query(("needle", "thread", "harbour"), None, 10)
    fields = await storage.search.candidates(Scope(agent="a"), asked, read)
    assert fields["mem:1"] == 1.0
    assert 0.0 < fields["ep:1"] < 0.5
