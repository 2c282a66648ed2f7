"""Filters by tags and metadata: exact, before anything is ranked, gone with their row."""

from pathlib import Path

import anyio
import apsw
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_svc.domain.change import Forget, PutMemory, SetLock
from memory_svc.domain.labels import Scalar
from memory_svc.domain.memory import Kind, Ref
from memory_svc.domain.scope import Scope
from memory_svc.storage.interface import Query, Storage
from memory_svc.storage.sqlite.engine import SqliteStorage
from tests.contract.test_blocks import blocks
from tests.contract.test_scope import arms, same
from tests.support.corpus import NOW, candidates, memory, put, vector, write

ROWS_COUNT, TAGGED = 3_000, (7, 700, 1400, 2100, 2999)
NUMBERS = st.sampled_from((0, 1, 1.0, -0.0, 2**53, 2**63, -(2**70), 1e300))
SCALARS = st.none() | st.booleans() | NUMBERS | st.text(max_size=3)
KEYS = st.sampled_from(("a", "a.b", 'q"q', "back\\slash", "日本", "$.a", "[0]", "", "new\nline"))
METADATA = st.dictionaries(KEYS, SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(KEYS, SCALARS, max_size=2))


async def test_five_rows_of_thousands_are_found_by_every_arm(storage: Storage) -> None:
    for start in range(0, ROWS_COUNT, 500):
        rows = [
            memory(
                f"needle stands in haystacks {number}",
                tags=("wanted",) if number in TAGGED else ("other",),
                metadata={"place": "attic"} if number in TAGGED else {"place": "cellar"},
            )
            for number in range(start, start + 500)
        ]
        await storage.apply(write(*map(PutMemory, rows)), {at: vector("same") for at in range(500)})
    expected = {Ref(Kind.MEMORY, number + 1) for number in TAGGED}
    for scope in (
        Scope(agent="a", tags=("wanted",)),
        Scope(tags=("wanted",), metadata=(("place", "attic"),)),
        Scope(agent="a", metadata=(("place", "attic"),)),
    ):
        found = await arms(storage, scope, 5)
        assert found.pop("episodes") == set()
        assert all(rows == expected for rows in found.values()), found
        assert {row.id for row in await storage.memories.page(scope, 5)} == {ref.id for ref in expected}
    assert all(rows == set() for rows in (await arms(storage, Scope(tags=("wanted", "other")), 5)).values())


@settings(max_examples=12, deadline=None)
@given(st.lists(METADATA, min_size=1, max_size=6, unique_by=repr), st.lists(st.tuples(KEYS, SCALARS), max_size=12))
def test_a_value_is_found_by_its_key_and_type_whatever_their_characters(
    rows: list[dict[str, object]], asked: list[tuple[str, Scalar]]
) -> None:
    async def story() -> None:
        async with anyio.TemporaryDirectory() as folder:
            engine = SqliteStorage(Path(folder) / "memory.db")
            for number, metadata in enumerate(rows):
                await engine.apply(put(f"needle {number}", metadata=metadata))
            held = [item for row in rows for item in row.items() if not isinstance(item[1], list | dict)]
            for key, value in [*asked, *held]:
                scope = Scope(metadata=((key, value),))  # type: ignore[arg-type]
                found = await candidates(engine, scope, Query(("needle",), None, 99))
                expected = {at for at, row in enumerate(rows, start=1) if key in row and same(row[key], value)}
                assert {hit.ref.id for hit in found.words} == expected, (key, value)
            await engine.close()

    anyio.run(story)


async def test_tags_stay_with_a_row_that_changes_and_go_with_one_that_goes(storage: Storage, tmp_path: Path) -> None:
    for text in ("one", "two"):
        await storage.apply(put(text, tags=("Red", "blue")))
    await storage.apply(write(SetLock(1, True), Forget(Ref(Kind.MEMORY, 2))))
    assert [row.tags for row in await storage.memories.page(Scope(tags=("red", "blue")), 9)] == [("Red", "blue")]
    copy = SqliteStorage(tmp_path / "copy.db")
    await copy.journal.replay(await storage.journal.after(0, 9))
    assert [row.id for row in await copy.memories.page(Scope(tags=("red",)), 9)] == [1]
    assert await copy.upkeep.verify() == await storage.upkeep.verify() == []
    for name in ("memory.db", "copy.db"):
        connection = apsw.Connection(str(tmp_path / name))
        assert connection.execute("SELECT tag, memory FROM tags").fetchall() == [("blue", 1), ("red", 1)]
        connection.close()
    await copy.close()


async def test_a_filter_hides_episodes_and_profiles(storage: Storage) -> None:
    scope = Scope(agent="a", tags=("red",))
    assert (await storage.episodes.page(scope, 9), await storage.profiles.of(scope)) == ([], [])


async def test_a_row_of_several_blocks_is_filtered_and_hidden_with_all_of_them(storage: Storage) -> None:
    later = "2026-03-02T00:00:00+00:00"
    for number, fields in enumerate(({"tags": ("red",)}, {"expires_at": later}, {})):
        await storage.apply(put(f"needle {number}", **fields), {0: blocks(f"first {number}", "near")})
    for scope, expected in (
        (Scope(tags=("red",)), [1]),
        (Scope(now=NOW), [1, 2, 3]),
        (Scope(now=later), [1, 3]),
        (Scope(tags=("red",), now=later), [1]),
    ):
        found = await candidates(storage, scope, Query((), vector("near"), 9))
        assert [hit.ref.id for hit in found.vectors] == expected
