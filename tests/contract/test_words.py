"""The word arm: fields, windows, phrases, pieces, and what each tells."""

import datetime as dt
from pathlib import Path

import apsw
import numpy as np
import pytest

from memory_svc.domain.change import Change, ChangeMemory, Forget, PutEpisode, PutMemory
from memory_svc.domain.memory import Kind, Memory, Ref
from memory_svc.domain.scope import Scope
from memory_svc.domain.terms import phrases, pieces
from memory_svc.domain.text import query_words
from memory_svc.storage.interface import Storage
from memory_svc.storage.sqlite import phrases as verbatim
from memory_svc.storage.sqlite import postings, words
from memory_svc.storage.sqlite.words import Asked, Found
from tests.support.corpus import episode, memory, write

START = dt.datetime(2026, 3, 2, 9, tzinfo=dt.UTC)
A = Scope(agent="a")


ANN = {"type": "User", "name": "Ann"}


def said(content: str, minutes: float = 0, **fields: object) -> PutMemory:
    """A memory of so many minutes after the start."""
    instant = (START + dt.timedelta(minutes=minutes)).isoformat()
    plain = memory(content, **fields)
    return PutMemory(
        Memory(**{name: getattr(plain, name) for name in plain.__struct_fields__} | {"timestamp": instant})
    )


class Reader:
    """The word arm over the file of a store."""

    def __init__(self, path: Path) -> None:
        self.connection = apsw.Connection(str(path))

    def windowed(self, query: str, scope: Scope = A, kind: Kind = Kind.MEMORY, also: tuple[int, ...] = ()) -> Found:
        """What a query finds."""
        return words.windowed(self.connection, scope, kind, Asked(query_words(query), 100, also))

    def by_field(self, query: str, scope: Scope = A) -> list[int]:
        """Ids by field score, best first; those without any left out."""
        rows = [row for row in self.windowed(query, scope).rows if row.field > 0]
        return [row.document >> 4 for row in sorted(rows, key=lambda row: (-row.field, row.document))]

    def by_window(self, query: str, scope: Scope = A) -> dict[int, float]:
        """Window scores by id."""
        return {row.document >> 4: row.window for row in self.windowed(query, scope).rows}

    def phrased(self, query: str, scope: Scope = A, kind: Kind = Kind.MEMORY) -> list[int]:
        """Ids of the rows that hold the one phrase of a query."""
        (phrase,) = phrases(query)
        return [document >> 4 for document in verbatim.phrased(self.connection, scope, kind, phrase, 10)]

    def pieced(self, query: str, scope: Scope = A) -> list[int]:
        """Ids of the rows that hold longer words with the query's words in them."""
        found = verbatim.substrings(self.connection, scope, Kind.MEMORY, pieces(query), 10)
        return [document >> 4 for document, _ in found]


@pytest.fixture
def reader(storage: Storage, tmp_path: Path) -> Reader:
    """A reader of the store."""
    return Reader(tmp_path / "memory.db")


async def store(storage: Storage, *changes: Change) -> None:
    """All of these."""
    await storage.apply(write(*changes))


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("Ann", [2, 1]),
        ("deploying", [1]),
        ("deployments", [1]),
        ("march 2026", [1, 2, 3]),
        ("monday", [1, 2, 3]),
        ("2026-03-02", [1, 2, 3]),
        ("sunset", [3]),
        ("holidays", [3]),
        ("discord", [2]),
    ],
)
async def test_a_word_is_found_in_each_field_by_its_stem(
    storage: Storage, reader: Reader, query: str, ids: list[int]
) -> None:
    await store(
        storage,
        said("we deploy on fridays, says Ann", agent="a"),
        said("nothing of note", source={"type": "User", "id": "discord:7", "name": "Ann"}),
        said("a picture", metadata={"caption": "a sunset", "tags": ["holiday"]}),
    )
    assert sorted(reader.by_field(query)) == sorted(ids)


async def test_the_text_counts_more_than_the_caption_and_that_more_than_the_date(
    storage: Storage, reader: Reader
) -> None:
    await store(
        storage,
        said("one", metadata={"caption": "monday"}),
        said("monday"),
        said("three"),
    )
    assert reader.by_field("monday") == [2, 1, 3]


async def test_a_window_is_a_memory_between_its_neighbours(storage: Storage, reader: Reader) -> None:
    texts = ["alpha", "where is the key", "under the needle box", "thanks", "omega"]
    await store(storage, *(said(text, minutes, source=ANN) for minutes, text in enumerate(texts)))
    found = reader.by_window("needle")
    assert set(found) == {2, 3, 4}
    assert max(found.values()) == 1.0
    assert reader.by_field("needle") == [3]


@pytest.mark.parametrize(
    ("minutes", "fields", "is_near"),
    [
        (60, {}, True),
        (61, {}, False),
        (0, {}, True),
        (1, {"channel": "c"}, False),
        (1, {"project": "P"}, False),
        (1, {"agent": "b"}, False),
        (1, {"metadata": {"session_id": "s"}}, False),
        (1, {"source": {"type": "User", "name": "Bob"}}, True),
    ],
)
async def test_a_window_ends_where_the_talk_does(
    storage: Storage, reader: Reader, minutes: float, fields: dict[str, object], is_near: bool
) -> None:
    await store(storage, said("needle", source=ANN), said("hay", minutes, **{"source": ANN, **fields}))
    assert set(reader.by_window("needle")) == ({1, 2} if is_near else {1})


async def test_a_memory_that_is_no_line_of_talk_stands_alone(storage: Storage, reader: Reader) -> None:
    await store(storage, said("needle"), said("hay", 1), said("straw", 1, source=ANN))
    assert set(reader.by_window("needle")) == {1}


async def test_a_late_arrival_comes_between_its_neighbours(storage: Storage, reader: Reader) -> None:
    await store(storage, said("needle", 0, channel="c"), said("hay", 10, channel="c"))
    await store(storage, said("straw", 5, channel="c"))
    assert set(reader.by_window("needle")) == {1, 3}
    await store(storage, Forget(Ref(Kind.MEMORY, 3)))
    assert set(reader.by_window("needle")) == {1, 2}
    await store(storage, ChangeMemory(2, "thread"))
    assert set(reader.by_window("thread")) == {1, 2}
    assert reader.by_window("hay") == {}


async def test_words_are_counted_in_the_rows_of_the_agent_alone(storage: Storage, reader: Reader) -> None:
    await store(
        storage,
        said("needle"),
        said("needle in hay"),
        said("hay stack"),
        *(said(f"needle {n}", agent="b") for n in range(5)),
    )
    found = reader.windowed("needles in the hay and glue")
    assert dict(zip(found.words, found.frequencies, strict=True)) == {"needles": 2, "hay": 2, "glue": 0}
    assert found.rows_count == 3
    assert {row.document >> 4: row.held for row in found.rows} == {1: 0b01, 2: 0b11, 3: 0b10}
    counts, rows = words.frequencies(reader.connection, Scope(), Kind.MEMORY, ["needle", "needles", "none"])
    assert (counts, rows) == ((7, 7, 0), 8)


async def test_a_rare_pair_of_characters_tells_more_than_many_that_join_words(storage: Storage, reader: Reader) -> None:
    asked = [said(f"どこで何をしましたか {number}") for number in range(10)]
    others = [said(f"散歩 {number}") for number in range(10, 19)]
    await store(storage, *asked, *others, said("予算表"))
    assert reader.by_field("予算はどこでしましたか")[0] == 20
    windows = reader.by_window("予算はどこでしましたか")
    assert max(windows, key=lambda id: windows[id]) == 20


async def test_a_row_that_another_arm_has_found_comes_with_its_scores(storage: Storage, reader: Reader) -> None:
    await store(storage, *(said(f"needle and so on {number}", 100 * number) for number in range(30)))
    asked = Asked(["needle"], 2, (Ref(Kind.MEMORY, 25).document, Ref(Kind.MEMORY, 999).document))
    found = words.windowed(reader.connection, A, Kind.MEMORY, asked)
    assert 25 in {row.document >> 4 for row in found.rows}
    assert len(found.rows) <= 5


async def test_episodes_are_windows_of_their_own(storage: Storage, reader: Reader) -> None:
    await store(storage, PutEpisode(episode("the needle talk", keywords="haystacks")), said("needle"))
    (row,) = reader.windowed("haystack", kind=Kind.EPISODE).rows
    assert (row.document, row.field, row.window) == (Ref(Kind.EPISODE, 1).document, 1.0, 1.0)
    assert reader.windowed("needle", Scope(agent="a", source="s"), Kind.EPISODE).rows == ()


async def test_nothing_is_found_where_there_is_nothing(storage: Storage, reader: Reader) -> None:
    assert reader.windowed("needle").rows == ()
    assert words.ranked(reader.connection, A, Kind.MEMORY, ["needle"], 10) == []
    assert words.frequencies(reader.connection, A, Kind.MEMORY, ["needle"]) == ((0,), 0)
    assert verbatim.phrased(reader.connection, A, Kind.MEMORY, "needle", 10) == []
    assert verbatim.substrings(reader.connection, A, Kind.MEMORY, ["needle"], 10) == []


@pytest.mark.parametrize(
    ("stored", "query", "is_there"),
    [
        ("we run the tests daily", '"run the tests"', True),
        ("we ran the test daily", '"run the tests"', False),
        ("the tests run", '"run the tests"', False),
        ("we run  the\ntests", "“Run the Tests”", True),
        ("see src/app/main.py now", "`app/main.py`", True),
        ("the deploy plan's end", '"deploy plan"', True),
        ("今日は東京都で会議をした", "「東京」", True),
        ("今日は東京都で会議をした", "「京都で会」", True),
        ("今日は東京都で会議をした", "「会」", True),
        ("今日は東京都で会議をした", "「京東」", False),
        ("error: cannot open 'x'", "\"cannot open 'x'\"", True),
        ("a picture", '"the sunset"', True),
        ('say ""hi"" AND NEAR(', '"AND NEAR("', True),
        ("the café is open", '"CAFE IS"', True),
    ],
)
async def test_a_quoted_phrase_is_exact(
    storage: Storage, reader: Reader, stored: str, query: str, is_there: bool
) -> None:
    await store(storage, said("nothing"), said(stored, metadata={"caption": "the sunset"}))
    assert reader.phrased(query) == ([2] if is_there else [])


async def test_a_phrase_is_looked_for_in_the_scope(storage: Storage, reader: Reader) -> None:
    await store(storage, said("the big needle"), said("the big needle", agent="b"), said("a big needle", channel="c"))
    await store(storage, PutEpisode(episode("the big needle")))
    assert reader.phrased('"big needle"') == [3, 1]
    assert reader.phrased('"big needle"', Scope(agent="a", channel="d")) == [1]
    assert reader.phrased('"big needle"', Scope()) == [3, 2, 1]
    assert reader.phrased('"big needle"', A, Kind.EPISODE) == [1]


async def test_a_phrase_is_looked_for_in_the_scope_however_many_newer_rows_hold_it(
    storage: Storage, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [said(f"a big needle {n}", n) for n in range(20)]
    await store(storage, *rows)
    monkeypatch.setattr(verbatim, "IN_ORDER_MAX", 3)
    monkeypatch.setattr(verbatim, "ANY_ORDER_MAX", 3)
    assert reader.phrased('"big needle"') == [20, 19, 18]
    assert reader.phrased('"big needle"', Scope(agent="a", until=rows[2].memory.timestamp)) == [2, 1]


@pytest.mark.parametrize(
    ("stored", "query"),
    [
        ("commit 4f9c2ab7d1e84c3fa5b6", "4f9c2ab"),
        ("commit 4f9c2ab7d1e84c3fa5b6", "e84c3f"),
        ("the reconfigurations are done", "config"),
        ("see mylongmodulename.py", "longmodule"),
        ("Москвичами полон город", "москвич"),
        ("ERR_CONNECTION_REFUSED", "conn"),
    ],
)
async def test_a_piece_of_a_longer_word_finds_it(storage: Storage, reader: Reader, stored: str, query: str) -> None:
    await store(storage, said("gardens and parks"), said(stored), said(stored, agent="b"))
    assert reader.pieced(query) == [2]
    assert sorted(reader.pieced(query, Scope())) == [2, 3]


async def test_the_closest_word_comes_first_and_changed_words_are_gone(storage: Storage, reader: Reader) -> None:
    await store(storage, said("xxneedleworkxx"), said("needlework"), said("needles"))
    assert reader.pieced("needle") == [2, 1]
    await store(storage, ChangeMemory(2, "thread"))
    assert reader.pieced("needle") == [1]


@pytest.mark.parametrize("depth", [1, 3, 50])
async def test_a_narrow_scope_ranks_as_the_whole_does(storage: Storage, reader: Reader, depth: int) -> None:
    await store(
        storage,
        *(
            said(f"needle {'thread ' * (n % 3)}{' '.join(f'w{n}x{at}' for at in range(1 + n % 7))}", 100 * n,
                 channel="few" if n % 6 == 0 else "most")
            for n in range(60)
        ),
    )  # fmt: skip
    whole = [document for document, _ in words.ranked(reader.connection, A, Kind.MEMORY, ["needle", "thread"], 100)]
    narrow = Scope(agent="a", channel="few")
    few = words.ranked(reader.connection, narrow, Kind.MEMORY, ["needle", "thread"], depth)
    assert [document for document, _ in few] == [each for each in whole if (each >> 4) % 6 == 1][:depth]
    assert few[0][1] == 1.0


async def test_in_a_large_corpus_the_rarest_words_find_and_the_others_add(
    storage: Storage, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [said(f"{'needle ' * (n % 10 == 3)}{'thread ' * (n % 2)}of cloth {n}", 100 * n) for n in range(60)]
    await store(storage, *rows)
    asked = ["thread", "needle", "cloth", "none"]
    whole = words.windowed(reader.connection, A, Kind.MEMORY, Asked(asked, 100))
    monkeypatch.setattr(postings, "LARGE_ROWS", 10)
    assert words.windowed(reader.connection, A, Kind.MEMORY, Asked(asked, 100)).rows == whole.rows
    monkeypatch.setattr(postings, "READ_ROWS_MAX", 20)
    found = words.windowed(reader.connection, A, Kind.MEMORY, Asked(asked, 100))
    assert (found.frequencies, found.rows_count) == (whole.frequencies, whole.rows_count) == ((30, 6, 60, 0), 60)
    assert {row.document >> 4: row.held for row in found.rows} == {n + 1: 0b111 for n in range(3, 60, 10)}
    assert {row.field for row in found.rows} == {row.field for row in whole.rows if row.held == 0b111}
    monkeypatch.setattr(postings, "FINDERS_MAX", 1)
    found = words.windowed(reader.connection, A, Kind.MEMORY, Asked(asked, 100))
    assert found.frequencies == whole.frequencies
    assert {row.held for row in found.rows} == {0b010}
    common = words.windowed(reader.connection, A, Kind.MEMORY, Asked(["cloth", "none"], 100))
    assert len(common.rows) == 60


async def test_in_a_large_corpus_the_common_words_of_a_short_time_find_its_rows(
    storage: Storage, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [said(f"{'needle ' * (n % 10 == 3)}of cloth {n}", 100 * n) for n in range(60)]
    await store(storage, *rows)
    monkeypatch.setattr(postings, "LARGE_ROWS", 10)
    monkeypatch.setattr(postings, "READ_ROWS_MAX", 20)
    timed = Scope(agent="a", since=rows[4].memory.timestamp, until=rows[7].memory.timestamp)
    found = words.windowed(reader.connection, timed, Kind.MEMORY, Asked(["needle", "cloth"], 100))
    assert [row.document >> 4 for row in found.rows] == [5, 6, 7]


async def test_numpy_is_told_how_many_places_there_are(
    storage: Storage, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[tuple[int, int]] = []

    def fromstring(text: str, dtype: type, count: int = -1, *, sep: str) -> object:
        found = real(text, dtype, count, sep=sep)
        read.append((count, len(found)))
        return found

    real = np.fromstring
    monkeypatch.setattr(np, "fromstring", fromstring)
    await store(storage, *(said(f"{'cloth ' * (n + 1)}of {n}", 100 * n) for n in range(20)))
    await store(storage, said("needle in cloth", 5000))
    monkeypatch.setattr(postings, "LARGE_ROWS", 10)
    monkeypatch.setattr(postings, "READ_ROWS_MAX", 20)
    for asked in (["cloth"], ["needle", "cloth"], ["c"]):
        words.windowed(reader.connection, A, Kind.MEMORY, Asked(asked, 100))
    assert [count for count, _ in read] == [found for _, found in read]
    assert max(read) > (200, 200)
