"""What can be set, read once from the environment; nothing else in this package reads it."""

import difflib
import ipaddress
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, get_args, get_type_hints

import msgspec
from msgspec import Meta

from embed_svc.errors import Invalid

PREFIX = "EMBED_"
AUTO = "auto"
_COLLECTOR = re.compile(r"https?://[^/\s]\S*")

# No report leaves this machine, and no library writes notices between our log lines.
_LIBRARIES = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "ORT_DISABLE_TELEMETRY": "1",  # read when the library is loaded; its switch by call comes too late
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
}


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of one server, in the order of the docs; a field `port` is read from `EMBED_PORT`."""

    host: Annotated[
        str,
        Meta(
            min_length=1,
            description="Address to listen on. Beyond loopback only with `EMBED_TOKEN_FILE` or `EMBED_ALLOW_REMOTE`.",
        ),
    ] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535, description="Port to listen on; 0 takes a free one and logs it.")] = 8401
    allow_remote: Annotated[
        bool, Meta(description="Allow an address beyond loopback without a token: keep the network private.")
    ] = False
    token_file: Annotated[
        str,
        Meta(
            description="File of the bearer token that every route but `/livez`, `/readyz` and `/startupz` then asks "
            "for. Unset: no token is asked for."
        ),
    ] = ""
    data_dir: Annotated[
        str,
        Meta(
            description="Folder of `model.json` (which model was chosen) and unpacked files. Unset: the user's data "
            "folder (`$XDG_DATA_HOME` or `~/.local/share`, `~/Library/Application Support`, `%LOCALAPPDATA%`), "
            "`agent-memory/embed` in it."
        ),
    ] = ""
    model: Annotated[
        str,
        Meta(
            min_length=1,
            description="Model to serve: a name of `embed-svc models`, or a folder of your own with a `model.toml`. "
            "`auto`: the recorded one; at the first start the default model if it can be had, else the packaged one.",
        ),
    ] = AUTO
    model_replaces: Annotated[
        str,
        Meta(
            description="Consent to change: the name or fingerprint in `model.json` that `EMBED_MODEL` takes the place "
            "of (the fingerprint, where only its files changed). Once done it has no further effect."
        ),
    ] = ""
    threads: Annotated[
        int,
        Meta(ge=0, le=256, description="Threads of one inference. 0: what affinity and the cgroup's CPU quota allow."),
    ] = 0
    body_bytes_max: Annotated[int, Meta(ge=1_024, le=1 << 30, description="Largest request body, in bytes.")] = 4 << 20
    bodies_bytes_max: Annotated[
        int, Meta(ge=1_024, le=1 << 36, description="Most bytes of all bodies held at once; beyond it: 429.")
    ] = 64 << 20
    queue_texts_max: Annotated[
        int, Meta(ge=100, le=1_000_000, description="Most texts taken in and not yet answered; beyond it: 429.")
    ] = 4_096
    queue_tokens_max: Annotated[
        int, Meta(ge=1, le=1 << 30, description="Most tokens waiting for a batch: 429; of one request: 413.")
    ] = 262_144
    batch_tokens_max: Annotated[
        int, Meta(ge=1, le=1 << 20, description="Most tokens of one batch, padding included; a longer text runs alone.")
    ] = 512
    cache_bytes_max: Annotated[
        int, Meta(ge=0, le=1 << 36, description="Most memory for vectors of texts that came before; 0 keeps none.")
    ] = 64 << 20
    self_test_seconds: Annotated[
        int, Meta(ge=0, le=86_400, description="Time between self-tests while serving; 0: at the start alone.")
    ] = 600
    stop_seconds_max: Annotated[
        int, Meta(ge=0, le=3_600, description="Longest wait for requests in flight when the server is told to stop.")
    ] = 20
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="Least level of the JSON lines on stderr.")
    ] = "info"


def load(environ: Mapping[str, str]) -> Settings:
    """Return the settings that `environ` asks for.

    Raises Invalid, naming the variable and the remedy, on an unknown `EMBED_*` name, a bad value or a combination
    that is not allowed.
    """
    given = {name.removeprefix(PREFIX).lower(): text for name, text in environ.items() if name.startswith(PREFIX)}
    for field, text in given.items():
        _refuse_unknown(field)
        if not text.strip():
            raise Invalid(f"{PREFIX}{field.upper()} is empty: give it a value, or unset it for its default")
    try:
        settings = msgspec.convert(given, Settings, strict=False)
    except msgspec.ValidationError as error:
        said, _, place = str(error).partition(" - at `$.")
        name = PREFIX + place.rstrip("`").upper()
        if said.startswith("Invalid enum value"):
            words = get_args(get_args(get_type_hints(Settings, include_extras=True)[place.rstrip("`")])[0])
            said = f"is none of {', '.join(words)}"
        raise Invalid(f"{name}: {said[:1].lower()}{said[1:]}. Correct it, or unset it for its default") from None
    _refuse_contradictions(settings)
    if settings.data_dir:
        return settings
    return msgspec.structs.replace(settings, data_dir=str(_data_dir(environ, sys.platform)))


def from_environment() -> Settings:
    """Return `load` of this process's own environment; raises Invalid as `load` does."""
    return load(os.environ)


def traces_asked(environ: Mapping[str, str]) -> bool:
    """Return whether traces are to be sent: OpenTelemetry's own variables name a collector, and turn nothing off.

    Raises Invalid, naming the variable and the remedy, where they ask for what is not spoken here.
    """

    def said(*names: str) -> str:
        return next((text for name in names if (text := environ.get(name, "").strip())), "")

    exporter = said("OTEL_TRACES_EXPORTER").lower() or "otlp"
    collector = said("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    protocol = said("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    headers = said("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
    if said("OTEL_SDK_DISABLED").lower() == "true" or exporter == "none" or not collector:
        return False
    if exporter != "otlp":
        raise Invalid(f"OTEL_TRACES_EXPORTER: {exporter[:80]!r} is not known here: set otlp, or none for no traces")
    if protocol not in ("", "http/protobuf"):
        raise Invalid(
            f"OTEL_EXPORTER_OTLP_PROTOCOL: {protocol[:80]!r} is not spoken here: set http/protobuf, and the "
            "collector's port for it (4318, where gRPC has 4317)"
        )
    if not _COLLECTOR.fullmatch(collector):
        raise Invalid("OTEL_EXPORTER_OTLP_ENDPOINT is no address: write it like http://127.0.0.1:4318")
    if any("=" not in header for header in headers.split(",") if header.strip()):
        raise Invalid("OTEL_EXPORTER_OTLP_HEADERS: one is no header: write them like name=value,other=value")
    return True


def traces_from_environment() -> bool:
    """Return `traces_asked` of this process's own environment; raises Invalid as that does."""
    return traces_asked(os.environ)


def quieten_libraries() -> None:
    """Set, for this process, what turns off the libraries' telemetry and notices. Call before they are imported."""
    os.environ.update(_LIBRARIES)


def _refuse_unknown(field: str) -> None:
    known = Settings.__struct_fields__
    if field in known:
        return
    near = difflib.get_close_matches(field, known, n=1)
    hint = f"did you mean {PREFIX}{near[0].upper()}?" if near else "`embed-svc reference` lists the settings"
    raise Invalid(f"{PREFIX}{field.upper()} is not a setting ({hint}): correct or unset it")


def _refuse_contradictions(settings: Settings) -> None:
    if not (settings.allow_remote or settings.token_file or _is_loopback(settings.host)):
        raise Invalid(
            f"{PREFIX}HOST={settings.host} would serve other machines, unauthenticated. Use 127.0.0.1; or name a file "
            f"with a token in {PREFIX}TOKEN_FILE; or, where the network is private, set {PREFIX}ALLOW_REMOTE=true"
        )
    if settings.model_replaces and settings.model == AUTO:
        raise Invalid(
            f"{PREFIX}MODEL_REPLACES needs {PREFIX}MODEL to name the model that takes the place. Set that too, or "
            f"unset {PREFIX}MODEL_REPLACES"
        )


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _data_dir(environ: Mapping[str, str], platform: str) -> Path:
    where = {"win32": ("LOCALAPPDATA", "AppData/Local"), "darwin": ("", "Library/Application Support")}
    variable, below_home = where.get(platform, ("XDG_DATA_HOME", ".local/share"))
    if base := environ.get(variable):
        return Path(base, "agent-memory", "embed")
    try:
        return Path.home() / below_home / "agent-memory" / "embed"
    except RuntimeError:
        raise Invalid(f"this user has no home folder: set {PREFIX}DATA_DIR to a folder that lasts") from None
