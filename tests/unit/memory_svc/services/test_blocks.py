"""A long text is found by the meaning of each of its parts, as soon as the model has read them."""

import asyncio
import random
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from memory_svc.domain.blocks import covered
from memory_svc.domain.memory import Kind, Ref
from memory_svc.domain.scope import Scope
from memory_svc.services import blocks
from memory_svc.services.operation import Call
from memory_svc.settings import Settings
from memory_svc.storage.interface import Query, Storage
from tests.conftest import House
from tests.support.corpus import candidates

FACT = (
    "zebras graze beside quiet rivers until dusk while herons stand among reeds and elephants bathe under"
    " acacia trees far from villages"
)
WORDS = ("market", "invoice", "printer", "cable", "window", "harbour", "office", "ticket", "ladder", "kettle", "garden")


def filler(chars: int, seed: int = 0) -> str:
    """So many characters of sentences that say nothing of the fact."""
    chosen = random.Random(seed)
    text = ""
    while len(text) < chars:
        text += " ".join(chosen.choice(WORDS) for _ in range(8)) + ". "
    return text[:chars].rsplit(" ", 1)[0] + " "


async def nearest(house: House, text: str, depth: int = 100) -> dict[str, float]:
    """The cosine of each row, the nearest first."""
    vectors = await house.embedder.embed([text], "query")
    assert vectors is not None
    found = await candidates(house.storage, Scope(), Query((), vectors[0], depth))
    return {str(hit.ref): hit.score for hit in found.vectors}


@pytest.fixture
def house(house: House) -> House:
    """A model that reads sixty words of a text."""
    house.server.window = 60
    return house


async def test_a_fact_at_the_end_of_a_long_text_is_found_by_meaning_alone(house: House) -> None:
    for seed in range(1, 30):
        await house.call("store", agent_id="a", content=filler(300, seed))
    stored = await house.call("store", agent_id="a", content=filler(12_000) + FACT)
    assert stored["receipt"]["vector"] == "waiting"
    await house.worker.backfill()
    found = await nearest(house, FACT)
    assert next(iter(found)) == "mem:30"
    assert len(found) == 30
    assert await house.storage.derived.waiting_count("1:fake") == 0


async def test_a_text_of_a_few_blocks_has_them_all_when_it_is_stored(house: House) -> None:
    stored = await house.call("store", agent_id="a", content=filler(1500) + FACT)
    assert stored["receipt"] == {"text": "done", "words": "done", "vector": "done", "blocks": 5}
    assert stored["embedded"] is True
    assert (await nearest(house, FACT))["mem:1"] > 0.4
    spans = await house.storage.derived.spans(Ref(Kind.MEMORY, 1))
    assert spans is not None
    assert covered(spans) == len((await house.storage.memories.get(Scope(), [1]))[1].content)


async def test_a_text_within_the_window_is_asked_for_once_and_has_one_vector(house: House) -> None:
    stored = await house.call("store", agent_id="a", content=filler(200))
    assert stored["receipt"] == {"text": "done", "words": "done", "vector": "done"}
    assert [texts for _, texts in house.server.asked] == [[filler(200).strip()]]
    assert await house.storage.derived.spans(Ref(Kind.MEMORY, 1)) == []


async def test_each_block_of_a_line_of_talk_says_who_speaks_and_when(house: House) -> None:
    source = {"type": "User", "name": "Ann"}
    await house.call("store", agent_id="a", content=filler(1500), source=source, timestamp="2023-05-08T10:00:00Z")
    asked = [text for _, texts in house.server.asked for text in texts if text != blocks.PROBE]
    assert len(asked) > 3
    assert all(text.startswith("Ann (8 May 2023): ") for text in asked)


async def test_an_episode_and_its_keywords_are_read_to_the_end_too(house: House) -> None:
    archived = await house.call("archive_episode", agent_id="a", summary=filler(1500), keywords=FACT)
    assert archived["receipt"]["blocks"] > 3
    assert next(iter(await nearest(house, FACT))) == "ep:1"


async def test_a_text_that_becomes_shorter_has_one_vector_again(house: House) -> None:
    await house.call("store", agent_id="a", content=filler(1500) + FACT)
    updated = await house.call("update_memory", memory_id=1, content="short")
    assert updated["receipt"] == {"text": "done", "words": "done", "vector": "done"}
    assert (await nearest(house, FACT))["mem:1"] < 0.3
    assert (await nearest(house, "short"))["mem:1"] == pytest.approx(1.0)


async def test_a_deleted_text_is_found_by_none_of_its_blocks(house: House) -> None:
    await house.call("store", agent_id="a", content=filler(1500) + FACT)
    assert await nearest(house, FACT)
    await house.call("delete_memory", memory_id=1)
    assert await nearest(house, FACT) == {}


async def test_no_more_blocks_are_made_than_are_set_and_the_receipt_says_how_far_they_reach(
    storage: Storage, settings: Settings
) -> None:
    house = House(storage, msgspec.structs.replace(settings, blocks_max=3))
    house.server.window = 60
    stored = await house.call("store", agent_id="a", content=filler(3000) + FACT)
    assert stored["receipt"]["blocks"] == 3
    assert 600 < stored["receipt"]["vector_chars"] < 1500
    assert (await nearest(house, FACT))["mem:1"] < 0.4


async def test_a_repeated_store_tells_the_same_of_the_blocks(house: House) -> None:
    call = Call(idempotency_key="k")
    answers = [await house.call("store", call, agent_id="a", content=filler(1500)) for _ in range(2)]
    assert answers[0] == answers[1]
    assert answers[0]["receipt"]["blocks"] == 5


async def test_with_one_block_at_most_a_text_is_read_as_far_as_the_window_goes(
    storage: Storage, settings: Settings
) -> None:
    house = House(storage, msgspec.structs.replace(settings, blocks_max=1))
    house.server.window = 60
    stored = await house.call("store", agent_id="a", content=filler(3000))
    assert stored["receipt"] == {"text": "done", "words": "done", "vector": "done"}
    assert len(house.server.asked) == 1
    await house.worker.backfill()
    assert await storage.derived.waiting_count("1:fake") == 0


async def test_blocks_of_a_set_size_need_no_word_of_the_server(storage: Storage, settings: Settings) -> None:
    house = House(storage, msgspec.structs.replace(settings, block_chars=400))
    house.server.tells_window = False
    stored = await house.call("store", agent_id="a", content=filler(1500) + FACT)
    assert stored["receipt"]["blocks"] == 6
    texts = [text for _, texts in house.server.asked for text in texts]
    assert all(len(text) <= 400 for text in texts)
    assert (await nearest(house, FACT))["mem:1"] > 0.4
    short = await house.call("store", agent_id="a", content="short")
    assert "blocks" not in short["receipt"]


async def test_blocks_of_a_set_size_that_pass_the_window_are_cut_again(storage: Storage, settings: Settings) -> None:
    house = House(storage, msgspec.structs.replace(settings, block_chars=600))
    house.server.window = 60
    await house.call("store", agent_id="a", content=filler(1500) + FACT)
    spans = await storage.derived.spans(Ref(Kind.MEMORY, 1))
    assert spans is not None
    assert covered(spans) == len((await storage.memories.get(Scope(), [1]))[1].content)
    assert (await nearest(house, FACT))["mem:1"] > 0.3


async def test_a_server_that_does_not_tell_its_window_gives_one_vector_a_text(house: House) -> None:
    house.server.tells_window = False
    stored = await house.call("store", agent_id="a", content=filler(3000))
    assert stored["receipt"] == {"text": "done", "words": "done", "vector": "done"}
    assert len(house.server.asked) == 1


async def test_a_denser_part_of_a_text_is_cut_into_shorter_blocks(house: House) -> None:
    dense = " ".join(f"a{number % 10}" for number in range(700))
    await house.call("store", agent_id="a", content=filler(1000) + dense)
    await house.worker.backfill()
    spans = await house.storage.derived.spans(Ref(Kind.MEMORY, 1))
    content = (await house.storage.memories.get(Scope(), [1]))[1].content
    assert spans is not None
    assert covered(spans) == len(content)
    assert all(len(content[span.start : span.stop].split()) <= 60 for span in spans)


async def test_where_further_blocks_do_not_come_the_first_one_speaks_until_they_do(house: House) -> None:
    send = house.embedder._send

    async def only_the_first(body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        return await send(body, headers) if b"Does the embedding server answer" not in body else (503, b"{}")

    house.embedder._send = only_the_first
    stored = await house.call("store", agent_id="a", content=filler(1500) + FACT)
    assert stored["receipt"] == {"text": "done", "words": "done", "vector": "waiting"}
    assert (await nearest(house, filler(300)))["mem:1"] > 0.5
    house.embedder._send = send
    await house.worker.backfill()
    assert (await nearest(house, FACT))["mem:1"] > 0.4
    assert house.embedder.waiting == 0


async def test_a_store_waits_for_further_blocks_no_longer_than_is_set_and_that_opens_no_breaker(house: House) -> None:
    send = house.embedder._send

    async def slow(body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        await asyncio.sleep(0 if b"Does the embedding server answer" not in body else 0.5)
        return await send(body, headers)

    house.embedder._send = slow
    for number in range(3):
        stored = await house.call("store", agent_id="a", content=filler(1500, number))
        assert stored["receipt"]["vector"] == "waiting"
    assert house.embedder.state == "closed"
    assert house.embedder.failure == ""


async def test_a_block_that_the_model_cannot_read_holds_up_neither_the_others_nor_other_rows(house: House) -> None:
    house.server.unreadable = "quagga"
    await house.call("store", agent_id="a", content=filler(1500) + "quagga. " + filler(1500, 1) + FACT)
    await house.call("store", agent_id="a", content=filler(800, 2))
    await house.worker.backfill()
    assert await house.storage.derived.waiting_count("1:fake") == 0
    assert (await nearest(house, FACT))["mem:1"] > 0.4


async def test_a_change_of_model_makes_every_block_anew(house: House) -> None:
    await house.call("store", agent_id="a", content=filler(1500) + FACT)
    await house.call("store", agent_id="a", content="short")
    house.server.fingerprint, house.server.window = "1:new", 40
    await house.embedder.probe(0)
    await house.call("recall", agent_id="a", query="anything")
    assert await nearest(house, FACT) == {}
    assert (await house.call("recall", agent_id="a", query="zebras", deep=True))["messages"] != []
    while await house.worker.backfill():
        pass
    assert await house.storage.derived.waiting_count("1:new") == 0
    found: dict[str, Any] = await nearest(house, FACT)
    assert found["mem:1"] > 0.4
    assert len(await house.storage.derived.spans(Ref(Kind.MEMORY, 1)) or []) > 5


async def test_where_words_tell_nothing_the_excerpt_is_of_the_part_by_whose_meaning_a_row_was_found(
    house: House,
) -> None:
    await house.call("store", agent_id="a", content=filler(1500) + FACT + ". " + filler(600, 1))
    await house.call("archive_episode", agent_id="a", summary=filler(1500, 2) + FACT + ". " + filler(600, 3))
    await house.call("store", agent_id="a", content=FACT + ". " + filler(1500, 4))
    house.server.alike["quagga"] = FACT
    answer = await house.call("recall", agent_id="a", query="quagga", deep=True)
    by_ref = {row["ref"]: row for row in answer["messages"]}
    for ref in ("mem:1", "ep:1"):
        assert by_ref[ref]["excerpt_basis"] == "blocks"
        assert FACT in by_ref[ref]["excerpt"]
        assert len(by_ref[ref]["excerpt"]) <= 800
    assert by_ref["mem:2"]["excerpt_basis"] == "start"
    evidence = await house.call("reconstruct", agent_id="a", query="quagga", deep=True, mode="lite")
    quotes = {item["head_ref"]: item["content"] for item in evidence["items"]}
    assert sorted(quotes) == ["ep:1", "mem:1", "mem:2"]
    assert all(FACT in quote and len(quote) <= 400 for quote in quotes.values())
    full = await house.call("recall", agent_id="a", query="quagga", deep=True, full_content=True)
    assert all("excerpt" not in row for row in full["messages"])


async def test_words_beyond_the_cut_show_where_the_excerpt_is_before_meaning_does(house: House) -> None:
    words = "The giraffe sleeps standing. "
    await house.call("store", agent_id="a", content=filler(900) + words + filler(900, 1) + FACT)
    house.server.alike["giraffe"] = FACT
    answer = await house.call("recall", agent_id="a", query="giraffe", deep=True)
    assert answer["messages"][0]["excerpt_basis"] == "lexical"
    assert words.strip() in answer["messages"][0]["excerpt"]


async def test_a_part_that_is_found_by_meaning_alone_is_shown_from_its_beginning(house: House) -> None:
    await house.call("store", agent_id="a", content=filler(1500) + FACT)
    house.server.alike["quagga"] = FACT
    (row,) = (await house.call("recall", agent_id="a", query="quagga", deep=True))["messages"]
    spans = await house.storage.derived.spans(Ref(Kind.MEMORY, 1))
    content = (await house.storage.memories.get(Scope(), [1]))[1].content
    assert spans is not None
    assert row["excerpt"] == content[spans[-1].start :].strip()
