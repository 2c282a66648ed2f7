"""The comparison of rankings: what is asked is the same every time, and its page tells what was found and no text."""

import functools
import json
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from bench.quality import data, report, systems
from bench.quality.data import DataSet, Document, Missing, Question
from bench.quality.evidence import BUDGETS, Quoted, asked_for, gathered, quoted, summary
from bench.quality.report import DataResult, Result
from bench.quality.systems import Answers, Filled, Given
from bench.quality.vectors import Vector, Vectors, served
from memory_svc.settings import Settings, load

SECRET = "the cat is called Moss"
TURNS = [
    {"conv": "conv-1", "id": "D1:1", "speaker": "Ann", "dt": "2023-05-08T13:56:00", "turn": 0, "text": SECRET},
    {"conv": "conv-1", "id": "D1:2", "speaker": "Bo", "dt": "2023-05-08T13:56:00", "turn": 1, "text": "Oh?"},
    {"conv": "conv-2", "id": "D1:1", "speaker": "Cy", "dt": "2023-06-01T09:00:00", "turn": 0, "text": "Hello there"},
]
QUESTIONS = [
    {"conv": "conv-1", "q": "What is the cat called?", "cat": 4, "ev": ["D1:1", "D9:9"]},
    {"conv": "conv-1", "q": "Gone?", "cat": 1, "ev": ["D9:9"]},
    {"conv": "conv-2", "q": "Who is there?", "cat": 2, "ev": ["D1:1"]},
    {"conv": "conv-1", "q": "What is Bo's dog called?", "cat": 5, "ev": ["D1:1"]},
]


def write(path: Path, lines: Sequence[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


@pytest.fixture
def conversations(tmp_path: Path) -> DataSet:
    write(tmp_path / "locomo_turns.jsonl", [{**turn, "caption": "a cat" if turn["turn"] else None} for turn in TURNS])
    write(tmp_path / "locomo_questions.jsonl", QUESTIONS)
    return data.locomo(tmp_path)


def test_a_turn_is_told_with_its_speaker_date_and_time_to_every_server_alike(conversations: DataSet) -> None:
    second = conversations.documents[1]
    assert second == Document(
        "conv-1",
        "D1:2",
        {
            "content": "Bo (8 May 2023): Oh?",
            "source": {"type": "User", "id": "Bo", "name": "Bo"},
            "timestamp": "2023-05-08T13:57:00+00:00",
            "metadata": {"caption": "a cat"},
        },
        {**second.message, "content": "Oh?"},
    )
    assert "metadata" not in conversations.documents[0].message


def test_questions_count_with_the_evidence_that_exists_and_adversarial_ones_stand_apart(conversations: DataSet) -> None:
    told = [(each.part, each.category, each.agent, each.relevant) for each in conversations.questions]
    assert told[:3] == [
        ("LoCoMo", "single", "conv-1", ("D1:1",)),
        ("LoCoMo", "temporal", "conv-2", ("D1:1",)),
        ("LoCoMo, adversarial", "adversarial", "conv-1", ("D1:1",)),
    ]
    off_topic = {(each.agent, each.query, each.relevant) for each in conversations.questions[3:]}
    assert off_topic == {("conv-2", "What is the cat called?", ()), ("conv-1", "Who is there?", ())}


def test_the_published_files_are_read_as_the_lines_are(tmp_path: Path, conversations: DataSet) -> None:
    sample = {
        "sample_id": "conv-1",
        "conversation": {
            "speaker_a": "Ann",
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [
                {"speaker": "Ann", "dia_id": "D1:1", "text": SECRET},
                {"speaker": "Bo", "dia_id": "D1:2", "text": "Oh?", "blip_caption": "a cat"},
            ],
        },
        "qa": [{"question": "What is the cat called?", "answer": "Moss", "evidence": ["D1:1; D9:9"], "category": 4}],
    }
    folder = tmp_path / "published"
    folder.mkdir()
    (folder / "locomo10.json").write_text(json.dumps([sample]), encoding="utf-8")
    found = data.locomo(folder)
    assert found.documents == conversations.documents[:2]
    assert found.questions == conversations.questions[:1]
    article = {"title": "猫", "paragraphs": [{"context": "猫 [SEP] 猫は動物。", "qas": [{"question": "猫とは?"}]}]}
    (folder / "valid-v1.3.json").write_text(json.dumps({"data": [article]}), encoding="utf-8")
    japanese = data.jsquad(folder)
    assert [each.message["content"] for each in japanese.documents] == ["猫\n猫は動物。"]
    assert [(each.query, each.relevant) for each in japanese.questions] == [("猫とは?", ("p0",))]


def test_what_is_missing_is_named_with_where_it_comes_from(tmp_path: Path, conversations: DataSet) -> None:
    with pytest.raises(Missing, match=r"jsquad_passages.jsonl and .*yahoojapan/JGLUE, CC BY-SA 4.0.*QUALITY_DATA"):
        data.jsquad(tmp_path)
    with pytest.raises(Missing, match="No conversation conv-7; there are conv-1, conv-2"):
        data.locomo(tmp_path, ["conv-7"])


def test_two_nouns_name_the_one_text_that_holds_both() -> None:
    texts = {"a": "京都の予算は東京都と違う", "b": "京都へ", "c": "大阪と神戸", "d": "神戸と大阪"}
    assert data.noun_pairs(texts) == [("京都", "予算", ["a"])]


def test_a_vector_is_made_once_by_role_and_kept_without_its_text(tmp_path: Path) -> None:
    made: list[tuple[str, list[str]]] = []

    def make(texts: Sequence[str], role: str) -> list[Vector]:
        made.append((role, list(texts)))
        return [np.full(4, len(text), dtype=np.float32) for text in texts]

    file = tmp_path / "cache" / "v.bin"
    vectors = Vectors("m", make, 4, file, {"who?"})
    assert [each[0] for each in vectors.of([SECRET, "who?", SECRET])] == [22, 4, 22]
    assert made == [("document", [SECRET]), ("query", ["who?"])]
    file.write_bytes(file.read_bytes() + b"half an entry")
    again = Vectors("m", make, 4, file, {"who?"})
    assert [each[0] for each in again.of(["who?", SECRET], "document")] == [4, 22]
    assert len(made) == 2
    assert b"Moss" not in file.read_bytes()


def test_vectors_are_served_as_an_embedding_server_serves_them(tmp_path: Path) -> None:
    vectors = Vectors("m", lambda texts, role: [np.ones(2, dtype=np.float32)] * len(texts), 2, tmp_path / "v", ())
    with served(vectors) as address:
        request = urllib.request.Request(f"{address}/embed", b'{"texts": ["a", "b"]}', method="POST")
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
            told = json.loads(answer.read())
    assert told == {"embeddings": [[1.0, 1.0]] * 2, "dimensions": 2, "fingerprint": "m"}


def test_every_other_mode_of_ours_is_tried_where_there_are_modes() -> None:
    setting, default, others = systems.modes()
    for mode in (default, *others) if setting else ():
        assert isinstance(load({setting: mode}), Settings)
    assert default not in others


def test_a_row_is_known_by_its_ref_or_its_text_and_twins_answer_for_each_other() -> None:
    filled = Filled()
    for key, number in (("D1", 7), ("D2", 7), ("D3", 8)):
        text = "bye" if number == 7 else "well"
        filled.add(Document("a", key, {}, {}), text, {"id": number})
    assert filled.keys("a", {"ref": "mem:7"}) == ["D1", "D2"]
    assert filled.keys("a", {"content": "well"}) == ["D3"]
    assert filled.keys("a", {"ref": "ep:1", "content": "else"}) == []


def result(conversations: DataSet, fitted: list[str]) -> Result:
    count = len(conversations.questions)
    best = Given(["D1:1", "D1:2"], 100)
    answers = [
        Answers("ours", [best] * count),
        Answers("ours, restarted", [best] * count),
        Answers("cpersona 1", [Given(["", "", "D1:1"], 300)] * count),
        Answers("cpersona 1, restarted", [Given([], 20)] * count),
    ]
    found = DataResult(
        name="LoCoMo",
        model=conversations.model,
        memories=3,
        questions=report.asked(conversations.questions),
        systems=[report.system(each, conversations.questions) for each in answers],
        restarted=report.restarted(answers),
    )
    return Result(
        command="make it", measured_at="2026-01-01", machine={"a": "b"}, remarks=["r"], fitted=fitted, data=[found]
    )


def test_the_page_tells_measures_gains_silence_and_conversations(conversations: DataSet) -> None:
    page = report.markdown(result(conversations, ["conv-1"]))
    assert "```sh\nmake it\n```" in page
    assert "2 questions (1 single, 1 temporal), 3 memories, vectors of all-MiniLM-L6-v2." in page
    assert "| ours | 100.0 | 100.0 | 100.0 | 100.0 | 100.0 | 100.0 | 100.0 | 2.0 | 100 |" in page
    assert "| cpersona 1 | 100.0 | 100.0 | 33.3 | 50.0 | 100.0 | 100.0 | 100.0 | 3.0 | 300 |" in page
    assert "| cpersona 1 | +0.0 (+0.0 to +0.0) | +0.0 (+0.0 to +0.0) | **+66.7 (+66.7 to +66.7)** |" in page
    assert "| cpersona 1, restarted | 100.0 | 0.0 |" in page
    assert "Weights of ours were chosen on conv-1; the others are held out." in page
    assert "| conv-1, fitted | 1 | 100.0 / 100.0 |" in page
    assert "| held out | 1 | 100.0 / 100.0 |" in page
    assert "Held out. Ours less each peer" in page
    assert "of 5 questions so many got other rows or another order after a restart:\nours 0, cpersona 1 5." in page
    assert "told of no conversation" in report.markdown(result(conversations, []))


def test_an_item_counts_where_it_ends_and_each_memory_it_quotes_once() -> None:
    filled = Filled()
    for number in (1, 2, 3):
        filled.add(Document("a", f"D{number}", {}, {}), f"text {number}", {"id": number})
    items = [
        {"content": "text 1 " * 40, "head_ref": "mem:1", "excerpts": [{"ref": "mem:2", "content": "text 2"}]},
        {"content": "text 3 " * 40, "head_ref": "mem:3", "claims": [{"ref": "mem:9"}]},
    ]
    found = quoted(json.dumps({"items": items, "cap": 3000}), functools.partial(filled.keys, "a"))
    assert [keys for keys, _ in found.items] == [["D1", "D2"], ["D3"]]
    first, second = (end for _, end in found.items)
    assert 80 < first < second < found.tokens
    question = Question(part="LoCoMo", category="", agent="a", query="q", relevant=("D2", "D3", "D4"))
    counted = gathered([found], [question], second - 1)
    assert (counted.found_within, counted.found, counted.rows_within, counted.rows) == ([1], [2], [2], [3])
    assert summary(counted, [3], [True])["within"] == pytest.approx(1 / 3)
    assert summary(counted, [3], [False]) == {}


def test_the_page_tells_how_much_is_quoted_within_the_budgets(conversations: DataSet) -> None:
    told = result(conversations, ["conv-1"])
    count = len(asked_for(conversations.questions))
    assert "evidence" not in report.markdown(told)
    answers = {
        name: {mode: [Quoted([([key], 900)], 950)] * count for mode in BUDGETS}
        for name, key in (("ours", "D1:1"), ("cpersona 1", "D1:2"))
    }
    systems_told = [
        report.system(Answers(each.name, [Given([], 1)] * 5, answers.get(each.name, {})), conversations.questions)
        for each in told.data[0].systems
    ]
    page = report.markdown(
        msgspec.structs.replace(told, data=[msgspec.structs.replace(told.data[0], systems=systems_told)])
    )
    assert "| ours, lite | 1,000 | 100.0 | 100.0 | 100.0 | 1.0 | 100.0 | 950 |" in page
    assert "| cpersona 1, pro | 3,000 | 0.0 | 0.0 | 0.0 | 1.0 | 0.0 | 950 |" in page
    assert "| cpersona 1 | **+100.0 (+100.0 to +100.0)** | **+100.0 (+100.0 to +100.0)** |" in page


def test_nothing_that_is_written_holds_a_text_of_the_data(tmp_path: Path, conversations: DataSet) -> None:
    page = report.write(tmp_path / "r" / "q.json", tmp_path / "d" / "q.md", result(conversations, []))
    written = (tmp_path / "r" / "q.json").read_text(encoding="utf-8")
    assert (tmp_path / "d" / "q.md").read_text(encoding="utf-8") == page
    assert json.loads(written)["data"][0]["systems"][0]["name"] == "ours"
    for text in (*(turn["text"] for turn in TURNS), *(each["q"] for each in QUESTIONS)):
        assert str(text) not in written + page


def test_a_question_that_is_answered_twice_counts_once() -> None:
    question = Question(part="p", category="", agent="a", query="q", relevant=("k", "l"))
    found = report.system(Answers("s", [Given(["", "k", "k", "l"], 5)]), [question])
    assert found.ranks == [[2, 4]]
    scored = report.scores(found, report.asked([question]), lambda _: True)
    assert scored[0]["MRR"] == 0.5
    assert scored[0]["R@10"] == scored[0][report.SHOWN] == 1.0
