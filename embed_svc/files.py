"""Getting a model's files onto this machine, from the hub, packages or a folder of one's own, and their digests."""

import hashlib
import queue
import re
import threading
import zipfile
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import msgspec
from huggingface_hub import HfApi, is_offline_mode, try_to_load_from_cache

from embed_svc import disk, receipt
from embed_svc.choice import Reached
from embed_svc.errors import Invalid, Unavailable
from embed_svc.fetching import HUB_ERRORS, fetch, named
from embed_svc.models import Declaration, Folder, Hub, Packaged

DECISION_SECONDS_MAX = 8.0
_CALL_SECONDS_MAX = 3.0
_MEANWHILE = "A server tries again and keeps to its choice; EMBED_MODEL with EMBED_MODEL_REPLACES takes another"
Progress = Callable[[str, int, int], None]
_TOKENIZER = "tokenizer.json"
_TOKENIZER_FILES = (_TOKENIZER, "tokenizer_config.json", "special_tokens_map.json")
# An entry `location` of an ONNX graph: the file beside it that holds weights.
_LOCATION = re.compile(rb"\x0a\x08location\x12([\x01-\x7f])")


class Files(msgspec.Struct, frozen=True):
    """A model's files: the graph, the folder of its tokenizer, and all of them by the names that digests go by."""

    graph: Path
    tokenizer: Path
    every: dict[str, Path]
    revision: str


def reach(declaration: Declaration, seconds_max: float = DECISION_SECONDS_MAX, data_dir: Path | None = None) -> Reached:
    """Say whether a hub model can be had, within `seconds_max` whatever the network does.

    Its files in `data_dir` or the hub's own cache are enough; else the hub is asked once, unless HF_HUB_OFFLINE
    forbids it.
    """
    if not isinstance(declaration.source, Hub):
        return Reached(None, "it is not on the hub")
    if here := _kept(declaration, declaration.source, None, data_dir):
        return Reached(here.revision, "its files are here already")
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


def obtain(
    declaration: Declaration,
    revision: str | None,
    data_dir: Path,
    say: Callable[[str], None],
    progress: Progress | None = None,
) -> Files:
    """Return the model's files, fetching or unpacking what is not there yet.

    `say` hears each longer step; `progress` the name of a file and how far it is, in bytes of bytes (left out, `say`
    hears that too).
    Raises Unavailable where they cannot be had now, Invalid where they are not what is declared.
    """
    match declaration.source:
        case Hub() as hub:
            step = f"of {declaration.name} (about {declaration.megabytes} MB in all)"
            told = progress or (lambda name, done, size: say(f"fetching {name} {step}: {100 * done // (size or 1)} %"))
            return _kept(declaration, hub, revision, data_dir) or _download(declaration, hub, revision, data_dir, told)
        case Packaged() as packaged:
            return _unpack(declaration, packaged, data_dir)
        case Folder() as own:
            return _own(declaration, own)


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


def external(graph: Path) -> set[str]:
    """Return the names of the files beside a graph that hold its weights, as the graph itself tells them."""
    content = graph.read_bytes()
    found = set()
    for entry in _LOCATION.finditer(content):
        length = entry.group(1)[0]
        found.add(content[entry.end() : entry.end() + length].decode("utf-8", "replace"))
    return found


def _ask(hub: Hub) -> Reached:
    if is_offline_mode():
        return Reached(None, "HF_HUB_OFFLINE is set and its files are not here")
    try:
        found = HfApi().model_info(hub.repo, timeout=_CALL_SECONDS_MAX)
    except HUB_ERRORS as error:
        return Reached(None, f"the model hub cannot be reached ({named(error)})")
    if found.sha is None:
        return Reached(None, "the model hub names no revision of it")
    return Reached(found.sha, "the model hub offers it")


def _kept(declaration: Declaration, hub: Hub, revision: str | None, data_dir: Path | None) -> Files | None:
    """Return the files where all of them are here: in our folder, or in the hub's own cache."""
    folder = receipt.folder_of(declaration, data_dir) if data_dir else None
    if folder and data_dir:
        kept = receipt.read(declaration, data_dir)
        commit = revision or (kept.revision if kept else None)
        every = {name: folder / commit / name for name in hub.files} if commit else {}
        if commit and all(path.is_file() for path in every.values()):
            return _files(hub, every, commit)
    cached = [try_to_load_from_cache(hub.repo, name, revision=revision) for name in hub.files]
    paths = [Path(path) for path in cached if isinstance(path, str)]
    # The cache keeps a file at `snapshots/<commit>/<name>`.
    commits = {path.parents[len(Path(name).parts) - 1].name for path, name in zip(paths, hub.files, strict=False)}
    if len(paths) < len(hub.files) or len(commits) > 1:
        return None
    return _files(hub, dict(zip(hub.files, paths, strict=True)), commits.pop())


def _files(hub: Hub, every: dict[str, Path], revision: str) -> Files:
    return Files(graph=every[hub.graph], tokenizer=every[_TOKENIZER].parent, every=every, revision=revision)


def _download(
    declaration: Declaration,
    hub: Hub,
    revision: str | None,
    data_dir: Path,
    told: Progress,
) -> Files:
    # Fetching itself takes long to find that there is no hub; this call, a moment.
    reached = _ask(hub)
    if reached.revision is None:
        raise Unavailable(f"{declaration.name} cannot be fetched: {reached.reason}. {_MEANWHILE}")
    commit = revision or reached.revision
    folder = receipt.folder_of(declaration, data_dir) / commit
    every = {name: folder / name for name in hub.files}
    for name in (name for name in hub.files if not every[name].is_file()):
        told(name, 0, 0)
        try:
            fetch(hub.repo, name, commit, every[name], partial(told, name))
        except HUB_ERRORS as error:
            raise Unavailable(
                f"{name} of {declaration.name} could not be fetched ({named(error)}); what came is kept, and the rest "
                f"is fetched at the next try. {_MEANWHILE}"
            ) from error
    return _files(hub, every, commit)


def _own(declaration: Declaration, source: Folder) -> Files:
    folder = Path(source.path)
    graph = folder / source.graph
    every = {source.graph: graph}
    if graph.is_file():
        inside = graph.parent.relative_to(folder)
        every |= {str(inside / name): graph.parent / name for name in external(graph)}
    every |= {name: folder / name for name in _TOKENIZER_FILES if name == _TOKENIZER or (folder / name).is_file()}
    missing = sorted(name for name, path in every.items() if not path.is_file())
    if missing:
        raise Invalid(f"{', '.join(missing)} of {declaration.name} is not in {folder}: put it there, and start again")
    return Files(graph, folder, every, source.revision or _contents_of(every))


def _contents_of(every: dict[str, Path]) -> str:
    """Return a revision for files that have none: what their digests say."""
    found = digests(Files(Path(), Path(), every, ""))
    return "sha256:" + hashlib.sha256(repr(sorted(found.items())).encode()).hexdigest()[:16]


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
