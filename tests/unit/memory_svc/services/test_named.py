"""What is asked for by name, as it stands in code and logs, stands first among what looks like it."""

from collections.abc import Mapping, Sequence

import msgspec
import pytest

from memory_svc.settings import Settings
from memory_svc.storage.interface import Storage
from tests.conftest import House
from tests.support.named import Named, named

RANK_MODES = ("rrf", "rsf", "cascade")
# Modes that go by ranks do not tell two words of one stem apart: `TaskGroup` and `taskgroups.create_task`.
OF_ONE_STEM_MAX = 2


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """As many calls at once as a test likes."""
    return msgspec.structs.replace(settings, calls_per_second_max=0.0)


async def stored(house: House, rows: Sequence[Named]) -> Mapping[str, str]:
    """Store each beside what looks like it; the ref of each by its query."""
    refs = {}
    for each in rows:
        refs[each.query] = f"mem:{(await house.call('store', agent_id='a', content=each.sentence))['id']}"
        await house.call("store", agent_id="a", content=each.beside)
    return refs


async def missed(house: House, refs: Mapping[str, str]) -> list[str]:
    """The queries whose row is not the first."""
    found = []
    for query, ref in refs.items():
        rows = (await house.call("recall", agent_id="a", query=query, limit=3))["messages"]
        if not rows or rows[-1]["ref"] != ref:
            found.append(query)
    return found


async def test_five_hundred_things_asked_for_by_name_stand_first(
    house: House, storage: Storage, settings: Settings
) -> None:
    sorts = named()
    assert {name: len({each.query for each in rows}) for name, rows in sorts.items()} == dict.fromkeys(sorts, 100)
    refs = await stored(house, [each for rows in sorts.values() for each in rows])
    assert await missed(house, refs) == []
    third = dict(list(refs.items())[::3])
    for mode in RANK_MODES:
        other = House(storage, msgspec.structs.replace(settings, recall_mode=mode))
        assert len(found := await missed(other, third)) <= OF_ONE_STEM_MAX, (mode, found)
        await other.embedder.close()


async def test_a_message_of_nothing_but_names_is_held_by_what_holds_them_in_that_order(house: House) -> None:
    row = Named("KeyError: root_v2.0", "KeyError: root_v2.0 again in the staging log", "root_v2.0 KeyError:")
    assert await missed(house, await stored(house, [row])) == []


async def test_what_a_query_names_among_other_words_counts(house: House) -> None:
    await stored(house, [Named("q", "bug-204 was closed", "the bug with the bus line 204 was closed in the meantime")])
    answer = await house.call("recall", agent_id="a", query="in the meantime, was bug-204 closed?")
    assert answer["messages"][-1]["content"] == "bug-204 was closed"
