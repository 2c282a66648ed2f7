"""A graph shaped like the default model's (EuroBERT-210m: https://arxiv.org/abs/2503.05500), with random weights.

Root-mean-square norms, rotary positions, attention in both directions, gated feed-forward; fewer layers and a smaller
vocabulary, so that it is made and run in seconds. It shows cost, never quality.
"""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

LAYERS = 4
WIDTH = 768
HEADS = 12
INNER = 3_072
VOCABULARY = 30_522
_HEAD = WIDTH // HEADS
_ROTARY_BASE = 250_000.0
_POSITIONS = 8_192
_OPSET = 18
_SEED = 1


class _Graph:
    """Nodes and weights as they are added; every method returns the name of what it makes."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(_SEED)
        self._count = 0

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = self._name(kind)
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def value(self, array: NDArray[Any]) -> str:
        name = self._name("value")
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def weight(self, rows: int, columns: int, spread: float) -> str:
        return self.value(self._random.standard_normal((rows, columns), np.float32) * np.float32(spread))

    def product(self, value: str, rows: int, columns: int) -> str:
        return self.op("MatMul", value, self.weight(rows, columns, rows**-0.5))

    def norm(self, value: str) -> str:
        square = self.op("Mul", value, value)
        mean = self.op("ReduceMean", square, self.value(np.array([-1])), keepdims=1)
        root = self.op("Sqrt", self.op("Add", mean, self.value(np.float32(1e-5).reshape(1))))
        return self.op("Mul", self.op("Div", value, root), self.value(np.ones(WIDTH, np.float32)))

    def heads(self, value: str) -> str:
        split = self.op("Reshape", value, self.value(np.array([0, 0, HEADS, _HEAD])))
        return self.op("Transpose", split, perm=[0, 2, 1, 3])

    def rotated(self, value: str, cosine: str, sine: str) -> str:
        first = self.op("Slice", value, *(self.value(np.array([place])) for place in (0, _HEAD // 2, 3)))
        second = self.op("Slice", value, *(self.value(np.array([place])) for place in (_HEAD // 2, _HEAD, 3)))
        turned = self.op("Concat", self.op("Neg", second), first, axis=-1)
        return self.op("Add", self.op("Mul", value, cosine), self.op("Mul", turned, sine))

    def layer(self, hidden: str, bias: str, cosine: str, sine: str) -> str:
        normed = self.norm(hidden)
        query, key, value = (self.heads(self.product(normed, WIDTH, WIDTH)) for _ in range(3))
        query, key = self.rotated(query, cosine, sine), self.rotated(key, cosine, sine)
        scores = self.op("MatMul", query, self.op("Transpose", key, perm=[0, 1, 3, 2]))
        scaled = self.op("Mul", scores, self.value(np.float32(_HEAD**-0.5).reshape(1)))
        mixed = self.op("MatMul", self.op("Softmax", self.op("Add", scaled, bias), axis=-1), value)
        joined = self.op("Reshape", self.op("Transpose", mixed, perm=[0, 2, 1, 3]), self.value(np.array([0, 0, WIDTH])))
        attended = self.op("Add", hidden, self.product(joined, WIDTH, WIDTH))
        normed = self.norm(attended)
        gate = self.product(normed, WIDTH, INNER)
        opened = self.op("Mul", self.op("Mul", gate, self.op("Sigmoid", gate)), self.product(normed, WIDTH, INNER))
        return self.op("Add", attended, self.product(opened, INNER, WIDTH))

    def _name(self, kind: str) -> str:
        self._count += 1
        return f"{kind.lower()}_{self._count}"


def write(file: Path) -> None:
    """Write the graph, and its weights beside it as `<name>_data`; the same bytes each time."""
    graph = _Graph()
    one = graph.value(np.float32(1).reshape(1))
    hidden = graph.op("Gather", graph.weight(VOCABULARY, WIDTH, 1.0), "input_ids", axis=0)
    seen = graph.op(
        "Cast", graph.op("Unsqueeze", "attention_mask", graph.value(np.array([1, 2]))), to=TensorProto.FLOAT
    )
    bias = graph.op("Mul", graph.op("Sub", one, seen), graph.value(np.float32(-1e9).reshape(1)))
    length = graph.op("Slice", graph.op("Shape", "input_ids"), *(graph.value(np.array([place])) for place in (1, 2)))
    cosine, sine = (_positions(graph, length, turn) for turn in _turns())
    for _ in range(LAYERS):
        hidden = graph.layer(hidden, bias, cosine, sine)
    graph.nodes.append(helper.make_node("Identity", [graph.norm(hidden)], ["last_hidden_state"]))
    shape = ["texts", "tokens"]
    made = helper.make_graph(
        graph.nodes,
        "random",
        [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name in ("input_ids", "attention_mask")],
        [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, [*shape, WIDTH])],
        graph.weights,
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=10)
    onnx.save_model(model, str(file), save_as_external_data=True, location=f"{file.name}_data", size_threshold=1_024)


def _turns() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return cosine and sine of each position's angles, (positions, head)."""
    rates = _ROTARY_BASE ** (-np.arange(0, _HEAD, 2) / _HEAD)
    angles = np.tile(np.outer(np.arange(_POSITIONS), rates), 2)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def _positions(graph: _Graph, length: str, turn: NDArray[np.float32]) -> str:
    start, axis = graph.value(np.array([0])), graph.value(np.array([0]))
    return graph.op("Slice", graph.value(turn), start, length, axis)
