"""LoCoMo and JSQuAD as memories and questions, read from a folder of the user's. Nothing of them is kept elsewhere.

LoCoMo: Maharana et al., Evaluating Very Long-Term Conversational Memory of LLM Agents, ACL 2024.
JSQuAD: Kurihara, Kawahara and Shibata, JGLUE: Japanese General Language Understanding Evaluation, LREC 2022.
"""

import datetime as dt
import itertools
import json
import random
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from bench.quality import originals
from bench.quality.originals import Lines

SEED = 20_252
TURN_SECONDS = 60
JSQUAD_QUESTIONS = 500
NOUN_PAIRS = 500
OFF_TOPIC = 200
SOURCES = {
    "locomo": "LoCoMo (github.com/snap-research/LoCoMo, CC BY-NC 4.0)",
    "jsquad": "JSQuAD of JGLUE (github.com/yahoojapan/JGLUE, CC BY-SA 4.0)",
}
FILES = {
    "locomo": ("locomo10.json", "locomo_turns.jsonl", "locomo_questions.jsonl"),
    "jsquad": ("valid-v1.*.json", "jsquad_passages.jsonl", "jsquad_questions.jsonl"),
}
CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open", 4: "single", 5: "adversarial"}
ADVERSARIAL = "adversarial"
OFF_TOPIC_PART = "LoCoMo, off topic"
_BEGIN = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
_NOUN = re.compile(r"(?<![\u3005\u4e00-\u9fff])[\u4e00-\u9fff]{2}(?![\u3005\u4e00-\u9fff])")

Model = Literal["all-MiniLM-L6-v2", "multilingual-e5-small"]


class Document(msgspec.Struct, frozen=True):
    """A memory: whose, the id that questions know it by, and the arguments of `store`; plain: others, see `DataSet`."""

    agent: str
    key: str
    message: dict[str, Any]
    plain: dict[str, Any]


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question, the part of the comparison it belongs to, and the ids of the memories that answer it."""

    part: str
    category: str
    agent: str
    query: str
    relevant: tuple[str, ...]


class DataSet(msgspec.Struct, frozen=True, kw_only=True):
    """Memories, questions about them, and the model of their vectors.

    plain: in words, how memories differ that have the text alone as content.
    """

    name: str
    model: Model
    plain: str
    documents: list[Document]
    questions: list[Question]


class Missing(Exception):
    """What is not there, and where it comes from."""


def locomo(folder: Path, conversations: Sequence[str] = ()) -> DataSet:
    """Each conversation an agent, each turn a memory, each question a recall; conversations: () = all.

    Questions without any evidence that exists are left out. Raises Missing.
    """
    turns, asked = _read(folder, "locomo", originals.locomo)
    _refuse_unknown(conversations, {line["conv"] for line in turns})
    documents = [_turn(line) for line in turns if not conversations or line["conv"] in conversations]
    known = {(each.agent, each.key) for each in documents}
    questions = [
        Question(
            part="LoCoMo, adversarial" if CATEGORIES[line["cat"]] == ADVERSARIAL else "LoCoMo",
            category=CATEGORIES[line["cat"]],
            agent=line["conv"],
            query=line["q"],
            relevant=relevant,
        )
        for line in asked
        if (relevant := tuple(dict.fromkeys(key for key in line["ev"] if (line["conv"], key) in known)))
    ]
    questions += _off_topic(questions)
    return DataSet(
        name="LoCoMo",
        model="all-MiniLM-L6-v2",
        plain="fields apart",
        documents=documents,
        questions=questions,
    )


def jsquad(folder: Path) -> DataSet:
    """All passages one agent, a day apart; questions drawn from all, and queries of two nouns of one passage.

    A passage is the title of its article and a text, as it was before those who asked. Raises Missing.
    """
    passages, asked = _read(folder, "jsquad", originals.jsquad)
    texts = {line["id"]: f"{line['title']}\n{line['text']}" for line in passages}
    documents = [_passage(at, line["id"], texts[line["id"]], line["text"]) for at, line in enumerate(passages)]
    usable = [line for line in asked if all(key in texts for key in line["rel"])]
    drawn = random.Random(SEED).sample(usable, min(JSQUAD_QUESTIONS, len(usable)))
    questions = [_jsquad_question("JSQuAD", line["q"], line["rel"]) for line in drawn]
    pairs = [_jsquad_question("JSQuAD, two nouns", f"{one} {other}", keys) for one, other, keys in noun_pairs(texts)]
    return DataSet(
        name="JSQuAD",
        model="multilingual-e5-small",
        plain="without titles",
        documents=documents,
        questions=[*questions, *pairs],
    )


def noun_pairs(texts: Mapping[str, str]) -> list[tuple[str, str, list[str]]]:
    """Pairs of words of two Han characters that stand together in exactly one text, drawn with a fixed seed.

    A word is taken to be two Han characters between characters that are none; most such are nouns.
    """
    found: list[tuple[str, str, list[str]]] = []
    drawn = random.Random(SEED)
    candidates = [
        (key, pair)
        for key, text in texts.items()
        for pair in itertools.combinations(list(dict.fromkeys(_NOUN.findall(text))), 2)
    ]
    for _, (one, other) in drawn.sample(candidates, len(candidates)):
        holding = [key for key, text in texts.items() if one in text and other in text]
        if len(holding) == 1:
            found.append((one, other, holding))
        if len(found) == NOUN_PAIRS:
            break
    return found


def _turn(line: Mapping[str, Any]) -> Document:
    said = dt.datetime.fromisoformat(line["dt"]).replace(tzinfo=dt.UTC)
    at = (said + dt.timedelta(seconds=TURN_SECONDS * line["turn"])).isoformat()
    speaker = line["speaker"]
    common = {
        "source": {"type": "User", "id": speaker, "name": speaker},
        "timestamp": at,
        **({"metadata": {"caption": line["caption"]}} if line.get("caption") else {}),
    }
    written = f"{speaker} ({said.day} {said:%B %Y}): {line['text']}"
    return Document(
        line["conv"], line["id"], {"content": written, **common}, {"content": line["text"] or "…", **common}
    )


def _off_topic(questions: Sequence[Question]) -> list[Question]:
    """Questions about one conversation, put to the agent of the next one, drawn with a fixed seed."""
    agents = list(dict.fromkeys(question.agent for question in questions))
    following = dict(zip(agents, [*agents[1:], *agents[:1]], strict=True))
    counted = [question for question in questions if question.part == "LoCoMo" and len(agents) > 1]
    return [
        Question(part=OFF_TOPIC_PART, category="", agent=following[each.agent], query=each.query, relevant=())
        for each in random.Random(SEED).sample(counted, min(OFF_TOPIC, len(counted)))
    ]


def _passage(at: int, key: str, titled: str, alone: str) -> Document:
    source = {"type": "Agent", "id": "jsquad", "name": ""}
    common = {"source": source, "timestamp": (_BEGIN + dt.timedelta(days=at)).isoformat()}
    return Document("jsquad", key, {"content": titled, **common}, {"content": alone, **common})


def _jsquad_question(part: str, query: str, relevant: Iterable[str]) -> Question:
    return Question(part=part, category="", agent="jsquad", query=query, relevant=tuple(relevant))


def _read(folder: Path, name: str, original: Callable[[Path], tuple[Lines, Lines]]) -> tuple[Lines, Lines]:
    published, *ours = FILES[name]
    if all((folder / file).is_file() for file in ours):
        memories, questions = (
            [json.loads(line) for line in (folder / file).read_text(encoding="utf-8").splitlines() if line.strip()]
            for file in ours
        )
        return memories, questions
    for file in sorted(folder.glob(published), reverse=True):
        return original(file)
    raise Missing(
        f"{folder} holds neither {published} nor {' and '.join(ours)}. They come from {SOURCES[name]}; bench/README.md"
        " tells what is in them. Name their folder with DATA= or QUALITY_DATA"
    )


def _refuse_unknown(conversations: Iterable[str], known: Collection[str]) -> None:
    if unknown := sorted(set(conversations) - set(known)):
        raise Missing(f"No conversation {', '.join(unknown)}; there are {', '.join(sorted(known))}")
