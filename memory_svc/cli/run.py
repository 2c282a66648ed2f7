"""`memory-svc run`: both services on this machine, started, watched and stopped together."""

import argparse
import contextlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from memory_svc.cli.probe import reached, unwell
from memory_svc.errors import Invalid, Unavailable
from memory_svc.settings import Settings, environment, load

ADDRESSES = {"EMBED_HOST": "127.0.0.1", "EMBED_PORT": "8401", "MEMORY_HOST": "127.0.0.1", "MEMORY_PORT": "8402"}
PORT_MAX = 65_535
POLL_SECONDS = 0.2
TELL_SECONDS = 10.0
STOP_SECONDS = 30.0
QUIET = {"EMBED_LOG_LEVEL": "warning", "MEMORY_LOG_LEVEL": "warning"}


class Service:
    """One service as a child process in a session of its own, so that Ctrl-C reaches it once, through us."""

    def __init__(self, module: str, url: str, environ: Mapping[str, str]) -> None:
        self.name = module.replace("_", "-")
        self.url = url
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, "serve"],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            start_new_session=sys.platform != "win32",
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )

    @property
    def ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.poll() is not None

    def waits_for(self) -> str | None:
        """Why it is not ready yet; None once it is.

        Raises Unavailable when its process has ended.
        """
        if self.ended:
            raise Unavailable(f"{self.name} ended with status {self._process.returncode}; it says why above")
        return unwell(self.url, "readyz") or None

    def stop(self) -> None:
        """Ask it to stop, and wait until it has."""
        if not self.ended:
            self._process.send_signal(getattr(signal, "CTRL_BREAK_EVENT", signal.SIGTERM))
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def run(arguments: argparse.Namespace) -> int:  # noqa: ARG001 - every verb takes them
    """Start both services, tell how to connect, stop both when told to or when one ends.

    Raises Invalid for settings that cannot be used, Unavailable when an address is taken or a service ends.
    """
    environ = with_addresses({**QUIET, **environment()})
    settings = load(environ)
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), _interrupt)
    urls = {"embed_svc": url_of(environ, "EMBED"), "memory_svc": url_of(environ, "MEMORY")}
    for prefix in ("EMBED", "MEMORY"):
        _refuse_taken(prefix, environ)
    with started(environ, urls) as services:
        for service in services:
            _wait_until_ready(service)
        _print(instructions(urls, settings))
        while not any(service.ended for service in services):
            time.sleep(POLL_SECONDS)
        raise Unavailable("A service ended by itself; it says why above. The other one is stopped")
    return 0


def with_addresses(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment with a host and a port for both services, and the memory server told of the other one.

    Raises Invalid when a port is none.
    """
    found = {**ADDRESSES, **environ}
    for prefix in ("EMBED", "MEMORY"):
        port = found[f"{prefix}_PORT"]
        if not port.isascii() or not port.isdigit() or int(port) > PORT_MAX:
            raise Invalid(f"{prefix}_PORT: expected a number from 0 to {PORT_MAX}")
        while int(found[f"{prefix}_PORT"]) == 0:
            found[f"{prefix}_PORT"] = str(_free_port())
    found.setdefault("MEMORY_EMBEDDING_URL", url_of(found, "EMBED"))
    return found


def url_of(environ: Mapping[str, str], prefix: str) -> str:
    """The address under which this machine reaches a service."""
    return reached(environ[f"{prefix}_HOST"], environ[f"{prefix}_PORT"])


@contextlib.contextmanager
def started(environ: Mapping[str, str], urls: Mapping[str, str]) -> Iterator[list[Service]]:
    """Both services, until the block ends, however it ends; a Ctrl-C then is no error."""
    services: list[Service] = []
    try:
        for module, url in urls.items():
            services.append(Service(module, url, environ))
        yield services
    except KeyboardInterrupt:
        _print("stopping both services")
    finally:
        for service in reversed(services):
            service.stop()


def instructions(urls: Mapping[str, str], settings: Settings) -> str:
    """What a newcomer needs: where both listen, where the token is, the line that registers the server."""
    url = urls["memory_svc"]
    token_file = settings.token_file or str(Path(settings.data_dir) / "token")
    return f"""
  memory      {url}/mcp
  embeddings  {urls["embed_svc"]}
  token file  {token_file}

Register it with a client, for instance:

  claude mcp add --transport http memory {url}/mcp --header "Authorization: Bearer $(cat '{token_file}')"

Ctrl-C stops both."""


def _refuse_taken(prefix: str, environ: Mapping[str, str]) -> None:
    """Raises Unavailable when another program listens there: it would be taken for our service."""
    host, port = environ[f"{prefix}_HOST"], int(environ[f"{prefix}_PORT"])
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as listener:
            if sys.platform != "win32":
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
    except OSError as error:
        raise Unavailable(
            f"{prefix}_HOST, {prefix}_PORT: cannot listen on {host} port {port} ({error.strerror or error}); end what"
            f" uses it, or set {prefix}_PORT to another port (0 = any free one)"
        ) from error


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _wait_until_ready(service: Service) -> None:
    told = time.monotonic()
    while (reason := service.waits_for()) is not None:
        if time.monotonic() - told > TELL_SECONDS:
            _print(f"waiting for {service.name}: {reason}")
            told = time.monotonic()
        time.sleep(POLL_SECONDS)
    _print(f"{service.name} is ready")


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
