"""Settings: read once, nothing unknown, nothing out of its limits."""

import errno
import os
from pathlib import Path

import pytest

from memory_svc.errors import Invalid
from memory_svc.settings import load, refusal, traces_asked


def test_without_any_variable_the_defaults_hold() -> None:
    settings = load({"HOME": "/home/ann"})
    assert (settings.host, settings.port, settings.embedding_url) == ("127.0.0.1", 8402, "http://127.0.0.1:8401")


def test_variables_are_read_as_their_types() -> None:
    settings = load(
        {"MEMORY_PORT": "0", "MEMORY_ALLOW_UNAUTHENTICATED_HTTP": "true", "MEMORY_DATA_DIR": "/x", "PATH": "y"}
    )
    assert (settings.port, settings.allow_unauthenticated_http, settings.data_dir) == (0, True, "/x")


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        ({"MEMORY_PROT": "1"}, "MEMORY_PROT"),
        ({"MEMORY_PORT": "eighty"}, "MEMORY_PORT"),
        ({"MEMORY_PORT": "70000"}, "MEMORY_PORT"),
        (
            {"MEMORY_LOG_LEVEL": "loud"},
            "MEMORY_LOG_LEVEL: is none of debug, error, info, warning; give one of them",
        ),
        ({"MEMORY_ALLOW_UNAUTHENTICATED_HTTP": "maybe"}, "MEMORY_ALLOW_UNAUTHENTICATED_HTTP"),
        ({"MEMORY_DATA_DIR": ""}, "MEMORY_DATA_DIR"),
        ({"MEMORY_EMBEDDING_URL": "not a url"}, "MEMORY_EMBEDDING_URL"),
    ],
)
def test_what_cannot_be_used_stops_the_start_and_is_named(environ: dict[str, str], told: str) -> None:
    with pytest.raises(Invalid, match=told):
        load(environ)


@pytest.mark.parametrize("name", ["MEMORY_PORT", "MEMORY_LOG_LEVEL"])
def test_the_value_of_a_bad_setting_is_not_repeated(name: str) -> None:
    with pytest.raises(Invalid) as refused:
        load({name: "s3cret"})
    assert "s3cret" not in refused.value.text


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


def test_who_may_not_use_the_data_folder_is_told_what_to_run(tmp_path: Path) -> None:
    said = refusal(tmp_path / "memory.db", PermissionError(errno.EACCES, "Permission denied"))
    assert f"as root run `chown -R {os.geteuid()}:{os.getegid()} {tmp_path}`" in said
    assert "mount" in refusal(tmp_path / "memory.db", OSError(errno.EROFS, "Read-only file system"))
    assert refusal(tmp_path / "memory.db", OSError(errno.ENOSPC, "No space left")).endswith(": No space left")
