"""The declarations."""

import pytest

from embed_svc import models
from embed_svc.errors import Invalid


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
