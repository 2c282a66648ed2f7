"""What a model's files were when they were first had: revision and digests, checked at each start."""

from pathlib import Path

import msgspec

from embed_svc import disk
from embed_svc.errors import Invalid, Unavailable
from embed_svc.models import Declaration, Hub

RECEIPT_NAME = "receipt.json"


class Receipt(msgspec.Struct, frozen=True):
    """The revision that was fetched, and the SHA-256 in hex of each of its files by name."""

    revision: str
    digests: dict[str, str]


def folder_of(declaration: Declaration, data_dir: Path) -> Path:
    """Return where the files of a model are kept."""
    return data_dir / "models" / declaration.name


def read(declaration: Declaration, data_dir: Path) -> Receipt | None:
    """Return what is written of a model, None where nothing is. Raises Invalid where it cannot be read."""
    file = folder_of(declaration, data_dir) / RECEIPT_NAME
    try:
        return msgspec.json.decode(file.read_bytes(), type=Receipt)
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise Invalid(disk.refusal(file, error)) from None
    except (OSError, ValueError) as error:
        raise Invalid(
            f"{file} says which files of {declaration.name} were fetched and cannot be read ({type(error).__name__}). "
            "Restore it; or delete it to trust the files that are there"
        ) from None


def check(declaration: Declaration, revision: str, digests: dict[str, str], data_dir: Path) -> None:
    """Hold a hub model's files against those fetched at first, or write down that these are they.

    Raises Invalid, naming the files, where one differs; Unavailable where it cannot be written down.
    """
    if not isinstance(declaration.source, Hub):
        return
    kept = read(declaration, data_dir)
    if kept is None or kept.revision != revision:
        _write(declaration, Receipt(revision, digests), data_dir)
        return
    wrong = sorted(name for name, digest in digests.items() if kept.digests.get(name) != digest)
    if wrong:
        raise Invalid(
            f"{', '.join(wrong)} of {declaration.name} is not what was fetched at first, so it is damaged or was "
            f"replaced. Delete it and run `embed-svc download {declaration.name}`, then start again"
        )


def _write(declaration: Declaration, receipt: Receipt, data_dir: Path) -> None:
    file = folder_of(declaration, data_dir) / RECEIPT_NAME
    try:
        disk.replace(file, msgspec.json.format(msgspec.json.encode(receipt), indent=2) + b"\n")
    except OSError as error:
        raise Unavailable(disk.refusal(file, error)) from error
