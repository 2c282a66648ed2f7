"""The test that lets a model serve: its vectors of fixed sentences are sound, sensible, and those of last time."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from embed_svc import disk
from embed_svc.errors import Invalid, Unavailable
from embed_svc.models import Model, Tokens
from embed_svc.pooling import Floats

REFERENCE_NAME = "reference.json"
_NORM_TOLERANCE = 1e-3
_SAME_COSINE_MIN = 0.9999

QUESTION = "How do I change a password that I have forgotten?"
PARAPHRASE = "Steps to reset your login credentials when you no longer remember them."
STRANGER = "A glacier feeds the turquoise lake high up in the mountains."


class Reference(msgspec.Struct, frozen=True):
    """The vectors of the self-test when they were first seen, by fingerprint; bytes of little-endian float32."""

    fingerprint: str
    vectors: list[bytes]


def self_test(model: Model) -> Floats:
    """Embed fixed sentences for real and return their vectors.

    Raises Invalid, saying what is wrong, where they cannot be right.
    """
    (question,) = model.measure([QUESTION], "query")
    answers = model.measure([PARAPHRASE, STRANGER], "document")
    together = model.embed([question, *answers]) if not model.info.alone else _one_by_one(model, [question, *answers])
    if fault := unsound(together, model.info.dimensions):
        raise Invalid(f"the self-test of {model.info.name} failed: {fault}")
    near, far = (float(together[0] @ other) for other in together[1:])
    if not near > far:
        raise Invalid(
            f"the self-test of {model.info.name} failed: a paraphrase (cosine {near:.3f}) is not nearer than a "
            f"stranger ({far:.3f}); pooling, prefixes or files are wrong"
        )
    cosines = (together * _one_by_one(model, [question, *answers])).sum(axis=1)
    if cosines.min() < _SAME_COSINE_MIN:
        raise Invalid(
            f"the self-test of {model.info.name} failed: a text's vector depends on its batch (cosine "
            f"{cosines.min():.5f} to the same text alone)"
        )
    return together


def unsound(vectors: Floats, dimensions: int) -> str | None:
    """Return what is wrong with vectors that should be (texts, dimensions) and of length 1, or None."""
    if vectors.shape[1:] != (dimensions,):
        return f"vectors have shape {vectors.shape}, {dimensions} dimensions are declared"
    lengths = np.sqrt(np.einsum("nd,nd->n", vectors, vectors))
    # What is no number has a length that is none, which is not within the tolerance either.
    if np.abs(lengths - 1).max() <= _NORM_TOLERANCE:
        return None
    if not np.isfinite(vectors).all():
        return "a vector holds what is no number"
    return f"a vector has length {lengths[np.abs(lengths - 1).argmax()]:.4f} instead of 1"


def compare(model: Model, vectors: Floats, file: Path) -> None:
    """Hold the self-test's vectors against those kept in `file`, or keep them there where none are of this model.

    Raises Invalid where one has moved, Unavailable where they cannot be kept. A model without a fingerprint is not
    compared: nobody knows whether it is the same.
    """
    fingerprint = model.info.fingerprint
    if fingerprint is None:
        return
    kept = _read(file)
    if kept is None or kept.fingerprint != fingerprint:
        _keep(file, fingerprint, vectors)
        return
    before = np.frombuffer(b"".join(kept.vectors), "<f4")
    cosines = (before.reshape(vectors.shape) * vectors).sum(axis=1) if before.size == vectors.size else np.zeros(1)
    if cosines.min() < _SAME_COSINE_MIN:
        raise Invalid(
            f"the self-test of {model.info.name} failed: its vectors have moved (cosine {cosines.min():.5f} to those "
            f"in {file}) though none of its files has, so ONNX Runtime or the processor computes otherwise. Go back "
            "to what ran before; or, to embed every stored text again, set "
            f"EMBED_MODEL={model.info.name} and EMBED_MODEL_REPLACES={fingerprint}"
        )


def _read(file: Path) -> Reference | None:
    try:
        kept = msgspec.json.decode(file.read_bytes(), type=Reference)
        np.frombuffer(b"".join(kept.vectors), "<f4")
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise Invalid(disk.refusal(file, error)) from None
    except (OSError, ValueError) as error:
        raise Invalid(
            f"{file} holds the vectors that the model made before and cannot be read ({type(error).__name__}). Restore "
            "it, or delete it to trust those made now"
        ) from None
    return kept


def _keep(file: Path, fingerprint: str, vectors: Floats) -> None:
    rows = [row.tobytes() for row in np.ascontiguousarray(vectors, "<f4")]
    try:
        disk.replace(file, msgspec.json.encode(Reference(fingerprint, rows)))
    except OSError as error:
        raise Unavailable(disk.refusal(file, error)) from error


def _one_by_one(model: Model, batch: Sequence[Tokens]) -> Floats:
    return np.concatenate([model.embed([tokens]) for tokens in batch])
