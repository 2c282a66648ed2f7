"""Who a model is: everything that decides its vectors, one fingerprint over all of it, and what is not known of it."""

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from embed_svc.models import Declaration

UNPINNED = "unpinned"
PROVIDER = "onnx"
_DECLARED = ("model", "dimensions", "window", "pooling", "prefixes", "precision")
_DIGESTS = ("graph", "tokenizer")


class Identity(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What decides a vector; null is what could not be established.

    `digests` is the SHA-256 in hex of each file by its part (graph, tokenizer, weights, tokenizer_config).
    `generation` counts the consents to vectors that had moved though no file had.
    """

    provider: str
    model: str | None
    revision: str | None
    dimensions: int | None
    window: int | None
    pooling: str | None
    prefixes: dict[str, str] | None
    eos: str | None
    precision: str | None
    normalized: bool
    digests: dict[str, str]
    generation: int = 0


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """Who makes the vectors; vectors of two fingerprints are never to be compared.

    `incomplete` names what could not be established: the fingerprint is then null, never one over a part.
    """

    identity: Identity
    incomplete: list[str]
    fingerprint: str | None


def identify(
    declaration: Declaration | None,
    revision: str | None = None,
    eos: str | None = None,
    digests: Mapping[str, str] | None = None,
    generation: int = 0,
) -> Capabilities:
    """Return who a model is, from as much as is known; `digests` are by part."""
    facts: dict[str, Any] = _declared(declaration) if declaration else dict.fromkeys(_DECLARED)
    identity = Identity(
        provider=PROVIDER,
        revision=revision or (UNPINNED if declaration else None),
        eos=eos,
        normalized=True,
        digests=dict(sorted((digests or {}).items())),
        generation=generation,
        **facts,
    )
    missing = [name for name in Identity.__struct_fields__ if getattr(identity, name) in (None, UNPINNED)]
    missing += [f"digests.{part}" for part in _DIGESTS if part not in identity.digests]
    return Capabilities(identity=identity, incomplete=missing, fingerprint=None if missing else fingerprint(identity))


def _declared(declaration: Declaration) -> dict[str, Any]:
    return {
        "model": declaration.name,
        "dimensions": declaration.dimensions,
        "window": declaration.window,
        "pooling": declaration.pooling,
        "prefixes": {"query": declaration.query_prefix, "document": declaration.document_prefix},
        "precision": declaration.precision,
    }


def fingerprint(identity: Identity) -> str:
    """Return `1:<hex>` over the whole identity, the same for the same facts in any process."""
    encoded = msgspec.json.encode(identity, order="deterministic")
    return f"1:{hashlib.sha256(encoded).hexdigest()}"


def part(name: str, graph: str) -> str:
    """Return which part of a model a file is, by its name: the digests in an identity go by parts."""
    if name == graph:
        return "graph"
    if name.endswith("_data"):
        return "weights"
    return name.rpartition("/")[2].removesuffix(".json")
