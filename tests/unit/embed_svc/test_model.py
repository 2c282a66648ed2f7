"""A graph and a tokenizer made here, whose vectors are known by arithmetic, run the way a real model runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from embed_svc.errors import Invalid
from embed_svc.model import OnnxModel, padded
from embed_svc.models import Declaration, Hub, Info, Role

WORDS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "query:", "passage:", "a", "b", "c", "d"]
PAD, CLS, SEP = 0, 1, 2
DIMENSIONS = 4
WINDOW = 6
# The vector of each token: distinct directions, so that any change of tokens or pooling shows.
TABLE = np.random.default_rng(7).standard_normal((len(WORDS), DIMENSIONS)).astype(np.float32)
Make = Callable[..., OnnxModel]


def write_tokenizer(folder: Path, closes: bool = True, names_end: bool = True) -> None:
    """A word a token between [CLS] and [SEP]; its file asks for a cut and a padding that must not count."""
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]" if closes else "[CLS] $A", special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)]
    )
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=12)
    tokenizer.save(str(folder / "tokenizer.json"))
    named = '"sep_token": "[SEP]", ' if names_end else ""
    config = f'{{{named}"pad_token": "[PAD]", "tokenizer_class": "PreTrainedTokenizerFast"}}'
    (folder / "tokenizer_config.json").write_text(config)


def write_graph(
    file: Path,
    inputs: tuple[str, ...] = ("input_ids", "attention_mask"),
    output: str = "last_hidden_state",
) -> None:
    """A graph whose hidden state is each token's row of TABLE; as `sentence_embedding`, the last token's alone."""
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["hidden"])]
    shape: list[Any] = ["texts", "tokens", DIMENSIONS]
    if output == "sentence_embedding":
        shape = ["texts", DIMENSIONS]
        nodes += [
            helper.make_node("ReduceSum", ["attention_mask", "axis"], ["count"], keepdims=0),
            helper.make_node("Sub", ["count", "axis"], ["place"]),
            helper.make_node("Unsqueeze", ["place", "axis"], ["places"]),
            helper.make_node("GatherND", ["hidden", "places"], [output], batch_dims=1),
        ]
    else:
        nodes.append(helper.make_node("Identity", ["hidden"], [output]))
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["texts", "tokens"]) for name in inputs],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(TABLE, "table"), numpy_helper.from_array(np.array([1]), "axis")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), file)


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Build a tiny model: its pooling, and what is unusual about its files."""

    def built(
        pooling: Literal["mean", "cls", "last"] = "mean",
        tokenizer: dict[str, bool] | None = None,
        **graph: Any,
    ) -> OnnxModel:
        write_tokenizer(tmp_path, **(tokenizer or {}))
        write_graph(tmp_path / "model.onnx", **graph)
        declaration = Declaration(
            name="tiny",
            source=Hub(repo="none/tiny", graph="model.onnx", files=()),
            dimensions=DIMENSIONS,
            window=WINDOW,
            pooling=pooling,
            precision="fp32",
            licence="none",
            languages="none",
            megabytes=0,
            query_prefix="query: ",
            document_prefix="passage: ",
        )
        info = Info(name="tiny", revision="1", dimensions=DIMENSIONS, window=WINDOW, fingerprint="1:0")
        return OnnxModel(declaration, info, tmp_path / "model.onnx", tmp_path, threads=1)

    return built


def unit(vector: Any) -> Any:
    return vector / np.linalg.norm(vector)


def ids(*words: str) -> list[int]:
    return [WORDS.index(word) for word in words]


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ("mean", TABLE[ids("[CLS]", "passage:", "a", "b", "[SEP]")].mean(axis=0)),
        ("cls", TABLE[CLS]),
        ("last", TABLE[SEP]),
    ],
)
def test_each_pooling_gives_its_arithmetic_alone_and_among_longer_texts(
    make: Make, pooling: Any, expected: Any
) -> None:
    model = make(pooling)
    read = model.measure(["a b", "a b c", "d"], "document")
    np.testing.assert_allclose(model.embed(read[:1])[0], unit(expected), atol=1e-6)
    np.testing.assert_allclose(model.embed(read)[0], unit(expected), atol=1e-6)


@pytest.mark.parametrize(("role", "word"), [("query", "query:"), ("document", "passage:")])
def test_each_role_has_its_prefix(make: Make, role: Role, word: str) -> None:
    (read,) = make().measure(["a"], role)
    assert read.ids == ids("[CLS]", word, "a", "[SEP]")


def test_a_text_is_cut_at_the_window_and_keeps_its_end_token(make: Make) -> None:
    whole, cut_one = make().measure(["a b c", "a b c d"], "document")
    assert (whole.ids[-1], len(whole.ids), whole.truncated) == (SEP, WINDOW, False)
    assert (cut_one.ids[-1], len(cut_one.ids), cut_one.truncated, cut_one.count) == (SEP, WINDOW, True, 7)
    assert cut_one.ids == ids("[CLS]", "passage:", "a", "b", "c", "[SEP]")


def test_the_cut_and_the_padding_of_the_tokenizer_file_do_not_count(make: Make) -> None:
    short, longer = make().measure(["a", "a b c"], "document")
    assert len(short.ids) == 4
    assert len(longer.ids) == 6


def test_the_end_token_is_added_where_the_tokenizer_lost_it(make: Make) -> None:
    (read,) = make(tokenizer={"closes": False}).measure(["a"], "document")
    assert read.ids == ids("[CLS]", "passage:", "a", "[SEP]")


def test_a_tokenizer_without_an_end_token_is_refused(make: Make) -> None:
    with pytest.raises(Invalid, match="no end token"):
        make(tokenizer={"names_end": False})


def test_the_graphs_own_pooled_output_is_taken_as_it_is(make: Make) -> None:
    model = make("mean", output="sentence_embedding")
    vectors = model.embed(model.measure(["a", "a b"], "document"))
    np.testing.assert_allclose(vectors, [unit(TABLE[SEP])] * 2, atol=1e-6)


def test_a_graph_gets_the_inputs_it_names_and_no_other(make: Make) -> None:
    model = make(inputs=("input_ids", "attention_mask", "token_type_ids", "position_ids"))
    assert model.embed(model.measure(["a"], "document")).shape == (1, DIMENSIONS)
    with pytest.raises(Invalid, match="pixel_values"):
        make(inputs=("input_ids", "pixel_values"))


def test_a_graph_without_a_known_output_is_refused(make: Make) -> None:
    with pytest.raises(Invalid, match="sentence_embedding, last_hidden_state"):
        make(output="logits")


def test_padding_stands_on_the_right_and_is_masked() -> None:
    rows, mask = padded([[5], [6, 7]], padding=3)
    assert rows.tolist() == [[5, 3], [6, 7]]
    assert mask.tolist() == [[1, 0], [1, 1]]
