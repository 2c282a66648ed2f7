"""Who a model is: what changes its fingerprint, and that it has none while something is not known."""

import msgspec
import pytest

from embed_svc import models
from embed_svc.identity import Capabilities, identify, part
from embed_svc.models import Declaration

DIGESTS = {"graph": "aa", "tokenizer": "bb"}


def known(declaration: Declaration = models.FALLBACK, **changed: object) -> Capabilities:
    facts: dict[str, object] = {"revision": "1", "eos": "[SEP]", "digests": DIGESTS}
    return identify(declaration, **(facts | changed))  # type: ignore[arg-type]


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
    assert str(known().fingerprint).startswith("1:")
    assert known(msgspec.structs.replace(models.FALLBACK, **changed)).fingerprint != known().fingerprint


@pytest.mark.parametrize(
    "changed",
    [{"revision": "2"}, {"eos": "</s>"}, {"digests": DIGESTS | {"graph": "cc"}}, {"generation": 1}],
    ids=lambda changed: next(iter(changed)),
)
def test_revision_end_token_files_and_consents_are_in_the_fingerprint(changed: dict[str, object]) -> None:
    assert known(**changed).fingerprint != known().fingerprint


def test_the_order_of_the_files_and_words_about_the_model_are_not_in_it() -> None:
    assert known(digests=dict(reversed(DIGESTS.items()))).fingerprint == known().fingerprint
    reworded = msgspec.structs.replace(models.FALLBACK, licence="other", languages="other", megabytes=1, note="other")
    assert known(reworded).fingerprint == known().fingerprint


@pytest.mark.parametrize(
    ("changed", "missing"),
    [
        ({"revision": None}, ["revision"]),
        ({"eos": None}, ["eos"]),
        ({"digests": {"graph": "aa"}}, ["digests.tokenizer"]),
        ({"digests": None}, ["digests.graph", "digests.tokenizer"]),
        ({"declaration": msgspec.structs.replace(models.FALLBACK, precision=None)}, ["precision"]),
    ],
    ids=lambda value: "" if isinstance(value, dict) else "+".join(value),
)
def test_what_is_not_known_is_named_and_there_is_no_fingerprint_over_the_rest(
    changed: dict[str, object], missing: list[str]
) -> None:
    capabilities = known(**changed)  # type: ignore[arg-type]
    assert capabilities.incomplete == missing
    assert capabilities.fingerprint is None


def test_a_model_that_was_never_fetched_is_unpinned_and_one_not_chosen_is_unknown() -> None:
    assert identify(models.DEFAULT).identity.revision == "unpinned"
    nothing = identify(None)
    assert nothing.identity.model is None
    assert {"model", "revision", "dimensions", "window", "pooling", "prefixes", "eos", "precision"} < set(
        nothing.incomplete
    )
    assert nothing.fingerprint is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("onnx/model.onnx", "graph"),
        ("onnx/model.onnx_data", "weights"),
        ("tokenizer.json", "tokenizer"),
        ("tokenizer_config.json", "tokenizer_config"),
    ],
)
def test_files_go_by_their_part(name: str, expected: str) -> None:
    assert part(name, "onnx/model.onnx") == expected
