"""The word index, written: a row's terms by field, its window, the counts of its corpus, its long words."""

from collections.abc import Sequence
from typing import NamedTuple

import apsw
import msgspec

from memory_svc.domain.memory import Memory, Ref, Row, kind_of
from memory_svc.domain.terms import Fields, fields_of, is_long, talk_of, term, words_of
from memory_svc.storage.sqlite.windows import TERMS_MAX, Sheet, link, unlink

COUNTED = (
    "INSERT INTO corpora (agent, kind, rows, terms, windows) VALUES (?, ?, 1, ?, ?) ON CONFLICT (agent, kind) DO UPDATE"
    " SET (rows, terms, windows) = (rows + 1, terms + excluded.terms, windows + excluded.windows) RETURNING code"
)
DISCOUNTED = (
    "UPDATE corpora SET (rows, terms, windows) = (rows - 1, terms - ?, windows + ?) WHERE agent = ? AND kind = ?"
    " RETURNING code, rows"
)
UNCALIBRATED = "DELETE FROM calibrations WHERE agent = ?1 AND NOT EXISTS (SELECT 1 FROM corpora WHERE agent = ?1)"
LEARNED = "INSERT INTO vocabulary (code, word) VALUES (?, ?) ON CONFLICT (code, word) DO NOTHING RETURNING id"
DOUBTED = "UPDATE vocabulary SET doubtful = 1 WHERE code = ? AND word IN (SELECT value FROM json_each(?))"
NOT_CUT_UP = (
    "SELECT id, word FROM vocabulary WHERE id > (SELECT ifnull(max(id), 0) FROM pieces_docsize) ORDER BY id LIMIT ?"
)
SWEPT_WORDS = 200
CUT_UP_AT_ONCE = 64


class Place(NamedTuple):
    """What of a row the index depends on: what is searched, and in which talk it stands."""

    fields: Fields
    talk: Sequence[str]


def place_of(row: Row) -> Place:
    """What of a row the index depends on."""
    if isinstance(row, Memory):
        return Place(fields_of(row), (row.agent, row.project, row.channel, talk_of(row), row.timestamp))
    return Place(fields_of(row), (row.agent,))


def put(connection: apsw.Connection, row: Row) -> None:
    """Index a row that is not indexed. It stands in its table already."""
    fields = fields_of(row)
    if not any(fields):
        return
    kind = kind_of(row)
    held = words_of(fields)
    long = {word: None for found in held for word in found if is_long(word)}
    sheet = Sheet(connection, kind)
    cell = sheet.cell(row.id)
    lengths = [len(found) for found in held]
    counted, body = min(sum(lengths), TERMS_MAX), min(lengths[2] + lengths[3], TERMS_MAX)
    sheet.put(row.id, cell._replace(terms=counted, body=body))
    grown = link(connection, sheet, row)
    sheet.save()
    code = next(connection.execute(COUNTED, (row.agent, kind.code, counted, grown)))[0]
    columns = [*([term(word) for word in found] for found in held), [word for word in long if term(word) != word]]
    connection.execute(
        "INSERT INTO words (rowid, speaker, date, text, extras, forms) VALUES (?, ?, ?, ?, ?, ?)",
        (Ref(kind, row.id).document, *(_coded(code, column) for column in columns)),
    )
    if long and connection.executemany(LEARNED, [(code, word) for word in long]).fetchall():
        _cut_up(connection)


def remove(connection: apsw.Connection, row: Row) -> None:
    """Take a row out of the index. Its words stay in the file until they were swept and merge steps have run."""
    fields = fields_of(row)
    if not any(fields):
        return
    kind = kind_of(row)
    connection.execute("DELETE FROM words WHERE rowid = ?", (Ref(kind, row.id).document,))
    sheet = Sheet(connection, kind)
    counted = sheet.cell(row.id).terms
    grown = unlink(connection, sheet, row)
    sheet.save()
    code, rows = next(connection.execute(DISCOUNTED, (counted, grown, row.agent, kind.code)))
    if not rows:
        connection.execute("DELETE FROM corpora WHERE code = ?", (code,))
        connection.execute(UNCALIBRATED, (row.agent,))
    long = dict.fromkeys(word for found in words_of(fields) for word in found if is_long(word))
    if long:
        connection.execute(DOUBTED, (code, _array(long)))


def sweep(connection: apsw.Connection) -> bool:
    """Forget some of the long words that no row holds any more; whether there were any to look at."""
    doubted = connection.execute(
        "SELECT id, code, word FROM vocabulary WHERE doubtful = 1 LIMIT ?", (SWEPT_WORDS,)
    ).fetchall()
    for id, code, word in doubted:
        if connection.execute("SELECT 1 FROM postings WHERE term = ? LIMIT 1", (f"{code}:{word}",)).fetchone():
            connection.execute("UPDATE vocabulary SET doubtful = 0 WHERE id = ?", (id,))
        else:
            connection.execute("DELETE FROM pieces WHERE rowid = ?", (id,))
            connection.execute("DELETE FROM vocabulary WHERE id = ?", (id,))
    return bool(doubted)


def _cut_up(connection: apsw.Connection) -> None:
    """Index the trigrams of new long words, once there are many: until then a query looks at them one by one."""
    new = connection.execute(NOT_CUT_UP, (CUT_UP_AT_ONCE,)).fetchall()
    if len(new) == CUT_UP_AT_ONCE:
        connection.executemany("INSERT INTO pieces (rowid, word) VALUES (?, ?)", new)


def _coded(code: int, found: Sequence[str]) -> str:
    before = f"{code}:"
    return before + f" {before}".join(found) if found else ""


def _array(found: dict[str, None]) -> str:
    return msgspec.json.encode(list(found)).decode()
