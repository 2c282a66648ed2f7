"""How evidence looks to a caller: rows as quotes in items, dense, or in full with where each comes from."""

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import UNSET, UnsetType

from memory_svc.domain.blocks import Span
from memory_svc.domain.memory import Episode, Memory, Ref, ref_of
from memory_svc.domain.recall.budget import tokens_of
from memory_svc.domain.recall.excerpt import Asked, quoted
from memory_svc.domain.recall.reconstruct import Role, Size, Step, day_of, tells_day
from memory_svc.domain.terms import name_of
from memory_svc.services.memory.shown import whole


class Played(msgspec.Struct, frozen=True):
    """The role that another row has to a claim: it supersedes the claim."""

    ref: str
    role: str


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Where a quote of an item comes from: its row, from when it is, why it is in the item, and who supersedes it."""

    ref: str
    as_of: str
    why: str
    hops: int = 0
    roles: list[Played] | UnsetType = UNSET


class Excerpt(msgspec.Struct, frozen=True, kw_only=True):
    """Another row of an item: what stands before or after its head in the same talk, or is superseded by it."""

    ref: str
    content: str
    content_len: int | UnsetType = UNSET
    speaker: str | UnsetType = UNSET
    as_of: str | UnsetType = UNSET
    ranges: list[list[int]] | UnsetType = UNSET


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """A quote and what belongs to it. content_len: of a text that is quoted in part. ranges: which part of it.

    speaker, as_of (the day): told where the quote itself does not tell them; of an excerpt where it is another day.
    claims: every row of the item, or where the answer is dense, those that are superseded.
    """

    content: str
    head_ref: str
    content_len: int | UnsetType = UNSET
    speaker: str | UnsetType = UNSET
    as_of: str | UnsetType = UNSET
    claims: list[Claim] | UnsetType = UNSET
    ranges: list[list[int]] | UnsetType = UNSET
    excerpts: list[Excerpt] | UnsetType = UNSET


class Line(msgspec.Struct, frozen=True):
    """A row as it is quoted: which part of its text, when and by whom it was said."""

    text: str
    start: int
    end: int
    moment: str
    day: str
    is_day_told: bool
    speaker: str

    @property
    def quote(self) -> str:
        """The part that is quoted."""
        return self.text[self.start : self.end]


class Quoting(msgspec.Struct, frozen=True):
    """How rows are quoted: at most so many characters, days in that zone, in full with where each quote comes from.

    asked: the words by which the part of a long text is chosen, None = its beginning; near: the part of those that were
    found by its meaning, which is quoted where it has none of the words.
    """

    chars: int
    zone: dt.tzinfo
    is_full: bool
    asked: Asked | None = None
    near: Mapping[Ref, Span] = {}

    def line(self, row: Memory | Episode) -> Line:
        """A row as it is quoted."""
        shown = whole(row)
        start, end = quoted(shown.content, self.chars, self.asked, self.near.get(ref_of(row)))
        moment = row.timestamp if isinstance(row, Memory) else row.start_time or row.created_at
        quote, day = shown.content[start:end], day_of(moment, self.zone)
        speaker = name_of(row.source) if isinstance(row, Memory) else ""
        return Line(
            text=shown.content,
            start=start,
            end=end,
            moment=moment,
            day=day.isoformat(),
            is_day_told=tells_day(quote, day),
            speaker="" if speaker in quote else speaker,
        )


class Evidence:
    """The rows of one answer, each quoted when it is first asked for."""

    def __init__(self, rows: Mapping[Ref, Memory | Episode], roles: Iterable[Role], quoting: Quoting) -> None:
        self._rows = rows
        self._quoting = quoting
        self._roles: dict[Ref, list[Played]] = {}
        self._lines: dict[Ref, Line] = {}
        for role in roles:
            self._roles.setdefault(role.of, []).append(Played(str(role.ref), role.role))

    def size(self, steps: Sequence[Step]) -> Size:
        """What the item of these steps costs."""
        lines = [self._line(step.ref) for step in steps]
        encoded = msgspec.json.encode(self.item(steps))
        return Size(sum(line.end - line.start for line in lines), tokens_of(encoded.decode()))

    def item(self, steps: Sequence[Step]) -> Item:
        """The item of these steps, its head first, the others in the order of time."""
        head, *others = steps
        line = self._line(head.ref)
        others.sort(key=lambda step: (self._line(step.ref).moment, step.ref))
        told = [step for step in (head, *others) if self._quoting.is_full or step.ref in self._roles]
        return Item(
            content=line.quote,
            head_ref=str(head.ref),
            content_len=len(line.text) if line.quote != line.text else UNSET,
            speaker=line.speaker or UNSET,
            as_of=UNSET if self._quoting.is_full or line.is_day_told else line.day,
            claims=[self._claim(step) for step in told] or UNSET,
            ranges=[[line.start, line.end]] if self._quoting.is_full else UNSET,
            excerpts=[self._excerpt(step.ref, line.day) for step in others] or UNSET,
        )

    def _excerpt(self, ref: Ref, day: str) -> Excerpt:
        line = self._line(ref)
        is_told = self._quoting.is_full or line.is_day_told or line.day == day
        return Excerpt(
            ref=str(ref),
            content=line.quote,
            content_len=len(line.text) if line.quote != line.text else UNSET,
            speaker=line.speaker or UNSET,
            as_of=UNSET if is_told else line.day,
            ranges=[[line.start, line.end]] if self._quoting.is_full else UNSET,
        )

    def _claim(self, step: Step) -> Claim:
        return Claim(
            ref=str(step.ref),
            as_of=self._line(step.ref).moment,
            why=step.why,
            roles=self._roles.get(step.ref, UNSET),
        )

    def _line(self, ref: Ref) -> Line:
        if ref not in self._lines:
            self._lines[ref] = self._quoting.line(self._rows[ref])
        return self._lines[ref]
