"""Vectors as rows of their table: written with the row they belong to, or filled in later."""

from collections.abc import Sequence
from typing import Any

import apsw
import msgspec

from memory_svc.domain.blocks import Passage, Span
from memory_svc.domain.memory import Kind, Ref, Vector
from memory_svc.domain.terms import embedded
from memory_svc.storage.interface import RowVector, Waiting
from memory_svc.storage.sqlite import episodes, memories
from memory_svc.storage.sqlite.connection import Readers, Writer

NEXT_NUMBER = "(SELECT coalesce(max(number), 0) + 1 FROM vectors)"
NOTHING = "vector = NULL, spans = NULL, further = NULL, is_begun = 0"
# Left to itself the engine would look at every row of the fingerprint.
BEGUN = "FROM vectors INDEXED BY vectors_begun WHERE is_begun = 1 AND fingerprint = ?1"


def spans_of(connection: apsw.Connection, document: int) -> list[Span]:
    """Where the blocks of a row's content lie; [] where it has but one."""
    found = connection.execute("SELECT spans FROM vectors WHERE document = ?", (document,)).fetchone()
    return msgspec.json.decode(found[0], type=list[Span]) if found and found[0] else []


def put(connection: apsw.Connection, document: int, revision: int, vector: Vector | None) -> None:
    """Note a row's vector, or that the row waits for one."""
    connection.execute(
        "INSERT INTO vectors (document, number, revision, fingerprint, vector, spans, further, is_begun)"
        f" VALUES (?, {NEXT_NUMBER}, ?, ?, ?, ?, ?, ?) ON CONFLICT (document) DO UPDATE SET"
        " (number, revision, fingerprint, vector, spans, further, is_begun) = (excluded.number, excluded.revision,"
        " excluded.fingerprint, excluded.vector, excluded.spans, excluded.further, excluded.is_begun)",
        (document, revision, *(_columns(vector) if vector else ("", None, None, None, 0))),
    )


def revise(connection: apsw.Connection, document: int, revision: int) -> None:
    """Note that a row has moved on with the same text, so that its vector still holds."""
    connection.execute(
        f"UPDATE vectors SET number = {NEXT_NUMBER}, revision = ? WHERE document = ?", (revision, document)
    )


def remove(connection: apsw.Connection, document: int) -> None:
    """Note that a row is gone, so that residents let go of it."""
    connection.execute(
        f"UPDATE vectors SET number = {NEXT_NUMBER}, fingerprint = NULL, {NOTHING} WHERE document = ?", (document,)
    )


class Derived:
    """Vectors, as the back-fill sees them."""

    def __init__(self, readers: Readers, writer: Writer) -> None:
        self._readers = readers
        self._writer = writer

    async def waiting(self, fingerprint: str, limit: int) -> list[Waiting]:
        """Rows without a vector of that fingerprint, oldest first, then one that lacks further blocks of it."""
        return await self._readers.run(lambda connection: _waiting(connection, fingerprint, limit))

    async def waiting_count(self, fingerprint: str) -> int:
        """How many rows lack a vector of that fingerprint or a block; "" counts those that have none at all."""
        condition = "fingerprint < ?1 OR fingerprint > ?1" if fingerprint else "fingerprint = ?1"
        statement = f"SELECT count(*) + (SELECT count(*) {BEGUN}) FROM vectors WHERE {condition}"
        return await self._readers.run(lambda connection: int(next(connection.execute(statement, (fingerprint,)))[0]))

    async def spans(self, ref: Ref) -> list[Span] | None:
        """Where the blocks of a row's content lie that have vectors, of whatever model, [] where one stands for all.

        None = the row waits for a vector or for further blocks.
        """
        statement = "SELECT 1 FROM vectors WHERE document = ? AND vector IS NOT NULL AND is_begun = 0"
        return await self._readers.run(
            lambda connection: (
                spans_of(connection, ref.document)
                if connection.execute(statement, (ref.document,)).fetchone()
                else None
            )
        )

    async def forget_vectors(self) -> int:
        """Let every row wait for a new vector; how many there are."""
        return await self._writer.run(_forget_vectors)

    async def set_vectors(self, vectors: Sequence[RowVector]) -> int:
        """Keep these where the row is still at that revision; how many were kept."""
        return await self._writer.run(lambda connection: sum(_set(connection, each) for each in vectors))


def _columns(vector: Vector) -> tuple[str, bytes | None, str | None, bytes | None, int]:
    """fingerprint, vector, spans, further and is_begun of a row."""
    spans = msgspec.json.encode(vector.spans).decode() if vector.spans else None
    further = b"".join(block.values for block in vector.blocks[1:]) or None
    return vector.fingerprint, vector.values or None, spans, further, int(vector.read is not None)


def _waiting(connection: apsw.Connection, fingerprint: str, limit: int) -> list[Waiting]:
    found: list[Any] = connection.execute(
        "SELECT document, revision, 0 FROM vectors WHERE fingerprint < ?1 UNION ALL"
        " SELECT document, revision, 0 FROM vectors WHERE fingerprint > ?1 UNION ALL"
        f" SELECT * FROM (SELECT document, revision, 1 {BEGUN} ORDER BY document LIMIT 1)"
        " LIMIT ?2",
        (fingerprint, limit),
    ).fetchall()
    passages: dict[Ref, Passage] = {}
    for kind, select in ((Kind.MEMORY, memories.select), (Kind.EPISODE, episodes.select)):
        ids = [ref.id for document, *_ in found if (ref := Ref.of_document(document)).kind is kind]
        for row in select(connection, f"id IN ({', '.join('?' * len(ids))})", ids):
            passages[Ref(kind, row.id)] = embedded(row)
    return [
        Waiting(ref, revision, passages[ref], bool(has_first))
        for document, revision, has_first in found
        if (ref := Ref.of_document(document)) in passages
    ]


def _forget_vectors(connection: apsw.Connection) -> int:
    """Each row gets a number of its own, so that residents follow."""
    first = next(connection.execute(f"SELECT {NEXT_NUMBER}"))[0]
    documents = [row[0] for row in connection.execute("SELECT document FROM vectors WHERE fingerprint IS NOT NULL")]
    connection.executemany(
        f"UPDATE vectors SET number = ?, fingerprint = '', {NOTHING} WHERE document = ?",
        [(first + at, document) for at, document in enumerate(documents)],
    )
    return len(documents)


def _set(connection: apsw.Connection, each: RowVector) -> int:
    connection.execute(
        f"UPDATE vectors SET number = {NEXT_NUMBER}, fingerprint = ?, vector = ?, spans = ?, further = ?, is_begun = ?"
        " WHERE document = ? AND revision = ? AND fingerprint IS NOT NULL",
        (*_columns(each.vector), each.ref.document, each.revision),
    )
    return connection.changes()
