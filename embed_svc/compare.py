"""The command `compare`: how far two models rank the same texts alike, measured on a file of the user's own."""

import time
from pathlib import Path

import msgspec
import numpy as np

from embed_svc import choice, folder, models
from embed_svc.errors import Invalid
from embed_svc.loading import load
from embed_svc.models import Role
from embed_svc.pooling import Floats
from embed_svc.settings import Settings

TEXTS_MAX = 2_000
TOP = 10


class Agreement(msgspec.Struct, frozen=True):
    """What came out; the cosines are None where the two have different dimensions.

    `top_agreement` is the mean share of each text's TOP nearest that both models name.
    """

    texts: int
    cosine_median: float | None
    cosine_worst: float | None
    top_agreement: float
    seconds_a_text: tuple[float, float]


def compare(settings: Settings, one: str, other: str, file: Path) -> Agreement:
    """Return how far two models, by name or folder, agree on the lines of a file: each asks for all the others.

    Raises Invalid where the file cannot be read or has too few lines, else what loading a model raises.
    """
    texts = _lines(file)
    sides = [_vectors(settings, name, texts) for name in (one, other)]
    (queries, documents, seconds), (other_queries, other_documents, other_seconds) = sides
    cosines = (documents * other_documents).sum(axis=1) if documents.shape == other_documents.shape else None
    return Agreement(
        texts=len(texts),
        cosine_median=None if cosines is None else float(np.median(cosines)),
        cosine_worst=None if cosines is None else float(cosines.min()),
        top_agreement=agreement(queries @ documents.T, other_queries @ other_documents.T),
        seconds_a_text=(seconds, other_seconds),
    )


def agreement(scores: Floats, other_scores: Floats, top: int = TOP) -> float:
    """Return the mean share of each row's `top` best that both matrices (texts, texts) name, the diagonal left out."""
    best = [_best(matrix, top) for matrix in (scores, other_scores)]
    shares = [len(set(row) & set(other_row)) / len(row) for row, other_row in zip(*best, strict=True)]
    return float(np.mean(shares))


def written(found: Agreement, one: str, other: str) -> str:
    """Return what came out, for people."""
    lines = [f"{found.texts} texts, each asking for the others"]
    if found.cosine_median is not None:
        lines.append(
            f"cosine of the same text's two vectors: median {found.cosine_median:.4f}, worst {found.cosine_worst:.4f}"
        )
    lines.append(f"the {TOP} nearest agree to {found.top_agreement:.1%}")
    for name, seconds in zip((one, other), found.seconds_a_text, strict=True):
        lines.append(f"{name}: {seconds * 1e3:.1f} ms a text, each alone")
    return "\n".join(lines) + "\n"


def _best(scores: Floats, top: int) -> list[list[int]]:
    others = scores.copy()
    np.fill_diagonal(others, -np.inf)
    return [row[: min(top, len(scores) - 1)].tolist() for row in np.argsort(-others, axis=1, kind="stable")]


def _lines(file: Path) -> list[str]:
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise Invalid(
            f"{file} cannot be read as UTF-8 ({type(error).__name__}): name a file of one text a line"
        ) from None
    texts = [line.strip() for line in lines if line.strip()][:TEXTS_MAX]
    if len(texts) < 2:
        raise Invalid(f"{file} holds fewer than two texts: write one a line")
    return texts


def _vectors(settings: Settings, name: str, texts: list[str]) -> tuple[Floats, Floats, float]:
    declaration = folder.declaration(name) if folder.is_folder(name) else models.named(name)
    record = choice.new_record(declaration.name, "to compare")
    model, _ = load(record, declaration, Path(settings.data_dir), settings.threads, lambda _: None)
    started = time.perf_counter()

    def embedded(role: Role) -> Floats:
        return np.concatenate([model.embed([tokens]) for tokens in model.measure(texts, role)])

    queries, documents = embedded("query"), embedded("document")
    return queries, documents, (time.perf_counter() - started) / (2 * len(texts))
