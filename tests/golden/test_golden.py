"""Recorded: the tool list and, in every mode, the rankings of a fixed corpus of English and of one of Japanese.

`make golden` rewrites; review reads the diff.
"""

import json
import os
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from memory_svc.domain.recall.fusion import Mode
from memory_svc.domain.text import words
from memory_svc.services import OPERATIONS
from memory_svc.settings import Settings
from memory_svc.storage.interface import Storage
from memory_svc.transports.schema import hints, input_schema
from tests.conftest import House

FOLDER = Path(__file__).parent
ROWS, CHARS = 5, 12


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


@pytest.mark.parametrize("language", ["english", "japanese"])
async def test_rankings_are_the_recorded_ones_in_every_mode(
    language: str, storage: Storage, settings: Settings
) -> None:
    corpus = json.loads((FOLDER / f"{language}.json").read_text(encoding="utf-8"))
    houses = {mode: House(storage, msgspec.structs.replace(settings, recall_mode=mode)) for mode in get_args(Mode)}
    for house in houses.values():
        house.server.words = words
    for message in corpus["memories"]:
        await houses["weighted"].call("store", agent_id="a", message=message)
    for episode in corpus["episodes"]:
        await houses["weighted"].call("archive_episode", agent_id="a", **episode)
    houses["without vectors"] = House(storage, msgspec.structs.replace(settings, embedding_url=""))
    rankings = {
        query: {name: await best_first(house, query) for name, house in houses.items()} for query in corpus["queries"]
    }
    compare(f"rankings-{language}.json", rankings)
    for house in houses.values():
        await house.embedder.close()


async def best_first(house: House, query: str) -> str:
    """The first rows of an answer in one line, each with how it begins."""
    found = await house.call("recall", agent_id="a", query=query, limit=ROWS)
    return " | ".join(f"{row['ref']} {row['content'][:CHARS]}".strip() for row in found["messages"][::-1])
