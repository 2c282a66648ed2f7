"""A model of one's own: what its model.toml may say."""

from pathlib import Path

import pytest

from embed_svc import choice, folder
from embed_svc.errors import Invalid
from embed_svc.models import Folder

LEAST = 'name = "mine"\ndimensions = 4\nwindow = 8\npooling = "cls"\n'


def made(place: Path, text: str) -> str:
    place.mkdir(exist_ok=True)
    (place / folder.DECLARATION_NAME).write_text(text)
    return str(place)


def test_the_least_it_may_say(tmp_path: Path) -> None:
    one = folder.declaration(made(tmp_path, LEAST))
    assert (one.name, one.dimensions, one.window, one.pooling, one.precision) == ("mine", 4, 8, "cls", None)
    assert one.source == Folder(path=str(tmp_path), graph="model.onnx")


def test_all_it_may_say(tmp_path: Path) -> None:
    more = (
        'graph = "onnx/m.onnx"\nprecision = "fp16"\nquery_prefix = "q: "\ndocument_prefix = "d: "\n'
        'dimensions_min = 2\nalone = true\nrevision = "7"\nlicence = "MIT"\nlanguages = "Thai"\n'
    )
    one = folder.declaration(made(tmp_path, LEAST + more))
    assert (one.prefix("query"), one.prefix("document"), one.precision) == ("q: ", "d: ", "fp16")
    assert (one.dimensions_min, one.alone, one.licence, one.languages) == (2, True, "MIT", "Thai")
    assert one.source == Folder(path=str(tmp_path), graph="onnx/m.onnx", revision="7")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "missing required field `name`"),
        (LEAST + "colour = 1", "unknown field `colour`"),
        (LEAST.replace("cls", "max"), "pooling"),
        (LEAST.replace("dimensions = 4", "dimensions = 0"), "dimensions"),
        (LEAST.replace("window = 8", "window = 3"), "window"),
        (LEAST.replace("mine", "../mine"), "name"),
        (LEAST + 'graph = "../other/model.onnx"', "graph: name a file within the folder"),
        (LEAST + 'graph = "/etc/passwd"', "graph: name a file within the folder"),
        ("name = ", "TOMLDecodeError"),
        ("\ufeff\x00", "TOMLDecodeError"),
    ],
)
def test_what_cannot_be_read_is_refused_by_file_and_field(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(Invalid, match=said) as refused:
        folder.declaration(made(tmp_path, text))
    assert folder.DECLARATION_NAME in refused.value.text


def test_a_folder_without_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"model\.toml cannot be read \(FileNotFoundError\)"):
        folder.declaration(str(tmp_path))


@pytest.mark.parametrize(("asked", "expected"), [("bge-m3", False), ("auto", False), ("./mine", True), ("/m", True)])
def test_what_holds_a_separator_is_a_folder(asked: str, expected: bool) -> None:
    assert folder.is_folder(asked) is expected


def test_the_choice_of_a_folder_is_recorded_with_its_place_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "data" / choice.RECORD_NAME
    place = made(tmp_path / "mine", LEAST)

    def settle(asked: str) -> choice.Record:
        return choice.settle(asked, "", file, lambda _: choice.Reached(None, "no"), lambda _: True)[0]

    assert (settle(place).model, settle(place).folder) == ("mine", place)
    assert settle("auto") == settle(place)
    moved = made(tmp_path / "elsewhere", LEAST)
    assert settle(moved).folder == moved
    with pytest.raises(Invalid, match="EMBED_MODEL_REPLACES=mine"):
        settle("bge-m3")


def test_consent_to_vectors_that_moved_counts_a_generation(tmp_path: Path) -> None:
    recorded = choice.Record("all-MiniLM-L6-v2", "1", "1:aa", "now", "test", generation=2)
    record = choice.decide("all-MiniLM-L6-v2", "1:aa", recorded, tmp_path)
    assert record is not None
    assert (record.generation, record.fingerprint) == (3, None)
