"""One effect on its row: the table, its words and its vector, written together."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import apsw
import msgspec

from memory_svc.domain.change import Effect
from memory_svc.domain.memory import Kind, Memory, Ref, Row, Vector
from memory_svc.domain.terms import embedded
from memory_svc.storage.sqlite import calibrations, derived, episodes, indexing, memories, recalls

ID_MAX = 1 << 59


class Table(NamedTuple):
    """Where rows of a kind live, and how they are read and written there."""

    name: str
    select: Callable[[apsw.Connection, str, Sequence[Any]], Sequence[Row]]
    put: Callable[[apsw.Connection, Any], int]


TABLES: Mapping[Kind, Table] = {
    Kind.MEMORY: Table("memories", memories.select, memories.put),
    Kind.EPISODE: Table("episodes", episodes.select, episodes.put),
    Kind.PROFILE: Table("profiles", episodes.select_profiles, episodes.put_profile),
    Kind.PRECISION: Table("precisions", calibrations.select_precisions, calibrations.put_precision),
}


def read_row(connection: apsw.Connection, ref: Ref) -> Row | None:
    """The row behind a ref, whoever owns it."""
    found = TABLES[ref.kind].select(connection, "id = ?", (ref.id,)) if 0 < ref.id < ID_MAX else ()
    return found[0] if found else None


def rows_of(connection: apsw.Connection, agent: str) -> list[Row]:
    """Every row of an agent, of every kind."""
    return [row for table in TABLES.values() for row in table.select(connection, "agent = ?", (agent,))]


def write_row(connection: apsw.Connection, effect: Effect, vector: Vector | None = None) -> int:
    """Write an effect's row, its words and its vector (None = it waits for one). The id of the row."""
    ref = Ref(effect.kind, effect.id)
    before = read_row(connection, ref) if effect.id else None
    if effect.row is None:
        _erase(connection, ref, before)
        return effect.id
    stays = before is not None and indexing.place_of(before) == indexing.place_of(effect.row)
    if before and not stays:
        indexing.remove(connection, before)
    row = msgspec.structs.replace(effect.row, id=TABLES[effect.kind].put(connection, effect.row))
    if not stays:
        indexing.put(connection, row)
    document = Ref(effect.kind, row.id).document
    if before and embedded(before) == embedded(row):
        derived.revise(connection, document, row.revision)
    elif embedded(row).text:
        derived.put(connection, document, row.revision, vector)
    return row.id


def _erase(connection: apsw.Connection, ref: Ref, row: Row | None) -> None:
    if row:
        indexing.remove(connection, row)
    if isinstance(row, Memory) and row.tags:
        memories.untag(connection, row.id)
    connection.execute(f"DELETE FROM {TABLES[ref.kind].name} WHERE id = ?", (ref.id,))
    derived.remove(connection, ref.document)
    if ref.kind is Kind.MEMORY:
        recalls.remove(connection, ref.id)
    connection.execute("INSERT INTO state (name, value) VALUES ('erasure', 'begin') ON CONFLICT (name) DO NOTHING")
    connection.execute(
        "INSERT INTO state (name, value) SELECT 'erased meanwhile', '' FROM state WHERE name = 'erasure'"
        " AND value <> 'begin' ON CONFLICT (name) DO NOTHING"
    )
