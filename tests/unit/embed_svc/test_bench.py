"""The benchmark: what it sends, what it counts, what a graph costs; never how fast anything is."""

import itertools
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from embed_svc import __main__, bench, cost
from embed_svc.batching import Limits
from embed_svc.bench import Counted, Load, Report
from embed_svc.cost import Cost
from embed_svc.errors import Invalid
from embed_svc.models import Tokens
from tests.support.embed_model import FakeModel

COST = Cost(parameters=1_000, layers=2, width=10)


def tokens(count: int) -> Tokens:
    """A text of so many tokens."""
    return Tokens(ids=[1] * count, count=count)


def write_graph(file: Path, quantised: bool) -> None:
    """A table of 7 × 4, looked up; a matrix of 4 × 6, multiplied, as it is or in int8 behind a scale; one softmax."""
    matrix = np.ones((4, 6), np.int8 if quantised else np.float32)
    nodes = [helper.make_node("Gather", ["table", "ids"], ["hidden"])]
    if quantised:
        nodes += [
            helper.make_node("Cast", ["matrix"], ["wide"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["wide", "scale"], ["weights"]),
        ]
    nodes += [
        helper.make_node("MatMul", ["hidden", "weights" if quantised else "matrix"], ["product"]),
        helper.make_node("Softmax", ["product"], ["answer"]),
    ]
    weights = {"table": np.ones((7, 4), np.float32), "matrix": matrix, "scale": np.ones((1, 6), np.float32)}
    made = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["texts", "tokens"])],
        [helper.make_tensor_value_info("answer", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    onnx.save_model(helper.make_model(made), str(file))


@pytest.mark.parametrize("quantised", [False, True], ids=["as it is", "in int8"])
def test_a_matrix_that_is_multiplied_counts_and_a_table_or_a_scale_does_not(tmp_path: Path, quantised: bool) -> None:
    write_graph(tmp_path / "model.onnx", quantised)
    assert cost.read(tmp_path / "model.onnx", 4) == Cost(parameters=24, layers=1, width=4)


def test_operations_grow_with_tokens_by_the_weights_and_with_their_square_by_attention() -> None:
    assert COST.operations(1) == 2 * 1_000 + 4 * 2 * 10
    assert COST.operations(100) == 2 * 1_000 * 100 + 4 * 2 * 10 * 100**2


def test_what_runs_is_counted_with_its_padding() -> None:
    counted = Counted(FakeModel(), COST)
    counted.embed([tokens(3), tokens(5)])
    counted.embed([tokens(2)])
    assert (counted.tokens, counted.area) == (10, 12)
    assert counted.operations == sum(COST.operations(count) for count in (3, 5, 2))


def test_every_load_stays_within_the_window() -> None:
    assert [load.name for load in bench.loads(256)] == ["uniform 16", "uniform 128", "uniform 256", "mixed 8 to 256"]
    assert [load.name for load in bench.loads(32)] == ["uniform 16", "uniform 32", "mixed 8 to 32"]
    assert [load.name for load in bench.loads(4)] == ["uniform 4", "mixed 4 to 4"]


def test_texts_have_the_very_number_of_tokens_that_is_asked_for() -> None:
    model = FakeModel()
    uniform = list(itertools.islice(bench.texts(model, Load("uniform 16", 16, 16)), 20))
    assert {one.count for one in model.measure(uniform, "document")} == {16}
    assert len(set(uniform)) == 20
    mixed = [*itertools.islice(bench.texts(model, Load("mixed 8 to 32", 8, 32)), 200)]
    counts = [one.count for one in model.measure(mixed, "document")]
    assert (min(counts), max(counts)) == (8, 32)
    assert np.median(counts) == pytest.approx(16, abs=2)


def test_a_tokenizer_without_plain_words_is_refused() -> None:
    class Letters(FakeModel):
        def measure(self, texts: object, role: object) -> list[Tokens]:
            return [tokens(3 * len(text)) for text in texts]  # type: ignore[attr-defined]

    with pytest.raises(Invalid, match="no word of plain English"):
        next(bench.texts(Letters(), Load("uniform 16", 16, 16)))


def test_each_load_gets_a_row_from_the_embedder_that_serves() -> None:
    model = FakeModel()
    rows = bench.measured(model, COST, Limits(), seconds=0.05, product=1e9)
    assert [row.load for row in rows] == ["uniform 16", "uniform 32", "mixed 8 to 32"]
    assert all(row.texts >= 8 for row in rows)
    assert [row.padding for row in rows[:2]] == [0, 0]
    assert 0 < rows[2].padding <= 0.15
    assert all(row.share == pytest.approx(row.gigaflops_a_cpu_second) for row in rows)
    report = Report(model="fake", fingerprint="1:0", threads=2, product_gigaflops_a_cpu_second=1, rows=rows)
    assert [line.split("  ")[0] for line in report.table().splitlines()[2:]] == [row.load for row in rows]
    assert "fake on 2 threads" in report.table()
    assert [row["load"] for row in json.loads(bench.as_json(report))["rows"]] == [row.load for row in rows]


def test_the_rate_of_a_matrix_product_is_measured_in_a_process_of_its_own() -> None:
    assert bench.product_rate(threads=1, size=64, repeats=1) > 0


@pytest.mark.model
def test_without_a_record_the_packaged_model_is_measured_and_none_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EMBED_DATA_DIR", str(tmp_path))
    assert __main__.main(["bench", "--seconds", "0.1", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["model"] == "all-MiniLM-L6-v2"
    assert [row["load"] for row in report["rows"]][-1] == "mixed 8 to 256"
    assert list(tmp_path.iterdir()) == []


def test_settings_that_are_wrong_end_it_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EMBED_THREADS", "many")
    assert __main__.main(["bench"]) == 2
    assert "EMBED_THREADS" in capsys.readouterr().err
