"""The journal: effects as they were written, a replay that gives the same store, an erasure that leaves nothing."""

from pathlib import Path

import anyio
import apsw
import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memory_svc.domain.change import Change, ChangeMemory, Forget, ForgetAgent, PutEpisode, PutMemory, PutProfile
from memory_svc.domain.memory import Kind, Profile, Ref
from memory_svc.domain.scope import Scope
from memory_svc.errors import Problem
from memory_svc.storage.interface import Query, Storage
from memory_svc.storage.sqlite.engine import SqliteStorage
from tests.support.corpus import NOW, candidates, episode, memory, put, vector, write

IDS = st.integers(1, 6)
TEXTS = st.sampled_from(["alpha", "beta", "gamma", "delta", "epsilon"])
CHANGES = st.one_of(
    st.builds(lambda text, locked: PutMemory(memory(text, locked=locked)), TEXTS, st.just(False)),
    st.builds(ChangeMemory, IDS, TEXTS),
    st.builds(lambda id: Forget(Ref(Kind.MEMORY, id)), IDS),
    st.builds(lambda id: Forget(Ref(Kind.EPISODE, id)), IDS),
    st.builds(lambda text: PutEpisode(episode(text)), TEXTS),
    st.builds(lambda text: PutProfile(Profile(agent="a", content=text, updated_at=NOW)), TEXTS),
)


async def everything(storage: Storage) -> list[object]:
    """All rows, and what each word finds."""
    hits = [(await candidates(storage, Scope(), Query((word,), None, 100))) for word in ("alpha", "beta")]
    return [
        await storage.memories.page(Scope(), 1000),
        await storage.episodes.page(Scope(), 1000),
        await storage.profiles.of(Scope()),
        [(sorted(hit.ref for hit in found.words), sorted(hit.ref for hit in found.episodes)) for found in hits],
    ]


async def test_an_effect_is_written_down_whole(storage: Storage) -> None:
    await storage.apply(put("one", project="P", metadata={"k": [1]}))
    row = (await storage.journal.after(0, 10))[0]
    assert (row.sequence, row.principal, row.operation, row.agent, row.project) == (1, "owner", "test", "a", "P")
    assert row.effect is not None
    assert row.effect.row == (await storage.memories.get(Scope(), [1]))[1]


async def test_changes_of_one_write_share_its_number(storage: Storage) -> None:
    await storage.apply(write(PutMemory(memory("one")), PutMemory(memory("two"))))
    await storage.apply(put("three"))
    assert [row.write for row in await storage.journal.after(0, 10)] == [1, 1, 3]
    assert [row.sequence for row in await storage.journal.after(1, 1)] == [2]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(writes=st.lists(st.lists(CHANGES, min_size=1, max_size=3), max_size=12))
def test_a_replay_gives_the_same_store_however_often_it_runs(tmp_path: Path, writes: list[list[Change]]) -> None:
    async def story() -> None:
        number = len(list(tmp_path.iterdir()))
        original = SqliteStorage(tmp_path / f"{number}.db")
        copy = SqliteStorage(tmp_path / f"{number}-copy.db")
        half = None
        for at, changes in enumerate(writes):
            try:
                await original.apply(write(*changes))
            except Problem:
                continue
            if at == len(writes) // 2:
                half = await original.journal.after(0, 1000)
        if half:
            await copy.journal.replay(half)
        for _ in range(2):
            await copy.journal.replay(await original.journal.after(0, 1000))
        assert await everything(copy) == await everything(original)
        assert await copy.upkeep.verify() == await original.upkeep.verify() == []
        assert await copy.journal.after(0, 1000) == await original.journal.after(0, 1000)
        new = put("never seen before")
        assert (await copy.apply(new)).outcomes == (await original.apply(new)).outcomes
        await original.close()
        await copy.close()

    anyio.run(story)


async def test_a_text_that_wandered_from_one_row_to_another_is_replayed_twice_as_well_as_once(
    storage: Storage, tmp_path: Path
) -> None:
    await storage.apply(put("alpha"))
    await storage.apply(write(ChangeMemory(1, "beta")))
    await storage.apply(put("alpha"))
    copy = SqliteStorage(tmp_path / "copy.db")
    for _ in range(2):
        await copy.journal.replay(await storage.journal.after(0, 100))
    assert await everything(copy) == await everything(storage)
    await copy.close()


async def test_an_erasure_blanks_what_the_journal_holds_of_the_row(storage: Storage) -> None:
    await storage.apply(put("xyzzy one"))
    await storage.apply(write(ChangeMemory(1, "xyzzy two")))
    await storage.apply(write(Forget(Ref(Kind.MEMORY, 1))))
    rows = await storage.journal.after(0, 10)
    assert [(row.effect, row.erasure) for row in rows] == [(None, False), (None, False), (None, True)]


async def test_after_the_erasure_steps_no_byte_of_an_erased_text_is_left(tmp_path: Path) -> None:
    engine = SqliteStorage(tmp_path / "memory.db")
    secrets = ["quetzalcoatl", "rumpelstilzchen", "京都大学病院", "mephistopheles"]
    for number in range(300):
        await engine.apply(put(f"an ordinary fact of number {number} with ordinary words"))
        if number % 80 == 0:
            secret = secrets[number // 80]
            content = f"the password is {secret} {number}"
            applied = await engine.apply(put(content, metadata={"note": secret}), {0: vector(content)})
            await engine.apply(write(ChangeMemory(applied.outcomes[0].ref.id, f"{content} and {secret} again")))
    await engine.apply(write(PutEpisode(episode("a talk of quetzalcoatl", keywords="rumpelstilzchen"))))
    for row in await engine.memories.page(Scope(), 1000):
        if "password" in row.content:
            await engine.apply(write(Forget(Ref(Kind.MEMORY, row.id))))
    await engine.apply(write(Forget(Ref(Kind.EPISODE, 1))))
    for _ in range(100):
        await engine.upkeep.erase_step()
    assert not await engine.upkeep.erasing()
    for file in tmp_path.iterdir():
        held = file.read_bytes()
        for secret in [*secrets, "京都", "学病"]:
            assert secret.encode() not in held, (file.name, secret)
    words = await candidates(engine, Scope(), Query(("ordinary",), None, 1000))
    assert len(words.words) == 300
    await engine.close()


async def test_after_an_agent_is_erased_no_byte_of_its_words_is_left_where_others_stand_beside_it(
    tmp_path: Path,
) -> None:
    engine = SqliteStorage(tmp_path / "memory.db")
    fields = {"source": {"type": "User", "name": "mephistopheles"}, "metadata": {"session": "qzsessionzq"}}
    for number in range(200):
        await engine.apply(put(f"plain words of number {number}"))
        captioned = {**fields, "metadata": {**fields["metadata"], "caption": f"qzcaption{number}zq"}}
        await engine.apply(put(f"quetzalcoatl qz{number:05d}zq says 京都大学病院", agent="gone", **captioned))
    await engine.apply(write(PutEpisode(episode("rumpelstilzchen", agent="gone"))))
    await engine.apply(put("quetzalcoatl qz99999zq stays", metadata={"caption": "mephistopheles"}))
    await engine.apply(write(ForgetAgent("gone")))
    for _ in range(200):
        await engine.upkeep.erase_step()
    assert not await engine.upkeep.erasing()
    await engine.apply(write(Forget(Ref(Kind.MEMORY, 401))))
    for _ in range(200):
        await engine.upkeep.erase_step()
    held = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    for secret in ("quetzal", "qz0", "qz9", "qzcaption", "qzsession", "mephisto", "rumpel", "京都", "学病"):
        assert secret.encode() not in held, secret
    connection = apsw.Connection(str(tmp_path / "memory.db"))
    assert connection.execute("SELECT agent, kind, rows FROM corpora").fetchall() == [("a", 0, 200)]
    assert connection.execute("SELECT count(*) FROM vocabulary WHERE doubtful").fetchall() == [(0,)]
    assert connection.execute("SELECT count(*) FROM postings WHERE term LIKE '%qz%'").fetchall() == [(0,)]
    connection.execute("INSERT INTO words (words) VALUES ('integrity-check')")
    connection.execute("INSERT INTO pieces (pieces) VALUES ('integrity-check')")
    connection.close()
    found = await candidates(engine, Scope(agent="a"), Query(("plain",), None, 1000))
    assert len(found.words) == 200
    await engine.close()


async def test_with_nothing_to_erase_there_is_no_step(storage: Storage) -> None:
    await storage.apply(put("one"))
    assert not await storage.upkeep.erasing()
    assert not await storage.upkeep.erase_step()


async def test_no_byte_is_left_where_the_cells_of_many_pages_were_moved(tmp_path: Path) -> None:
    engine = SqliteStorage(tmp_path / "memory.db")
    marks = {number: f"qz{number:05d}zq" for number in range(600)}
    for start in range(0, 600, 50):
        changes = [
            PutMemory(memory(f"{marks[n]} " * (n % 29 + 1), metadata={"n": marks[n]})) for n in range(start, start + 50)
        ]
        await engine.apply(write(*changes), {at: vector(str(start + at)) for at in range(50)})
    gone = [number for number in range(600) if number * 7919 % 10 < 7]
    await engine.apply(write(*(ChangeMemory(number + 1, f"{marks[number]} was changed") for number in gone[::2])))
    for start in range(0, len(gone), 20):
        await engine.apply(write(*(Forget(Ref(Kind.MEMORY, number + 1)) for number in gone[start : start + 20])))
        await engine.upkeep.erase_step()
    for _ in range(500):
        await engine.upkeep.erase_step()
    assert not await engine.upkeep.erasing()
    held = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert [number for number in gone if marks[number].encode() in held] == []
    kept = [number for number in range(600) if number not in set(gone)]
    assert len(await engine.memories.page(Scope(), 1000)) == len(kept)
    assert await engine.upkeep.verify() == []
    await engine.apply(put("life goes on"))
    found = await candidates(engine, Scope(), Query((marks[kept[0]],), vector(str(kept[0])), 5))
    assert found.words[0].ref == found.vectors[0].ref == Ref(Kind.MEMORY, kept[0] + 1)
    await engine.close()
    connection = apsw.Connection(str(tmp_path / "memory.db"))
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.execute("INSERT INTO words (words) VALUES ('integrity-check')")
    connection.close()


async def test_an_erasure_waits_for_a_reader_and_keeps_no_writer_waiting(storage: Storage, tmp_path: Path) -> None:
    await storage.apply(put("xyzzy"))
    reader = apsw.Connection(str(tmp_path / "memory.db"))
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM memories").fetchall()
    await storage.apply(write(Forget(Ref(Kind.MEMORY, 1))))
    with anyio.fail_after(5):
        while await storage.upkeep.erase_step():
            pass
        await storage.apply(put("another"))
    assert await storage.upkeep.erasing()
    reader.execute("COMMIT")
    await storage.upkeep.erase_step()
    assert not await storage.upkeep.erasing()
    assert b"xyzzy" not in (tmp_path / "memory.db").read_bytes()


async def test_verify_names_a_row_that_the_journal_does_not_know(storage: Storage, tmp_path: Path) -> None:
    await storage.apply(put("one"))
    await storage.apply(put("two"))
    connection = apsw.Connection(str(tmp_path / "memory.db"))
    connection.execute("UPDATE memories SET locked = 1 WHERE id = 1")
    connection.execute("DELETE FROM journal WHERE id = 2")
    connection.close()
    assert len(await storage.upkeep.verify()) == 2


def test_a_row_survives_its_journal_form() -> None:
    row = memory("x", source="claude-code", metadata={"a": [1, {"b": None}]})
    assert msgspec.json.decode(msgspec.json.encode(row), type=type(row)) == row
