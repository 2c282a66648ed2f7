"""The settings of the memory server, read once. Nothing else reads the environment."""

import errno
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from memory_svc.errors import Invalid
from memory_svc.misfit import misfit

PREFIX = "MEMORY_"
COLLECTOR = re.compile(r"https?://[^/\s]\S*")


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What can be set, in the order of the docs. Each field is read from `MEMORY_<FIELD>`."""

    data_dir: Annotated[str, Meta(min_length=1, description="Folder of the database and the token.")]
    host: Annotated[str, Meta(min_length=1, description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="Port to listen on; 0 = any free one.")] = 8402
    token_file: Annotated[
        str,
        Meta(description="File that holds the bearer token; empty = `token` in the data folder, made if absent."),
    ] = ""
    allow_unauthenticated_http: Annotated[
        bool, Meta(description="Answer over HTTP without a token. For a machine that nobody else can reach.")
    ] = False
    allowed_hosts: Annotated[
        str,
        Meta(description="Host names clients may use, separated by commas, besides the loopback names; `*` = any."),
    ] = ""
    allowed_origins: Annotated[
        str, Meta(description="Origins of web pages that may call, separated by commas, besides loopback ones.")
    ] = ""
    path_prefix: Annotated[
        str,
        Meta(
            pattern=r"^(?!/v1$)(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*\Z",
            description="Path beneath which a proxy publishes this server, such as `/memory`; it may be left out of a"
            " request.",
        ),
    ] = ""
    cors_origins: Annotated[
        str,
        Meta(description="Origins of web pages that may call and read the answers, separated by commas; empty = none."),
    ] = ""
    embedding_url: Annotated[
        str,
        Meta(pattern=r"^(https?://\S+)?$", description="Base address of the embedding server; empty = full text only."),
    ] = "http://127.0.0.1:8401"
    embedding_token_file: Annotated[
        str, Meta(description="File that holds the embedding server's bearer token; empty = it asks for none.")
    ] = ""
    embedding_query_seconds: Annotated[
        float, Meta(gt=0, le=60, description="Longest wait for a query's vector before recall goes on without it.")
    ] = 2.0
    embedding_store_seconds: Annotated[
        float, Meta(gt=0, le=300, description="Longest wait for vectors of texts before they are embedded later.")
    ] = 5.0
    embedding_failures_max: Annotated[
        int, Meta(ge=1, le=100, description="Failures in a row after which callers no longer wait for vectors.")
    ] = 2
    embedding_probe_seconds: Annotated[
        float,
        Meta(gt=0, le=3600, description="Pause after which an unused embedding server is asked whether it is well."),
    ] = 30.0
    block_chars: Annotated[
        int,
        Meta(
            ge=0,
            le=100_000,
            description="Characters of the blocks in which a longer text is embedded; 0 = as many as the model reads.",
        ),
    ] = 0
    blocks_max: Annotated[
        int,
        Meta(ge=1, le=1000, description="Blocks of one text at most; what lies behind is found by its words alone."),
    ] = 64
    default_agent: Annotated[
        str, Meta(description="Agent meant where a store names none; empty = it must be named.")
    ] = ""
    zone: Annotated[str, Meta(min_length=1, description="Time zone in which instants without one are read.")] = "UTC"
    content_chars_max: Annotated[
        int, Meta(ge=100, le=1_000_000, description="Longest content kept whole, in characters; the rest is cut.")
    ] = 16_000
    profile_chars_max: Annotated[
        int, Meta(ge=100, le=100_000, description="Longest profile kept whole, in characters; the rest is cut.")
    ] = 2_000
    recall_mode: Annotated[
        Literal["weighted", "rrf", "rsf", "cascade"],
        Meta(
            description="How recall puts rows in order: by a weighted sum of the evidence, by their ranks in the arms,"
            " by their scores between each arm's least and best, or one arm after the other."
        ),
    ] = "weighted"
    weight_fields: Annotated[float, Meta(ge=0, le=10, description="Weighted recall: what a row's own words count.")] = (
        0.25
    )
    weight_windows: Annotated[
        float, Meta(ge=0, le=10, description="Weighted recall: what the words of a row and its neighbours count.")
    ] = 0.5
    weight_speaker: Annotated[
        float, Meta(ge=0, le=10, description="Weighted recall: what it counts that the query names who speaks.")
    ] = 0.1
    weight_date: Annotated[
        float, Meta(ge=0, le=10, description="Weighted recall: what it counts that the query names the row's time.")
    ] = 0.1
    gate: Annotated[
        bool, Meta(description="Whether recall answers nothing where nothing that it found speaks to the query.")
    ] = True
    gate_precision: Annotated[
        Literal["strict", "balanced", "lenient"],
        Meta(description="How sure recall must be before it answers, for agents of which nothing else was chosen."),
    ] = "balanced"
    gate_sample_rows: Annotated[
        int, Meta(ge=30, le=2000, description="Memories and episodes of an agent by which the gate is calibrated.")
    ] = 200
    rrf_k: Annotated[
        int, Meta(ge=1, le=1000, description="Constant of reciprocal rank fusion: a larger one flattens the ranks.")
    ] = 60
    vector_newest_rows: Annotated[
        int, Meta(ge=0, description="Rows of a scope, those stored last, in which recall looks by meaning; 0 = all.")
    ] = 0
    episode_boundary: Annotated[
        bool, Meta(description="Whether memories from before the end of the newest episode count less.")
    ] = False
    episode_boundary_rate: Annotated[
        float, Meta(ge=0, le=1000, description="Episode boundary: how much less with each hour before it.")
    ] = 0.01
    episode_boundary_floor: Annotated[
        float, Meta(ge=0, le=1, description="Episode boundary: the least that a memory keeps of its score.")
    ] = 0.5
    recall_counts: Annotated[
        bool, Meta(description="Whether it is counted how often each memory is recalled, and kept when last.")
    ] = True
    recent_recall: Annotated[
        bool, Meta(description="Whether memories that were recalled a moment ago count less: answers then change.")
    ] = False
    recent_recall_factor: Annotated[
        float, Meta(ge=0, le=1, description="Recent recall: what a memory keeps of its score.")
    ] = 0.7
    recent_recall_minutes: Annotated[
        float, Meta(gt=0, le=100_000, description="Recent recall: for how long after a recall.")
    ] = 5.0
    confidence: Annotated[
        bool, Meta(description="Whether rows carry a confidence of cosine and age, and go in its order.")
    ] = False
    confidence_cosine_floor: Annotated[
        float, Meta(ge=-1, le=1, description="Confidence: the cosine that counts nothing.")
    ] = 0.2
    confidence_cosine_ceiling: Annotated[
        float, Meta(ge=-1, le=1, description="Confidence: the cosine that counts in full.")
    ] = 0.75
    confidence_decay_rate: Annotated[
        float, Meta(ge=0, le=1000, description="Confidence: how much less with each hour of age.")
    ] = 0.005
    confidence_decay_floor: Annotated[float, Meta(ge=0, le=1, description="Confidence: the least that age leaves.")] = (
        0.3
    )
    confidence_decay_ceiling: Annotated[
        float, Meta(ge=0, le=1, description="Confidence: how far recalls may raise that floor.")
    ] = 0.5
    confidence_span_hours_min: Annotated[
        float,
        Meta(ge=0, le=1e9, description="Confidence: the least span of the scope's memories that is reckoned with."),
    ] = 24.0
    confidence_reference_hours: Annotated[
        float, Meta(gt=0, le=1e9, description="Confidence: the span beyond which memories age the more slowly.")
    ] = 168.0
    confidence_resolved_factor: Annotated[
        float, Meta(ge=0, le=1, description="Confidence: what a resolved episode keeps.")
    ] = 0.3
    confidence_recall_boost: Annotated[
        float,
        Meta(ge=0, le=1, description="Confidence: what recalls raise the floor of age by, times ln(1 + recalls)."),
    ] = 0.02
    confidence_recall_fade: Annotated[
        float, Meta(ge=0, le=1000, description="Confidence: how that fades with each hour since the last recall.")
    ] = 0.002
    autocut: Annotated[
        bool,
        Meta(description="Whether an answer ends at its largest gap, where rows go by confidence or cosine alone."),
    ] = False
    autocut_gap: Annotated[
        float, Meta(ge=0, le=1, description="Autocut: the least gap, as a share of the best row's score.")
    ] = 0.15
    autocut_rows_min: Annotated[int, Meta(ge=2, le=100, description="Autocut: answers of fewer rows stay whole.")] = 3
    profile_rows_max: Annotated[
        int,
        Meta(ge=0, le=100, description="Profiles that stand behind an answer's rows where `limit` has room; 0 = none."),
    ] = 3
    profile_scope_rows_min: Annotated[
        int, Meta(ge=0, le=1_000_000, description="Memories and episodes from which on profiles stand there.")
    ] = 50
    preview_chars: Annotated[
        int, Meta(ge=0, le=16_000, description="Characters of a content that recall shows; 0 = all of it.")
    ] = 500
    similar_min: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="Cosine from which a store names another memory as saying nearly the same; 0 = it names none.",
        ),
    ] = 0.9
    body_bytes_max: Annotated[int, Meta(ge=1_000, le=100_000_000, description="Largest request body, in bytes.")] = (
        4_000_000
    )
    tools: Annotated[
        str,
        Meta(
            description="Tools that clients are shown: `core`, `full`, or names separated by commas. Any can be called."
        ),
    ] = "core"
    calls_per_second_max: Annotated[
        float, Meta(ge=0, le=1_000_000, description="Calls of one caller in a second; 0 = no limit.")
    ] = 1000.0
    calls_at_once_max: Annotated[
        int, Meta(ge=0, le=1_000_000, description="Calls of one caller under way at once; 0 = no limit.")
    ] = 200
    call_seconds_max: Annotated[
        float, Meta(gt=0, le=3600, description="Longest time one call may take before it is given up.")
    ] = 60.0
    idempotency_hours: Annotated[
        float, Meta(gt=0, le=8760, description="How long a repeated idempotency key is known.")
    ] = 24.0
    worker_seconds: Annotated[
        float, Meta(gt=0, le=3600, description="Pause between two rounds of background work.")
    ] = 5.0
    canary_seconds: Annotated[
        float,
        Meta(
            ge=0,
            le=86_400,
            description="Pause between two rounds of the canary, which asks for rows that are known; 0 = none.",
        ),
    ] = 0.0
    lease_seconds: Annotated[
        float, Meta(ge=1, le=3600, description="Silence after which another host may take the database over.")
    ] = 20.0
    lease_host: Annotated[
        str, Meta(description="What tells this host from others on one database; empty = its kernel's boot id.")
    ] = ""
    allow_shared_files: Annotated[
        bool,
        Meta(description="Open a database on a network or shared file system (NFS, SMB, 9p, virtiofs, FUSE, …)."),
    ] = False
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="Least severity that is logged.")
    ] = "info"


def load(environ: Mapping[str, str]) -> Settings:
    """The settings in `environ`.

    Raises Invalid when a name is unknown or a value cannot be used, naming it and what would be right.
    """
    given = {name.removeprefix(PREFIX).lower(): value for name, value in environ.items() if name.startswith(PREFIX)}
    unknown = sorted(set(given) - set(Settings.__struct_fields__))
    if unknown:
        names = ", ".join(PREFIX + name.upper() for name in unknown)
        raise Invalid(f"{names}: no such setting; see docs/reference/settings.md for those there are")
    given.setdefault("data_dir", str(default_data_dir(environ)))
    try:
        return msgspec.convert(given, Settings, strict=False)
    except msgspec.ValidationError as error:
        field, wrong = misfit(error, Settings)
        raise Invalid(f"{PREFIX}{field.upper()}: {wrong}") from error


def traces_asked(environ: Mapping[str, str]) -> bool:
    """Whether traces are to be sent: OpenTelemetry's own variables name a collector, and turn nothing off.

    Raises Invalid, naming the variable, when they ask for what is not spoken here.
    """

    def said(*names: str) -> str:
        return next((value for name in names if (value := environ.get(name, "").strip())), "")

    exporter = said("OTEL_TRACES_EXPORTER").lower() or "otlp"
    collector = said("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    protocol = said("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    headers = said("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
    if said("OTEL_SDK_DISABLED").lower() == "true" or exporter == "none" or not collector:
        return False
    if exporter != "otlp":
        raise Invalid(f"OTEL_TRACES_EXPORTER: {exporter[:80]!r} is not known here; set otlp, or none for no traces")
    if protocol not in ("", "http/protobuf"):
        raise Invalid(
            f"OTEL_EXPORTER_OTLP_PROTOCOL: {protocol[:80]!r} is not spoken here; set http/protobuf, and the collector's"
            " port for it (4318, where gRPC has 4317)"
        )
    if not COLLECTOR.fullmatch(collector):
        raise Invalid("OTEL_EXPORTER_OTLP_ENDPOINT: is no address; write it like http://127.0.0.1:4318")
    if any("=" not in header for header in headers.split(",") if header.strip()):
        raise Invalid("OTEL_EXPORTER_OTLP_HEADERS: one is no header; write them like name=value,other=value")
    return True


def default_data_dir(environ: Mapping[str, str]) -> Path:
    """Where a user's data belongs on this platform."""
    home = Path(environ.get("HOME") or environ.get("USERPROFILE") or Path.home())
    if sys.platform == "win32":
        return Path(environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "agent-memory"
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "agent-memory"
    return Path(environ.get("XDG_DATA_HOME") or home / ".local" / "share") / "agent-memory"


def refusal(path: Path, error: OSError) -> str:
    """Why a file of the data folder cannot be had, and what mends it."""
    if error.errno == errno.EROFS:
        return f"{path}: the file system cannot be written; mount {path.parent} so that it can"
    if error.errno in (errno.EACCES, errno.EPERM) and sys.platform != "win32":
        user = f"{os.geteuid()}:{os.getegid()}"
        return (
            f"{path}: user {user} may not read and write there; as root run `chown -R {user} {path.parent}` (of a"
            " container: on the folder that is mounted there)"
        )
    return f"{path}: {error.strerror or error}"


def environment() -> Mapping[str, str]:
    """The process's environment."""
    return os.environ
