"""What holds in every mode of recall and by every way of scoring, with vectors and without."""

import datetime as dt
import itertools
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from memory_svc.domain.recall.fusion import Mode
from memory_svc.settings import Settings
from memory_svc.storage.interface import Storage
from memory_svc.storage.sqlite.engine import SqliteStorage
from tests.conftest import House
from tests.support.queries import ODD_QUERIES, SCRIPTS

TALK = (
    ("Ann", "shall we move the release to friday"),
    ("Bob", "friday is fine with me"),
    ("Ann", "the database harbour must be copied before"),
    ("Bob", "apples and pears for lunch"),
    ("Ann", "parseConfig fails with error E42 in src/app/main.py"),
)
# After so long a row counts no longer as recalled a moment ago.
RECENT = dt.timedelta(minutes=6)
QUERIES = ("when is the release", "What does Bob eat for lunch?", "E42", "harbour database", '"fine with me"')


# What scores by time and use, each of which is off unless it is set.
SCORED: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "confidence": {"confidence": True},
    "boundary": {"episode_boundary": True},
    "recent": {"recent_recall": True},
    "autocut": {"confidence": True, "autocut": True, "autocut_gap": 0.9},
    "all": {"confidence": True, "episode_boundary": True, "recent_recall": True, "profile_scope_rows_min": 0},
}
PARAMETERS = [
    *itertools.product(get_args(Mode), ["vectors", "words"], ["plain"]),
    *itertools.product(["weighted"], ["vectors", "words"], list(SCORED)[1:]),
    ("rrf", "vectors", "all"),
    ("cascade", "words", "boundary"),
]


@pytest.fixture(params=PARAMETERS, ids="-".join)
async def moded(request: pytest.FixtureRequest, storage: Storage, settings: Settings) -> AsyncIterator[House]:
    """The services in one mode, with vectors or without, by one way of scoring."""
    mode, arms, scored = request.param
    made = in_mode(storage, settings, mode, has_vectors=arms == "vectors", **SCORED[scored])
    yield made
    await made.embedder.close()


def in_mode(storage: Storage, settings: Settings, mode: str, *, has_vectors: bool = True, **scored: Any) -> House:
    """The services in one mode."""
    url = settings.embedding_url if has_vectors else ""
    return House(storage, msgspec.structs.replace(settings, recall_mode=mode, embedding_url=url, **scored))


async def talk(house: House, *, backwards: bool = False) -> None:
    """Store the talk, a minute a line, in its order or in the other; an episode that ended amid it; a profile."""
    lines = [
        {"content": text, "source": {"type": "User", "name": name}, "timestamp": f"2026-01-01T00:0{minute}:00Z"}
        for minute, (name, text) in enumerate(TALK)
    ]
    for line in reversed(lines) if backwards else lines:
        await house.call("store", agent_id="a", message=line)
    history = [{"timestamp": "2026-01-01T00:02:00Z"}]
    await house.call("archive_episode", agent_id="a", summary="unspoken", history=history)
    await house.call("update_profile", agent_id="a", profile="unasked")


async def found(house: House, query: str, agent: str = "a") -> list[str]:
    """The memories that a query finds, best first."""
    answer = await house.call("recall", agent_id=agent, query=query)
    return [row["content"] for row in reversed(answer["messages"]) if row.get("ref", "").startswith("mem:")]


async def test_no_query_breaks_any_mode_and_every_script_is_found(moded: House) -> None:
    pairs = [*ODD_QUERIES, *SCRIPTS]
    for number, (stored, _) in enumerate(pairs):
        for content in ("something else altogether", stored):
            await moded.call("store", agent_id=f"agent {number}", content=content)
    for number, (stored, query) in enumerate(pairs):
        assert stored in await found(moded, query, f"agent {number}"), query


async def test_a_text_finds_itself_first(moded: House) -> None:
    await talk(moded)
    for _, text in TALK:
        moded.clock.now += RECENT
        assert (await found(moded, text))[0] == text


async def test_a_query_asked_twice_gets_the_same_rows(moded: House) -> None:
    await talk(moded)
    for query in QUERIES:
        assert await found(moded, query) == await found(moded, query)


async def test_an_unrelated_memory_never_takes_the_place_of_the_best(moded: House) -> None:
    await talk(moded)
    best = {query: (await found(moded, query))[0] for query in QUERIES}
    for number in range(8):
        await moded.call("store", agent_id="a", content=f"kestrel {number} sits on a gate of its own")
    assert {query: (await found(moded, query))[0] for query in QUERIES} == best


async def test_no_row_of_another_agent_comes_in(moded: House) -> None:
    await talk(moded)
    await moded.call("store", agent_id="b", content="the release is on monday and Bob eats pears for lunch")
    for query in QUERIES:
        assert set(await found(moded, query)) <= {text for _, text in TALK}


@pytest.mark.parametrize(
    ("mode", "scored"), [*itertools.product(get_args(Mode), ["plain"]), *(("weighted", each) for each in SCORED)]
)
async def test_the_order_in_which_rows_came_does_not_matter(
    tmp_path: Path, settings: Settings, mode: Mode, scored: str
) -> None:
    answers = []
    for name, backwards in (("one", False), ("other", True)):
        storage = SqliteStorage(tmp_path / f"{name}.db")
        house = in_mode(storage, settings, mode, **SCORED[scored])
        await talk(house, backwards=backwards)
        answers.append([(await found(house, query))[0] for query in QUERIES])
        await house.embedder.close()
        await storage.close()
    assert answers[0] == answers[1]
