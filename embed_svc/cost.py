"""What running a graph costs in floating-point operations, reckoned from the shapes in its ONNX file."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

# Numbers of the fields that are read (https://github.com/onnx/onnx/blob/main/onnx/onnx.proto).
_MODEL_GRAPH = 7
_GRAPH_NODE, _GRAPH_TENSOR = 1, 5
_NODE_INPUT, _NODE_OUTPUT, _NODE_KIND = 1, 2, 4
_TENSOR_SHAPE, _TENSOR_NAME = 1, 8

_PASSED_ON = frozenset({"Cast", "DequantizeLinear", "Identity", "Mul", "Reshape", "Transpose"})
_ATTENTION = frozenset({"Attention", "GroupQueryAttention", "MultiHeadAttention", "QAttention", "Softmax"})


class Cost(msgspec.Struct, frozen=True):
    """Parameters in matrix products, layers that attend, and their width."""

    parameters: int
    layers: int
    width: int

    def operations(self, tokens: int) -> int:
        """Return a text's floating-point operations: 2 a parameter and token, 4 a layer, width and pair of tokens.

        A product reads each weight once a token, to multiply and to add. Attention multiplies queries with keys and
        scores with values, each 2 operations a pair of tokens and dimension. Embedding, norms and softmax are left out.
        Hoffmann et al. 2022, appendix F (https://arxiv.org/abs/2203.15556), one pass forward.
        """
        return 2 * self.parameters * tokens + 4 * self.layers * self.width * tokens**2


class _Node(msgspec.Struct, frozen=True):
    kind: str
    inputs: list[str]
    outputs: list[str]


def read(graph: Path, width: int) -> Cost:
    """Return what a graph's runs cost; `width` is that of its hidden states.

    Weights are not looked at. What counts is a matrix that reaches a product, by way of casts and scales where it is
    stored in fewer bits; a table that is looked up does not.
    """
    nodes: list[_Node] = []
    sizes: dict[str, int] = {}
    content = _parts(memoryview(graph.read_bytes()), _MODEL_GRAPH)[0]
    for data in _parts(content, _GRAPH_NODE):
        nodes.append(_Node(_names(data, _NODE_KIND)[0], _names(data, _NODE_INPUT), _names(data, _NODE_OUTPUT)))
    for data in _parts(content, _GRAPH_TENSOR):
        shape = _shape(data)
        if len(shape) == 2 and min(shape) > 1:
            sizes[_names(data, _TENSOR_NAME)[0]] = math.prod(shape)
    return Cost(
        parameters=sum(size for name, size in sizes.items() if _is_multiplied(name, nodes)),
        layers=sum(node.kind in _ATTENTION for node in nodes),
        width=width,
    )


def _is_multiplied(name: str, nodes: Sequence[_Node]) -> bool:
    for node in nodes:
        if name in node.inputs:
            if "MatMul" in node.kind or node.kind == "Gemm":
                return True
            if node.kind in _PASSED_ON and any(_is_multiplied(output, nodes) for output in node.outputs):
                return True
    return False


def _shape(tensor: memoryview) -> list[int]:
    """Return a tensor's shape, which is written as one run of numbers or one by one."""
    shape: list[int] = []
    for number, value in _fields(tensor):
        if number == _TENSOR_SHAPE:
            shape.extend([value] if isinstance(value, int) else _run(value))
    return shape


def _names(data: memoryview, wanted: int) -> list[str]:
    return [str(part, "utf-8") for part in _parts(data, wanted)]


def _parts(data: memoryview, wanted: int) -> list[memoryview]:
    return [value for number, value in _fields(data) if number == wanted and isinstance(value, memoryview)]


def _fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield number and value of each field (https://protobuf.dev/programming-guides/encoding/)."""
    place = 0
    while place < len(data):
        key, place = _number(data, place)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, place = _number(data, place)
            yield number, value
        else:
            size = {1: 8, 5: 4}.get(kind, 0)
            if kind == 2:
                size, place = _number(data, place)
            yield number, data[place : place + size]
            place += size


def _run(data: memoryview) -> Iterator[int]:
    place = 0
    while place < len(data):
        value, place = _number(data, place)
        yield value


def _number(data: memoryview, place: int) -> tuple[int, int]:
    """Return the number of variable length at a place, and the place after it."""
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place
