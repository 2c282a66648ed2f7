"""The word index, read for what stands verbatim: quoted phrases, and pieces of longer words."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import apsw
import numpy as np

from memory_svc.domain.memory import Kind, Row
from memory_svc.domain.scope import Scope
from memory_svc.domain.terms import Fields, fields_of, flat, term
from memory_svc.domain.text import atoms, is_single_character, sequence
from memory_svc.storage.sqlite import bm25, episodes, memories
from memory_svc.storage.sqlite.connection import numbers
from memory_svc.storage.sqlite.postings import Corpus, corpus_of, quoted, read_places
from memory_svc.storage.sqlite.scope import where
from memory_svc.storage.sqlite.words import TABLES, best_in_scope

SELECT: Mapping[Kind, Callable[[apsw.Connection, str, Sequence[Any]], Sequence[Row]]] = {
    Kind.MEMORY: memories.select,
    Kind.EPISODE: episodes.select,
}
VERBATIM = "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rowid DESC LIMIT ?"
VERBATIM_IN_SCOPE = (
    "SELECT words.rowid FROM words CROSS JOIN {table} ON {table}.id = words.rowid >> 4"
    " WHERE words MATCH ? AND {condition} ORDER BY words.rowid DESC LIMIT ?"
)
# Found by their trigrams, or looked at one by one since theirs are not indexed yet (see indexing.py).
LONGER = (
    "SELECT code, word FROM vocabulary WHERE id IN (SELECT rowid FROM pieces WHERE pieces MATCH ? UNION ALL"
    " SELECT id FROM vocabulary WHERE id > (SELECT ifnull(max(id), 0) FROM pieces_docsize))"
    " AND code IN (SELECT value FROM json_each(?)) AND instr(word, ?) AND word <> ?"
    " ORDER BY length(word), word, code LIMIT ?"
)
IN_ORDER_MAX, ANY_ORDER_MAX = 2000, 300
READ_AT_ONCE = 50
LONGER_WORDS_MAX = 8
FORMS = ord("f")


def phrased(connection: apsw.Connection, scope: Scope, kind: Kind, phrase: str, depth: int) -> list[int]:
    """The newest documents of the scope in which a phrase (see `domain.terms.phrases`) stands word for word.

    Those with the same words around identifiers cut otherwise come behind, of the newest that hold all of the words.
    """
    corpus = corpus_of(connection, scope, kind)
    if corpus is None:
        return []
    ways = ((_in_order(corpus, sequence(phrase)), IN_ORDER_MAX), (_in_any_order(corpus, atoms(phrase)), ANY_ORDER_MAX))
    looked_at = (document for way in ways for document in _verbatim(connection, scope, kind, way))
    found = _that_hold(connection, (kind, phrase), looked_at)
    return list(itertools.islice(dict.fromkeys(found), depth))


def substrings(
    connection: apsw.Connection, scope: Scope, kind: Kind, asked: Sequence[str], depth: int
) -> list[tuple[int, float]]:
    """(document, score over the best score) of the best rows that hold these pieces inside longer words.

    A word counts by its idf and by how much of it the piece is; of several words with one piece the best one counts.
    """
    corpus = corpus_of(connection, scope, kind)
    if corpus is None:
        return []
    scores: dict[int, float] = {}
    for piece in asked:
        for document, score in _with_piece(connection, corpus, piece).items():
            scores[document] = scores.get(document, 0.0) + score
    documents = np.array(sorted(scores), np.int64)
    values = np.array([scores[document] for document in documents.tolist()], np.float64)
    top = best_in_scope(connection, scope, kind, (documents >> 4, values), depth)
    best = values[top[0]] if len(top) else 1.0
    return list(zip(documents[top].tolist(), (values[top] / best).tolist(), strict=True))


def _in_order(corpus: Corpus, found: Sequence[str]) -> str:
    """An FTS5 query for these words one after the other, as one quoted string: nothing in it is an operator."""
    ends = " *" if is_single_character(found[-1]) else ""
    texts = (" ".join(f"{code}:{term(word)}" for word in found).replace('"', '""') for code in corpus.codes)
    either = " OR ".join(f'"{text}"{ends}' for text in texts)
    return f"{{text extras}} : ({either})"


def _in_any_order(corpus: Corpus, found: Sequence[str]) -> str:
    every = (" AND ".join(quoted(code, word) for word in found) for code in corpus.codes)
    either = " OR ".join(f"({each})" for each in every)
    return f"{{text extras}} : ({either})"


def _verbatim(connection: apsw.Connection, scope: Scope, kind: Kind, way: tuple[str, int]) -> Iterator[int]:
    """The newest documents of the scope that an FTS5 query finds, so many at most."""
    expression, count_max = way
    if scope.is_whole:
        return (row[0] for row in connection.execute(VERBATIM, way))
    condition, values = where(scope, TABLES[kind], has_source=kind is Kind.MEMORY)
    statement = VERBATIM_IN_SCOPE.format(table=TABLES[kind], condition=condition)
    return (row[0] for row in connection.execute(statement, (expression, *values, count_max)))


def _that_hold(connection: apsw.Connection, wanted: tuple[Kind, str], documents: Iterator[int]) -> Iterator[int]:
    """Those of these documents whose text itself holds the phrase, in their order."""
    kind, phrase = wanted
    while group := list(itertools.islice(documents, READ_AT_ONCE)):
        ids = [document >> 4 for document in group]
        condition = f"{TABLES[kind]}.id IN (SELECT value FROM json_each(?))"
        rows: Sequence[Row] = SELECT[kind](connection, condition, (numbers(ids),))
        texts = {row.id: fields_of(row) for row in rows}
        yield from (each for each in group if each >> 4 in texts and _holds(texts[each >> 4], phrase))


def _holds(fields: Fields, phrase: str) -> bool:
    return any(phrase in flat(text) for text in (fields.text, fields.extras))


def _with_piece(connection: apsw.Connection, corpus: Corpus, piece: str) -> dict[int, float]:
    trigrams = dict.fromkeys(piece[at : at + 3].replace('"', '""') for at in range(len(piece) - 2))
    expression = " AND ".join(f'"{each}"' for each in trigrams)
    values = (expression, numbers(corpus.codes), piece, piece, LONGER_WORDS_MAX)
    scores: dict[int, float] = {}
    for code, text in connection.execute(LONGER, values).fetchall():
        word = str(text)
        places, letters = read_places(connection, [f"{code}:{word}"])
        documents = bm25.distinct(places if term(word) == word else places[letters == FORMS])
        share = len(piece) / len(word)
        score = float(bm25.idf(len(documents), corpus.rows)) * share
        for document in documents.tolist():
            scores[document] = max(scores.get(document, 0.0), score)
    return scores
