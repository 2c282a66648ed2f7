"""Recorded: the tool list and the rankings of a fixed corpus. `make golden` rewrites; review reads the diff."""

import json
import os
from pathlib import Path

import msgspec

from memory_svc.services import OPERATIONS
from memory_svc.settings import Settings
from memory_svc.storage.interface import Storage
from memory_svc.transports.schema import hints, input_schema
from tests.conftest import House
from tests.support.facts import FACTS

FOLDER = Path(__file__).parent


def compare(name: str, value: object) -> None:
    """The value is the recorded one; with GOLDEN_WRITE set it is recorded instead."""
    text = json.dumps(value, ensure_ascii=False, indent=1) + "\n"
    if os.environ.get("GOLDEN_WRITE"):
        (FOLDER / name).write_text(text, encoding="utf-8")
    assert (FOLDER / name).read_text(encoding="utf-8") == text, f"{name}: run `make golden` and read the diff"


def test_the_tool_list_is_the_recorded_one() -> None:
    compare(
        "tools.json",
        [
            {
                "name": each.name,
                "description": each.summary,
                "inputSchema": input_schema(each.request),
                "annotations": hints(each),
            }
            for each in OPERATIONS
        ],
    )


async def test_rankings_are_the_recorded_ones(storage: Storage, settings: Settings) -> None:
    house = House(storage, settings)
    wide = House(storage, msgspec.structs.replace(settings, embedding_url=""))
    for fact, _, _ in FACTS:
        await house.call("store", agent_id="a", message={"content": fact})
    rankings = {
        query: {
            name: [row["ref"] for row in (await each.call("recall", agent_id="a", query=query))["messages"]]
            for name, each in (("hybrid", house), ("full text", wide))
        }
        for _, paraphrase, word in FACTS
        for query in (paraphrase, word)
    }
    compare("rankings.json", rankings)
    await house.embedder.close()
    await wide.embedder.close()
