"""`memory-svc run`: both services on this machine, started, watched and stopped together."""

import argparse
import contextlib
import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

from memory_svc.errors import Unavailable
from memory_svc.settings import Settings, environment, load

EMBED_PORT = "8401"
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
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=2):
                return None
        except urllib.error.HTTPError as answer:
            with contextlib.suppress(ValueError, KeyError):
                return str(json.loads(answer.read())["error"])
            return f"status {answer.code}"
        except OSError:
            return "starting"

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

    Raises Invalid for settings that cannot be used, Unavailable when a service ends.
    """
    environ = {**QUIET, **environment()}
    embed_url = f"http://127.0.0.1:{environ.get('EMBED_PORT', EMBED_PORT)}"
    environ.setdefault("MEMORY_EMBEDDING_URL", embed_url)
    settings = load(environ)
    signal.signal(signal.SIGTERM, _interrupt)
    with started(environ, embed_url, settings) as services:
        for service in services:
            _wait_until_ready(service)
        _print(instructions(embed_url, settings))
        while not any(service.ended for service in services):
            time.sleep(POLL_SECONDS)
        raise Unavailable("A service ended by itself; it says why above. The other one is stopped")
    return 0


@contextlib.contextmanager
def started(environ: Mapping[str, str], embed_url: str, settings: Settings) -> Iterator[list[Service]]:
    """Both services, until the block ends, however it ends; a Ctrl-C then is no error."""
    services: list[Service] = []
    try:
        services.append(Service("embed_svc", embed_url, environ))
        services.append(Service("memory_svc", f"http://127.0.0.1:{settings.port}", environ))
        yield services
    except KeyboardInterrupt:
        _print("stopping both services")
    finally:
        for service in reversed(services):
            service.stop()


def instructions(embed_url: str, settings: Settings) -> str:
    """What a newcomer needs: where both listen, where the token is, the line that registers the server."""
    url = f"http://127.0.0.1:{settings.port}"
    token_file = settings.token_file or str(Path(settings.data_dir) / "token")
    return f"""
  memory      {url}/mcp
  embeddings  {embed_url}
  token file  {token_file}

Register it with a client, for instance:

  claude mcp add --transport http memory {url}/mcp --header "Authorization: Bearer $(cat '{token_file}')"

Ctrl-C stops both."""


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
