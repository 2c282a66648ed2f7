"""`memory-svc probe`: whether the server of these settings is well; what a container asks, without a shell."""

import argparse
import http.client
import json
import sys
import urllib.error
import urllib.request

from memory_svc.errors import Invalid
from memory_svc.settings import environment, load

CHECKS = ("readyz", "livez", "startupz")
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
SECONDS_MAX = 4.0
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What is asked."""
    parser.add_argument("check", nargs="?", choices=CHECKS, default=CHECKS[0], help="left out: readyz")


def run(arguments: argparse.Namespace) -> int:
    """0 where the check passes; else 1, and stderr says why.

    Raises Invalid for settings that cannot be used.
    """
    settings = load(environment())
    if not settings.port:
        raise Invalid("MEMORY_PORT: 0 is any free port, so that nobody knows which to ask; name one")
    if reason := unwell(reached(settings.host, settings.port), arguments.check):
        sys.stderr.write(f"memory-svc: {reason}\n")
    return int(bool(reason))


def reached(host: str, port: int | str) -> str:
    """The address under which this machine reaches a server that listens there."""
    address = EVERYWHERE.get(host, host)
    return f"http://{f'[{address}]' if ':' in address else address}:{port}"


def unwell(url: str, check: str) -> str:
    """Why a check of the server at this address does not pass; "" where it does."""
    try:
        with DIRECT.open(f"{url}/{check}", timeout=SECONDS_MAX):
            return ""
    except urllib.error.HTTPError as answer:
        try:
            return str(json.loads(answer.read())["error"])
        except (ValueError, KeyError, TypeError, OSError):
            return f"status {answer.code}"
    except (OSError, http.client.HTTPException) as error:
        return f"nothing answers at {url}: {getattr(error, 'reason', error)}"
