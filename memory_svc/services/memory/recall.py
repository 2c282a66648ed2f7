"""Recall: the memories and episodes that speak to a query, or nothing where none does."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from memory_svc.domain.access.principal import Permission
from memory_svc.domain.labels import asked_tags, asked_values
from memory_svc.domain.memory import Episode, Kind, Memory, Ref, Vector, utc
from memory_svc.domain.recall import gate, time_cue
from memory_svc.domain.recall.exclude import Excluded
from memory_svc.domain.recall.gate import Verdict
from memory_svc.domain.recall.time_cue import ReadCue, TimeCue, Times
from memory_svc.domain.recall.when import spans
from memory_svc.domain.scope import Scope
from memory_svc.domain.terms import identifiers, names, phrases, pieces
from memory_svc.domain.text import is_asking, query_words
from memory_svc.embedding import Advisory
from memory_svc.services.memory import rows
from memory_svc.services.memory.fitting import FULL_CONTENT_BUDGET_CHARS, Answered, Budget, followed_by, within
from memory_svc.services.memory.profiles import beside
from memory_svc.services.memory.ranking import Ranking, before_gap, ranked
from memory_svc.services.memory.shown import Shown, complete, whole
from memory_svc.services.memory.trace import BEHIND_GAP, OVER_BUDGET, Trace, explained, left_out, traced
from memory_svc.services.operation import Effect, Request, Runtime, operation
from memory_svc.settings import Settings
from memory_svc.storage.interface import Candidates, Query

ARM_DEPTH_MIN = 100
QUERY_CHARS_MAX = 20_000
SCORE_DIGITS = 4
T = TypeVar("T")
KINDS: Mapping[str, Kind] = {"memories": Kind.MEMORY, "episodes": Kind.EPISODE}

ProjectFilter = Annotated[
    str, Meta(max_length=1000, description='"X" = X and what is shared, "" = shared only; left out = all projects.')
]

MaxTokens = Annotated[
    int, Meta(ge=0, description="Estimated tokens of the memories at most: cut, then the worst left out; 0 = any.")
]
TagFilter = Annotated[tuple[str, ...], Meta(description="Only memories that carry all of these tags.")]
MetadataFilter = Annotated[dict[str, Any], Meta(description="Only memories whose metadata holds these values.")]
Include = Annotated[
    tuple[Literal["memories", "episodes"], ...], Meta(description="Kinds of rows to answer with; left out = all.")
]
AsOf = Annotated[str | None, Meta(description="Only what was stored by then: ISO-8601, a date to its end.")]


class Recall(Request, frozen=True, kw_only=True):
    """A query, and whose memories may answer it."""

    agent_id: Annotated[str, Meta(max_length=1000, description="Whose memory to search.")]
    query: Annotated[str, Meta(description='What to look for, in any words; "" = the newest memories.')]
    limit: Annotated[int, Meta(ge=0, le=100, description="Rows at most.")] = 10
    deep: Annotated[
        bool, Meta(description="Admit weaker matches: answer with the best rows, even where none speaks to the query.")
    ] = False
    channel: Annotated[str, Meta(max_length=1000, description="Rows of it and shared ones.")] = ""
    exclude_contents: Annotated[
        list[str], Meta(max_length=1000, description="Contents you already have; not given again.")
    ] = msgspec.field(default_factory=list)
    project_id: ProjectFilter | UnsetType = UNSET
    source_id: Annotated[str, Meta(max_length=1000, description="Only sources whose id begins so.")] = ""
    full_content: Annotated[bool, Meta(description="Give contents whole instead of their beginning.")] = False
    max_tokens: MaxTokens = 0
    time_cue: TimeCue | None = None
    as_of: AsOf = None
    tags: TagFilter = ()
    metadata: MetadataFilter = msgspec.field(default_factory=dict)
    include: Include = ()
    trace: Annotated[bool, Meta(description="Tell why each row is where it is: `match_reason`, `trace`.")] = False
    trace_refs: Annotated[
        list[str], Meta(max_length=20, description="Refs to tell about too, though they be left out.")
    ] = msgspec.field(default_factory=list)


class Channels(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which arms ran: `ran` (and in what, where not in all rows), or `skipped` or `degraded` and why.

    waiting: rows that have no vector yet.
    """

    vectors: str
    words: str
    episodes: str
    waiting: int = 0


class Silence(msgspec.Struct, frozen=True, kw_only=True):
    """Why nothing is answered: the best row's evidence (cosine + coverage / 2) is below the threshold. See `deep`."""

    status: Literal["nothing_clears"] = "nothing_clears"
    best: float
    threshold: float


class Recalled(msgspec.Struct, frozen=True, kw_only=True):
    """The rows, best last. `status` no_query = nothing was asked, so these are the newest memories.

    gate: nothing that was found speaks to the query. gate_fallback: where rows go by confidence, no row's evidence
    reaches the gate's threshold, yet they hold what was asked for to the letter, or wait for vectors. query_truncated:
    only so many characters of the query were looked for. rows_left_out: how many, for max_tokens. time_cue, as_of: how
    they were read, in UTC.
    """

    messages: list[Shown]
    status: Literal["no_query"] | UnsetType = UNSET
    gate: Silence | UnsetType = UNSET
    gate_fallback: bool | UnsetType = UNSET
    query_truncated: int | UnsetType = UNSET
    full_content_budget_chars: int | UnsetType = UNSET
    rows_left_out: int | UnsetType = UNSET
    time_cue: ReadCue | UnsetType = UNSET
    as_of: str | UnsetType = UNSET
    channels: Channels
    advisory: Advisory | UnsetType = UNSET
    trace: Trace | UnsetType = UNSET


NOT_ASKED = Channels(vectors="skipped: no query", words="skipped: no query", episodes="skipped: no query")


@operation(needs=Permission.READ, effect=Effect.READ)
async def recall(runtime: Runtime, request: Recall) -> Recalled:
    """Find what is remembered about a query, by meaning and by word. The LAST message is the best match."""
    return await recalled(runtime, request)


OPERATIONS = (recall,)


class Searched(NamedTuple, Generic[T]):
    """What was read of the candidates, what the gate decided of them, and which arms ran.

    is_fallback: rows go by confidence, and the gate let them through though they have less evidence than it asks for.
    """

    read: T
    verdict: Verdict
    is_fallback: bool
    channels: Channels


async def recalled(runtime: Runtime, request: Recall) -> Recalled:
    """What a recall answers."""
    times = time_cue.times(request.time_cue, request.as_of, runtime.clock(), runtime.call.zone)
    scope = scope_of(runtime, request, times)
    budget = Budget(request.full_content, runtime.settings.preview_chars, request.max_tokens)
    if not is_asked(request):
        show = complete if request.full_content else whole
        shown = rows.kept(
            ((row, show(row)) for row in await newest(runtime, request, times)),
            request.limit,
            request.exclude_contents,
        )
        answered = await _with_profiles(runtime, (request, scope), within(shown, budget))
        return _answer(runtime, (request, times), answered, NOT_ASKED)

    def best_first(found: Candidates, ranking: Ranking, verdict: Verdict) -> tuple[Answered, Trace | None]:
        kept = [] if verdict.silences else _kept(found, ranking, request)
        end = before_gap(found, runtime.settings, ranking, rows.refs(kept))
        answered = within(kept[:end], budget, found.tells, lambda cut: rows.parts(found, cut))
        if not request.trace:
            return answered, None
        why = traced(found, ranking, [str(row.ref) for row in kept], request.trace_refs, verdict)
        why = left_out(why, {row.ref for row in kept[end:]}, BEHIND_GAP)
        return answered, left_out(why, {row.ref for row in answered.left_out}, OVER_BUDGET)

    searched = await search(runtime, request, times, best_first)
    answered, why = searched.read
    note(runtime, request, rows.refs(answered.rows), is_fallback=searched.is_fallback)
    answered = await _with_profiles(runtime, (request, scope), answered)
    answer = _answer(runtime, (request, times), answered, searched.channels)
    gate_fallback = searched.is_fallback or UNSET
    answer = msgspec.structs.replace(answer, gate=silence(searched.verdict), gate_fallback=gate_fallback)
    if why is None:
        return answer
    return msgspec.structs.replace(answer, trace=await explained(runtime.storage, scope, why))


def is_asked(request: Recall) -> bool:
    """Whether the query holds a word."""
    return is_asking(request.query[:QUERY_CHARS_MAX])


async def newest(runtime: Runtime, request: Recall, times: Times) -> Sequence[Memory | Episode]:
    """The newest memories of the scope, newest first: what is answered where nothing is asked; else episodes."""
    scope = scope_of(runtime, request, times)
    if scope.shows(Kind.MEMORY):
        return await runtime.storage.memories.page(scope, _depth(request))
    return await runtime.storage.episodes.page(scope, _depth(request)) if scope.shows(Kind.EPISODE) else []


async def search(
    runtime: Runtime, request: Recall, times: Times, read: Callable[[Candidates, Ranking, Verdict], T]
) -> Searched[T]:
    """What `read` makes of the candidates in their order and of what the gate decides, inside their snapshot."""
    scope, depth = scope_of(runtime, request, times), _depth(request)
    text = request.query[:QUERY_CHARS_MAX]
    words = tuple(query_words(text))
    with runtime.stage("embed") as embedding:
        vector = await embedding.vector(text, "query")
    named, named_alone = names(text)
    query = Query(
        words,
        vector,
        depth,
        pieces=tuple(pieces(text)),
        phrases=tuple(phrases(text)),
        times=times.lifted + _times(runtime, text),
        names=tuple(named),
        names_alone=named_alone,
        newest_rows=runtime.settings.vector_newest_rows,
    )
    now = runtime.clock()
    channels = _channels(runtime, scope, vector)

    def judged(found: Candidates) -> Searched[T]:
        with searching.stage("fuse"):
            verdict = _verdict(found, runtime.settings, request, query)
            ranking = ranked(found, runtime.settings, now, text, deep=request.deep)
            is_fallback = runtime.settings.confidence and _falls_short(found, verdict)
            return Searched(read(found, ranking, verdict), verdict, is_fallback, channels)

    with runtime.stage("candidates") as searching:
        searched = await runtime.storage.search.candidates(scope, query, judged)
    runtime.metrics.judged(searched.verdict.outcome)
    return searched


def note(runtime: Runtime, request: Recall, refs: Iterable[Ref], *, is_fallback: bool) -> None:
    """Note the memories that were found as recalled. What was let through in spite of the gate earns nothing by it."""
    if runtime.settings.recall_counts and not request.deep and not is_fallback:
        ids = [ref.id for ref in refs if ref.kind is Kind.MEMORY]
        runtime.storage.recalls.note(ids, utc(runtime.clock()))


def silence(verdict: Verdict) -> Silence | UnsetType:
    """What an answer tells of a gate that silences it."""
    if not verdict.silences:
        return UNSET
    return Silence(best=round(verdict.best, SCORE_DIGITS), threshold=verdict.threshold)


def advisory(runtime: Runtime, channels: Channels) -> Advisory | UnsetType:
    """What the caller is told where the query was answered without its vector; counts that it was."""
    if channels is NOT_ASKED or channels.vectors.startswith("ran"):
        return UNSET
    runtime.metrics.fallback_recalls.inc()
    return runtime.embedder.advisory(runtime.call.principal.name)


async def _with_profiles(runtime: Runtime, asked: tuple[Recall, Scope], answered: Answered) -> Answered:
    """The rows, and behind them profiles where there is room and no source, filter or time narrows the search.

    What found nothing stays empty, and what had to be shortened is given no more.
    """
    request, scope = asked
    room = min(request.limit - len(answered.rows), runtime.settings.profile_rows_max)
    if room <= 0 or not answered.rows or scope.source or scope.is_filtered or scope.since or scope.until:
        return answered
    excluded = Excluded(request.exclude_contents)
    profiles = [row for row in await beside(runtime, scope, room) if not excluded.holds(row.content)]
    return followed_by(answered, profiles, request.max_tokens)


def scope_of(runtime: Runtime, request: Recall, times: Times) -> Scope:
    """The rows that a request may be answered with."""
    since, until = times.searched
    return runtime.present(
        Scope(
            agent=request.agent_id,
            project=None if request.project_id is UNSET else request.project_id,
            channel=request.channel,
            source=request.source_id,
            since=since,
            until=until,
            known_by=times.as_of or "",
            tags=asked_tags(request.tags),
            metadata=asked_values(request.metadata),
            kinds=tuple(KINDS[each] for each in request.include),
        )
    )


def _depth(request: Recall) -> int:
    return max(ARM_DEPTH_MIN, request.limit) + len(request.exclude_contents)


def _verdict(found: Candidates, settings: Settings, request: Recall, query: Query) -> Verdict:
    """What the gate decides of the candidates."""
    if not settings.gate:
        return Verdict("off")
    if request.deep:
        return Verdict("deep")
    if query.vector is None:
        return Verdict("no_vectors")
    named = identifiers(request.query[:QUERY_CHARS_MAX])
    if found.phrases or (found.pieces and set(query.pieces) <= set(named)):
        return Verdict("exact")
    return gate.verdict(found.evidence, found.tells, found.threshold, named)


def _falls_short(found: Candidates, verdict: Verdict) -> bool:
    """Whether what the gate has let through has less evidence than it asks for."""
    if verdict.outcome not in ("exact", "waiting") or found.threshold is None:
        return False
    return gate.strongest(found.evidence, found.tells) < found.threshold


def _times(runtime: Runtime, text: str) -> tuple[tuple[str, str], ...]:
    """The stretches of time that a query names, read in the caller's zone."""
    return tuple((utc(span.start), utc(span.end)) for span in spans(text, runtime.clock(), runtime.call.zone))


def _kept(found: Candidates, ranking: Ranking, request: Recall) -> list[Shown]:
    """The rows the caller does not have yet, best first, at most as many as asked for."""
    page = request.limit + len(request.exclude_contents)
    read = rows.read(found, ranking, page, is_traced=request.trace, is_complete=request.full_content)
    return rows.kept(read, request.limit, request.exclude_contents)


def _channels(runtime: Runtime, scope: Scope, vector: Vector | None) -> Channels:
    embedder = runtime.embedder
    newest = runtime.settings.vector_newest_rows
    ran = f"ran: in the {newest} rows stored last" if newest else "ran"
    without = f"degraded: {embedder.reason}"
    return Channels(
        vectors=ran if vector else without if embedder.enabled else f"skipped: {embedder.failure}",
        words="ran" if scope.shows(Kind.MEMORY) else "skipped: include leaves memories out",
        episodes="ran" if scope.shows(Kind.EPISODE) else f"skipped: {_hider(scope)}",
        waiting=embedder.waiting,
    )


def _hider(scope: Scope) -> str:
    """What hides episodes."""
    if scope.kinds and Kind.EPISODE not in scope.kinds:
        return "include leaves episodes out"
    return f"{'tags and metadata hide' if scope.is_filtered else 'source_id hides'} episodes"


def _answer(runtime: Runtime, asked_for: tuple[Recall, Times], answered: Answered, channels: Channels) -> Recalled:
    request, times = asked_for
    return Recalled(
        messages=answered.rows[::-1],
        status="no_query" if channels is NOT_ASKED else UNSET,
        query_truncated=QUERY_CHARS_MAX if len(request.query) > QUERY_CHARS_MAX else UNSET,
        full_content_budget_chars=FULL_CONTENT_BUDGET_CHARS if answered.budget_spent else UNSET,
        rows_left_out=len(answered.left_out) or UNSET,
        time_cue=times.cue,
        as_of=times.as_of,
        channels=channels,
        advisory=advisory(runtime, channels),
    )
