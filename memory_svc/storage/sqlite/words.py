"""The word index: folded words in FTS5, ranked by BM25 (k1 = 1.2, b = 0.75, as FTS5 has them).

Source: Robertson and Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond, 2009.
"""

from collections.abc import Sequence

import apsw

from memory_svc.domain.memory import Kind
from memory_svc.domain.scope import Scope
from memory_svc.domain.text import is_single_character, words
from memory_svc.storage.sqlite.scope import where


def put(connection: apsw.Connection, document: int, text: str) -> None:
    """Index a document's text in place of what was indexed before."""
    remove(connection, document)
    connection.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (document, " ".join(words(text))))


def remove(connection: apsw.Connection, document: int) -> None:
    """Take a document out of the index. Its words stay in the file until merge steps have run."""
    connection.execute("DELETE FROM words WHERE rowid = ?", (document,))


def expression(asked: Sequence[str]) -> str:
    """An FTS5 query for rows that hold any of these words. Every word is a quoted string: none is an operator."""
    return " OR ".join(_quoted(word) for word in asked)


def ranked(
    connection: apsw.Connection, scope: Scope, kind: Kind, asked: Sequence[str], depth: int
) -> list[tuple[int, float]]:
    """(document, score over the best score) of the best rows of a kind in the scope; ties by document."""
    if kind is Kind.EPISODE and not scope.shows_episodes():
        return []
    table = {Kind.MEMORY: "memories", Kind.EPISODE: "episodes"}[kind]
    condition, values = where(scope, table, has_source=kind is Kind.MEMORY)
    found = list(
        connection.execute(
            f"SELECT words.rowid, -bm25(words) AS score FROM words JOIN {table} ON {table}.id = words.rowid >> 4"
            f" WHERE words MATCH ? AND words.rowid & 15 = ? AND {condition} ORDER BY score DESC, words.rowid LIMIT ?",
            (expression(asked), kind.code, *values, depth),
        )
    )
    best = found[0][1] if found else 0.0
    return [(document, score / best if best > 0 else 1.0) for document, score in found]


def _quoted(word: str) -> str:
    text = '"' + word.replace('"', '""') + '"'
    return f"{text} *" if is_single_character(word) else text
