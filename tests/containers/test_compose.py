"""The project as most people run it: brought up by Docker Compose, stopped, brought up again."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from embed_svc.models import DEFAULT
from tests.support.containers import IMAGES, Compose, Memory, Podman, until
from tests.support.monitoring import COMMITTED, SHORTER, replaced
from tests.support.processes import NO_HUB, free_port

MONITORING = "localhost/agent-memory-tests/monitoring:latest"
# Debian's programs have other names, and someone must be told of alerts.
OVERRIDE = f"""
services:
  prometheus: {{entrypoint: [prometheus]}}
  alertmanager: {{entrypoint: [prometheus-alertmanager]}}
  alert-receiver:
    image: {IMAGES["memory"]}
    networks: [inside]
    healthcheck: {{disable: true}}
    entrypoint: [python, -u, -c]
    command:
      - |
        import http.server, json
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                told = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                for each in told["alerts"]:
                    print("told", each["status"], each["labels"]["alertname"])
                self.send_response(200)
                self.end_headers()
        http.server.HTTPServer(("", 8080), Handler).serve_forever()
"""
pytestmark = [pytest.mark.containers, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def port() -> int:
    """Where the memory server is published."""
    return free_port()


@pytest.fixture(scope="module")
def compose(podman: Podman, port: int) -> Iterator[Compose]:
    """The project, up and healthy, under a name of its own."""
    with podman.serving() as socket:
        made = Compose(podman, socket, f"tests-{port}", MEMORY_PUBLISH=f"127.0.0.1:{port}", HF_ENDPOINT=NO_HUB)
        try:
            made.up()
            yield made
        finally:
            made.run("down", "--volumes", "--remove-orphans")


def test_what_was_stored_is_there_after_down_and_up(compose: Compose, port: int) -> None:
    memory = Memory(port, compose.token())
    assert memory.call("store", agent_id="me", content="The staging database is called harbour.")["embedded"] is True
    compose.run("down")
    compose.up()
    answer = Memory(port, compose.token()).call("recall", agent_id="me", query="What is the database called?")
    assert [row["content"] for row in answer["messages"]] == ["The staging database is called harbour."]
    assert answer["channels"]["vectors"] == "ran"


def test_an_outage_is_answered_through_told_and_caught_up(
    compose: Compose, port: int, podman: Podman, tmp_path: Path
) -> None:
    podman.build("tests/containers/monitoring.Dockerfile", MONITORING)
    watched(compose, tmp_path)
    compose.up("memory", "embed", "prometheus", "alertmanager", "alert-receiver")
    memory = Memory(port, compose.token())
    compose.run("stop", "embed")
    stored = memory.call("store", agent_id="me", content="The lighthouse is painted red.")
    assert stored["receipt"] == {"text": "done", "words": "done", "vector": "waiting"}
    answer = memory.call("recall", agent_id="me", query="lighthouse")
    assert answer["messages"][-1]["content"] == "The lighthouse is painted red."
    assert answer["channels"]["vectors"].startswith("degraded")
    until(lambda: memory.gauge("memory_embedding_degraded") == 1, 60, "the degraded gauge")
    until(lambda: "told firing MemoryEmbedding" in compose.run("logs", "alert-receiver"), 120, "the alert")
    compose.run("start", "embed")
    until(lambda: memory.gauge("memory_embedding_degraded") == 0, 120, "the end of the degradation")
    until(lambda: memory.gauge("memory_rows_waiting_for_vectors") == 0, 60, "the last vector")
    until(lambda: "told resolved MemoryEmbedding" in compose.run("logs", "alert-receiver"), 120, "the all-clear")
    assert memory.call("recall", agent_id="me", query="What colour is the lighthouse?")["channels"]["vectors"] == "ran"


def watched(compose: Compose, folder: Path) -> None:
    """Let the project be watched with the committed configuration, in shorter times."""
    override = folder / "override.yaml"
    override.write_text(OVERRIDE)
    for name in ("prometheus", "alertmanager"):
        shutil.copytree(COMMITTED / name, folder / name)
        for file in (folder / name).rglob("*.yml"):
            file.write_text(replaced(file.read_text(), SHORTER))
        compose.environment |= {
            f"{name.upper()}_IMAGE": MONITORING,
            f"{name.upper()}_CONFIGURATION": str(folder / name),
            f"{name.upper()}_PUBLISH": f"127.0.0.1:{free_port()}",
        }
    folder.chmod(0o755)
    compose.base += ["--file", str(override), "--profile", "observability"]


def test_nothing_else_is_published_and_embeddings_have_no_way_out(compose: Compose, port: int, podman: Podman) -> None:
    running = {each["Service"]: each for each in map(json.loads, compose.run("ps", "--format=json").splitlines())}
    published = [
        (name, each["URL"], each["PublishedPort"])
        for name, container in running.items()
        if name in IMAGES
        for each in container["Publishers"]
        if each["PublishedPort"]
    ]
    assert published == [("memory", "127.0.0.1", port)]
    tried = "import socket; socket.create_connection(('192.0.2.1', 80), timeout=3)"
    assert "Error" in podman.run("exec", running["embed"]["ID"], "python", "-c", tried, status=None)


def test_the_hub_is_asked_by_download_alone(compose: Compose, podman: Podman) -> None:
    name = f"{compose.project}-download"
    compose.run("run", "--detach", "--name", name, "download", DEFAULT.name)
    until(lambda: podman.inspect(name)["State"]["Status"] == "exited", 60, "the end of the download")
    assert podman.inspect(name)["State"]["ExitCode"] == 1
    assert "the model hub cannot be reached" in podman.logs(name)
    running = map(json.loads, compose.run("ps", "--format=json").splitlines())
    (embed,) = (each["ID"] for each in running if each["Service"] == "embed")
    assert "HF_HUB_OFFLINE is set" in podman.run("exec", embed, "embed-svc", "download", DEFAULT.name, status=None)


def test_a_container_may_use_what_is_set_and_no_more(compose: Compose, podman: Podman) -> None:
    running = map(json.loads, compose.run("ps", "--format=json").splitlines())
    for container in (each for each in running if each["Service"] != "alert-receiver"):
        held = podman.inspect(container["ID"])["HostConfig"]
        assert held["Memory"] > 0
        assert held["NanoCpus"] > 0 or held["CpuQuota"] > 0
        assert held["ReadonlyRootfs"] is True


def test_tokens_of_ones_own_are_read_from_files(podman: Podman, tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("EMBED_TOKEN", "MEMORY_TOKEN")}
    for name, file in files.items():
        file.write_text(f"{name}-of-these-tests\n")
        file.chmod(0o644)
    port = free_port()
    settings = {"MEMORY_PUBLISH": f"127.0.0.1:{port}"} | {name: str(file) for name, file in files.items()}
    with podman.serving() as socket:
        compose = Compose(podman, socket, f"tests-{port}", **settings)
        compose.base += ["--file", "docker/secrets.yaml"]
        try:
            compose.up()
            memory = Memory(port, "MEMORY_TOKEN-of-these-tests")
            assert memory.call("store", agent_id="me", content="A fact.")["embedded"] is True
            assert "of-these-tests" not in compose.run("logs")
            assert "of-these-tests" not in compose.run("config")
        finally:
            compose.run("down", "--volumes")
