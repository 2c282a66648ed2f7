"""Reconstruct: evidence for an answer within a budget of tokens, quoted and put together without a language model."""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Meta, UnsetType

from memory_svc.domain.access.principal import Permission
from memory_svc.domain.blocks import Span
from memory_svc.domain.memory import Episode, Memory, Ref, ref_of
from memory_svc.domain.recall import time_cue
from memory_svc.domain.recall.budget import tokens_of
from memory_svc.domain.recall.excerpt import Asked
from memory_svc.domain.recall.gate import Verdict
from memory_svc.domain.recall.reconstruct import Packed, current_first, declared_roles, packed, steps
from memory_svc.domain.recall.time_cue import ReadCue, TimeCue
from memory_svc.embedding import Advisory
from memory_svc.errors import Invalid
from memory_svc.services.memory import rows
from memory_svc.services.memory.bounds import (
    LITE,
    PRO,
    ROWS_MAX,
    Bounds,
    Policy,
    Wanted,
    bounds,
    budget_policy,
    chars_max,
    count_policy,
    shortfall,
)
from memory_svc.services.memory.evidence import Evidence, Item, Quoting
from memory_svc.services.memory.ranking import Ranking, before_gap
from memory_svc.services.memory.recall import (
    NOT_ASKED,
    QUERY_CHARS_MAX,
    AsOf,
    Channels,
    Include,
    MetadataFilter,
    ProjectFilter,
    Recall,
    Searched,
    Silence,
    TagFilter,
    advisory,
    is_asked,
    newest,
    note,
    search,
    silence,
)
from memory_svc.services.memory.shown import shown_part
from memory_svc.services.memory.trace import Trace, traced
from memory_svc.services.operation import Effect, Request, Runtime, operation
from memory_svc.settings import Settings
from memory_svc.storage.interface import Candidates

UNJUDGED = Verdict("off")


class Reconstruct(Request, frozen=True, kw_only=True):
    """A query, whose memories may answer it, and how much may be shown."""

    agent_id: Annotated[str, Meta(max_length=1000, description="Whose memory to search.")]
    query: Annotated[str, Meta(description='What to answer, in any words; "" = the newest memories.')]
    mode: Annotated[
        Literal["lite", "pro"] | None,
        Meta(description="lite: about 1000 tokens, pro: 3000; left out = as pro, and where each quote comes from."),
    ] = None
    lite: Annotated[bool, Meta(description="Mode lite, as it was called before.")] = False
    max_tokens: Annotated[
        int, Meta(ge=0, description="Estimated tokens of the answer, lite up to 1800, else 3000; 0 = as the mode.")
    ] = 0
    budget: (
        Annotated[int, Meta(ge=1, description="Characters of all quotes, in place of the mode's tokens.")] | None
    ) = None
    count: Annotated[int, Meta(ge=0, description="Items at most; left out = what fits.")] | None = None
    top_k: Annotated[int, Meta(ge=1, le=ROWS_MAX, description="Rows to rank; left out = 100.")] | None = None
    max_evidence: Annotated[int, Meta(ge=1, le=ROWS_MAX, description="Rows to quote; left out = 100.")] | None = None
    max_hops: Annotated[int, Meta(ge=0, le=5, description="Not used yet: no relations are followed.")] | None = None
    deep: Annotated[
        bool, Meta(description="Admit weaker matches: answer with the best rows, even where none speaks to the query.")
    ] = False
    channel: Annotated[str, Meta(max_length=1000, description="Rows of it and shared ones.")] = ""
    project_id: ProjectFilter | UnsetType = UNSET
    source_id: Annotated[str, Meta(max_length=1000, description="Only sources whose id begins so.")] = ""
    time_cue: TimeCue | None = None
    as_of: AsOf = None
    tags: TagFilter = ()
    metadata: MetadataFilter = msgspec.field(default_factory=dict)
    include: Include = ()
    trace: Annotated[bool, Meta(description="Tell where each quote comes from and why it is there: `trace`.")] = False


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """How many rows were ranked, how many items they make, and how many of these are given."""

    policy: str = "ranked-rows-1"
    candidate_count: int
    cluster_count: int
    selected_count: int


class Reconstructed(msgspec.Struct, frozen=True, kw_only=True):
    """The items, best first; a larger budget takes none of them away.

    shortfall_reason: why there are fewer than asked for. cap: cl100k tokens at most; used_tokens: as estimated. Budgets
    are characters of quotes. bounds, policies and counts: without a mode; a policy also where it changed a limit.
    """

    items: list[Item]
    requested_count: int | UnsetType = UNSET
    effective_count: int
    returned_count: int
    count_policy: Policy | UnsetType = UNSET
    requested_budget: int | UnsetType = UNSET
    effective_budget: int | UnsetType = UNSET
    used_budget: int | UnsetType = UNSET
    budget_policy: Policy | UnsetType = UNSET
    bounds: Bounds | UnsetType = UNSET
    reconstruction: Selection | UnsetType = UNSET
    shortfall_reason: str | UnsetType = UNSET
    mode: Literal["lite", "pro"] | UnsetType = UNSET
    cap: int
    used_tokens: int
    status: Literal["no_query"] | UnsetType = UNSET
    gate: Silence | UnsetType = UNSET
    gate_fallback: bool | UnsetType = UNSET
    query_truncated: int | UnsetType = UNSET
    time_cue: ReadCue | UnsetType = UNSET
    as_of: str | UnsetType = UNSET
    channels: Channels
    advisory: Advisory | UnsetType = UNSET
    trace: Trace | UnsetType = UNSET


class Gathered(NamedTuple):
    """The items, what was packed of how many clusters made of how many candidates, and how those were ranked."""

    items: list[Item]
    found: Packed
    selection: Selection
    trace: Trace | UnsetType = UNSET

    @property
    def refs(self) -> list[Ref]:
        """The rows that are quoted, in the order of their items."""
        return [step.ref for item in self.found.items for step in item]


@operation(needs=Permission.READ, effect=Effect.READ)
async def reconstruct(runtime: Runtime, request: Reconstruct) -> Reconstructed:
    """Gather evidence for an answer within a budget of tokens: quotes with refs, neighbours together. Best FIRST."""
    wanted, recall = _wanted(request), _recall(request)
    times = time_cue.times(request.time_cue, request.as_of, runtime.clock(), runtime.call.zone)
    quoting = Quoting(wanted.mode.quote_chars, runtime.call.zone, wanted.is_full)

    def read(found: Candidates, ranking: Ranking, verdict: Verdict) -> Gathered:
        best = [] if verdict.silences else _ranked(found, ranking, runtime.settings, wanted.top_k)
        by_query = msgspec.structs.replace(quoting, asked=Asked(found.tells), near=_near(found, best, quoting.chars))
        gathered = _gathered(best, found.beside, wanted, by_query)
        if not request.trace:
            return gathered
        return gathered._replace(trace=traced(found, ranking, list(map(str, gathered.refs)), (), verdict))

    if is_asked(recall):
        searched = await search(runtime, recall, times, read)
        note(runtime, recall, searched.read.refs, is_fallback=searched.is_fallback)
    else:
        best = (await newest(runtime, recall, times))[: wanted.top_k]
        searched = Searched(_gathered(best, lambda _: {}, wanted, quoting), UNJUDGED, False, NOT_ASKED)
    gathered, channels = searched.read, searched.channels
    answer = Reconstructed(
        **_counted(request, wanted, gathered, searched.verdict),
        status="no_query" if channels is NOT_ASKED else UNSET,
        gate=silence(searched.verdict),
        gate_fallback=searched.is_fallback or UNSET,
        query_truncated=QUERY_CHARS_MAX if len(request.query) > QUERY_CHARS_MAX else UNSET,
        time_cue=times.cue,
        as_of=times.as_of,
        channels=channels,
    )
    return msgspec.structs.replace(
        answer,
        used_tokens=tokens_of(msgspec.json.encode(answer).decode()),
        advisory=advisory(runtime, channels),
        trace=gathered.trace,
    )


OPERATIONS = (reconstruct,)


def _wanted(request: Reconstruct) -> Wanted:
    """Raises Invalid where `lite` and another mode are asked for."""
    if request.lite and request.mode == "pro":
        raise Invalid('lite, mode: contradict each other; leave lite out, or say mode "lite"')
    is_lite = request.lite or request.mode == "lite"
    return Wanted(
        mode=LITE if is_lite else PRO,
        is_full=request.trace or not (is_lite or request.mode),
        tokens=request.max_tokens,
        chars=request.budget,
        count=request.count,
        top_k=request.top_k or ROWS_MAX,
        rows=request.max_evidence or ROWS_MAX,
    )


def _recall(request: Reconstruct) -> Recall:
    """The recall whose ranked rows are the evidence."""
    shared = [name for name in Recall.__struct_fields__ if name in Reconstruct.__struct_fields__]
    return Recall(**{name: getattr(request, name) for name in shared}, limit=request.top_k or ROWS_MAX)


def _ranked(found: Candidates, ranking: Ranking, settings: Settings, top_k: int) -> list[Memory | Episode]:
    """The best rows, best first, down to the gap at which an answer ends, where that is set."""
    best = [row for row, _ in islice(rows.read(found, ranking, top_k, is_traced=False, is_complete=False), top_k)]
    return best[: before_gap(found, settings, ranking, [ref_of(row) for row in best])]


def _near(found: Candidates, best: Sequence[Memory | Episode], chars: int) -> dict[Ref, Span]:
    """Of those of these rows that are longer than a quote and were found by the meaning of a part, where it lies."""
    long = [ref_of(row) for row in best if len(row.content if isinstance(row, Memory) else row.summary) > chars]
    return {ref: shown_part(ref, span) for ref, span in found.spans(long).items()} if long else {}


def _gathered(
    ranked: Sequence[Memory | Episode],
    beside: Callable[[Sequence[Ref]], Mapping[Ref, Sequence[Ref]]],
    wanted: Wanted,
    quoting: Quoting,
) -> Gathered:
    """These rows, best first, as items within what is wanted."""
    by_ref = {ref_of(row): row for row in ranked}
    roles = declared_roles(by_ref)
    sequence = steps(current_first(list(by_ref), roles), beside(list(by_ref)), roles)
    evidence = Evidence(by_ref, roles, quoting)
    found = packed(sequence, wanted.limits, evidence.size)
    clusters = len({step.head for step in sequence})
    selection = Selection(candidate_count=len(by_ref), cluster_count=clusters, selected_count=len(found.items))
    return Gathered([evidence.item(each) for each in found.items], found, selection)


def _counted(request: Reconstruct, wanted: Wanted, gathered: Gathered, verdict: Verdict) -> dict[str, Any]:
    """The items with the limits that held, as much of these as is told."""
    found, budget = gathered.found, budget_policy(wanted, gathered.found)
    told: dict[str, Any] = {
        "items": gathered.items,
        "effective_count": wanted.count_max,
        "returned_count": len(gathered.items),
        "budget_policy": budget if budget.clamped else UNSET,
        "shortfall_reason": shortfall(wanted, found, is_silenced=verdict.silences),
        "mode": "lite" if wanted.mode is LITE else request.mode or UNSET,
        "cap": wanted.mode.cap,
        "used_tokens": 0,
        "bounds": bounds(wanted, found, gathered.selection.candidate_count) if request.max_hops else UNSET,
    }
    if not wanted.is_full:
        return told
    return told | {
        "requested_count": UNSET if request.count is None else request.count,
        "count_policy": count_policy(wanted),
        "requested_budget": request.budget or UNSET,
        "effective_budget": chars_max(wanted, found),
        "used_budget": found.chars,
        "budget_policy": budget,
        "bounds": bounds(wanted, found, gathered.selection.candidate_count),
        "reconstruction": gathered.selection,
    }
