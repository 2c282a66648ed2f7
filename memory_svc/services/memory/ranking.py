"""The order of candidates, as the settings say."""

import datetime as dt
from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec
import numpy as np

from memory_svc.domain.memory import Kind, Ref
from memory_svc.domain.recall import characters, fusion, scoring
from memory_svc.domain.recall.fusion import Floats, Hits, Scores, Weights
from memory_svc.domain.recall.scoring import Ages, Decay
from memory_svc.domain.terms import Fields, fields_of
from memory_svc.settings import Settings
from memory_svc.storage.interface import Candidates


class Ranking(msgspec.Struct, frozen=True):
    """The candidates' scores, and the arms that count in them.

    columns: what else is said of each row, by the evidence's order. characters = the share of the query that it holds
    in runs, where those are compared; confidence, age_hours, decay, recall_count and resolved where rows go by
    confidence; boundary and recent = what a row keeps for these, where they are set.
    """

    signal: str
    scores: Scores
    arms: Mapping[str, Hits]
    documents: fusion.Integers
    columns: Mapping[str, Floats] = {}

    def told(self, ref: Ref) -> dict[str, float]:
        """What the columns say of a candidate."""
        place = int(self.documents.searchsorted(ref.document))
        return {name: float(column[place]) for name, column in self.columns.items()}


def ranked(found: Candidates, settings: Settings, now: dt.datetime, asked: str, *, deep: bool) -> Ranking:
    """The candidates' order for the query that is asked. deep: neither age nor a recall of a moment ago counts."""
    scores, arms, said = scored(found, settings, asked)
    hour = now.timestamp() / 3600
    columns = _lowering(found, settings, hour, deep=deep)
    factors = np.prod(list(columns.values()), axis=0) if columns else None
    columns |= said
    if settings.confidence:
        columns |= _confidence(found, settings, hour, deep=deep)
    documents = found.evidence.documents
    if factors is None and not settings.confidence:
        return Ranking(settings.recall_mode, scores, arms, documents, columns)
    places = documents.searchsorted(scores.documents)
    values, ties = (columns["confidence"][places], scores.values) if settings.confidence else (scores.values, None)
    if factors is not None:
        # What the query quotes is asked for to the letter, however old it is.
        values = scoring.lowered(values, np.where(found.evidence.quoted, 1.0, factors)[places])
    signal = "confidence" if settings.confidence else settings.recall_mode
    return Ranking(signal, Scores(scores.documents, values, ties), arms, documents, columns)


def scored(found: Candidates, settings: Settings, asked: str) -> tuple[Scores, dict[str, Hits], dict[str, Floats]]:
    """The score of each candidate by the mode that is set, the arms that count in it, and what else does."""
    said: dict[str, Floats] = {}
    arms = {"vectors": found.vectors, "words": found.words, "episodes": found.episodes}
    verbatim = {"pieces": found.pieces, "phrases": found.phrases}
    match settings.recall_mode:
        case "weighted":
            arms |= {"windows": found.windows} | verbatim
            scores = fusion.weighted(found.evidence, weights_of(settings))
            if unspaced := characters.unspaced_share(found.tells):
                said["characters"] = _characters(found, scores, asked)
                scores = fusion.with_characters(scores, found.evidence, said["characters"], unspaced)
        case "rrf":
            arms |= {name: hits for name, hits in verbatim.items() if hits}
            scores = fusion.exact_first(fusion.rrf(arms, settings.rrf_k), found.evidence, len(arms))
        case "rsf":
            arms |= {name: hits for name, hits in verbatim.items() if hits}
            scores = fusion.exact_first(fusion.rsf(arms), found.evidence, len(arms))
        case "cascade":
            arms = {"phrases": found.phrases, "vectors": found.vectors, "episodes": found.episodes}
            arms |= {"words": found.words, "pieces": found.pieces}
            scores = fusion.exact_first(fusion.cascade(arms), found.evidence, len(arms))
    return scores, arms, said


def weights_of(settings: Settings) -> Weights:
    """The weights that are set."""
    return Weights(settings.weight_fields, settings.weight_windows, settings.weight_speaker, settings.weight_date)


def before_gap(found: Candidates, settings: Settings, ranking: Ranking, refs: Sequence[Ref]) -> int:
    """How many of these rows, best first, stand before the gap at which an answer ends, where that is set.

    All of them where their order is not by likeness: by confidence, or in a cascade of rows that the vectors found.
    """
    if not settings.autocut or not (settings.confidence or settings.recall_mode == "cascade"):
        return len(refs)
    scores = ranking.scores if settings.confidence else Scores(found.evidence.documents, found.evidence.cosines)
    by_document = dict(zip(scores.documents.tolist(), scores.values.tolist(), strict=True))
    values = [by_document[ref.document] for ref in refs]
    if any(not before >= after for before, after in pairwise(values)):
        return len(refs)
    return scoring.kept_before_gap(values, settings.autocut_gap, settings.autocut_rows_min)


def _characters(found: Candidates, scores: Scores, asked: str) -> Floats:
    """Of the best rows the share of the query that they hold in runs of characters; 0 of all others."""
    places = fusion.best_places(scores, fusion.CHARACTERS_ROWS)
    refs = [Ref.of_document(document) for document in scores.documents[places].tolist()]
    rows = found.rows(refs)
    fields = (fields_of(rows[ref]) if ref in rows else Fields() for ref in refs)
    texts = [f"{each.extras}\n{each.text}" for each in fields]
    column = np.zeros(len(scores.documents))
    column[places] = characters.held(asked, texts)
    return column


def _lowering(found: Candidates, settings: Settings, hour: float, *, deep: bool) -> dict[str, Floats]:
    """What each row keeps of its score for its time. Episodes are no older than themselves: none lies before them."""
    columns: dict[str, Floats] = {}
    if settings.recent_recall and not deep:
        _, last = found.past.recalled()
        columns["recent"] = scoring.recent_factors(
            hour - last, settings.recent_recall_minutes / 60, settings.recent_recall_factor
        )
    if settings.episode_boundary and not np.isnan(boundary := found.past.boundary()):
        factors = scoring.boundary_factors(
            found.past.said(), boundary, settings.episode_boundary_rate, settings.episode_boundary_floor
        )
        columns["boundary"] = np.where(found.evidence.documents & 15 == Kind.EPISODE.code, 1.0, factors)
    return columns


def _confidence(found: Candidates, settings: Settings, hour: float, *, deep: bool) -> dict[str, Floats]:
    counts, last = found.past.recalled()
    ages = np.maximum(hour - found.past.said(), 0.0)
    span = found.past.span_hours()
    none = np.ones(len(ages))
    decayed = none if deep else scoring.decays(Ages(ages, counts, hour - last, span), _decay(settings))
    resolved = found.past.resolved()
    near = scoring.nearness(
        found.evidence.cosines,
        fusion.coverage(found.evidence.held, list(found.tells.values())),
        settings.confidence_cosine_floor,
        settings.confidence_cosine_ceiling,
    )
    resolved_factor = 1.0 if deep else settings.confidence_resolved_factor
    return {
        "confidence": scoring.confidence(near, decayed, resolved, resolved_factor),
        "age_hours": ages,
        "decay": decayed,
        "recall_count": counts.astype(np.float64),
        "resolved": resolved.astype(np.float64),
    }


def _decay(settings: Settings) -> Decay:
    return Decay(
        rate=settings.confidence_decay_rate,
        floor=settings.confidence_decay_floor,
        ceiling=settings.confidence_decay_ceiling,
        span_hours_min=settings.confidence_span_hours_min,
        reference_hours=settings.confidence_reference_hours,
        boost=settings.confidence_recall_boost,
        boost_fade=settings.confidence_recall_fade,
    )
