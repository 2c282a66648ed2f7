"""Images built and containers run for real, by buildah, podman and runc, and Docker Compose against podman's socket."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.support.installed import CACHE, environment_of
from tests.support.processes import ROOT

BASE = "localhost/agent-memory-tests/python:bookworm"
IMAGES = {name: f"localhost/agent-memory-tests/{name}-svc:latest" for name in ("memory", "embed")}
# What a build inside needs of this machine: its certificates, and where its packages come from.
MOUNTED = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pip.conf")
BUILD_SECONDS_MAX = 900
RUN_SECONDS_MAX = 120
PROGRAMS = ("buildah", "podman", "runc", "mmdebstrap", "iptables", "nsenter")
# Without the limits a container cannot be made where a limit cannot be raised; without the network named, no plugin.
CONFIGURATION = """
[containers]
default_ulimits = ["nofile=16384:16384", "nproc=8192:8192"]
log_driver = "k8s-file"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
[network]
network_backend = "netavark"
"""


class Podman:
    """Podman with a configuration that needs no service manager."""

    def __init__(self, folder: Path) -> None:
        missing = [name for name in PROGRAMS if shutil.which(name) is None]
        assert not missing, (
            f"{', '.join(missing)}: needed by the tests of containers; `make test` installs them as root"
        )
        self.folder = folder
        configuration = folder / "containers.conf"
        configuration.write_text(CONFIGURATION)
        self.environment = os.environ | {"CONTAINERS_CONF": str(configuration)}

    def run(self, *arguments: str, status: int | None = 0, seconds: float = RUN_SECONDS_MAX) -> str:
        """What it prints; status None = it may fail, and what it says then counts too."""
        return self.command("podman", *arguments, status=status, seconds=seconds)

    def command(self, *command: str, status: int | None = 0, seconds: float = RUN_SECONDS_MAX) -> str:
        """What a command prints."""
        done = subprocess.run(
            command, cwd=ROOT, env=self.environment, capture_output=True, text=True, check=False, timeout=seconds
        )
        assert status is None or done.returncode == status, (command, done.stdout[-3000:], done.stderr[-3000:])
        return done.stdout if status == 0 else done.stdout + done.stderr

    def inspect(self, container: str) -> dict[str, Any]:
        """Everything known of a container."""
        found: list[dict[str, Any]] = json.loads(self.run("container", "inspect", container))
        return found[0]

    @contextlib.contextmanager
    def container(self, *arguments: str) -> Iterator[str]:
        """The id of a container that is run so, until the block ends."""
        id = self.run("run", "--detach", *arguments).split()[-1]
        try:
            yield id
        finally:
            self.run("rm", "--force", "--time", "5", "--volumes", id, status=None)

    def logs(self, container: str) -> str:
        """What a container has printed, on either stream."""
        return self.run("logs", container, status=None)

    def build(self, file: str, tag: str, *, status: int | None = 0, **given: str) -> str:
        """Build an image; what the build prints."""
        values = {"BASE_IMAGE": BASE} | given
        return self.command(
            *("buildah", "build", "--isolation=chroot", "--network=host", "--format=docker", "--layers"),
            *(f"--volume={path}:{path}:ro" for path in MOUNTED if Path(path).exists()),
            *(f"--build-arg={key}={value}" for key, value in values.items()),
            *("--file", file, "--tag", tag, "."),
            status=status,
            seconds=BUILD_SECONDS_MAX,
        )

    def has(self, image: str) -> bool:
        """Whether there is such an image."""
        return subprocess.run(["podman", "image", "exists", image], env=self.environment, check=False).returncode == 0

    def make_base(self) -> None:
        """The base of both images, since no registry is asked: Python of Debian."""
        if self.has(BASE):
            return
        packages = "--include=python3,python3-venv,ca-certificates"
        archive = self.folder / "base.tar"
        self.command("mmdebstrap", "--variant=minbase", packages, "bookworm", str(archive), seconds=BUILD_SECONDS_MAX)
        working = self.command("buildah", "from", "scratch").strip()
        self.command("buildah", "add", "--quiet", working, str(archive), "/")
        self.command("buildah", "commit", "--quiet", "--rm", working, BASE)
        archive.unlink()

    @contextlib.contextmanager
    def serving(self) -> Iterator[str]:
        """The address at which Docker's own programs find podman, until the block ends."""
        socket = Path(tempfile.mkdtemp(dir=self.folder)) / "podman.sock"
        process = subprocess.Popen(
            ["podman", "system", "service", "--time=0", f"unix://{socket}"],
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            until(socket.exists, 30, "podman's socket")
            yield f"unix://{socket}"
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)

    @contextlib.contextmanager
    def health_checked(self, project: str) -> Iterator[None]:
        """The health checks of a project's containers are run, as the engine does where there is a service manager."""
        ended = threading.Event()

        def run() -> None:
            while not ended.wait(2.0):
                for id in self.run("ps", "--quiet", "--filter", f"label=com.docker.compose.project={project}").split():
                    self.run("healthcheck", "run", id, status=None)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


class Compose:
    """Docker Compose on the project's own file."""

    def __init__(self, podman: Podman, socket: str, project: str, **settings: str) -> None:
        self.podman = podman
        self.project = project
        program = environment_of("compose") / "bin" / "docker-compose"
        self.base = [str(program), "--project-name", project, "--file", "compose.yaml"]
        images = {f"{name.upper()}_IMAGE": image for name, image in IMAGES.items()}
        self.environment = podman.environment | images | {"DOCKER_HOST": socket} | settings

    def run(self, *arguments: str, seconds: float = 240) -> str:
        """What it prints."""
        done = subprocess.run(
            [*self.base, *arguments],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )
        assert done.returncode == 0, (arguments, done.stdout[-3000:], done.stderr[-3000:])
        return done.stdout

    def up(self, *arguments: str) -> None:
        """Start it, and wait until all of it is healthy."""
        with self.podman.health_checked(self.project):
            self.run("up", "--detach", "--no-build", "--wait", *arguments)

    def token(self) -> str:
        """The memory server's bearer token, read where it was made."""
        return self.run("exec", "-T", "memory", "python", "-c", "print(open('/data/token').read())").strip()


class Memory:
    """A memory server that is published on this machine."""

    def __init__(self, port: int, token: str) -> None:
        self._url, self._token = f"http://127.0.0.1:{port}", token

    def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        """The answer of an operation."""
        answer: dict[str, Any] = json.loads(self._ask(f"/v1/{name}", json.dumps(arguments).encode()))
        return answer

    def gauge(self, name: str) -> float:
        """The value of a metric without labels."""
        lines = self._ask("/metrics").decode().splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))

    def _ask(self, path: str, body: bytes | None = None) -> bytes:
        asked = urllib.request.Request(self._url + path, body, {"Authorization": f"Bearer {self._token}"})
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return bytes(answer.read())


def until(holds: Callable[[], object], seconds: float, what: str) -> None:
    """Wait for it, at most so long."""
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends, f"{what} did not come within {seconds:g} s"
        time.sleep(0.1)


def made(folder: Path) -> Podman:
    """Podman, with the images of both services as this checkout makes them."""
    CACHE.mkdir(exist_ok=True)
    podman = Podman(folder)
    podman.make_base()
    for name, image in IMAGES.items():
        podman.build(f"docker/{name}.Dockerfile", image)
    return podman
