"""The files as their authors publish them, read as lines of the form that `data.py` knows.

`locomo10.json` of LoCoMo; `valid-v1.*.json` of JSQuAD, whose passages are `title [SEP] text`.
"""

import datetime as dt
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Lines = list[dict[str, Any]]
_EVIDENCE = re.compile(r"D\d+:\d+")
_SESSION = re.compile(r"session_(\d+)")
_SPOKEN = "%I:%M %p on %d %B, %Y"


def locomo(file: Path) -> tuple[Lines, Lines]:
    """Turns and questions."""
    turns: Lines = []
    questions: Lines = []
    for sample in json.loads(file.read_text(encoding="utf-8")):
        turns += list(_turns(str(sample["sample_id"]), sample["conversation"]))
        questions += [
            {
                "conv": str(sample["sample_id"]),
                "q": asked["question"],
                "cat": asked["category"],
                "ev": _EVIDENCE.findall(" ".join(asked.get("evidence", ()))),
            }
            for asked in sample["qa"]
        ]
    return turns, questions


def jsquad(file: Path) -> tuple[Lines, Lines]:
    """Passages and questions."""
    passages: Lines = []
    questions: Lines = []
    for article in json.loads(file.read_text(encoding="utf-8"))["data"]:
        for paragraph in article["paragraphs"]:
            key = f"p{len(passages)}"
            title, _, text = paragraph["context"].rpartition("[SEP]")
            passages.append({"id": key, "title": title.strip(), "text": text.strip()})
            questions += [{"q": asked["question"], "rel": [key]} for asked in paragraph["qas"]]
    return passages, questions


def _turns(conversation: str, sessions: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    numbers = sorted(int(found[1]) for name in sessions if (found := _SESSION.fullmatch(name)))
    for number in numbers:
        begin = dt.datetime.strptime(sessions[f"session_{number}_date_time"], _SPOKEN).isoformat()
        for at, turn in enumerate(sessions[f"session_{number}"]):
            yield {
                "conv": conversation,
                "id": turn["dia_id"],
                "speaker": turn["speaker"],
                "dt": begin,
                "turn": at,
                "text": turn["text"],
                "caption": turn.get("blip_caption"),
            }
