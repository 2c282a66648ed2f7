"""The order of candidates, as the settings say."""

from memory_svc.domain.recall import fusion
from memory_svc.domain.recall.fusion import Hits, Scores, Weights
from memory_svc.settings import Settings
from memory_svc.storage.interface import Candidates


def scored(found: Candidates, settings: Settings) -> tuple[Scores, dict[str, Hits]]:
    """The score of each candidate by the mode that is set, and the arms that count in it."""
    arms = {"vectors": found.vectors, "words": found.words, "episodes": found.episodes}
    verbatim = {"pieces": found.pieces, "phrases": found.phrases}
    match settings.recall_mode:
        case "weighted":
            arms |= {"windows": found.windows} | verbatim
            scores = fusion.weighted(found.evidence, weights_of(settings))
        case "rrf":
            arms |= {name: hits for name, hits in verbatim.items() if hits}
            scores = fusion.rrf(arms, settings.rrf_k)
        case "rsf":
            arms |= {name: hits for name, hits in verbatim.items() if hits}
            scores = fusion.rsf(arms)
        case "cascade":
            arms = {"phrases": found.phrases, "vectors": found.vectors, "episodes": found.episodes}
            arms |= {"words": found.words, "pieces": found.pieces}
            scores = fusion.cascade(arms)
    return scores, arms


def weights_of(settings: Settings) -> Weights:
    """The weights that are set."""
    return Weights(settings.weight_fields, settings.weight_windows, settings.weight_speaker, settings.weight_date)
