"""The images: small, for any user, unable to do more than they must, silent towards the world."""

import contextlib
import dataclasses
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from embed_svc.models import DEFAULT
from tests.support.containers import BASE, IMAGES, Memory, Podman, until
from tests.support.processes import NO_HUB, ROOT, free_port

pytestmark = [pytest.mark.containers, pytest.mark.timeout(1800)]

HARDENED = (
    "--read-only",
    "--tmpfs=/tmp:size=64m,mode=1777",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
)
ANY_USER = "--user=12345"
STATE = """
import os
status = dict(line.split(":", 1) for line in open("/proc/1/status").read().splitlines() if ":" in line)
print(os.getuid(), int(status["CapEff"], 16), int(status["NoNewPrivs"]), int(status["Seccomp"]))
"""
SIZES_MB_MAX = {"memory": 270, "embed": 350}
POST = """
import json, pathlib, urllib.request
def post(url, body, token=""):
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    asked = urllib.request.Request(url, json.dumps(body).encode(), headers)
    return json.load(urllib.request.urlopen(asked, timeout=20))
def ask(name, **arguments):
    return post(f"http://127.0.0.1:8402/v1/{name}", arguments, pathlib.Path("/data/token").read_text().strip())
"""
ASKED = f'{POST}print(json.dumps(ask("recall", agent_id="a", query="harbour")))'
USED = f'{POST}ask("store", agent_id="a", content="The harbour opens at six.")\n{ASKED.removeprefix(POST)}'
SCRAPED = 'print(urllib.request.urlopen("http://127.0.0.1:8401/metrics", timeout=20).read().decode())'
ALONE = {"MEMORY_EMBEDDING_URL": "", "EMBED_ALLOW_REMOTE": "true"}


def settings(name: str) -> list[str]:
    """The environment of a container that runs alone."""
    other = {"memory": "EMBED_", "embed": "MEMORY_"}[name]
    return [f"--env={key}={value}" for key, value in ALONE.items() if not key.startswith(other)]


@pytest.fixture(params=["memory", "embed"])
def name(request: pytest.FixtureRequest) -> str:
    """Each service."""
    return str(request.param)


@pytest.fixture
def running(podman: Podman, name: str) -> Iterator[str]:
    """The service in a container that may do as little as possible, as a user whom no image knows."""
    with podman.container(*HARDENED, ANY_USER, *settings(name), IMAGES[name]) as id:
        until(lambda: probe(podman, id, name) == "", 60, f"{name}: {podman.logs(id)[-2000:]}")
        yield id


def probe(podman: Podman, id: str, name: str) -> str:
    """What the health check of the image says; "" = well."""
    command = podman.inspect(id)["Config"]["Healthcheck"]["Test"]
    assert command[0] == "CMD"
    assert not any(" " in word for word in command)
    return podman.run("exec", id, *command[1:], status=None)


def test_any_user_runs_it_read_only_and_without_capabilities(podman: Podman, running: str) -> None:
    assert podman.run("exec", running, "python", "-c", STATE).split() == ["12345", "0", "1", "2"]
    refused = podman.run("exec", running, "python", "-c", "open('/opt/agent-memory/x', 'w')", status=1)
    assert "Read-only file system" in refused
    assert podman.run("exec", running, "python", "-c", "open('/data/x', 'w')") == ""


def test_a_stop_is_obeyed_at_once(podman: Podman, running: str) -> None:
    podman.run("stop", "--time", "20", running)
    assert podman.inspect(running)["State"]["ExitCode"] == 0


def test_it_holds_its_own_and_nothing_that_builds(podman: Podman, name: str) -> None:
    other = {"memory": "embed_svc", "embed": "memory_svc"}[name]
    listed = (
        "import importlib.util, shutil;"
        f"print([each for each in ('{name}_svc', '{other}', 'pip', 'setuptools', 'torch', 'pytest')"
        " if importlib.util.find_spec(each)], [each for each in ('gcc', 'cc', 'make', 'git') if shutil.which(each)])"
    )
    assert podman.run("run", "--rm", "--entrypoint=python", IMAGES[name], "-c", listed).strip() == f"['{name}_svc'] []"


def test_it_says_what_it_is_and_what_is_in_it(podman: Podman, name: str) -> None:
    (image,) = json.loads(podman.run("image", "inspect", IMAGES[name]))
    labels = image["Config"]["Labels"]
    assert labels["org.opencontainers.image.title"] == f"{name}-svc"
    assert {"version", "revision", "licenses", "description"} <= {each.rpartition(".")[2] for each in labels}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert labels["org.opencontainers.image.version"] == project["version"]
    assert image["Config"]["User"] == "10001:0"
    read = "print(open('/opt/agent-memory/sbom.cdx.json').read())"
    bill = json.loads(podman.run("run", "--rm", "--entrypoint=python", IMAGES[name], "-c", read))
    assert bill["bomFormat"] == "CycloneDX"
    assert {"agent-memory", "litestar", "msgspec"} <= {each["name"] for each in bill["components"]}
    assert not {"pip", "torch"} & {each["name"] for each in bill["components"]}


def test_it_is_small(podman: Podman, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    whole, base = (json.loads(podman.run("image", "inspect", each))[0]["Size"] for each in (IMAGES[name], BASE))
    with capsys.disabled():
        print(f"\n{name}-svc: {(whole - base) / 1e6:.0f} MB beside its base of {base / 1e6:.0f} MB")
    assert whole - base < SIZES_MB_MAX[name] * 1_000_000


@dataclasses.dataclass
class Fence:
    """A network that counts what is not let out. `container`: who holds it."""

    podman: Podman
    container: str
    process: int
    address: str

    def iptables(self, *arguments: str) -> str:
        """What iptables says in it."""
        return self.podman.command("nsenter", "--net", f"--target={self.process}", "iptables", "--wait", *arguments)

    def refused(self) -> int:
        """How many packets wanted out, those that ask for a name too."""
        (count,) = re.findall(r"^ *(\d+) +\d+ REJECT", self.iptables("--list", "OUTPUT", "-vnx"), re.MULTILINE)
        return int(count)


@contextlib.contextmanager
def fenced(podman: Podman, service: int, *allowed: str, publish: str = "") -> Iterator[Fence]:
    """A network for a service, which lets out the service's answers and what is allowed.

    Another container holds it, so that it is there before the first packet and after the last.
    """
    published = [f"--publish={publish}:{service}"] if publish else []
    sleeping = ("--entrypoint=python", IMAGES["memory"], "-c", "import time; time.sleep(3600)")
    with podman.container("--stop-signal=KILL", *published, *sleeping) as holder:
        known = podman.inspect(holder)
        fence = Fence(podman, holder, known["State"]["Pid"], known["NetworkSettings"]["IPAddress"])
        for rule in (("-o", "lo"), ("-p", "tcp", "--sport", str(service)), allowed):
            if rule:
                fence.iptables("--append", "OUTPUT", *rule, "--jump", "ACCEPT")
        fence.iptables("--append", "OUTPUT", "--jump", "REJECT")
        yield fence


def test_neither_calls_anybody_else_from_its_start_to_its_end(podman: Podman) -> None:
    port = free_port()
    with contextlib.ExitStack() as stack:
        embed = stack.enter_context(fenced(podman, 8401))
        to_embed = ("-p", "tcp", "-d", embed.address, "--dport", "8401")
        memory = stack.enter_context(fenced(podman, 8402, *to_embed, publish=f"127.0.0.1:{port}"))
        fences = {"embed": embed, "memory": memory}
        given = {
            "embed": ["--env=EMBED_ALLOW_REMOTE=true"],
            "memory": [f"--env=MEMORY_EMBEDDING_URL=http://{embed.address}:8401"],
        }
        ids = {}
        for name, fence in fences.items():
            joined = f"--network=container:{fence.container}"
            id = stack.enter_context(podman.container(*HARDENED, joined, *given[name], IMAGES[name]))
            until(lambda id=id, name=name: probe(podman, id, name) == "", 60, name)
            ids[name] = id
        token = podman.run("exec", ids["memory"], "python", "-c", "print(open('/data/token').read())").strip()
        client = Memory(port, token)
        assert client.call("store", agent_id="a", content="The harbour opens at six.")["embedded"] is True
        assert client.call("recall", agent_id="a", query="When does it open?")["channels"]["vectors"] == "ran"
        assert client.gauge("memory_embedding_degraded") == 0
        assert "embed_requests" in podman.run("exec", ids["embed"], "python", "-c", POST + SCRAPED)
        for id in ids.values():
            podman.run("stop", "--time", "20", id)
            assert podman.inspect(id)["State"]["ExitCode"] == 0
        assert {name: fence.refused() for name, fence in fences.items()} == {"embed": 0, "memory": 0}
        tried = "import socket; socket.create_connection(('192.0.2.1', 80), timeout=3)"
        for fence in fences.values():
            podman.run("exec", fence.container, "python", "-c", tried, status=1)
            assert fence.refused() > 0


def test_what_was_stored_outlives_the_container(podman: Podman) -> None:
    volume = podman.run("volume", "create").strip()
    arguments = [*HARDENED, *settings("memory"), f"--volume={volume}:/data", IMAGES["memory"]]
    try:
        for program in (USED, ASKED):
            with podman.container(ANY_USER, *arguments) as id:
                until(lambda id=id: probe(podman, id, "memory") == "", 60, "memory")
                answer = json.loads(podman.run("exec", id, "python", "-c", program))
        assert [row["content"] for row in answer["messages"]] == ["The harbour opens at six."]
    finally:
        podman.run("volume", "rm", "--force", volume)


def test_a_folder_that_cannot_be_written_is_named_with_the_remedy(podman: Podman, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    for name in IMAGES:
        with podman.container(*HARDENED, ANY_USER, *settings(name), f"--volume={tmp_path}:/data", IMAGES[name]) as id:
            until(lambda id=id: "as root run `chown -R 12345:0 /data`" in podman.logs(id), 60, f"{name}: the remedy")
            assert "Traceback" not in podman.logs(id)


def test_a_build_fails_where_the_model_that_it_asks_for_cannot_be_had(podman: Podman) -> None:
    tag = f"{IMAGES['embed']}-never"
    said = podman.build("docker/embed.Dockerfile", tag, status=None, MODEL=DEFAULT.name, HF_ENDPOINT=NO_HUB)
    assert DEFAULT.name in said
    assert not podman.has(tag)
