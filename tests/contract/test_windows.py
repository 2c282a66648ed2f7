"""The word index and its windows stay what an index made from nothing would be."""

import asyncio
import datetime as dt
import tempfile
from pathlib import Path

import apsw
import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memory_svc.domain.change import Change, ChangeMemory, Effect, Forget, ForgetAgent, PutEpisode, PutMemory, SetLock
from memory_svc.domain.memory import KINDS, Kind, Memory, Ref
from memory_svc.domain.scope import Scope
from memory_svc.errors import Problem
from memory_svc.storage.interface import Storage
from memory_svc.storage.sqlite import episodes, indexing, memories, phrases, words
from memory_svc.storage.sqlite.engine import SqliteStorage
from memory_svc.storage.sqlite.rows import write_row
from memory_svc.storage.sqlite.windows import CELLS, FORM, Sheet
from tests.support.corpus import episode, memory, write

START = dt.datetime(2026, 3, 2, 9, tzinfo=dt.UTC)
IDS = st.integers(1, 12)
TEXTS = st.lists(st.sampled_from(["needle", "haystacks", "parseConfig", "京都", "needlework"]), min_size=1, max_size=4)


def placed(text: list[str], minutes: int, talk: tuple[str, str, str]) -> Memory:
    """A memory of a talk, so many minutes after the start."""
    agent, channel, session = talk
    plain = memory(" ".join(text), agent=agent, channel=channel, metadata={"session": session} if session else {})
    return msgspec.structs.replace(plain, timestamp=(START + dt.timedelta(minutes=minutes)).isoformat())


MEMORIES = st.builds(
    placed,
    TEXTS,
    st.integers(0, 12).map(lambda step: step * 25),
    st.tuples(st.sampled_from("ab"), st.sampled_from(["", "c"]), st.sampled_from(["", "s"])),
)
CHANGES = st.one_of(
    MEMORIES.map(PutMemory),
    MEMORIES.map(PutMemory),
    st.builds(lambda id, text: ChangeMemory(id, " ".join(text)), IDS, TEXTS),
    st.builds(lambda id: Forget(Ref(Kind.MEMORY, id)), IDS),
    st.builds(lambda id: SetLock(id, True), IDS),
    st.builds(lambda text: PutEpisode(episode(" ".join(text))), TEXTS),
    st.builds(lambda id: Forget(Ref(Kind.EPISODE, id)), IDS),
    st.builds(ForgetAgent, st.sampled_from("ab")),
)


def indexed(connection: apsw.Connection) -> dict[str, object]:
    """Everything the index holds, by agents and rows: codes and numbers of words may differ."""
    agents = {code: (agent, kind) for code, agent, kind in connection.execute("SELECT code, agent, kind FROM corpora")}
    places = []
    for term, document, field, offset in connection.execute("SELECT term, doc, col, offset FROM postings"):
        code, _, word = term.partition(":")
        places.append((agents[int(code)], word, document, field, offset))
    cells = {}
    for page, content in connection.execute("SELECT page, cells FROM windows"):
        for at in range(CELLS):
            cell = FORM.unpack_from(content, at * FORM.size)
            if any(cell):
                cells[page & 15, (page >> 4) * CELLS + at] = cell
    long_words = connection.execute("SELECT id, code, word FROM vocabulary").fetchall()
    cut_up = [id for (id,) in connection.execute("SELECT id FROM pieces_docsize ORDER BY 1")]
    assert cut_up == sorted(id for id, _, _ in long_words if id <= max(cut_up, default=0))
    assert len(long_words) - len(cut_up) < indexing.CUT_UP_AT_ONCE
    return {
        "corpora": sorted(connection.execute("SELECT agent, kind, rows, terms, windows FROM corpora")),
        "places": sorted(places),
        "cells": cells,
        "long words": sorted((agents[code], word) for _, code, word in long_words),
    }


def made_anew(connection: apsw.Connection) -> None:
    """Make the index from nothing."""
    connection.execute("INSERT INTO words (words) VALUES ('delete-all')")
    connection.execute("INSERT INTO pieces (pieces) VALUES ('delete-all')")
    for table in ("corpora", "windows", "vocabulary"):
        connection.execute(f"DELETE FROM {table}")
    for select in (memories.select, episodes.select):
        for row in reversed(select(connection, "1 ORDER BY id", ())):
            indexing.put(connection, row)


async def same_as_from_nothing(storage: Storage, path: Path) -> None:
    """Compare; what only the sweep takes out is taken out first."""
    connection = apsw.Connection(str(path))
    while indexing.sweep(connection):
        pass
    kept = indexed(connection)
    connection.execute("BEGIN")
    made_anew(connection)
    assert kept == indexed(connection)
    connection.execute("ROLLBACK")
    connection.close()


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.lists(CHANGES, min_size=1, max_size=4), max_size=14))
def test_after_any_changes_the_index_is_what_it_would_be_from_nothing(writes: list[list[Change]]) -> None:
    async def story(folder: Path) -> None:
        engine = SqliteStorage(folder / "memory.db")
        for changes in writes:
            try:
                await engine.apply(write(*changes))
            except Problem:
                continue
        await same_as_from_nothing(engine, folder / "memory.db")
        await engine.close()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(story(Path(folder)))


async def test_a_row_that_moves_to_another_talk_leaves_its_neighbours(storage: Storage, tmp_path: Path) -> None:
    rows = [placed([f"word{number}"], number * 10, ("a", "", "")) for number in range(5)]
    await storage.apply(write(*map(PutMemory, rows)))
    connection = apsw.Connection(str(tmp_path / "memory.db"))
    for id, moved in ((3, {"channel": "c"}), (2, {"timestamp": rows[4].timestamp}), (1, {"agent": "b"}), (9, {})):
        before = memories.select(connection, "id = ?", (id,)) or [placed(["new"], 20, ("a", "", ""))]
        write_row(connection, Effect(Kind.MEMORY, id, msgspec.structs.replace(before[0], id=id, **moved)))
        await same_as_from_nothing(storage, tmp_path / "memory.db")
    connection.close()


async def test_rows_without_a_day_or_with_ids_far_apart_are_no_neighbours(storage: Storage, tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / "memory.db"))
    for id, timestamp in ((1, "yesterday"), (2, "today"), (3, START.isoformat()), (1 << 58, START.isoformat())):
        row = msgspec.structs.replace(memory(f"text {id}"), id=id, timestamp=timestamp)
        write_row(connection, Effect(Kind.MEMORY, id, row))
    sheet = Sheet(connection, Kind.MEMORY)
    assert words.ranked(connection, Scope(), Kind.MEMORY, [str(1 << 58)], 5) == [(1 << 58 << 4, 1.0)]
    assert [sheet.cell(id)[:2] for id in (1, 2, 3, 1 << 58)] == [(0, 0)] * 4
    await same_as_from_nothing(storage, tmp_path / "memory.db")
    connection.close()


async def test_a_text_of_more_words_than_a_cell_counts_is_taken(storage: Storage, tmp_path: Path) -> None:
    await storage.apply(write(PutMemory(memory("a b " * 40_000)), PutMemory(memory("needle"))))
    await same_as_from_nothing(storage, tmp_path / "memory.db")


async def test_many_long_words_are_cut_up_and_found_all_the_same(storage: Storage, tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / "memory.db"))
    for number in range(150):
        await storage.apply(write(PutMemory(memory(f"needlework{number:03}zz"))))
        if number in {70, 149}:
            await storage.apply(write(Forget(Ref(Kind.MEMORY, number))))
            await same_as_from_nothing(storage, tmp_path / "memory.db")
        for sought in {0, number - 1, number} - {-1, 69, 148}:
            found = phrases.substrings(connection, Scope(agent="a"), Kind.MEMORY, [f"work{sought:03}"], 5)
            assert found == [((sought + 1) << 4, 1.0)]
    connection.close()


def test_every_kind_fits_into_a_key_of_a_page() -> None:
    assert max(kind.code for kind in KINDS) < 16
