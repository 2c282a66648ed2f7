"""How much evidence may be shown, and what an answer tells of the limits that held."""

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from memory_svc.domain.recall.reconstruct import End, Limits, Packed

ROWS_MAX = 100
# A limit is an estimate of tokens and a cap is not: at worst six tenths of the tokens are estimated.
ESTIMATED_OF_CAP = 0.6
# Of an answer's tokens those of its frame: all but the items, the trace and the advisory.
FRAME_TOKENS, FULL_FRAME_TOKENS = 100, 320
REACHED = {"count": "count", "max_evidence": "max_evidence", "budget": "budget", "tokens": "cap"}


class Mode(msgspec.Struct, frozen=True):
    """What an answer may be: tokens if none are asked for, cl100k tokens at most, characters of one quote."""

    tokens: int
    cap: int
    quote_chars: int

    @property
    def tokens_max(self) -> int:
        """The most tokens, as estimated, that can be asked for."""
        return int(self.cap * ESTIMATED_OF_CAP)


LITE, PRO = Mode(1000, 3000, 400), Mode(3000, 5000, 800)


class Policy(msgspec.Struct, frozen=True):
    """Where a limit comes from, whether it was changed, and why."""

    source: Literal["caller", "server_default"]
    clamped: bool
    reason: str


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds that held, and which left something out. max_hops is 0: no relations are followed yet."""

    top_k: int
    max_hops: int = 0
    max_evidence: int
    reached: list[str] | UnsetType = UNSET


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller asks for; None and 0 tokens = as the mode has it. is_full: with where each quote comes from."""

    mode: Mode
    is_full: bool
    tokens: int
    chars: int | None
    count: int | None
    top_k: int
    rows: int

    @property
    def count_max(self) -> int:
        """Items at most."""
        return self.top_k if self.count is None else min(self.count, self.top_k)

    @property
    def limits(self) -> Limits:
        """How much the items may be."""
        usual = self.mode.tokens if self.chars is None else self.mode.tokens_max
        tokens = min(self.tokens or usual, self.mode.tokens_max)
        frame = FULL_FRAME_TOKENS if self.is_full else FRAME_TOKENS
        return Limits(self.count_max, self.rows, self.chars, max(tokens - frame, 0))


def count_policy(wanted: Wanted) -> Policy:
    """What became of the number of items that was asked for."""
    if wanted.count is None:
        return Policy("server_default", clamped=False, reason="count_omitted")
    is_lowered = wanted.count > wanted.top_k
    return Policy("caller", clamped=is_lowered, reason="lowered_to_top_k" if is_lowered else "count_requested")


def budget_policy(wanted: Wanted, found: Packed) -> Policy:
    """What became of the budget that was asked for."""
    source: Literal["caller", "server_default"] = "caller" if wanted.tokens or wanted.chars else "server_default"
    if found.is_raised:
        return Policy(source, clamped=True, reason="raised_to_one_excerpt")
    if wanted.tokens > wanted.mode.tokens_max:
        return Policy(source, clamped=True, reason="lowered_to_the_cap")
    if wanted.chars and found.end == "tokens":
        return Policy(source, clamped=True, reason="bounded_by_the_cap")
    return Policy(source, clamped=False, reason="budget_requested" if source == "caller" else "budget_omitted")


def chars_max(wanted: Wanted, found: Packed) -> int:
    """The characters of quotes that could be given."""
    return found.chars if wanted.chars is None or found.end == "tokens" else max(wanted.chars, found.chars)


def bounds(wanted: Wanted, found: Packed, candidates: int) -> Bounds:
    """The bounds that held. candidates: rows that were ranked."""
    reached = ["top_k"] if candidates == wanted.top_k else []
    reached += [REACHED[found.end]] if found.end else []
    return Bounds(top_k=wanted.top_k, max_evidence=wanted.rows, reached=reached or UNSET)


def shortfall(wanted: Wanted, found: Packed, *, is_silenced: bool) -> str | UnsetType:
    """Why there are fewer items than asked for, or none."""
    if is_silenced:
        return "nothing_clears"
    if wanted.count == 0:
        return "count_zero"
    if len(found.items) >= (wanted.count_max if wanted.count else 1):
        return UNSET
    ends: dict[End, str] = {"budget": "budget_exhausted", "tokens": "budget_exhausted", "max_evidence": "max_evidence"}
    return ends.get(found.end, "exhausted_candidates")
