"""The word index: folded words in FTS5, ranked by BM25 (k1 = 1.2, b = 0.75, as FTS5 has them).

Source: Robertson and Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond, 2009.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

import apsw

from memory_svc.domain.memory import Kind
from memory_svc.domain.scope import Scope
from memory_svc.domain.text import is_single_character, words
from memory_svc.storage.sqlite.connection import numbers
from memory_svc.storage.sqlite.scope import where

MATCHES = "SELECT words.rowid, -bm25(words) AS score FROM words"
WANTED = "words MATCH ? AND words.rowid & 15 = ?"
BEST_FIRST = "ORDER BY score DESC, words.rowid"
SAMPLE = 16


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
    if kind is Kind.EPISODE and not (scope.shows_episodes() and _has_episodes(connection, scope)):
        return []
    table = {Kind.MEMORY: "memories", Kind.EPISODE: "episodes"}[kind]
    condition, values = where(scope, table, has_source=kind is Kind.MEMORY)
    arguments = (expression(asked), kind.code)
    if _is_all(connection, table, scope):
        found = list(connection.execute(f"{MATCHES} WHERE {WANTED} {BEST_FIRST} LIMIT ?", (*arguments, depth)))
    elif _is_most(connection, table, condition, values):
        matches = connection.execute(f"{MATCHES} WHERE {WANTED} {BEST_FIRST}", arguments)
        found = list(islice(_in_scope(connection, matches, depth, (table, condition, values)), depth))
    else:
        joined = f"{MATCHES} JOIN {table} ON {table}.id = words.rowid >> 4 WHERE {WANTED} AND {condition} {BEST_FIRST}"
        found = list(connection.execute(f"{joined} LIMIT ?", (*arguments, *values, depth)))
    best = found[0][1] if found else 0.0
    return [(document, score / best if best > 0 else 1.0) for document, score in found]


def _has_episodes(connection: apsw.Connection, scope: Scope) -> bool:
    """Whether the scope's agent has any: to find that none match takes a look at every match of a memory."""
    condition, values = where(Scope(agent=scope.agent), "episodes")
    return connection.execute(f"SELECT 1 FROM episodes WHERE {condition} LIMIT 1", values).fetchone() is not None


def _is_all(connection: apsw.Connection, table: str, scope: Scope) -> bool:
    """Whether every row lies in the scope since one agent owns them all: then no row need be looked up."""
    if scope != Scope(agent=scope.agent):
        return False
    owners = f"SELECT (SELECT min(agent) FROM {table}), (SELECT max(agent) FROM {table})"
    return scope.agent is None or set(next(connection.execute(owners))) == {scope.agent}


def _is_most(connection: apsw.Connection, table: str, condition: str, values: Sequence[object]) -> bool:
    """Whether most rows lie in the scope, by a sample: then it costs less to rank all matches and look up the best."""
    last = connection.execute(f"SELECT max(id) FROM {table}").fetchone()
    sample = numbers([last[0] * part // SAMPLE for part in range(1, SAMPLE + 1)]) if last and last[0] else "[]"
    statement = (
        f"SELECT count(*) FROM json_each(?) AS asked CROSS JOIN {table} ON {table}.id = asked.value WHERE {condition}"
    )
    return int(next(connection.execute(statement, (sample, *values)))[0]) > SAMPLE // 2


def _in_scope(
    connection: apsw.Connection,
    matches: Iterator[tuple[int, float]],
    depth: int,
    scope: tuple[str, str, Sequence[object]],
) -> Iterator[tuple[int, float]]:
    """Those matches whose rows meet the condition, in order, looked up in ever larger groups."""
    table, condition, values = scope
    statement = (
        f"SELECT {table}.id FROM json_each(?) AS asked CROSS JOIN {table} ON {table}.id = asked.value WHERE {condition}"
    )
    size = depth
    while group := list(islice(matches, size)):
        ids = numbers([document >> 4 for document, _ in group])
        seen = {id for (id,) in connection.execute(statement, (ids, *values))}
        yield from (match for match in group if match[0] >> 4 in seen)
        size *= 2


def _quoted(word: str) -> str:
    text = '"' + word.replace('"', '""') + '"'
    return f"{text} *" if is_single_character(word) else text
