"""Fusion of ranked lists into one.

Reciprocal rank fusion: Cormack, Clarke and Büttcher, Reciprocal Rank Fusion outperforms Condorcet and individual Rank
Learning Methods, SIGIR 2009.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from memory_svc.domain.memory import Ref


class Fused(msgspec.Struct, frozen=True):
    """A row of the fused list: its score and the arms that found it."""

    ref: Ref
    score: float
    arms: tuple[str, ...]


def rrf(arms: Mapping[str, Sequence[int]], k: int) -> Iterator[Fused]:
    """The rows of all arms, given as document numbers, best first.

    A row's score is the sum over its arms of 1 / (k + rank), ranks from 1. Equal scores are ordered by document number,
    so that the same arms always give the same list.
    """
    scores: dict[int, float] = {}
    for documents in arms.values():
        for rank, document in enumerate(documents, start=1):
            scores[document] = scores.get(document, 0.0) + 1.0 / (k + rank)
    holding = {name: frozenset(documents) for name, documents in arms.items()}
    for document in sorted(scores, key=lambda document: (-scores[document], document)):
        found_by = tuple(name for name, documents in holding.items() if document in documents)
        yield Fused(Ref.of_document(document), scores[document], found_by)
