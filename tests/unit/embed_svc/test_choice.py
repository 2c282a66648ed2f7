"""Choosing once, writing it down, and keeping to it."""

import errno
import os
import re
import threading
from pathlib import Path

import msgspec
import pytest

from embed_svc import choice, models
from embed_svc.choice import Reached, Record
from embed_svc.errors import Invalid, Unavailable
from embed_svc.models import Declaration

JINA, MINILM = models.DEFAULT.name, models.FALLBACK.name
OFFERED = Reached("c0ffee", "the model hub offers it")
SILENT = Reached(None, "the model hub did not answer within 8 s")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "data" / choice.RECORD_NAME


def settle(
    file: Path, asked: str = "auto", replaces: str = "", reached: Reached = SILENT, packaged: bool = True
) -> tuple[Record, bool]:
    return choice.settle(asked, replaces, file, lambda _: reached, lambda _: packaged)


def never(_: Declaration) -> Reached:
    raise AssertionError("the hub was asked although the choice is made")


def made(file: Path, model: str = MINILM, fingerprint: str | None = "1:aa") -> Record:
    record = msgspec.structs.replace(choice.new_record(model, "test"), fingerprint=fingerprint)
    choice.keep(file, record)
    return record


def test_the_default_model_is_chosen_where_it_can_be_had(file: Path) -> None:
    record, is_new = settle(file, reached=OFFERED)
    assert (record.model, record.revision, is_new) == (JINA, "c0ffee", True)


def test_the_packaged_model_is_chosen_where_it_cannot_and_the_record_says_why(file: Path) -> None:
    record, is_new = settle(file)
    assert (record.model, is_new) == (MINILM, True)
    assert "did not answer within 8 s" in record.reason


def test_where_no_model_can_be_had_nothing_is_chosen_and_the_remedy_is_named(file: Path) -> None:
    with pytest.raises(Unavailable, match="pip install"):
        settle(file, packaged=False)
    assert not file.exists()


def test_a_choice_is_written_before_it_is_used_and_has_no_fingerprint_yet(file: Path) -> None:
    record, _ = settle(file)
    written = msgspec.json.decode(file.read_bytes())
    assert written == msgspec.to_builtins(record)
    assert set(written) == {"model", "revision", "fingerprint", "chosen_at", "reason"}
    assert written["fingerprint"] is None


def test_a_recorded_choice_is_kept_without_asking_again(file: Path) -> None:
    recorded = made(file)
    assert choice.settle("auto", "", file, never, lambda _: False) == (recorded, False)
    assert choice.settle(MINILM, "", file, never, lambda _: False) == (recorded, False)


def test_a_named_model_is_chosen_without_asking_the_hub(file: Path) -> None:
    record, is_new = choice.settle(JINA, "", file, never, lambda _: False)
    assert (record.model, record.reason, is_new) == (JINA, "EMBED_MODEL names it", True)


def test_another_model_than_recorded_is_refused_with_file_and_remedy(file: Path) -> None:
    recorded = made(file)
    with pytest.raises(Invalid, match=f"EMBED_MODEL_REPLACES={MINILM}") as refused:
        settle(file, asked=JINA)
    assert str(file) in refused.value.text
    assert choice.read(file) == recorded


@pytest.mark.parametrize("consent", [MINILM, "1:aa"])
def test_consent_names_what_is_given_up_and_has_no_effect_afterwards(file: Path, consent: str) -> None:
    made(file)
    record, is_new = settle(file, asked=JINA, replaces=consent)
    assert (record.model, record.fingerprint, is_new) == (JINA, None, True)
    assert settle(file, asked=JINA, replaces=consent) == (record, False)
    with pytest.raises(Invalid, match=f"EMBED_MODEL_REPLACES={JINA}"):
        settle(file, asked=MINILM, replaces=consent)


def test_consent_to_give_up_something_else_is_no_consent(file: Path) -> None:
    made(file)
    with pytest.raises(Invalid, match="records all-MiniLM"):
        settle(file, asked=JINA, replaces="bge-m3")


def test_changed_files_of_the_same_model_need_the_recorded_fingerprint_as_consent(file: Path) -> None:
    recorded = made(file)
    assert settle(file, asked=MINILM, replaces=MINILM) == (recorded, False)
    record, is_new = settle(file, asked=MINILM, replaces="1:aa")
    assert (record.fingerprint, is_new) == (None, True)
    completed = choice.completed(record, "2", "1:bb", file)
    choice.keep(file, completed)
    assert settle(file, asked=MINILM, replaces="1:aa") == (completed, False)


def test_an_unknown_model_is_refused(file: Path) -> None:
    with pytest.raises(Invalid, match="there are: auto, jina"):
        settle(file, asked="word2vec")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"model": 1}', b"\xff\xfe"])
def test_a_damaged_record_stops_the_start_and_is_left_as_it_is(file: Path, content: bytes) -> None:
    file.parent.mkdir()
    file.write_bytes(content)
    with pytest.raises(Invalid, match="cannot be read") as refused:
        settle(file)
    assert str(file) in refused.value.text
    assert file.read_bytes() == content


def test_a_record_of_a_model_from_another_version_stops_the_start(file: Path) -> None:
    made(file, model="of-tomorrow")
    with pytest.raises(Invalid, match="does not know"):
        settle(file)


def test_a_fingerprint_is_recorded_once_and_another_is_refused(file: Path) -> None:
    record = choice.new_record(MINILM, "test")
    completed = choice.completed(record, "r1", "1:aa", file)
    assert (completed.revision, completed.fingerprint) == ("r1", "1:aa")
    assert choice.completed(completed, "r1", "1:aa", file) == completed
    with pytest.raises(Invalid, match="EMBED_MODEL_REPLACES=1:aa"):
        choice.completed(completed, "r1", "1:bb", file)


def test_of_processes_that_choose_at_once_the_first_one_decides_for_all(file: Path) -> None:
    start = threading.Barrier(8)
    chosen: list[Record] = []

    def choose(index: int) -> None:
        start.wait()
        record, _ = settle(file, reached=OFFERED if index % 2 else SILENT)
        chosen.append(record)

    threads = [threading.Thread(target=choose, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {record.model for record in chosen} == {msgspec.json.decode(file.read_bytes())["model"]}
    assert [one.name for one in file.parent.iterdir()] == [choice.RECORD_NAME]


def test_a_choice_made_elsewhere_meanwhile_stands(file: Path) -> None:
    def overtaken(_: Declaration) -> bool:
        made(file, model="bge-m3")
        return True

    record, is_new = choice.settle("auto", "", file, lambda _: SILENT, overtaken)
    assert (record.model, is_new) == ("bge-m3", False)


def test_a_record_that_cannot_be_written_is_told_with_its_file(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where the folder should be")
    with pytest.raises(Unavailable, match="no vector is served before its model is recorded"):
        choice.keep(tmp_path / "data" / "model.json", choice.new_record(MINILM, "test"))


def test_a_record_that_this_user_may_not_read_names_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(Invalid, match=re.escape(f"as root run `chown -R {os.geteuid()}:{os.getegid()} {tmp_path}`")):
        choice.read(tmp_path / "model.json")
