"""What the environment may ask for, and how a start that cannot be right is refused."""

import os
from pathlib import Path

import msgspec
import pytest

from embed_svc import settings
from embed_svc.errors import Invalid
from embed_svc.settings import Settings, load, traces_asked


def test_nothing_set_serves_on_loopback_with_a_data_folder_of_the_user() -> None:
    chosen = load({"HOME": "/home/x", "PATH": "/bin", "XDG_DATA_HOME": "/home/x/data"})
    assert (chosen.host, chosen.port, chosen.model) == ("127.0.0.1", 8401, "auto")
    assert Path(chosen.data_dir) == Path("/home/x/data/agent-memory/embed")


def test_what_is_set_is_taken_in_its_type() -> None:
    chosen = load({"EMBED_PORT": "9", "EMBED_ALLOW_REMOTE": "true", "EMBED_HOST": "0.0.0.0", "EMBED_DATA_DIR": "/d"})
    assert chosen == Settings(port=9, allow_remote=True, host="0.0.0.0", data_dir="/d")


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"EMBED_PROT": "1"}, r"EMBED_PROT is not a setting \(did you mean EMBED_PORT\?\)"),
        ({"EMBED_ZZZZZZZ": "1"}, "EMBED_ZZZZZZZ is not a setting .*embed-svc reference"),
        ({"EMBED_PORT": "high"}, "EMBED_PORT: expected `int`"),
        ({"EMBED_PORT": "65536"}, "EMBED_PORT: expected `int` <= 65535"),
        ({"EMBED_QUEUE_TEXTS_MAX": "99"}, "EMBED_QUEUE_TEXTS_MAX: expected `int` >= 100"),
        ({"EMBED_LOG_LEVEL": "loud"}, "EMBED_LOG_LEVEL: is none of debug, info, warning, error. Correct"),
        ({"EMBED_MODEL": " "}, "EMBED_MODEL is empty"),
        (
            {"EMBED_HOST": "0.0.0.0"},
            "EMBED_HOST=0.0.0.0 would serve other machines.*EMBED_TOKEN_FILE.*EMBED_ALLOW_REMOTE=true",
        ),
        ({"EMBED_HOST": "example.org"}, "EMBED_ALLOW_REMOTE=true"),
        ({"EMBED_MODEL_REPLACES": "x"}, "EMBED_MODEL_REPLACES needs EMBED_MODEL"),
    ],
)
def test_a_start_that_cannot_be_right_names_the_variable_and_the_remedy(environ: dict[str, str], said: str) -> None:
    with pytest.raises(Invalid, match=said):
        load(environ)


@pytest.mark.parametrize("consent", [{"EMBED_ALLOW_REMOTE": "true"}, {"EMBED_TOKEN_FILE": "/token"}])
def test_beyond_loopback_it_takes_a_token_or_a_word(consent: dict[str, str]) -> None:
    assert load({"EMBED_HOST": "0.0.0.0", "EMBED_DATA_DIR": "/d", **consent}).host == "0.0.0.0"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_every_loopback_address_needs_no_consent(host: str) -> None:
    assert load({"EMBED_HOST": host, "EMBED_DATA_DIR": "/d"}).host == host


@pytest.mark.parametrize(
    ("platform", "environ", "expected"),
    [
        ("linux", {}, ".local/share/agent-memory/embed"),
        ("darwin", {}, "Library/Application Support/agent-memory/embed"),
        ("win32", {}, "AppData/Local/agent-memory/embed"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/agent-memory/embed"),
    ],
)
def test_each_system_has_its_data_folder(platform: str, environ: dict[str, str], expected: str) -> None:
    assert settings._data_dir(environ, platform) == Path.home() / expected


def test_settings_cannot_be_changed_and_each_is_described() -> None:
    chosen = Settings()
    with pytest.raises(AttributeError):
        chosen.port = 1  # type: ignore[misc]
    schema = msgspec.json.schema(Settings)["$defs"]["Settings"]["properties"]
    assert all(field.get("description") for field in schema.values())


def test_libraries_are_told_to_report_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in settings._LIBRARIES:
        monkeypatch.setenv(name, "0")
    settings.quieten_libraries()
    assert os.environ["HF_HUB_DISABLE_TELEMETRY"] == os.environ["DO_NOT_TRACK"] == "1"


NAMED = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}


@pytest.mark.parametrize(
    ("environ", "asked"),
    [
        ({}, False),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SERVICE_NAME": "x"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, False),
        (NAMED, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://collector.example/v1/traces"}, True),
        (NAMED | {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, True),
        (NAMED | {"OTEL_TRACES_EXPORTER": "none"}, False),
        (NAMED | {"OTEL_SDK_DISABLED": "TRUE"}, False),
        (NAMED | {"OTEL_SDK_DISABLED": "false"}, True),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_TRACES_EXPORTER": "zipkin"}, False),
    ],
)
def test_traces_are_asked_for_by_naming_a_collector(environ: dict[str, str], asked: bool) -> None:
    assert traces_asked(environ) is asked


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        (NAMED | {"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER: 'zipkin' .*set otlp, or none"),
        (NAMED | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc' .*4318"),
        (NAMED | {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json"}, "http/json"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318"}, "OTEL_EXPORTER_OTLP_ENDPOINT.*write it like"),
        (NAMED | {"OTEL_EXPORTER_OTLP_HEADERS": "a=b,s3cret"}, "OTEL_EXPORTER_OTLP_HEADERS.*write them like"),
    ],
)
def test_traces_in_a_way_that_is_not_spoken_stop_the_start(environ: dict[str, str], told: str) -> None:
    with pytest.raises(Invalid, match=told):
        traces_asked(environ)


def test_a_header_for_the_collector_is_not_repeated() -> None:
    with pytest.raises(Invalid) as refused:
        traces_asked(NAMED | {"OTEL_EXPORTER_OTLP_HEADERS": "s3cret"})
    assert "s3cret" not in str(refused.value)
