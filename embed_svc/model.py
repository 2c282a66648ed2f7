"""A model running on ONNX Runtime, its texts read by its own tokenizer; the only importer of either library."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort  # type: ignore[import-untyped]
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerFast

from embed_svc import pooling
from embed_svc.errors import Invalid
from embed_svc.models import Declaration, Info, Role, Tokens
from embed_svc.pooling import Floats
from embed_svc.tokens import Reader

Integers = NDArray[np.int64]
_FAILURES = ort.capi.onnxruntime_pybind11_state
_NO_GRAPH = (
    _FAILURES.Fail,
    _FAILURES.InvalidArgument,
    _FAILURES.InvalidGraph,
    _FAILURES.InvalidProtobuf,
    _FAILURES.NoSuchFile,
    _FAILURES.NotImplemented,
)

_POOLED_OUTPUT = "sentence_embedding"
_HIDDEN_OUTPUTS = ("last_hidden_state", "token_embeddings")
# Each input of a graph, from the tokens' ids and the mask.
_FEEDS: dict[str, Callable[[Integers, Integers], Integers]] = {
    "input_ids": lambda ids, _: ids,
    "attention_mask": lambda _, mask: mask,
    "token_type_ids": lambda ids, _: np.zeros_like(ids),
    "position_ids": lambda _, mask: np.maximum(mask.cumsum(axis=1) - 1, 0),
}
# Attention keeps a score for each pair of tokens of a text: one text of 724 tokens has so many, and so has a batch of
# 128 texts of 64. What a run beyond that has taken is given back after it.
_KEPT_PAIRS_MAX = 1_024 * 512


class OnnxModel:
    """One graph and its tokenizer. `measure` and `embed` may run at the same time in two threads."""

    def __init__(self, declaration: Declaration, info: Info, graph: Path, tokenizer: Path, threads: int) -> None:
        """Load both from local files. Raises Invalid where they do not make an embedding model."""
        self.info = info
        self._declaration = declaration
        loaded = PreTrainedTokenizerFast.from_pretrained(str(tokenizer), local_files_only=True)
        self.end_token, end = _end_token(loaded)
        self._padding = int(loaded.pad_token_id or 0)
        self._reader = Reader(loaded.backend_tokenizer, end, declaration.window)
        self._session = _session(graph, threads)
        self._returning = _returning()
        self._inputs = [value.name for value in self._session.get_inputs()]
        self._output = _output([value.name for value in self._session.get_outputs()])
        _feeds(self._inputs, np.zeros((1, 1), np.int64), np.ones((1, 1), np.int64))

    def measure(self, texts: Sequence[str], role: Role, whole: bool = False) -> list[Tokens]:
        """Tokenise each text behind its role's prefix, cut to the window with the end token kept, in order."""
        prefix = self._declaration.prefix(role)
        return [self._reader.read(prefix, text, whole) for text in texts]

    def adopt(self, rows: Sequence[Sequence[int]], role: Role) -> list[Tokens]:
        """Take token ids as they are, behind the role's prefix, cut and closed as texts are, in order."""
        return [self._reader.adopt(self._declaration.prefix(role), row, index) for index, row in enumerate(rows)]

    def embed(self, batch: Sequence[Tokens]) -> Floats:
        """Return one unit vector a text, (texts, dimensions) in order. Raises ValueError where one has no direction."""
        ids, mask = padded([tokens.ids for tokens in batch], self._padding)
        options = self._returning if ids.shape[0] * ids.shape[1] ** 2 > _KEPT_PAIRS_MAX else None
        (answer,) = self._session.run([self._output], _feeds(self._inputs, ids, mask), options)
        values = np.asarray(answer, np.float32)
        if self._output != _POOLED_OUTPUT:
            values = pooling.POOLINGS[self._declaration.pooling](values, mask)
        return pooling.normalise(values)


def padded(rows: Sequence[Sequence[int]], padding: int) -> tuple[Integers, Integers]:
    """Return ids and 0/1 mask, both (texts, longest), padded on the right."""
    longest = max(len(row) for row in rows)
    ids = np.full((len(rows), longest), padding, np.int64)
    mask = np.zeros((len(rows), longest), np.int64)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = row
        mask[index, : len(row)] = 1
    return ids, mask


def _end_token(tokenizer: Any) -> tuple[str, int]:
    """Return the token that closes every text, and its id: the tokenizer's end of sequence, or BERT's separator."""
    for token, number in ((tokenizer.eos_token, tokenizer.eos_token_id), (tokenizer.sep_token, tokenizer.sep_token_id)):
        if number is not None:
            return str(token), int(number)
    raise Invalid("the tokenizer names no end token, and vectors without one are silently worse")


def _session(graph: Path, threads: int) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Shapes vary from batch to batch: a plan kept for each would grow without end. The arena does not; without it every
    # run asks the system for its memory anew, which takes a third of the time of a batch of 1,024 tokens.
    options.enable_mem_pattern = False
    options.enable_cpu_mem_arena = True
    # A sum and the norm behind it, joined into one step, take seven times as long as the two one after the other.
    options.add_session_config_entry("optimization.disable_specified_optimizers", "SkipLayerNormFusion")
    # Waiting threads sleep, so that an idle server is idle.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return ort.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
    except _NO_GRAPH as error:
        raise Invalid(f"{graph.name} is no graph that ONNX Runtime can load ({type(error).__name__})") from error


def _returning() -> Any:
    options = ort.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    return options


def _output(names: Sequence[str]) -> str:
    """Return the output to read: the graph's own pooled one where it has it, else its hidden states."""
    for name in (_POOLED_OUTPUT, *_HIDDEN_OUTPUTS):
        if name in names:
            return name
    raise Invalid(f"the graph offers none of {_POOLED_OUTPUT}, {', '.join(_HIDDEN_OUTPUTS)}")


def _feeds(names: Sequence[str], ids: Integers, mask: Integers) -> dict[str, Integers]:
    """Return the graph's inputs by name. Raises Invalid where it wants one that is not known here."""
    if unknown := [name for name in names if name not in _FEEDS]:
        raise Invalid(f"the graph wants inputs that are not known: {', '.join(unknown)}")
    return {name: _FEEDS[name](ids, mask) for name in names}
