"""Which model is served: chosen once, written beside the data, and kept until its owner consents to another."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from embed_svc import disk, folder, models
from embed_svc.errors import Invalid, Unavailable
from embed_svc.models import Declaration
from embed_svc.settings import AUTO

RECORD_NAME = "model.json"


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """The choice as written. Revision and fingerprint stay null until the model's first self-test has passed.

    No vector is ever served before both are written: a record without them can be no stored vector's. (A model whose
    identity is incomplete has no fingerprint, and says so with each vector.) `folder` is where a model of the user's
    own is; `generation` counts the consents to vectors of the same model that had moved.
    """

    model: str
    revision: str | None
    fingerprint: str | None
    chosen_at: str
    reason: str
    folder: str = ""
    generation: int = 0


class Reached(msgspec.Struct, frozen=True):
    """What came of asking whether the default model can be had: its revision, or why not."""

    revision: str | None
    reason: str


def new_record(model: str, reason: str, revision: str | None = None, folder: str = "", generation: int = 0) -> Record:
    """Return a record of a choice made now."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Record(model, revision, None, now, reason, folder, generation)


def read(file: Path) -> Record | None:
    """Return what is recorded, None where nothing is yet.

    Raises Invalid, naming the file and the remedy, where it cannot be read or names a model unknown here.
    """
    try:
        record = msgspec.json.decode(file.read_bytes(), type=Record)
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise Invalid(disk.refusal(file, error)) from None
    except (OSError, ValueError) as error:
        raise Invalid(
            f"{file} says which model made the stored vectors and cannot be read ({type(error).__name__}). Restore it; "
            "if no vector is stored yet, delete it and start again"
        ) from None
    if not record.folder and record.model not in {declaration.name for declaration in models.MODELS}:
        raise Invalid(f"{file} records a model this version does not know. Use the version that wrote it")
    return record


def decide(asked: str, replaces: str, recorded: Record | None, file: Path) -> Record | None:
    """Return the record to serve by; None where the first start is still to choose (see `choose`).

    `asked` is `auto`, a model's name or a folder; `replaces` consents to give up the recorded model, by its name or its
    fingerprint. Raises Invalid where another model is asked for than recorded, without that consent.
    """
    if asked == AUTO:
        return recorded
    wanted = folder.declaration(asked) if folder.is_folder(asked) else models.named(asked)
    place = wanted.source.path if isinstance(wanted.source, models.Folder) else ""
    if recorded is None:
        return new_record(wanted.name, "EMBED_MODEL names it", folder=place)
    if wanted.name == recorded.model:
        if recorded.fingerprint is not None and replaces == recorded.fingerprint:
            reason = f"its vectors replace those of {replaces}"
            return new_record(wanted.name, reason, folder=place, generation=recorded.generation + 1)
        moved = place != recorded.folder
        return msgspec.structs.replace(recorded, folder=place) if moved else recorded
    if replaces and replaces in (recorded.model, recorded.fingerprint):
        return new_record(wanted.name, f"EMBED_MODEL names it in place of {recorded.model}", folder=place)
    raise Invalid(
        f"EMBED_MODEL asks for {wanted.name}, but {file} records {recorded.model}, and vectors of two models do not "
        f"compare. Unset EMBED_MODEL to keep {recorded.model}; or, to change and embed every stored text again, set "
        f"EMBED_MODEL_REPLACES={recorded.model} as well"
    )


def choose(reach: Callable[[Declaration], Reached], packaged: Callable[[Declaration], bool]) -> Record:
    """Return the first start's choice: the default model where `reach` says it can be had, else the packaged one.

    Raises Unavailable where neither can be had; nothing is chosen then.
    """
    reached = reach(models.DEFAULT)
    if reached.revision is not None:
        return new_record(models.DEFAULT.name, reached.reason, reached.revision)
    if packaged(models.FALLBACK):
        return new_record(models.FALLBACK.name, f"{models.DEFAULT.name} cannot be had: {reached.reason}")
    install = models.FALLBACK.source.install if isinstance(models.FALLBACK.source, models.Packaged) else ""
    raise Unavailable(
        f"no model can be had: {models.DEFAULT.name}: {reached.reason}; {models.FALLBACK.name}: not installed "
        f"({install})"
    )


def settle(
    asked: str,
    replaces: str,
    file: Path,
    reach: Callable[[Declaration], Reached],
    packaged: Callable[[Declaration], bool],
) -> tuple[Record, bool]:
    """Return the record to serve by, and whether it is new: then it is written before this returns.

    Raises Invalid and Unavailable as `read`, `decide`, `choose` and `keep` do.
    """
    recorded = read(file)
    record = decide(asked, replaces, recorded, file)
    if record is not None and record is recorded:
        return record, False
    record = record or choose(reach, packaged)
    if recorded is not None:
        keep(file, record)
        return record, True
    first = _keep_first(file, record)
    if first is record:
        return record, True
    # Another process was quicker: its choice stands, unless it is not the one asked for.
    return decide(asked, "", first, file) or first, False


def keep(file: Path, record: Record) -> None:
    """Write the record in place of what is there, whole or not at all. Raises Unavailable where it cannot."""
    try:
        disk.replace(file, _encoded(record))
    except OSError as error:
        raise _unwritable(file, error) from error


def completed(record: Record, revision: str, fingerprint: str | None, file: Path) -> Record:
    """Return the record with what the running model turned out to be.

    Raises Invalid where a fingerprint is recorded already and differs: the model's files are not what they were.
    """
    if record.fingerprint not in (None, fingerprint):
        raise Invalid(
            f"the files of {record.model} are not those that {file} records (fingerprint {fingerprint}, recorded "
            f"{record.fingerprint}). Restore them and start again; or, to embed every stored text again, set "
            f"EMBED_MODEL={record.model} and EMBED_MODEL_REPLACES={record.fingerprint}"
        )
    return msgspec.structs.replace(record, revision=revision, fingerprint=fingerprint)


def _keep_first(file: Path, record: Record) -> Record:
    """Write a first choice, unless another process was quicker; return what is recorded now."""
    try:
        disk.create(file, _encoded(record))
    except FileExistsError:
        return read(file) or record
    except OSError as error:
        raise _unwritable(file, error) from error
    return record


def _encoded(record: Record) -> bytes:
    return msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"


def _unwritable(file: Path, error: OSError) -> Unavailable:
    return Unavailable(f"no vector is served before its model is recorded, and {disk.refusal(file, error)}")
