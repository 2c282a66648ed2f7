"""The self-test's verdicts, and its vectors kept and compared."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from embed_svc import disk
from embed_svc.errors import Invalid, Unavailable
from embed_svc.self_test import PARAPHRASE, QUESTION, REFERENCE_NAME, STRANGER, compare, self_test, unsound
from tests.support.embed_model import FakeModel


def test_a_sound_model_passes_and_gives_its_vectors() -> None:
    assert self_test(FakeModel()).shape == (3, 16)
    assert self_test(FakeModel(alone=True, leaks=True)).shape == (3, 16)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (FakeModel(scale=2), "a vector has length 2.0000 instead of 1"),
        (FakeModel(scale=float("nan")), "no number"),
        (FakeModel(alike={STRANGER: QUESTION}), "a paraphrase .* is not nearer than a stranger"),
        (FakeModel(alike={STRANGER: QUESTION, PARAPHRASE: QUESTION}), "not nearer"),
        (FakeModel(leaks=True), "depends on its batch"),
    ],
    ids=["norm", "nan", "paraphrase", "all alike", "batch mates"],
)
def test_it_says_what_is_wrong(model: FakeModel, said: str) -> None:
    with pytest.raises(Invalid, match=said):
        self_test(model)


def test_vectors_of_other_dimensions_than_declared_are_unsound() -> None:
    assert "16 dimensions are declared" in str(unsound(np.ones((2, 3), np.float32), 16))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "data" / REFERENCE_NAME


def test_vectors_are_kept_at_first_and_the_same_ones_pass_later(file: Path) -> None:
    model = FakeModel()
    compare(model, self_test(model), file)
    kept = file.read_bytes()
    assert msgspec.json.decode(kept)["fingerprint"] == model.info.fingerprint
    compare(model, self_test(model), file)
    assert file.read_bytes() == kept


def turned(vectors: np.ndarray, cosine: float) -> np.ndarray:
    """Each row, turned so that its cosine to what it was is this."""
    other = np.random.default_rng(5).standard_normal(vectors.shape)
    other -= (other * vectors).sum(axis=1, keepdims=True) * vectors
    other /= np.linalg.norm(other, axis=1, keepdims=True)
    return np.asarray(cosine * vectors + np.sqrt(1 - cosine**2) * other, np.float32)


@pytest.mark.parametrize(("cosine", "moved"), [(0.99995, False), (0.9998, True), (0.6, True)])
def test_vectors_that_have_moved_are_refused_with_the_remedy(file: Path, cosine: float, moved: bool) -> None:
    model = FakeModel()
    vectors = self_test(model)
    compare(model, vectors, file)
    now = turned(vectors, cosine)
    if not moved:
        compare(model, now, file)
        return
    with pytest.raises(Invalid, match=f"vectors have moved .*EMBED_MODEL_REPLACES={model.info.fingerprint}") as refused:
        compare(model, now, file)
    assert str(file) in refused.value.text


def test_another_model_keeps_its_own(file: Path) -> None:
    one, other = FakeModel(), FakeModel(dimensions=8)
    other.info = msgspec.structs.replace(other.info, fingerprint="1:bb")
    compare(one, self_test(one), file)
    compare(other, self_test(other), file)
    assert msgspec.json.decode(file.read_bytes())["fingerprint"] == "1:bb"


def test_a_model_whose_identity_is_not_known_is_not_compared(file: Path) -> None:
    model = FakeModel()
    model.info = msgspec.structs.replace(model.info, fingerprint=None)
    compare(model, self_test(model), file)
    assert not file.exists()


@pytest.mark.parametrize("content", [b"", b"{", b'{"fingerprint": "1:0", "vectors": ["AAA"]}', b"\xff"])
def test_kept_vectors_that_cannot_be_read_are_told_and_left(file: Path, content: bytes) -> None:
    file.parent.mkdir()
    file.write_bytes(content)
    with pytest.raises(Invalid, match="cannot be read") as refused:
        compare(FakeModel(), self_test(FakeModel()), file)
    assert str(file) in refused.value.text
    assert file.read_bytes() == content


def test_fewer_kept_vectors_than_there_are_count_as_moved(file: Path) -> None:
    model = FakeModel()
    compare(model, self_test(model)[:1], file)
    with pytest.raises(Invalid, match="have moved"):
        compare(model, self_test(model), file)


def test_vectors_that_cannot_be_kept_are_told(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk, "replace", full)
    with pytest.raises(Unavailable, match="cannot be written"):
        compare(FakeModel(), self_test(FakeModel()), file)
