"""The canary: rows of an agent of their own, questions that must find them, and what the answers prove.

Each question tests one arm: by meaning (it shares no word with its row), or by words in one script. An arm that is dead
is not hidden by another that finds the row all the same.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, get_args

import msgspec

Sort = Literal["meaning", "identifier", "english", "japanese", "chinese", "korean", "thai"]
SORTS: tuple[Sort, ...] = get_args(Sort)
# Rows asked for, more than there are. A row that is not among them, or that its arm has not found, counts as the next.
ROWS = 30
NOT_FOUND = ROWS + 1


class Probe(msgspec.Struct, frozen=True):
    """A row that is stored, and the question that must find it first."""

    sort: Sort
    content: str
    query: str

    @property
    def arm(self) -> str:
        """The arm that must have found it."""
        return "vectors" if self.sort == "meaning" else "words"


class Found(msgspec.Struct, frozen=True):
    """A row of an answer, and its rank in each arm that found it."""

    content: str
    arms: Mapping[str, int]


class Ranked(msgspec.Struct, frozen=True):
    """A probe's rank from 1: the worse of that in the answer and that in the arm which it tests."""

    sort: Sort
    query: str
    rank: int


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """What became of every probe. degraded: why recall ran without vectors. skipped: sorts that cannot be tested."""

    ranks: list[Ranked]
    degraded: str = ""
    skipped: list[Sort] = []

    @property
    def worst(self) -> dict[Sort, int]:
        """The worst rank of each sort."""
        return {sort: max(each.rank for each in self.ranks if each.sort == sort) for sort in SORTS if self.tests(sort)}

    @property
    def is_well(self) -> bool:
        """Whether every probe was found first, and no arm was missing."""
        return not self.degraded and all(rank == 1 for rank in self.worst.values())

    def tests(self, sort: Sort) -> bool:
        """Whether there is a probe of this sort."""
        return any(each.sort == sort for each in self.ranks)


PROBES = (
    Probe("meaning", "The veterinarian prescribed tablets for the sick kitten.", "medicine for an unwell young cat"),
    Probe("meaning", "We take the train to Vienna at dawn.", "early morning railway journey to the Austrian capital"),
    Probe("meaning", "He tore a ligament in his knee while skiing.", "leg injury from winter sports"),
    Probe(
        "identifier",
        "The nightly job stopped with ERR_BEACON_4711 in lighthouse/beacon.py:38.",
        "ERR_BEACON_4711",
    ),
    Probe("identifier", "Lamp firmware 7.12.3 was rolled back on the north pier.", "firmware 7.12.3"),
    Probe("english", "Gulls were nesting in the disused chimney.", "nested gull"),
    Probe("japanese", "来週の会議は大阪支社で開きます。", "会議"),
    Probe("japanese", "佐々木さんがデータベースを移行した。", "佐々木 ﾃﾞｰﾀﾍﾞｰｽ"),
    Probe("chinese", "报销流程已经改为线上提交。", "公司的报销流程是什么"),
    Probe("korean", "다음 회의는 부산 사무실에서 열립니다.", "부산 회의"),
    Probe("thai", "การประชุมครั้งต่อไปจัดที่เชียงใหม่", "ประชุมที่เชียงใหม่"),
)
LOOK_ALIKES = (
    "The bakery raised its prices for rye bread.",
    "A storm blew the roof off the boathouse.",
    "The nightly job stopped with ERR_BEACON_4712 in lighthouse/signal.py:83.",
    "Lamp firmware 7.12.4 was rolled back on the south pier.",
    "Swallows were nesting in the barn.",
    "来週の会食は京都支社で開きます。",
    "代々木さんがサーバーを停止した。",
    "请假制度仍然需要纸质表格。",
    "다음 시험은 대전 학교에서 열립니다.",
    "งานเลี้ยงครั้งต่อไปจัดที่ภูเก็ต",
)
CONTENTS = (*(probe.content for probe in PROBES), *LOOK_ALIKES)


def ranked(probe: Probe, best_first: Iterable[Found], *, mode: str) -> Ranked:
    """The probe's rank. A cascade puts other arms before the words: there a question by words goes by its arm alone."""
    is_by_arm = mode == "cascade" and probe.arm == "words"
    ranks = [
        row.arms[probe.arm] if is_by_arm else max(place, row.arms[probe.arm])
        for place, row in enumerate(best_first, start=1)
        if row.content == probe.content and probe.arm in row.arms
    ]
    return Ranked(probe.sort, probe.query, ranks[0] if ranks else NOT_FOUND)


def judged(answers: Mapping[Probe, Sequence[Found]], vectors: str, mode: str) -> Examined:
    """What the answers prove. vectors: what recall told of that arm: ran, or skipped or degraded and why."""
    is_skipped = vectors.startswith("skipped")
    asked = {probe: rows for probe, rows in answers.items() if not (is_skipped and probe.arm == "vectors")}
    return Examined(
        ranks=[ranked(probe, rows, mode=mode) for probe, rows in asked.items()],
        degraded=vectors if vectors.startswith("degraded") else "",
        skipped=["meaning"] if is_skipped else [],
    )
