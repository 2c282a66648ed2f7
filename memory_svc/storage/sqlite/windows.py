"""Windows: which rows stand before and after a memory in its talk, and how many terms each holds.

A window is a line of talk between its neighbours: the nearest in time in the same agent, project, channel and talk,
at most an hour away. Kept as cells of sixteen bytes, many to a row, since a query looks at thousands of them.
"""

import datetime as dt
import struct
from typing import NamedTuple

import apsw
import numpy as np
from numpy.typing import NDArray

from memory_svc.domain.memory import Kind, Memory, Row
from memory_svc.domain.terms import talk_of
from memory_svc.storage.sqlite import bm25
from memory_svc.storage.sqlite.connection import numbers

Integers = NDArray[np.int64]
CELLS = 240  # to a page, so that one fits into a page of the file
FORM = struct.Struct("<iiHHI")
CELL = np.dtype([("before", "<i4"), ("after", "<i4"), ("terms", "<u2"), ("body", "<u2"), ("window", "<u4")])
TERMS_MAX = 0xFFFF
AWAY_MAX = 0x7FFF_FFFF
APART_MAX = dt.timedelta(hours=1)
EMPTY = bytes(CELLS * FORM.size)
PAGES = (
    "SELECT windows.page >> 4, cells FROM json_each(?) AS asked CROSS JOIN windows"
    " ON windows.page = asked.value << 4 | ?"
)
KEPT = "INSERT INTO windows (page, cells) VALUES (?, ?) ON CONFLICT (page) DO UPDATE SET cells = excluded.cells"
RANGE = "SELECT page >> 4, cells FROM windows WHERE page BETWEEN ? AND ? AND page & 15 = ?"
SPREAD_MAX = 3
BESIDE = "agent = ? AND project = ? AND channel = ? AND talk = ?"
BEFORE = (
    f"SELECT id, timestamp FROM memories WHERE {BESIDE} AND (timestamp, id) < (?, ?)"
    " ORDER BY timestamp DESC, id DESC LIMIT 1"
)
AFTER = f"SELECT id, timestamp FROM memories WHERE {BESIDE} AND (timestamp, id) > (?, ?) ORDER BY timestamp, id LIMIT 1"


class Cell(NamedTuple):
    """before, after: how far away the neighbours' ids are, 0 = none. terms: in all fields. body: in text and extras.

    window: the bodies of the memory and its neighbours.
    """

    before: int = 0
    after: int = 0
    terms: int = 0
    body: int = 0
    window: int = 0


class Place(NamedTuple):
    """Where a memory stands in its talk."""

    id: int
    timestamp: str


class Sheet:
    """The cells that one change of a row looks at, read when asked for and written back by `save`."""

    def __init__(self, connection: apsw.Connection, kind: Kind) -> None:
        self._connection = connection
        self._kind = kind
        self._pages: dict[int, bytearray] = {}
        self._cells: dict[int, Cell] = {}
        self._changed: set[int] = set()

    def cell(self, id: int) -> Cell:
        """The cell of a row, an empty one where it has none."""
        if id not in self._cells:
            self._cells[id] = Cell(*FORM.unpack_from(self._page(id), id % CELLS * FORM.size))
        return self._cells[id]

    def put(self, id: int, cell: Cell) -> None:
        """Change a cell."""
        self._cells[id] = cell
        self._changed.add(id)

    def save(self) -> None:
        """Write what was changed; a page of empty cells is none."""
        for id in self._changed:
            FORM.pack_into(self._page(id), id % CELLS * FORM.size, *self._cells[id])
        for number in {id // CELLS for id in self._changed}:
            key, content = page_key(number, self._kind), bytes(self._pages[number])
            if content != EMPTY:
                self._connection.execute(KEPT, (key, content))
            else:
                self._connection.execute("DELETE FROM windows WHERE page = ?", (key,))
        self._changed.clear()

    def _page(self, id: int) -> bytearray:
        number = id // CELLS
        if number not in self._pages:
            found = self._connection.execute(
                "SELECT cells FROM windows WHERE page = ?", (page_key(number, self._kind),)
            ).fetchone()
            self._pages[number] = bytearray(found[0]) if found else bytearray(CELLS * FORM.size)
        return self._pages[number]


def page_key(number: int, kind: Kind) -> int:
    """The row of a page of cells."""
    return number << 4 | kind.code


def link(connection: apsw.Connection, sheet: Sheet, row: Row) -> int:
    """Put a row between its neighbours; by how many terms all windows together have grown."""
    here = Place(row.id, row.timestamp if isinstance(row, Memory) else "")
    before, after = _around(connection, row)
    _join(sheet, before, here)
    _join(sheet, here, after)
    return _measure(sheet, before, here, after)


def unlink(connection: apsw.Connection, sheet: Sheet, row: Row) -> int:
    """Take a row and its cell out from between its neighbours; by how many terms all windows have grown."""
    gone = sheet.cell(row.id).window
    sheet.put(row.id, Cell())
    before, after = _around(connection, row)
    _join(sheet, before, after)
    return _measure(sheet, before, after) - gone


class Cells:
    """The cells of many rows, read by the page and each page once."""

    def __init__(self, connection: apsw.Connection, kind: Kind) -> None:
        self._connection = connection
        self._kind = kind
        self._read: dict[int, bytes] = {}
        self._pages = np.zeros(0, np.int64)
        self._cells = np.zeros(0, CELL)

    def of(self, ids: Integers) -> NDArray[np.void]:
        """The cells of these rows, given in ascending order."""
        pages, slots = np.divmod(ids, CELLS)
        missing = [page for page in bm25.distinct(pages).tolist() if page not in self._read]
        if missing:
            self._fetch(missing)
        return np.asarray(self._cells[bm25.places_in(self._pages, pages) * CELLS + slots])

    def _fetch(self, pages: list[int]) -> None:
        """Read these too: one by one, or all between the first and the last where most of those are asked for."""
        code = self._kind.code
        if pages[-1] - pages[0] < len(pages) * SPREAD_MAX:
            found = self._connection.execute(
                RANGE, (page_key(pages[0], self._kind), page_key(pages[-1], self._kind), code)
            )
        else:
            found = self._connection.execute(PAGES, (numbers(pages), code))
        self._read.update(dict.fromkeys(pages, EMPTY))
        self._read.update(found)
        ordered = sorted(self._read)
        self._pages = np.array(ordered, np.int64)
        self._cells = np.frombuffer(b"".join(map(self._read.__getitem__, ordered)), CELL)


def _around(connection: apsw.Connection, row: Row) -> tuple[Place | None, Place | None]:
    """The nearest rows in time in a memory's talk, however far away; what is no line of talk stands alone."""
    talk = talk_of(row) if isinstance(row, Memory) else ""
    if not isinstance(row, Memory) or not talk:
        return None, None
    here = (row.agent, row.project, row.channel, talk, row.timestamp, row.id)
    found = (connection.execute(statement, here).fetchone() for statement in (BEFORE, AFTER))
    before, after = (Place(*each) if each else None for each in found)
    return before, after


def _join(sheet: Sheet, before: Place | None, after: Place | None) -> None:
    """Make two rows that follow one another neighbours, or leave both without where they are too far apart."""
    away = after.id - before.id if before and after and _are_near(before, after) else 0
    if before:
        sheet.put(before.id, sheet.cell(before.id)._replace(after=away))
    if after:
        sheet.put(after.id, sheet.cell(after.id)._replace(before=-away))


def _are_near(before: Place, after: Place) -> bool:
    try:
        apart = dt.datetime.fromisoformat(after.timestamp) - dt.datetime.fromisoformat(before.timestamp)
    except (ValueError, TypeError):
        return False
    return apart <= APART_MAX and abs(after.id - before.id) <= AWAY_MAX


def _measure(sheet: Sheet, *places: Place | None) -> int:
    """Count the terms of these windows anew; by how many they have grown."""
    grown = 0
    for id in [place.id for place in places if place]:
        cell = sheet.cell(id)
        beside = [sheet.cell(id + away).body for away in (cell.before, cell.after) if away]
        window = cell.body + sum(beside)
        grown += window - cell.window
        sheet.put(id, cell._replace(window=window))
    return grown
