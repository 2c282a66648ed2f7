"""Wiping what SQLite leaves behind in the unused parts of its pages.

`secure_delete` zeroes a deleted cell and a freed page, but not what is left in a page when its cells are moved to
another. Source: SQLite Database File Format, sections 1.3.2 and 1.6.
"""

import os
from pathlib import Path

HEADER_BYTES = 100
KINDS = {2: 12, 5: 12, 10: 8, 13: 8}  # kind of b-tree page -> bytes of its header
PAGE_BYTES_OF_ONE = 65536


class Scrubber:
    """The database file, open beside SQLite for as long as SQLite has it open: closing it would drop SQLite's locks."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | getattr(os, "O_BINARY", 0))

    def scrub(self, first: int, count: int) -> int | None:
        """Wipe the unused parts of `count` pages from page `first` (from 1) on; the next page, None after the last.

        Only while nobody writes and the write-ahead log is empty: else a later checkpoint brings the old bytes back.
        """
        header = self._read(0, HEADER_BYTES)
        size = int.from_bytes(header[16:18], "big")
        size = PAGE_BYTES_OF_ONE if size == 1 else size
        usable = size - header[20]
        pages = os.fstat(self._descriptor).st_size // size
        last = min(first + count - 1, pages)
        for number in range(first, last + 1):
            page = self._read((number - 1) * size, size)
            for begin, end in unused(page, usable, HEADER_BYTES if number == 1 else 0):
                if any(page[begin:end]):
                    self._write((number - 1) * size + begin, bytes(end - begin))
        os.fsync(self._descriptor)
        return last + 1 if last < pages else None

    def close(self) -> None:
        """Let go of the file, once SQLite has."""
        os.close(self._descriptor)

    def _read(self, offset: int, size: int) -> bytes:
        os.lseek(self._descriptor, offset, os.SEEK_SET)
        return os.read(self._descriptor, size)

    def _write(self, offset: int, content: bytes) -> None:
        os.lseek(self._descriptor, offset, os.SEEK_SET)
        os.write(self._descriptor, content)


def unused(page: bytes, usable: int, start: int) -> list[tuple[int, int]]:
    """The (begin, end) of what a b-tree page does not use; [] for a page of another kind, or one that makes no sense.

    start: where its header begins. usable: bytes of the page without what is reserved at its end.
    """
    header_bytes = KINDS.get(page[start])
    if header_bytes is None:
        return []
    cells = int.from_bytes(page[start + 3 : start + 5], "big")
    content = int.from_bytes(page[start + 5 : start + 7], "big") or PAGE_BYTES_OF_ONE
    gap = (start + header_bytes + 2 * cells, content)
    block = int.from_bytes(page[start + 1 : start + 3], "big")
    found = [gap]
    while block:
        following, size = (int.from_bytes(page[block + at : block + at + 2], "big") for at in (0, 2))
        found.append((block + 4, block + size))
        if following and following <= block:
            return []
        block = following
    return found if all(start < begin <= end <= usable for begin, end in found) else []
