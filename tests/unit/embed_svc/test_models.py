"""The declarations, and what changes a fingerprint."""

import msgspec
import pytest

from embed_svc import models
from embed_svc.errors import Invalid
from embed_svc.models import Declaration

DIGESTS = {"model.onnx": "aa", "tokenizer.json": "bb"}


def test_names_are_unique_and_the_default_and_the_fallback_are_among_them() -> None:
    names = [one.name for one in models.MODELS]
    assert len(names) == len(set(names))
    assert {models.DEFAULT.name, models.FALLBACK.name} <= set(names)


def test_the_default_model_asks_for_its_prefixes() -> None:
    assert models.DEFAULT.prefix("query") == "Query: "
    assert models.DEFAULT.prefix("document") == "Document: "
    assert models.FALLBACK.prefix("query") == models.FALLBACK.prefix("document") == ""


def test_an_unknown_name_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(Invalid, match="bge-m3"):
        models.named("word2vec")


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "other"},
        {"dimensions": 1},
        {"window": 1},
        {"pooling": "cls"},
        {"precision": "fp32"},
        {"query_prefix": "q: "},
        {"document_prefix": "d: "},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_whatever_decides_a_vector_changes_the_fingerprint(changed: dict[str, object]) -> None:
    declaration: Declaration = models.FALLBACK
    known = models.fingerprint(declaration, "1", DIGESTS)
    assert known.startswith("1:")
    assert models.fingerprint(msgspec.structs.replace(declaration, **changed), "1", DIGESTS) != known


def test_revision_and_files_are_in_the_fingerprint_and_their_order_is_not() -> None:
    known = models.fingerprint(models.FALLBACK, "1", DIGESTS)
    assert models.fingerprint(models.FALLBACK, "2", DIGESTS) != known
    assert models.fingerprint(models.FALLBACK, "1", DIGESTS | {"model.onnx": "cc"}) != known
    assert models.fingerprint(models.FALLBACK, "1", dict(reversed(DIGESTS.items()))) == known


def test_words_about_a_model_are_not_in_its_fingerprint() -> None:
    reworded = msgspec.structs.replace(models.FALLBACK, licence="other", languages="other", megabytes=1)
    assert models.fingerprint(reworded, "1", DIGESTS) == models.fingerprint(models.FALLBACK, "1", DIGESTS)
