"""Vectors of texts that came before, the least recently asked for dropped first; bounded in bytes."""

import hashlib
from collections import OrderedDict

import msgspec
import numpy as np

from embed_svc.models import Role
from embed_svc.pooling import Floats

# What an entry takes beside its vector's numbers, measured: key, array, struct, place in the order.
ENTRY_BYTES = 400


class Known(msgspec.Struct, frozen=True):
    """What is known of a text: its vector, the tokens of it, those read, and the characters read."""

    vector: Floats
    count: int
    used: int
    end: int


class Cache:
    """Exact texts by fingerprint and role. Of one event loop; without bytes or a fingerprint it keeps nothing."""

    def __init__(self, bytes_max: int, fingerprint: str | None) -> None:
        self._bytes_max = bytes_max if fingerprint else 0
        self._fingerprint = fingerprint or ""
        self._entries: OrderedDict[bytes, Known] = OrderedDict()
        self.size_bytes = 0

    def find(self, text: str, role: Role) -> Known | None:
        """Return what is known of exactly this text in this role."""
        if not self._entries:
            return None
        key = self._key(text, role)
        known = self._entries.get(key)
        if known is not None:
            self._entries.move_to_end(key)
        return known

    def keep(self, text: str, role: Role, known: Known) -> None:
        """Keep it, in a copy, and drop what was asked for longest ago where the bound asks for it."""
        size = known.vector.nbytes + ENTRY_BYTES
        if size > self._bytes_max:
            return
        key = self._key(text, role)
        if key not in self._entries:
            self.size_bytes += size
        self._entries[key] = msgspec.structs.replace(known, vector=np.array(known.vector))
        self._entries.move_to_end(key)
        while self.size_bytes > self._bytes_max:
            _, dropped = self._entries.popitem(last=False)
            self.size_bytes -= dropped.vector.nbytes + ENTRY_BYTES

    def _key(self, text: str, role: Role) -> bytes:
        return hashlib.blake2b(f"{self._fingerprint}\0{role}\0{text}".encode(), digest_size=20).digest()
