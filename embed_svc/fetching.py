"""Fetching one file from the model hub: what came before a break is kept and only the rest is fetched.

The hub's own library begins a file anew in each process; a file here is whole and checked before it has its name.
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
from huggingface_hub import HfFileMetadata, get_hf_file_metadata, hf_hub_url
from huggingface_hub.utils import WeakFileLock, build_hf_headers  # type: ignore[attr-defined]

HUB_ERRORS = (OSError, ValueError, httpx2.HTTPError, httpx2.InvalidURL)
_SILENCE_SECONDS_MAX = 20.0
_BLOCK_BYTES = 1 << 20


def fetch(repo: str, name: str, commit: str, target: Path, told: Callable[[int, int], None]) -> None:
    """Fetch one file of a repository to `target`; `told` hears bytes done and bytes in all, at each percent.

    HF_ENDPOINT and HF_TOKEN are honoured. Raises one of HUB_ERRORS where it breaks off; what came stays beside the
    target, unless it is not what the hub says it should be.
    """
    address = hf_hub_url(repo, name, revision=commit)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    with WeakFileLock(target.with_name(f".{target.name}.lock")):
        if target.is_file():
            return
        expected = get_hf_file_metadata(address, timeout=_SILENCE_SECONDS_MAX)
        _append(expected, _headers(address, expected.location), part, told)
        _check(expected, part)
        part.replace(target)


def named(error: BaseException) -> str:
    """Return what a failure is called, and its status or system error where it has one; never an address."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    number = getattr(error, "errno", None)
    said = f", HTTP {status}" if status else f", {os.strerror(number)}" if number else ""
    return type(error).__name__ + said


def _append(expected: HfFileMetadata, headers: dict[str, str], part: Path, told: Callable[[int, int], None]) -> None:
    """Bring `part` to the expected size; where the hub cannot go on in the middle, from the beginning."""
    size = expected.size or 0
    have = part.stat().st_size if part.exists() else 0
    if have and have == size:
        return
    asked = headers | ({"range": f"bytes={have}-"} if 0 < have < size else {})
    with (
        httpx2.Client(timeout=_SILENCE_SECONDS_MAX, follow_redirects=True) as client,
        client.stream("GET", expected.location, headers=asked) as answer,
    ):
        answer.raise_for_status()
        have = have if answer.status_code == httpx2.codes.PARTIAL_CONTENT else 0
        percent = -1
        with part.open("r+b" if have else "wb") as file:
            file.seek(have)
            for block in answer.iter_raw(_BLOCK_BYTES):
                file.write(block)
                have += len(block)
                if size and 100 * have // size != percent:
                    percent = 100 * have // size
                    told(have, size)
            file.flush()
            os.fsync(file.fileno())


def _check(expected: HfFileMetadata, part: Path) -> None:
    """Raise OSError, and drop what came, where size or digest are not what the hub says."""
    size = part.stat().st_size
    if expected.size is not None and size < expected.size:
        raise OSError("the connection broke off")
    if size == (size if expected.size is None else expected.size) and _digest(part, expected.etag) in (
        expected.etag,
        None,
    ):
        return
    part.unlink()
    raise OSError("what came is not what the hub announced")


def _digest(file: Path, etag: str | None) -> str | None:
    """Return a file's digest as the hub writes it: SHA-256 of large files, git's SHA-1 of small ones; else None."""
    if etag is None or len(etag) not in (40, 64):
        return None
    digest = hashlib.sha256() if len(etag) == 64 else hashlib.sha1(usedforsecurity=False)
    if len(etag) == 40:
        digest.update(f"blob {file.stat().st_size}\0".encode())
    with file.open("rb") as content:
        while block := content.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _headers(address: str, location: str) -> dict[str, str]:
    """Return what to send along; a token goes to the hub itself and not to where it sends us for the file."""
    headers: dict[str, str] = build_hf_headers()
    if urlsplit(address).netloc != urlsplit(location).netloc:
        headers.pop("authorization", None)
    return headers | {"accept-encoding": "identity"}
