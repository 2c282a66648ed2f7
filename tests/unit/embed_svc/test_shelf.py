"""What the commands `models`, `download` and `compare` print, and their exit status."""

import io
from pathlib import Path

import numpy as np
import pytest

from embed_svc import __main__, choice, compare, files, models, shelf
from embed_svc.choice import Reached
from embed_svc.settings import Settings


@pytest.fixture
def unreached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_ask", lambda _: Reached(None, "the model hub cannot be reached"))


@pytest.mark.usefixtures("unreached")
def test_every_model_has_its_row_with_size_licence_languages_and_whether_it_can_be_had(tmp_path: Path) -> None:
    listed = shelf.listing(Settings(data_dir=str(tmp_path)))
    for one in models.MODELS:
        (row,) = [line for line in listed.splitlines() if f" {one.name}  " in line]
        assert f"{one.megabytes} MB" in row
        assert one.licence in row
        assert one.languages in row
        assert ("yes, installed" in row) or ("no: the model hub cannot be reached" in row)
    assert "none is chosen yet" in listed
    assert "top-10 agreement 0.97" in listed


@pytest.mark.usefixtures("unreached")
def test_the_chosen_one_is_marked(tmp_path: Path) -> None:
    choice.keep(tmp_path / choice.RECORD_NAME, choice.new_record("bge-m3", "test"))
    listed = shelf.listing(Settings(data_dir=str(tmp_path)))
    assert [line.split()[1] for line in listed.splitlines() if line.startswith("*  ")] == ["bge-m3"]
    own = choice.new_record("mine", "test", folder="/models/mine")
    choice.keep(tmp_path / choice.RECORD_NAME, own)
    assert "from /models/mine" in shelf.listing(Settings(data_dir=str(tmp_path)))


def test_progress_is_a_line_a_tenth_where_nobody_watches() -> None:
    out = io.StringIO()
    told = shelf.progress(out)
    for done in range(0, 10_000_001, 50_000):
        told("model.onnx", done, 10_000_000)
    lines = out.getvalue().splitlines()
    assert len(lines) == 11
    assert (lines[0], lines[-1]) == ("model.onnx 0 % 0 of 10 MB", "model.onnx 100 % 10 of 10 MB")


def test_progress_is_a_bar_on_a_terminal() -> None:
    class Terminal(io.StringIO):
        """What looks like one."""

        def isatty(self) -> bool:
            return True

    out = Terminal()
    told = shelf.progress(out)
    told("model.onnx", 0, 0)
    told("model.onnx", 5_000_000, 10_000_000)
    told("model.onnx", 10_000_000, 10_000_000)
    assert "\rmodel.onnx [###############...............]  50 % 5 of 10 MB" in out.getvalue()
    assert out.getvalue().endswith("100 % 10 of 10 MB\n")


def test_a_model_that_does_not_exist_and_a_bad_setting_stop_a_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EMBED_DATA_DIR", str(tmp_path))
    assert __main__.main(["download", "word2vec"]) == 2
    assert "there are: auto, jina" in capsys.readouterr().err
    monkeypatch.setenv("EMBED_PROT", "1")
    assert __main__.main(["models"]) == 2
    assert "did you mean EMBED_PORT?" in capsys.readouterr().err


@pytest.mark.usefixtures("unreached")
def test_a_model_that_cannot_be_had_now_is_status_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EMBED_DATA_DIR", str(tmp_path))
    assert __main__.main(["download", "bge-m3"]) == 1
    told = capsys.readouterr().err
    assert "bge-m3: 570 MB, licence MIT" in told
    assert "cannot be fetched" in told


@pytest.mark.model
def test_a_model_agrees_with_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EMBED_DATA_DIR", str(tmp_path / "data"))
    texts = tmp_path / "texts"
    texts.write_text(
        "\n\n".join(f"sentence number {number} about {['cats', 'dogs'][number % 2]}" for number in range(30))
    )
    assert __main__.main(["compare", "all-MiniLM-L6-v2", "all-MiniLM-L6-v2", str(texts)]) == 0
    printed = capsys.readouterr().out
    assert "30 texts" in printed
    assert "median 1.0000, worst 1.0000" in printed
    assert "agree to 100.0%" in printed
    assert "ms a text" in printed


def test_agreement_is_the_share_of_the_nearest_that_both_name() -> None:
    one = np.array([[9, 3, 2, 1], [3, 9, 2, 1], [3, 2, 9, 1], [3, 2, 1, 9]], np.float32)
    assert compare.agreement(one, one, top=2) == 1
    assert compare.agreement(one, one[:, ::-1], top=2) < 1
    assert compare.agreement(one, -one, top=3) == 1


@pytest.mark.parametrize("content", [b"", b"one line\n", b"\xff\n\xff\n"])
def test_a_file_without_two_texts_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    monkeypatch.setenv("EMBED_DATA_DIR", str(tmp_path / "data"))
    (tmp_path / "texts").write_bytes(content)
    assert __main__.main(["compare", "bge-m3", "bge-m3", str(tmp_path / "texts")]) == 2
    assert "texts" in capsys.readouterr().err
