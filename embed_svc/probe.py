"""`python -m embed_svc.probe`: whether the server of these settings is well; what a container asks, without a shell.

A command of its own, since the other one loads what serves: too much for a question that is asked every few seconds.
"""

import argparse
import http.client
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence

from embed_svc.errors import Invalid
from embed_svc.settings import from_environment

CHECKS = ("readyz", "livez", "startupz")
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_SECONDS_MAX = 4.0
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask the server; return 0 where the check passes, else 1 (2 where the settings forbid it), and say why."""
    parser = argparse.ArgumentParser(prog="python -m embed_svc.probe", description="Ask whether the server is well.")
    parser.add_argument("check", nargs="?", choices=CHECKS, default=CHECKS[0], help="left out: readyz")
    check = parser.parse_args(arguments).check
    try:
        settings = from_environment()
        if not settings.port:
            raise Invalid("EMBED_PORT=0 is any free port, so that nobody knows which to ask: name one")
    except Invalid as problem:
        sys.stderr.write(f"embed-svc: {problem.text}\n")
        return 2
    if reason := unwell(_url(settings.host, settings.port), check):
        sys.stderr.write(f"embed-svc: {reason}\n")
    return int(bool(reason))


def unwell(url: str, check: str) -> str:
    """Return why a check of the server at this address does not pass, "" where it does."""
    try:
        with _DIRECT.open(f"{url}/{check}", timeout=_SECONDS_MAX):
            return ""
    except urllib.error.HTTPError as answer:
        try:
            return str(json.loads(answer.read())["error"])
        except (ValueError, KeyError, TypeError, OSError):
            return f"status {answer.code}"
    except (OSError, http.client.HTTPException) as error:
        return f"nothing answers at {url}: {getattr(error, 'reason', error)}"


def _url(host: str, port: int) -> str:
    address = _EVERYWHERE.get(host, host)
    return f"http://{f'[{address}]' if ':' in address else address}:{port}"


if __name__ == "__main__":
    sys.exit(main())
