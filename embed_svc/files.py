"""Getting a model's files onto this machine, from the hub or out of installed packages, and their digests."""

import hashlib
import queue
import threading
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import httpx2
import msgspec
from huggingface_hub import HfApi, hf_hub_download, is_offline_mode, try_to_load_from_cache

from embed_svc import disk
from embed_svc.choice import Reached
from embed_svc.errors import Invalid, Unavailable
from embed_svc.models import Declaration, Hub, Packaged

DECISION_SECONDS_MAX = 8.0
_CALL_SECONDS_MAX = 3.0
_MEANWHILE = "It is tried again and stays the chosen one; EMBED_MODEL with EMBED_MODEL_REPLACES takes another"
_HUB_ERRORS = (OSError, ValueError, httpx2.HTTPError, httpx2.InvalidURL)


class Files(msgspec.Struct, frozen=True):
    """A model's files: the graph, the folder of its tokenizer, and all of them by the names that digests go by."""

    graph: Path
    tokenizer: Path
    every: dict[str, Path]
    revision: str


def reach(declaration: Declaration, seconds_max: float = DECISION_SECONDS_MAX) -> Reached:
    """Say whether a hub model can be had, within `seconds_max` whatever the network does.

    Its files in the local cache are enough; else the hub is asked once, unless HF_HUB_OFFLINE forbids it.
    """
    if not isinstance(declaration.source, Hub):
        return Reached(None, "it is not on the hub")
    answers: queue.SimpleQueue[Reached] = queue.SimpleQueue()
    hub = declaration.source
    # A name server or hub that stays silent holds this thread, and only it: it is not waited for.
    threading.Thread(target=lambda: answers.put(_ask(hub)), name="embed-reach", daemon=True).start()
    try:
        return answers.get(timeout=seconds_max)
    except queue.Empty:
        return Reached(None, f"the model hub did not answer within {seconds_max:g} s")


def is_installed(declaration: Declaration) -> bool:
    """Say whether the packages of a packaged model are there; nothing is imported."""
    source = declaration.source
    return isinstance(source, Packaged) and all(
        _in_package(*place).is_file() for place in (source.graph, source.archive)
    )


def obtain(declaration: Declaration, revision: str | None, data_dir: Path, say: Callable[[str], None]) -> Files:
    """Return the model's files, fetching or unpacking what is not there yet; `say` hears each longer step.

    Raises Unavailable where they cannot be had now, Invalid where they are not what is declared.
    """
    if isinstance(declaration.source, Hub):
        return _download(declaration, declaration.source, revision, say)
    return _unpack(declaration, declaration.source, data_dir)


def digests(files: Files) -> dict[str, str]:
    """Return the SHA-256 of each file, in hex, by its name; reads them whole (about a second a gigabyte)."""
    found = {}
    for name, path in files.every.items():
        with path.open("rb") as content:
            found[name] = hashlib.file_digest(content, "sha256").hexdigest()
    return found


def check_digests(declaration: Declaration, found: dict[str, str]) -> None:
    """Raise Invalid where a file differs from the digest that its declaration pins."""
    if not isinstance(declaration.source, Packaged):
        return
    pinned = declaration.source.digests
    wrong = [name for name, digest in found.items() if pinned.get(name, digest) != digest]
    if wrong:
        raise Invalid(
            f"{', '.join(wrong)} of {declaration.name} is damaged or another version. Delete the unpacked file, "
            f"install again ({declaration.source.install}) and restart"
        )


def _ask(hub: Hub) -> Reached:
    if commit := _cached(hub, None):
        return Reached(commit, "its files are in the local cache")
    if is_offline_mode():
        return Reached(None, "HF_HUB_OFFLINE is set and its files are not in the local cache")
    try:
        found = HfApi().model_info(hub.repo, timeout=_CALL_SECONDS_MAX)
    except _HUB_ERRORS as error:
        return Reached(None, f"the model hub cannot be reached ({_named(error)})")
    if found.sha is None:
        return Reached(None, "the model hub names no revision of it")
    return Reached(found.sha, "the model hub offers it")


def _cached(hub: Hub, revision: str | None) -> str | None:
    """Return the commit whose files are all in the local cache; without `revision`, that of the main branch."""
    found = [try_to_load_from_cache(hub.repo, name, revision=revision) for name in hub.files]
    commits = {_commit(Path(path), name) for path, name in zip(found, hub.files, strict=True) if isinstance(path, str)}
    return commits.pop() if len(commits) == 1 and all(isinstance(path, str) for path in found) else None


def _download(declaration: Declaration, hub: Hub, revision: str | None, say: Callable[[str], None]) -> Files:
    commit = _cached(hub, revision)
    if commit is None:
        # The download itself takes half a minute to find that there is no hub; this call, a moment.
        reached = _ask(hub)
        if reached.revision is None:
            raise Unavailable(f"{declaration.name} cannot be fetched: {reached.reason}. {_MEANWHILE}")
        commit = revision or reached.revision
    every: dict[str, Path] = {}
    for name in hub.files:
        say(f"fetching {name} of {declaration.name} (about {declaration.megabytes} MB in all)")
        try:
            every[name] = Path(hf_hub_download(hub.repo, name, revision=commit))
        except _HUB_ERRORS as error:
            raise Unavailable(
                f"{name} of {declaration.name} could not be fetched ({_named(error)}). {_MEANWHILE}"
            ) from error
    return Files(graph=every[hub.graph], tokenizer=every["tokenizer.json"].parent, every=every, revision=commit)


def _commit(cached: Path, name: str) -> str:
    """Return the commit a cached file belongs to: the cache keeps it at `snapshots/<commit>/<name>`."""
    return cached.parents[len(Path(name).parts) - 1].name


def _unpack(declaration: Declaration, source: Packaged, data_dir: Path) -> Files:
    if not is_installed(declaration):
        raise Unavailable(f"the files of {declaration.name} are not installed: {source.install}")
    folder = data_dir / "models" / declaration.name
    graph = _in_package(*source.graph)
    try:
        with zipfile.ZipFile(_in_package(*source.archive)) as archive:
            for name in source.unpacked:
                _unpack_one(archive, name, folder)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise Unavailable(f"the tokenizer of {declaration.name} could not be unpacked to {folder}: {error}") from error
    every = {graph.name: graph, **{name: folder / name for name in source.unpacked}}
    return Files(graph=graph, tokenizer=folder, every=every, revision=source.revision)


def _unpack_one(archive: zipfile.ZipFile, name: str, folder: Path) -> None:
    """Write one file whole or not at all; one that is there is left as it is, its digest is checked later."""
    target = folder / name
    if not target.exists():
        disk.replace(target, archive.read(name))


def _in_package(package: str, name: str) -> Path:
    spec = find_spec(package)
    places = list(spec.submodule_search_locations or ()) if spec else []
    return Path(places[0] if places else package, name)


def _named(error: BaseException) -> str:
    status = getattr(getattr(error, "response", None), "status_code", None)
    return type(error).__name__ + (f", HTTP {status}" if status else "")
